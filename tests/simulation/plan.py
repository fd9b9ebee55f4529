"""The plan of a run: the sales of the tills, and the faults with their times. A seed always gives the same plan.

Each sale and each fault has its own random source. Shrinking omits some sales and faults, and the rest of the run stays
the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta
from random import Random
from typing import Final
from zoneinfo import ZoneInfo

from tests.simulation.habits import drawn, weights
from tests.simulation.trouble import KINDS

#: Time at which the machines were installed, with correct clocks.
BORN: Final = datetime(2027, 1, 4, 13, 0, tzinfo=UTC)
#: Days on which the clocks of Madrid change.
CHANGES: Final = (datetime(2027, 3, 28, tzinfo=UTC), datetime(2027, 10, 31, tzinfo=UTC))
#: Validity of the listener's certificate. The next constant is the time before its end at which posd renews the
#: certificate.
CERTIFICATE: Final = timedelta(days=397)
RENEWAL: Final = timedelta(days=30)
#: One run out of this number lasts for weeks.
WEEKS_IN: Final = 15
#: Share of runs in which posd finds terminals by their announcements.
ANNOUNCED: Final = 0.2
#: Share of runs that begin with the database of an older posd.
UPGRADES: Final = 0.08
#: Share of the other runs that begin soon before midnight (of the shop or of UTC). The next constant is the greatest
#: number of seconds before midnight.
MIDNIGHTS: Final = 0.15
SOON: Final = 2400.0
#: Seconds for which the shop is open between two nights.
OPEN_SECONDS: Final = 1500.0

#: Behaviour of a till with a sale -> frequency.
MANNERS: Final = weights(
    "wait 50, poll 8, listen 8, patient 6, twice 8, abort 10, forget 6, reuse 2, barge 4, print 8, careless 4"
)

#: Share of sales with a further operation (capture, tip, void, refund). The next constant is the share around midnight.
CHAINS: Final = 0.25
MIDNIGHT_CHAINS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Sale:
    """A customer at a till. `after`: seconds since the previous customer. `manner`: the till's behaviour."""

    number: int
    till: int
    after: float
    cents: int
    manner: str
    #: Share of the values in the payment's habit that are not ordinary.
    bad: float
    #: The first operation, and the number of operations after its approval.
    first: str = "charge"
    follows: int = 0


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault. `at`: seconds of the run. `target`: number of the terminal or till. `seconds`: duration."""

    number: int
    at: float
    kind: str
    target: int
    seconds: float
    #: A number. Its meaning depends on the kind of fault.
    value: int


@dataclass(frozen=True)
class Plan:
    """The choices of a run that depend on the seed."""

    seed: int
    tills: int
    sales: tuple[Sale, ...]
    faults: tuple[Fault, ...]
    confirmed: bool
    probes: bool
    reply_timeout: float
    timezone: str
    #: Numbers of the terminals with TLS.
    secure: frozenset[int]
    #: Share of wrong decisions among the operator's decisions.
    wrong_words: float
    #: Shortest and longest duration of a step on a thread, in seconds.
    disk: tuple[float, float]
    #: Time at which the run begins, and time at which the listener's certificate was made.
    began: datetime = BORN
    certified: datetime = BORN
    #: Days for which posd keeps records. 0 means the default of the configuration.
    retention_days: int = 0
    #: Whether posd finds terminals without TLS by their announcements.
    announced: bool = False
    #: Schema of the database of an older posd. 0 means that the run has no such database.
    schema: int = 0

    def serial(self, number: int) -> str:
        """Return the serial of a terminal. Each till has one terminal."""
        return f"SN-{number % self.tills:03}"


def make_plan(seed: int, payments: int, unrest: float = 1.0) -> Plan:
    """Draw a plan. `unrest`: factor for the frequency of faults."""
    random = Random(f"plan/{seed}")
    tills = random.choice((1, 2, 4, 8, 8, 12))
    bad = random.choice((0.0, 0.03, 0.1, 0.3, 0.7))
    pace = random.choice((1.0, 10.0, 40.0))
    hour, upgrade = Random(f"hour/{seed}"), Random(f"upgrade/{seed}")
    chains = MIDNIGHT_CHAINS if (at_midnight := hour.random() < MIDNIGHTS) else CHAINS
    sales = tuple(_sale(seed, number, tills, bad, pace, chains) for number in range(payments))
    lasts = max(1.0, payments / tills * (25.0 + pace))
    plan = Plan(
        seed,
        tills,
        sales,
        tuple(_faults(seed, payments * unrest, lasts)),
        confirmed=random.random() < 0.5,
        probes=random.random() < 0.3,
        reply_timeout=random.choice((2.0, 5.0, 20.0)),
        timezone=random.choice(("America/Guayaquil", "Europe/Madrid")),
        secure=frozenset(number for number in range(tills) if random.random() < 0.03),
        wrong_words=random.choice((0.0, 0.0, 0.15)),
        disk=random.choice(((0.0001, 0.0005), (0.0005, 0.004), (0.005, 0.03))),
        announced=Random(f"announced/{seed}").random() < ANNOUNCED,
        schema=upgrade.randrange(1, 12) if upgrade.random() < UPGRADES else 0,
    )
    if at_midnight:
        tomorrow, zones = BORN.date() + timedelta(days=1), (UTC, ZoneInfo(plan.timezone))
        first, second = sorted(datetime.combine(tomorrow, time(), zone) for zone in zones)
        midnight = first if hour.random() < 0.8 else second
        plan = replace(plan, began=midnight.astimezone(UTC) - timedelta(seconds=hour.uniform(0, min(lasts, SOON))))
    weeks = Random(f"weeks/{seed}")
    return plan if weeks.random() * WEEKS_IN >= 1 else _over_weeks(plan, weeks, lasts)


def _over_weeks(plan: Plan, random: Random, lasts: float) -> Plan:
    """Spread a plan over weeks. The clock passes each night in one step. The clocks change on one of the days."""
    nights = random.randrange(12, 29)
    stretch = max(1.0, nights * OPEN_SECONDS / lasts)
    length = lasts * stretch
    began = random.choice(CHANGES) - timedelta(days=random.uniform(2, 12))
    sales = tuple(replace(sale, after=sale.after * stretch) for sale in plan.sales)
    faults = [replace(fault, at=fault.at * stretch) for fault in plan.faults]
    count = max((fault.number for fault in faults), default=0)
    for number in range(nights):
        at = length * (number + random.random()) / nights
        faults.append(Fault(count + number + 1, at, "night", 0, 0.0, random.randrange(1 << 30)))
    return replace(
        plan,
        sales=sales,
        faults=tuple(sorted(faults, key=lambda fault: (fault.at, fault.number))),
        timezone=random.choice(("Europe/Madrid", "Europe/Madrid", "America/Guayaquil")),
        began=began,
        certified=began - CERTIFICATE + RENEWAL + timedelta(days=random.uniform(-25, 12)),
        retention_days=random.choice((1, 2, 7)),
    )


def _sale(seed: int, number: int, tills: int, bad: float, pace: float, chains: float) -> Sale:
    random = Random(f"sale/{seed}/{number}")
    manner = drawn(random, MANNERS)
    till, after, cents = random.randrange(tills), random.uniform(0.5, 2 * pace), random.randrange(1, 50_000)
    sale = Sale(number, till, after, cents, manner, bad)
    chain = Random(f"chain/{seed}/{number}")
    if manner == "print" or chain.random() >= chains:
        return sale
    return replace(sale, first=chain.choice(("charge", "pre-auth")), follows=chain.randrange(1, 5))


def _faults(seed: int, payments: float, lasts: float) -> Sequence[Fault]:
    found: list[Fault] = []
    for kind, often in ((name, kind.often) for name, kind in KINDS.items()):
        random = Random(f"faults/{seed}/{kind}")
        count = int(often * payments / 100 * random.choice((0, 0.5, 1, 3)) + random.random())
        for _ in range(count):
            at, length = random.uniform(0, lasts), random.choice((1.0, 8.0, 40.0, 200.0, 900.0))
            target, seconds = random.randrange(64), random.uniform(0.1, 1) * length
            found.append(Fault(len(found) + 1, at, kind, target, seconds, random.randrange(1 << 30)))
    return sorted(found, key=lambda fault: (fault.at, fault.number))
