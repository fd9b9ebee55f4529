"""What each sender may still have kept: terminals of events, tills of what they start; and what the disk has left.

The numbers and the reasons are in `posd.base.limits`. What is checked before a commit is taken from the budget after
it: what was refused costs nothing, and what was under way meanwhile may go over a budget by a little.
"""

import math
from collections.abc import Callable

import structlog

from posd.base import limits
from posd.base.clocks import monotonic
from posd.base.limits import Budgets, Limit, Reached
from posd.base.problems import Problem
from posd.httpd.senders import Sender
from posd.storage.files import FreeSpace

log = structlog.get_logger("posd.limits")


def tell(limit: Limit, **about: int | None) -> None:
    """Log that a limit was reached."""
    log.warning("limit.reached", code=limit.name, detail=f"{limit.value} {limit.unit} of {limit.of}", **about)


class Intake:
    """What may still be kept. `free` is the disk of the database, None where it is not looked at."""

    def __init__(
        self,
        reached: Reached | None = None,
        free: FreeSpace | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.reached = reached or Reached()
        self._free = free
        self._events = Budgets(limits.EVENTS_OF_TERMINAL, clock)
        self._bodies = Budgets(limits.QUARANTINE_OF_TERMINAL, clock)
        self.payments = Starts(self, limits.PAYMENTS_OF_PROCESS, limits.PAYMENTS_OF_USER, clock)
        self.print_jobs = Starts(self, limits.PRINT_JOBS_OF_PROCESS, limits.PRINT_JOBS_OF_USER, clock)

    def limit_of_event(self, terminal: str, size: int) -> Limit | None:
        """Return the limit that keeps an event of so many bytes out, None where it gets in."""
        return self._events.limit if self._events.seconds_until(terminal, size + limits.EVENT_BYTES) else None

    def keep_event(self, terminal: str, size: int) -> None:
        """Note that it was kept."""
        self._events.take(terminal, size + limits.EVENT_BYTES)

    def limit_of_body(self, sender: str, size: int) -> Limit | None:
        """Return the limit that keeps a body out of the quarantine, None where it gets in."""
        if self.short_of(limits.FREE_FOR_EXTRAS):
            return limits.FREE_FOR_EXTRAS
        return self._bodies.limit if self._bodies.seconds_until(sender, size + limits.EVENT_BYTES) else None

    def keep_body(self, sender: str, size: int) -> None:
        """Note that it was kept."""
        self._bodies.take(sender, size + limits.EVENT_BYTES)

    @property
    def disk(self) -> str:
        """Where the disk of the database is mounted; "" where none is looked at."""
        return str(self._free.mounted_at) if self._free is not None else ""

    def short_of(self, limit: Limit) -> bool:
        """Whether less is free on the disk than that limit asks for."""
        found = self._free.look(limit.value) if self._free is not None else None
        return found is not None and found[0] < limits.floor(limit, found[1])

    def require_free(self, limit: Limit, cannot: str) -> None:
        """Raise Problem storage_unavailable where less is free than that limit asks for."""
        if self.short_of(limit):
            self.reached.note(limit)
            raise Problem(
                "storage_unavailable",
                f"{cannot}: the disk of the database is nearly full, and what is left is kept for payments that are "
                "open; nothing was sent and nothing recorded. Free the disk, then repeat the same call",
            )


def sender(terminal: str, *, updates_terminal: bool) -> str:
    """Return whose budget takes a callback. What is over has one of its own: it uses up none of what is open."""
    return terminal if updates_terminal else f"{terminal} (ended)"


class Starts:
    """What processes and users may still start of one kind."""

    def __init__(self, intake: Intake, of_process: Limit, of_user: Limit, clock: Callable[[], float]) -> None:
        self._intake = intake
        self._process = Budgets(of_process, clock)
        self._user = Budgets(of_user, clock)

    def require(self, sender: Sender | None, size: int, cannot: str) -> None:
        """Raise Problem limit_reached where a sender has started too much. `size` is that of the body, in bytes."""
        for budgets, key in self._of(sender):
            seconds = budgets.seconds_until(key, size + limits.START_BYTES)
            if seconds and sender is not None:
                self._intake.reached.note(budgets.limit, pid=sender.pid, uid=sender.uid)
                raise limit_reached(budgets.limit, f"{cannot}: {_whose(sender)} has started too much today", seconds)

    def take(self, sender: Sender | None, size: int) -> None:
        """Note that it was started."""
        for budgets, key in self._of(sender):
            budgets.take(key, size + limits.START_BYTES)

    def _of(self, sender: Sender | None) -> tuple[tuple[Budgets, str], ...]:
        if sender is None:
            return ()
        user = (self._user, str(sender.uid))
        return ((self._process, f"{sender.pid}:{sender.uid}"), user) if sender.pid else (user,)


def _whose(sender: Sender) -> str:
    return f"process {sender.pid} of user {sender.uid}" if sender.pid else f"user {sender.uid}"


def limit_reached(limit: Limit, cannot: str, seconds: float) -> Problem:
    """Return the answer past a limit; nothing was sent and nothing recorded."""
    return Problem(
        "limit_reached",
        f"{cannot} ({limit.name}: at most {limit.value} {limit.unit} of {limit.of}). Nothing was sent and nothing "
        "recorded. Look at what this program does without end; the same call is taken again after the seconds in "
        "retry_after_seconds",
        limit=limit.name,
        retry_after_seconds=max(1, math.ceil(seconds)),
    )
