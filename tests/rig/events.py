"""Events as a terminal sends them (terminal API, Events). A test can replace every field."""

import json
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from posd.base.times import iso

#: Final of the terminal -> posd's result.
RESULTS = {
    "APPROVAL": "approved",
    "DECLINED": "declined",
    "TERMINAL_REJECTED": "rejected",
    "TERMINAL_CANCELED": "canceled",
}
FINALS = tuple(RESULTS)

#: Events of an approved contactless charge, each with the previous state (terminal API, Lifecycle).
APPROVED = (
    ("TERMINAL_ACKNOWLEDGED", None),
    ("CARD_PRESENTED", "TERMINAL_ACKNOWLEDGED"),
    ("APPROVAL_REQUESTED", "CARD_PRESENTED"),
    ("APPROVAL", "APPROVAL_REQUESTED"),
)


def event(
    identity: str, status: str, /, previous: str | None = None, serial: str = "SN-TEST", **changes: Any
) -> dict[str, Any]:
    """Return an event. Keyword arguments replace or add top-level fields. The value None removes a field."""
    document: dict[str, Any] = {
        "event_id": str(uuid4()),
        "occurred_at": iso(datetime.now(UTC)),
        "status": status,
        "merchant_id": "M-1",
        "client_transaction_id": identity,
        "terminal": {"serial_number": serial, "brand": "Brand", "model": "Model"},
    }
    if previous is not None:
        document["previous_status"] = previous
    if status not in ("TERMINAL_ACKNOWLEDGED", "TERMINAL_CANCELED"):
        document["reading_type"] = "CONTACTLESS"
    if status in ("DECLINED", "TERMINAL_REJECTED"):
        document["failure_reason"] = {"type": "T", "code": "51", "message": "no"}
    if status == "APPROVAL":
        document["raw_response"] = {
            "transaction_reference": str(uuid4()),
            "ticket_number": "000123",
            "authorized_amount": 11.20,
            "card_type": "credit",
            "cvm_type": "NONE",
            "franchise": "VISA",
            "message_fields": {"F38": "A1B2C3", "F39": "00"},
        }
    document |= changes
    return {name: value for name, value in document.items() if value is not None}


def body(*arguments: Any, **changes: Any) -> bytes:
    """Return an event as bytes (see `event`)."""
    return json.dumps(event(*arguments, **changes)).encode()
