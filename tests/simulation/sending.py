"""The events of payments at a terminal, and their delivery by the specification's policy.

The habit of each payment decides which events are lost, late, damaged or forged.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from posd.base.times import iso
from tests.rig.events import FINALS, body
from tests.rig.streams import Reply
from tests.simulation.bank import Truth
from tests.simulation.chain import PATHS
from tests.simulation.ends import status_of
from tests.simulation.habits import Habit
from tests.simulation.http import Client, call_once
from tests.simulation.part import Part, new_id

if TYPE_CHECKING:
    from tests.simulation.world import World

#: Delivery of an event (terminal API, Delivery): attempts, window in seconds, base and cap of the backoff in seconds.
ATTEMPTS: Final = 10
WINDOW: Final = 900.0
BASE, CAP = 2.0, 60.0
#: Seconds that the terminal waits for the reply to an event. The terminal API gives no number.
PATIENCE: Final = 10.0
#: Statuses after which the terminal sends an event again (terminal API, Delivery).
RETRIED: Final = frozenset({408, 429, 500, 502, 503, 504})
#: Share of floods that continue until posd stores no more events. The next constants are the numbers of events and of
#: connections in such a flood.
HUGE, HUGE_EVENTS, HUGE_CONNECTIONS = 0.8, 190, 8
#: Habits of events that come at any time -> earliest and latest second.
LATER: Final = {"shuffled": (0, 20.0), "late": (5, 60.0)}
#: Operation's name in posd -> operation's name in the terminal's events.
WIRE: Final = dict(PATHS.values())


def sent_under(truth: Truth) -> dict[str, str | None]:
    """Return the request's reference, if the operation's events repeat the reference (terminal API, Events)."""
    return {"transaction_reference": truth.sent_under} if truth.kind in ("re-auth", "capture") else {}


def opposite(status: str | None) -> str:
    """Return a final state that contradicts another."""
    return "DECLINED" if status == "APPROVAL" else "APPROVAL"


def _parts(url: str) -> tuple[tuple[str, int], str]:
    """Return the place and the path of a callback URL."""
    parts = urlsplit(url)
    assert parts.scheme == "https", url
    return (parts.hostname or "", parts.port or 0), parts.path


@dataclass
class Payment:
    """One payment at a terminal."""

    identity: str
    serial: str
    habit: Habit
    random: Random
    request: dict[str, Any]
    status: str | None = None
    newest: bytes = b""
    previous: bytes = b""
    final: bytes = b""
    sent: bool = False
    reading: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    aborted: asyncio.Event = field(default_factory=asyncio.Event)
    #: Undelivered events, in order, and the event that is set when there are more, or when the payment ends.
    queue: deque[bytes] = field(default_factory=deque)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        """The callback URL."""
        return str(self.request.get("events_webhook_url", ""))

    def put(self, event: bytes) -> None:
        """Deliver an event after the earlier events."""
        self.queue.append(event)
        self.news.set()

    def end(self) -> None:
        """Record the end of the payment."""
        self.ended.set()
        self.news.set()


class Sender(Part):
    """The part of a terminal that sends events."""

    def __init__(self, world: "World", serial: str, address: str) -> None:
        super().__init__(world)
        self.serial, self.address = serial, address

    def spawn(self, work: Coroutine[Any, Any, object], name: str) -> None:
        """Run a task of the terminal until the terminal loses its power."""
        self.world.spawn(self, work, f"{self.serial} {name}")

    def emit(self, payment: Payment, status: str) -> None:
        """Record a step of a payment, and start the delivery of its event."""
        truth, random = self.truth(payment.identity), payment.random
        kind, final, event = payment.habit.events, status in FINALS, self.event(payment, status)
        payment.previous, payment.newest, payment.status = payment.newest, event, status
        self._emit_extra(payment, status, event)
        if final:
            truth.end, truth.at, truth.ended = status, self.world.machine.clocks.true, self.world.now
            payment.final = event
        self.world.note(self.serial, "state", payment.identity, status)
        self.seen("events", kind)
        if kind == "none-comes" or (kind == "final-lost" and final):
            return
        if kind == "some-lost" and not final and random.random() < 0.5:
            return
        if kind == "unknown-status" and status == "CARD_PRESENTED":
            payment.put(self.event(payment, "PIN_REQUESTED"))
        if kind == "damaged" and final:
            event = event.replace(b'"brand": "B', b'"brand": "\xff')
        if kind == "broken" and final:
            truth.lied = True  # posd refuses every event for good, so only a search gives the end
            event = event[: len(event) - 20]
        if kind == "wrong-serial":
            event = event.replace(self.serial.encode(), self.world.other_serial(self.serial).encode())
        if kind == "foreign" and final:
            self.spawn(self._once(payment, event.replace(self.serial.encode(), b"SN-FOREIGN")), "foreign")
        if kind == "flood" and final:
            if random.random() < HUGE:
                self.spawn(self._flood(payment), "flood")
            else:
                for _ in range(40):
                    payment.put(self.event(payment, "CARD_PRESENTED"))
        if kind in LATER:
            self._deliver_later(payment, event, *LATER[kind])
            return
        payment.put(event)
        if kind == "twice":
            self._deliver_later(payment, event, 0, 30.0)
        if kind == "id-reused" and final:
            self._deliver_later(payment, event.replace(b'"brand": "B', b'"brand": "C'), 5, 20.0)
        if kind == "contradicted" and final:
            truth.lied = True
            self._deliver_later(payment, self.event(payment, opposite(status)), 0, 20.0)

    def _deliver_later(self, payment: Payment, event: bytes, earliest: float, latest: float) -> None:
        self.spawn(self._deliver(payment, event, payment.random.uniform(earliest, latest)), "later")

    def _emit_extra(self, payment: Payment, status: str, event: bytes) -> None:
        """Send a message that must not count as an event of the payment, or send a step after the end."""
        random, kind = self.world.random("extra", payment.identity), payment.habit.extra
        wait = random.uniform(0.5, 20.0)
        fresh = event.replace(event[event.index(b'"event_id"') :][13:49], new_id(random, version=None).encode())
        if kind == "after-final" and status in FINALS:
            step = fresh.replace(f'"status": "{status}"'.encode(), b'"status": "CARD_PRESENTED"', 1)
            self.spawn(self._deliver(payment, step, wait), kind)
        if status != "TERMINAL_ACKNOWLEDGED":
            return
        forged, url = fresh.replace(status.encode(), b"DECLINED"), payment.url
        match kind:
            case "wrong-token":
                url = f"{url[:-1]}{'A' if url[-1] != 'A' else 'B'}"
            case "other-payment":
                forged = forged.replace(payment.identity.encode(), new_id(random, version=None).encode())
            case "other-merchant":
                forged = forged.replace(b"M-1", b"M-2")
            case "other-terminal":
                forged = forged.replace(self.serial.encode(), b"SN-FOREIGN")
            case "too-large":
                forged += b" " * 1_200_000
            case _:
                return
        self.spawn(self._intrude(payment, url, forged, wait), kind)

    async def _intrude(self, payment: Payment, url: str, body: bytes, after: float) -> None:
        await asyncio.sleep(after)
        if (reply := await self.post(url, body)) is not None:
            self.checks.intruder(payment.identity, payment.habit.extra, reply)

    def event(self, payment: Payment, status: str) -> bytes:
        """Return an event (terminal API, Events)."""
        random, truth = payment.random, self.truth(payment.identity)
        fields: dict[str, Any] = {
            "event_id": new_id(random),
            "occurred_at": iso(self.world.machine.clocks.true),
            "reading_type": "CONTACTLESS" if payment.reading else None,
        }
        if status in FINALS and status != "DECLINED":
            fields["operation"] = {
                "type": WIRE[truth.kind],
                "client_transaction_id": payment.identity,
                "amount": {"currency": "USD", "subtotal_iva0": float(truth.amount), "tip": 0},
                "metadata": payment.request.get("metadata") or {},
                "events_webhook_url": payment.url,
            } | sent_under(truth)
        if status == "APPROVAL":
            reference = new_id(random)
            self.world.bank.references[reference] = truth
            times = {"other-amount": Decimal("1.25"), "unlikely": Decimal(100)}.get(payment.habit.events, Decimal(1))
            fields["raw_response"] = {
                "transaction_reference": reference if payment.habit.events != "no-reference" else None,
                "ticket_number": f"{random.randrange(10**6):06}",
                "authorized_amount": float(self.world.bank.reported(truth) * times),
                "card_type": "credit",
                "message_fields": {"F38": "A1B2C3", "F39": "00"},
            }
        return body(payment.identity, status, payment.status, self.serial, **fields)

    # Delivery (terminal API, Delivery).

    async def deliver_all(self, payment: Payment) -> None:
        """Deliver a payment's events in order, until the payment has ended and all events are delivered."""
        while payment.queue or not payment.ended.is_set():
            if payment.queue:
                await self._deliver(payment, payment.queue[0])
                payment.queue.popleft()  # after a power loss the attempts begin again
            else:
                payment.news.clear()
                await payment.news.wait()

    async def _deliver(self, payment: Payment, event: bytes, after: float = 0.0) -> None:
        await asyncio.sleep(after)
        began = self.world.now
        for attempt in range(ATTEMPTS):
            reply = await self._once(payment, event)
            delay = min(CAP, BASE * 2.0**attempt)
            if reply is not None and reply.status not in RETRIED:
                return
            delay += payment.random.random() * BASE
            if self.world.now + delay - began > WINDOW:
                return
            await asyncio.sleep(delay)

    def repeat_final(self, payment: Payment) -> None:
        """Send the final event again.

        A terminal repeats this event if the terminal was offline when the payment ended.
        """
        self.spawn(self._deliver(payment, payment.final), "repeated final")

    async def _once(self, payment: Payment, event: bytes) -> Reply | None:
        """Make one attempt. Return None if no reply arrives."""
        if (status := status_of(event)) in FINALS:
            self.truth(payment.identity).said.append(status)
        began = self.world.now
        if (reply := await self.post(payment.url, event)) is not None:
            self.checks.event(payment, event, reply, began)
        return reply

    async def _flood(self, payment: Payment) -> None:
        """Send events without end on several connections that stay open. Each event is sent once."""
        events = (self.event(payment, "CARD_PRESENTED") for _ in range(HUGE_EVENTS))
        await asyncio.gather(*(self._pour(payment, events) for _ in range(HUGE_CONNECTIONS)))

    async def _pour(self, payment: Payment, events: Iterator[bytes]) -> None:
        place, path = _parts(payment.url)
        with suppress(OSError), closing(await self.world.network.dial(self.address, place)) as end:
            client = Client(end)
            for event in events:
                began = self.world.now
                async with asyncio.timeout(PATIENCE):
                    reply = await client.call("POST", path, event)
                self.checks.event(payment, event, reply, began)

    async def post(self, url: str, body: bytes) -> Reply | None:
        """Send a POST to the machine. Return None if no reply arrives."""
        (place, path), began = _parts(url), self.world.now
        reply = await call_once(self.world.network.dial(self.address, place), PATIENCE, "POST", path, body)
        if reply is not None or place[0] == self.world.network.machine:
            self.checks.delivered(self.serial, began, reply)
        self.world.note(self.serial, "posted", reply and reply.status, body)
        return reply
