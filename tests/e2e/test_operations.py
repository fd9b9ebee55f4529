"""Every operation type: whether an abort is possible."""

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
import pytest_asyncio

from tests.rig.chains import FITS, KINDS, operation
from tests.rig.shop import QUIET, Shop, answering, nothing_to_correct, open_counters

pytestmark = pytest.mark.asyncio(loop_scope="module")

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
