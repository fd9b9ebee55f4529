"""Valid documents of every kind as seeds of the generators, and the names and values of the protocol."""

from decimal import Decimal
from typing import Any

from tests.rig.events import APPROVED, FINALS, event

IDENTITY = "7f3c1f0e-3b0a-4d7c-9d55-0f6b1c2a9e11"
OTHER_IDENTITY = "00000000-0000-4000-8000-000000000001"
SERIAL = "SN-TEST"
PRINT_JOB = "receipt-1042"
#: The terminal's own id of a print job.
TERMINAL_JOB = "T-77"

STATUSES = tuple(dict.fromkeys((*(status for status, _ in APPROVED), *FINALS)))
PRINT_STATUSES = ("PENDING", "IN_PROGRESS", "COMPLETED", "FAILED")

OPERATION: dict[str, Any] = {
    "type": "CHARGE",
    "amount": {"currency": "USD", "subtotal_iva": Decimal("10.00"), "iva": Decimal("1.20"), "tip": Decimal("0.50")},
    "client_transaction_id": IDENTITY,
    "country": "ECU",
    "is_deferred": False,
    "cashback_amount": 0,
    "metadata": {"reference": "ticket 1042", "nested": {"list": [1, None, "x"]}},
    "events_webhook_url": "https://192.0.2.1:8443/webhooks/x",
}


def _event(status: str, previous: str | None, **changes: Any) -> dict[str, Any]:
    made = event(IDENTITY, status, previous, SERIAL, event_id=f"{status} after {previous}", **changes)
    if "raw_response" in made:
        exact = {"transaction_reference": OTHER_IDENTITY, "authorized_amount": Decimal("11.20")}
        made["raw_response"] = made["raw_response"] | exact
    return made


#: Every state of the terminal API, and all members of final events.
EVENTS: tuple[dict[str, Any], ...] = (
    *(_event(status, previous) for status, previous in APPROVED),
    _event("APPROVAL", "APPROVAL_REQUESTED", operation=OPERATION),
    _event("DECLINED", "APPROVAL_REQUESTED", operation=OPERATION),
    _event("TERMINAL_REJECTED", "CARD_PRESENTED", operation=OPERATION),
    _event("TERMINAL_CANCELED", "TERMINAL_ACKNOWLEDGED", operation=OPERATION),
    _event("APPROVAL", "CARD_PRESENTED", client_transaction_id=IDENTITY.upper()),
)
EVENT_WORDS = (*STATUSES, "TERMINAL_UNKNOWN", IDENTITY, IDENTITY.upper(), OTHER_IDENTITY, SERIAL, "SN-OTHER", "tip")

ACKNOWLEDGEMENTS: tuple[dict[str, Any], ...] = (
    {
        "event_id": OTHER_IDENTITY,
        "status": "TERMINAL_ACKNOWLEDGED",
        "previous_status": "",
        "operation": {"type": "charge", "client_transaction_id": IDENTITY},
        "terminal": {"serialNumber": SERIAL, "model": "M", "wifiMac": "00:00", "room": "", "terminal_id": "1"},
    },
    {"status": "TERMINAL_ACKNOWLEDGED", "client_transaction_id": IDENTITY.upper()},
    {"error": {"code": "BUSY", "message": "a payment is running"}},
)

SEARCH_REPLIES: tuple[Any, ...] = (
    EVENTS[-1],
    list(EVENTS[:4]),
    [],
    {"data": {"transactions": [EVENTS[4]], "total": 1}},
    {"data": {"transactions": []}},
    [_event("APPROVAL", None) | {"client_transaction_id": OTHER_IDENTITY}, EVENTS[5]],
)
POINTERS = ("", "", "/data/transactions", "/0", "/data/transactions/0", "/a~1b", "//")


def _print_webhook(status: str, job: str = PRINT_JOB, **fields: str) -> dict[str, Any]:
    return {"printJobId": job, "status": status, "externalReference": ""} | fields


PRINT_WEBHOOKS = (
    _print_webhook("COMPLETED", externalReference="1042"),
    _print_webhook("FAILED", errorCode="E-7", errorMessage="out of paper"),
    _print_webhook("COMPLETED", TERMINAL_JOB),
)
PRINT_WORDS = (*PRINT_STATUSES, "PAUSED", PRINT_JOB, TERMINAL_JOB, "another", "printJobId", "id", "errorCode")
