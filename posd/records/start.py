"""Shared start of payments and print jobs.

A till's call runs to its end, even if the till does not wait. Calls with one id run one after the other. This module
also has the Problems that refuse starts of both kinds.
"""

import asyncio
import secrets
import sqlite3
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec
import structlog

from posd.base.fair_queue import end_turn
from posd.base.limits import START_BYTES, Limit
from posd.base.problems import NOT_OF_UNKNOWN_ID, Problem
from posd.httpd.admission import SocketPeer
from posd.records.model import Phase
from posd.records.quotas import SenderQuotas
from posd.records.request import RequestFault
from posd.records.service import Missing, RecordService, ServiceParts
from posd.records.table import R, RecordKind
from posd.storage import CommitUncertain, StorageUnavailable
from posd.storage.marks import MissingRecords
from posd.terminals.attempt import Attempt, NotSent, Replied
from posd.terminals.identity import OpenConflict
from posd.terminals.terminal import FleetTerminal

#: Seconds between two attempts to store the judgement of a start while the disk is full.
RETRY_STORING_SECONDS = 1.0

T = TypeVar("T")
#: Words for the log, by kind of judgement.
Names = Mapping[type[Any], str]

#: Problem codes of refused starts of both kinds.
REFUSALS = (
    "malformed_json",
    "unknown_terminal",
    "terminal_offline",
    "identity_conflict",
    "id_reused",
    "unknown_original",
    "pruned",
    "limit_reached",
    "storage_unavailable",
    "draining",
)

log = structlog.get_logger("posd.starts")


Q = TypeVar("Q", bound=msgspec.Struct)
D = TypeVar("D")
Faults = tuple[RequestFault, ...]


