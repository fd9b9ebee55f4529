"""A terminal that does not follow the rules: each body ends in a row of the reply table, and nothing is lost."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest

from tests.support.events import body, event
from tests.support.https import send
from tests.support.shop import Payment, Shop
from tests.support.webhooks import Answer, attention, chunked, deliver, faults, parse, quarantined, recorded

pytestmark = pytest.mark.asyncio(loop_scope="module")

REQUESTED = "APPROVAL_REQUESTED"
LIMIT = 65_536


@pytest.fixture(scope="module", autouse=True)
def no_faults(shop: Shop) -> Iterator[None]:
    """After all that is done here to the daemon, its log tells of no fault."""
    yield
    assert [line for line in faults(shop.daemon) if line["event"] != "payment.attention"] == []


def approval(payment: Payment, **changes: Any) -> dict[str, Any]:
    """Return the approval of a payment as a document."""
    return event(payment.identity, "APPROVAL", REQUESTED, payment.serial, **changes)


def with_raw(payment: Payment, field: str, literal: bytes) -> bytes:
    """Return an approval in which a top-level field has a literal that a JSON encoder would not write."""
    return json.dumps(approval(payment, **{field: "@"})).encode().replace(b'"@"', literal)


async def hand_in(payment: Payment, content: bytes) -> Answer:
    """Deliver bytes to the payment's own address."""
    return await deliver(payment.shop.daemon, payment.requests[0].callback, content)


async def still_works(payment: Payment) -> None:
    """End the payment as a well-behaved terminal would."""
    content = body(payment.identity, "TERMINAL_CANCELED", "TERMINAL_ACKNOWLEDGED", payment.serial)
    assert (await hand_in(payment, content)).status == 200
    assert (await payment.get())["outcome"]["result"] == "canceled"


#: An approval is an approval with anything in the fields that posd can do without: field -> values.
WRONG_TYPES: dict[str, list[Any]] = {
    "previous_status": [7, [], {}, True, ""],
    "reading_type": [7, [], {}, "TELEPATHY", "x" * 10_000],
    "operation": [7, "CHARGE", [], {"type": 7}, {"amount": []}, {"amount": {"tip": {}}}, {"amount": {"tip": "NaN"}}],
    "failure_reason": ["text", 7, [], {"type": {}, "code": 51, "message": []}],
    "raw_response": [7, "text", [], {}, {"transaction_reference": 7}, {"transaction_reference": {}}]
    + [{"authorized_amount": value} for value in ("11.20", "eleven", "", [], {}, True, -5, 1e300)]
    + [{"message_fields": []}, {"message_fields": {"F38": {}}}, {"franchise": 7, "card_type": [], "cvm_type": {}}],
    "metadata": [{"deep": [[[[]]]]}, "text"],
}
LENIENT = [(name, value) for name, values in WRONG_TYPES.items() for value in values]


@pytest.mark.quick(4)
@pytest.mark.parametrize(("name", "value"), LENIENT, ids=[f"{name}={str(value)[:30]}" for name, value in LENIENT])
async def test_an_approval_is_believed_with_any_shape_of_the_rest(shop: Shop, name: str, value: Any) -> None:
    payment = await shop.started()
    document = approval(payment, **{name: value})
    content = json.dumps(document).encode()
    assert (await hand_in(payment, content)).status == 200
    assert recorded(shop.daemon, payment.identity) == [("applied", content)]
    shown = await payment.get()
    assert (shown["phase"], shown["outcome"]["result"]) == ("final", "approved")
    assert shown["outcome"]["final_event"] == json.loads(content, parse_float=Decimal)
    assert quarantined(shop.daemon, payment.identity) == []


async def test_amounts_and_numbers_as_strings_are_read(shop: Shop) -> None:
    payment = await shop.started()
    raw = {"transaction_reference": "R-1", "authorized_amount": "11.20", "ticket_number": 123}
    assert (await hand_in(payment, json.dumps(approval(payment, raw_response=raw)).encode())).status == 200
    outcome = (await payment.get())["outcome"]
    assert (outcome["authorized_amount"], outcome["ticket_number"]) == (Decimal("11.20"), "123")
    assert attention(await payment.get()) <= {"gap"}


