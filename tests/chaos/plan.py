"""Plan of a random run: the payments of the tills, and the faults with their times. A seed always gives the same plan.
Nothing depends on the wall clock. A fault waits for a number of started payments, and then for an event at a terminal
or a till. Therefore faults affect payments in every state.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from itertools import cycle
from random import Random
from uuid import UUID

#: Scenario of the simulated terminal -> frequency. `tests.catalogue` and the simulation run the scenarios of terminals
#: that mislead posd.
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
#: Share of pairs of payments for one basket. Two tills charge the basket at once on two terminals.
SALE_SHARE = 0.08
#: Share of payments on a terminal of another till.
ELSEWHERE_SHARE = 0.15
#: Share of starts that the till calls twice at the same time.
TWICE_SHARE = 0.15
#: Share of payments that the till aborts, in addition to the payments that wait for an abort.
ABORT_SHARE = 0.12
#: Crash points of the daemon (`posd.base.crashpoints`). Points of a start are frequent, because an interrupted start
#: could be sent twice.
POINTS = (
    *("start.written", "start.replied") * 3,
    *("start.intended", "event.committed") * 2,
    *("start.before_send", "start.concluded", "event.before_commit", "event.answered", "search.replied"),
    *("search.recorded", "recovery.before_commit", "recovery.committed", "till.before_answer", "till.answered"),
    *("writer.before_commit", "writer.committed"),
)


class Kind(StrEnum):
    """Kinds of faults."""

    #: SIGKILL of the daemon from outside.
    DAEMON = "daemon_killed"
    #: The daemon dies at a crash point.
    DAEMON_AT_POINT = "daemon_killed_at_point"
    #: SIGTERM of the daemon. The daemon is restarted, and this counts as no fault.
    DAEMON_STOP = "daemon_stopped"
    TERMINAL = "terminal_without_power"
    TILL = "till_killed"
    #: Daemon and terminals cannot reach each other. The terminals queue their events.
    LAN = "lan_outage"
    #: The daemon can call terminals, but their events do not arrive. After the fault the events of many payments arrive
    #: at once.
    CALLBACKS = "callbacks_outage"
    #: The daemon cannot call one terminal. The terminal's events arrive.
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
#: If a run has more payments than this number, the frequency of faults falls with the square root. With more frequent
#: faults, which follow each other, the shop would always be down and make no payment.
DENSE = 1500
#: Least number of payments in a run that has time for long outages.
MANY = 100
#: No fault begins after this share of the payments.
LAST = 0.9
#: Outages of the callbacks, with seconds and the effect on connections. In the first outage terminals give up events,
#: and only a search can find these results.
OUTAGES = ((12.0, "cut refuse"), (5.0, "cut freeze"), (3.0, "freeze freeze"))
#: Events for which a fault waits, target -> kind, or kind and status, of a line in a ledger.
CARD, ASKED = "event CARD_PRESENTED", "event APPROVAL_REQUESTED"
MOMENTS: dict[Kind, Sequence[str]] = {
    Kind.DAEMON: ("start", "event", "final", "search"),
    Kind.TERMINAL: ("start", "event TERMINAL_ACKNOWLEDGED", CARD, ASKED, "final"),
    Kind.TILL: ("intent", "answer", "abort", "outcome"),
    Kind.LAN: ("start", CARD, ASKED),
}


@dataclass(frozen=True)
class Payment:
    """One payment of a till. A payment with a `sale` begins when both tills of the sale are ready."""

    id: str
    till: int
    terminal: str
    amount: str
    scenario: str
    sale: str | None
    twice: bool
    #: Moment of the abort: None (no abort), "started" (at once) or "card" (when the card was presented).
    abort: str | None

    @property
    def request(self) -> dict[str, object]:
        """The body of the start."""
        return {
            "terminal": self.terminal,
            "amount": {"subtotal_iva0": self.amount},
            "sale": self.sale,
            "metadata": {"scenario": self.scenario},
        }


@dataclass(frozen=True)
class Fault:
    """A fault. After `after` payments have begun, the fault happens at the next `moment` of its target."""

    kind: Kind
    after: int
    target: int
    moment: str | None
    #: Duration in seconds.
    seconds: float
    #: Crash point of the daemon (see POSD_CRASH). For a cut: The effect on open connections ("cut" or "freeze"), and
    #: the effect on new connections ("refuse" or "freeze").
    detail: str


@dataclass(frozen=True)
class Plan:
    """The choices of a run that depend on the seed."""

    seed: int
    terminals: tuple[str, ...]
    unruly: frozenset[str]
    tills: int
    payments: tuple[Payment, ...]
    #: The faults, in the order in which they may begin.
    faults: tuple[Fault, ...]

    @property
    def confirmed(self) -> bool:
        """Whether the configuration confirms search and abort. With this confirmation posd can prove `not_started`."""
        return self.seed % 2 == 0


def make_plan(seed: int, payments: int, terminals: int, tills: int) -> Plan:
    """Draw a plan."""
    rng = Random(f"plan/{seed}")
    serials = tuple(f"SN-{number:04}" for number in range(terminals))
    unruly = frozenset(rng.sample(serials, (terminals + 1) // 2))
    drawn = tuple(_payments(rng, payments, serials, tills))
    faults = sorted(_faults(rng, payments, terminals, tills), key=lambda fault: fault.after)
    return Plan(seed, serials, unruly, tills, drawn, tuple(faults))


def _payments(rng: Random, count: int, serials: Sequence[str], tills: int) -> Iterator[Payment]:
    made = 0
    while made < count:
        amount = str(Decimal(rng.randrange(1, 100_000)) / 100)
        if tills > 1 and len(serials) > 1 and count - made > 1 and rng.random() < SALE_SHARE:
            pair = zip(rng.sample(range(tills), 2), rng.sample(serials, 2), strict=True)
            yield from (_payment(rng, till, serial, amount, f"basket-{made}") for till, serial in pair)
            made += 2
        else:
            till = rng.randrange(tills)
            serial = rng.choice(serials) if rng.random() < ELSEWHERE_SHARE else serials[till % len(serials)]
            yield _payment(rng, till, serial, amount, None)
            made += 1


def _payment(rng: Random, till: int, serial: str, amount: str, sale: str | None) -> Payment:
    identity = str(UUID(int=rng.getrandbits(128), version=4))
    scenario = rng.choices(list(SCENARIOS), list(SCENARIOS.values()))[0]
    abort = rng.choice(("started", "card")) if rng.random() < ABORT_SHARE else None
    if scenario == "wait-for-abort":
        abort = "started"
    return Payment(identity, till, serial, amount, scenario, sale, rng.random() < TWICE_SHARE, abort)


def _faults(rng: Random, payments: int, terminals: int, tills: int) -> Iterator[Fault]:
    points = _points(rng)
    outages = cycle(OUTAGES if payments >= MANY else OUTAGES[-1:])
    targets = {Kind.TILL: tills} | dict.fromkeys((Kind.TERMINAL, Kind.UNREACHABLE), terminals)
    rarer = max(1.0, (payments / DENSE) ** 0.5)
    for kind in PAYMENTS_FOR_ONE:
        for _ in range(max(1, int(payments / (PAYMENTS_FOR_ONE[kind] * rarer)))):
            seconds, detail = round(rng.choice((0.0, 0.0, rng.uniform(0, 1.5))), 2), ""
            match kind:
                case Kind.CALLBACKS:
                    seconds, detail = next(outages)
                case Kind.DAEMON_AT_POINT:
                    detail = next(points)
                case Kind.LAN | Kind.UNREACHABLE:
                    detail = f"{rng.choice(('cut', 'freeze'))} {rng.choice(('refuse', 'freeze'))}"
            if kind is Kind.LAN:
                seconds = rng.choice((0.5, 1.0, 2.0, 4.0))
            after = rng.randrange(1, max(2, int(payments * LAST)))
            moment = rng.choice(MOMENTS[kind]) if kind in MOMENTS else None
            yield Fault(kind, after, rng.randrange(targets.get(kind, 1)), moment, seconds, detail)


def _points(rng: Random) -> Iterator[str]:
    """Yield crash points of the daemon in the form of POSD_CRASH, without end."""
    while True:
        for point in rng.sample(POINTS, len(POINTS)):
            times = rng.choice((1, 1, 2, 5))
            # A life of the daemon passes a point of the recovery only once.
            yield f"{point}:{1 if point.startswith('recovery') else times}"
