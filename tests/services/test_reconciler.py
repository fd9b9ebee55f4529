"""The reconciler: when it searches, which results count, and what proves that a payment never started."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from datetime import UTC, datetime
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from posd.base.limits import CALLS_OF_TRANSACTION, EVENTS_OF_TERMINAL
from posd.base.problems import Problem
from posd.base.times import iso
from posd.config import load
from posd.config.schema import ReconcileConfig
from posd.payments import rows
from posd.payments.abort import Aborts
from posd.payments.answers import SearchFailed, SearchMiss
from posd.payments.attentions import ApprovalChecks
from posd.payments.entries import AddressBack, AddressLost, NothingHeard, Resolved
from posd.payments.inbox import Inbox
from posd.payments.lifecycle import Status, Trail
from posd.payments.missing_proof import ProofCode
from posd.payments.model import Attention, AttentionCode, Result
from posd.payments.outcomes import not_started
from posd.payments.reconcile import MAX_CALLS, Reconciler
from posd.payments.record import Cause, Received, Recorded, TransactionChanged, begin, move
from posd.payments.search import Searching
from posd.payments.start import Payments
from posd.payments.transitions import rebuild
from posd.payments.wire import read_event
from posd.records.model import Phase
from posd.records.quotas import Quotas
from posd.records.service import CallsInFlight, ServiceParts
from posd.storage.store import Store
from posd.terminals.announcements import Announcement
from posd.terminals.attempt import NotSent
from posd.terminals.fleet import Fleet
from posd.terminals.terminal import AddressChange
from tests.rig import events
from tests.rig.daemon import toml
from tests.rig.events import APPROVED, body
from tests.rig.shop import answering, hanging_up
from tests.rig.tables import there
from tests.rig.terminal import Request, acknowledgement, scripted_terminal
from tests.services.inside import CHARGE, CHECKS, URLS, Inside, composed
from tests.simulation.http import Server
from tests.simulation.loop import VirtualLoop, without_threads
from tests.simulation.network import End, Network

CONFIRMED = "[profile.search]\nconfirmed = true\n[profile.abort]\nconfirmed = true\n"
CHARGE_HERE = json.dumps({**json.loads(CHARGE), "terminal": "SN-TEST"}).encode()
OTHER_ENTRY = '[[terminals]]\nserial = "SN-OTHER"\nbase_url = "https://127.0.0.1:9"\n'


def now() -> datetime:
    return datetime.now(UTC)


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

    Each abort goes to the device that got the start. The search after the abort goes to the other device.
    `first`: the device that gets the search before the abort. `count`: number of requests after which the proof would
    be complete if each reply counted.
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
    known = json.dumps([json.loads(body(ended, "APPROVAL", "APPROVAL_REQUESTED", serial))] if serial else []).encode()

    async def search(request: Request, writer: asyncio.StreamWriter) -> None:
        await answering(200, known if ended in request.body.decode() else b"[]")(request, writer)

    async with composed(tmp_path) as inside, proving(inside) as reconciler:
        terminal = inside.terminal
        inside.reload(f"{profile}{terminal.toml}{OTHER_ENTRY}")
        inbox = Inbox(ServiceParts(inside.store, inside.fleet, now), "", ApprovalChecks("", lambda: True))
        terminal.search, terminal.abort = search, answering(409, abort)
        await inside.payments.start(ended, CHARGE_HERE)
        for status, previous in APPROVED:
            await inbox.receive(ended, body(ended, status, previous), "peer")
        terminal.start = hanging_up
        await inside.payments.start(doubtful, CHARGE_HERE)
        for _ in range(2):
            after = await reconciler.reconcile(doubtful)
        assert after.phase is (Phase.IN_DOUBT if codes else Phase.FINAL)
        lacking = await inside.store.read(partial(reconciler.missing_proof, transaction=after))
        assert tuple(item.code for item in lacking) == codes
        assert all(ended in item.detail for item in lacking if item.code is NEVER_FOUND_ANY)
        known_without_database = [item.code for item in reconciler.missing_proof(None, after)]
        assert known_without_database == [code for code in codes if code is not NEVER_FOUND_ANY]
        empty, found_any = await reconciler.probe("SN-TEST", str(uuid4()))
        assert (type(empty), found_any) == (SearchMiss, not codes)


OUTCOME = not_started(NotSent("a reason"), now())


SEARCH = "transaction_search_online"
#: Search for another payment, and the requests of a round of the proof that nothing started.
OTHER, PROBE, PROOF = "another", (SEARCH, "abort"), (SEARCH, "abort", SEARCH)
#: Terminals that never reply. Their searches take all places, twice.
NEVER_REPLYING = [f"SN-{number}" for number in range(2 * MAX_CALLS)]


class Plan:
    """A reconciler with one payment, and its terminal, in virtual time. `told`: number of reports of an open payment.

    `replies`: path -> reply of the terminal. For any other path the terminal closes the connection without a reply.
    """

    def __init__(self, home: Path, store: Store, network: Network) -> None:
        terminals = ""
        for port, serial in enumerate(("SN-TEST", *NEVER_REPLYING), 80):
            terminals += f'[[terminals]]\nserial = "{serial}"\nbase_url = "http://127.0.0.1:{port}"\n'
            network.serve((network.machine, port), self._connected if serial == "SN-TEST" else list[End]().append)
        (home / "config.toml").write_text(toml(home, CONFIRMED + terminals))
        config, clock = load(home / "config.toml"), asyncio.get_running_loop().time
        self.network = network
        self.home, self.store, self.fleet, self.clock = home, store, Fleet(config.terminals, config.profiles), clock
        self.requests, self.replies = asyncio.Queue[str](), dict[str, tuple[int, bytes]]()
        self.held, self.replying, self.calls = "", asyncio.Event(), list[asyncio.Task[object]]()
        parts = ServiceParts(store, self.fleet, now, quotas=Quotas(clock=clock), chance=lambda: 0.0, seconds=clock)
        settings = ReconcileConfig(60, 200, 300, settle_seconds=60, probe_with_abort=True)
        self.parts, self.aborts, self.searching = parts, Aborts(parts), Searching(parts, "M-1", CHECKS)
        self.reconciler = Reconciler(parts, self.searching, self.aborts, settings)
        self.identity, self.told, self.searches = str(uuid4()), 0, 0
        event = read_event(body(self.identity, "TERMINAL_ACKNOWLEDGED"))
        self.payment = replace(rebuild(event, self.identity, now()), trail=Trail())
        store.hub.listen(self.reconciler.changed, TransactionChanged)
        self.fleet.listen(self._opened, AddressChange.OPENED)

    def _opened(self, *_: object) -> None:
        self.told += 1

    def _connected(self, end: End) -> None:
        self.calls.append(asyncio.create_task(Server(end).serve(self._reply)))

    async def _reply(self, _method: str, target: str, content: bytes, server: Server) -> None:
        path = target.rpartition("/")[2]
        self.searches += path == SEARCH
        self.requests.put_nowait(path if path != SEARCH or self.identity in content.decode() else OTHER)
        if path == self.held:
            await self.replying.wait()
        if path in self.replies:
            server.answer(*self.replies[path])
        server.end.close()

    async def run(self) -> None:
        """Run the reconciler."""
        self.running = asyncio.create_task(self.reconciler.run())
        await asyncio.sleep(0)

    async def stop(self) -> None:
        """Stop the reconciler."""
        self.running.cancel()
        await self.reconciler.close()
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("reconcile-")]

    async def begin(self) -> None:
        """Run the reconciler, and record the payment."""
        await self.run()
        await self.store.write(partial(begin, transaction=self.payment, word="intent"))

    async def adopt(self, **members: Any) -> None:
        """Adopt the payment of an earlier daemon, and run the reconciler."""
        self.payment = replace(self.payment, **members)
        await self.store.write(partial(begin, transaction=self.payment, word="intent"))
        self.reconciler.adopt([self.payment])
        await self.run()

    async def others(self, *serials: str) -> None:
        """Adopt a payment on each of these terminals."""
        others = [replace(self.payment, client_transaction_id=str(uuid4()), terminal=serial) for serial in serials]
        self.reconciler.adopt(others)

    async def start(self, status: int = 0, held: str = "") -> None:
        """Start the payment. The terminal replies with an acknowledgement and this status. 0: no reply.

        `held`: path to which the terminal does not reply before `reply`.
        """
        self.held = held
        if status:
            request = Request("", "", {}, json.dumps({"client_transaction_id": self.identity}).encode())
            self.replies["charge"] = (status, acknowledgement(request, "SN-TEST"))
        await self.run()
        call = asyncio.create_task(Payments(self.parts, URLS, UTC, CHECKS).start(self.identity, CHARGE_HERE))
        self.calls.append(call)
        assert await self.requests.get() == "charge"
        if held != "charge":
            self.payment, _ = await call

    async def change(self, cause: Cause, **members: Any) -> None:
        """Record a change. The terminal is reported as open exactly if its payment opens."""
        was, told = self.reconciler.is_open("SN-TEST"), self.told
        after, calls = replace(self.payment, **members), CallsInFlight()
        after = replace(after, outcome=OUTCOME if after.phase is Phase.FINAL else None)
        self.payment = await self.store.write(lambda unit: move(unit, self.payment, after, cause, calls))
        assert (self.told > told) == (self.reconciler.is_open("SN-TEST") and not was)

    async def event(self, status: str, **members: Any) -> None:
        """Deliver an event of the terminal."""
        await self.change(Received(read_event(body(self.identity, status)), 0), **members)

    async def damaged(self) -> None:
        """Deliver a damaged callback."""
        await Inbox(self.parts, "", CHECKS, self.reconciler.unusable).receive(self.identity, b"{", "peer")

    async def abort(self, status: int, code: str = "") -> None:
        """Abort the payment as a till. The terminal replies with `status`. posd refuses with `code`, if any."""
        self.replies["abort"] = (status, b"")
        await self.refused(code, self.aborts.abort(self.identity, None))
        assert self.requests.get_nowait() == "abort"

    async def reconcile(self, code: str = "") -> None:
        """Request a search as an operator. posd refuses the search with `code`, if any."""
        self.calls.append(asyncio.create_task(self.refused(code, self.reconciler.reconcile(self.identity))))

    async def second(self) -> None:
        """Request a search for another payment of the terminal as an operator."""
        self.identity, first = str(uuid4()), self.identity
        other = replace(self.payment, client_transaction_id=self.identity)
        await self.store.write(partial(begin, transaction=other, word="intent"))
        await self.reconcile()
        await asyncio.sleep(0)
        self.identity = first

    async def refused(self, code: str, call: Awaitable[object]) -> None:
        with pytest.raises(Problem) if code else nullcontext() as problem:
            await call
        assert problem is None or problem.value.code == code

    async def hold(self) -> None:
        """Hold back the terminal's replies to searches until `reply`."""
        self.held = SEARCH

    async def reply(self) -> None:
        """Release the replies that are held back."""
        self.replying.set()

    async def back(self) -> None:
        """Report that the terminal is reachable again."""
        self.reconciler.returned("SN-TEST")

    async def often(self, left: int = 0) -> None:
        """Use up the payment's quota of calls, except for `left` calls."""
        for _ in range(CALLS_OF_TRANSACTION.value - left):
            self.parts.quotas.calls.take(self.identity)

    async def idle(self) -> None:
        """Set the terminal's replies: it runs nothing and knows no payment."""
        self.replies |= {SEARCH: (200, b"[]"), "abort": (409, b"")}

    async def known(self) -> None:
        """Record that the search has found another payment."""
        name, other = f"POST /terminal/v1/{SEARCH}", str(uuid4())
        await self.store.write(lambda unit: rows.remember_search(unit, "SN-TEST", name, other, iso(now())))

    async def reload(self, terminals: str, profile: str = CONFIRMED) -> None:
        """Reload the terminals and their profile."""
        (self.home / "config.toml").write_text(toml(self.home, profile + terminals))
        config = load(self.home / "config.toml")
        self.fleet.adopt(self.fleet.make_clients(config.terminals), config.profiles)

    async def failing(self, reason: str) -> None:
        """Check why a search has no result."""
        answer, _ = await self.reconciler.probe("SN-TEST", self.identity)
        assert isinstance(answer, SearchFailed)
        assert reason in answer.reason

    async def finds(self, *elements: dict[str, Any]) -> None:
        """Search as an operator. The search finds one end for each element, with these members replaced."""
        found = [events.event(self.identity, "APPROVAL", **element) for element in elements]
        self.replies[SEARCH] = (200, json.dumps(found).encode())
        await self.reconcile()
        await self.wait(0.01)
        self.payment = there(await self.store.read(partial(rows.get, identity=self.identity)))

    async def full(self) -> None:
        """Use up the terminal's quota of stored data."""
        self.parts.quotas.keep_event("SN-TEST", EVENTS_OF_TERMINAL.value)

    async def conflict(self) -> None:
        """Announce two devices as the terminal."""
        for port in (81, 82):
            self.fleet.announce(Announcement(f"{port}", "SN-TEST", ("127.0.0.1",), port, None, None, iso(now())))
        await self.wait(100)

    async def unplug(self) -> None:
        """Disconnect the terminal from the network. An operator requests a search."""
        self.network.listeners.clear()
        await self.reconcile()
        await asyncio.sleep(1)

    async def unasked(self) -> None:
        """Switch off posd's own aborts."""
        self.reconciler._settings = replace(self.reconciler._settings, probe_with_abort=False)

    async def mute(self) -> None:
        """Remove all replies of the terminal."""
        self.replies.clear()

    async def till(self) -> None:
        """Wait for the outcome as a till."""
        self.store.hub.subscribe(self.identity).__enter__()

    async def wait(self, seconds: float) -> None:
        """Wait. The requests meanwhile do not matter."""
        await asyncio.sleep(seconds)
        while not self.requests.empty():
            self.requests.get_nowait()

    async def search(self, seconds: float, *paths: str) -> None:
        """Wait for the next search, or for these requests. Check that they arrive after this many seconds."""
        assert await self.next(*paths) == seconds
        self.payment = there(await self.store.read(partial(rows.get, identity=self.identity)))

    async def next(self, *paths: str) -> float | None:
        """Return the seconds until the next search, or until these requests. None: no request within an hour."""
        since = self.clock()
        try:
            found = [await asyncio.wait_for(self.requests.get(), 3600)]
        except TimeoutError:
            return None
        seconds = round(self.clock() - since, 1)
        await asyncio.sleep(0.01)  # posd records the replies
        while not self.requests.empty():
            found.append(self.requests.get_nowait())
        assert found == [*(paths or [SEARCH])]
        return seconds

    async def silence(self) -> None:
        """Record a silence of this payment, and of a removed payment."""
        for identity in (self.identity, str(uuid4())):
            self.reconciler.unusable(identity)
            await self.reconciler._record(identity, NothingHeard(AttentionCode.STALLED, 60.0))
        self.payment = there(await self.store.read(partial(rows.get, identity=self.identity)))
        with pytest.raises(Problem, match="cannot reconcile: "):
            await self.reconciler.reconcile(identity)

    async def lacks(self, *codes: str) -> None:
        """Check the missing conditions of the proof that nothing started."""
        lacking = await self.store.read(partial(self.reconciler.missing_proof, transaction=self.payment))
        assert [item.code for item in lacking] == list(codes)

    async def shows(self, *codes: str) -> None:
        """Check the attentions of the payment."""
        assert [item.code for item in self.payment.attention] == list(codes)


