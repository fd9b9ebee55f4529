"""Limits on the data of one sender, in one table: amount, owner, response beyond it, and reason.

A sender is authentic: a terminal with a valid token, or a program on this machine that may open a socket.
`posd.httpd.admission` limits unknown senders on the LAN. The response beyond a limit can be retried (429, 503), and
other senders are not affected. `posd_limit_reached_total` counts refusals. docs/reference/resource-limits.md has this
table.

A limit for a day is a budget. It is full at the start of the process and refills continuously within a day. So a sender
with a used budget is admitted again at that rate, not only the next day.
"""

from typing import NamedTuple

KIB = 1024
MIB = 1024 * KIB
#: Seconds in which an empty budget refills.
DAY_SECONDS = 86_400.0
#: Longest document to print, in bytes. A receipt is a few KiB, one with a logo some 100 KiB. With the other fields it
#: has to fit a body of the local API, which is at most 256 KiB.
MAX_DOCUMENT_BYTES = 240 * KIB


class Limit(NamedTuple):
    """A limit: its name in metrics, logs and responses, its value and unit, its owner, the response beyond it, and the
    reason.
    """

    name: str
    value: int
    unit: str
    of: str
    answer: str
    reason: str


# Data of a terminal.

EVENTS_OF_TRANSACTION = Limit(
    "events_of_transaction",
    2000,
    "events",
    "one payment",
    "429, attention `event_limit`, one search",
    "A payment has four events, some have dozens. A replay of 1,000 fits.",
)
FINALS_OF_TRANSACTION = Limit(
    "finals_of_transaction",
    100,
    "events",
    "one payment",
    "429",
    "Final events have this room of their own in addition. The first event of each of the seven states is "
    "accepted even beyond it, so earlier events never cause an approval to be refused.",
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
    "A person needs a few bodies of a repeated fault. The largest body fits sixty times.",
)
QUARANTINE_OF_SUBJECT = Limit(
    "quarantine_of_subject",
    100,
    "bodies",
    "one payment or print job",
    "400 or 403 as without the limit, but the body is not kept",
    "A terminal that repeats one fault endlessly must not hide other faults.",
)
CALLBACKS_OF_PRINT_JOB = Limit(
    "callbacks_of_print_job",
    100,
    "callbacks",
    "one print job",
    "200, but it is not kept unless it ends the job",
    "A job has two or three. Print callbacks are sent once: no response makes the terminal send them again.",
)

# Requests of a program on this machine.

CONNECTIONS_OF_PROCESS = Limit(
    "connections_of_process",
    256,
    "connections",
    "one process, on each socket",
    "429 `limit_reached`, then the connection is closed",
    "A till needs one for each waiting call, and one or two for streams: a few dozen.",
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
    "More than one user may have, so that one user cannot exclude the others.",
)
CONNECTIONS_OF_OPERATORS = Limit(
    "connections_of_operators",
    500,
    "connections",
    "the admin socket",
    "429 `limit_reached`, then the connection is closed",
    "A separate limit: posd status and posd doctor work even if tills have used up theirs.",
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
    "Each stream reads the database at each change, so many streams slow down all payments.",
)
PAYMENTS_OF_PROCESS = Limit(
    "payments_of_process",
    256 * MIB,
    "bytes a day",
    "one process",
    "429 `limit_reached`, nothing is sent",
    "Each start counts its body and 4 KiB for its rows: 60,000 payments. A till that starts payments in a loop "
    "must not fill the disk. Refused starts leave no row and count nothing.",
)
PAYMENTS_OF_USER = Limit(
    "payments_of_user",
    1024 * MIB,
    "bytes a day",
    "all processes of one user",
    "429 `limit_reached`, nothing is sent",
    "A program that is started for each payment has a new process each time.",
)
PRINT_JOBS_OF_PROCESS = Limit(
    "print_jobs_of_process",
    256 * MIB,
    "bytes a day",
    "one process",
    "429 `limit_reached`, nothing is sent",
    "Print jobs have a limit of their own: endless printing stops no payment. 1,000 documents of the largest size.",
)
PRINT_JOBS_OF_USER = Limit(
    "print_jobs_of_user",
    1024 * MIB,
    "bytes a day",
    "all processes of one user",
    "429 `limit_reached`, nothing is sent",
    "As for payments.",
)

