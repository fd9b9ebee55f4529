"""What starting a payment and starting a print job share.

Calls of tills run to their end, whether the till waits or not; of one id one runs after the other. And the answers
where nothing can be started now.
"""

import asyncio
import secrets
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Generic, TypeVar

import msgspec
import structlog

from posd.base.limits import START_BYTES, Limit
from posd.base.problems import NOT_OF_UNKNOWN_ID, Problem
from posd.httpd.admission import SocketPeer
from posd.records.model import Phase
from posd.records.quotas import SenderQuotas
from posd.records.request import MalformedJson, RequestFault, malformed
from posd.records.service import Missing, ServiceParts
from posd.records.table import R, RecordKind
from posd.storage.errors import CommitUncertain, StorageUnavailable
from posd.storage.marks import MissingRecords
from posd.terminals.attempt import Attempt, Replied
from posd.terminals.identity import OpenConflict, Trusted
from posd.terminals.terminal import FleetTerminal

#: While the disk is full, how often the judgement of a start is tried again, in seconds.
RETRY_STORING_SECONDS = 1.0

T = TypeVar("T")
#: Words for the log, by kind of judgement.
Names = Mapping[type[Any], str]

log = structlog.get_logger("posd.starts")


class RunningCalls:
    """The calls under way of one use case."""

    def __init__(self) -> None:
        self._busy: dict[str, asyncio.Future[None]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    def keep(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run to the end, whether the till waits for it or not."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved: the till that waited for it may have hung up

    @asynccontextmanager
    async def per_id_lock(self, identity: str) -> AsyncIterator[None]:
        """Allow one call of an id at a time."""
        while (busy := self._busy.get(identity)) is not None:
            await asyncio.wait({busy})
        mine = self._busy[identity] = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            del self._busy[identity]
            mine.set_result(None)

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until nothing runs any more, or so long."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)


Q = TypeVar("Q", bound=msgspec.Struct)
D = TypeVar("D")
Faults = tuple[RequestFault, ...]


class StartRules(msgspec.Struct, Generic[R, Q, D], frozen=True, kw_only=True):
    """What differs between starting a payment and a print job.

    `read` reads a body, `request` stands for one that cannot be read. `draft` checks a request, and `run` records what
    it drafted and lets it be sent: it returns what is recorded, and whether this call started it. Each raises Problem.
    `cannot` says what cannot be done, `nothing` what was not done. `used_for`, `new_id_for`: see `require_same`.
    """

    kind: RecordKind[R]
    request: Q
    read: Callable[[bytes], tuple[Q, Faults]]
    find: Callable[[sqlite3.Connection, str], R | None]
    draft: Callable[[str, Q, Faults], Awaitable[D]]
    run: Callable[[D], Awaitable[tuple[R, bool]]]
    differing: Callable[[R, Q, Faults], list[str]]
    free: Limit
    quota: SenderQuotas
    cannot: str
    nothing: str
    used_for: str
    new_id_for: str


class Starts(Generic[R, Q, D]):
    """The starts of one kind of record: of one id one runs after the other, and a known id is answered as recorded."""

    def __init__(self, rules: StartRules[R, Q, D], parts: ServiceParts) -> None:
        self.running = RunningCalls()
        self.draining = False
        self._rules = rules
        self._store = parts.store
        self._quotas = parts.quotas
        self._missing = parts.missing

    async def start(
        self, identity: str, body: bytes, refusal: Problem | None = None, sender: SocketPeer | None = None
    ) -> tuple[R, bool]:
        """Start a record, or answer for one that is known: the record, and whether it was started by this call.

        `refusal` is what is wrong with the call as such; an id that is known is answered before it counts. `sender` is
        the process that asks, None if it is not counted. The call runs to its end, also when the till hangs up.
        Raise Problem: with a 4xx or 503 nothing was sent, and nothing of the call is recorded.
        """
        return await asyncio.shield(self.running.keep(self._start(identity, body, refusal, sender)))

    async def _start(
        self, identity: str, body: bytes, refusal: Problem | None, sender: SocketPeer | None
    ) -> tuple[R, bool]:
        rules, size = self._rules, len(body) + START_BYTES
        request = rules.request
        faults: Faults = (RequestFault("", "is not a request"),)
        try:
            request, faults = rules.read(body)
        except MalformedJson as error:
            refusal = refusal or malformed(error, rules.nothing)
        async with self.running.per_id_lock(identity.lower()):
            known = await self._look_up(identity)
            if known is None:
                with of_unknown_id(self._missing):
                    if refusal is not None:
                        raise refusal
                    self.refuse_draining()  # before anything that takes time
                    draft = await rules.draft(identity, request, faults)
                    self._quotas.require_free(rules.free, rules.cannot)
                    rules.quota.require(sender, size, rules.cannot)
                    known, started = await rules.run(draft)
                if started:
                    rules.quota.take(sender, size)
                    return known, True
        differing = rules.differing(known, request, faults)
        require_same(identity, differing, used_for=rules.used_for, new_id_for=rules.new_id_for)
        return known, False

    def refuse_draining(self) -> None:
        """Raise Problem while posd stops."""
        if self.draining:
            raise Problem("draining", "posd is stopping; repeat the same call in a moment")

    async def _look_up(self, identity: str) -> R | None:
        """Return what is recorded under the id, None if it is free. Raise Problem."""

        def look(db: sqlite3.Connection) -> R | None:
            found = self._rules.find(db, identity)
            if found is None:
                self._rules.kind.pruned.refuse(db, identity)
            return found

        return await self.look(identity, look)

    async def look(self, identity: str, function: Callable[[sqlite3.Connection], T]) -> T:
        """Return what is found for a call of that id. Raise Problem."""
        try:
            return await self._store.look_up(function)
        except StorageUnavailable as error:
            raise self.not_known(identity, error) from error

    async def conclude(self, identity: str, conclude: Callable[[], Awaitable[T]]) -> T:
        """Commit what an attempt proves. Where the store does not take it, try again later, and raise why."""
        try:
            return await conclude()
        except Exception as error:
            self.log_failure(identity, error)
            self.running.keep(self._conclude_later(conclude))
            raise

    async def _conclude_later(self, conclude: Callable[[], Awaitable[object]]) -> None:
        """Try to commit what an attempt proves until the store takes it, or posd stops.

        The next start of posd then takes it up.
        """
        while not self.draining:
            await asyncio.sleep(RETRY_STORING_SECONDS)
            with suppress(Exception):  # it was logged the first time
                await conclude()
                return

    def log_answered(
        self,
        identity: str,
        terminal: str | None,
        phase: Phase | None,
        judgement: object,
        attempt: Attempt,
        names: Names,
    ) -> None:
        """Log what the attempt to send it proves; `phase` is None if the intent had not come to disk."""
        kind = self._rules.kind
        log.info(
            f"{kind.word}.answered",
            **kind.named(identity),
            terminal=terminal,
            judgement=names[type(judgement)],
            phase=phase,
            reason=getattr(judgement, "reason", None),
            http_status=attempt.status if isinstance(attempt, Replied) else None,
        )

    def log_uncertain(self, identity: str, error: CommitUncertain) -> None:
        """Log that posd cannot tell whether an intent is on disk."""
        kind = self._rules.kind
        log.warning(f"{kind.word}.commit_uncertain", **kind.named(identity), error=str(error))

    def log_failure(self, identity: str, error: Exception) -> None:
        """Log that what an attempt proves could not be recorded."""
        kind = self._rules.kind
        if isinstance(error, StorageUnavailable | CommitUncertain):
            log.warning(f"{kind.word}.not_recorded", **kind.named(identity), error=str(error))
        else:
            error_id = secrets.token_hex(8)
            log.error("posd.internal_error", **kind.named(identity), error_id=error_id, exc_info=error)

    def not_known(self, identity: str, why: object) -> Problem:
        """Return the answer where posd cannot tell now whether something was sent under the id: repeat the call.

        No 503: it would say that nothing was sent.
        """
        kind, error_id = self._rules.kind, secrets.token_hex(8)
        log.warning(f"{kind.word}.not_readable", **kind.named(identity), error=str(why), error_id=error_id)
        return Problem(
            "internal_error",
            f"it cannot be looked up whether this id was started: {why}; repeat the same call with the same id, and "
            "check the disk",
            error_id=error_id,
        )


class Destination(msgspec.Struct, frozen=True):
    """Where a request would go: the base URL, or the Problem why it cannot be sent anywhere.

    `trusted` is what the request makes of where the terminal is trusted, None if nothing changes.
    """

    base_url: str | None
    trusted: Trusted | None = None
    problem: Problem | None = None


async def destination(terminal: FleetTerminal, cannot: str) -> Destination:
    """Return where a request to a terminal goes now; `cannot` says what cannot be done."""
    base_url = await terminal.choose()
    if (dispute := terminal.conflict) is not None:
        return Destination(None, problem=identity_conflict(dispute, cannot))
    if base_url is not None:
        return Destination(base_url, terminal.to_trust(base_url))
    return Destination(
        None,
        problem=Problem(
            "terminal_offline",
            f"{cannot}: no address of terminal {terminal.serial} is known; check that it is switched on and in this "
            "network (posd terminals), or give it a base_url in the configuration",
        ),
    )


def identity_conflict(dispute: OpenConflict, cannot: str) -> Problem:
    """Return the answer while devices contradict each other about who is the terminal."""
    return Problem(
        "identity_conflict",
        f"{cannot}: {dispute.detail}",
        claims=[msgspec.to_builtins(item) for item in dispute.claims],
    )


def unavailable(error: object) -> Problem:
    """Return the answer where the intent is not on disk for certain: nothing was sent."""
    return Problem(
        "storage_unavailable",
        f"cannot do it now: {error}; nothing was sent and nothing recorded. Repeat the same call; "
        "if it stays so, check the disk",
    )


def unknown_id(missing: MissingRecords | None) -> dict[str, Any]:
    """Return what a problem says of an id that was looked up and is not known (`base.problems.UNKNOWN_ID`)."""
    if missing is None:
        return {"never_started": True}
    times = {"records_missing_from": missing.since, "records_missing_until": missing.until}
    return {"never_started": False} | times


def not_here(problem: Problem, missing: MissingRecords | None) -> Problem:
    """Return the problem of a call on an id that is not here, with what is known of such ids."""
    if problem.code != "not_found":
        return problem
    may_be_lost = "A restore may have lost it: look at the slip, the terminal and the bank before it is asked for again"
    detail = f"{problem.detail}. {may_be_lost}" if missing else problem.detail
    return Problem(problem.code, detail, **problem.extra | unknown_id(missing))


@contextmanager
def of_unknown_id(missing: Missing) -> Iterator[None]:
    """Add what `unknown_id` says to each Problem of a call whose id is not known."""
    try:
        yield
    except Problem as problem:
        if problem.code not in NOT_OF_UNKNOWN_ID:
            problem.extra |= unknown_id(missing())
        raise


def require_same(identity: str, fields: Sequence[str], *, used_for: str, new_id_for: str) -> None:
    """Raise Problem id_reused where a repeated call differs in these fields from what was recorded under its id."""
    if fields:
        raise Problem(
            "id_reused",
            f"{identity} was already used for another {used_for} (different: {', '.join(fields)}); it stands as it is. "
            f"Ask for it by GET before anything else: a new id is for another {new_id_for} alone",
            fields=list(fields),
        )
