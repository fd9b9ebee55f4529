"""The till's request to start a transaction: parsing, checks, comparison, and the body for the terminal.

Every fault is collected with its JSON Pointer, so that a developer sees all of them at once. The till's own objects
(metadata, options) go to the terminal as the bytes that the till wrote.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from posd.base.ids import chosen_uuid
from posd.base.json_types import (
    MAX_NUMBER_DIGITS,
    AskedAmount,
    ChosenUuid,
    Moment,
    Object,
    WireFormat,
    deeper_than,
    encode,
    long_numbers,
    pointer,
)
from posd.base.money import AmountUnit
from posd.base.operations import OPERATIONS, OperationType
from posd.base.text import composed
from posd.base.times import read_moment
from posd.config.schema import AmountsConfig
from posd.payments.amounts import NOTHING_MORE, REQUIRED, on_wire, read_amount
from posd.payments.entries import Dismissed, Released, Resolved
from posd.payments.model import AttentionCode, Result, Transaction, amount_and_tip
from posd.records.request import (
    MAX_FREE_FORM_DEPTH,
    MAX_SERIAL_CHARACTERS,
    AskedSerial,
    DecisionRow,
    FieldReader,
    RequestFault,
    Signed,
    differing,
)

#: Largest size of metadata and options together, in bytes. A final event echoes them, and must not exceed the limit of
#: events.
MAX_FREE_FORM_BYTES = 16 * 1024
#: Longest key of a sale, in characters.
MAX_SALE_CHARACTERS = 128
#: Key of a sale in a request.
AskedSale = Annotated[str, Meta(min_length=1, max_length=MAX_SALE_CHARACTERS)]

_LONG_NUMBER = (
    f"has more than {MAX_NUMBER_DIGITS} digits before or after its point, which databases do not hold: write a shorter "
    "number, or a text"
)

#: Fields of the request to the terminal that the till's options cannot replace.
RESERVED = frozenset(
    {"client_transaction_id", "amount", "metadata", "events_webhook_url", "webhookUrl", "transaction_reference"}
)
_RESERVED_IN_ANY_CASE = frozenset(name.casefold() for name in RESERVED)

#: Fields that name the original. A request has at most one of them.
REFERENCES = ("transaction_reference", "original")

_RAW = msgspec.json.Decoder(dict[str, msgspec.Raw])

#: Types that derive from another payment.
DERIVED = tuple(kind for kind, row in OPERATIONS.items() if row.originals)
_ANY_DERIVED = " or ".join((", ".join(DERIVED[:-1]), DERIVED[-1]))
_NEED_NONE = " and ".join(f"a {kind}" for kind, row in OPERATIONS.items() if not row.needs_amount)


class StartRequest(msgspec.Struct, frozen=True):
    """Request of a till to start an operation.

    `terminal` is None if the till named none. `amount`, `metadata` and `options` are JSON texts.
    """

    terminal: Annotated[
        AskedSerial | None,
        Meta(
            description="serial number of the terminal; optional if the fleet has exactly one. Without it, posd uses "
            "the terminal of a known original"
        ),
    ] = None
    type: Annotated[
        OperationType,
        WireFormat(OperationType | None),
        Meta(description="the operation; `charge` if omitted"),
    ] = OperationType.CHARGE
    amount: Annotated[
        bytes,
        WireFormat(AskedAmount | None),
        Meta(description=f"the amount to pay; {_NEED_NONE} without one are for the whole amount"),
    ] = b"{}"
    sale: Annotated[
        AskedSale | None,
        Meta(description="the till's key of the sale; posd refuses a second payment of it. Not sent to the terminal"),
    ] = None
    metadata: Annotated[
        bytes,
        WireFormat(dict[str, object] | None),
        Meta(
            description=f"data of the till: sent to the terminal, returned and searchable. With `options` at most "
            f"{MAX_FREE_FORM_BYTES} bytes; at most {MAX_FREE_FORM_DEPTH} levels deep; numbers of at most "
            f"{MAX_NUMBER_DIGITS} digits before and after the point"
        ),
    ] = b"{}"
    transaction_reference: Annotated[
        ChosenUuid | None,
        Meta(description=f"for a {_ANY_DERIVED}: the acquirer's reference of its original; give this or `original`"),
    ] = None
    original: Annotated[
        ChosenUuid | None,
        Meta(description=f"for a {_ANY_DERIVED}: client_transaction_id of its original"),
    ] = None
    options: Annotated[
        bytes,
        WireFormat(dict[str, object] | None),
        Meta(
            description="further fields of the request to the terminal, sent unchanged; they cannot be "
            + ", ".join(sorted(RESERVED)),
            extra_json_schema={"propertyNames": {"not": {"enum": sorted(RESERVED)}}},
        ),
    ] = b"{}"
    additional: Annotated[
        bool,
        WireFormat(bool | None),
        Meta(
            description="`true` allows a further payment of a `sale` that has an approved or open one: check an open "
            "one first. It also allows a further capture, tip or refund of an original, and a re-auth after a capture. "
            "It allows none after an approved void, or while an operation is open. A repeated call does not need it"
        ),
    ] = False
    repeat: Annotated[
        bool | None,
        Meta(description="the old name of `additional`", extra_json_schema={"deprecated": True}),
    ] = None
    not_after: Annotated[
        datetime | None,
        WireFormat(Moment | None),
        Meta(
            description="if the terminal has not received the request by then, posd never sends it. So a call that "
            "waited in a queue does not charge the next customer. A repeated call ignores `not_after`"
        ),
    ] = None


#: The two names of one field. The second is the old name.
ADDITIONAL = ("additional", "repeat")


class _StartReader(FieldReader):
    """Reader of a start request, which keeps the till's own objects unchanged."""

    NAME = "request"

    def __init__(self, body: bytes) -> None:
        super().__init__(body, StartRequest.__struct_fields__, "nothing was started")
        #: Members as the till wrote them.
        self.raw = _RAW.decode(body) if self.readable else {}

    def object(self, name: str) -> bytes:
        """Return an object of the till as bytes, or `{}` if it is missing."""
        value = self.members.get(name)
        if value is None:
            return b"{}"
        if not isinstance(value, Object):
            self.fault(f"/{name}", "must be an object")
            return b"{}"
        raw = bytes(self.raw[name]).strip()
        if deeper_than(raw, MAX_FREE_FORM_DEPTH):
            self.fault(f"/{name}", f"must be nested at most {MAX_FREE_FORM_DEPTH} levels deep")
            return b"{}"
        for place in long_numbers(raw):
            self.fault(pointer((name, *place)), _LONG_NUMBER)
        return raw


