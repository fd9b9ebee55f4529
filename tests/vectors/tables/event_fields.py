"""Transaction events, field by field: absent, null, of another type, twice, and numbers of every kind (spec 2.1).

The status must be there and be a text, and no id and no serial may be another's or say two things: otherwise the body
is no event, which is kept and refused for good. Everything else is read as far as it goes: an approval is never refused
because of it.
"""

from typing import Any

from tests.vectors.case import Case
from tests.vectors.tables.events import DECLINED, accepted, document, reads, refused
from tests.vectors.wire import APPROVAL, REJECTED, REQUESTED, SECOND, SECOND_REFERENCE, Literal, body, changed, text

ENVELOPE = (
    "event_id",
    "occurred_at",
    "status",
    "merchant_id",
    "client_transaction_id",
    "terminal",
    "terminal.serial_number",
)
#: What posd reads of an approval beside the envelope.
OPTIONAL = (
    "terminal.brand",
    "terminal.model",
    "previous_status",
    "reading_type",
    "operation",
    "operation.type",
    "operation.amount",
    "operation.amount.tip",
    "raw_response",
    "raw_response.transaction_reference",
    "raw_response.ticket_number",
    "raw_response.authorized_amount",
    "raw_response.card_type",
    "raw_response.cvm_type",
    "raw_response.franchise",
    "raw_response.message_fields",
    "raw_response.message_fields.F38",
)
#: Fields that posd does not read. They may be missing or strange.
UNREAD = (
    "operation.amount.currency",
    "operation.metadata",
    "operation.country",
    "operation.is_deferred",
    "operation.events_webhook_url",
    "raw_response.additional_amounts",
    "raw_response.gateway_response",
    "raw_response.card_data",
    "raw_response.transaction_status",
)
DAMAGE = "design 13.5 (an approval is too dear to lose to one bad byte)"
#: A text that is longer than posd keeps: 257 characters.
LONG = "x" * 257

BASE = document(APPROVAL, REQUESTED)
TAKEN = reads(BASE)
DECLINE = document(DECLINED, REQUESTED)


def _word(path: str) -> str:
    return path.replace(".", "-").replace("_", "-").lower()


def _without(taken: dict[str, Any], path: str) -> dict[str, Any]:
    """Return what is read where nothing can be read at the path."""
    left = changed(taken, path, remove=True)
    if left.get("operation", {}).get("amount") == {}:
        left = changed(left, "operation.amount", remove=True)
    if left.get("raw_response", {}).get("message_fields") == {}:
        left = changed(left, "raw_response.message_fields", remove=True)
    return left


def _envelope() -> list[Case]:
    wrong = {
        "null": None,
        "empty": "",
        "number": 7,
        "true": True,
        "list": ["x"],
        "object": {},
        "long": LONG,
    }
    found = []
    for path in ENVELOPE:
        taken, name = _without(TAKEN, path), f"missing-{_word(path)}"
        absent = body(changed(BASE, path, remove=True))
        if path == "status":
            found.append(refused(name, f"{path} is missing", "spec 2.1, design 5", absent, path))
        else:
            found.append(accepted(name, f"{path} is missing", DAMAGE, absent, taken))
        for kind, value in wrong.items():
            about = f"{path} is of another kind: {kind}" if kind != "long" else f"{path} has 257 characters"
            name, content = f"type-{_word(path)}-{kind}", body(changed(BASE, path, value))
            reply = FOREIGN.get((path, kind))
            if reply is not None or path == "status":
                found.append(refused(name, about, "spec 2.1, design 5", content, path, reply=reply or 400))
                continue
            left = taken
            if path in ("occurred_at", "merchant_id") and kind in ("number", "long"):
                left = changed(TAKEN, path, str(value)[:256])
            found.append(accepted(name, about, DAMAGE, content, left))
    return found


#: What says of another id, or of a terminal that is not ours -> the reply.
FOREIGN = {
    ("client_transaction_id", "number"): 400,
    ("client_transaction_id", "long"): 400,
    ("terminal.serial_number", "number"): 403,
    ("terminal.serial_number", "long"): 403,
}


