"""A till made with openapi-python-client: `charge.py SOCKET`. The generated package `posd_api` is in the path."""

import json
import sys
import uuid

import httpx
from posd_api import Client
from posd_api.api.transactions import (
    abort_transaction,
    await_outcome,
    get_history,
    list_transactions,
    start_transaction,
)
from posd_api.models import AskedAmount, AskedOperationType, ListTransactionsMetadata, StartRequest
from posd_api.models import StartRequestMetadataType0 as Metadata

client = Client("http://posd", httpx_args={"transport": httpx.HTTPTransport(uds=sys.argv[1])})
identity, reference = uuid.uuid4(), str(uuid.uuid4())
request = StartRequest(
    terminal="SN-0001",
    type_=AskedOperationType.CHARGE,
    amount=AskedAmount(iva="1.20", subtotal_iva="10.00"),
    metadata=Metadata.from_dict({"reference": reference}),
)
started = start_transaction.sync(identity, client=client, body=request)
outcome = await_outcome.sync(identity, client=client)
history = get_history.sync(identity, client=client)
listed = list_transactions.sync(
    client=client, metadata=ListTransactionsMetadata.from_dict({"metadata.reference": reference})
)
request.terminal = "SN-NONE"
refused = [
    abort_transaction.sync(identity, client=client),
    start_transaction.sync(uuid.uuid4(), client=client, body=request),
]
print(
    json.dumps(
        {
            "next_step": started.next_step,
            "result": outcome.result,
            "authorized_amount": str(outcome.authorized_amount),
            "first_line": history.history[0].kind,
            "listed": [str(item.client_transaction_id) == str(identity) for item in listed.transactions],
            "refused": [item.code for item in refused],
            "fleet": refused[1].fleet,
        }
    )
)