def read_start(body: bytes, amounts: AmountsConfig = NOTHING_MORE) -> tuple[StartRequest, tuple[RequestFault, ...]]:
    """Read the body of `PUT /transactions/{id}`. Return the request and its faults.

    Raise Problem malformed_json if the body is not JSON. A faulty field has its default value in the request.
    """
    reader = _StartReader(body)
    if not reader.readable:
        return StartRequest(), tuple(reader.faults)
    kind = _type(reader)
    additional, repeat = map(reader.flag, ADDITIONAL)
    if None not in (additional, repeat) and additional != repeat:
        reader.fault("/repeat", "is the old name of `additional`, and contradicts it; omit it")
    request = StartRequest(
        terminal=reader.text("terminal", MAX_SERIAL_CHARACTERS),
        type=kind,
        amount=_amount(reader, kind, amounts),
        sale=composed(reader.text("sale", MAX_SALE_CHARACTERS) or "") or None,
        metadata=reader.object("metadata"),
        transaction_reference=reader.parsed("transaction_reference", chosen_uuid),
        original=reader.parsed("original", chosen_uuid),
        options=_options(reader),
        additional=bool(repeat if additional is None else additional),
        repeat=repeat,
        not_after=reader.parsed("not_after", read_moment),
    )
    if len(request.metadata) + len(request.options) > MAX_FREE_FORM_BYTES:
        reader.fault("/metadata", f"metadata and options together must be at most {MAX_FREE_FORM_BYTES} bytes")
    _check_reference(reader, request)
    return request, tuple(reader.faults)


