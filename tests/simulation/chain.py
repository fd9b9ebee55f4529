"""Operations on a payment: re-authorizations, captures, tips, voids and refunds, and their permitted order.

The local API has the rules (Amounts, Chains). This module states the same rules again and shares no code with the
daemon.
"""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from random import Random
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from tests.rig.streams import Reply
from tests.simulation.bank import refusals
from tests.simulation.habits import drawn
from tests.simulation.part import Part, new_id
from tests.simulation.plan import SOON

if TYPE_CHECKING:
    from tests.simulation.till import Basket, Till

#: Last part of a path of the terminal's API -> name of the operation in posd, and name of the operation in the
#: terminal's events.
PATHS: Final[Mapping[str, tuple[str, str]]] = {
    "charge": ("charge", "CHARGE"),
    "authorization": ("pre-auth", "PREAUTH"),
    "re_authorization": ("re-auth", "REAUTHORIZATION"),
    "capture": ("capture", "CAPTURE"),
    "pos_tip": ("post-tip", "POST_TIP"),
    "void": ("void", "VOID"),
    "refund": ("refund", "REFUND"),
}

#: Type of the original -> the operations that a till requests next, with their frequency. posd must refuse some of
#: them.
NEXT: Final[Mapping[str, Mapping[str, float]]] = {
    "charge": {"post-tip": 20, "refund": 35, "void": 40, "capture": 5},
    "pre-auth": {"re-auth": 25, "capture": 50, "void": 20, "refund": 5},
    "re-auth": {"re-auth": 30, "capture": 50, "void": 20},
    "capture": {"post-tip": 20, "refund": 35, "void": 40, "re-auth": 5},
}
#: Share of voids that wait for the next day, if midnight is near.
LATE_VOIDS: Final = 0.5
#: Amounts and their frequency: all, a part, too much, or no amount (if the operation permits this).
SHARES: Final[Mapping[str, float]] = {"all": 40, "part": 30, "more": 10, "none": 20}


@dataclass
class Link:
    """One operation of a chain, as stored by the till."""

    identity: str
    kind: str
    #: The requested amount in cents. None if the request has no amount.
    amount: int | None
    #: The operation from which this operation derives. None for the first operation.
    original: "Link | None" = None
    by_reference: bool = False
    repeat: bool = False
    terminal: str | None = None
    #: `approved`, `not`, `open` or `refused`. None while the till has no result.
    state: str | None = None
    reference: str | None = None

    @property
    def base(self) -> "Link | None":
        """The parent in the chain. If the request names a re-authorization, its parent is the pre-authorization."""
        original = self.original
        if original is not None and original.kind == "re-auth" and self.by_reference:
            return original.base
        return original


