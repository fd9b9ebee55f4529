"""Faults of a random run, with their number and time. A seed always gives the same.

Nothing depends on the wall clock: a fault waits for a number of started payments, and then for an event at a terminal
or a till. So it hits payments in every state.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import cycle
from random import Random

#: Crash points of the daemon (`posd.base.crashpoints`) -> how often each is used. An interrupted start could be sent
#: twice.
POINTS = {
    "start.intended": 2,
    "start.before_send": 1,
    "start.written": 3,
    "start.replied": 3,
    "start.concluded": 1,
    "event.before_commit": 1,
    "event.committed": 2,
    "event.answered": 1,
    "search.replied": 1,
    "search.recorded": 1,
    "recovery.before_commit": 1,
    "recovery.committed": 1,
    "till.before_answer": 1,
    "till.answered": 1,
    "writer.before_commit": 1,
    "writer.committed": 1,
}


class Kind(StrEnum):
    """Kinds of faults, except those of single connections."""

    #: SIGKILL of the daemon, from outside.
    DAEMON = "daemon_killed"
    #: The daemon dies at a crash point.
    DAEMON_AT_POINT = "daemon_killed_at_point"
    #: SIGTERM of the daemon: not a fault, but a restart.
    DAEMON_STOP = "daemon_stopped"
    TERMINAL = "terminal_killed"
    TILL = "till_killed"
    #: Daemon and terminals cannot reach each other: the terminals queue their events.
    LAN = "lan_outage"
    #: Terminals can be called, but their events do not arrive: later those of many payments arrive at once.
    CALLBACKS = "callbacks_outage"
    #: One terminal cannot be called; its events get through.
    UNREACHABLE = "terminal_unreachable"


#: Kind of fault -> number of payments for one such fault. Each kind occurs at least once.
PAYMENTS_FOR_ONE = {
    Kind.DAEMON: 40,
    Kind.DAEMON_AT_POINT: 20,
    Kind.DAEMON_STOP: 150,
    Kind.TERMINAL: 20,
    Kind.TILL: 18,
    Kind.LAN: 60,
    Kind.CALLBACKS: 100,
    Kind.UNREACHABLE: 50,
}
#: In runs of more payments than this, faults are rarer by the square root. A shop that is down all the time pays
#: nothing, and faults of one kind follow each other.
DENSE = 1500
#: Number of payments from which a run has time for long outages.
MANY = 100
#: No fault begins after this share of the payments.
LAST = 0.9
#: Outages of the callbacks: seconds, and the effect on connections. In the first one, terminals give up events, and
#: only a search can find them.
OUTAGES = ((12.0, "cut refuse"), (5.0, "cut freeze"), (3.0, "freeze freeze"))
#: Events for which a fault waits: target -> (kind, status) of a line in a ledger.
MOMENTS: dict[Kind, Sequence[tuple[str, str | None]]] = {
    Kind.DAEMON: (("start", None), ("event", None), ("final", None), ("search", None)),
    Kind.TERMINAL: (
        ("start", None),
        ("event", "TERMINAL_ACKNOWLEDGED"),
        ("event", "CARD_PRESENTED"),
        ("event", "APPROVAL_REQUESTED"),
        ("final", None),
    ),
    Kind.TILL: (("intent", None), ("answer", None), ("abort", None), ("outcome", None)),
    Kind.LAN: (("start", None), ("event", "CARD_PRESENTED"), ("event", "APPROVAL_REQUESTED")),
}


@dataclass(frozen=True)
class Fault:
    """A fault: when `after` payments have begun, it happens at the next `moment` of its target."""

    kind: Kind
    after: int
    target: int
    moment: tuple[str, str | None] | None
    #: Duration in seconds.
    seconds: float
    #: Crash point of the daemon (see POSD_CRASH). For a cut: "cut" or "freeze" open connections, "refuse" or "freeze"
    #: new ones.
    detail: str = ""


def draw_faults(rng: Random, payments: int, terminals: int, tills: int) -> list[Fault]:
    """Draw the faults of a run, in the order in which they may begin."""
    return sorted(_faults(rng, payments, terminals, tills), key=lambda fault: fault.after)


def _faults(rng: Random, payments: int, terminals: int, tills: int) -> Iterator[Fault]:
    points = _points(rng)
    outages = cycle(OUTAGES if payments >= MANY else OUTAGES[-1:])
    targets = {Kind.TILL: tills} | dict.fromkeys((Kind.TERMINAL, Kind.UNREACHABLE), terminals)
    rarer = max(1.0, (payments / DENSE) ** 0.5)
    for kind in PAYMENTS_FOR_ONE:
        for _ in range(max(1, int(payments / (PAYMENTS_FOR_ONE[kind] * rarer)))):
            seconds, detail = _seconds(rng, kind), _detail(rng, kind)
            if kind is Kind.CALLBACKS:
                seconds, detail = next(outages)
            elif kind is Kind.DAEMON_AT_POINT:
                detail = next(points)
            yield Fault(
                kind,
                after=rng.randrange(1, max(2, int(payments * LAST))),
                target=rng.randrange(targets.get(kind, 1)),
                moment=rng.choice(MOMENTS[kind]) if kind in MOMENTS else None,
                seconds=seconds,
                detail=detail,
            )


def _seconds(rng: Random, kind: Kind) -> float:
    if kind is Kind.LAN:
        return rng.choice((0.5, 1.0, 2.0, 4.0))
    return round(rng.choice((0.0, 0.0, rng.uniform(0, 1.5))), 2)


def _points(rng: Random) -> Iterator[str]:
    """Yield crash points of the daemon in the form of POSD_CRASH, without end."""
    while True:
        deck = [point for point, count in POINTS.items() for _ in range(count)]
        rng.shuffle(deck)
        for point in deck:
            times = rng.choice((1, 1, 2, 5))
            yield f"{point}:{1 if point.startswith('recovery') else times}"  # a life passes this point only once


def _detail(rng: Random, kind: Kind) -> str:
    if kind in (Kind.LAN, Kind.UNREACHABLE):
        return f"{rng.choice(('cut', 'freeze'))} {rng.choice(('refuse', 'freeze'))}"
    return ""
