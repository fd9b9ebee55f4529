"""Transaction events as terminals send them: the regular ones, of which the sequences are made (spec 2.1, 3.1)."""

from collections.abc import Mapping
from typing import Any

from tests.vectors.case import Body, Case, as_body
from tests.vectors.wire import (
    ACK,
    APPROVAL,
    CANCELED,
    CARD,
    DECLINED,
    FLEET,
    IDENTITY,
    MERCHANT,
    PREAUTHORIZED,
    REFERENCE,
    REJECTED,
    REQUESTED,
    SECOND_REFERENCE,
    TERMINAL,
    Literal,
    body,
    changed,
)

KIND = "transaction-event"

#: Number in the event_id of each event.
_NUMBERS = {
    status: number for number, status in enumerate((ACK, CARD, REQUESTED, APPROVAL, DECLINED, REJECTED, CANCELED), 1)
}

FAILURE = {"type": "ACQUIRER", "code": "51", "message": "INSUFFICIENT FUNDS"}

RESPONSE = {
    "additional_amounts": {
        "account_type": "00",
        "amount": Literal("11.20"),
        "amount_type": "40",
        "card_type": "credit",
        "currency_code": "840",
    },
    "authorized_amount": Literal("11.20"),
    "card_type": "credit",
    "cvm_type": "NO_CVM",
    "franchise": "VISA",
    "gateway_response": {"code": "000", "message": "Approved"},
    "message_fields": {"F11": "000123", "F38": "A1B2C3", "F39": "00", "F55": "9F2608AABBCCDDEEFF0011"},
    "transaction_reference": REFERENCE,
    "transaction_status": "APPROVAL",
    "transaction_type": "CHARGE",
    "ticket_number": "000123",
    "card_data": {"bank": "Bank", "brand": "VISA", "country": "EC", "type": "credit"},
}

OPERATION = {
    "type": "CHARGE",
    "amount": {
        "currency": "USD",
        "subtotal_iva0": Literal("0"),
        "subtotal_iva": Literal("10.00"),
        "iva": Literal("1.20"),
        "tip": Literal("0"),
        "extra_taxes": {"airport_tax": 0, "iac": 0, "ice": 0, "travel_agency": 0},
    },
    "transaction_mode": "ONLINE",
    "client_transaction_id": IDENTITY,
    "country": "ECU",
    "is_deferred": False,
    "is_cashback": False,
    "cashback_amount": 0,
    "omit_card": False,
    "metadata": {"reference": "ticket 1042"},
    "query_deferred": False,
    "default_deferred": "",
    "show_decimal_places": True,
    "events_webhook_url": f"https://192.0.2.10:8443/webhooks/transactions/{IDENTITY}/token",
}


def document(status: str, previous: str | None, number: int | None = None) -> dict[str, Any]:
    """Return an event of that state as the spec shows it, with all that belongs to it."""
    event: dict[str, Any] = {
        "event_id": f"00000000-0000-4000-8000-{number or _NUMBERS[status]:012}",
        "occurred_at": "2026-11-20T10:42:03.120Z",
        "status": status,
        "merchant_id": MERCHANT,
        "client_transaction_id": IDENTITY,
        "terminal": {"serial_number": TERMINAL, "brand": "Brand", "model": "M-100"},
    }
    if previous is not None:
        event["previous_status"] = previous
    if status in (CARD, REQUESTED, APPROVAL, DECLINED) or (status == REJECTED and previous != ACK):
        event["reading_type"] = "CONTACTLESS"
    if status in (APPROVAL, REJECTED, CANCELED):
        event["operation"] = OPERATION
    if status in (DECLINED, REJECTED):
        event["failure_reason"] = FAILURE
    if status == APPROVAL:
        event["raw_response"] = RESPONSE
    return event


#: What posd, and any reader, has to take from an event; the rest stays in the bytes. Amounts become text.
READ: Mapping[str, Any] = {
    "event_id": True,
    "occurred_at": True,
    "status": True,
    "merchant_id": True,
    "client_transaction_id": True,
    "terminal": {"serial_number": True, "brand": True, "model": True},
    "previous_status": True,
    "reading_type": True,
    "operation": {"type": True, "amount": {"tip": True}},
    "failure_reason": {"type": True, "code": True, "message": True},
    "raw_response": {
        "transaction_reference": True,
        "ticket_number": True,
        "authorized_amount": True,
        "card_type": True,
        "cvm_type": True,
        "franchise": True,
        "message_fields": {"F38": True},
    },
}


def reads(event: Mapping[str, Any], wanted: Mapping[str, Any] = READ) -> dict[str, Any]:
    """Return what a reader takes from a regular event: members of `READ` that are there, literals as text."""
    taken: dict[str, Any] = {}
    for name, inner in wanted.items():
        value = event.get(name)
        if isinstance(inner, Mapping) and isinstance(value, Mapping):
            taken[name] = reads(value, inner)
        elif inner is True and value is not None:
            taken[name] = str(value)
    if "operation" in taken:
        taken["operation"] = {name: value for name, value in taken["operation"].items() if value != {}}
    return {name: value for name, value in taken.items() if value != {} or name in ("failure_reason", "raw_response")}


def given(content: bytes | Body, fleet: list[str] = FLEET, merchant: str = "") -> dict[str, Any]:
    """Return what a vector of an event gives."""
    return {
        "client_transaction_id": IDENTITY,
        "fleet": fleet,
        "merchant_id": merchant,
        "body": as_body(content),
    }


def accepted(name: str, about: str, source: str, content: bytes | Body, taken: dict[str, Any], **world: Any) -> Case:
    """Return the vector of an event that is taken, with what is read from it."""
    return Case(KIND, name, about, source, given(content, **world), {"reply": 200, "reads": taken})


