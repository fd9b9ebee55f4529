"""Plan of a random run: the payments of the tills, and the faults with their times.

A seed always gives the same plan.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from random import Random
from uuid import UUID

from tests.chaos.faults import Fault, draw_faults

#: Scenario of the simulated terminal -> its frequency. Scenarios that mislead posd run in `tests.catalogue` and in the
#: simulation.
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
#: Share of pairs of payments for one basket, charged by two tills at once on two terminals.
SALE_SHARE = 0.08
#: Share of payments on another terminal than the till's own.
ELSEWHERE_SHARE = 0.15
#: Share of starts that are called twice at once.
TWICE_SHARE = 0.15
#: Share of payments that their till aborts, besides those that wait for an abort.
ABORT_SHARE = 0.12


@dataclass(frozen=True)
class Payment:
    """One payment of a till. `meet`: it begins when the other till with that number is ready too."""

    id: str
    till: int
    terminal: str
    amount: str
    scenario: str
    sale: str | None
    meet: int | None
    twice: bool
    #: None, "started" (at once) or "card" (when the card was presented).
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
class Plan:
    """Everything in a run that the seed decides."""

    seed: int
    terminals: tuple[str, ...]
    unruly: frozenset[str]
    tills: int
    payments: tuple[Payment, ...]
    faults: tuple[Fault, ...]
    #: Whether the configuration confirms search and abort, so that not_started can be proved.
    confirmed: bool

    def of_till(self, till: int) -> list[Payment]:
        """The payments of a till, in order."""
        return [payment for payment in self.payments if payment.till == till]

    def write_till(self, till: int, path: Path) -> None:
        """Write a till's payments as JSON."""
        items = [asdict(payment) | {"request": payment.request} for payment in self.of_till(till)]
        path.write_text(json.dumps(items))


def make_plan(seed: int, payments: int, terminals: int, tills: int) -> Plan:
    """Draw a plan."""
    rng = Random(f"plan/{seed}")
    serials = tuple(f"SN-{number:04}" for number in range(terminals))
    unruly = frozenset(rng.sample(serials, (terminals + 1) // 2))
    confirmed = seed % 2 == 0
    drawn = tuple(_payments(rng, payments, serials, tills))
    faults = draw_faults(rng, payments, terminals, tills)
    return Plan(seed, serials, unruly, tills, drawn, tuple(faults), confirmed)


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
        till = rng.randrange(tills)
        own = serials[till % len(serials)]
        serial = rng.choice(serials) if rng.random() < ELSEWHERE_SHARE else own
        yield _payment(rng, till, serial, _amount(rng), None)
        made += 1


def _payment(rng: Random, till: int, serial: str, amount: str, sale: int | None) -> Payment:
    scenario = rng.choices(list(SCENARIOS), list(SCENARIOS.values()))[0]
    abort = rng.choice(("started", "card")) if rng.random() < ABORT_SHARE else None
    if scenario == "wait-for-abort":
        abort = "started"
    return Payment(
        id=str(UUID(int=rng.getrandbits(128), version=4)),
        till=till,
        terminal=serial,
        amount=amount,
        scenario=scenario,
        sale=None if sale is None else f"basket-{sale}",
        meet=sale,
        twice=rng.random() < TWICE_SHARE,
        abort=abort,
    )


def _amount(rng: Random) -> str:
    return str(Decimal(rng.randrange(1, 100_000)) / 100)
