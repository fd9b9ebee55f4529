"""Target: the till's request to start a payment, as a pure function."""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

from posd.base.json_types import encode
from posd.payments.model import Transaction
from posd.payments.request import StartRequest, differing_fields, read_start, start_body
from posd.records.model import Phase
from posd.records.request import MalformedJson, RequestFault
from tests.fuzz import reading, seeds
from tests.fuzz.mutation import bodies
from tests.fuzz.seeds import IDENTITY
from tests.fuzz.target import Case, Target, beside, refused_alone

CALLBACK = "https://192.0.2.1:8443/webhooks/transactions/x/y"
#: What may be left out of an amount and is sent as 0.
ALWAYS_SENT = ("iva", "subtotal_iva", "subtotal_iva0")


def check_start(case: Case) -> None:
    """A request is refused as no JSON, or with faults that each name a place in words, or is right.

    Of one that is right every amount goes out with the value that the till wrote, in plain digits, and metadata and
    options with its bytes; the same body again differs in nothing.
    """
    found = refused_alone(MalformedJson, read_start, case.body)
    if found is None:
        return
    request, faults = found
    check_faults(faults)
    if faults:
        return
    transaction = recorded(request)
    assert differing_fields(transaction, request, ()) == []
    till = reading.pairs(case.body)
    for name in ("terminal", "type", "amount", "metadata", "options", "sale", "additional", "repeat", "original"):
        assert reading.one_thing(till, name), f"{name} says several things"
    wire = start_body(transaction, CALLBACK)
    assert b"E+" not in wire or b"E+" in case.body
    sent = reading.pairs(wire)
    assert reading.values(sent, "client_transaction_id") == [IDENTITY]
    assert reading.values(sent, "events_webhook_url") == [CALLBACK]
    check_amount(till, sent)
    for name, raw in (("metadata", request.metadata), ("options", request.options)):
        assert raw == b"{}" or raw in case.body, f"{name} is not what the till wrote"
    assert request.metadata == b"{}" or request.metadata in wire


def check_amount(till: Any, sent: Any) -> None:
    """What goes out is what the till wrote, by value, plus zeros for what it left out; written in plain digits."""
    wrote, goes = dict(numbers(till, "amount")), dict(numbers(sent, "amount"))
    if not wrote and not goes:
        return
    assert goes.keys() - wrote.keys() <= {("amount", name) for name in ALWAYS_SENT}
    for names, number in goes.items():
        assert number == wrote.get(names, 0), f"{names} was {wrote.get(names)} and goes out as {number}"
        assert set(format(number)) <= set("0123456789."), f"{names} goes out as {number}"
    assert sum(goes.values()) > 0


def numbers(document: Any, *names: str) -> Iterator[tuple[tuple[str, ...], Decimal]]:
    """Yield path and value of every number below a path of names, in the last reading of what stands twice."""
    for value in reading.values(document, *names)[-1:]:
        if isinstance(value, reading.Pairs):
            for name, _ in value:
                yield from numbers(document, *names, name)
        elif isinstance(value, Decimal | str):
            yield names, Decimal(value)


def check_faults(faults: Sequence[RequestFault]) -> None:
    """Each fault names a place that is a JSON Pointer, and says in words what is wrong there."""
    for fault in faults:
        assert fault.path == "" or fault.path.startswith("/")
        assert fault.message
    encode(list(faults))


def recorded(request: StartRequest) -> Transaction:
    """Return what is recorded of a request, and read again."""
    return Transaction(
        client_transaction_id=IDENTITY,
        terminal=request.terminal or seeds.SERIAL,
        created_at="",
        updated_at="",
        phase=Phase.STARTING,
        sent_to="https://192.0.2.9",
        repeat=request.additional,
        **{name: getattr(request, name) for name in COPIED},
    )


COPIED = ("type", "amount", "sale", "metadata", "transaction_reference", "original", "options")


START = Target("start", beside(bodies(seeds.START_REQUESTS, seeds.START_WORDS)), check_start)
