"""The reconciler as a task. The task ends on request at every step."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from posd.base.limits import CALLS_OF_TRANSACTION
from posd.base.problems import Problem
from posd.base.times import iso
from posd.config import load
from posd.config.schema import ReconcileConfig
from posd.payments import journal, rows, schedule
from posd.payments.abort import Aborts
from posd.payments.attentions import ApprovalChecks
from posd.payments.entries import AddressBack, AddressLost, NothingHeard, Resolved
from posd.payments.inbox import Inbox
from posd.payments.lifecycle import Status, Trail
from posd.payments.missing_proof import ProofCode
from posd.payments.model import Attention, AttentionCode, Result
from posd.payments.outcomes import not_started
from posd.payments.reconcile import Reconciler
from posd.payments.record import Cause, Received, Recorded, TransactionChanged, begin, move
from posd.payments.search import Searching
from posd.payments.transitions import interrupted, rebuild
from posd.payments.wire import read_event
from posd.records.model import Phase
from posd.records.quotas import Quotas
from posd.records.service import CallsInFlight, ServiceParts
from posd.storage.store import Store
from posd.terminals.attempt import NotSent
from posd.terminals.fleet import Fleet
from posd.terminals.terminal import AddressChange
from tests.rig.daemon import toml
from tests.rig.events import APPROVED, body
from tests.rig.shop import answering, hanging_up
from tests.rig.tables import every, there
from tests.rig.terminal import Request, scripted_terminal
from tests.services.inside import CHARGE, Inside, composed

CONFIRMED = "[profile.search]\nconfirmed = true\n[profile.abort]\nconfirmed = true\n"
OTHER = '[[terminals]]\nserial = "SN-OTHER"\nbase_url = "https://127.0.0.1:9"\n'


def now() -> datetime:
    return datetime.now(UTC)


class House(NamedTuple):
    """A reconciler with payments in doubt."""

    reconciler: Reconciler
    store: Store
    identities: list[str]


@asynccontextmanager
async def asking(home: Path, address: str = "", payments: int = 1) -> AsyncIterator[House]:
    """Run a reconciler with payments in doubt on one terminal. `address`: lines of the terminal's configuration."""
    (home / "config.toml").write_text(toml(home, f'[[terminals]]\nserial = "SN-TEST"\n{address}'))
    config = load(home / "config.toml")
    store = await Store.open(home / "posd.db", home / "posd.db.lock")
    fleet = Fleet(config.terminals, config.profiles)
    parts = ServiceParts(store, fleet, now, chance=random.random)
    searching = Searching(parts, "", ApprovalChecks("", lambda: True))
    aborts = Aborts(parts)
    settings = ReconcileConfig(3600, 3600, 3600, settle_seconds=60, probe_with_abort=False)
    reconciler = Reconciler(parts, searching, aborts, settings)
    store.hub.listen(reconciler.changed, TransactionChanged)
    identities = [str(uuid4()) for _ in range(payments)]
    for identity in identities:
        event = read_event(body(identity, "TERMINAL_ACKNOWLEDGED"))
        payment = interrupted(rebuild(event, identity, now()), now())
        await store.write(partial(begin, transaction=payment, word="orphan"))
        reconciler.adopt([payment])
    try:
        yield House(reconciler, store, identities)
    finally:
        await reconciler.close()
        await fleet.close()
        await store.close()


@pytest.mark.parametrize("turns", range(8))
async def test_the_reconciler_ends_on_request_even_if_woken_at_the_same_moment(tmp_path: Path, turns: int) -> None:
    with capture_logs() as lines:
        async with asking(tmp_path) as house:
            reconciler = house.reconciler
            running = asyncio.create_task(reconciler.run())
            async with asyncio.timeout(30):
                while not lines:  # the first search
                    await some_turns(1)
            await some_turns(20)  # these turns end the first search
            reconciler.returned("SN-TEST")
            await some_turns(turns)
            running.cancel()
            done, _ = await asyncio.wait({running}, timeout=30)
            assert done


