"""The plan of a random run: which payments the tills make, and what goes wrong when. A seed gives always the same.

Nothing in it hangs on the wall clock: a fault waits until so many payments were begun, and then for a happening at a
terminal or a till, so that it hits payments in every state.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from enum import StrEnum
from itertools import cycle
from pathlib import Path
from random import Random
from uuid import UUID

#: Scenarios of the simulated terminal, and how often each is played.
SCENARIOS = {
    "approve-contactless": 34,
    "approve-chip-pin": 14,
    "approve-third-presentation": 10,
    "decline": 12,
    "reject-before-card": 6,
    "reject-after-card": 6,
    "cancel-by-cardholder": 8,
    "wait-for-abort": 10,
}
#: How many payments are for a basket that another till charges at the same time on another terminal: so many pairs.
SALE_SHARE = 0.08
#: How many payments are on another terminal than the till's own.
ELSEWHERE_SHARE = 0.15
#: How many starts are called twice at the same time.
TWICE_SHARE = 0.15
#: How many payments are aborted by their till, those aside that wait for it.
ABORT_SHARE = 0.12

#: Points of the daemon's code at which it dies by itself (see posd.crashpoints), and how often each is dealt: a start
#: that was interrupted is what can be sent twice.
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
    """What goes wrong beside single connections."""

    #: SIGKILL of the daemon, from outside.
    DAEMON = "daemon_killed"
    #: The daemon dies at a point of its own code.
    DAEMON_AT_POINT = "daemon_killed_at_point"
    #: SIGTERM of the daemon: no fault, but a restart.
    DAEMON_STOP = "daemon_stopped"
    TERMINAL = "terminal_killed"
    TILL = "till_killed"
    #: Nothing goes through between daemon and terminals: the terminals queue their events.
    LAN = "lan_outage"
    #: Terminals can be called, but their events do not get through: a burst of many payments' events follows.
    CALLBACKS = "callbacks_outage"
    #: One terminal cannot be called; its events get through.
    UNREACHABLE = "terminal_unreachable"


#: One of these for so many payments; of each there is one at least.
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
#: A run of so many payments has the time for long outages and slow people.
MANY = 100
#: Outages of the callbacks: seconds, and what becomes of connections. In the first, terminals give events up: only a
#: search can tell what they said.
OUTAGES = ((12.0, "cut refuse"), (5.0, "cut freeze"), (3.0, "freeze freeze"))
#: How much slower people are at the slow terminals.
SLOWER = 5
#: The happenings that a fault waits for: who is hit -> (kind, status) of a line in a ledger.
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
class Payment:
    """One payment of a till. `meet`: it begins when the other till of that number is there too."""

    id: str
    till: int
    terminal: str
    amount: str
    scenario: str
    sale: str | None
    meet: int | None
    twice: bool
    #: None, "started" (as soon as it is) or "card" (when the card was presented).
    abort: str | None

    @property
    def request(self) -> dict[str, object]:
        """The body of the call that starts it."""
        return {
            "terminal": self.terminal,
            "amount": {"subtotal_iva0": self.amount},
            "sale": self.sale,
            "metadata": {"scenario": self.scenario},
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
    #: Of a daemon that dies by itself: where (see POSD_CRASH). Of what is cut off: "cut" or "freeze" what is open,
    #: "refuse" or "freeze" what comes.
    detail: str = ""


@dataclass(frozen=True)
class Plan:
    """All of a run that the seed decides."""

    seed: int
    terminals: tuple[str, ...]
    unruly: frozenset[str]
    #: Where people take their time: payments last for several of the daemon's time-outs.
    slow: frozenset[str]
    tills: int
    payments: tuple[Payment, ...]
    faults: tuple[Fault, ...]
    #: Whether the configuration vouches for search and abort, so that not_started can be proved.
    confirmed: bool

    def of_till(self, till: int) -> list[Payment]:
        """The payments of a till, in order."""
        return [payment for payment in self.payments if payment.till == till]

    def write_till(self, till: int, path: Path) -> None:
        """Write what a till has to do as JSON."""
        items = [asdict(payment) | {"request": payment.request} for payment in self.of_till(till)]
        path.write_text(json.dumps(items))


def make_plan(seed: int, payments: int, terminals: int, tills: int) -> Plan:
    """Draw a plan."""
    rng = Random(f"plan/{seed}")
    serials = tuple(f"SN-{number}" for number in range(terminals))
    unruly = frozenset(rng.sample(serials, (terminals + 1) // 2))
    slow = frozenset(rng.sample(serials, terminals // 3 if payments >= MANY else 0))
    drawn = tuple(_payments(rng, payments, serials, tills))
    faults = sorted(_faults(rng, payments, terminals, tills), key=lambda fault: fault.after)
    return Plan(seed, serials, unruly, slow, tills, drawn, tuple(faults), confirmed=seed % 2 == 0)


def _payments(rng: Random, count: int, serials: Sequence[str], tills: int) -> Iterator[Payment]:
    sales = 0
    made = 0
    while made < count:
        if tills > 1 and len(serials) > 1 and count - made > 1 and rng.random() < SALE_SHARE:
            sales += 1
            amount = _amount(rng)
            pair = zip(rng.sample(range(tills), 2), rng.sample(serials, 2), strict=True)
            yield from (_payment(rng, till, serial, amount, sales) for till, serial in pair)
            made += 2
            continue
        till = made % tills
        own = serials[till % len(serials)]
        yield _payment(rng, till, rng.choice(serials) if rng.random() < ELSEWHERE_SHARE else own, _amount(rng), None)
        made += 1


def _payment(rng: Random, till: int, serial: str, amount: str, sale: int | None) -> Payment:
    scenario = rng.choices(list(SCENARIOS), list(SCENARIOS.values()))[0]
    abort = rng.choice(("started", "card")) if rng.random() < ABORT_SHARE else None
    return Payment(
        id=str(UUID(int=rng.getrandbits(128), version=4)),
        till=till,
        terminal=serial,
        amount=amount,
        scenario=scenario,
        sale=None if sale is None else f"basket-{sale}",
        meet=sale,
        twice=rng.random() < TWICE_SHARE,
        abort="started" if scenario == "wait-for-abort" else abort,
    )


def _amount(rng: Random) -> str:
    return str(Decimal(rng.randrange(1, 100_000)) / 100)


def _faults(rng: Random, payments: int, terminals: int, tills: int) -> Iterator[Fault]:
    points = _points(rng)
    outages = cycle(OUTAGES if payments >= MANY else OUTAGES[-1:])
    targets = {Kind.TERMINAL: terminals, Kind.UNREACHABLE: terminals, Kind.TILL: tills}
    for kind, each in PAYMENTS_FOR_ONE.items():
        for _ in range(max(1, payments // each)):
            seconds, detail = _seconds(rng, kind), _detail(rng, kind)
            if kind is Kind.CALLBACKS:
                seconds, detail = next(outages)
            elif kind is Kind.DAEMON_AT_POINT:
                detail = next(points)
            yield Fault(
                kind,
                after=rng.randrange(1, max(2, int(payments * 0.9))),
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
