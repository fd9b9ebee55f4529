"""A till of the world.

The till stores an id, starts the payment, repeats the call until a reply arrives, and follows `next_step`. The stored
data survives a crash of the till. The till starts a sale under another id only if posd permits it.
"""

import asyncio
import json
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from posd.base.times import iso
from tests.rig.streams import Reply
from tests.simulation.chain import Chain, Link
from tests.simulation.checks import RECOVERY_SECONDS
from tests.simulation.http import Client, Stream, call_once
from tests.simulation.part import Part, new_id, within
from tests.simulation.plan import Sale

if TYPE_CHECKING:
    from tests.simulation.world import World

#: Share of sales for which an operator releases the terminal too early.
HASTY: Final = 0.03
#: Maximum number of ids of one sale. After the last id the customer leaves.
TRIES: Final = 3
#: Number of refusals after which a sale counts as refused for ever. No fault causes so many refusals.
MOST_REFUSALS: Final = 5000
#: Seconds of a call until the till repeats it.
PATIENCE: Final = 60.0
#: Seconds that posd may take to reach a terminal. The wait for the terminal's reply is not included.
CALL_SECONDS: Final = 10.0
#: First and longest pause of a till before it connects to posd again, in seconds.
FIRST_PAUSE: Final = 0.25
LAST_PAUSE: Final = 8.0
#: Behaviour of a till -> seconds that one call waits for an outcome. The default is 45.
SECONDS: Final = {"poll": 2, "patient": 300}
#: Share of starts with `not_after`.
LIMITED: Final = 0.1
#: A path with an id that a program can send by mistake.
NIL: Final = "/v1/transactions/00000000-0000-0000-0000-000000000000"


@dataclass
class Basket:
    """Data of a sale that the till has stored."""

    sale: Sale
    #: Ids of the sale's starts, in order.
    ids: list[str] = field(default_factory=list)
    #: The till's final result: `paid`, `unpaid`, or `left` (to an operator).
    belief: str | None = None
    #: Number of refused starts.
    refusals: int = 0
    #: Id -> the latest time at which posd may send the start, for some of the starts.
    not_after: dict[str, str] = field(default_factory=dict)
    #: The operations of the chain, from the first on. Empty if no operation is to follow.
    links: list[Link] = field(default_factory=list)


