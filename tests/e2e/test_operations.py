"""Every operation type: the amounts in its request, its names in events, and whether an abort is possible."""

import json
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from tests.rig.chains import FITS, KINDS, PROCESSED, Operation, operation, taking
from tests.rig.shop import QUIET, Shop, answering, nothing_to_correct, open_counters

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("complete_journal")]


# Amounts. posd sends only the till's amounts.

#: The till's amount, and its bytes on the wire. The request has the same digits, and always all three members.
AMOUNTS = (
    (
        b'{"iva": 1.20, "subtotal_iva": 10.00, "subtotal_iva0": 0, "tip": 0.50, "extra_taxes": {"ice": 0.0100}}',
        b'{"iva":1.20,"subtotal_iva":10.00,"subtotal_iva0":0,"tip":0.50,"extra_taxes":{"ice":0.0100}}',
    ),
    (b'{"subtotal_iva0": "765432.10"}', b'{"iva":0,"subtotal_iva":0,"subtotal_iva0":765432.10}'),
    (b'{"tip": 2.05}', b'{"iva":0,"subtotal_iva":0,"subtotal_iva0":0,"tip":2.05}'),
)
#: The terminal's report of the amount.
STRANGE = {
    "operation": {"amount": PROCESSED | {"iva": 0.07, "subtotal_iva": 123456.78}, "cashback_amount": 22.22},
    "raw_response": {
        "ticket_number": "1",
        "authorized_amount": 876543.21,
        "additional_amounts": {"amount": 11.11, "currency_code": "840"},
    },
}
#: Numbers that occur only in the event.
FOREIGN = (b"987654.32", b"77.77", b"66.66", b"55.55", b"44.44", b"33.33", b"USD", b"0.07", b"123456.78", b"876543.21")


async def start_with(item: Operation, amount: bytes, **changes: Any) -> None:
    """Start an operation with these bytes as the amount, or without an amount."""
    item.shop.terminal.start = taking
    request = json.dumps({"terminal": item.serial, "type": item.kind} | changes).encode()
    if amount:
        request = b'%s, "amount": %s}' % (request[:-1], amount)
    reply = await item.shop.daemon.call("PUT", f"/transactions/{item.identity}", request)
    assert reply.status == 201, reply.body


async def ends_strangely(item: Operation) -> None:
    """Approve an operation with amounts that differ from the request."""
    answer = STRANGE["raw_response"] | item.answer(authorized_amount=None, ticket_number=None)
    await item.finish(operation=STRANGE["operation"], raw_response=answer)


@pytest.mark.quick(1)
@pytest.mark.parametrize(("given", "sent"), AMOUNTS, ids=("all", "a text", "a tip"))
async def test_an_amount_from_a_terminal_is_never_in_a_request(shop: Shop, given: bytes, sent: bytes) -> None:
    """All types run in order. All earlier operations reported amounts that differ from the request."""
    here, originals = operation(shop, "charge"), dict[str, Operation]()
    for kind in ("charge", "pre-auth", "re-auth", "re-auth", "capture", "post-tip", "void", "void"):
        named = {}
        again = kind == "void" and "void" in originals
        if kind in FITS:
            to = originals["charge" if kind == "post-tip" or again else "capture" if kind == "void" else "pre-auth"]
            named = {"original": to.identity}
        item = originals[kind] = operation(shop, kind, here)
        none = kind == "void"  # a void must have the sum of the charge
        await start_with(item, b"" if none else given, **named)
        (request,) = item.requests
        assert request.body.count(b'"amount":') == (0 if none else 1)
        assert none or b'"amount":%s,' % sent in request.body
        assert not [number for number in FOREIGN if number in request.body and number not in sent]
        assert json.dumps((await item.get())["amount"], default=str) == json.dumps(
            {} if none else json.loads(sent, parse_float=Decimal), default=str
        )
        await ends_strangely(item)
        outcome = (await item.get())["outcome"]
        assert outcome["authorized_amount"] is None or outcome["authorized_amount"] == Decimal("876543.21")


# Aborts.

FIXED = ("void", "post-tip")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fixed() -> AsyncIterator[Shop]:
    """Yield a terminal on which voids and post-tips cannot be aborted."""
    rows = "".join(f"[profile.{kind}]\nabortable = false\n" for kind in FIXED)
    async with open_counters(1, QUIET + rows) as (counter,):
        yield counter
        await nothing_to_correct(counter.daemon)


@pytest.mark.quick(1)
@pytest.mark.parametrize("kind", KINDS)
async def test_an_operation_that_the_profile_makes_unabortable_is_not_aborted(fixed: Shop, kind: str) -> None:
    possible = kind not in FIXED
    fixed.terminal.abort = answering(200, b"{}")
    item = await operation(fixed, kind).begin(**({"transaction_reference": str(uuid4())} if kind in FITS else {}))
    for previous, status in ((None, "TERMINAL_ACKNOWLEDGED"), ("TERMINAL_ACKNOWLEDGED", "CARD_PRESENTED")):
        listed = (await fixed.daemon.call("GET", "/transactions?open=true")).json["transactions"]
        repeated = await item.put(
            **({"transaction_reference": item.sent["transaction_reference"]} if kind in FITS else {})
        )
        assert [document["abortable"] for document in (await item.get(), *listed, repeated.json)] == [possible] * 3
        aborts = fixed.terminal.aborts
        reply = await item.post("abort")
        assert fixed.terminal.aborts == aborts + possible
        if possible:
            assert (reply.status, reply.json["abortable"]) == (202, True)
        else:
            assert (reply.status, reply.json["code"]) == (409, "not_abortable")
            assert f"a {kind} on terminal {item.serial} cannot be aborted (abortable = false" in reply.json["detail"]
            assert not [line for line in await item.history() if line["kind"].startswith("abort")]
        assert await item.event(status, previous) == 200
    assert await item.event("APPROVAL_REQUESTED", "CARD_PRESENTED") == 200
    assert (await item.get())["abortable"] is False
    assert (await item.post("abort")).json["code"] == "past_point_of_no_return"
    assert await item.event("DECLINED", "APPROVAL_REQUESTED") == 200
    assert (await item.post("abort")).json["code"] == "already_final"