async def test_nothing_is_recorded_for_a_payment_that_has_ended_or_was_removed(tmp_path: Path) -> None:
    async with asking(tmp_path) as house:
        ended, removed = *house.identities, str(uuid4())
        before = there(await house.store.read(partial(rows.get, identity=ended)))
        after, calls = replace(before, phase=Phase.FINAL, outcome=OUTCOME), CallsInFlight()
        await house.store.write(lambda unit: move(unit, before, after, Recorded("x"), calls))
        for identity in (ended, removed):
            await house.reconciler._record(identity, NothingHeard(AttentionCode.STALLED, 60.0))
            assert await house.store.read(lambda db, key=identity: list(journal.entries(db, key))) == []


@asynccontextmanager
async def proving(inside: Inside) -> AsyncIterator[Reconciler]:
    """Run a reconciler that can prove within one request after another that a payment never started."""
    parts, checks = ServiceParts(inside.store, inside.fleet, now), ApprovalChecks("", lambda: True)
    settings = ReconcileConfig(3600, 3600, 3600, settle_seconds=0, probe_with_abort=True)
    reconciler = Reconciler(parts, Searching(parts, "", checks), Aborts(parts), settings)
    inside.store.hub.listen(reconciler.changed, TransactionChanged)
    yield reconciler
    await reconciler.close()


@pytest.mark.parametrize(("first", "count"), [(0, 2), (1, 3)])
async def test_a_search_on_another_device_than_the_one_that_got_the_start_proves_nothing(
    tmp_path: Path, first: int, count: int
) -> None:
    """Reloads move the address of the serial between two devices.

    Each abort goes to the device that got the start, and the search after the abort goes to the other one.
    `first`: the device that gets the search before the abort. `count`: requests that would complete the proof if each
    reply counted.
    """
    identity, none = str(uuid4()), answering(200, b"[]")
    async with (
        scripted_terminal(tmp_path, "SN-OTHER") as other,
        composed(tmp_path) as inside,
        proving(inside) as reconciler,
    ):
        right, store = inside.terminal, inside.store
        entries = [CONFIRMED + device.entry("SN-TEST", device.base_url) for device in (right, other)]

        async def nothing_runs(request: Request, writer: asyncio.StreamWriter) -> None:
            inside.reload(entries[1])
            await answering(409)(request, writer)

        async def knows_nothing(request: Request, writer: asyncio.StreamWriter) -> None:
            inside.reload(entries[0])
            await none(request, writer)

        right.start, right.abort, right.search, other.search = hanging_up, nothing_runs, none, knows_nothing
        search = "POST /terminal/v1/transaction_search_online"
        await store.write(lambda unit: rows.remember_search(unit, "SN-TEST", search, str(uuid4()), iso(now())))
        await inside.payments.start(identity, CHARGE)
        for _ in range(count):
            inside.reload(entries[first])
            after = await reconciler.reconcile(identity)
        assert other.searches
        assert (after.phase, after.outcome) == (Phase.IN_DOUBT, None)
        inside.reload(entries[1])
        with pytest.raises(Problem, match="cannot be reached"):
            await inside.aborts.abort(identity, None)
        assert other.aborts == 0


@pytest.mark.parametrize(("replies", "callback", "aborts"), [(False, b"", 1), (False, b"{", 0), (True, b"", 0)])
async def test_posd_sends_an_abort_by_itself_only_if_the_terminal_never_sent_anything_about_the_payment(
    tmp_path: Path, replies: bool, callback: bytes, aborts: int
) -> None:
    identity = str(uuid4())
    async with composed(tmp_path) as inside, proving(inside) as reconciler:
        inside.reload(CONFIRMED + inside.terminal.toml)
        inside.terminal.search, inside.terminal.abort = answering(200, b"[]"), answering(409)
        if not replies:
            inside.terminal.start = hanging_up
        await inside.payments.start(identity, CHARGE)
        if callback:
            inbox = Inbox(ServiceParts(inside.store, inside.fleet, now), "", ApprovalChecks("", lambda: True))
            await inbox.receive(identity, callback, "peer")
        await reconciler.reconcile(identity)
        assert (bool(inside.terminal.searches), inside.terminal.aborts) == (True, aborts)