CARD = Trail(position=Status.CARD_PRESENTED, last="CARD_PRESENTED", edges=((None, "CARD_PRESENTED"),))
ABORTING = Trail(aborting=True)
GAP, ILLEGAL = (
    (Attention(code=code, since="2026-11-20T10:42:00.000Z", detail="x"),)
    for code in (AttentionCode.GAP, AttentionCode.ILLEGAL_TRANSITION)
)
Step = Callable[[Plan], Awaitable[None]]
NEW, BACK, OFTEN, STOP, HOLD, REPLY = Plan.begin, Plan.back, Plan.often, Plan.stop, Plan.hold, Plan.reply
TILL, SECOND, DAMAGED, SILENT, MUTE = Plan.till, Plan.second, Plan.damaged, Plan.silence, Plan.mute
IDLE, KNOWN = Plan.idle, Plan.known
adopt, start, change, event, abort, reconcile, often, wait, search, shows, lacks, reload, finds, failing = (
    partial(methodcaller, name)
    for name in (
        "adopt",
        "start",
        "change",
        "event",
        "abort",
        "reconcile",
        "often",
        "wait",
        "search",
        "shows",
        "lacks",
        "reload",
        "finds",
        "failing",
    )
)
MANY, AHEAD = methodcaller("others", *NEVER_REPLYING), methodcaller("others", *["SN-TEST"] * 3)
QUOTA_SECONDS = 60 / CALLS_OF_TRANSACTION.value
ENDED = {"phase": Phase.FINAL, "trail": Trail(Status.DECLINED)}
END, PRESENTED = event("DECLINED", **ENDED), event("CARD_PRESENTED", trail=CARD)
END_AFTER_GAP = event("DECLINED", **ENDED, attention=GAP)
REOPENED = event("CARD_PRESENTED", phase=Phase.ACTIVE, trail=CARD)
CLOSED = change(Resolved("Ana", "slip", None, result=Result.DECLINED), phase=Phase.FINAL)
LOST = change(AddressLost("192.0.2.7"), callback_lost=True)
FOUND = change(AddressBack("h"), callback_lost=False)
ROUND = search(60, *PROOF)
REMOVED = (*UNCONFIRMED, NEVER_FOUND_ANY, ProofCode.TERMINAL_UNREACHABLE, ProofCode.ABORT_NOT_ASKED)
PAGED = CONFIRMED.replace("confirmed", "paged = true\nconfirmed", 1)
NO_ADDRESS = '[[terminals]]\nserial = "SN-TEST"\n'
#: Situation -> steps, and the seconds from the last step to the next search. None: posd plans no search.
PLANS: dict[str, tuple[tuple[Step, ...], float | None]] = {
    "new": ((NEW,), 60),
    "new, silent": ((NEW, search(60), shows("orphan", "no_callback")), 60),
    "taken over": ((adopt(),), 0),
    "taken over, no reply": ((adopt(), search(0)), 60),
    "taken over during an abort, no reply": ((adopt(trail=ABORTING), search(0)), 3),
    "taken over during an abort, then an event": ((adopt(trail=ABORTING), search(0), PRESENTED), 200),
    "taken over without its address, no reply": ((adopt(callback_lost=True), search(0), search(30)), 30),
    "taken over after an event, no event for long": ((adopt(trail=CARD), search(0), search(60), search(120)), 20),
    "reachable again": ((NEW, BACK), 0),
    "reachable again during the start": ((adopt(phase=Phase.STARTING), search(0), BACK), 60),
    "reachable again just after a search": ((NEW, BACK, search(0), BACK), 2),
    "reachable again during a search": ((NEW, HOLD, BACK, search(0), BACK, REPLY), 2),
    "reachable again after too many calls": ((NEW, OFTEN, BACK), QUOTA_SECONDS),
    "reachable again with one call left": ((NEW, often(1), BACK, search(0), BACK), QUOTA_SECONDS),
    "reachable again after a silence": ((NEW, wait(59.9), OFTEN, search(0.1), BACK), 2.9),
    "unusable callback": ((NEW, DAMAGED), 0),
    "unusable callback during a search": ((NEW, HOLD, BACK, search(0), DAMAGED, REPLY), 2),
    "operator": ((NEW, reconcile(), search(0)), 60),
    "operator, too often": ((NEW, OFTEN, reconcile("limit_reached")), QUOTA_SECONDS),
    "operator joins a search": ((NEW, HOLD, BACK, search(0), OFTEN, reconcile(), REPLY), 60),
    "stopped": ((NEW, STOP, PRESENTED, reconcile("draining")), None),
    "stopped during a search": ((NEW, HOLD, BACK, search(0), reconcile("draining"), wait(1), STOP, REPLY), None),
    "event": ((NEW, PRESENTED), 200),
    "event, silent": ((NEW, PRESENTED, search(200), shows("orphan", "stalled")), 60),
    "event after a gap": ((NEW, event("CARD_PRESENTED", trail=CARD, attention=GAP)), 0),
    "another change after a gap": ((NEW, change(Recorded("x"), trail=CARD, attention=GAP)), 60),
    "abort, no reply": ((NEW, change(Recorded("x"), trail=ABORTING), BACK, search(0)), 3),
    "abort accepted": ((start(200), abort(200)), 3),
    "abort refused": ((start(200), abort(409, "nothing_running")), 0),
    "abort without effect": ((start(200), PRESENTED, abort(404, "not_configured")), 200),
    "unknown status": ((NEW, event("?", trail=CARD)), 0),
    "address lost": ((NEW, LOST, search(0)), 30),
    "address lost now": ((NEW, LOST), 0),
    "address lost during the start": ((adopt(phase=Phase.STARTING), search(0), LOST), 60),
    "address back": ((NEW, LOST, search(0), FOUND), 2),
    "address back, no reply": ((NEW, LOST, FOUND, search(0), search(2)), 58),
    "ended": ((NEW, END), None),
    "ended during a search": ((NEW, HOLD, BACK, search(0), reconcile(), END, REPLY), None),
    "ended, then another change": ((NEW, END, change(Recorded("x"), repeat=True)), None),
    "ended, then a silence": ((NEW, END, SILENT, shows("orphan")), None),
    "ended after a gap": ((NEW, END_AFTER_GAP), 0),
    "ended after a gap, searched": ((NEW, END_AFTER_GAP, search(0)), None),
    "ended after a gap, then another event": ((NEW, END_AFTER_GAP, event("DECLINED", repeat=True)), 0),
    "ended, a gap known before": ((NEW, event("?", trail=CARD, attention=GAP), search(0), END), None),
    "APPROVAL_REQUESTED after the end": ((NEW, END, event("APPROVAL_REQUESTED", attention=ILLEGAL)), 0),
    "APPROVAL_REQUESTED late after the end": ((NEW, END, event("APPROVAL_REQUESTED", attention=GAP)), None),
    "CARD_PRESENTED after the end": ((NEW, END, event("CARD_PRESENTED", attention=ILLEGAL)), None),
    "closed by an operator": ((NEW, CLOSED), 0),
    "closed by an operator, no reply": ((NEW, CLOSED, search(0)), 60),
    "closed 58 minutes ago": ((NEW, CLOSED, wait(3430)), 290),
    "closed 63 minutes ago": ((NEW, CLOSED, wait(3800)), None),
    "closed, then another change": ((NEW, CLOSED, change(Recorded("x"), repeat=True)), 0),
    "closed, then ended by the terminal": ((NEW, CLOSED, search(0), END), None),
    "reopened": ((NEW, END, REOPENED), 200),
    "reopened after it was closed": ((NEW, CLOSED, search(0), REOPENED), 200),
    "in doubt": ((start(), search(60), shows("in_doubt")), 60),
    "in doubt, operator": ((start(), reconcile(), search(0), search(60)), 60),
    "in doubt, abort refused": ((start(), abort(409, "nothing_running")), 0),
    "idle terminal": ((IDLE, KNOWN, start(200), search(60)), 60),
    "idle terminal, in doubt, posd may send no abort": ((IDLE, KNOWN, Plan.unasked, start(), search(60)), 60),
    "idle terminal, starting": ((IDLE, KNOWN, start(0, "charge"), reconcile(), search(0), REPLY, ROUND, STOP), None),
    "idle terminal, abort during the start": (
        (
            IDLE,
            KNOWN,
            start(0, "charge"),
            abort(409, "nothing_running"),
            search(0),
            REPLY,
            search(3, *PROOF),
            search(57, *PROBE),
            search(3, *PROOF),
        ),
        None,
    ),
    "idle terminal, abort accepted": ((IDLE, start(), abort(200), search(3), search(3)), 6),
    "idle terminal, abort lost": (
        (IDLE, start(), abort(500), search(3, *PROBE), search(3, *PROBE), search(6, *PROBE), STOP),
        None,
    ),
    "idle terminal, in doubt": ((IDLE, KNOWN, start(), ROUND, lacks("abort_not_asked"), ROUND, lacks()), None),
    "idle terminal, its search has found nothing yet": ((IDLE, start(), ROUND, ROUND), 120),
    "idle terminal, in doubt, damaged callback": ((IDLE, KNOWN, start(), DAMAGED, search(0)), 60),
    "idle terminal, in doubt, silent later": ((IDLE, KNOWN, start(), ROUND, MUTE, search(60)), 120),
    "idle terminal, in doubt, reachable again": (
        (IDLE, KNOWN, start(), ROUND, wait(20), BACK, search(0, *PROBE), search(40, *PROOF)),
        None,
    ),
    "terminal removed": ((IDLE, KNOWN, start(), reload(OTHER_ENTRY), failing("fleet"), lacks(*REMOVED)), None),
    "terminal unplugged": ((IDLE, KNOWN, start(), Plan.unplug, lacks(*REMOVED[3:])), None),
    "two devices": ((start(), reload(NO_ADDRESS + 'scheme = "http"'), Plan.conflict, failing("not asked")), None),
    "terminal without address": ((start(), reload(NO_ADDRESS), failing("no address")), None),
    "three searches": ((AHEAD, NEW, BACK, search(0, OTHER, OTHER, OTHER, SEARCH), STOP), None),
    "three searches, a till waits": ((AHEAD, NEW, TILL, BACK, search(0, OTHER, SEARCH, OTHER, OTHER), STOP), None),
    "three searches, operator": ((AHEAD, NEW, reconcile(), search(0, OTHER, SEARCH, OTHER, OTHER), STOP), None),
    "many searches": ((MANY, NEW, BACK), 40),
    "many searches, a till waits": ((MANY, NEW, TILL, BACK), 20),
    "many searches, two operators": ((MANY, NEW, HOLD, BACK, wait(1), reconcile(), reconcile(), search(0), REPLY), 39),
    "many searches, operator for another payment": ((MANY, NEW, BACK, SECOND, search(20, SEARCH, OTHER), STOP), None),
    "many searches, ended meanwhile": ((MANY, NEW, BACK, wait(1), END, search(39)), None),
}


