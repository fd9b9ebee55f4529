"""A terminal of the world.

The terminal accepts starts, runs payments, delivers events by the specification's policy, and replies to calls. This
module shares no code with the daemon or the shipped simulator. Correct behaviour follows the specification. Faulty
behaviour comes from the habit of each payment.
"""

import asyncio
import json
import ssl
from collections import deque
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from datetime import UTC
from decimal import Decimal
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from uuid import UUID

import trustme

from tests.simulation.bank import Truth
from tests.simulation.chain import PATHS
from tests.simulation.habits import Habit, weights
from tests.simulation.http import Asked, Client, Reply, Server, call_once
from tests.simulation.network import End, Listening
from tests.simulation.part import Part, new_id, within
from tests.support.events import FINALS

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
#: Seconds that the terminal waits for a card.
CARD_LIMIT: Final = 90.0
#: Seconds that the acquirer takes if events were lost. posd can search for the payment in this time.
ACQUIRER_SECONDS: Final = 25.0
#: Seconds after the end of a payment until a search finds it, with the habit `late-index`.
INDEX_SECONDS: Final = 40.0

#: End of a print job -> frequency.
PRINTS: Final = weights(
    "ok 62, fails 10, no-webhook 10, refused 5, lost 5, stuck 2, odd-status 2, other-id 2, contradicts 2"
)
RESULTS_OF_END: Final = {
    "approve": "APPROVAL",
    "retry-card": "APPROVAL",
    "decline": "DECLINED",
    "reject": "TERMINAL_REJECTED",
    "cancel": "TERMINAL_CANCELED",
    "wait": "TERMINAL_REJECTED",
    "reject-late": "TERMINAL_REJECTED",
}


#: Operation's name in posd -> operation's name in the terminal's events.
WIRE: Final = dict(PATHS.values())


def _sent_under(truth: Truth) -> dict[str, str | None]:
    """Return the request's reference, if the operation's events repeat the reference (terminal API, Events)."""
    return {"transaction_reference": truth.sent_under} if truth.kind in ("re-auth", "capture") else {}


@cache
def authority() -> trustme.CA:
    """Return the authority of the terminals with TLS."""
    return trustme.CA()