UNCONFIRMED = (ProofCode.SEARCH_NOT_CONFIRMED, ProofCode.ABORT_NOT_CONFIRMED)
BUSY = b'{"type": "TERMINAL", "code": "TER-003"}'
NEVER_FOUND_ANY = ProofCode.SEARCH_NEVER_FOUND_ANY


@pytest.mark.parametrize(
    ("serial", "profile", "abort", "codes"),
    [
        ("SN-TEST", CONFIRMED, b"", ()),
        ("SN-OTHER", CONFIRMED, b"", (NEVER_FOUND_ANY,)),
        ("", CONFIRMED, b"", (NEVER_FOUND_ANY,)),
        ("SN-TEST", CONFIRMED, BUSY, (ProofCode.WAS_ACKNOWLEDGED,)),
        ("SN-TEST", "", b"", (*UNCONFIRMED, NEVER_FOUND_ANY, ProofCode.ABORT_NOT_ASKED)),
    ],
)
async def test_empty_searches_are_proof_only_if_the_search_works_and_the_terminal_runs_nothing(
    tmp_path: Path, serial: str, profile: str, abort: bytes, codes: tuple[ProofCode, ...]
) -> None:
    """`serial`: the serial in the search result for the ended payment. Without a serial the result is empty.

    `abort`: the body of the reply 409 to an abort. `codes`: the missing conditions of the proof.
    """
    ended, doubtful = str(uuid4()), str(uuid4())
    charge = json.dumps({**json.loads(CHARGE), "terminal": "SN-TEST"}).encode()
    known = json.dumps([json.loads(body(ended, "APPROVAL", "APPROVAL_REQUESTED", serial))] if serial else []).encode()

    async def search(request: Request, writer: asyncio.StreamWriter) -> None:
        await answering(200, known if ended in request.body.decode() else b"[]")(request, writer)

    async with composed(tmp_path) as inside, proving(inside) as reconciler:
        terminal = inside.terminal
        inside.reload(f"{profile}{terminal.toml}{OTHER}")
        inbox = Inbox(ServiceParts(inside.store, inside.fleet, now), "", ApprovalChecks("", lambda: True))
        terminal.search, terminal.abort = search, answering(409, abort)
        await inside.payments.start(ended, charge)
        for status, previous in APPROVED:
            await inbox.receive(ended, body(ended, status, previous), "peer")
        terminal.start = hanging_up
        await inside.payments.start(doubtful, charge)
        for _ in range(2):
            after = await reconciler.reconcile(doubtful)
        assert after.phase is (Phase.IN_DOUBT if codes else Phase.FINAL)
        lacking = await inside.store.read(partial(reconciler.missing_proof, transaction=after))
        assert tuple(item.code for item in lacking) == codes


OUTCOME = not_started(NotSent("a reason"), now())


class Plan:
    """The plan for one payment of a reconciler, on a clock that the test sets. `told`: reports of an open payment."""

    def __init__(self, store: Store, fleet: Fleet, phase: Phase = Phase.ACTIVE) -> None:
        self.seconds, self.identity, self.told = 1000.0, str(uuid4()), 0
        quotas = Quotas(clock=lambda: self.seconds)
        parts = ServiceParts(store, fleet, now, quotas=quotas, chance=lambda: 0.0, seconds=lambda: self.seconds)
        searching = Searching(parts, "", ApprovalChecks("", lambda: True))
        settings = ReconcileConfig(60, 200, 300, settle_seconds=60, probe_with_abort=False)
        self.reconciler, self.parts, self.settings = (
            Reconciler(parts, searching, Aborts(parts), settings),
            parts,
            settings,
        )
        event = read_event(body(self.identity, "TERMINAL_ACKNOWLEDGED"))
        self.payment = replace(rebuild(event, self.identity, now()), phase=phase, trail=Trail())
        store.hub.listen(self.reconciler.changed, TransactionChanged)
        fleet.listen(self._opened, AddressChange.OPENED)

    def _opened(self, *_: object) -> None:
        self.told += 1

    async def begin(self) -> None:
        await self.parts.store.write(partial(begin, transaction=self.payment, word="intent"))

    async def adopt(self, **members: Any) -> None:
        """Adopt the payment of an earlier daemon."""
        self.payment = replace(self.payment, **members)
        await self.begin()
        self.reconciler._forget(self.identity)
        self.reconciler.adopt([self.payment])

    async def change(self, cause: Cause, **members: Any) -> None:
        """Record a change. The terminal is reported as open exactly if its payment opens."""
        was, told = self.reconciler.is_open("SN-TEST"), self.told
        after, calls = replace(self.payment, **members), CallsInFlight()
        after = replace(after, outcome=OUTCOME if after.phase is Phase.FINAL else None)
        self.payment = await self.parts.store.write(lambda unit: move(unit, self.payment, after, cause, calls))
        assert (self.told > told) == (self.reconciler.is_open("SN-TEST") and not was)

    async def event(self, status: str, **members: Any) -> None:
        await self.change(Received(read_event(body(self.identity, status)), 0), **members)

    async def search(self, after: float = 0.0) -> None:
        """Run the planned search some seconds later. The terminal has no address, so it does not reply."""
        self.seconds += after
        await self.reconciler._call(self.identity, "SN-TEST", own=True)
        self.payment = there(await self.parts.store.read(partial(rows.get, identity=self.identity)))

    def next(self) -> float | None:
        """Return the seconds until the next search, or None."""
        item = self.reconciler._watched.get(self.identity)
        at = None if item is None else schedule.due(item.watch, self.settings)
        return None if at is None else round(at - self.seconds, 3)


