"""What starting a payment and starting a print job share.

Calls of tills run to their end, whether the till waits or not; of one id one runs after the other. And the answers
where nothing can be started now.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

import msgspec

from posd.base.problems import NOT_OF_UNKNOWN_ID, Problem
from posd.storage.marks import MissingRecords
from posd.terminals.fleet import Fleet
from posd.terminals.identity import Dispute, Trusted

#: While the disk is full, how often the judgement of a start is tried again, in seconds.
RETRY_STORING_SECONDS = 1.0

T = TypeVar("T")


class Running:
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
            task.exception()  # seen: the till that would have heard of it may have hung up

    @asynccontextmanager
    async def alone(self, identity: str) -> AsyncIterator[None]:
        """Let one call of an id through at a time."""
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


class Destination(msgspec.Struct, frozen=True):
    """Where a request would go: the base URL, or the Problem why it cannot be sent anywhere.

    `trusted` is what the request makes of where the terminal is trusted, None where nothing changes.
    """

    base_url: str | None
    trusted: Trusted | None = None
    problem: Problem | None = None


async def destination(fleet: Fleet, serial: str, cannot: str) -> Destination:
    """Return where a request to a terminal goes now; `cannot` says what cannot be done."""
    chosen = await fleet.addresses.choose(serial)
    if (dispute := fleet.addresses.conflict(serial)) is not None:
        return Destination(None, problem=identity_conflict(dispute, cannot))
    if chosen is not None:
        return Destination(chosen[0], fleet.addresses.to_trust(serial, chosen[0]))
    return Destination(
        None,
        problem=Problem(
            "terminal_offline",
            f"{cannot}: no address of terminal {serial} is known; check that it is switched on and in this network "
            "(posd terminals), or give it a base_url in the configuration",
        ),
    )


def identity_conflict(dispute: Dispute, cannot: str) -> Problem:
    """Return the answer while devices contradict each other about who is the terminal."""
    return Problem(
        "identity_conflict",
        f"{cannot}: {dispute.detail}",
        claims=[msgspec.to_builtins(item) for item in dispute.claims],
    )


def draining() -> Problem:
    """Return the answer while posd stops."""
    return Problem("draining", "posd is stopping; repeat the same call in a moment")


def unavailable(error: object) -> Problem:
    """Return the answer where the intent is not on disk for certain: nothing was sent."""
    return Problem(
        "storage_unavailable",
        f"cannot do it now: {error}; nothing was sent and nothing recorded. Repeat the same call; "
        "if it stays so, check the disk",
    )


def not_known(why: object) -> Problem:
    """Return the answer where posd cannot tell now whether something was sent under the id: repeat the call.

    No 503: it would say that nothing was sent.
    """
    return Problem(
        "internal_error",
        f"it cannot be looked up whether this id was started: {why}; repeat the same call with the same id, and "
        "check the disk",
        error_id=secrets.token_hex(8),
    )


#: Returns the time of which records may be missing, None where none are.
Missing = Callable[[], MissingRecords | None]


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
