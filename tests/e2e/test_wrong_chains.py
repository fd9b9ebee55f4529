"""Chains: the reference in the request and the reference in the reply. posd refuses a wrong chain before it sends a
request.
"""

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from posd.simulator import Simulator
from tests.rig.chains import FITS, Operation, approved, operation, stored
from tests.rig.daemon import Daemon
from tests.rig.shop import QUIET, Shop, answering, nothing_to_correct, open_counters
from tests.rig.simulated import simulated
from tests.rig.slow import named_quick
from tests.rig.webhooks import disk, everything

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


#: Approval time of an original, a time on the same day in Guayaquil, and a time on another day.
DAYS = (
    ("2025-11-20T10:42:03.120Z", "2025-11-21T04:59:59.999Z", "2025-11-21T05:00:00.000Z"),
    ("2024-12-31T23:59:59.999-05:00", "2024-12-31T10:00:00.000Z", "2025-12-31T10:00:00.000Z"),
)


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def _all_follows_from_what_was_recorded(shop: Shop) -> AsyncIterator[None]:
    yield
    await nothing_to_correct(shop.daemon)


@pytest.mark.parametrize("state", STATES)
async def test_an_operation_that_its_original_does_not_allow_is_not_recorded(shop: Shop, state: str) -> None:
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


#: Chains. In `p=pre-auth, r=re-auth p, c=capture p:r` the capture of p is sent with the reference of r. By default, the
#: reference of the original is sent.
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
#: How the till names an original: the id, the reference from the outcome, or this reference in upper case.
WAYS = ("original", "transaction_reference", "TRANSACTION_REFERENCE")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def simulation() -> AsyncIterator[tuple[Daemon, Simulator]]:
    """Yield a daemon with one simulated terminal."""
    with TemporaryDirectory(prefix="posd-") as directory:
        async with simulated(Path(directory), {"SN-0001": ""}) as (daemon, simulators):
            yield daemon, simulators["SN-0001"]
            await nothing_to_correct(daemon)


@pytest.mark.quick(1)
@pytest.mark.parametrize("by", named_quick(WAYS, ("original",)))
@pytest.mark.parametrize("text", CHAINS)
async def test_a_chain_on_the_simulated_terminal_has_the_right_references(
    simulation: tuple[Daemon, Simulator], text: str, by: str
) -> None:
    """The wire, the terminal's record, the database and the API keep sent and received references apart."""
    daemon, simulator = simulation
    steps = re.findall(r"(\w)=([\w-]+) ?(\w?):?(\w?)", text)
    ids, references = {"": ""}, {"": ""}
    for name, kind, original, sends in steps:
        identity, sent = str(uuid4()), references[sends or original] or None
        back = kind in ("void", "refund")
        # The amount falls from step to step, because a capture must not exceed the reserved amount.
        request: dict[str, Any] = {"type": kind} | ({} if back else {"amount": {"subtotal_iva0": 10.01 - len(ids)}})
        if original:
            way = {"original": ids[original], "transaction_reference": sent, "TRANSACTION_REFERENCE": str(sent).upper()}
            request[by.lower()] = way[by]
        reply = await daemon.call("PUT", f"/transactions/{identity}", request)
        assert reply.status == 201, reply.body
        outcome = await daemon.outcome(identity)
        assert outcome["result"] == "approved", outcome
        ids[name], references[name] = identity, outcome["transaction_reference"]
        (on_wire,) = (item for item in simulator.terminal.requests if identity in item)
        assert json.loads(on_wire).get("transaction_reference") == sent
        assert ("amount" in json.loads(on_wire)) == (not back)
        assert not any(other in on_wire for other in references.values() if other not in ("", sent))
        (start,) = simulator.ledger.of("start", client_transaction_id=identity)
        assert (start["operation"], start["access_mode"], start["http_status"]) == (kind, "local", 200)
        with disk(daemon) as db:
            query = """SELECT transaction_reference, given_reference, derives_from, original
                       FROM transactions WHERE client_transaction_id = ?"""
            row = db.execute(query, (identity,)).fetchone()
        derives_from = ids[original] or None
        assert row == (sent, references[name].upper(), derives_from, derives_from if by == "original" else None)
        shown = await daemon.transaction(identity)
        assert (shown["transaction_reference"], shown["original"], shown["type"]) == (sent, derives_from, kind)
        assert (shown["attention"], shown["next_step"]) == ([], "done")
        (final,) = simulator.ledger.of("final", client_transaction_id=identity)
        for given in ("transaction_reference", "ticket_number"):
            assert shown["outcome"][given] == final[given]
        assert (shown["outcome"]["reversal"] is not None) == back
        stated = shown["outcome"]["final_event"]
        assert stated["raw_response"]["transaction_reference"] == references[name]
        assert stated["operation"].get("transaction_reference") == (sent if kind in ("re-auth", "capture") else None)
    assert len(set(references.values()) - {""}) == len(steps)
    for name, *_ in steps:
        derived = [ids[item] for item, _, original, _ in steps if original == name]
        assert (await daemon.transaction(ids[name]))["derived"] == derived


@pytest.mark.quick(1)
@pytest.mark.parametrize("kind", ["re-auth", "capture"])
async def test_the_sent_reference_is_never_mistaken_for_the_new_reference(shop: Shop, kind: str) -> None:
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


async def test_a_conflict_in_the_chain_is_reported_before_a_conflict_of_the_sale(shop: Shop) -> None:
    """An unrelated open payment of the sale blocks a step of the chain. `repeat` permits the step."""
    sale = f"till-3/{uuid4()}"
    charge = await (await operation(shop, "charge").begin(sale=sale)).finish()
    split = await operation(shop, "charge").begin(sale=sale, repeat=True)
    tip = operation(shop, "post-tip", charge)
    problem = await tip.refused("sale_conflict", sale=sale, original=charge.identity)
    assert problem["transactions"] == [split.identity]
    await tip.begin(sale=sale, original=charge.identity, repeat=True)
    problem = await operation(shop, "post-tip", charge).refused("already_derived", sale=sale, original=charge.identity)
    assert problem["transactions"] == [tip.identity]


async def test_a_void_is_a_cancellation_before_midnight_and_a_refund_after_midnight() -> None:
    """posd compares the terminal's times of both approvals by the merchant's calendar (terminal API, Reversal)."""
    settings = f'[merchant]\ntimezone = "America/Guayaquil"\n{QUIET}'
    async with open_counters(1, settings) as (counter,):
        voids = []
        for kind, (at, last, first) in zip(("capture", "charge"), DAYS, strict=True):
            for moment, expected in ((last, "cancellation"), (first, "refund")):
                original = operation(counter, kind)
                await original.begin(**({"transaction_reference": str(uuid4())} if kind == "capture" else {}))
                await original.finish(occurred_at=at)
                assert (await original.get())["outcome"]["reversal"] is None
                void = await operation(counter, "void").begin(original=original.identity)
                await void.finish(occurred_at=moment)
                voids.append((void, expected))
        for _ in range(2):
            outcomes = [(await void.get())["outcome"] for void, _ in voids]
            assert [item["reversal"] for item in outcomes] == [expected for _, expected in voids]
            assert [item["transaction_reference"] for item in outcomes] == [void.reference for void, _ in voids]
            await counter.daemon.restart()
            await nothing_to_correct(counter.daemon)