CARD = Trail(position=Status.CARD_PRESENTED, last="CARD_PRESENTED", edges=((None, "CARD_PRESENTED"),))
ABORTING = Trail(aborting=True)
GAP, ILLEGAL = (
    (Attention(code=code, since="2026-11-20T10:42:00.000Z", detail="x"),)
    for code in (AttentionCode.GAP, AttentionCode.ILLEGAL_TRANSITION)
)
DECIDED = Resolved("Ana", "slip", None, result=Result.DECLINED)
Step = Callable[[Plan], Awaitable[None]]


def adopt(**members: Any) -> Step:
    """Adopt the payment of an earlier daemon."""
    return lambda plan: plan.adopt(**members)


def event(status: str, **members: Any) -> Step:
    """Deliver an event of the terminal."""
    return lambda plan: plan.event(status, **members)


def change(cause: Cause, **members: Any) -> Step:
    """Record a change of another cause."""
    return lambda plan: plan.change(cause, **members)


def search(after: float) -> Step:
    """Run the planned search some seconds later."""
    return lambda plan: plan.search(after)


async def back(plan: Plan) -> None:
    """Report that the terminal is reachable again."""
    plan.reconciler.returned("SN-TEST")


async def often(plan: Plan) -> None:
    """Use up the payment's quota of calls."""
    for _ in range(CALLS_OF_TRANSACTION.value):
        plan.parts.quotas.calls.take(plan.identity)


