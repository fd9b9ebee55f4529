"""What goes wrong in a random run, how often, and when; a seed gives always the same.

Nothing depends on the wall clock: a fault waits for a number of started payments, and then for an event at a terminal
or a till, so that it hits payments in every state.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import cycle
from random import Random

#: Crash points of the daemon (`posd.base.crashpoints`), and how often each is used. An interrupted start could be sent
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
    """Kinds of faults besides those of single connections."""

    #: SIGKILL of the daemon, from outside.
    DAEMON = "daemon_killed"
    #: The daemon dies at a crash point.
    DAEMON_AT_POINT = "daemon_killed_at_point"
    #: SIGTERM of the daemon: not a fault, but a restart.
    DAEMON_STOP = "daemon_stopped"
    TERMINAL = "terminal_killed"
    TILL = "till_killed"
    #: Nothing goes through between daemon and terminals: the terminals queue their events.
    LAN = "lan_outage"
    #: Terminals can be called, but their events do not get through: a burst of many payments' events follows.
    CALLBACKS = "callbacks_outage"
    #: One terminal cannot be called; its events get through.
    UNREACHABLE = "terminal_unreachable"


#: One of these for this many payments, and at least one of each.
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
#: In runs of more payments than this the faults are rarer, by the square root: a street that is down all the time pays
#: nothing, and the faults of one kind follow each other.
DENSE = 1500
#: Number of payments from which a run has time for long outages.
MANY = 100
#: No fault begins after this part of the payments.
LAST = 0.9
#: Outages of the callbacks: seconds, and the effect on connections. In the first one, terminals give events up, and
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
    """One thing that goes wrong: when `after` payments have begun, at the next `moment` of its target."""

    kind: Kind
    after: int
    target: int
    moment: tuple[str, str | None] | None
    #: Seconds: how long it is down, or out.
    seconds: float
    #: For a daemon that dies: the point (see POSD_CRASH). For a cut: "cut" or "freeze" open connections, "refuse" or
    #: "freeze" new ones.
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
    """Deal points of the daemon's code, as POSD_CRASH wants them, without end."""
    while True:
        deck = [point for point, count in POINTS.items() for _ in range(count)]
        rng.shuffle(deck)
        for point in deck:
            times = rng.choice((1, 1, 2, 5))
            yield f"{point}:{1 if point.startswith('recovery') else times}"  # these are passed once in a life


def _detail(rng: Random, kind: Kind) -> str:
    if kind in (Kind.LAN, Kind.UNREACHABLE):
        return f"{rng.choice(('cut', 'freeze'))} {rng.choice(('refuse', 'freeze'))}"
    return ""