@dataclass(frozen=True)
class Odd:
    """A strange body, and the row of the reply table that it is to end in."""

    make: Callable[[Payment], bytes]
    status: int
    reason: str = ""
    attention: set[str] = field(default_factory=set)


def doubled(payment: Payment, addition: bytes) -> bytes:
    return json.dumps(approval(payment)).encode()[:-1] + b", " + addition + b"}"


ODD: dict[str, Odd] = {
    "empty": Odd(lambda _: b"", 400, "it is empty"),
    "blanks": Odd(lambda _: b" " * 1000, 400, "it is empty"),
    "two events": Odd(lambda payment: json.dumps(approval(payment)).encode() * 2, 400, "not JSON"),
    "list of events": Odd(lambda payment: json.dumps([approval(payment)]).encode(), 400, "not a JSON object"),
    "UTF-16": Odd(lambda payment: json.dumps(approval(payment)).encode("utf-16"), 400, "not JSON"),
    "gzip": Odd(lambda _: b"\x1f\x8b\x08\x00" + bytes(100), 400, "not JSON"),
    "never closed": Odd(lambda _: b"[" * LIMIT, 400, "nested too deeply"),
    "status twice": Odd(lambda payment: doubled(payment, b'"status": "DECLINED"'), 400, "status stands more than once"),
    "status a list": Odd(lambda payment: with_raw(payment, "status", b'["APPROVAL"]'), 400, "status"),
    "status empty": Odd(lambda payment: with_raw(payment, "status", b'""'), 400, "status"),
    "serial with NUL": Odd(
        lambda payment: with_raw(payment, "terminal", b'{"serial_number": "%s\\u0000"}' % payment.serial.encode()),
        403,
        "not in the fleet",
    ),
    "camelCase names": Odd(
        lambda payment: json.dumps({"eventId": "E", "terminal": {"serialNumber": payment.serial}}).encode(),
        400,
        "status is missing",
    ),
}


@pytest.mark.quick(5)
@pytest.mark.parametrize("name", ODD)
async def test_what_is_no_event_is_kept_as_it_came(shop: Shop, name: str) -> None:
    odd = ODD[name]
    payment = await shop.started()
    content = odd.make(payment)
    assert (await hand_in(payment, content)).status == odd.status
    ((reason, kept),) = quarantined(shop.daemon, payment.identity)
    assert kept == content
    assert odd.reason in reason
    assert len(reason) < 500
    assert recorded(shop.daemon, payment.identity) == []
    other = {"serial_mismatch"} if odd.reason == "not in the fleet" else set()
    assert attention(await payment.get()) == {"quarantined_event"} | other
    await still_works(payment)


#: Strange, but what posd needs of it can be read, so it counts.
READABLE: dict[str, Callable[[Payment], bytes]] = {
    "the same status twice": lambda payment: doubled(payment, b'"status": "APPROVAL"'),
    "metadata keys twice": lambda payment: doubled(payment, b'"metadata": {"a": 1, "a": 2}'),
    "an unknown field twice": lambda payment: doubled(payment, b'"x": 1, "x": 2'),
    "exponent beyond every number": lambda payment: with_raw(payment, "x", b"1e999999999999999999999"),
    "fraction of 50,000 digits": lambda payment: with_raw(payment, "x", b"0." + b"1" * 50_000),
    "nested 128 deep": lambda payment: with_raw(payment, "x", b"[" * 127 + b"]" * 127),
    "nested 5,000 deep": lambda payment: with_raw(payment, "x", b"[" * 5_000 + b"]" * 5_000),
    "4,000 keys": lambda payment: json.dumps(approval(payment, x={str(n): n for n in range(4_000)})).encode(),
    "NUL in a string": lambda payment: with_raw(payment, "merchant_id", b'"M\\u0000"'),
    "id in upper case": lambda payment: json.dumps(
        approval(payment, client_transaction_id=payment.identity.upper())
    ).encode(),
    "any text as a time": lambda payment: json.dumps(approval(payment, occurred_at="yesterday")).encode(),
    "brand and model of other types": lambda payment: with_raw(
        payment, "terminal", b'{"serial_number": "%s", "brand": [], "model": 7}' % payment.serial.encode()
    ),
    "line breaks and tabs": lambda payment: json.dumps(approval(payment), indent="\t").replace("\n", "\r\n").encode(),
}


