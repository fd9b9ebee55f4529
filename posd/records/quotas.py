"""Quotas: how much each sender may store (events of terminals, starts of tills), and the free space of the disk.

`posd.base.limits` has the limits and the reasons. A quota is the part of a limit that a sender has left.
It is checked before a commit, and reduced after the commit. So a refused call costs nothing, and concurrent calls may
exceed a limit a little.
"""

import math
from collections import Counter
from collections.abc import Callable
from functools import partial

import structlog

from posd.base import limits
from posd.base.clocks import monotonic
from posd.base.limits import ALL, Limit
from posd.base.problems import Problem
from posd.httpd.admission import SocketPeer
from posd.httpd.allowance import Allowance

#: Minimum time between two reports that a user has reached a limit, in seconds. The metric counts every refusal.
TELL_SECONDS = 3600.0
#: Maximum number of stored times of reports. There is one time for each pair of limit and user.
MAX_TOLD = 1024

log = structlog.get_logger("posd.limits")


def tell(limit: Limit, **about: int | None) -> None:
    """Log that a limit was reached."""
    log.warning("limit.reached", code=limit.name, detail=f"{limit.value} {limit.unit} of {limit.of}", **about)


class LimitCounters:
    """Counter of reached limits. It calls `tell` at most once an hour for a limit and a user.

    `clock`: returns monotonic seconds.
    """

    def __init__(self, tell: Callable[..., None] = tell, clock: Callable[[], float] = monotonic) -> None:
        self.counts = Counter({limit.name: 0 for limit in ALL})
        self._tell = tell
        self._lines = Allowance(1, 1 / TELL_SECONDS, clock, MAX_TOLD)  # one report an hour for each (limit, user)

    def count(self, limit: Limit) -> None:
        """Count a refusal without a report, because the caller reports it."""
        self.counts[limit.name] += 1

    def note(self, limit: Limit, **about: int | None) -> None:
        """Count a refusal, and report it if none was reported within an hour.

        `about`: fields of the log line with the sender, `pid` and `uid`. In a flood of calls this function is called
        thousands of times a second.
        """
        self.count(limit)
        if self._lines.try_take((limit.name, about.get("uid"))):
            self._tell(limit, **about)


class Quotas:
    """Quotas of all senders. `space`: returns free bytes and size of the database's disk, or None to skip the check."""

    def __init__(
        self, space: Callable[[], tuple[int, int] | None] = lambda: None, clock: Callable[[], float] = monotonic
    ) -> None:
        self.reached = LimitCounters()
        self._space = space
        self._events = of_a_day(limits.EVENTS_OF_TERMINAL, clock)
        self._bodies = of_a_day(limits.QUARANTINE_OF_TERMINAL, clock)
        #: Quota of each payment: calls to its terminal that a till or a device on the LAN causes.
        self.calls = Allowance(limits.CALLS_OF_TRANSACTION.value, limits.CALLS_OF_TRANSACTION.value / 60, clock)
        started = partial(self._of_a_day, clock=clock)
        self.payments = started(limits.PAYMENTS_OF_PROCESS, limits.PAYMENTS_OF_USER)
        self.print_jobs = started(limits.PRINT_JOBS_OF_PROCESS, limits.PRINT_JOBS_OF_USER)
        self.in_flight = SenderQuotas(
            self.reached,
            (limits.IN_FLIGHT_OF_PROCESS, Allowance(limits.IN_FLIGHT_OF_PROCESS.value)),
            (limits.IN_FLIGHT_OF_USER, Allowance(limits.IN_FLIGHT_OF_USER.value)),
            "has too much in flight: incomplete bodies, unread answers, or too many long pages at once",
        )

    def _of_a_day(self, process: Limit, user: Limit, clock: Callable[[], float]) -> "SenderQuotas":
        of_process, of_user = (process, of_a_day(process, clock)), (user, of_a_day(user, clock))
        return SenderQuotas(self.reached, of_process, of_user, "has started too much today")

    def limit_of_event(self, terminal: str, size: int) -> Limit | None:
        """Return the limit that an event of that size exceeds, or None."""
        return limits.EVENTS_OF_TERMINAL if self._events.seconds_until(terminal, size + limits.EVENT_BYTES) else None

    def keep_event(self, terminal: str, size: int) -> None:
        """Reduce the quota of a terminal by a stored event."""
        self._events.take(terminal, size + limits.EVENT_BYTES)

    def require_calls(self, identity: str, cannot: str) -> None:
        """Count one call to a terminal about a payment. Raise Problem limit_reached if there were too many."""
        seconds = self.calls.seconds_until(identity)
        if seconds:
            self.reached.note(limits.CALLS_OF_TRANSACTION)
            raise limit_reached(limits.CALLS_OF_TRANSACTION, f"{cannot}: the terminal was just asked", seconds)
        self.calls.take(identity)

    def limit_of_body(self, sender: str, size: int) -> Limit | None:
        """Return the limit that a body for the quarantine exceeds, or None."""
        if self.short_of(limits.FREE_FOR_EXTRAS):
            return limits.FREE_FOR_EXTRAS
        return limits.QUARANTINE_OF_TERMINAL if self._bodies.seconds_until(sender, size + limits.EVENT_BYTES) else None

    def keep_body(self, sender: str, size: int) -> None:
        """Reduce the quota of a sender by a body stored in the quarantine."""
        self._bodies.take(sender, size + limits.EVENT_BYTES)

    def short_of(self, limit: Limit) -> bool:
        """Whether the disk has less free space than a limit requires."""
        found = self._space()
        return found is not None and found[0] < limits.floor(limit, found[1])

    def require_free(self, limit: Limit, cannot: str) -> None:
        """Raise Problem storage_unavailable if the disk has less free space than a limit requires."""
        if self.short_of(limit):
            self.reached.note(limit)
            raise Problem(
                "storage_unavailable",
                f"{cannot}: the disk of the database is nearly full, and the rest is kept for open payments; "
                "nothing was sent and nothing recorded. Free the disk, then repeat the same call",
            )