def _check_reference(reader: _StartReader, request: StartRequest) -> None:
    """Check whether the request names an original as its operation type requires.

    An operation that derives from an original has one of `REFERENCES`. An operation that begins a chain has none.
    """
    given = [name for name in REFERENCES if getattr(request, name) is not None]
    if not OPERATIONS[request.type].originals:
        for name in given:
            reader.fault(f"/{name}", f"belongs to {', '.join(DERIVED)}, not to {request.type}")
    elif len(given) == len(REFERENCES):
        reader.fault("/transaction_reference", "is given with `original`, which already has it; omit one of them")
    elif not given and not any(fault.path.removeprefix("/") in REFERENCES for fault in reader.faults):
        reader.fault(
            "/original",
            f"is missing: {request.type} needs `original` (the client_transaction_id of the payment that it is for) "
            "or `transaction_reference`",
            missing=True,
        )


def _type(reader: FieldReader) -> OperationType:
    value = reader.members.get("type")
    if value is None:
        return OperationType.CHARGE
    try:
        return OperationType(value)
    except ValueError:
        reader.fault("/type", f"must be one of {', '.join(OperationType)}")
        return OperationType.CHARGE


def _options(reader: _StartReader) -> bytes:
    given = reader.members.get("options")
    for name in sorted(given if isinstance(given, Object) else ()):
        # Some JSON parsers ignore the case of names, and use the last of several equal names.
        if name.casefold() not in _RESERVED_IN_ANY_CASE:
            continue
        reader.fault(f"/options/{name}", "is set by posd from the request itself and cannot be replaced")
    return reader.object("options")


def _amount(reader: FieldReader, kind: OperationType, rules: AmountsConfig) -> bytes:
    value = reader.members.get("amount")
    if value is None:
        if OPERATIONS[kind].needs_amount:
            reader.fault("/amount", f"is required: an object with {', '.join(REQUIRED)}")
        return b"{}"
    if not isinstance(value, dict):
        reader.fault("/amount", "must be an object")
        return b"{}"
    amount, faults = read_amount(value, rules)
    reader.faults += faults
    return amount


def differing_fields(transaction: Transaction, request: StartRequest, faults: tuple[RequestFault, ...]) -> list[str]:
    """Return the names of the fields in which a repeated call differs from the recorded request.

    The till's request of an orphan is unknown, so the call is compared with an operator's data about the orphan.
    `not_after` is not compared.
    """
    if transaction.orphan and not transaction.total:
        return []
    if transaction.orphan:
        faulty = {fault.path.split("/")[1] if fault.path else "body" for fault in faults}
        facts = PaymentFacts(request.terminal, request.type, request.amount)
        return sorted(faulty & {"body", *COMPARED} | set(contradicted(transaction, facts)))
    recorded = transaction
    if transaction.original is not None:
        recorded = msgspec.structs.replace(transaction, transaction_reference=None)  # posd looked up this reference
    # An earlier version accepted long numbers. So the fault of a long number does not count as a difference.
    found = [fault for fault in faults if fault.path != "/not_after" and fault.message != _LONG_NUMBER]
    names = set(differing(request, recorded, found, but=("not_after", *ADDITIONAL)))
    if request.additional != recorded.repeat and "body" not in names and names.isdisjoint(ADDITIONAL):
        names.add(ADDITIONAL[request.repeat is not None])
    return sorted(names)


#: Fields of an operator's data about a payment that are compared with the stored ones.
COMPARED = ("terminal", "type", "amount")


class PaymentFacts(msgspec.Struct, frozen=True):
    """Data about a payment from an operator or a till. Missing values are None, a missing amount `{}`."""

    terminal: str | None
    type: OperationType | None
    amount: bytes
    sale: str | None = None
    original: str | None = None


def contradicted(transaction: Transaction, facts: PaymentFacts) -> Iterator[str]:
    """Yield the fields in which `facts` contradicts the stored payment. Amounts are compared by their sums."""
    if facts.terminal not in (None, transaction.terminal):
        yield "terminal"
    if None not in (facts.type, transaction.type) and facts.type is not transaction.type:
        yield "type"
    said, known = amount_and_tip(facts.amount)[0], transaction.total
    if said and known and said != known:
        yield "amount"