@pytest.mark.quick(6)
@pytest.mark.parametrize("name", READABLE)
async def test_what_can_be_read_counts(shop: Shop, name: str) -> None:
    payment = await shop.started()
    content = READABLE[name](payment)
    assert (await hand_in(payment, content)).status == 200
    assert recorded(shop.daemon, payment.identity) == [("applied", content)]
    path = f"/transactions/{payment.identity}"
    shown, listed = [await shop.daemon.call("GET", item) for item in (path, f"{path}/events")]
    assert json.loads(shown.body)["outcome"]["result"] == "approved"
    assert [item["verdict"] for item in json.loads(listed.body)["events"]] == ["applied"]


async def test_an_approved_amount_of_many_digits_still_leaves_an_outcome(shop: Shop) -> None:
    payment = await shop.started()
    content = with_raw(
        payment, "raw_response", b'{"transaction_reference": "R", "authorized_amount": 11.2%s}' % (b"0" * 50_000)
    )
    assert (await hand_in(payment, content)).status == 200
    shown = await payment.get()
    assert (shown["outcome"]["result"], shown["outcome"]["transaction_reference"]) == ("approved", "R")


@pytest.mark.quick(1)
@pytest.mark.parametrize("framing", ["content-length", "chunked", "chunked in small pieces"])
async def test_ten_megabytes_are_refused_and_the_terminal_hears_it(shop: Shop, framing: str) -> None:
    payment = await shop.started()
    content = json.dumps(approval(payment, x="y" * 10_000_000)).encode()
    if framing == "content-length":
        answer = await hand_in(payment, content)
    else:
        size = 1000 if framing.endswith("pieces") else 60_000
        answer = await chunked_post(payment, chunked(content, size))
    assert answer.status == 413
    assert attention(await payment.get()) == {"quarantined_event"}
    assert recorded(shop.daemon, payment.identity) == []
    await still_works(payment)


async def test_a_chunked_event_is_taken(shop: Shop) -> None:
    payment = await shop.started()
    content = json.dumps(approval(payment)).encode()
    assert (await chunked_post(payment, chunked(content, 7))).status == 200
    assert recorded(shop.daemon, payment.identity) == [("applied", content)]


async def chunked_post(payment: Payment, coded: bytes) -> Answer:
    """Deliver a body in the chunked transfer coding, without a length."""
    path = "/" + payment.requests[0].callback.split("/", 3)[3]
    head = f"POST {path} HTTP/1.1\r\nhost: posd\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    daemon = payment.shop.daemon
    (answer,) = parse(await send(daemon.port, daemon.ca, head.encode() + coded))
    return answer


async def test_events_out_of_every_order_and_after_the_end_are_all_kept(shop: Shop) -> None:
    payment = await shop.started()
    sent = [
        body(payment.identity, status, previous, payment.serial)
        for status, previous in [
            ("APPROVAL", REQUESTED),
            ("TERMINAL_ACKNOWLEDGED", None),
            ("APPROVAL", REQUESTED),
            ("DECLINED", REQUESTED),
            ("WHAT_IS_THIS", "APPROVAL"),
            ("CARD_PRESENTED", "NO_SUCH_STATE"),
        ]
    ]
    assert [(await hand_in(payment, content)).status for content in sent] == [200] * len(sent)
    assert [content for _, content in recorded(shop.daemon, payment.identity)] == sent
    shown = await payment.get()
    assert shown["outcome"]["result"] == "approved"
    assert "conflicting_final" in attention(shown)
