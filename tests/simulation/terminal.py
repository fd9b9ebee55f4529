"""A terminal of the world.

The terminal accepts starts, runs payments, and replies to calls. This module shares no code with the daemon or the
shipped simulator. Correct behaviour follows the specification. Faulty behaviour comes from the habit of each payment.
"""

import asyncio
import json
import ssl
from decimal import Decimal
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Any, Final

import trustme

from tests.rig.events import FINALS
from tests.simulation.bank import Truth
from tests.simulation.chain import PATHS
from tests.simulation.ends import status_of
from tests.simulation.habits import drawn, weights
from tests.simulation.http import Server
from tests.simulation.part import new_id, within
from tests.simulation.sending import Payment, Sender, opposite, sent_under

if TYPE_CHECKING:
    from tests.simulation.world import World

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
#: Habit of the end -> final state. All others are rejected by the terminal.
RESULTS_OF_END: Final = {"approve": "APPROVAL", "retry-card": "APPROVAL", "decline": "DECLINED"}


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


def _error(code: str, message: str) -> bytes:
    return json.dumps({"type": "TERMINAL", "code": code, "message": message}).encode()


class Terminal(Sender):
    """One terminal, with its payments and print jobs."""

    def __init__(self, world: "World", number: int) -> None:
        super().__init__(world, world.plan.serial(number), f"10.0.1.{number + 1}")
        self.secure, self.on = number in world.plan.secure, True
        #: The configured address, and the port of the terminal's API.
        self.home, self.port = self.address, 6869 if self.secure else 6868
        #: Whether posd finds the terminal by announcements.
        self.announces = world.plan.announced and not self.secure
        self.running: Payment | None = None
        self.known: dict[str, Payment] = {}
        self.jobs: dict[str, dict[str, Any]] = {}
        #: id -> time of an unanswered start.
        self.starting: dict[str, float] = {}
        #: id -> time of the last search.
        self.searched: dict[str, float] = {}
        #: Ids that a search has found.
        self.found: set[str] = set()
        #: Print job -> time of the end.
        self.printed: dict[str, float] = {}
        self._listen()

    @property
    def base_url(self) -> str:
        """The base URL of the terminal's API."""
        return f"{'https' if self.secure else 'http'}://{self.address}:{self.port}"

    def announce(self) -> None:
        """Announce the terminal's address."""
        self.world.air.announce(self.serial, self.serial, self.address, self.port)

    def _listen(self) -> None:
        context = terminal_tls() if self.secure else None
        self._listening = self.world.serve((self.address, self.port), self._handle, self.serial, context)

    async def power_cycle(self, seconds: float, *, forgets: bool) -> None:
        """Lose the power for a while. The terminal loses running payments. The acquirer keeps its records.

        Waiting events are in a queue. A terminal with the habit `forgets` also loses the queue.
        """
        way, self.on = self.world.network.way(self.address), False
        way.there = False
        self._listening.close()
        way.cut()
        self.world.cancel(self)
        if (payment := self.running) is not None:
            self.running = None
            truth = self.truth(payment.identity)
            if truth.end is None:
                truth.end = RESULTS_OF_END.get(payment.habit.end, "TERMINAL_REJECTED") if payment.sent else "GONE"
                truth.ended = self.world.now
            payment.end()
        for payment in self.known.values():
            if forgets:
                payment.queue.clear()
        await asyncio.sleep(seconds)
        way.there = self.on = True
        self._listen()
        for payment in self.known.values():
            if payment.queue:
                self.spawn(self.deliver_all(payment), "replay")

    def move(self, address: str) -> None:
        """Change the terminal's address."""
        self._listening.close()
        self.world.network.way(self.address).cut()
        self.address = address
        if self.on:
            self._listen()

    # Starts.

    async def _handle(self, method: str, target: str, body: bytes, server: Server) -> None:
        path = target.partition("?")[0]
        self.world.note(self.serial, "called", method, path, body)
        if path.endswith("/abort"):
            await self._abort(server)
        elif path.endswith("/transaction_search_online"):
            await self._search(json.loads(body)["client_transaction_id"], server)
        elif path.endswith("/print"):
            self._print(json.loads(body), server)
        elif path.endswith("/print_job"):
            job = self.jobs.get(target.rpartition("=")[2])
            server.answer(404 if job is None else 200, b"" if job is None else json.dumps(job).encode())
        else:
            await self._start(path.rpartition("/")[2], body, server)

    async def _start(self, operation: str, body: bytes, server: Server) -> None:
        request = json.loads(body, parse_float=Decimal)
        identity = request["client_transaction_id"]
        truth, habit = self.truth(identity), self.world.habit_of(identity)
        truth.starts.append(self.serial)
        truth.began = self.world.machine.clocks.true
        amounts = (request.get("amount") or {}).values()
        truth.amount = Decimal(sum(value for value in amounts if isinstance(value, int | Decimal)))
        truth.kind, truth.sent_under = PATHS[operation][0], request.get("transaction_reference")
        if truth.sent_under is not None:
            self._derive(truth)
        self.checks.start(truth)
        if self.running is not None:
            self.seen("start", "busy")
            self.checks.busy(self.running, identity)
            truth.refused, truth.end = True, truth.end or "REFUSED"
            server.answer(409, _error("TER-003", "busy"))
            return
        self.seen("reply", habit.reply)
        self.seen("end", habit.end)
        payment = Payment(identity, self.serial, habit, self.world.random("terminal", identity), request)
        if habit.runs:
            self.known[identity] = self.running = payment
            self.spawn(self._run(payment), f"run {identity}")
            self.spawn(self.deliver_all(payment), f"deliver {identity}")
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
        if (base := truth.base) is None:
            self.checks.fail(f"posd sent {truth.kind} {truth.identity} under a reference that no approval has")
            return
        truth.amount = truth.amount or bank.charged(base)
        if len(truth.starts) == 1:
            bank.derived.append((base, truth))

    async def _answer_start(self, payment: Payment, server: Server) -> None:
        habit, truth, random = payment.habit, self.truth(payment.identity), payment.random
        reply, timeout = habit.reply.removesuffix("-runs"), self.world.plan.reply_timeout
        self.world.note(self.serial, "answers", payment.identity, habit.reply)
        ack = {
            "status": "TERMINAL_ACKNOWLEDGED",
            "previous_status": "",
            "event_id": new_id(random),
            "client_transaction_id": payment.identity,
            "operation": {"type": truth.kind} | sent_under(truth),
            "terminal": {"serialNumber": self.serial, "model": "M", "terminal_id": "T"},
        }
        await asyncio.sleep(0.05 + random.random() * 0.2)
        match reply:
            case "slow":
                await asyncio.sleep(random.uniform(1.0, timeout * 0.9))
            case "late-ack":
                await within(timeout * 0.8, payment.ended.wait())
            case "other-id":
                ack["client_transaction_id"] = new_id(random)
                ack["operation"] = {"client_transaction_id": ack["client_transaction_id"]}
            case "wrong-serial":
                ack["terminal"] = {"serialNumber": self.world.other_serial(self.serial), "model": "M"}
            case "error-in-200":
                server.answer(200, _error("TER-004", "cannot"))
                return
            case "refused":
                truth.refused = True
                truth.lied |= habit.runs
                server.answer(random.choice((400, 401, 409, 422)), _error("PAR-003", "no"))
                return
        await self._answer(server, json.dumps(ack).encode(), reply)

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
                server.answer(500, _error("TER-004", "failed"))
            case _:
                server.answer(200, body)

    # Course of a payment.

    async def _run(self, payment: Payment) -> None:
        random, habit = payment.random, payment.habit
        await asyncio.sleep(random.uniform(1.0, 2.0))
        self.emit(payment, "TERMINAL_ACKNOWLEDGED")
        if habit.end == "cancel":
            end = await self._aborted(payment, random.uniform(0.5, 6.0)) or "TERMINAL_CANCELED"
        elif habit.end == "wait":
            end = await self._aborted(payment, CARD_LIMIT) or "TERMINAL_REJECTED"
        else:
            end = await self._with_card(payment)
        self.emit(payment, end)
        payment.end()
        if self.running is payment:
            self.running = None

    async def _with_card(self, payment: Payment) -> str:
        random, habit = payment.random, payment.habit
        # A payment without events ends quickly, before the first search for the payment.
        longest = 3.0 if habit.events == "none-comes" else 15.0
        waits = ((2.0, longest), (1.0, 5.0)) if habit.end == "retry-card" else ((2.0, longest),)
        for seconds in waits:
            if end := await self._aborted(payment, random.uniform(*seconds)):
                return end
            payment.reading = True
            self.emit(payment, "CARD_PRESENTED")
        if end := await self._aborted(payment, random.uniform(0.5, 4.0)):
            return end
        if habit.end == "reject":
            return "TERMINAL_REJECTED"
        payment.sent = True
        self.emit(payment, "APPROVAL_REQUESTED")
        await asyncio.sleep(random.uniform(0.5, 6.0) + (ACQUIRER_SECONDS if habit.events == "some-lost" else 0.0))
        return RESULTS_OF_END.get(habit.end, "TERMINAL_REJECTED")

    @staticmethod
    async def _aborted(payment: Payment, seconds: float) -> str | None:
        """Wait for an abort. Return the end of the payment, or None without an effective abort."""
        if not await within(seconds, payment.aborted.wait()):
            return None
        if payment.habit.abort == "raced":
            payment.aborted.clear()
            return None
        return "TERMINAL_CANCELED"

    # Aborts and searches.

    async def _abort(self, server: Server) -> None:
        if (payment := self.running) is not None:
            self.seen("abort", payment.habit.abort)
            if payment.habit.abort == "slow":
                await asyncio.sleep(self.world.plan.reply_timeout * 0.8)
                if server.end.is_closing():
                    return  # the daemon that made the call was killed, and the new daemon has no call under way
                payment = self.running
        if payment is None:
            server.answer(409)
            return
        habit = payment.habit.abort
        self.checks.abort(payment)
        self.world.note(self.serial, "stops", payment.identity, habit)
        if habit == "nothing":
            self.truth(payment.identity).lied = True
            server.answer(409)
            return
        if habit not in ("silent", "failed", "ignored"):
            payment.aborted.set()
        await self._answer(server, b"{}" if habit == "empty" else b'{"status": "ABORTED"}', habit)

    async def _search(self, identity: str, server: Server) -> None:
        payment, habit, truth = self.known.get(identity), self.world.habit_of(identity).search, self.truth(identity)
        self.searched[identity] = self.world.now
        self.seen("search", habit)
        self.world.note(self.serial, "finds", identity, habit)
        found = b""
        if payment is not None:
            if not payment.final and truth.end in FINALS:
                payment.final = self.event(payment, truth.end)
            found = payment.final or (payment.newest if payment.sent else b"")
        match habit:
            case "none" | "missing" | "failed" | "html" | "cut" | "silent":
                found = b""
            case "stale":
                found = b"" if payment is None else payment.previous
            case "another":
                other = next(iter(self.known.values()), None)
                found = b"" if other is None or other is payment else other.newest
            case "late-index" if truth.ended is None or self.world.now - truth.ended < INDEX_SECONDS:
                found = b""
            case "contradicts" if payment is not None and payment.final:
                truth.lied = True
                found = self.event(payment, opposite(truth.end))
        if found and habit != "another":
            self.found.add(identity)
            if (status := status_of(found)) in FINALS:
                truth.said.append(status)
        # This terminal never finds an ended payment. The replies of such a terminal could prove that a payment never
        # started.
        none = habit in ("none", "another") and not found and truth.end in FINALS
        truth.lied |= none and self.world.plan.confirmed
        await self._answer(server, b"[%b]" % found, habit)

    # Print jobs.

    def _print(self, request: dict[str, Any], server: Server) -> None:
        identity = request["printJobId"]
        random = self.world.random("print", identity)
        self.checks.print_start(identity)
        kind = drawn(random, PRINTS)
        self.seen("print", kind)
        if kind == "refused":
            self.jobs.pop(identity, None)
            server.answer(422, _error("PAR-001", "no"))
            return
        job = self.jobs[identity] = {"printJobId": identity, "status": "PENDING", "externalReference": ""}
        self.spawn(self._printing(job, request["webhookUrl"], random, kind), f"print {identity}")
        if kind == "lost":
            server.end.abort()
        else:
            server.answer(202, json.dumps(job).encode())

    async def _printing(self, job: dict[str, Any], url: str, random: Random, kind: str) -> None:
        async def tell(**changes: str) -> None:
            await self.post(url, json.dumps(job | changes).encode())

        await asyncio.sleep(random.uniform(0.5, 3.0))
        job["status"] = "IN_PROGRESS"
        await asyncio.sleep(random.uniform(0.5, 5.0))
        if kind == "stuck":
            return
        job["status"] = "COMPLETED"
        if kind == "fails":
            job |= {"status": "FAILED", "errorCode": "PAPER", "errorMessage": "no paper"}
        if kind == "odd-status":
            await tell(status="JAMMED")
        if kind == "other-id":
            await tell(printJobId="another")
        self.printed[job["printJobId"]] = self.world.now
        if kind != "no-webhook":
            await tell()
        if kind == "contradicts":
            await tell(status="FAILED")
