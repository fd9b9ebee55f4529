// A till with the types that openapi-generator makes: Charge SOCKET. Its calls need packages of NuGet, its types do not.

using System.Net.Http.Json;
using System.Net.Sockets;
using System.Text.Json;
using System.Text.Json.Serialization;
using Org.OpenAPITools.Client;
using Org.OpenAPITools.Model;

var handler = new System.Net.Http.SocketsHttpHandler
{
    ConnectCallback = async (_, stop) =>
    {
        var socket = new Socket(AddressFamily.Unix, SocketType.Stream, ProtocolType.Unspecified);
        await socket.ConnectAsync(new UnixDomainSocketEndPoint(args[0]), stop);
        return new NetworkStream(socket, ownsSocket: true);
    },
};
using var posd = new System.Net.Http.HttpClient(handler) { BaseAddress = new System.Uri("http://posd/v1/") };

// As the generated HostConfiguration does it, which needs NuGet.
var options = new JsonSerializerOptions();
foreach (var type in typeof(StartRequest).Assembly.GetTypes())
    if (type.IsSubclassOf(typeof(JsonConverter)) && !type.IsAbstract && !type.ContainsGenericParameters)
        options.Converters.Add((JsonConverter)System.Activator.CreateInstance(type)!);

var amount = new AskedAmount { Iva = "1.20", SubtotalIva = "10.00" };
var id = System.Guid.NewGuid();
var charge = new StartRequest { Terminal = "SN-0001", Amount = amount };
var started = await posd.PutAsJsonAsync($"transactions/{id}", charge, options);
var state = await started.Content.ReadFromJsonAsync<Transaction>(options);
var outcome = await posd.GetFromJsonAsync<TransactionOutcome>($"transactions/{id}/outcome", options);
charge.Terminal = "SN-NONE";
var refused = await posd.PutAsJsonAsync($"transactions/{System.Guid.NewGuid()}", charge, options);
var problem = await refused.Content.ReadFromJsonAsync<ProblemUnknownTerminal>(options);

System.Console.WriteLine(JsonSerializer.Serialize(new
{
    result = outcome!.Result.ToString().ToLowerInvariant(),
    authorized_amount = outcome.AuthorizedAmount.ToString(),
    same = outcome.ClientTransactionId == id && state!.ClientTransactionId == id,
    never_started = problem!.NeverStarted,
    fleet = problem.Fleet,
}));
