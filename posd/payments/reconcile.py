"""Reconciler: searches on terminals for open transactions, and for those that an operator closed.

Elapsed time never decides an outcome.

The reconciler receives every change after its COMMIT and keeps the data that `payments.schedule` needs. Each
transaction has its own timer, so the cost of a change does not depend on the number of open transactions. There is one
call at a time to each terminal, and at most `MAX_CALLS` at a time in total. So an outage or a restart with hundreds of
open transactions causes no burst. A search that an operator or a till waits for comes before others.
"""

import asyncio
import secrets
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import msgspec
import structlog

from posd.base.crashpoints import crash_point
from posd.base.problems import Problem
from posd.config.schema import ReconcileConfig
from posd.payments import lifecycle, rows, schedule
from posd.payments.abort import Aborts
from posd.payments.answers import RESULTS, AbortAnswer, Answer
from posd.payments.entries import (
    AbortAnswered,
    AbortRequested,
    AddressBack,
    AddressLost,
    NothingHeard,
    ProvedNotStarted,
    Resolved,
)
from posd.payments.lifecycle import STATUSES, Status
from posd.payments.missing_proof import DoubtFacts, MissingProof, ProofContext, concluded, evidence, explained
from posd.payments.model import AttentionCode, SearchResult, Transaction
from posd.payments.record import Received, TransactionChanged, record
from posd.payments.schedule import NotStartedProof, TransactionWatch
from posd.payments.search import AskedDevice, Searching
from posd.records.model import Phase
from posd.records.service import RecordService, ServiceParts, storage_problem
from posd.storage import CommitUncertain, StorageUnavailable
from posd.storage.batch import WriteTransaction
from posd.terminals.terminal import AddressChange

NEVER = float("inf")

DRAINING = "posd is stopping; ask again in a moment"

#: Largest number of concurrent searches, so that a burst after an outage does not delay payments.
MAX_CALLS = 8

log = structlog.get_logger("posd.reconciler")

#: Minimum pause between two searches for one transaction, in seconds, if a device on the LAN causes the searches.
CAUSED_PAUSE_SECONDS = 2.0

#: Attentions of an unexpected final state, after which posd searches once.
ASK_ONCE = frozenset({AttentionCode.ILLEGAL_TRANSITION, AttentionCode.GAP, AttentionCode.DAMAGED_EVENT})


# Turns of the searches on a terminal.
#
# A search without a reply takes `reply_timeout_seconds`, and searches for old transactions in doubt are repeated. So a
# search comes first if an operator or a till waits for it. Other searches run when no such search waits.

Urgent = Callable[[], bool]


def always() -> bool:
    """Return True, because an operator's request is urgent."""
    return True


