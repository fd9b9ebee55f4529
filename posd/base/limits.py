"""The limits of what one sender can make posd hold, in one table: how much, of whom, the answer past it, and why.

A sender is authentic: a terminal with a valid token, or a program on this machine that may open a socket. What
strangers on the LAN can do is bounded in `posd.httpd.admission`. Past a limit the answer is one that is retried (429,
503), and the others go on. docs/hostile.md shows this table; `posd_limit_reached_total` counts what was refused.

What is kept for a day is counted as a budget: it is full at the start of the process, a sender takes from it, and it
fills up again within a day. So a sender that has used it up gets in again at that pace, and not only the next day.
"""

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

KIB = 1024
MIB = 1024 * KIB
#: In which a budget that was used up is full again, in seconds.
DAY_SECONDS = 86_400.0


class Limit(NamedTuple):
    """A limit: its name in metrics, logs and answers, how much of what, of whom, the answer past it, and the reason."""

    name: str
    value: int
    unit: str
    of: str
    answer: str
    reason: str


# What a terminal sends.

EVENTS_OF_TRANSACTION = Limit(
    "events_of_transaction",
    2000,
    "events",
    "one payment",
    "429, attention `event_limit`, one search",
    "A payment has four events, some have dozens. A replay of 1,000 gets in.",
)
FINALS_OF_TRANSACTION = Limit(
    "finals_of_transaction",
    100,
    "events",
    "one payment",
    "429",
    "Final events have this room of their own behind the others. The first event of each of the seven states gets in "
    "even past it, so an approval is never refused for what came before it.",
)
EVENTS_OF_TERMINAL = Limit(
    "events_of_terminal",
    256 * MIB,
    "bytes a day",
    "one terminal",
    "429",
    "Each event counts its body and 1 KiB for its rows. A thousand payments a day with the largest metadata have a "
    "third of it. The first event of each state of a payment gets in past it. Late events have the same once more.",
)
QUARANTINE_OF_TERMINAL = Limit(
    "quarantine_of_terminal",
    64 * MIB,
    "bytes a day",
    "one terminal",
    "429",
    "Of a fault that comes with each event, a person needs a few bodies. The largest body fits sixty times.",
)
QUARANTINE_OF_SUBJECT = Limit(
    "quarantine_of_subject",
    100,
    "bodies",
    "one payment or print job",
    "400 or 403 as before it, and the body is not kept",
    "A terminal that repeats one fault for ever must not hide the others.",
)
CALLBACKS_OF_PRINT_JOB = Limit(
    "callbacks_of_print_job",
    100,
    "callbacks",
    "one print job",
    "200, and it is not kept unless it ends the job",
    "A print job has two or three. Print callbacks are sent once: no answer brings them again.",
)

# What a program on this machine asks for.

CONNECTIONS_OF_PROCESS = Limit(
    "connections_of_process",
    400,
    "connections",
    "one process, on each socket",
    "429 `limit_reached`, then the connection is closed",
    "A till has one for each payment that it waits for, and one or two for streams: some dozens.",
)
CONNECTIONS_OF_USER = Limit(
    "connections_of_user",
    2500,
    "connections",
    "all processes of one user, on each socket",
    "429 `limit_reached`, then the connection is closed",
    "All lanes of a large shop may run as one user.",
)
CONNECTIONS_OF_TILLS = Limit(
    "connections_of_tills",
    3000,
    "connections",
    "the till socket",
    "429 `limit_reached`, then the connection is closed",
    "More than one user may take, so that one user does not shut the others out.",
)
CONNECTIONS_OF_OPERATORS = Limit(
    "connections_of_operators",
    500,
    "connections",
    "the admin socket",
    "429 `limit_reached`, then the connection is closed",
    "Of its own: posd status and posd doctor are answered while tills have used up theirs.",
)
CONNECTIONS_OF_FEED = Limit(
    "connections_of_feed",
    16,
    "connections",
    "the feed socket",
    "429 `limit_reached`, then the connection is closed",
    "A relay has one or two, and a second relay may take over from it.",
)
STREAMS_OF_PROCESS = Limit(
    "streams_of_process",
    128,
    "event streams",
    "one process",
    "429 `limit_reached`",
    "Each stream reads the database at each change, so many of them slow down the payments of all.",
)
PAYMENTS_OF_PROCESS = Limit(
    "payments_of_process",
    256 * MIB,
    "bytes a day",
    "one process",
    "429 `limit_reached`, nothing is sent",
    "Each start counts its body and 4 KiB for its rows: 60,000 payments. A till that starts them in a loop must not "
    "fill the disk. Refused starts leave no row and count nothing.",
)
PAYMENTS_OF_USER = Limit(
    "payments_of_user",
    1024 * MIB,
    "bytes a day",
    "all processes of one user",
    "429 `limit_reached`, nothing is sent",
    "A program that is started again for each payment has a new process each time.",
)
PRINT_JOBS_OF_PROCESS = Limit(
    "print_jobs_of_process",
    256 * MIB,
    "bytes a day",
    "one process",
    "429 `limit_reached`, nothing is sent",
    "The same for print jobs, apart: printing without end stops no payment. 1,000 documents of the largest size.",
)
PRINT_JOBS_OF_USER = Limit(
    "print_jobs_of_user",
    1024 * MIB,
    "bytes a day",
    "all processes of one user",
    "429 `limit_reached`, nothing is sent",
    "As for payments.",
)

# What the machine has.

FREE_FOR_EXTRAS = Limit(
    "free_for_extras",
    64 * MIB,
    "bytes free on the disk, or a 100th of a small one",
    "posd",
    "503 `storage_unavailable` to print jobs; 503 to callbacks for the quarantine",
    "What is left is for payments and their events.",
)
FREE_FOR_PAYMENTS = Limit(
    "free_for_payments",
    16 * MIB,
    "bytes free on the disk, or a 200th of a small one",
    "posd",
    "503 `storage_unavailable`, nothing is sent",
    "What is left is for the events of payments that are open: their approvals get in.",
)