def in_virtual_time(home: Path, *steps: Step) -> None:
    """Run the steps. No search fails because of a fault of posd."""

    async def play() -> None:
        async with AsyncExitStack() as stack:
            store = await Store.open(home / "posd.db", home / "posd.db.lock")
            stack.push_async_callback(store.close)
            plan = Plan(home, store, network)
            stack.push_async_callback(plan.fleet.close)
            stack.push_async_callback(plan.reconciler.close)
            lines = stack.enter_context(capture_logs())
            for step in steps:
                await step(plan)
            plan.running.cancel()
            await asyncio.gather(*plan.calls)
            assert "posd.internal_error" not in {line["event"] for line in lines}
            assert not errors

    network = Network(1)
    loop = VirtualLoop(network)
    loop.thread_seconds = lambda: 0.0
    errors = list[object]()
    loop.set_exception_handler(lambda _loop, context: errors.append(context))
    with without_threads(loop), asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(play())


@pytest.mark.parametrize(("steps", "seconds"), PLANS.values(), ids=PLANS)
def test_the_next_search_is_as_soon_as_the_situation_of_the_payment_needs(
    tmp_path: Path, steps: tuple[Step, ...], seconds: float | None
) -> None:
    async def end(plan: Plan) -> None:
        is_open = plan.payment.phase is not Phase.FINAL
        assert plan.reconciler.is_open("SN-TEST") == is_open
        assert ("SN-TEST" in plan.reconciler.open_terminals()) == is_open
        assert await plan.next() == seconds

    in_virtual_time(tmp_path, *steps, end)