CALLS_OF_TRANSACTION = Limit(
    "calls_of_transaction",
    20,
    "calls a minute",
    "one payment",
    "429 `limit_reached`; posd's own search comes at its time",
    "Aborts and searches that tills request, and searches that events cause: each can leave a line in the "
    "journal. posd's own searches do not count.",
)
IN_FLIGHT_OF_PROCESS = Limit(
    "in_flight_of_process",
    3 * MIB,
    "bytes at one time",
    "one process",
    "429 `limit_reached`, nothing is sent",
    "Received bodies and unread responses; a page counts 1 MiB until its size is known. 4 KiB of each body and "
    "all responses up to 64 KiB do not count, so starts and outcomes always pass. One larger response passes if "
    "no other is in flight.",
)
IN_FLIGHT_OF_USER = Limit(
    "in_flight_of_user",
    6 * MIB,
    "bytes at one time",
    "all processes of one user",
    "429 `limit_reached`, nothing is sent",
    "As for a process: many processes that do not read must not use up the machine's memory.",
)

# Resources of the machine.

FREE_FOR_EXTRAS = Limit(
    "free_for_extras",
    64 * MIB,
    "bytes free on the disk, or a 100th of a small one",
    "posd",
    "503 `storage_unavailable` to print jobs; 503 to callbacks for the quarantine",
    "The rest is for payments and their events.",
)
FREE_FOR_PAYMENTS = Limit(
    "free_for_payments",
    16 * MIB,
    "bytes free on the disk, or a 200th of a small one",
    "posd",
    "503 `storage_unavailable`, nothing is sent",
    "The rest is for the events of open payments: their approvals are recorded.",
)

#: In the order of the table.
ALL = tuple(item for item in list(globals().values()) if isinstance(item, Limit))

#: Parts of a small disk that replace the byte values of these two limits.
_PARTS = {FREE_FOR_EXTRAS.name: 100, FREE_FOR_PAYMENTS.name: 200}


def floor(limit: Limit, size: int) -> int:
    """Return the bytes that must stay free on a disk of that size."""
    return min(limit.value, size // _PARTS[limit.name])


#: Bytes that posd stores for an event besides its body, and for a start (payment or print job).
EVENT_BYTES = 1 * KIB
START_BYTES = 4 * KIB


class ConnectionLimits(NamedTuple):
    """Most connections: to the till socket, by user, by process, to the admin socket and to the feed socket."""

    tills: int
    user: int
    process: int
    operators: int
    feed: int


#: Descriptors reserved from local sockets: for the LAN listener, and for the database, the terminals, mDNS, metrics and
#: refused connections.
LAN_DESCRIPTORS = 512
OWN_DESCRIPTORS = 256
#: Descriptors that all limits need together. posd raises its own limit to this if allowed (systemd/posd.service allows
#: more).
DESCRIPTORS = (
    LAN_DESCRIPTORS
    + OWN_DESCRIPTORS
    + CONNECTIONS_OF_TILLS.value
    + CONNECTIONS_OF_OPERATORS.value
    + CONNECTIONS_OF_FEED.value
)


def places(descriptors: int) -> ConnectionLimits:
    """Return the most connections of each kind for a number of descriptors; their sum never exceeds it.

    A user gets at most five sixths of the till socket and a process a quarter, so that others can connect.
    """
    left = max(8, descriptors - LAN_DESCRIPTORS - OWN_DESCRIPTORS)
    operators = min(CONNECTIONS_OF_OPERATORS.value, left // 4)
    feed = min(CONNECTIONS_OF_FEED.value, left // 8)
    tills = min(CONNECTIONS_OF_TILLS.value, left - operators - feed)
    return ConnectionLimits(
        tills,
        min(CONNECTIONS_OF_USER.value, tills * 5 // 6),
        min(CONNECTIONS_OF_PROCESS.value, max(1, tills // 4)),
        operators,
        feed,
    )