def start_body(transaction: Transaction, callback_url: str, unit: AmountUnit = "main") -> bytes:
    """Return the body of the request that starts a transaction.

    The till's metadata and options are in it verbatim. `unit`: the terminal's unit of amounts. The caller has checked
    that the amount fits the unit. Only one value can come from an event: the reference of the original.

    Source: terminal API, Start request.
    """
    body: dict[str, Any] = {"client_transaction_id": transaction.client_transaction_id}
    if transaction.amount != b"{}":
        body["amount"] = msgspec.Raw(on_wire(transaction.amount, unit))
    if transaction.transaction_reference is not None:
        body["transaction_reference"] = transaction.transaction_reference
    body["events_webhook_url"] = callback_url
    if transaction.metadata != b"{}":
        body["metadata"] = msgspec.Raw(transaction.metadata)
    return encode(body | _RAW.decode(transaction.options))


# Bodies of operators' decisions (local API: release, resolve, acknowledge): reading and checking.

Decision = Released | Resolved | Dismissed


#: Beginning of the descriptions of the fields about a lost payment.
_LOST = "of a payment that a restore lost: "


class Resolution(Signed, frozen=True):
    """Operator's decision about how a payment ended, with the payment's data if a restore lost the payment."""

    result: Annotated[Result, Meta(description="how it ended")]
    transaction_reference: Annotated[ChosenUuid | None, Meta(description="the acquirer's reference, if approved")] = (
        None
    )
    terminal: Annotated[
        AskedSerial | None,
        Meta(
            description=f"{_LOST}its terminal; optional if the fleet has exactly one. For a known payment, "
            "`terminal`, `type` and the sum of `amount` must agree with the record"
        ),
    ] = None
    type: Annotated[OperationType | None, Meta(description=f"{_LOST}its type; `charge` if omitted")] = None
    amount: Annotated[AskedAmount | None, Meta(description=f"{_LOST}required; only its sum counts")] = None
    sale: Annotated[AskedSale | None, Meta(description=f"{_LOST}the till's key of the sale")] = None
    original: Annotated[ChosenUuid | None, Meta(description=f"{_LOST}client_transaction_id of its original")] = None


class Acknowledgement(Signed, frozen=True):
    """Operator's request to close an attention."""

    code: Annotated[AttentionCode, Meta(description="code of the attention")]


#: Decision, and the operator's data about the payment, if any.
DecidedPayment = tuple[Decision, PaymentFacts | None]


def _resolve(reader: FieldReader, operator: str, note: str, uid: int | None) -> DecidedPayment:
    result = reader.choice("result", list(Result))
    reference = reader.parsed("transaction_reference", chosen_uuid)
    if reference is not None and result is not Result.APPROVED:
        reader.fault("/transaction_reference", "is allowed only with the result approved")
    facts = PaymentFacts(
        terminal=reader.text("terminal", MAX_SERIAL_CHARACTERS),
        type=None if reader.members.get("type") is None else _type(reader),
        amount=b"{}" if reader.members.get("amount") is None else _amount(reader, OperationType.CHARGE, NOTHING_MORE),
        sale=composed(reader.text("sale", MAX_SALE_CHARACTERS) or "") or None,
        original=reader.parsed("original", chosen_uuid),
    )
    return Resolved(operator, note, uid, result, reference), facts


def _acknowledge(reader: FieldReader, operator: str, note: str, uid: int | None) -> DecidedPayment:
    return Dismissed(operator, note, uid, reader.choice("code", list(AttentionCode))), None


#: Name of a call with an operator's decision -> reader and type of its body.
DECISIONS: Mapping[str, DecisionRow[DecidedPayment]] = {
    "release": (lambda _reader, operator, note, uid: (Released(operator, note, uid), None), Signed),
    "resolve": (_resolve, Resolution),
    "acknowledge": (_acknowledge, Acknowledgement),
}