@cache
def terminal_tls() -> ssl.SSLContext:
    """Return the TLS context of the terminals with TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority().issue_cert(*(f"10.0.1.{number + 1}" for number in range(64))).configure_cert(context)
    return context


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
    url: str
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

    def put(self, event: bytes) -> None:
        """Deliver an event after the earlier events."""
        self.queue.append(event)
        self.news.set()

    def end(self) -> None:
        """Record the end of the payment."""
        self.ended.set()
        self.news.set()


class Terminal(Part):
    """One terminal, with its payments and print jobs."""

    def __init__(self, world: "World", serial: str, address: str, secure: bool) -> None:
        super().__init__(world)
        self.serial, self.address, self.secure, self.on = serial, address, secure, True
        self.running: Payment | None = None
        self.known: dict[str, Payment] = {}
        #: The configured address.
        self.home = self.address
        self._listening: Listening | None = None
        self.jobs: dict[str, dict[str, Any]] = {}
        #: id -> time of an unanswered start.
        self.starting: dict[str, float] = {}
        #: id -> time of the last search.
        self.searched: dict[str, float] = {}
        #: Ids that a search has found.
        self.found: set[str] = set()
        #: Print job -> time of the end.
        self.printed: dict[str, float] = {}
        self.listen()

    @property
    def port(self) -> int:
        """The port of the terminal's API."""
        return 6869 if self.secure else 6868

    @property
    def base_url(self) -> str:
        """The base URL of the terminal's API."""
        return f"{'https' if self.secure else 'http'}://{self.address}:{self.port}"

    @property
    def announces(self) -> bool:
        """Whether posd finds the terminal by announcements."""
        return self.world.plan.announced and not self.secure

    def announce(self) -> None:
        """Announce the terminal's address."""
        self.world.air.announce(self.serial, self.serial, self.address, self.port)

    def listen(self) -> None:
        """Accept calls."""
        self._listening = self.world.network.serve(self.address, self.port, self._connected)

    def _connected(self, end: End) -> None:
        context = terminal_tls() if self.secure else None
        self.world.spawn("call", Server(end).serve(self._handle, context), f"{self.serial} call")

    def _spawn(self, work: Coroutine[Any, Any, object], name: str) -> None:
        self.world.spawn(self, work, f"{self.serial} {name}")

    # Power.

    async def power_cycle(self, seconds: float, *, forgets: bool) -> None:
        """Lose the power for a while. The terminal loses running payments. The acquirer keeps its records.

        Waiting events are in a queue. A terminal with the habit `forgets` also loses the queue.
        """
        self.on = False
        way = self.world.network.way(self.address)
        way.there = False
        if self._listening is not None:
            self._listening.close()
        way.cut()
        self.world.cancel(self)
        if (payment := self.running) is not None:
            self.running = None
            truth = self.truth(payment.identity)
            if truth.end is None:
                truth.end = RESULTS_OF_END[payment.habit.end] if payment.sent else "GONE"
                truth.ended = self.world.now
            payment.end()
        for payment in self.known.values():
            if forgets:
                payment.queue.clear()
        await asyncio.sleep(seconds)
        way.there = True
        self.listen()
        self.on = True
        for payment in self.known.values():
            if payment.queue:
                self._spawn(self._deliver_all(payment), "replay")

    def move(self, address: str) -> None:
        """Change the terminal's address."""
        if self._listening is not None:
            self._listening.close()
        self.world.network.way(self.address).cut()
        self.address = address
        if self.on:
            self.listen()

    # Calls to the terminal.

    async def _handle(self, asked: Asked, server: Server) -> None:
        path = asked.target.partition("?")[0]
        self.world.note(self.serial, "called", asked.method, path, asked.body)
        if path.endswith("/abort"):
            await self._abort(server)
        elif path.endswith("/transaction_search_online"):
            await self._search(json.loads(asked.body)["client_transaction_id"], server)
        elif path.endswith("/print"):
            await self._print(json.loads(asked.body), server)
        elif path.endswith("/print_job"):
            self._print_job(asked.target.rpartition("=")[2], server)
        else:
            await self._start(path.rpartition("/")[2], asked, server)

    async def _start(self, operation: str, asked: Asked, server: Server) -> None:
        request = json.loads(asked.body, parse_float=Decimal)
        identity = request["client_transaction_id"]
        truth = self.truth(identity)
        truth.starts.append(self.serial)
        truth.began = self.world.machine.clocks.true
        amount = request.get("amount") or {}
        truth.amount = Decimal(sum(value for value in amount.values() if isinstance(value, int | Decimal)))
        truth.kind, truth.sent_under = PATHS[operation][0], request.get("transaction_reference")
        if truth.sent_under is not None:
            self._derive(truth)
        self.checks.start(truth)
        habit = self.world.habit_of(identity)
        random = self.world.random("terminal", identity)
        if self.running is not None:
            self.seen("start", "busy")
            self.checks.busy(self.running, identity)
            truth.refused, truth.end = True, truth.end or "REFUSED"
            server.answer(409, self._error("TER-003", "busy"))
            return
        self.seen("reply", habit.reply)
        self.seen("end", habit.end)
        payment = Payment(identity, self.serial, habit, random, request.get("events_webhook_url", ""), request)
        if habit.runs:
            self.known[identity] = self.running = payment
            self._spawn(self._run(payment), f"run {identity}")
            self._spawn(self._deliver_all(payment), f"deliver {identity}")
        else:
            truth.end = "REFUSED"
        self.starting[identity] = self.world.now
        try:
            await self._answer_start(payment, server)
        finally:
            del self.starting[identity]

    def _derive(self, truth: Truth) -> None:
        """Find the original of an operation by the request's reference, as the acquirer does."""
        bank = self.world.bank
        truth.original = bank.references.get(truth.sent_under or "")
        base = truth.base
        if base is None:
            self.checks.fail(f"posd sent {truth.kind} {truth.identity} under a reference that no approval has")
            return
        if not truth.amount:
            truth.amount = bank.charged(base)
        if len(truth.starts) == 1:
            bank.derived.append((base, truth))

    async def _answer_start(self, payment: Payment, server: Server) -> None:
        habit, truth, random = payment.habit, self.truth(payment.identity), payment.random
        self.world.note(self.serial, "answers", payment.identity, habit.reply)
        ack = {
            "status": "TERMINAL_ACKNOWLEDGED",
            "previous_status": "",
            "event_id": new_id(random),
            "client_transaction_id": payment.identity,
            "operation": {"type": truth.kind} | _sent_under(truth),
            "terminal": {"serialNumber": self.serial, "model": "M", "terminal_id": "T"},
        }
        await asyncio.sleep(0.05 + random.random() * 0.2)
        match habit.reply.removesuffix("-runs"):
            case "slow":
                await asyncio.sleep(random.uniform(1.0, self.world.plan.reply_timeout * 0.9))
            case "late-ack":
                await within(self.world.plan.reply_timeout * 0.8, payment.ended.wait())
            case "other-id":
                ack["client_transaction_id"] = new_id(random)
                ack["operation"] = {"client_transaction_id": ack["client_transaction_id"]}
            case "wrong-serial":
                ack["terminal"] = {"serialNumber": self.world.other_serial(self.serial), "model": "M"}
            case "error-in-200":
                server.answer(200, self._error("TER-004", "cannot"))
                return
            case "refused":
                truth.refused = True
                truth.lied |= habit.runs
                server.answer(random.choice((400, 401, 409, 422)), self._error("PAR-003", "no"))
                return
        await self._answer(server, json.dumps(ack).encode(), habit.reply.removesuffix("-runs"))

    async def _answer(self, server: Server, body: bytes, fault: str) -> None:
        """Reply, or make a fault of the connection or of the reply."""
        match fault:
            case "lost":
                server.end.abort()
            case "silent":
                await asyncio.sleep(120)
                server.end.abort()
            case "cut":
                server.end.write(f"HTTP/1.1 200 OK\r\ncontent-length: {len(body) + 30}\r\n\r\n".encode() + body[:30])
                server.end.close()
            case "html":
                server.answer(200, b"<html>welcome</html>", content_type="text/html")
            case "missing":
                server.answer(404)
            case "failed":
                server.answer(500, self._error("TER-004", "failed"))
            case _:
                server.answer(200, body)

    @staticmethod
    def _error(code: str, message: str) -> bytes:
        return json.dumps({"type": "TERMINAL", "code": code, "message": message}).encode()

    # Course of a payment.

    async def _run(self, payment: Payment) -> None:
        random, habit = payment.random, payment.habit
        await asyncio.sleep(random.uniform(1.0, 2.0))
        self._emit(payment, "TERMINAL_ACKNOWLEDGED")
        if habit.end == "cancel":
            end = await self._until_aborted(payment, random.uniform(0.5, 6.0)) or "TERMINAL_CANCELED"
        elif habit.end == "wait":
            end = await self._until_aborted(payment, CARD_LIMIT) or "TERMINAL_REJECTED"
        else:
            end = await self._with_card(payment)
        self._emit(payment, end)
        payment.end()
        if self.running is payment:
            self.running = None

    async def _with_card(self, payment: Payment) -> str:
        random, habit = payment.random, payment.habit
        # A payment without events ends quickly, before the first search for the payment.
        longest = 3.0 if habit.events == "none-comes" else 15.0
        if end := await self._until_aborted(payment, random.uniform(2.0, longest)):
            return end
        payment.reading = True
        self._emit(payment, "CARD_PRESENTED")
        if habit.end == "retry-card":
            if end := await self._until_aborted(payment, random.uniform(1.0, 5.0)):
                return end
            self._emit(payment, "CARD_PRESENTED")
        if end := await self._until_aborted(payment, random.uniform(0.5, 4.0)):
            return end
        if habit.end == "reject":
            return "TERMINAL_REJECTED"
        payment.sent = True
        self._emit(payment, "APPROVAL_REQUESTED")
        await asyncio.sleep(random.uniform(0.5, 6.0) + (ACQUIRER_SECONDS if habit.events == "some-lost" else 0.0))
        return RESULTS_OF_END[habit.end]

    @staticmethod
    async def _until_aborted(payment: Payment, seconds: float) -> str | None:
        if not await within(seconds, payment.aborted.wait()):
            return None
        if payment.habit.abort == "raced":
            payment.aborted.clear()
            return None
        return "TERMINAL_CANCELED"

    def _emit(self, payment: Payment, status: str) -> None:
        """Record a step of a payment, and start the delivery of its event."""
        truth, habit, random = self.truth(payment.identity), payment.habit, payment.random
        event = self._event(payment, status)
        payment.previous, payment.newest = payment.newest, event
        payment.status = status
        self._emit_extra(payment, status, event)
        if status in FINALS:
            truth.end, truth.at = status, self.world.machine.clocks.true
            truth.ended = self.world.now
            payment.final = event
        self.world.note(self.serial, "state", payment.identity, status)
        self.seen("events", habit.events)
        kind = habit.events
        final = status in FINALS
        if kind == "none-comes" or (kind == "final-lost" and final):
            return
        if kind == "some-lost" and not final and random.random() < 0.5:
            return
        if kind == "unknown-status" and status == "CARD_PRESENTED":
            payment.put(self._event(payment, "PIN_REQUESTED"))
        if kind == "damaged" and final:
            event = event.replace(b'"brand": "B', b'"brand": "\xff')
        if kind == "broken" and final:
            truth.lied = True  # posd refuses every event for good, so only a search gives the end
            event = event[: len(event) - 20]
        if kind == "wrong-serial":
            event = event.replace(self.serial.encode(), self.world.other_serial(self.serial).encode())
        if kind == "foreign" and final:
            self._spawn(self._once(payment, event.replace(self.serial.encode(), b"SN-FOREIGN")), "foreign")
        if kind == "flood" and final:
            if random.random() < HUGE:
                self._spawn(self._flood(payment), "flood")
            else:
                for _ in range(40):
                    payment.put(self._event(payment, "CARD_PRESENTED"))
        if kind == "shuffled":
            self._spawn(self._deliver(payment, event, random.uniform(0, 20.0)), "shuffled")
            return
        if kind == "late":
            self._spawn(self._deliver(payment, event, random.uniform(5, 60.0)), "late")
            return
        payment.put(event)
        if kind == "twice":
            self._spawn(self._deliver(payment, event, random.uniform(0, 30.0)), "twice")
        if kind == "id-reused" and final:
            other = event.replace(b'"brand": "B', b'"brand": "C')
            self._spawn(self._deliver(payment, other, random.uniform(5, 20.0)), "id reused")
        if kind == "contradicted" and final:
            truth.lied = True
            other = self._event(payment, "DECLINED" if status == "APPROVAL" else "APPROVAL")
            self._spawn(self._deliver(payment, other, random.uniform(0, 20.0)), "contradiction")

    def _emit_extra(self, payment: Payment, status: str, event: bytes) -> None:
        """Send a message that must not count as an event of the payment, or send a step after the end."""
        random, kind = self.world.random("extra", payment.identity), payment.habit.extra
        wait = random.uniform(0.5, 20.0)
        fresh = event.replace(
            event[event.index(b'"event_id"') :][13:49], str(UUID(int=random.getrandbits(128))).encode()
        )
        if kind == "after-final" and status in FINALS:
            step = fresh.replace(f'"status": "{status}"'.encode(), b'"status": "CARD_PRESENTED"', 1)
            self._spawn(self._deliver(payment, step, wait), kind)
        if status != "TERMINAL_ACKNOWLEDGED":
            return
        forged, url = fresh.replace(status.encode(), b"DECLINED"), payment.url
        match kind:
            case "wrong-token":
                url = f"{url[:-1]}{'A' if url[-1] != 'A' else 'B'}"
            case "other-payment":
                forged = forged.replace(payment.identity.encode(), str(UUID(int=random.getrandbits(128))).encode())
            case "other-merchant":
                forged = forged.replace(b"M-1", b"M-2")
            case "other-terminal":
                forged = forged.replace(self.serial.encode(), b"SN-FOREIGN")
            case "too-large":
                forged += b" " * 1_200_000
            case _:
                return
        self._spawn(self._intrude(payment, url, forged, wait), kind)

    async def _intrude(self, payment: Payment, url: str, body: bytes, after: float) -> None:
        await asyncio.sleep(after)
        if (reply := await self.post(url, body)) is not None:
            self.checks.intruder(payment.identity, payment.habit.extra, reply)

    def _event(self, payment: Payment, status: str) -> bytes:
        random = payment.random
        at = self.world.machine.clocks.true.astimezone(UTC).isoformat(timespec="milliseconds")[:-6] + "Z"
        document: dict[str, Any] = {
            "event_id": new_id(random),
            "occurred_at": at,
            "status": status,
            "merchant_id": "M-1",
            "client_transaction_id": payment.identity,
            "terminal": {"serial_number": self.serial, "brand": "Brand", "model": "Model"},
        }
        if payment.status is not None:
            document["previous_status"] = payment.status
        if payment.reading:
            document["reading_type"] = "CONTACTLESS"
        if status in ("DECLINED", "TERMINAL_REJECTED"):
            document["failure_reason"] = {"type": "TERMINAL", "code": "51", "message": "no"}
        truth = self.truth(payment.identity)
        if status in FINALS and status != "DECLINED":
            amount = {"currency": "USD", "subtotal_iva0": float(self.truth(payment.identity).amount), "tip": 0}
            document["operation"] = {
                "type": WIRE[truth.kind],
                "client_transaction_id": payment.identity,
                "amount": amount,
                "metadata": payment.request.get("metadata") or {},
            } | _sent_under(truth)
        if status == "APPROVAL":
            reference = new_id(random)
            self.world.bank.references[reference] = truth
            times = {"other-amount": Decimal("1.25"), "unlikely": Decimal(100)}.get(payment.habit.events, Decimal(1))
            document["raw_response"] = {
                "transaction_reference": reference if payment.habit.events != "no-reference" else None,
                "ticket_number": f"{random.randrange(10**6):06}",
                "authorized_amount": float(truth.amount * times),
                "card_type": "credit",
                "message_fields": {"F38": "A1B2C3", "F39": "00"},
            }
        return json.dumps(document, default=str).encode()

    # Delivery (terminal API, Delivery).

    async def _deliver_all(self, payment: Payment) -> None:
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
            status = await self._once(payment, event)
            if status is not None and status not in RETRIED:
                return
            delay = min(CAP, BASE * 2.0**attempt) + payment.random.random() * BASE
            if self.world.now + delay - began > WINDOW:
                return
            await asyncio.sleep(delay)

    def repeat_final(self, identity: str) -> None:
        """Send the final event of a payment again.

        A terminal repeats this event if the terminal was offline when the payment ended.
        """
        payment = self.known.get(identity)
        if self.on and payment is not None and payment.final:
            self._spawn(self._deliver(payment, payment.final), "repeated final")

    async def _once(self, payment: Payment, event: bytes) -> int | None:
        """Make one attempt. Return the status of the reply, or None if no reply arrives."""
        status = event.partition(b'"status": "')[2].partition(b'"')[0].decode()
        if status in FINALS:
            self.truth(payment.identity).said.append(status)
        began = self.world.now
        reply = await self.post(payment.url, event)
        if reply is None:
            return None
        self.checks.event(payment, event, reply, began)
        return reply.status

    async def _flood(self, payment: Payment) -> None:
        """Send events without end on several connections that stay open. Each event is sent once."""
        events = (self._event(payment, "CARD_PRESENTED") for _ in range(HUGE_EVENTS))
        await asyncio.gather(*(self._pour(payment, events) for _ in range(HUGE_CONNECTIONS)))

    async def _pour(self, payment: Payment, events: Iterator[bytes]) -> None:
        place, path = _parts(payment.url)
        client = None
        try:
            client = Client(await self.world.network.dial(self.address, place))
            for event in events:
                began = self.world.now
                async with asyncio.timeout(PATIENCE):
                    reply = await client.call("POST", path, event)
                self.checks.event(payment, event, reply, began)
        except OSError:
            return
        finally:
            if client is not None:
                client.end.close()

    async def post(self, url: str, body: bytes) -> Reply | None:
        """Send a POST to the machine. Return None if no reply arrives."""
        (place, path), began = _parts(url), self.world.now
        reply = await call_once(self.world.network, self.address, place, PATIENCE, "POST", path, body)
        if reply is not None or place[0] == self.world.network.machine:
            self.checks.delivered(self.serial, began, reply)
        self.world.note(self.serial, "posted", reply and reply.status, body)
        return reply

    # Replies to calls.

    async def _abort(self, server: Server) -> None:
        payment = self.running
        if payment is None:
            server.answer(409)
            return
        self.seen("abort", payment.habit.abort)
        if payment.habit.abort == "slow":
            await asyncio.sleep(self.world.plan.reply_timeout * 0.8)
            if server.end.is_closing():
                return  # the daemon that made the call was killed, and the new daemon has no call under way
            if (payment := self.running) is None:
                server.answer(409)
                return
        self.checks.abort(payment)
        self.world.note(self.serial, "stops", payment.identity, payment.habit.abort)
        truth = self.truth(payment.identity)
        if payment.habit.abort == "nothing":
            truth.lied = True
            server.answer(409)
            return
        if payment.habit.abort not in ("silent", "failed", "ignored"):
            payment.aborted.set()
        said = b"{}" if payment.habit.abort == "empty" else b'{"status": "ABORTED"}'
        await self._answer(server, said, payment.habit.abort)

    async def _search(self, identity: str, server: Server) -> None:
        payment = self.known.get(identity)
        habit = self.world.habit_of(identity)
        self.searched[identity] = self.world.now
        self.seen("search", habit.search)
        self.world.note(self.serial, "finds", identity, habit.search)
        truth = self.truth(identity)
        found: list[Any] = []
        if payment is not None:
            if not payment.final and truth.end in FINALS:
                payment.final = self._event(payment, truth.end)
            known = payment.final or (payment.newest if payment.sent else b"")
            found = [json.loads(known)] if known else []
        match habit.search:
            case "none" | "missing" | "failed" | "html" | "cut" | "silent":
                found = []
            case "stale":
                found = [json.loads(payment.previous)] if payment is not None and payment.previous else []
            case "another":
                found = [json.loads(next(iter(self.known.values())).newest or b"{}")] if self.known else []
                found = [item for item in found if item.get("client_transaction_id") != identity and item]
            case "late-index" if truth.ended is None or self.world.now - truth.ended < INDEX_SECONDS:
                found = []
            case "contradicts" if payment is not None and payment.final:
                truth.lied = True
                status = "DECLINED" if truth.end == "APPROVAL" else "APPROVAL"
                found = [json.loads(self._event(payment, status))]
        for item in found:
            if item.get("client_transaction_id") == identity and item["status"] in FINALS:
                truth.said.append(item["status"])
        if any(item.get("client_transaction_id") == identity for item in found):
            self.found.add(identity)
        # This terminal never finds an ended payment. The replies of such a terminal could prove that a payment never
        # started.
        none = habit.search in ("none", "another") and not found and truth.end in FINALS
        truth.lied |= none and self.world.plan.confirmed
        await self._answer(server, json.dumps(found).encode(), habit.search)

    # Print jobs.

    async def _print(self, request: dict[str, Any], server: Server) -> None:
        identity = request["printJobId"]
        random = self.world.random("print", identity)
        self.checks.print_start(identity)
        self.jobs[identity] = {"printJobId": identity, "status": "PENDING", "externalReference": ""}
        kind = random.choices(list(PRINTS), list(PRINTS.values()))[0]
        self.seen("print", kind)
        if kind == "refused":
            del self.jobs[identity]
            server.answer(422, self._error("PAR-001", "no"))
            return
        self._spawn(self._printing(request, random, kind), f"print {identity}")
        if kind == "lost":
            server.end.abort()
            return
        server.answer(202, json.dumps(self.jobs[identity]).encode())

    async def _printing(self, request: dict[str, Any], random: Random, kind: str) -> None:
        job = self.jobs[request["printJobId"]]
        await asyncio.sleep(random.uniform(0.5, 3.0))
        job["status"] = "IN_PROGRESS"
        await asyncio.sleep(random.uniform(0.5, 5.0))
        if kind == "stuck":
            return
        if kind == "fails":
            job |= {"status": "FAILED", "errorCode": "PAPER", "errorMessage": "no paper"}
        else:
            job["status"] = "COMPLETED"
        if kind == "odd-status":
            await self.post(request["webhookUrl"], json.dumps(job | {"status": "JAMMED"}).encode())
        if kind == "other-id":
            await self.post(request["webhookUrl"], json.dumps(job | {"printJobId": "another"}).encode())
        self.printed[request["printJobId"]] = self.world.now
        if kind != "no-webhook":
            await self.post(request["webhookUrl"], json.dumps(job).encode())
        if kind == "contradicts":
            await self.post(request["webhookUrl"], json.dumps(job | {"status": "FAILED"}).encode())

    def _print_job(self, identity: str, server: Server) -> None:
        job = self.jobs.get(identity)
        if job is None:
            server.answer(404)
        else:
            server.answer(200, json.dumps(job).encode())