def regular(name: str, about: str, event: dict[str, Any], source: str = "spec 2.1, 3.1, 6.1") -> Case:
    """Return the vector of an event as the spec shows it."""
    return accepted(f"valid-{name}", about, source, body(event), reads(event))


def refused(
    name: str, about: str, source: str, content: bytes | Body, field: str | None, reply: int = 400, **world: Any
) -> Case:
    """Return the vector of a body that is refused for good; `field` is what is wrong, None: it is no JSON object."""
    return Case(KIND, name, about, source, given(content, **world), {"reply": reply, "field": field})


def operation(kind: str, **members: Any) -> dict[str, Any]:
    """Return the approval of an operation type."""
    event = changed(document(APPROVAL, REQUESTED), "operation", OPERATION | {"type": kind} | members)
    return changed(event, "raw_response.transaction_type", kind)


def _derived(kind: str) -> dict[str, Any]:
    event = operation(kind, transaction_reference=PREAUTHORIZED)
    return changed(event, "raw_response.transaction_reference", SECOND_REFERENCE)


def cases() -> list[Case]:
    """Return the regular events: each state, each way to it, each operation type."""
    without_previous = "the final without previous_status: section 6.1 does not list it among what a final carries"
    tipped = changed(document(APPROVAL, REQUESTED), "operation.amount.tip", Literal("1.50"))
    return [
        regular("acknowledged", "the first event: no previous_status", document(ACK, None)),
        regular("card-contactless", "the card was presented, contactless", document(CARD, ACK)),
        regular("card-chip", "the card was inserted", document(CARD, ACK) | {"reading_type": "CHIP"}),
        regular("card-magnetic", "the card was swiped", document(CARD, ACK) | {"reading_type": "MAGNETIC_STRIPE"}),
        regular("card-second", "the card was presented again", document(CARD, CARD, 12)),
        regular("card-third", "the card was presented a third time", document(CARD, CARD, 13)),
        regular("requested", "sent to the acquirer: the point of no return", document(REQUESTED, CARD)),
        regular("approval", "approved, with all that the spec names", document(APPROVAL, REQUESTED)),
        regular(
            "approval-no-previous",
            without_previous,
            changed(document(APPROVAL, REQUESTED), "previous_status", remove=True),
        ),
        regular("declined", "declined by the acquirer", document(DECLINED, REQUESTED)),
        regular(
            "declined-no-previous",
            without_previous,
            changed(document(DECLINED, REQUESTED), "previous_status", remove=True),
        ),
        regular("rejected-before-card", "the wait for the card ran out: no reading_type", document(REJECTED, ACK)),
        regular("rejected-after-card", "the wait for the PIN ran out", document(REJECTED, CARD)),
        regular("canceled-before-card", "canceled: no reading_type, no failure_reason", document(CANCELED, ACK)),
        regular("canceled-after-card", "canceled while the card was read", document(CANCELED, CARD)),
        regular("approval-preauth", "a pre-authorization", operation("PREAUTH")),
        regular(
            "approval-capture", "a capture: two references, the one that counts is raw_response's", _derived("CAPTURE")
        ),
        regular("approval-reauthorization", "a re-authorization: two references", _derived("REAUTHORIZATION")),
        regular(
            "approval-tip",
            "the terminal added a tip of 1.50, and 12.70 were authorized",
            changed(tipped, "raw_response.authorized_amount", Literal("12.70")),
        ),
        # What sequences are made of: the same states again, or otherwise.
        regular(
            "approval-another-reference",
            "another approval of the same payment: another reference",
            changed(document(APPROVAL, REQUESTED, 24), "raw_response.transaction_reference", SECOND_REFERENCE),
        ),
        regular("approval-again", "the same approval under another event_id", document(APPROVAL, REQUESTED, 34)),
        regular(
            "approval-other-amount",
            "10.00 were authorized",
            changed(document(APPROVAL, REQUESTED), "raw_response.authorized_amount", Literal("10.00")),
        ),
        regular(
            "approval-other-bytes",
            "the event_id of the approval, with another ticket number",
            changed(document(APPROVAL, REQUESTED), "raw_response.ticket_number", "000999"),
        ),
        regular(
            "approval-used-event-id",
            "an approval under the event_id of the first event",
            document(APPROVAL, REQUESTED, 1),
        ),
        regular(
            "declined-again",
            "declined, under another event_id and with another code",
            changed(document(DECLINED, REQUESTED, 25), "failure_reason.code", "05"),
        ),
        regular(
            "canceled-after-request",
            "canceled after the point of no return: the spec's table does not have it",
            document(CANCELED, REQUESTED),
        ),
        regular("rejected-after-request", "rejected after the point of no return", document(REJECTED, REQUESTED)),
        regular("canceled-again", "the same cancellation under another event_id", document(CANCELED, ACK, 27)),
        regular("acknowledged-again", "the first event once more, under another event_id", document(ACK, None, 21)),
        accepted(
            "valid-acknowledged-other-bytes",
            "the first event with one space more: the same event_id, other bytes",
            "spec 6.2, design 5",
            body(document(ACK, None)) + b" ",
            reads(document(ACK, None)),
        ),
        regular(
            "acknowledged-second-terminal",
            "the first event, from another terminal of the fleet",
            changed(document(ACK, None), "terminal.serial_number", "SN-0002"),
        ),
        regular(
            "approval-second-terminal",
            "the approval, from another terminal of the fleet",
            changed(document(APPROVAL, REQUESTED), "terminal.serial_number", "SN-0002"),
        ),
    ]
