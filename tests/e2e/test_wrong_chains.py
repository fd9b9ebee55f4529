"""Chains: which reference goes to the terminal and which comes back; wrong ones are refused before anything is sent."""

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
from tests.support.chains import FITS, KINDS, Operation, approved, operation, stored, taking
from tests.support.daemon import Daemon
from tests.support.shop import Shop, answering, hanging_up, nothing_to_correct
from tests.support.simulated import chain, play, simulated
from tests.support.webhooks import everything

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("complete_journal")]


async def begun(item: Operation, **request: Any) -> None:
    await item.begin(**request)


async def not_started(item: Operation, **request: Any) -> None:
    item.shop.terminal.start = answering(422, b"{}")
    assert (await item.put(**request)).json["outcome"]["result"] == "not_started"


def ended(status: str, **changes: Any) -> Callable[..., Awaitable[None]]:
    async def end(item: Operation, **request: Any) -> None:
        await (await item.begin(**request)).finish(status, **changes)

    return end


#: State of an original -> how to reach it, and the reason in the problem if its type fits.
STATES: dict[str, tuple[Callable[..., Awaitable[None]], str]] = {
    "open": (begun, "{id} is not approved: it is still open; wait for its outcome"),
    "declined": (ended("DECLINED"), "{id} is not approved: it ended as declined"),
    "no raw_response": (
        ended("APPROVAL", raw_response=None),
        "{id} was approved without a transaction_reference; if you have it from the receipt or the acquirer, give it",
    ),
    "approved": (ended("APPROVAL"), ""),
}

#: In these it holds its terminal.
HOLDING = ("open",)

Originals = dict[tuple[str, str], Operation]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def originals(shop: Shop) -> AsyncIterator[Originals]:
    """An operation of each type in each state; one that needs an original gets one that posd does not know."""
    found: Originals = {}
    free = operation(shop, "charge")
    for kind in KINDS:
        for state, (bring, _) in STATES.items():
            found[kind, state] = item = operation(shop, kind, None if state in HOLDING else free)
            await bring(item, **({"transaction_reference": str(uuid4())} if kind in FITS else {}))
    yield found
    await nothing_to_correct(shop.daemon)


def reason(kind: str, original: Operation, state: str) -> str:
    """Return why an operation of that type is refused on it; nothing if it is allowed."""
    if original.kind not in FITS[kind]:
        return f"{original.identity} is a {original.kind}; {kind} is for a {' or '.join(sorted(FITS[kind]))}"
    return STATES[state][1].format(id=original.identity)


@pytest.mark.quick(1)
@pytest.mark.parametrize("original", KINDS)
@pytest.mark.parametrize("kind", FITS)
async def test_by_original(shop: Shop, originals: Originals, kind: str, original: str) -> None:
    serial = next(shop.serials)
    for state in STATES:
        to = originals[original, state]
        item = Operation(shop, str(uuid4()), serial, kind)
        why = reason(kind, to, state)
        if not why:
            await item.begin(original=to.identity)
            await item.finish("TERMINAL_CANCELED")
            continue
        before, sent = everything(shop.daemon), len(shop.terminal.requests)
        for request in ({"original": to.identity}, {"original": to.identity.upper(), "repeat": True}):
            problem = await item.refused("unknown_original", **request)
            assert problem["detail"].startswith(f"cannot start: {why}")
            assert problem["detail"].endswith(f". No {kind} was sent")
        assert (everything(shop.daemon), len(shop.terminal.requests)) == (before, sent)


@pytest.mark.quick(5)
@pytest.mark.parametrize("original", KINDS)
@pytest.mark.parametrize("kind", FITS)
async def test_by_a_reference_that_posd_knows(shop: Shop, originals: Originals, kind: str, original: str) -> None:
    """The till names only the reference; but it is known here that it belongs to something else."""
    to = originals[original, "approved"]
    if original == "re-auth":  # its reference stands for its pre-authorization
        pre_auth = await approved(shop, "pre-auth")
        to = await approved(shop, "re-auth", pre_auth)
    item = operation(shop, kind)
    fits = (*FITS[kind], "re-auth") if "pre-auth" in FITS[kind] else FITS[kind]
    if original in fits:
        await (await item.begin(transaction_reference=to.reference)).finish("TERMINAL_CANCELED")
        assert (await item.get())["original"] == (pre_auth if original == "re-auth" else to).identity
        return
    before, sent = everything(shop.daemon), len(shop.terminal.requests)
    for reference in (to.reference, to.reference.upper()):
        problem = await item.refused("unknown_original", transaction_reference=reference, repeat=True)
        assert problem["detail"].startswith(f"cannot start: {reason(kind, to, 'approved')}")
    assert (everything(shop.daemon), len(shop.terminal.requests)) == (before, sent)


@pytest.mark.parametrize("kind", FITS)
async def test_an_id_that_is_not_known(shop: Shop, originals: Originals, kind: str) -> None:
    item = operation(shop, kind)
    before, sent = everything(shop.daemon), len(shop.terminal.requests)
    for unknown in (str(uuid4()), item.identity):
        problem = await item.refused("unknown_original", original=unknown)
        assert f"no transaction {unknown} is known here; check the id" in problem["detail"]
    # A reference is not an id, and an id is no reference: posd cannot know the latter, and sends it unchanged.
    await item.refused("unknown_original", original=originals["pre-auth", "approved"].reference)
    assert (everything(shop.daemon), len(shop.terminal.requests)) == (before, sent)
    foreign = str(uuid4())
    await item.begin(transaction_reference=foreign.upper())
    assert item.sent["transaction_reference"] == foreign
    assert (await item.get())["original"] is None