class Chain(Part):
    """Operations of one till after an approved payment. The basket has the stored data."""

    def __init__(self, till: "Till", basket: "Basket") -> None:
        super().__init__(till.world)
        self._till, self._basket, self._links = till, basket, basket.links

    async def run(self) -> None:
        """Do every step. After a crash of the till, continue at the interrupted step."""
        if not self._links:
            first = Link(self._basket.ids[-1], self._basket.sale.first, self._basket.sale.cents)
            await self._look(first)
            self._links.append(first)
        while True:
            waiting = [link for link in self._links if link.state is None]
            if not waiting:
                if len(self._links) > self._basket.sale.follows or not self._able():
                    return
                self._links += self._draw()
                continue
            for other in waiting[1:]:
                path = f"/v1/transactions/{other.identity}"
                self._till._beside(self._till._call_once("PUT", path, self._body(other)))
            for link in waiting:
                await self._do(link, alone=len(waiting) == 1)

    def _able(self) -> list[Link]:
        """Return the operations that may be originals."""
        return [link for link in self._links if link.state == "approved" and link.kind in NEXT]

    def _draw(self) -> Iterator[Link]:
        """Draw the next operation. Sometimes draw another operation at the same moment."""
        random = self.world.random("chain", self._basket.sale.number, len(self._links))
        count = 2 if random.random() < 0.2 else 1
        for number in range(count):
            yield self._one(random, len(self._links) + number)

    def _one(self, random: Random, number: int) -> Link:
        sale = self._basket.sale
        able = self._able()
        original = able[-1] if random.random() < 0.6 else random.choice(able)
        kind = drawn(random, NEXT[original.kind])
        share = drawn(random, SHARES)
        cents: int | None = original.amount or sale.cents
        if kind == "post-tip":
            cents = random.randrange(1, 500)
        elif share == "none" and kind in ("void", "refund"):
            cents = None
        elif share == "part" or (kind == "re-auth" and random.random() < 0.5):
            cents = random.randrange(1, sale.cents + 1)
        elif share == "more":
            cents = sale.cents * 3 + random.randrange(1, 100)
        identity, own = new_id(random), self._till.serial
        self.world.give_habit(identity, sale, 1000 + number)
        other, weights = self.world.other_serial(own), (70, 20, 10) if number == len(self._links) else (20, 10, 70)
        return Link(
            identity,
            kind,
            cents,
            original,
            by_reference=random.random() < 0.4,
            repeat=random.random() < 0.3,
            terminal=random.choices((own, None, other), weights)[0],
        )

    def _body(self, link: Link) -> dict[str, Any]:
        original = link.original
        assert original is not None
        body: dict[str, Any] = {"type": link.kind, "repeat": link.repeat, "metadata": {"of": original.identity}}
        body |= {"transaction_reference": original.reference} if link.by_reference else {"original": original.identity}
        if link.terminal is not None or link.by_reference:
            body["terminal"] = link.terminal or self._till.serial
        if link.amount is not None:
            body["amount"] = {"subtotal_iva0": f"{link.amount // 100}.{link.amount % 100:02}"}
        return body

    async def _do(self, link: Link, *, alone: bool) -> None:
        till, world = self._till, self.world
        path = f"/v1/transactions/{link.identity}"
        if link.kind == "void" and world.random("midnight", link.identity).random() < LATE_VOIDS:
            await self._midnight()
        while True:
            reply = await till.put(self._basket, path, self._body(link))
            if reply is None:
                link.state = "open"
                return
            if reply.status in (200, 201):
                if reply.status == 201:
                    self._judge(link, None)
                break
            code = reply.json["code"]
            world.seen("problem", f"{code} of {link.kind}")
            if code == "pruned":
                link.state = "approved" if reply.json["result"] == "approved" else "not"
                return
            if code == "terminal_busy":
                await till._call("GET", f"/v1/transactions/{reply.json['blocking_transaction']}/outcome?timeout=30")
                world.person.look(reply.json["blocking_transaction"])
                await asyncio.sleep(1.0)  # the operation has ended, but a call for the operation is under way
            else:
                self._refused(link, reply, alone=alone)
                return
        if world.random("chain-abort", link.identity).random() < 0.1:
            till.world.truth(link.identity).abort_wanted = True
            await till._call("POST", f"{path}/abort")
        step = await till._await(self._basket, link.identity)
        link.state = {"done": "approved", "new_id_ok": "not"}.get(step, "open")
        world.seen("chain", f"{link.kind} {link.state}")
        if link.state == "approved":
            await self._look(link)

    async def _midnight(self) -> None:
        """Wait until the next day, if midnight is near."""
        now = self.world.machine.clocks.true
        day = now.astimezone(ZoneInfo(self.world.plan.timezone)).date() + timedelta(days=1)
        midnight = datetime.combine(day, time(), ZoneInfo(self.world.plan.timezone))
        seconds = (midnight.astimezone(UTC) - now).total_seconds()
        if seconds < SOON:
            await asyncio.sleep(seconds + 5.0)

    def _judge(self, link: Link, code: str | None) -> None:
        """Check that the rules allow the code with which posd refused an operation, or None if posd accepted it."""
        if self._certain():
            wanted = refusals(link, [other for other in self._by_start() if other is not link], repeat=link.repeat)
            told = f"posd replied {code} to {link.kind} {link.identity} instead of {sorted(wanted)}"
            self.holds(code in (wanted or {None}), told)

    def _refused(self, link: Link, reply: Reply, *, alone: bool) -> None:
        """Check a refusal. The rules must allow the refusal, and its cause must exist."""
        link.state = "refused"
        self.checks.refused_start(link.identity, reply)
        if alone:
            self._judge(link, reply.json["code"])
        known = {other.identity for other in self._links}
        for other in reply.json.get("transactions", ()):
            told = f"posd refused {link.kind} {link.identity} because of {other}, which is in another chain"
            self.holds(other in known, told)

    async def _look(self, link: Link) -> None:
        """Store the outcome of an operation."""
        reply = await self._till._call("GET", f"/v1/transactions/{link.identity}")
        outcome = reply.json["outcome"] if reply.status == 200 else None
        link.state = "approved" if outcome is not None and outcome["result"] == "approved" else "open"
        link.reference = outcome and outcome["transaction_reference"]
        if link.reference is None:
            link.state = "open"  # no operation can derive from an approval without a reference

    def _by_start(self) -> list[Link]:
        """Return the chain in the order in which the operations reached a terminal.

        Two operations that start at the same moment can arrive in any order.
        """
        began = {link.identity: self.truth(link.identity).began for link in self._links}
        last = datetime.max.replace(tzinfo=UTC)
        return sorted(self._links[1:], key=lambda link: began[link.identity] or last)

    def _certain(self) -> bool:
        """Whether the till and posd agree about this chain."""
        truths = [self.truth(link.identity) for link in self._links]
        # A terminal must not end a payment itself after it asked the acquirer. If it does, the result is unknown.
        itself = (truth.identity for truth in truths if truth.end in ("TERMINAL_REJECTED", "TERMINAL_CANCELED"))
        if any(truth.doubtful for truth in truths) or any(map(self.checks.acquirer_asked, itself)):
            return False
        began = truths[0].began
        days = self.world.plan.retention_days
        if days and began is not None and self.world.machine.clocks.true - began > timedelta(days=days):
            return False  # retention may have removed the start of the chain
        return all(link.state is not None for link in self._links[:-1])