def _optional() -> list[Case]:
    source = "spec 2.1 (conditional), design 5"
    found = []
    for path in OPTIONAL:
        taken = _without(TAKEN, path)
        wrong = {"null": None, "true": True, "list": [1], "object": {"a": 1}, "empty": ""}
        if path in ("operation", "operation.amount", "raw_response", "raw_response.message_fields"):
            wrong = {"null": None, "true": True, "list": [{}], "text": "x", "number": 7}
        elif path.startswith("terminal") or path in (
            "operation.type",
            "raw_response.card_type",
            "raw_response.cvm_type",
            "raw_response.franchise",
            "raw_response.message_fields.F38",
        ):
            del wrong["empty"]  # an empty text is one: it says nothing, and no more is asked
        absent = body(changed(BASE, path, remove=True))
        found.append(accepted(f"absent-{_word(path)}", f"an approval without {path}", source, absent, taken))
        for kind, value in wrong.items():
            content = body(changed(BASE, path, value))
            about = f"an approval whose {path} is of another kind ({kind}): as if it were not there"
            found.append(accepted(f"type-{_word(path)}-{kind}", about, source, content, taken))
    for path in UNREAD:
        content = body(changed(BASE, path, remove=True))
        found.append(accepted(f"absent-{_word(path)}", f"an approval without {path}", source, content, TAKEN))
        content = body(changed(BASE, path, [None]))
        found.append(accepted(f"type-{_word(path)}-list", f"an approval with a strange {path}", source, content, TAKEN))
    empty = changed(TAKEN, "raw_response", {})
    found.append(
        accepted(
            "absent-raw-response-members",
            "an approval with an empty raw_response",
            source,
            body(changed(BASE, "raw_response", {})),
            empty,
        )
    )
    return found


def _failures() -> list[Case]:
    found = []
    source = "spec 2.1, 7"
    for event, word in ((DECLINE, "declined"), (document(REJECTED, "CARD_PRESENTED"), "rejected")):
        taken = reads(event)
        for path in ("failure_reason", "failure_reason.type", "failure_reason.code", "failure_reason.message"):
            left = changed(taken, path, remove=True)
            for kind, content in (
                ("absent", body(changed(event, path, remove=True))),
                ("null", body(changed(event, path))),
                ("list", body(changed(event, path, [1]))),
            ):
                name = f"{word}-{_word(path)}-{kind}"
                found.append(accepted(name, f"{word}, {path} {kind}", source, content, left))
    number = changed(DECLINE, "failure_reason.code", 51)
    found.append(
        accepted(
            "declined-failure-reason-code-number",
            "the code as a number: its digits",
            source,
            body(number),
            reads(DECLINE),
        )
    )
    canceled = changed(
        document("TERMINAL_CANCELED", "TERMINAL_ACKNOWLEDGED"), "failure_reason", DECLINE["failure_reason"]
    )
    found.append(
        accepted(
            "canceled-with-failure-reason",
            "a cancellation that carries a failure_reason against the spec",
            "spec 3.1 rule 8, design 5",
            body(canceled),
            reads(canceled),
        )
    )
    return found


#: literal -> the amount that it says, None: none.
AMOUNTS: dict[str, tuple[str, str | None]] = {
    "ten-ten": ("10.10", "10.10"),
    "integer": ("11", "11"),
    "zero": ("0", "0"),
    "zero-places": ("0.00", "0.00"),
    "minus-zero": ("-0", "0"),
    "negative": ("-11.20", "-11.20"),
    "binary-trap": ("0.1", "0.1"),
    "binary-trap-sum": ("1.005", "1.005"),
    "many-places": ("0.12345678901234567890", "0.12345678901234567890"),
    "beyond-float": ("9007199254740993.01", "9007199254740993.01"),
    "large": ("999999999999.9999", "999999999999.9999"),
    "exponent": ("1.12e1", "11.2"),
    "exponent-places": ("1.120e1", "11.20"),
    "exponent-capital-plus": ("1E+1", "10"),
    "exponent-negative": ("1120e-2", "11.20"),
    "1e400": ("1e400", None),
    "minus-1e400": ("-1e400", None),
    "1e-400": ("1e-400", None),
    "beyond-decimal": ("1e99999999999999999999", None),
    "huge-integer": ("1" + "0" * 40, None),
    "text": ('"11.20"', "11.20"),
    "text-integer": ('"11"', "11"),
    "text-comma": ('"11,20"', None),
    "text-thousands": ('"1,120.00"', None),
    "text-underscore": ('"1_1.20"', None),
    "text-space": ('" 11.20"', None),
    "text-plus": ('"+11.20"', None),
    "text-exponent": ('"1.12e1"', None),
    "text-currency": ('"USD 11.20"', None),
    "text-empty": ('""', None),
    "text-nan": ('"NaN"', None),
    "text-infinity": ('"Infinity"', None),
    "text-arabic-digits": ('"\\u0661\\u0661"', None),
    "true": ("true", None),
}
#: Literals that are no JSON.
NO_NUMBERS = {
    "nan": "NaN",
    "infinity": "Infinity",
    "minus-infinity": "-Infinity",
    "hexadecimal": "0x1F",
    "leading-zero": "011.20",
    "leading-plus": "+11.20",
    "leading-point": ".20",
    "trailing-point": "11.",
    "comma": "11,20",
    "underscore": "1_120",
    "exponent-alone": "11e",
    "minus-alone": "-",
    "two-points": "11.20.0",
    "fullwidth": "\uff11",
}


