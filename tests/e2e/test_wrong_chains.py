"""Chains: the reference in the request and the reference in the reply. posd refuses a wrong chain before it sends a
request.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from posd.simulator import Simulator
from tests.e2e.conftest import some
from tests.support.chains import FITS, Operation, approved, operation, stored
from tests.support.daemon import Daemon
from tests.support.shop import Shop, answering, hanging_up, nothing_to_correct
from tests.support.simulated import chain, play, simulated
from tests.support.webhooks import everything

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("complete_journal")]
#: Number of terminals in the quick suite.
TERMINALS = 50


async def begun(item: Operation, **request: Any) -> None:
    await item.begin(**request)


async def not_started(item: Operation, **request: Any) -> None:
    item.shop.terminal.start = answering(422, b"{}")
    assert (await item.put(**request)).json["outcome"]["result"] == "not_started"


def ended(status: str, **changes: Any) -> Callable[..., Awaitable[None]]:
    async def end(item: Operation, **request: Any) -> None:
        await (await item.begin(**request)).finish(status, **changes)

    return end


#: State of an original -> function that reaches the state, and the problem's reason if the type fits.
STATES: dict[str, tuple[Callable[..., Awaitable[None]], str]] = {
    "open": (begun, "{id} is not approved: it is still open; wait for its outcome"),
    "declined": (ended("DECLINED"), "{id} is not approved: it ended as declined"),
    "no raw_response": (
        ended("APPROVAL", raw_response=None),
        "{id} was approved without a transaction_reference; if the receipt or the acquirer gives one, send it",
    ),
    "approved": (ended("APPROVAL"), ""),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def _all_follows_from_what_was_recorded(shop: Shop) -> AsyncIterator[None]:
    yield
    await nothing_to_correct(shop.daemon)


@pytest.mark.parametrize("state", STATES)
async def test_an_operation_its_original_does_not_allow_is_refused_and_leaves_nothing(shop: Shop, state: str) -> None:
    """tests/core/test_chains.py and tests/store/test_chain_place.py test the fitting types and the texts."""
    bring, why = STATES[state]
    charge = operation(shop, "charge")
    await bring(charge)
    before, sent = everything(shop.daemon), len(shop.terminal.requests)
    for kind in FITS:
        fits = "charge" in FITS[kind]
        if fits and not why:
            continue
        item = Operation(shop, str(uuid4()), next(shop.serials), kind)
        ways = [{"original": charge.identity}, {"original": charge.identity.upper(), "repeat": True}]
        if not why:
            ways += [{"transaction_reference": charge.reference}, {"transaction_reference": charge.reference.upper()}]
        said = why.format(id=charge.identity) if fits else f"{charge.identity} is a charge; {kind} is for a "
        for request in ways:
            problem = await item.refused("unknown_original", **request)
            assert problem["detail"].startswith(f"cannot start: {said}")
            assert problem["detail"].endswith(f". No {kind} was sent")
    assert (everything(shop.daemon), len(shop.terminal.requests)) == (before, sent)


async def test_a_busy_terminal_does_not_hide_a_wrong_chain(shop: Shop) -> None:
    """If the operation is impossible and the terminal is busy, posd reports the impossible operation."""
    busy = await operation(shop, "charge").begin()
    await operation(shop, "capture", busy).refused("unknown_original", original=busy.identity)
    await operation(shop, "charge", busy).refused("terminal_busy")


#: Operation -> the operation whose reference posd sends (see `chain`).
CHAINS = (
    "p=pre-auth, r=re-auth p, c=capture p:r, v=void c",
    "p=pre-auth, r=re-auth p, s=re-auth p, c=capture p:s, v=void c",
    "p=pre-auth, r=re-auth p, v=void p:r",
    "p=pre-auth, c=capture p, v=void c",
    "p=pre-auth, v=void p",
    "c=charge, t=post-tip c, v=void c",
    "c=charge, t=post-tip c, r=refund c",
    "p=pre-auth, c=capture p, t=post-tip c, r=refund c",
)


#: How the till can name an original (see `play`).
WAYS = ("original", "transaction_reference", "TRANSACTION_REFERENCE")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def simulation() -> AsyncIterator[tuple[Daemon, Simulator]]:
    """Yield a daemon with one simulated terminal."""
    with TemporaryDirectory(prefix="posd-") as directory:
        async with simulated(Path(directory), {"SN-0001": ""}) as (daemon, simulators):
            yield daemon, simulators["SN-0001"]
            await nothing_to_correct(daemon)


@pytest.mark.quick(1)
@pytest.mark.parametrize("by", some(WAYS, "original"))
@pytest.mark.parametrize("text", CHAINS)
async def test_a_chain_on_the_simulated_terminal_has_the_right_references(
    simulation: tuple[Daemon, Simulator], text: str, by: str
) -> None:
    daemon, simulator = simulation
    await play(daemon, simulator, chain(text), by=by)


@pytest.mark.quick(1)
@pytest.mark.parametrize("kind", ["re-auth", "capture"])
async def test_the_sent_reference_is_never_mistaken_for_the_new_one(shop: Shop, kind: str) -> None:
    """The acknowledgement and the event echo the sent reference. posd shows an echoed reference as a sent reference.
    The outcome shows the reference from the reply.
    """
    for new in (str(uuid4()), str(uuid4()).upper()):
        pre_auth = await approved(shop, "pre-auth")
        item = await operation(shop, kind, pre_auth).begin(original=pre_auth.identity)
        before = await item.get()
        assert (before["transaction_reference"], before["outcome"]) == (pre_auth.reference, None)
        assert stored(item)["given_reference"] is None, "the acknowledgement echoes the other reference"
        item.reference = new
        await item.finish()
        outcome = (await item.get())["outcome"]
        assert (outcome["transaction_reference"], outcome["ticket_number"]) == (new, f"T-{new[:8]}")
        assert stored(item) == {
            "transaction_reference": pre_auth.reference,
            "given_reference": new.upper(),
            "derives_from": pre_auth.identity,
            "same_day_until": None,
        }


async def test_references_in_upper_case_are_sent_and_compared_correctly(shop: Shop) -> None:
    """posd shows and sends references in the original case, and compares them without case."""
    pre_auth = operation(shop, "pre-auth")
    pre_auth.reference = str(uuid4()).upper()
    await pre_auth.begin()
    upper = pre_auth.identity.upper()
    for content in (
        pre_auth.states("TERMINAL_ACKNOWLEDGED"),
        pre_auth.states("CARD_PRESENTED", "TERMINAL_ACKNOWLEDGED"),
        pre_auth.states("APPROVAL_REQUESTED", "CARD_PRESENTED"),
        pre_auth.states("APPROVAL", "APPROVAL_REQUESTED"),
    ):
        assert await pre_auth.deliver(json.dumps(content | {"client_transaction_id": upper}).encode()) == 200
    assert (await pre_auth.get())["outcome"]["transaction_reference"] == pre_auth.reference
    re_auth = operation(shop, "re-auth", pre_auth)
    re_auth.reference = str(uuid4()).upper()
    await (await re_auth.begin(original=upper)).finish()
    assert re_auth.sent["transaction_reference"] == pre_auth.reference
    capture = await operation(shop, "capture", pre_auth).begin(transaction_reference=re_auth.reference)
    # the request has the till's reference in lower case
    assert capture.sent["transaction_reference"] == re_auth.reference.lower()
    await capture.finish()
    document = await pre_auth.get()
    assert document["derived"] == [re_auth.identity, capture.identity]
    problem = await operation(shop, "capture", pre_auth).refused("already_derived", original=pre_auth.identity)
    assert problem["transactions"] == [capture.identity]


async def test_an_operation_by_reference_is_linked_as_soon_as_its_original_is_known(shop: Shop) -> None:
    charge = await shop_doubt(shop, "charge")
    charge.reference = str(uuid4())
    tip = await operation(shop, "post-tip").begin(transaction_reference=charge.reference)
    assert (await tip.get())["original"] is None
    await charge.finish()
    assert (await charge.get())["derived"] == [tip.identity]
    assert (await tip.get())["original"] == charge.identity


async def shop_doubt(shop: Shop, kind: str, **request: Any) -> Operation:
    """Return an operation in doubt. The terminal read the request and disconnected."""
    item = operation(shop, kind)
    shop.terminal.start = hanging_up
    assert (await item.put(**request)).json["phase"] == "in_doubt"
    return item