class Till(Part):
    """One till with its sales."""

    def __init__(self, world: "World", number: int) -> None:
        super().__init__(world)
        self.number = number
        self.serial = world.plan.serial(number)
        self.baskets = [Basket(sale) for sale in world.plan.sales if sale.till == number]
        self._client: Client | None = None
        self._credentials = (1000 + number, 1000, 1000)
        self._called_at = 0.0  # time at which the till sent the newest call
        self.done = asyncio.Event()

    def start(self) -> None:
        """Switch the till on."""
        self.world.spawn(self, self._run(), f"till {self.number}")

    async def crash(self, seconds: float) -> None:
        """Crash the till at any point. Continue after a while from the stored data."""
        if not self.world.cancel(self):
            return
        self._drop()
        await asyncio.sleep(seconds)
        self.start()

    def _drop(self) -> None:
        if self._client is not None:
            self._client.end.abort()
            self._client = None

    async def _run(self) -> None:
        hurry = False  # after an abort the next sale follows at once
        for basket in self.baskets:
            if basket.belief is None:
                if not basket.ids:
                    await asyncio.sleep(min(basket.sale.after, 1.0 if hurry else math.inf))
                await self._sell(basket)
            hurry = basket.sale.manner == "abort"
        self._drop()
        self.done.set()

    def _next_id(self, basket: Basket) -> str:
        random = self.world.random("id", basket.sale.number, len(basket.ids))
        identity = new_id(random)
        self.world.give_habit(identity, basket.sale, len(basket.ids))
        basket.ids.append(identity)
        if random.random() < LIMITED:
            clocks, patience = self.world.machine.clocks, timedelta(seconds=random.uniform(0.5, 20.0))
            basket.not_after[identity] = iso(clocks.now() + patience)
            self.checks.deadlines[identity] = clocks.true + patience, clocks.error
        return identity

    def _request(self, basket: Basket) -> dict[str, Any]:
        sale = basket.sale
        request = {
            "terminal": self.serial,
            "amount": {"subtotal_iva0": f"{sale.cents // 100}.{sale.cents % 100:02}"},
            "sale": f"basket-{sale.number}",
            "metadata": {"ticket": sale.number},
            "type": sale.first,
            "not_after": basket.not_after.get(basket.ids[-1]),
        }
        return {name: value for name, value in request.items() if value not in (None, "charge")}

    async def _sell(self, basket: Basket) -> None:
        self.seen("manner", basket.sale.manner)
        if basket.sale.manner == "print":
            await self._print(basket)
            return
        while True:
            identity = basket.ids[-1] if basket.ids else self._next_id(basket)
            step = await self._pay(basket, identity)
            self.world.note(f"till {self.number}", "step", identity, step)
            again = self.world.random("again", basket.sale.number, len(basket.ids)).random() < 0.6
            if step == "new_id_ok" and len(basket.ids) < TRIES and again:
                await asyncio.sleep(2.0)
                self._next_id(basket)
                continue
            if step == "done" and basket.sale.follows:
                await Chain(self, basket).run()
            basket.belief = {"done": "paid", "new_id_ok": "unpaid"}.get(step, "left")
            return

    async def _pay(self, basket: Basket, identity: str) -> str:
        """Start the payment and wait. Return the till's next step."""
        manner = basket.sale.manner
        path, request = f"/v1/transactions/{identity}", self._request(basket)
        random = self.world.random("aside", identity)
        if random.random() < HASTY:
            self._beside(self._release(identity, random.uniform(0.0, 3.0)))
        if manner == "twice":
            self._beside(self._call_once("PUT", path, request))
            self._beside(self._look(path, random.uniform(0.002, 0.2)))
        if manner == "careless":
            await self._careless(basket, {**request})
        while True:
            reply = await self.put(basket, path, request)
            if reply is None:
                return "ask_person"
            if reply.status in (200, 201):
                self.checks.document(reply.json)
                break
            code = reply.json["code"]
            if code == "pruned":
                return "done" if reply.json["result"] == "approved" else "new_id_ok"
            if code == "expired":
                if reply.json["next_step"] == "new_id_ok":
                    self.checks.refused_start(identity, reply)
                return str(reply.json["next_step"])
            if code in ("terminal_busy", "sale_conflict"):
                blocking = reply.json.get("blocking_transaction") or reply.json["transactions"][0]
                if step := await self._blocked(basket, blocking, code):
                    return step
            else:
                self.checks.unexpected_problem(basket, reply)
                return "new_id_ok"
        if manner == "barge":
            await self._barge(basket)
        if manner == "reuse":
            await self._reuse(path, request)
        if manner == "abort":
            await asyncio.sleep(self.world.random("abort", identity).uniform(0, 12.0))
            asked = self.checks.acquirer_asked(identity)
            self.truth(identity).abort_wanted = True
            if random.random() < 0.5:  # the till does not wait for the reply
                self._beside(self._call_once("POST", f"{path}/abort"))
                return await self._await(basket, identity)
            reply = await self._call("POST", f"{path}/abort")
            self.seen("abort-answer", reply.json.get("code", str(reply.status)))
            told = f"posd accepted an abort of {identity} after the terminal had asked the acquirer"
            self.holds(not asked or reply.status >= 400, told)
        if manner == "forget":
            await asyncio.sleep(self.world.random("forget", identity).uniform(0, 40.0))
        return await self._await(basket, identity)

    async def put(self, basket: Basket, path: str, body: Any) -> Reply | None:
        """Repeat a start after refusals that end by themselves or by the operator. Return None if the till gives up."""
        while True:
            reply = await self._call("PUT", path, body)
            if reply.status in (200, 201) or (code := reply.json["code"]) == "pruned":
                return reply
            basket.refusals += 1
            if basket.refusals >= MOST_REFUSALS:
                self.checks.fail(f"posd refused sale {basket.sale.number} {basket.refusals} times, last with {code}")
                return None
            if code in ("draining", "storage_unavailable", "internal_error"):
                await asyncio.sleep(1.0)
            elif code == "clock_unsure":
                body.pop("not_after")
            elif code in ("restore_unseen", "identity_conflict", "terminal_offline"):
                await self.world.person.asked(reply.json)
            else:
                return reply

    async def _release(self, identity: str, seconds: float) -> None:
        """Release the terminal too early as an operator, then request an abort.

        posd must refuse the abort, because the abort could stop another payment.
        """
        await asyncio.sleep(seconds)
        if not await self.world.person.release(identity):
            return
        await asyncio.sleep(2.0 * seconds)
        reply = await self._call_once("POST", f"/v1/transactions/{identity}/abort")
        told = f"posd accepted an abort of {identity} after a person had released it"
        self.holds(reply is None or reply.status >= 400, told)

    async def _blocked(self, basket: Basket, blocking: str, code: str) -> str | None:
        """Wait for the end of the blocking payment. Return the sale's next step, or None to try again."""
        reply = await self._call("GET", f"/v1/transactions/{blocking}/outcome?timeout=30")
        await asyncio.sleep(1.0)
        if reply.status != 200:
            self.world.person.look(blocking)
            return None
        step = str(reply.json["next_step"])
        if blocking in basket.ids and step != "new_id_ok":
            self.seen("second thought", step)
            return step  # the earlier request has ended with another result
        # the sale was paid on another terminal, or its end is suspicious, so an operator settles the sale
        return {"done": "new_id_ok", "ask_person": step}.get(step) if code == "sale_conflict" else None

    async def _barge(self, basket: Basket) -> None:
        """Start another payment on the terminal at once, or the same sale on another terminal.

        posd must send nothing while the first payment is open.
        """
        random = self.world.random("barge", basket.sale.number)
        other = new_id(random)
        self.world.give_habit(other, basket.sale, 99)
        elsewhere, terminal = random.random() < 0.5 and self.world.plan.tills > 1, self.world.other_serial(self.serial)
        change = {"terminal": terminal} if elsewhere else {"sale": f"barge-{basket.sale.number}"}
        reply = await self._call_once("PUT", f"/v1/transactions/{other}", self._request(basket) | change)
        if reply is not None and reply.status not in (200, 201):
            self.seen("problem", reply.json["code"])
            self.checks.refused_start(other, reply)
            return
        first = self.truth(basket.ids[-1])  # the first payment had already ended
        # status 200 means that the operation was started before
        began = elsewhere and reply is not None and reply.status == 201 and not first.doubtful
        how = "paid" if first.charged else first.state
        told = f"posd started sale {basket.sale.number} again as {other}, and the sale is {how}"
        self.holds(not began or how == "not", told)
        self.world.refused.pop(other, None)  # posd refused the start before the till crashed

    async def _reuse(self, path: str, request: dict[str, Any]) -> None:
        reply = await self._call("PUT", path, request | {"amount": {"subtotal_iva0": "1234567.89"}})
        # If posd took over an operation from the witness, posd knows only the id.
        orphan = reply.status == 200 and any(item["code"] == "orphan" for item in reply.json["attention"])
        if reply.status != 503 and not orphan:
            said = (reply.status, reply.json.get("code"))
            self.holds(said == (409, "id_reused"), "posd accepted an id twice")

    async def _look(self, path: str, seconds: float) -> None:
        """Read a payment whose start may be under way."""
        await asyncio.sleep(seconds)
        await self._call_once("GET", path)

    async def _careless(self, basket: Basket, request: dict[str, Any]) -> None:
        """Send faulty calls. posd refuses each call with a different code, and no call has an effect."""
        identity = new_id(self.world.random("careless", basket.sale.number))
        path = f"/v1/transactions/{identity}"
        request.pop("not_after", None)
        good = json.dumps(request).encode()
        amounts: Sequence[Any] = {"subtotal_iva0": 5, "total": 5}, {"subtotal_iva0": 0}, {"subtotal_iva0": 1.005}, {}
        calls: Sequence[Sequence[Any]] = (
            (400, "malformed_json", "PUT", path, good[:-1]),
            (422, "invalid_request", "PUT", path, request | {"amout": 1}),
            (422, "unknown_terminal", "PUT", path, request | {"terminal": "SN-9"}),
            *((422, "invalid_request", "PUT", path, request | {"amount": amount}) for amount in amounts),
            (422, "invalid_request", "PUT", NIL, good),
            (415, "unsupported_media_type", "PUT", path, good, "text/plain"),
            (413, "payload_too_large", "PUT", path, good + b" " * 300_000),
            (405, "method_not_allowed", "DELETE", path),
            (403, "forbidden", "POST", "/v1/backup", {"path": "/tmp/x"}),
        )
        for status, code, method, target, *content in calls:
            reply = await self._call_once(method, target, *content)
            if reply is not None and reply.status != 503:
                said, wanted = (reply.status, reply.json.get("code")), (status, code)
                self.holds(said == wanted, f"posd replied {said} instead of {wanted} to a faulty call")
                self.checks.refused_start(identity, reply)

    async def _await(self, basket: Basket, identity: str) -> str:
        """Wait for the outcome. Return the next step that posd or an operator names."""
        path = f"/v1/transactions/{identity}"
        while True:
            if basket.sale.manner == "listen":
                await self._listen(identity)
            seconds = SECONDS.get(basket.sale.manner, 45)
            reply = await self._call("GET", f"{path}/outcome?timeout={seconds}")
            if reply.status == 200:
                self.checks.told(identity, self._called_at)
                self.checks.outcome(identity, reply.json)
                return str(reply.json["next_step"])
            if reply.status == 202:
                document = reply.json
                self.checks.document(document)
                if document["next_step"] == "ask_person":
                    self.world.person.look(identity)
                if document["released"]:
                    return "ask_person"
                self.checks.waits(identity, self.serial, document)
                if basket.sale.manner == "poll":
                    await asyncio.sleep(1.0)
            elif reply.status < 500 and reply.json["code"] == "pruned":
                return "done" if reply.json["result"] == "approved" else "new_id_ok"
            elif reply.status == 404:
                self.checks.forgotten(identity)
                return "ask_person"
            else:
                await asyncio.sleep(1.0)

    async def _listen(self, identity: str) -> None:
        """Read the stream of events until it ends or breaks."""
        began, life = self.world.now, self.world.machine.life
        with suppress(OSError):
            end = await self._dial()
            messages: dict[str, bytes] = {}
            stream = Stream(end, lambda kind, _place, data: messages.update({kind: data}))
            try:
                ended = await within(120, stream.run(f"/v1/transactions/{identity}/events"))
            finally:
                end.abort()
            if stream.last == "outcome" or not ended:
                self.checks.told(identity, began)
            if not ended and "state" in messages:
                reply = await self._call("GET", f"/v1/transactions/{identity}/outcome?timeout=0")
                if reply.status == 202 and self.world.machine.life == life:
                    told, shown = (json.loads(body)["next_step"] for body in (messages["state"], reply.body))
                    late = self.world.free_since("") + RECOVERY_SECONDS > self.world.now or self.world.felt("crowd")
                    self.holds(told == shown or late, f"the stream of {identity} told {told} instead of {shown}")
            elif stream.status == 200:
                self.checks.stream_ended(identity, life, began, stream.last)

    async def _print(self, basket: Basket) -> None:
        identity = f"ticket-{basket.sale.number}"
        basket.ids, path = [identity], f"/v1/print-jobs/{identity}"
        request = {"terminal": self.serial, "document": {"commands": [{"type": "text", "text": "hello"}]}}
        while basket.belief is None:
            reply = await self.put(basket, path, request)
            if reply is None or reply.status >= 400:
                if reply is not None:
                    self.checks.unexpected_problem(basket, reply)
                basket.belief = "unpaid"
            else:
                basket.belief = await self._printed(identity, path)

    async def _printed(self, identity: str, path: str) -> str | None:
        """Wait for the end of a print job. Return None if posd does not know the job."""
        while True:
            reply = await self._call("GET", f"{path}/outcome?timeout=45")
            if reply.status == 404:
                self.checks.forgotten(identity, printed=True)
                return None
            if reply.status == 200:
                self.seen("print-end", str(reply.json["status"]))
                return "unpaid"
            if reply.status == 202:
                self.checks.print_waits(identity, self.serial)
                codes = {item["code"] for item in reply.json["attention"]}
                self.seen("print-attention", *codes)
                if codes & {"print_stuck", "in_doubt"}:
                    return "left"
            await asyncio.sleep(1.0)

    # Calls.

    def _beside(self, work: Any) -> None:
        self.world.spawn(self, work, f"till {self.number} aside")

    async def _dial(self) -> Any:
        return await self.world.network.dial("till", self.world.machine.socket("till"), credentials=self._credentials)

    async def _call(self, method: str, path: str, body: Any = b"") -> Reply:
        """Repeat a call until there is a reply. A stopped daemon starts again."""
        pause, life = FIRST_PAUSE, 0
        while True:
            try:
                async with asyncio.timeout(PATIENCE + self._longest(method, path)):
                    if self._client is None or self._client.end.is_closing():
                        self._client = Client(await self._dial())
                    self._called_at, life = self.world.now, self.world.machine.life
                    call = self.checks.call(method, path)
                    reply = await self._client.call(method, path, body)
            except OSError as error:
                if isinstance(error, TimeoutError):
                    self.checks.answered(path, self._called_at, self._longest(method, path), None)
                elif isinstance(error, ConnectionResetError):
                    self.checks.cut(method, path, life, self._called_at)
                self._drop()
                await asyncio.sleep(pause)
                pause = min(2 * pause, LAST_PAUSE)
                continue
            self.checks.answered(path, self._called_at, self._longest(method, path), reply)
            self.world.note(f"till {self.number}", method, path, reply.status, reply.body)
            self.checks.reply(call, path, reply)
            return reply

    def _longest(self, method: str, path: str) -> float:
        """Return the longest permitted duration of a call, in seconds."""
        if method == "GET":
            return float(path.partition("timeout=")[2] or 0)
        return self.world.plan.reply_timeout + CALL_SECONDS  # posd calls the terminal

    async def _call_once(self, method: str, path: str, *content: Any) -> Reply | None:
        """Call on a new connection. Return None if no reply arrives. `content`: the body, and its type."""
        call = self.checks.call(method, path)
        reply = await call_once(self._dial(), PATIENCE, method, path, *content)
        if reply is not None:
            self.world.note(f"till {self.number}", "aside", method, path, reply.status, reply.body)
            self.checks.reply(call, path, reply)
        return reply
