"""A till. The till makes its payments one after the other, and can be killed at any moment.

The till writes an id in its ledger before it calls, repeats the call until there is a response, and waits for the
outcome. After a kill the till continues with the same ids. Lines of the ledger:

| kind      | meaning                                                              |
| --------- | -------------------------------------------------------------------- |
| `intent`  | the till is about to start a payment: id                             |
| `again`   | a restarted till continues with an id                                |
| `answer`  | posd replied to a start with a transaction: id, status, phase        |
| `abort`   | posd replied to an abort: id, status, code                           |
| `outcome` | the payment has ended: id, result, transaction_reference             |
| `refused` | the till has given up a payment that posd has not recorded: id, code |
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.plan import Payment
from tests.rig.daemon import Daemon
from tests.rig.streams import Reply, stream

#: Seconds until the till calls an unreachable daemon again.
AGAIN_SECONDS = 0.05
#: Seconds that one call waits for an outcome.
LOOK_SECONDS = 1.0
#: Seconds until the next payment after a payment that did not start. The seconds double each time.
PERSON_SECONDS = 0.2
MAX_PERSON_SECONDS = 3.0
#: Maximum time that the till waits for the card before an abort, in seconds.
CARD_SECONDS = 2.0
#: A till gives up its payment after so many refusals `sale_conflict` because of an open payment.
CONFLICTS = 5
#: Maximum duration of one payment, in seconds. An operator resolves an open payment much earlier.
STUCK_SECONDS = 150.0

#: Lines after which a payment is finished.
CLOSED = ("outcome", "refused")


@dataclass
class Till:
    """One till on the daemon's socket. `tell` gets each line of the ledger. `meet` waits until the other till of a sale
    is ready.
    """

    name: str
    payments: Sequence[Payment]
    daemon: Daemon
    tell: Callable[[str, dict[str, Any]], None]
    meet: Callable[[str, str], Awaitable[object]]
    ledger: list[dict[str, Any]] = field(default_factory=list)
    _patience: float = PERSON_SECONDS
    _life: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Make all payments, and start again after each kill."""
        try:
            while True:
                self._life = asyncio.create_task(self._live())
                await asyncio.wait({self._life})
                if not self._life.cancelled():
                    return self._life.result()
        finally:
            self.kill()

    def kill(self) -> bool:
        """Kill the till. Return whether the till was running."""
        return self._life is not None and self._life.cancel()

    async def _live(self) -> None:
        closed = {line["id"] for line in self.ledger if line["kind"] in CLOSED}
        begun = {line["id"] for line in self.ledger}
        for payment in self.payments:
            if payment.id in closed:
                continue
            if payment.sale is not None and payment.id not in begun:
                await self.meet(payment.sale, self.name)
            self._write("again" if payment.id in begun else "intent", payment)
            async with asyncio.timeout(STUCK_SECONDS):
                await self._pay(payment)

    def _write(self, kind: str, payment: Payment, **fields: Any) -> None:
        line = {"kind": kind, "id": payment.id, **fields}
        self.ledger.append(line)
        self.tell(self.name, line)

    async def _pay(self, payment: Payment) -> None:
        if await self._start(payment):
            if payment.abort is not None:
                await self._abort(payment)
            await self._await_outcome(payment)

    async def _start(self, payment: Payment) -> bool:
        """Start a payment. Return True if posd has the payment, False if the till gave it up."""
        path, conflicts = f"/transactions/{payment.id}", 0
        while True:
            calls = [self._call("PUT", path, payment.request) for _ in range(1 + payment.twice)]
            replies = await asyncio.gather(*calls)
            taken = [reply for reply in replies if reply.status in (200, 201)]
            for reply in taken:
                self._write("answer", payment, status=reply.status, phase=reply.json["phase"])
            if taken:
                return True
            problem = replies[-1].json
            match problem["code"]:
                case "terminal_busy":
                    await self._look(problem["blocking_transaction"])
                case "draining" | "storage_unavailable" | "internal_error":
                    await asyncio.sleep(AGAIN_SECONDS)
                case "sale_conflict":
                    conflicts += 1
                    others = [await self._look(other) for other in problem["transactions"]]
                    paid = any(other is not None and other["result"] == "approved" for other in others)
                    if paid or conflicts == CONFLICTS:
                        self._write("refused", payment, code="sale_conflict")
                        return False
                case code:
                    self._write("refused", payment, code=code)
                    return False

    async def _look(self, identity: str) -> Any:
        """Wait a while for the outcome of another payment. Return None if the payment has no outcome."""
        reply = await self._call("GET", f"/transactions/{identity}/outcome?timeout={LOOK_SECONDS}")
        return reply.json if reply.status == 200 else None

    async def _abort(self, payment: Payment) -> None:
        if payment.abort == "card":
            with suppress(TimeoutError, OSError, asyncio.IncompleteReadError, AssertionError, ValueError):
                async with (
                    asyncio.timeout(CARD_SECONDS),
                    stream(self.daemon.till_socket, f"/transactions/{payment.id}/events") as messages,
                ):
                    async for message in messages:
                        if message.event not in ("state", "TERMINAL_ACKNOWLEDGED"):
                            break
        reply = await self._call("POST", f"/transactions/{payment.id}/abort")
        self._write("abort", payment, status=reply.status, code=reply.json.get("code"))

    async def _await_outcome(self, payment: Payment) -> None:
        while True:
            reply = await self._call("GET", f"/transactions/{payment.id}/outcome?timeout={LOOK_SECONDS}")
            if reply.status == 200:
                outcome = reply.json
                said = {name: outcome[name] for name in ("result", "transaction_reference")}
                self._write("outcome", payment, **said)
                if outcome["result"] == "not_started":
                    await asyncio.sleep(self._patience)
                    self._patience = min(MAX_PERSON_SECONDS, 2 * self._patience)
                else:
                    self._patience = PERSON_SECONDS
                return
            assert reply.status in (202, 503), f"posd replied {reply.status} to a wait for {payment.id}: {reply.body!r}"

    async def _call(self, method: str, path: str, body: Any = None) -> Reply:
        """Repeat a call until there is a response. A stopped daemon starts again."""
        while True:
            try:
                return await self.daemon.call(method, path, body)
            except OSError:
                await asyncio.sleep(AGAIN_SECONDS)