ALL = (
    EVENTS_OF_TRANSACTION,
    FINALS_OF_TRANSACTION,
    EVENTS_OF_TERMINAL,
    QUARANTINE_OF_TERMINAL,
    QUARANTINE_OF_SUBJECT,
    CALLBACKS_OF_PRINT_JOB,
    CONNECTIONS_OF_PROCESS,
    CONNECTIONS_OF_USER,
    CONNECTIONS_OF_TILLS,
    CONNECTIONS_OF_OPERATORS,
    CONNECTIONS_OF_FEED,
    STREAMS_OF_PROCESS,
    PAYMENTS_OF_PROCESS,
    PAYMENTS_OF_USER,
    PRINT_JOBS_OF_PROCESS,
    PRINT_JOBS_OF_USER,
    FREE_FOR_EXTRAS,
    FREE_FOR_PAYMENTS,
)

#: The parts of a small disk that count in place of the bytes of these two.
_PARTS = {FREE_FOR_EXTRAS.name: 100, FREE_FOR_PAYMENTS.name: 200}


def floor(limit: Limit, size: int) -> int:
    """Return how many bytes have to be free on a disk of that size."""
    return min(limit.value, size // _PARTS[limit.name])


#: What the rows of an event take beside its body, and those of a start (payment or print job), in bytes.
EVENT_BYTES = 1 * KIB
START_BYTES = 4 * KIB


class Places(NamedTuple):
    """Connections that there may be: to the till socket, of a user, of a process, to the admin and the feed socket."""

    tills: int
    user: int
    process: int
    operators: int
    feed: int


#: Descriptors that connections to local sockets never take: of the LAN listener, and for the database, the terminals,
#: mDNS, metrics and connections that are being turned away.
LAN_DESCRIPTORS = 512
OWN_DESCRIPTORS = 256
#: With these, nothing is to be cut down; posd raises its limit to it where it may (systemd/posd.service allows more).
DESCRIPTORS = (
    LAN_DESCRIPTORS
    + OWN_DESCRIPTORS
    + CONNECTIONS_OF_TILLS.value
    + CONNECTIONS_OF_OPERATORS.value
    + CONNECTIONS_OF_FEED.value
)


def places(descriptors: int) -> Places:
    """Return how many connections each may have where the process may open so many descriptors: the sum always fits.

    A user keeps no more than five sixths of the till socket and a process no more than a quarter: the others get in.
    """
    left = max(8, descriptors - LAN_DESCRIPTORS - OWN_DESCRIPTORS)
    operators = min(CONNECTIONS_OF_OPERATORS.value, left // 4)
    feed = min(CONNECTIONS_OF_FEED.value, left // 8)
    tills = min(CONNECTIONS_OF_TILLS.value, left - operators - feed)
    return Places(
        tills,
        min(CONNECTIONS_OF_USER.value, tills * 5 // 6),
        min(CONNECTIONS_OF_PROCESS.value, max(1, tills // 4)),
        operators,
        feed,
    )


#: How often it is told that a user has reached a limit, in seconds: the metric counts each time.
TELL_SECONDS = 3600.0
#: Users and limits of which it is remembered that it was told.
MAX_TOLD = 1024


class Reached:
    """Counts how often each limit was reached; `tell` hears of it once an hour. `clock`: monotonic seconds."""

    def __init__(
        self,
        tell: Callable[..., None] = lambda *_about, **_more: None,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.counts = Counter({limit.name: 0 for limit in ALL})
        self._tell = tell
        self._clock = clock
        self._told: dict[tuple[str, int | None], float] = {}

    def count(self, limit: Limit) -> None:
        """Count it, where something else tells of it."""
        self.counts[limit.name] += 1

    def note(self, limit: Limit, **about: int | None) -> None:
        """Count it and tell of it; `about` are the fields of a log line that say who it was: `pid` and `uid`.

        It is told at once, and again after an hour. A flood comes here thousands of times a second.
        """
        self.count(limit)
        key, now = (limit.name, about.get("uid")), self._clock()
        if key in self._told and now - self._told[key] < TELL_SECONDS:
            return
        if len(self._told) >= MAX_TOLD:
            self._told.clear()
        self._told[key] = now
        self._tell(limit, **about)


#: Senders of which a budget is remembered.
MAX_SENDERS = 4096


class Budgets:
    """What each sender may still have kept of a limit that is for a day. `clock`: monotonic seconds."""

    def __init__(self, limit: Limit, clock: Callable[[], float]) -> None:
        self.limit = limit
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}  # what is left, and when that was, the latest sender last

    def seconds_until(self, sender: str, amount: int) -> float:
        """Return in how many seconds there is room for so much, 0 where there is."""
        missing = min(amount, self.limit.value) - self._now_left(sender, self._clock())
        return max(0.0, missing / self.limit.value * DAY_SECONDS)

    def take(self, sender: str, amount: int) -> None:
        """Take from a budget; it may become less than nothing, by what was under way at the time."""
        now = self._clock()
        left = self._now_left(sender, now) - amount
        self._left.pop(sender, None)
        self._left[sender] = (left, now)
        if len(self._left) > MAX_SENDERS:
            del self._left[next(iter(self._left))]  # the one that has kept nothing for the longest time

    def _now_left(self, sender: str, now: float) -> float:
        left, at = self._left.get(sender, (float(self.limit.value), now))
        return min(self.limit.value, left + (now - at) / DAY_SECONDS * self.limit.value)