QUOTA_SECONDS = 60 / CALLS_OF_TRANSACTION.value
NEW, ENDED = Plan.begin, {"phase": Phase.FINAL, "trail": Trail(Status.DECLINED)}
LOST, LOST_STARTING = AddressLost("192.0.2.7"), {"callback_lost": True}
#: Situation -> steps, and the seconds from the last step to the next search. None: posd plans no search.
PLANS: dict[str, tuple[tuple[Step, ...], float | None]] = {
    "new": ((NEW,), 60),
    "taken over": ((adopt(),), 0),
    "taken over, no reply": ((adopt(), search(0)), 60),
    "taken over during an abort, no reply": ((adopt(trail=ABORTING), search(0)), 3),
    "taken over without its address, no reply": ((adopt(callback_lost=True), search(0), search(60)), 30),
    "taken over after an event, no event for long": ((adopt(trail=CARD), search(70)), 60),
    "reachable again": ((NEW, back), 0),
    "reachable again during the start": ((adopt(phase=Phase.STARTING), search(0), back), 60),
    "reachable again just after a search": ((NEW, back, search(0), back), 2),
    "reachable again after too many calls": ((NEW, often, back), QUOTA_SECONDS),
    "event": ((NEW, event("CARD_PRESENTED", trail=CARD)), 200),
    "event after a gap": ((NEW, event("CARD_PRESENTED", trail=CARD, attention=GAP)), 0),
    "another change after a gap": ((NEW, change(Recorded("x"), trail=CARD, attention=GAP)), 60),
    "abort, no reply": ((NEW, change(Recorded("x"), trail=ABORTING), back, search(0)), 3),
    "unknown status": ((NEW, event("?", trail=CARD)), 0),
    "address lost": ((NEW, change(LOST, callback_lost=True), search(0)), 30),
    "address lost now": ((NEW, change(LOST, callback_lost=True)), 0),
    "address back": (
        (NEW, change(LOST, callback_lost=True), search(0), change(AddressBack("h"), callback_lost=False)),
        2,
    ),
    "address back, no reply": (
        (NEW, change(LOST, callback_lost=True), change(AddressBack("h"), callback_lost=False), search(0), search(70)),
        120,
    ),
    "ended": ((NEW, event("DECLINED", **ENDED)), None),
    "ended after a gap": ((NEW, event("DECLINED", **ENDED, attention=GAP)), 0),
    "ended after a gap, searched": ((NEW, event("DECLINED", **ENDED, attention=GAP), search(0)), None),
    "ended, a gap known before": (
        (NEW, event("CARD_PRESENTED", trail=CARD, attention=GAP), search(5), event("DECLINED", **ENDED)),
        None,
    ),
    "APPROVAL_REQUESTED after the end": (
        (NEW, event("DECLINED", **ENDED), event("APPROVAL_REQUESTED", attention=ILLEGAL)),
        0,
    ),
    "CARD_PRESENTED after the end": (
        (NEW, event("DECLINED", **ENDED), event("CARD_PRESENTED", attention=ILLEGAL)),
        None,
    ),
    "APPROVAL_REQUESTED late after the end": (
        (NEW, event("DECLINED", **ENDED), event("APPROVAL_REQUESTED", attention=GAP)),
        None,
    ),
    "closed by an operator": ((NEW, change(DECIDED, phase=Phase.FINAL)), 0),
    "closed by an operator, no reply": ((NEW, change(DECIDED, phase=Phase.FINAL), search(0)), 60),
    "closed an hour ago": ((NEW, change(DECIDED, phase=Phase.FINAL), search(3600)), None),
    "closed, then another change": ((NEW, change(DECIDED, phase=Phase.FINAL), change(Recorded("x"), repeat=True)), 0),
    "closed, then ended by the terminal": ((NEW, change(DECIDED, phase=Phase.FINAL), event("DECLINED", **ENDED)), None),
    "ended after a gap, then another event": (
        (NEW, event("DECLINED", **ENDED, attention=GAP), event("DECLINED", repeat=True)),
        0,
    ),
    "reopened": ((NEW, event("DECLINED", **ENDED), event("CARD_PRESENTED", phase=Phase.ACTIVE, trail=CARD)), 200),
    "reopened after it was closed": (
        (NEW, change(DECIDED, phase=Phase.FINAL), event("CARD_PRESENTED", phase=Phase.ACTIVE, trail=CARD)),
        200,
    ),
}


@every("steps, seconds", PLANS.values(), ids=PLANS)
async def test_the_next_search_is_as_soon_as_the_situation_of_the_payment_needs(
    tmp_path: Path, steps: tuple[Step, ...], seconds: float | None
) -> None:
    home = tmp_path / str(uuid4())
    home.mkdir()
    async with AsyncExitStack() as stack:
        store, fleet = await Store.open(home / "posd.db", home / "posd.db.lock"), Fleet(())
        stack.push_async_callback(fleet.close)
        stack.push_async_callback(store.close)
        plan = Plan(store, fleet)
        stack.push_async_callback(plan.reconciler.close)
        for step in steps:
            await step(plan)
        is_open = plan.payment.phase is not Phase.FINAL
        assert (plan.reconciler.is_open("SN-TEST"), plan.next()) == (is_open, seconds)
        assert plan.reconciler.open_terminals() == ({"SN-TEST"} if is_open else set())


async def some_turns(count: int) -> None:
    """Run the loop for this many turns."""
    for _ in range(count):
        await asyncio.sleep(0)