def _numbers() -> list[Case]:
    found = []
    for word, (literal, amount) in AMOUNTS.items():
        content = body(changed(BASE, "raw_response.authorized_amount", Literal(literal)))
        taken = _without(TAKEN, "raw_response.authorized_amount")
        if amount is not None:
            taken = changed(TAKEN, "raw_response.authorized_amount", amount)
        about = f"authorized_amount is {literal if len(literal) < 30 else literal[:20] + '...'}"
        found.append(accepted(f"number-{word}", about, "spec 2.1, design 4 (amounts are exact)", content, taken))
    for word, literal in NO_NUMBERS.items():
        content = body(changed(BASE, "raw_response.authorized_amount", Literal(literal)))
        name, about = f"no-number-{word}", f"{literal} is no JSON (RFC 8259)"
        if word == "comma":  # it is in place of one
            found.append(refused(name, about, "design 5", content, None))
        else:
            taken = _without(TAKEN, "raw_response.authorized_amount")
            found.append(accepted(name, f"{about}: no amount", DAMAGE, content, taken))
    long = body(BASE | {"extra": Literal("7" * 4000)})
    found.append(
        accepted(
            "number-extra-4000-digits",
            "a number of 4000 digits in a field that posd does not read",
            "design 5 (extra fields)",
            long,
            TAKEN,
        )
    )
    ticket = body(changed(BASE, "raw_response.ticket_number", 123))
    found.append(
        accepted(
            "number-ticket-number",
            "ticket_number as a number: its digits",
            "spec 6.3 rule 5",
            ticket,
            changed(TAKEN, "raw_response.ticket_number", "123"),
        )
    )
    return found


def twice(event: Any, path: str, value: Any, *, before: bool = False) -> bytes:
    """Return the event with a second member of that name, at the end of its object or before all others."""
    name, _, rest = path.partition(".")
    if rest:
        inner = Literal(twice(event[name], rest, value, before=before).decode())
        return body(changed(event, name, inner))
    own, member = text(event), f"{text(name)}: {text(value)}"
    return (f"{{{member}, {own[1:]}" if before else f"{own[:-1]}, {member}}}").encode()


#: path -> what the second member says; each of them would change what is believed.
DECISIVE: dict[str, Any] = {
    "event_id": "00000000-0000-4000-8000-00000000ffff",
    "occurred_at": "2026-11-21T10:42:03.120Z",
    "status": DECLINED,
    "merchant_id": "M-2",
    "client_transaction_id": "11111111-2222-4333-8444-555555555555",
    "terminal": {"serial_number": SECOND},
    "terminal.serial_number": SECOND,
    "previous_status": "CARD_PRESENTED",
    "raw_response": {"transaction_reference": SECOND_REFERENCE},
    "raw_response.transaction_reference": SECOND_REFERENCE,
    "raw_response.ticket_number": "000999",
}


#: Those of them by which an event would be of another payment or terminal, or state another end.
WHOSE = frozenset({"status", "client_transaction_id", "terminal", "terminal.serial_number"})


def _repeated() -> list[Case]:
    source = "design 5 (what says two things is no event; nothing is thrown away)"
    found = []
    for path, value in DECISIVE.items():
        about = f"{path} stands twice and says two things"
        for name, content in (
            (f"twice-{_word(path)}", twice(BASE, path, value)),
            (f"twice-{_word(path)}-before", twice(BASE, path, value, before=True)),
        ):
            if path in WHOSE:
                found.append(refused(name, about, source, content, path))
            else:
                found.append(accepted(name, f"{about}: none can be believed", DAMAGE, content, _without(TAKEN, path)))
    same = "stands twice and says the same: harmless"
    for path in ("status", "terminal", "raw_response", "raw_response.authorized_amount"):
        value: Any = BASE
        for name in path.split("."):
            value = value[name]
        found.append(accepted(f"twice-{_word(path)}-same", f"{path} {same}", source, twice(BASE, path, value), TAKEN))
    escaped = body(BASE)[:-1] + b', "st\\u0061tus": "DECLINED"}'
    found.append(
        refused(
            "twice-status-escaped", "status stands twice, once with an escape in its name", source, escaped, "status"
        )
    )
    unclear = "says two amounts: none can be believed"
    found.append(
        accepted(
            "twice-raw-response-authorized-amount",
            f"authorized_amount {unclear}",
            source,
            twice(BASE, "raw_response.authorized_amount", Literal("10.00")),
            _without(TAKEN, "raw_response.authorized_amount"),
        )
    )
    found.append(
        accepted(
            "twice-operation-amount-tip",
            f"the tip {unclear}",
            source,
            twice(BASE, "operation.amount.tip", Literal("5")),
            _without(TAKEN, "operation.amount.tip"),
        )
    )
    for path, value in (("extra", 1), ("operation.metadata", {"a": 1}), ("raw_response.card_data", {})):
        event = BASE | {"extra": 2}
        found.append(
            accepted(
                f"twice-{_word(path)}-unread",
                f"{path} stands twice: posd does not read it",
                source,
                twice(event, path, value),
                TAKEN,
            )
        )
    return found


def cases() -> list[Case]:
    """Return every case of this theme."""
    return [*_envelope(), *_optional(), *_failures(), *_numbers(), *_repeated()]