class CallTurns:
    """Limit of concurrent calls. Urgent waiters come first, otherwise in order of arrival."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: dict[asyncio.Future[None], Urgent] = {}

    @property
    def pressed(self) -> bool:
        """Whether any waiter is urgent."""
        return any(urgent() for urgent in self._waiting.values())

    @asynccontextmanager
    async def turn(self, urgent: Urgent) -> AsyncIterator[None]:
        """Wait for a turn, and hold it for the block. `urgent` is called each time a turn ends."""
        await self._enter(urgent)
        try:
            yield
        finally:
            self._leave()

    async def _enter(self, urgent: Urgent) -> None:
        if self._free:
            self._free -= 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[place] = urgent
        try:
            await place
        except asyncio.CancelledError:
            if self._waiting.pop(place, None) is None:  # the waiter has received a turn that it will not use
                self._leave()
            raise

    def _leave(self) -> None:
        # A cancelled waiter stays here until its task resumes, and must not receive a turn.
        waiting = {place: urgent for place, urgent in self._waiting.items() if not place.done()}
        if not waiting:
            self._free += 1
            return
        first = next(iter(waiting))
        place = next((place for place, urgent in waiting.items() if urgent()), first)
        del self._waiting[place]
        place.set_result(None)


# Plan of the searches.


class _Watched(msgspec.Struct):
    """Data about one transaction: its `TransactionWatch`, attentions, unrecorded silence, rounds of proof, open abort.

    `timer` ends at the next search or earlier. If it ends earlier, it is started again.
    """

    identity: str
    watch: TransactionWatch
    attention: frozenset[str]
    rounds: NotStartedProof
    silence: NothingHeard | None = None
    asked: float = -NEVER  # time of the last search
    abort_asked: float | None = None  # time of the open abort; None if there is none, or the phase has changed since
    probing: bool = False  # the open abort is a probe of posd
    timer: asyncio.TimerHandle | None = None


class Reconciler(RecordService):
    """Reconciler of open transactions. Call `adopt` at the start, run `run` as a task, and call `close` at the stop."""

    def __init__(self, parts: ServiceParts, searching: Searching, aborts: Aborts, settings: ReconcileConfig) -> None:
        super().__init__(parts)
        self._searching = searching
        self._aborts = aborts
        self._settings = settings
        self._chance = parts.chance
        self._seconds = parts.seconds
        self._watched: dict[str, _Watched] = {}
        self._of_terminal: dict[str, dict[str, None]] = {}  # watched transactions of each terminal
        self._calls: dict[str, asyncio.Task[None]] = {}
        self._queued: set[str] = set()  # transactions whose planned search waits for its turn
        self._turns: dict[str, CallTurns] = {}
        self._fleet_turns = CallTurns(MAX_CALLS)
        self._running = False
        self._closing = False

    def adopt(self, taken_over: Sequence[Transaction]) -> None:
        """Watch the transactions that an earlier daemon left open, and search for each at once."""
        now = self._seconds()
        for item in taken_over:
            called_back = bool(item.trail.edges)
            watch = TransactionWatch(
                item.terminal,
                item.phase,
                item.status,
                now,
                called_back=called_back,
                aborting=item.trail.aborting,
                callback_lost=item.callback_lost,
            )
            self._keep(item.client_transaction_id, schedule.search_now(watch, now), [a.code for a in item.attention])

    def returned(self, terminal: str) -> None:
        """Search for the open transactions of a terminal that is reachable again or has another address."""
        now = self._seconds()
        for identity in self._of_terminal.get(terminal, ()):
            item = self._watched[identity]
            if item.watch.phase is not Phase.STARTING:
                self._want_soon(item, now)
                self._wait(identity)

    def is_open(self, terminal: str) -> bool:
        """Whether a terminal has an open transaction."""
        watched = (self._watched[identity].watch for identity in self._of_terminal.get(terminal, ()))
        return any(watch.phase is not Phase.FINAL for watch in watched)

    def open_terminals(self) -> frozenset[str]:
        """Return the terminals with open transactions."""
        return frozenset(filter(self.is_open, self._of_terminal))

    def unusable(self, client_transaction_id: str) -> None:
        """Search for a transaction after an unusable callback, which may have had the final event."""
        item = self._watched.get(client_transaction_id)
        if item is not None:
            self._want_soon(item, self._seconds())
            self._wait(client_transaction_id)

    def _want_soon(self, item: _Watched, now: float) -> None:
        """Plan a search after a minimum pause, so that a device on the LAN cannot cause endless searches."""
        at = max(now, item.asked + CAUSED_PAUSE_SECONDS, now + self._quotas.calls.seconds_until(item.identity))
        item.watch = schedule.search_now(item.watch, at)

    async def reconcile(self, client_transaction_id: str) -> Transaction:
        """Search for a transaction now. Return the changed transaction. Raise Problem."""
        transaction = await self._read(client_transaction_id)
        if self._closing:
            raise Problem("draining", DRAINING)
        if client_transaction_id not in self._calls:
            self._require_calls(client_transaction_id)
        call = self._call(client_transaction_id, transaction.terminal, own=False)
        try:
            await asyncio.shield(call)
        except asyncio.CancelledError:
            if self._closing:
                raise Problem("draining", DRAINING) from None
            raise
        return await self._read(client_transaction_id)

    def _require_calls(self, identity: str) -> None:
        """Raise Problem after too many requests for a transaction. Plan a search instead, if it is watched."""
        try:
            self._quotas.require_calls(identity, "cannot ask now")
        except Problem:
            self.unusable(identity)
            raise

    async def probe(self, terminal: str, unknown: str) -> tuple[Answer, bool]:
        """Search on a terminal for an id that was never sent, without recording the result. Raise Problem.

        Return the result, and whether the search on this terminal has found a payment before.
        """
        async with self._turns_of(terminal).turn(always):
            answer, _ = await self._searching.ask(unknown, terminal)
        found = partial(self._searching.found_another, terminal=terminal, client_transaction_id=unknown)
        with storage_problem("cannot tell now: {error}; check the disk"):
            return answer, await self._store.read(found)

    async def run(self) -> None:
        """Run due searches, until cancelled."""
        self._running = True
        try:
            for identity in self._watched:
                self._wait(identity)
            await asyncio.Event().wait()
        finally:
            self._running = False
            for item in self._watched.values():
                if item.timer is not None:
                    item.timer.cancel()

    def _wait(self, identity: str) -> None:
        """Schedule the next search for a transaction from its present state."""
        item = self._watched.get(identity)
        if item is None or not self._running or identity in self._calls:  # then `_called` plans the next search
            return
        at = schedule.due(item.watch, self._settings)
        if at is None or (item.timer is not None and item.timer.when() <= at):
            return
        if item.timer is not None:
            item.timer.cancel()
        item.timer = asyncio.get_running_loop().call_at(at, self._ended, identity, item)

    def _ended(self, identity: str, item: _Watched) -> None:
        """Search for a transaction, unless its search was postponed since the timer started."""
        item.timer = None
        at = schedule.due(item.watch, self._settings)
        if at is not None and at <= self._seconds():
            self._call(identity, item.watch.terminal, own=True)
        else:
            self._wait(identity)

    async def close(self) -> None:
        """Stop searching. Cancel running searches. The next daemon repeats them."""
        self._closing = True
        calls = list(self._calls.values())
        for call in calls:
            call.cancel()
        if calls:
            await asyncio.wait(calls)

    def changed(self, changes: Sequence[TransactionChanged]) -> None:
        """Process changes after their COMMIT, on the event loop."""
        for change in changes:
            self._take(change)
            self._wait(change.id)

    def _take(self, change: TransactionChanged) -> None:
        now, after, cause = self._seconds(), change.after, change.cause
        item = self._watched.get(change.id)
        if after.phase is Phase.FINAL:
            self._take_end(change, item, now)
            return
        called = isinstance(cause, Received)
        if item is None:  # a new transaction, or an ended one that an event has reopened
            watch = TransactionWatch(after.terminal, after.phase, change.status, now)
            item = self._keep(change.id, watch, change.attention)
        opened = item.watch.phase is Phase.FINAL
        if after.phase is not item.watch.phase:
            item.rounds, item.abort_asked = NotStartedProof(self._settings.settle_seconds), None
        gap = called and AttentionCode.GAP in change.attention
        changed = partial(schedule.after_change, event=called, gap=gap, aborting=after.trail.aborting)
        item.watch = changed(item.watch, after.phase, change.status, now)
        item.attention = frozenset(change.attention)
        if opened:
            self._fleet.state.tell(after.terminal, AddressChange.OPENED)
        match cause:
            case AbortRequested(probe=probe):
                item.abort_asked, item.probing = now, probe
            case AbortAnswered(answer=answer):
                self._take_answer(item, answer, now)
            case Received(event=event) if STATUSES.get(event.status) is None:
                self._want_soon(item, now)  # a damaged callback may have been the final one
            case AddressLost() | AddressBack():
                item.watch = msgspec.structs.replace(item.watch, callback_lost=isinstance(cause, AddressLost))
                if after.phase is not Phase.STARTING:
                    # posd also searches when the address is back, because the terminal may have stopped its retries.
                    self._want_soon(item, now)
            case _:
                pass

    def _take_end(self, change: TransactionChanged, item: _Watched | None, now: float) -> None:
        """Stop watching an ended transaction. If its end was unexpected, search once."""
        after, cause = change.after, change.cause
        if item is None:
            # The end is unexpected if APPROVAL_REQUESTED arrives after it.
            asked = isinstance(cause, Received) and cause.event.status == Status.APPROVAL_REQUESTED
            strange = asked and AttentionCode.ILLEGAL_TRANSITION in change.attention
        elif item.watch.phase is Phase.FINAL:
            if item.watch.until is not None and after.status in lifecycle.FINALS:
                # An operator had closed the transaction, and the terminal has now reported the end.
                self._forget(change.id)
            return  # the search after the end is planned already
        else:
            strange = bool((frozenset(change.attention) - item.attention) & ASK_ONCE)
        self._forget(change.id)
        if isinstance(cause, Resolved):
            self._keep(change.id, schedule.closed(after.terminal, now), change.attention)
        elif strange:
            watch = TransactionWatch(after.terminal, Phase.FINAL, None, now)
            self._keep(change.id, schedule.search_now(watch, now), change.attention)

    def _take_answer(self, item: _Watched, answer: AbortAnswer, now: float) -> None:
        """Handle the result of an abort: a part of the proof, or a reason to search."""
        if item.abort_asked is not None:  # None: the phase has changed since, which restarted the proof
            item.rounds = schedule.aborted(item.rounds, answer, item.abort_asked)
        if answer is AbortAnswer.NOTHING_RUNNING and not item.probing:
            item.watch = schedule.search_now(item.watch, now)
        elif item.watch.aborting and not item.probing:
            item.watch = schedule.stopped(item.watch, self._settings, now)

    def _keep(self, identity: str, watch: TransactionWatch, attention: Sequence[str]) -> _Watched:
        item = self._watched[identity] = _Watched(
            identity, watch, frozenset(attention), NotStartedProof(self._settings.settle_seconds)
        )
        self._of_terminal.setdefault(watch.terminal, {})[identity] = None
        if watch.phase is not Phase.FINAL:
            self._fleet.state.tell(watch.terminal, AddressChange.OPENED)
        return item

    def _forget(self, identity: str) -> None:
        item = self._watched.pop(identity, None)
        if item is None:
            return
        if item.timer is not None:
            item.timer.cancel()
        del self._of_terminal[item.watch.terminal][identity]

    def _call(self, identity: str, terminal: str, *, own: bool) -> "asyncio.Task[None]":
        """Search for one transaction when its terminal is free, or join the running search.

        `own`: the plan of the reconciler caused the search. Only such searches count for `MAX_CALLS`. A search that an
        operator requests does not change the plan.
        """
        if not own and identity in self._queued:
            self._queued.discard(identity)
            self._calls.pop(identity).cancel()  # an operator must not wait for `MAX_CALLS`; the plan searches later
        call = self._calls.get(identity)
        if call is None:
            if own:
                self._queued.add(identity)
            call = asyncio.create_task(self._in_turn(identity, terminal, own), name=f"reconcile-{identity}")
            self._calls[identity] = call
            call.add_done_callback(partial(self._called, identity))
        return call

    def _called(self, identity: str, call: "asyncio.Task[None]") -> None:
        if self._calls.get(identity) is call:
            del self._calls[identity]
            self._queued.discard(identity)
        if not call.cancelled():
            # Mark the error as retrieved. It was logged where it happened, and the search is planned again.
            call.exception()
        self._wait(identity)

    def _turns_of(self, terminal: str) -> CallTurns:
        return self._turns.setdefault(terminal, CallTurns(1))

    async def _in_turn(self, identity: str, terminal: str, own: bool) -> None:
        """Search for a transaction, and record the result. Raise Problem."""
        urgent = partial(self._store.hub.awaited, identity) if own else always
        result = SearchResult.NO_ANSWER
        line = self._turns_of(terminal)
        async with AsyncExitStack() as turns:
            await turns.enter_async_context(line.turn(urgent))
            if own:  # an urgent search in the queue of this terminal makes this search urgent too
                await turns.enter_async_context(self._fleet_turns.turn(lambda: urgent() or line.pressed))
            self._queued.discard(identity)
            wanted = own and self._begin(identity)
            try:
                await self._note_silence(identity)
                result = await self._search(identity, terminal)
            except (StorageUnavailable, CommitUncertain) as error:
                log.warning("payment.not_recorded", transaction=identity, error=str(error))
                detail = f"the answer of the search cannot be recorded now ({error}); check the disk, and ask again"
                raise Problem("storage_unavailable", detail) from error
            except Exception as error:
                error_id = secrets.token_hex(8)
                log.exception("posd.internal_error", error_id=error_id, transaction=identity)
                detail = "the search failed because of a fault of posd; the log has it under this error_id"
                raise Problem("internal_error", detail, error_id=error_id) from error
            finally:
                if own:
                    self._plan(identity, result, wanted)

    def _begin(self, identity: str) -> bool:
        """Clear the planned search of a transaction before it runs. A request during the search plans another one.

        Return whether the planned search had been requested.
        """
        item = self._watched.get(identity)
        if item is None:
            return False
        wanted, item.asked = item.watch.wanted, self._seconds()
        item.watch = msgspec.structs.replace(item.watch, search_at=None, wanted=False)
        if wanted:
            self._quotas.calls.take(identity)
        return wanted

    async def _search(self, identity: str, terminal: str) -> SearchResult:
        asked = self._seconds()
        transaction, answer, device = await self._searching.search(identity, terminal)
        result = RESULTS[type(answer)]
        if transaction is not None and self._provable(transaction, device):
            await self._prove(transaction, result, asked)
        return result

    def _plan(self, identity: str, result: SearchResult, wanted: bool) -> None:
        """Plan the next search after the result of a search, unless a search was requested meanwhile."""
        item = self._watched.get(identity)
        if item is None or item.watch.search_at is not None:
            return
        now, jitter = self._seconds(), self._chance()
        if item.watch.phase is Phase.FINAL and (item.watch.until is None or now >= item.watch.until):
            self._forget(identity)  # the searches for an ended transaction are over
            return
        watch = msgspec.structs.replace(item.watch, wanted=wanted)
        item.watch = schedule.answered(watch, result, self._settings, now, jitter)
        second = item.rounds.second_due
        if second is not None and now < second:
            item.watch = msgspec.structs.replace(item.watch, search_at=min(second, now + schedule.MAX_BACKOFF_SECONDS))

    async def _note_silence(self, identity: str) -> None:
        """Record a silence of the terminal that exceeds its limit. If the write fails, repeat it at the next search."""
        item = self._watched.get(identity)
        if item is None:
            return
        silence = schedule.overdue(item.watch, self._settings, self._seconds())
        if silence is not None:
            item.watch = msgspec.structs.replace(silence, search_at=None)  # a search is running
            if silence.phase is Phase.ACTIVE:
                item.silence = NothingHeard(silence.silence, schedule.silence_limit(silence, self._settings))
        if item.silence is not None:
            await self._record(identity, item.silence)
            item.silence = None

    def _provable(self, transaction: Transaction, device: AskedDevice | None) -> bool:
        """Whether a reply of that device can still prove that the transaction never started.

        The conditions are in `payments.missing_proof`.
        """
        return (
            transaction.phase is Phase.IN_DOUBT
            and not transaction.heard
            and self._searching.confirmed(transaction.terminal)
            and self._searching.reached(transaction, device)
            and self._fleet.conflict(transaction.terminal) is None
        )

    async def _prove(self, transaction: Transaction, result: SearchResult, asked: float) -> None:
        """Continue the proof that a transaction never started, and conclude it when it is complete."""
        identity, terminal = transaction.client_transaction_id, transaction.terminal
        item = self._watched.get(identity)
        if item is None:
            return
        item.rounds = schedule.searched(item.rounds, result, asked)
        if result is SearchResult.NONE and self._settings.probe_with_abort and not item.rounds.complete:
            before = item.rounds
            await self._aborts.probe(identity)  # `_take_answer` counts the reply
            if item.rounds != before:  # the abort found nothing running, so the next search counts
                asked = self._seconds()
                again, answer, device = await self._searching.search(identity, terminal)
                if again is None or not self._provable(again, device):
                    return
                item.rounds = schedule.searched(item.rounds, RESULTS[type(answer)], asked)
        if not item.rounds.complete:
            return
        proven = await self._searching.known_to_work(terminal, identity)
        if concluded(self._facts(transaction, proven=proven, reachable=True), item.rounds):
            await self._record(identity, ProvedNotStarted(evidence(item.rounds, self._seconds(), self._now())))

    def missing_proof(self, db: sqlite3.Connection | None, transaction: Transaction) -> tuple[MissingProof, ...]:
        """Return the missing conditions of `not_started` for a transaction in doubt. Other transactions have none.

        `db`: None if the database cannot be read. Then the condition that depends on stored searches counts as met.
        """
        if transaction.phase is not Phase.IN_DOUBT:
            return ()
        identity, terminal = transaction.client_transaction_id, transaction.terminal
        proven = db is None or self._searching.found_another(db, terminal, identity)
        facts = self._facts(transaction, proven=proven, reachable=self._searching.reachable(terminal))
        told = ProofContext(
            identity,
            terminal,
            self._settings.settle_seconds,
            self._settings.probe_with_abort,
            self._aborts.possible(transaction),
            rows.search_control(db, terminal) if db is not None else None,
        )
        return explained(facts, told)

    def _facts(self, transaction: Transaction, *, proven: bool, reachable: bool) -> DoubtFacts:
        """Return the facts that decide whether a transaction in doubt never started.

        `proven`: whether the search has found another transaction of the terminal. `reachable`: whether the device that
        received the start is reachable.
        """
        terminal, item = transaction.terminal, self._watched.get(transaction.client_transaction_id)
        return DoubtFacts(
            heard=transaction.heard,
            search_confirmed=self._searching.confirmed_row(terminal, "search"),
            abort_confirmed=self._searching.confirmed_row(terminal, "abort"),
            search_proven=proven,
            conflict=self._fleet.conflict(terminal) is not None,
            reachable=reachable,
            idle=item is not None and item.rounds.second_abort is not None,
        )

    async def _record(self, identity: str, entry: NothingHeard | ProvedNotStarted) -> None:
        def work(unit: WriteTransaction) -> None:
            before = rows.get(unit.db, identity)
            if before is not None:
                record(unit, before, entry, self._now(), self._outstanding)

        crash_point("reconcile.before_commit")
        await self._store.write(work)
        crash_point("reconcile.committed")

    async def _read(self, client_transaction_id: str) -> Transaction:
        with storage_problem("cannot reconcile: {error}; check the disk"):
            known = partial(rows.PAYMENT.require, identity=client_transaction_id, cannot="cannot reconcile: ")
            return await self._store.look_up(known)