def sender(terminal: str, *, updates_terminal: bool) -> str:
    """Return the name of the sender whose quota a callback uses. Callbacks of ended records have a separate quota."""
    return terminal if updates_terminal else f"{terminal} (ended)"


def of_a_day(limit: Limit, clock: Callable[[], float]) -> Allowance:
    """Return the quotas for a daily limit. A quota is full at first, and refills continuously within a day."""
    return Allowance(limit.value, limit.value / limits.DAY_SECONDS, clock)


class SenderQuotas:
    """Quotas of processes and of users for one kind of data. `has`: words about a sender that has reached its limit."""

    def __init__(
        self, reached: LimitCounters, of_process: tuple[Limit, Allowance], of_user: tuple[Limit, Allowance], has: str
    ) -> None:
        self._reached = reached
        self._process = of_process
        self._user = of_user
        self._has = has

    def require(self, sender: SocketPeer | None, size: int, cannot: str, *, process_alone: bool = False) -> None:
        """Raise Problem limit_reached if a quota of the sender has less than `size` bytes.

        `process_alone`: use only the quota of the process, not the quota of the user.
        """
        for (limit, allowance), key in self._of(sender, process_alone):
            seconds = allowance.seconds_until(key, size)
            if seconds and sender is not None:
                self._reached.note(limit, pid=sender.pid, uid=sender.uid)
                # An infinite time means that only a release of used resources refills the quota.
                seconds = 1.0 if math.isinf(seconds) else seconds
                raise limit_reached(limit, f"{cannot}: {_whose(sender)} {self._has}", seconds)

    def take(self, sender: SocketPeer | None, size: int, *, process_alone: bool = False) -> None:
        """Reduce the quotas of a sender by `size` bytes that it uses."""
        for (_, allowance), key in self._of(sender, process_alone):
            allowance.take(key, size)

    def give_back(self, sender: SocketPeer | None, size: int, *, process_alone: bool = False) -> None:
        """Refill the quotas of a sender by `size` bytes that it has released."""
        for (_, allowance), key in self._of(sender, process_alone):
            allowance.give_back(key, size)

    def _of(self, sender: SocketPeer | None, process_alone: bool) -> tuple[tuple[tuple[Limit, Allowance], str], ...]:
        """Return the quotas of a sender with their keys: of the process, if the kernel reports it, and of the user."""
        if sender is None:
            return ()
        user = (self._user, str(sender.uid))
        process = (self._process, f"{sender.pid}:{sender.uid}")
        return (process, user)[: 1 if process_alone else 2] if sender.pid else (user,)


def _whose(sender: SocketPeer) -> str:
    return f"process {sender.pid} of user {sender.uid}" if sender.pid else f"user {sender.uid}"


def limit_reached(limit: Limit, cannot: str, seconds: float) -> Problem:
    """Return the problem for a call above the limit. The call has sent and recorded nothing."""
    return Problem(
        "limit_reached",
        f"{cannot} ({limit.name}: at most {limit.value} {limit.unit} of {limit.of}). Nothing was sent and nothing "
        "recorded. Find out what this program repeats without end; the same call is accepted again after the "
        "seconds in retry_after_seconds",
        limit=limit.name,
        retry_after_seconds=max(1, math.ceil(seconds)),
    )
