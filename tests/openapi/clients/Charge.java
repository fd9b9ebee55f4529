import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.openapitools.client.ApiClient;
import org.openapitools.client.ApiException;
import org.openapitools.client.api.TransactionsApi;
import org.openapitools.client.model.AbortTransaction409Response;
import org.openapitools.client.model.AskedAmount;
import org.openapitools.client.model.AskedDecimal;
import org.openapitools.client.model.AskedOperationType;
import org.openapitools.client.model.Outcome;
import org.openapitools.client.model.ProblemAlreadyFinal;
import org.openapitools.client.model.ProblemUnknownTerminal;
import org.openapitools.client.model.StartRequest;
import org.openapitools.client.model.StartTransaction422Response;
import org.openapitools.client.model.Transaction;

/** A till made with openapi-generator for Java: `Charge URL`. Its HTTP client knows no Unix sockets. */
public class Charge {
    public static void main(String[] arguments) throws Exception {
        ApiClient client = new ApiClient();
        client.updateBaseUri(arguments[0]);
        ObjectMapper mapper = client.getObjectMapper();
        TransactionsApi api = new TransactionsApi(client);
        UUID id = UUID.randomUUID();
        String reference = UUID.randomUUID().toString();
        StartRequest request = new StartRequest()
                .terminal("SN-0001")
                .type(AskedOperationType.CHARGE)
                .amount(new AskedAmount().iva(new AskedDecimal("1.20")).subtotalIva(new AskedDecimal("10.00")))
                .metadata(Map.of("reference", reference));
        Transaction started = api.startTransaction(id, request);
        Outcome outcome = api.awaitOutcome(id, null);
        Object first = api.getHistory(id).getHistory().get(0).getActualInstance();
        ProblemAlreadyFinal tooLate = null;
        try {
            api.abortTransaction(id);
        } catch (ApiException refused) {
            tooLate = mapper.readValue(refused.getResponseBody(), AbortTransaction409Response.class)
                    .getProblemAlreadyFinal();
        }
        ProblemUnknownTerminal unknown = null;
        try {
            api.startTransaction(UUID.randomUUID(), request.terminal("SN-NONE"));
        } catch (ApiException refused) {
            unknown = mapper.readValue(refused.getResponseBody(), StartTransaction422Response.class)
                    .getProblemUnknownTerminal();
        }
        System.out.println(mapper.writeValueAsString(Map.of(
                "next_step", started.getNextStep(),
                "result", outcome.getResult(),
                "authorized_amount", outcome.getAuthorizedAmount().toPlainString(),
                "first_line", mapper.valueToTree(first).get("kind"),
                "refused", List.of(tooLate.getCode(), unknown.getCode()),
                "fleet", unknown.getFleet())));
    }
}