class Starts(RecordService, Generic[R, Q, D]):
    """Base of the starts of payments and of print jobs. A call with a known id is answered from the database.

    `R`: type of the record. `Q`: type of the parsed request. `D`: type of the draft, which `_run` records and sends.
    """

    kind: RecordKind[R, Any]
    free: Limit
    cannot: str  # text about the refused action
    used_for: str  # see `require_same`
    new_id_for: str  # see `require_same`

    def __init__(self, parts: ServiceParts, quota: SenderQuotas, unreadable: Q) -> None:
        """`unreadable`: value in place of the parsed request if a body cannot be read."""
        super().__init__(parts)
        self._quota = quota
        self._unreadable = unreadable
        self._missing = parts.missing
        self._draining = False
        self._busy: dict[str, asyncio.Future[None]] = {}
        self._calls: dict[str, set[asyncio.Task[Any]]] = {}  # open calls by id, in lower case
        self._tasks: set[asyncio.Task[Any]] = set()

    @abstractmethod
    def _read(self, body: bytes) -> tuple[Q, Faults]:
        """Parse a body. Raise Problem."""

    @abstractmethod
    async def _draft(self, identity: str, request: Q, faults: Faults) -> D:
        """Check a request, and return the draft. Raise Problem; then nothing is recorded."""

    @abstractmethod
    async def _run(self, drafted: D) -> tuple[R, bool]:
        """Record and send the draft. Return the record, and whether this call started it. Raise Problem."""

    @abstractmethod
    def _differing(self, known: R, request: Q, faults: Faults) -> list[str]:
        """Return the fields in which a repeated call differs from the record of its id."""

    def _find(self, db: sqlite3.Connection, identity: str) -> R | None:
        """Return the record with an id, or None if the id is free. Raise Problem."""
        return self.kind.get(db, identity)

    async def start(
        self, identity: str, body: bytes, refusal: Problem | None = None, sender: SocketPeer | None = None
    ) -> tuple[R, bool]:
        """Start a payment or a print job, or return the known record of the id. Raise Problem.

        Return also whether this call started it. `refusal`: a fault in the parameters of the call, which counts only if
        the id is unknown. `sender`: the calling process, or None if its data is not limited. The call runs to its end,
        even if the till disconnects. With a Problem of status 4xx or 503, nothing was sent or recorded.
        """
        call = self._keep(self._start(identity, body, refusal, sender))
        self._calls.setdefault(identity.lower(), set()).add(call)
        call.add_done_callback(partial(self._ended, identity.lower()))
        return await asyncio.shield(call)

    def _are_others(self, identity: str) -> bool:
        """Return whether another call of the same id is open, which may still send the request."""
        return len(self._calls.get(identity.lower(), ())) > 1

    def _ended(self, identity: str, call: "asyncio.Task[Any]") -> None:
        calls = self._calls[identity]
        calls.discard(call)
        if not calls:
            del self._calls[identity]

    async def recorded(self, identity: str, work: Callable[[], Awaitable[T]]) -> T:
        """Run `work`, which needs the record of an id. Return its result, or raise its Problem.

        While a call that starts the id is open, that call may still record the id. If `work` raises `not_found` then,
        repeat it when the id is recorded, or when that call ends.
        """
        if identity.lower() not in self._calls:
            return await work()
        with self._store.hub.subscribe(identity) as woken:
            while True:
                woken.clear()
                calls = set(self._calls.get(identity.lower(), ()))
                try:
                    return await work()
                except Problem as problem:
                    if problem.code != "not_found" or not calls:
                        raise
                end_turn()
                change = asyncio.ensure_future(woken.wait())
                try:
                    await asyncio.wait({*calls, change}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    change.cancel()

    async def _start(
        self, identity: str, body: bytes, refusal: Problem | None, sender: SocketPeer | None
    ) -> tuple[R, bool]:
        request, size = self._unreadable, len(body) + START_BYTES
        faults: Faults = (RequestFault("", "is not a request"),)
        try:
            request, faults = self._read(body)
        except Problem as problem:
            refusal = refusal or problem
        async with self._per_id_lock(identity.lower()):
            known = await self._look_up(identity)
            if known is None:
                with of_unknown_id(self._missing, lambda: self._are_others(identity)):
                    if refusal is not None:
                        raise refusal
                    self._refuse_draining()  # before the slow steps below
                    draft = await self._draft(identity, request, faults)
                    self._quotas.require_free(self.free, self.cannot)
                    self._quota.require(sender, size, self.cannot)
                    known, started = await self._run(draft)
                if started:
                    self._quota.take(sender, size)
                    return known, True
        differing = self._differing(known, request, faults)
        require_same(identity, differing, used_for=self.used_for, new_id_for=self.new_id_for)
        return known, False

    def _keep(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run a call to its end, even if the till does not wait for it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # mark the error as retrieved, because the waiting till may have disconnected

    @asynccontextmanager
    async def _per_id_lock(self, identity: str) -> AsyncIterator[None]:
        """Allow one call of an id at a time."""
        while (busy := self._busy.get(identity)) is not None:
            await asyncio.wait({busy})
        mine = self._busy[identity] = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            del self._busy[identity]
            mine.set_result(None)

    async def _finish(self, seconds: float | None = None) -> None:
        """Wait until no call runs, at most `seconds`."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)

    def _refuse_draining(self) -> None:
        """Raise Problem if posd is stopping."""
        if self._draining:
            raise Problem("draining", "posd is stopping; repeat the same call in a moment")

    async def _look_up(self, identity: str) -> R | None:
        """Return the record of an id, or None if the id is free. Raise Problem."""

        def look(db: sqlite3.Connection) -> R | None:
            found = self._find(db, identity)
            if found is None:
                self.kind.refuse_pruned(db, identity)
            return found

        return await self._look(identity, look)

    async def _look(self, identity: str, function: Callable[[sqlite3.Connection], T]) -> T:
        """Return the result of a read for a call with an id. Raise Problem."""
        try:
            return await self._store.look_up(function)
        except StorageUnavailable as error:
            raise self._not_known(identity, error) from error

    async def _resolve_uncertain(
        self, identity: str, error: CommitUncertain, conclude: Callable[[NotSent], Awaitable[R | None]]
    ) -> R:
        """Record with `conclude` that nothing was sent, after an uncertain commit of the intent.

        Return the record if the intent is on disk. Otherwise raise Problem.
        """
        log.warning(f"{self.kind.word}.commit_uncertain", **self.kind.named(identity), error=str(error))
        attempt = NotSent("its intent could not be committed with certainty, so it was not sent")
        try:
            concluded = await conclude(attempt)
        except Exception as failure:
            self._settle_later(identity, failure, partial(conclude, attempt))
            raise self._not_known(identity, failure) from failure
        if concluded is None:
            raise unavailable(StorageUnavailable("the commit failed")) from error
        return concluded

    def _settle_later(self, identity: str, error: Exception, conclude: Callable[[], Awaitable[object]]) -> None:
        """Log that the judgement of an attempt could not be committed, and try again later."""
        self._log_failure(identity, error)
        self._keep(self._settle(conclude))

    async def _settle(self, conclude: Callable[[], Awaitable[object]]) -> None:
        """Try to commit the judgement of an attempt until the store accepts it or posd stops.

        If posd stops first, the next daemon recovers the record.
        """
        while not self._draining:
            await asyncio.sleep(RETRY_STORING_SECONDS)
            with suppress(Exception):  # the first failure was logged
                await conclude()
                return

    def _log_answered(
        self,
        identity: str,
        terminal: str | None,
        phase: Phase | None,
        judgement: object,
        attempt: Attempt,
        names: Names,
    ) -> None:
        """Log the judgement of an attempt. `phase` is None if the intent did not reach the disk."""
        log.info(
            f"{self.kind.word}.answered",
            **self.kind.named(identity),
            terminal=terminal,
            judgement=names[type(judgement)],
            phase=phase,
            reason=getattr(judgement, "reason", None),
            http_status=attempt.status if isinstance(attempt, Replied) else None,
        )

    def _log_failure(self, identity: str, error: Exception) -> None:
        """Log that the judgement of an attempt could not be recorded."""
        if isinstance(error, StorageUnavailable | CommitUncertain):
            log.warning(f"{self.kind.word}.not_recorded", **self.kind.named(identity), error=str(error))
        else:
            error_id = secrets.token_hex(8)
            log.error("posd.internal_error", **self.kind.named(identity), error_id=error_id, exc_info=error)

    def _not_known(self, identity: str, why: object) -> Problem:
        """Return the problem of a call if posd cannot tell whether the id was sent. The till repeats the call.

        Its status is not 503, which would mean that nothing was sent.
        """
        kind, error_id = self.kind, secrets.token_hex(8)
        log.warning(f"{kind.word}.not_readable", **kind.named(identity), error=str(why), error_id=error_id)
        return Problem(
            "internal_error",
            f"posd cannot look up whether this id was started: {why}; repeat the same call with the same id, and "
            "check the disk",
            error_id=error_id,
        )


async def destination(terminal: FleetTerminal, cannot: str) -> tuple[str | None, Problem | None]:
    """Return the present base URL for a request to a terminal, or the Problem that prevents the request.

    `cannot`: words about the refused action.
    """
    base_url = await terminal.choose()
    if (dispute := terminal.conflict) is not None:
        return None, identity_conflict(dispute, cannot)
    if base_url is not None:
        return base_url, None
    return None, Problem(
        "terminal_offline",
        f"{cannot}: no address of terminal {terminal.serial} is known; check that it is switched on and in this "
        "network (posd terminals), or give it a base_url in the configuration",
    )


def identity_conflict(dispute: OpenConflict, cannot: str) -> Problem:
    """Return the problem for a terminal with an identity conflict."""
    return Problem(
        "identity_conflict",
        f"{cannot}: {dispute.detail}",
        claims=[msgspec.to_builtins(item) for item in dispute.claims],
    )


def unavailable(error: object) -> Problem:
    """Return the problem for an intent that could not be stored. Nothing was sent."""
    return Problem(
        "storage_unavailable",
        f"not possible now: {error}; nothing was sent and nothing recorded. Repeat the same call; if this "
        "continues, check the disk",
    )


def unknown_id(missing: MissingRecords | None) -> dict[str, Any]:
    """Return the members of a Problem about an id that is not in the database (`base.problems.UNKNOWN_ID`)."""
    if missing is None:
        return {"never_started": True}
    times = {"records_missing_from": missing.since, "records_missing_until": missing.until}
    return {"never_started": False} | times


def not_here(problem: Problem, missing: MissingRecords | None) -> Problem:
    """Return a Problem `not_found` with the members of `unknown_id`. Return any other Problem unchanged."""
    if problem.code != "not_found":
        return problem
    may_be_lost = "A restore may have lost it: check the slip, the terminal and the bank before you ask for it again"
    detail = f"{problem.detail}. {may_be_lost}" if missing else problem.detail
    return Problem(problem.code, detail, **problem.extra | unknown_id(missing))


@contextmanager
def of_unknown_id(missing: Missing, are_others: Callable[[], bool]) -> Iterator[None]:
    """Add the members of `unknown_id` to the Problem of a call whose id is not in the database.

    `are_others`: returns whether another call of the id is open. Then nothing is added, because that call may start it.
    """
    try:
        yield
    except Problem as problem:
        if problem.code not in NOT_OF_UNKNOWN_ID and not are_others():
            problem.extra |= unknown_id(missing())
        raise


def require_same(identity: str, fields: Sequence[str], *, used_for: str, new_id_for: str) -> None:
    """Raise Problem id_reused if a repeated call differs in these fields from the record of its id."""
    if fields:
        raise Problem(
            "id_reused",
            f"{identity} was already used for another {used_for} (different: {', '.join(fields)}); it stays "
            f"unchanged. Read it with GET first. A new id is only for another {new_id_for}",
            fields=list(fields),
        )