HERE = NO_ADDRESS + 'base_url = "http://127.0.0.1:80"\n'
STATE, FOREIGN, UNREADABLE = {"status": "CARD_PRESENTED"}, {"merchant_id": "M-2"}, {"status": None}
#: Elements of a search's reply -> result, outcome, attentions, and whether the quota of the terminal is used, and
#: whether the search has shown that it works. In doubt, posd also sends an abort, which uses the quota.
FOUND_BY_SEARCH: dict[str, tuple[tuple[Step, ...], str, str, str, bool, bool]] = {
    "nothing": ((finds(),), "none", "", "in_doubt", True, False),
    "end": ((finds({}),), "found", "approved", "", True, True),
    "state": ((finds(STATE),), "found", "", "", True, True),
    "no merchant": ((finds({"merchant_id": None}),), "found", "approved", "damaged_event", True, True),
    "no serial": ((finds({"serial": ""}),), "found", "approved", "damaged_event", True, False),
    "another terminal": ((finds({"serial": "SN-0"}),), "found", "approved", "serial_mismatch", True, False),
    "foreign terminal": (
        (finds({"serial": "SN-X"}),),
        "no_answer",
        "",
        "in_doubt serial_mismatch quarantined_event",
        False,
        False,
    ),
    "another merchant": ((finds(FOREIGN),), "no_answer", "", "in_doubt quarantined_event", False, False),
    "another merchant, foreign terminal": (
        (finds(FOREIGN | {"serial": "SN-X"}),),
        "no_answer",
        "",
        "in_doubt quarantined_event",
        False,
        False,
    ),
    "unreadable, then another merchant": (
        (finds(UNREADABLE, FOREIGN),),
        "no_answer",
        "",
        "in_doubt quarantined_event",
        False,
        False,
    ),
    "another merchant, then the payment": ((finds(FOREIGN, {}),), "found", "approved", "", True, True),
    "unreadable": ((finds(UNREADABLE),), "no_answer", "", "in_doubt quarantined_event", False, False),
    "unreadable, then the payment": ((finds(UNREADABLE, {}),), "found", "approved", "quarantined_event", True, True),
    "list instead of a page": ((reload(HERE, PAGED), finds({})), "no_answer", "", "in_doubt", False, False),
    "unlikely": (
        (finds({"occurred_at": "2001-01-01T00:00:00.000Z"}),),
        "found",
        "approved",
        "approval_unlikely",
        True,
        True,
    ),
    "state, quota used up": ((Plan.full, finds(STATE)), "no_answer", "", "in_doubt", False, False),
    "end, quota used up": ((Plan.full, finds({})), "found", "approved", "", True, True),
    "end again, quota used up": ((finds({}), Plan.full, finds({})), "no_answer", "approved", "", False, True),
}


@pytest.mark.parametrize(
    ("steps", "result", "outcome", "codes", "stored", "works"), FOUND_BY_SEARCH.values(), ids=FOUND_BY_SEARCH
)
def test_a_search_result_is_used_if_it_is_of_this_payment_and_this_merchant(
    tmp_path: Path, steps: tuple[Step, ...], result: str, outcome: str, codes: str, stored: bool, works: bool
) -> None:
    *before, last = steps

    async def check(plan: Plan) -> None:
        used = partial(plan.parts.quotas._events.seconds_until, "SN-TEST", EVENTS_OF_TERMINAL.value)
        before = used()
        await last(plan)
        payment = plan.payment
        found = payment.outcome.result if payment.outcome else "", " ".join(item.code for item in payment.attention)
        assert (there(payment.last_search).result, *found) == (result, outcome, codes)
        assert (used() > before) == stored
        assert plan.searching.results.total() == plan.searches
        _, remembered = await plan.reconciler.probe("SN-TEST", str(uuid4()))
        assert remembered == works

    in_virtual_time(tmp_path, start(), *before, check)