@pytest.mark.quick(1)
@pytest.mark.parametrize("kind", ["capture", "re-auth", "void"])
async def test_of_a_re_authorization_its_pre_authorization_is_named(shop: Shop, kind: str) -> None:
    pre_auth = await approved(shop, "pre-auth")
    for number in range(2):
        re_auth = await operation(shop, "re-auth", pre_auth).begin(original=pre_auth.identity)
        await re_auth.finish("DECLINED" if number else "APPROVAL")
        problem = await operation(shop, kind).refused("unknown_original", original=re_auth.identity)
        assert f"{re_auth.identity} is a re-auth; {kind} is for a " in problem["detail"]
        assert f"; name its pre-auth, {pre_auth.identity}" in problem["detail"]
    await operation(shop, kind, pre_auth).begin(original=pre_auth.identity)


async def test_of_a_re_authorization_of_elsewhere_no_other_one_is_named(shop: Shop) -> None:
    """Its pre-authorization is not known here: to name what gave the reference instead would be refused too."""
    first, second = await approved(shop, "re-auth"), operation(shop, "re-auth")
    await (await second.begin(transaction_reference=first.reference)).finish()
    problem = await operation(shop, "capture").refused("unknown_original", original=second.identity)
    assert first.identity not in problem["detail"]


async def test_an_original_fits_as_soon_as_it_is_approved(shop: Shop) -> None:
    pre_auth = await operation(shop, "pre-auth").begin()
    capture = operation(shop, "capture")
    await capture.refused("unknown_original", original=pre_auth.identity)
    await pre_auth.finish()
    await capture.begin(original=pre_auth.identity)
    assert capture.sent["transaction_reference"] == pre_auth.reference


async def test_a_terminal_that_is_busy_hides_no_wrong_chain(shop: Shop) -> None:
    """An impossible operation is reported before one that is impossible now."""
    busy = await operation(shop, "charge").begin()
    await operation(shop, "capture", busy).refused("unknown_original", original=busy.identity)
    await operation(shop, "charge", busy).refused("terminal_busy")


#: Whose reference each step sends: see `chain`.
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


#: How the till can name an original: see `play`.
WAYS = ("original", "transaction_reference", "TRANSACTION_REFERENCE")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def simulation() -> AsyncIterator[tuple[Daemon, Simulator]]:
    """A daemon with one simulated terminal."""
    with TemporaryDirectory(prefix="posd-") as directory:
        async with simulated(Path(directory), {"SN-0001": ""}) as (daemon, simulators):
            yield daemon, simulators["SN-0001"]
            await nothing_to_correct(daemon)


@pytest.mark.quick(1)
@pytest.mark.parametrize("by", some(WAYS, "original"))
@pytest.mark.parametrize("text", CHAINS)
async def test_a_chain_on_the_simulated_terminal(simulation: tuple[Daemon, Simulator], text: str, by: str) -> None:
    daemon, simulator = simulation
    await play(daemon, simulator, chain(text), by=by)


@pytest.mark.quick(1)
@pytest.mark.parametrize("kind", ["re-auth", "capture"])
async def test_the_reference_that_was_sent_is_never_taken_for_the_new_one(shop: Shop, kind: str) -> None:
    """Echoes of the request in the acknowledgement and the event are shown as sent; the outcome's are the reply's."""
    for new in (str(uuid4()), str(uuid4()).upper()):
        pre_auth = await approved(shop, "pre-auth")
        item = await operation(shop, kind, pre_auth).begin(original=pre_auth.identity)
        before = await item.get()
        assert (before["transaction_reference"], before["outcome"]) == (pre_auth.reference, None)
        assert stored(item)["given_reference"] is None, "the acknowledgement has echoed the other one"
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


async def test_a_terminal_that_writes_upper_case(shop: Shop) -> None:
    """Its references are shown and sent as it wrote them, and are equal in any case."""
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
    assert capture.sent["transaction_reference"] == re_auth.reference.lower()  # the till's, in canonical lower case
    await capture.finish()
    document = await pre_auth.get()
    assert document["derived"] == [re_auth.identity, capture.identity]
    problem = await operation(shop, "capture", pre_auth).refused("already_derived", original=pre_auth.identity)
    assert problem["transactions"] == [capture.identity]


async def test_what_was_done_by_reference_is_shown_as_soon_as_its_original_is_known(shop: Shop) -> None:
    charge = await shop_doubt(shop, "charge")
    charge.reference = str(uuid4())
    tip = await operation(shop, "post-tip").begin(transaction_reference=charge.reference)
    assert (await tip.get())["original"] is None
    await charge.finish()
    assert (await charge.get())["derived"] == [tip.identity]
    assert (await tip.get())["original"] == charge.identity


@pytest.mark.parametrize("kind", ["capture", "void"])
async def test_what_was_re_authorized_of_elsewhere_is_captured_or_voided_by_its_reference(
    shop: Shop, kind: str
) -> None:
    """The pre-authorization was made on another machine: only its reference is known here."""
    re_auth = await approved(shop, "re-auth")
    item = operation(shop, kind, re_auth)
    shop.terminal.start = taking
    reply = await item.put(transaction_reference=re_auth.reference)
    assert reply.status == 201, reply.json["detail"]
    assert item.sent["transaction_reference"] == re_auth.reference


async def shop_doubt(shop: Shop, kind: str, **request: Any) -> Operation:
    """Return an operation whose terminal read the request and hung up."""
    item = operation(shop, kind)
    shop.terminal.start = hanging_up
    assert (await item.put(**request)).json["phase"] == "in_doubt"
    return item
