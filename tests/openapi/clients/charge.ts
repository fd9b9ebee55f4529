// A till made with openapi-typescript and openapi-fetch: `node charge.js SOCKET`. The types are in posd.d.ts beside it.

import { randomUUID } from "node:crypto";
import createClient from "openapi-fetch";
import { Agent } from "undici";
import type { components, paths } from "./posd.js";

const [socket = ""] = process.argv.slice(2);
const dispatcher = new Agent({ connect: { socketPath: socket } });
const posd = createClient<paths>({
  baseUrl: "http://posd",
  fetch: (request) => fetch(request, { dispatcher } as RequestInit),
  querySerializer: { object: { style: "form", explode: true } },
});

const id = randomUUID();
const reference = randomUUID();
const at = { params: { path: { client_transaction_id: id } } };
const charge = {
  terminal: "SN-0001",
  type: "charge" as const,
  amount: { iva: "1.20", subtotal_iva: "10.00" },
  metadata: { reference },
};
// @ts-expect-error - the member is subtotal_iva0, and a misspelt member does not compile
const misspelt: components["schemas"]["AskedAmount"] = { iva: "1.20", subtotal_iva_0: "10.00" };
const started = await posd.PUT("/v1/transactions/{client_transaction_id}", { ...at, body: charge });
const ended = await posd.GET("/v1/transactions/{client_transaction_id}/outcome", at);
const history = await posd.GET("/v1/transactions/{client_transaction_id}/history", at);
const listed = await posd.GET("/v1/transactions", {
  params: { query: { metadata: { "metadata.reference": reference } } },
});
const tooLate = await posd.POST("/v1/transactions/{client_transaction_id}/abort", at);
const unknown = await posd.PUT("/v1/transactions/{client_transaction_id}", {
  params: { path: { client_transaction_id: randomUUID() } },
  body: { ...charge, terminal: "SN-NONE" },
});
const outcome = ended.data !== undefined && "result" in ended.data ? ended.data : undefined;

console.log(
  JSON.stringify({
    next_step: started.data?.next_step,
    result: outcome?.result,
    authorized_amount: String(outcome?.authorized_amount),
    first_line: history.data?.history[0]?.kind,
    listed: listed.data?.transactions.map((item) => item.client_transaction_id === id),
    refused: [tooLate.error?.code, unknown.error?.code],
    fleet: unknown.error !== undefined && "fleet" in unknown.error ? unknown.error.fleet : undefined,
  }),
);
await dispatcher.close();
