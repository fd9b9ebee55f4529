"""The operator, and a program that follows the stream of the feed.

The operator checks open payments, asks the acquirer, and resolves payments that do not end.
"""

import asyncio
import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from tests.rig.events import FINALS, RESULTS
from tests.rig.streams import Reply
from tests.simulation.http import Stream, call_once
from tests.simulation.part import Part

if TYPE_CHECKING:
    from tests.simulation.world import World


#: Seconds until an operator checks open payments, and the share of slow checks.
QUICKLY: Final = (20.0, 300.0)
SLOWLY: Final = (600.0, 1500.0)
SLOW: Final = 0.15
#: Share of resolved payments whose end the terminal sends afterwards.
TERMINAL_SAYS_LATER: Final = 0.3
#: Paths whose replies differ between processes, for example by the certificate's key or by the memory.
OF_PROCESS: Final = ("/v1/health", "/metrics", "/v1/backup")
#: Command in a problem's text by which an operator decides which device is a terminal.
IDENTITY: Final = re.compile(r"posd terminals identity (SN-\d+)")


class Person(Part):
    """One operator for all tills."""

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._asked: dict[str, None] = {}

    def look(self, identity: str) -> None:
        """After a while, resolve a payment that does not end."""
        if identity in self._asked:
            return
        self._asked[identity] = None
        self.world.spawn(self, self._see_to(identity), f"person {identity}")

    async def asked(self, problem: Mapping[str, Any]) -> None:
        """Read a problem that only an operator can solve, and follow the instructions in its text."""
        code = problem["code"]
        await asyncio.sleep(10.0)
        if code == "restore_unseen":
            await self.call("POST", "/v1/restore/seen", {"operator": "P", "note": "looked"})
        if code == "identity_conflict":
            named = IDENTITY.search(problem["detail"])
            assert named is not None, problem
            terminal = self.world.terminal(named[1])
            said = {"operator": "P", "note": "looked", "base_url": terminal.base_url}
            await self.call("POST", f"/v1/terminals/{terminal.serial}/identity", said)
        if code == "clock_unsure":
            await self.call("POST", "/v1/clock/confirm", {"operator": "P", "note": "looked"})

    async def _see_to(self, identity: str) -> None:
        random = self.world.random("person", identity)
        await asyncio.sleep(random.uniform(*SLOWLY if random.random() < SLOW else QUICKLY))
        truth = self.truth(identity)
        while True:
            reply = await self.call("GET", f"/v1/transactions/{identity}")
            if reply.status == 404 or (reply.status == 200 and reply.json["phase"] == "final"):
                break
            document = reply.json if reply.status == 200 else {}
            if document:
                self.checks.document(document)
            if document.get("next_step") != "ask_person":
                await asyncio.sleep(60.0)
                if document.get("next_step") == "wait":
                    break  # posd recovers by itself, and the till repeats the call
                continue
            if random.random() < 0.3:
                await self.call("POST", f"/v1/transactions/{identity}/reconcile", {})
            if random.random() < 0.15:
                truth.released = True
                await self.release(identity)
            running = {terminal.running.identity for terminal in self.world.terminals if terminal.running is not None}
            if identity in running:
                await asyncio.sleep(30.0)
                continue
            result = RESULTS[truth.end] if truth.end in FINALS else "not_started"
            if truth.end in ("GONE", None) and truth.starts:
                result = "canceled"
            wrong = random.random() < self.world.plan.wrong_words
            if wrong:
                result = "declined" if result == "approved" else "approved"
            # the record comes before the call, because a till may get the result before the operator gets the reply
            truth.words.append(result)
            said = {"result": result, "operator": "P", "note": "by the slip"}
            reply = await self.call("POST", f"/v1/transactions/{identity}/resolve", said)
            if reply.status == 200:
                self.seen("word", "wrong" if wrong else "right")
                if random.random() < TERMINAL_SAYS_LATER:
                    await asyncio.sleep(random.uniform(5.0, 300.0))
                    for terminal in self.world.terminals:
                        payment = terminal.known.get(identity)
                        if terminal.on and payment is not None and payment.final:
                            terminal.repeat_final(payment)
                break
            await asyncio.sleep(30.0)
        self._asked.pop(identity, None)

    async def report(self, middle: datetime, half: timedelta) -> Reply:
        """Read the report of a period."""
        since, until = (f"{moment:%Y-%m-%dT%H:%M:%SZ}" for moment in (middle - half, middle + half))
        return await self.call("GET", f"/v1/report?since={since}&until={until}")

    async def release(self, identity: str) -> bool:
        """Release the terminal of a payment. Return whether posd released the terminal.

        posd refuses while a call to the terminal is under way.
        """
        world = self.world
        life, timeout = world.machine.life, world.plan.reply_timeout
        began = world.start_under_way(identity)
        reply = await self.call("POST", f"/v1/transactions/{identity}/release", {"operator": "P", "note": "released"})
        world.seen("release", reply.json.get("code", str(reply.status)))
        if reply.status != 200:
            return False
        world.truth(identity).released = True
        under_way = began is not None and world.start_under_way(identity) == began and world.machine.life == life
        waited_for = began is not None and world.now - began < 0.9 * timeout
        world.holds(not (under_way and waited_for), f"posd released {identity} during its start")
        return True

    async def call_once(self, method: str, path: str, body: Any = b"", socket: str = "") -> Reply | None:
        """Call on a socket, by default on the operators' socket. Return None without a reply."""
        place = socket or self.world.machine.socket("admin")
        connect = self.world.network.dial("person", place, credentials=(900, 0, 0))
        call = self.checks.call(method, path)
        reply = await call_once(connect, 60, method, path, body)
        if reply is not None:
            self.world.note("person", method, path, reply.status, b"" if path in OF_PROCESS else reply.body)
            self.checks.reply(call, path, reply)
        return reply

    async def call(self, method: str, path: str, body: Any = b"", socket: str = "") -> Reply:
        """Repeat a call until there is a reply, by default on the operators' socket."""
        while True:
            reply = await self.call_once(method, path, body, socket)
            if reply is not None and reply.status != 503:
                return reply
            await asyncio.sleep(2.0)


#: Seconds until the follower connects again.
PAUSE: Final = 1.0


class Follower(Part):
    """A program that follows the feed, like head office.

    After a break the program continues after its last change. The program must get each change once, in order, and in
    time.
    """

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._place = ""  # number of the last change that the follower has
        self._seq = 0
        self._stream: Stream | None = None

    async def run(self) -> None:
        """Follow the feed until cancelled."""
        while True:
            with suppress(OSError):
                end = await self.world.network.dial("follower", self.world.machine.socket("feed"))
                stream, life = Stream(end, self._take), self.world.machine.life
                self._stream, began = stream, self.world.now
                try:
                    where = f"last-event-id: {self._place}\r\n" if self._place else ""
                    await stream.run("/v1/feed?after=start", where)
                finally:
                    self._stream = None
                    end.abort()
                if stream.status == 200:
                    self.checks.stream_ended("the feed", life, began, stream.last)
            await asyncio.sleep(PAUSE)

    @property
    def since(self) -> float:
        """Time at which the follower connected, in seconds of the loop. The time is inf without a connection."""
        return math.inf if self._stream is None else self._stream.since

    def _take(self, kind: str, place: str, data: bytes) -> None:
        """Receive a message of the stream."""
        if kind == "notice":
            self._seq = 0  # this change follows a gap, or comes from another database
        if not place:
            return
        change: dict[str, Any] = json.loads(data)
        self.checks.streamed(change, self._seq)
        self._place, self._seq = place, change["seq"]
