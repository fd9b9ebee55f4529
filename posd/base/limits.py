"""Table of the limits of one sender: the amount, and to whom each limit applies.

A sender is authentic: a terminal with a valid token, or a program on this machine that may open a socket.
`posd.httpd.admission` limits unknown senders on the LAN. A call or callback beyond a limit gets 429 or 503 and can be
retried, and other senders are not affected. `posd_limit_reached_total` counts refusals. This table is in
docs/reference/resource-limits.md.

A limit for a day is a budget. A budget is full at the start of the process and refills continuously within a day. So a
sender that has used its budget need not wait for the next day: it is admitted again at the rate of the refill.
"""

import msgspec

KIB = 1024
MIB = 1024 * KIB
#: Seconds in which an empty budget refills.
DAY_SECONDS = 86_400.0
#: Longest document to print, in bytes. A receipt has a few KiB, or about 100 KiB with a logo. A body of the local API
#: has at most 256 KiB, and the document must fit into it with the other fields.
MAX_DOCUMENT_BYTES = 240 * KIB


class Limit(msgspec.Struct, frozen=True):
    """A limit: its name in metrics, logs and responses, its value and unit, and the sender to which it applies (`of`).

    `posd explain` and docs/reference/resource-limits.md describe the response above the limit, and the reason for the
    limit.
    """

    name: str
    value: int
    unit: str
    of: str


# Data of a terminal.

EVENTS_OF_TRANSACTION = Limit("events_of_transaction", 2000, "events", "one payment")
FINALS_OF_TRANSACTION = Limit("finals_of_transaction", 100, "events", "one payment")
EVENTS_OF_TERMINAL = Limit("events_of_terminal", 256 * MIB, "bytes a day", "one terminal")
QUARANTINE_OF_TERMINAL = Limit("quarantine_of_terminal", 64 * MIB, "bytes a day", "one terminal")
QUARANTINE_OF_SUBJECT = Limit("quarantine_of_subject", 100, "bodies", "one payment or print job")
CALLBACKS_OF_PRINT_JOB = Limit("callbacks_of_print_job", 100, "callbacks", "one print job")

# Requests of a program on this machine.

CONNECTIONS_OF_PROCESS = Limit("connections_of_process", 256, "connections", "one process, on each socket")
CONNECTIONS_OF_USER = Limit("connections_of_user", 2500, "connections", "all processes of one user, on each socket")
CONNECTIONS_OF_TILLS = Limit("connections_of_tills", 3000, "connections", "the till socket")
CONNECTIONS_OF_OPERATORS = Limit("connections_of_operators", 500, "connections", "the admin socket")
CONNECTIONS_OF_FEED = Limit("connections_of_feed", 16, "connections", "the feed socket")
STREAMS_OF_PROCESS = Limit("streams_of_process", 128, "event streams", "one process")
PAYMENTS_OF_PROCESS = Limit("payments_of_process", 256 * MIB, "bytes a day", "one process")
PAYMENTS_OF_USER = Limit("payments_of_user", 1024 * MIB, "bytes a day", "all processes of one user")
PRINT_JOBS_OF_PROCESS = Limit("print_jobs_of_process", 256 * MIB, "bytes a day", "one process")
PRINT_JOBS_OF_USER = Limit("print_jobs_of_user", 1024 * MIB, "bytes a day", "all processes of one user")

CALLS_OF_TRANSACTION = Limit("calls_of_transaction", 20, "calls a minute", "one payment")
IN_FLIGHT_OF_PROCESS = Limit("in_flight_of_process", 3 * MIB, "bytes at one time", "one process")
IN_FLIGHT_OF_USER = Limit("in_flight_of_user", 6 * MIB, "bytes at one time", "all processes of one user")

# Resources of the machine.

FREE_FOR_EXTRAS = Limit("free_for_extras", 64 * MIB, "bytes free on the disk, or 1 % of a small disk", "posd")
FREE_FOR_PAYMENTS = Limit("free_for_payments", 16 * MIB, "bytes free on the disk, or 0.5 % of a small disk", "posd")

#: All limits, in the order of the table.
ALL = tuple(item for item in list(globals().values()) if isinstance(item, Limit))

#: On a small disk the limit is lower: the size of the disk divided by this number.
_PARTS = {FREE_FOR_EXTRAS.name: 100, FREE_FOR_PAYMENTS.name: 200}


def floor(limit: Limit, size: int) -> int:
    """Return the number of bytes that must stay free on a disk of that size."""
    return min(limit.value, size // _PARTS[limit.name])


#: Number of bytes that posd stores for an event in addition to its body, and for a start (payment or print job).
EVENT_BYTES = 1 * KIB
START_BYTES = 4 * KIB


class ConnectionLimits(msgspec.Struct, frozen=True):
    """Maximum numbers of connections: to the till, admin and feed sockets, and of one user or process."""

    tills: int
    user: int
    process: int
    operators: int
    feed: int


#: Descriptors that local sockets must not use: for the LAN listener, and for the database, terminals, mDNS, metrics and
#: refused connections.
LAN_DESCRIPTORS = 512
OWN_DESCRIPTORS = 256
#: Number of descriptors that all limits need together. posd raises its own limit to this number if allowed
#: (systemd/posd.service allows more).
DESCRIPTORS = (
    LAN_DESCRIPTORS
    + OWN_DESCRIPTORS
    + CONNECTIONS_OF_TILLS.value
    + CONNECTIONS_OF_OPERATORS.value
    + CONNECTIONS_OF_FEED.value
)


def places(descriptors: int) -> ConnectionLimits:
    """Return the maximum numbers of connections for which `descriptors` are enough.

    A user can have at most five sixths of the connections to the till socket, and a process a quarter, so that others
    can connect.
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
