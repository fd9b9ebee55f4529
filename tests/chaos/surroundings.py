"""What is wrong in the surroundings of the daemon: what was done there, what was seen of it, and what should have been.

The faults themselves stand in `clock`, `claimant`, `backups` and `harm`, one function each.
"""

import asyncio
import os
import ssl
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2

from tests.chaos.books import Finding, Window
from tests.chaos.street import DAEMON_HOST, Street

#: What posd must notice, it must notice within so many seconds.
NOTICED_SECONDS = 10.0
#: How often it is looked at whether it has, in seconds.
LOOK_SECONDS = 0.2
#: What another till asks meanwhile is answered within so many seconds: posd does so within milliseconds, but here all
#: processes of the run share two processors.
SERVED_SECONDS = 5.0
#: Longest that a command of the person may take, in seconds.
COMMAND_SECONDS = 60.0


def moment(later: float = 0.0) -> str:
    """Return this moment, or one so many seconds later, as the ledgers of terminals have it."""
    return (datetime.now(UTC) + timedelta(seconds=later)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(eq=False)
class Surroundings:
    """The surroundings of one street."""

    street: Street
    #: What was done and seen, and how often.
    seen: Counter[str] = field(default_factory=Counter)
    #: What should have been otherwise.
    findings: list[Finding] = field(default_factory=list)
    #: From a backup to the end of the database that was there, for each that has taken its place.
    windows: list[Window] = field(default_factory=list)
    #: Payments to whose callback address far too many events were sent.
    flooded: set[str] = field(default_factory=set)

    def expect(self, true: bool, subject: str, what: str, kind: str = "wrong") -> None:
        """Note a finding where something is not so."""
        if not true:
            self.findings.append(Finding(kind, subject, what))

    async def until(self, true: Callable[[], Awaitable[bool]], seconds: float = NOTICED_SECONDS) -> bool:
        """Look again and again whether something is true; tell whether it became so in time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with suppress(httpx2.TransportError, KeyError, ValueError):  # the daemon is away, or cannot say it
                if await true():
                    return True
            await asyncio.sleep(LOOK_SECONDS)
        return False

    async def check(self, name: str) -> str:
        """Return the status of a check of the health resource."""
        reply = await self.street.daemon.call("GET", "/health")
        status: str = reply.json["checks"][name]["status"]
        return status

    async def posd(self, *arguments: str) -> tuple[int, str]:
        """Have the person type a command; return its exit code and all that it said."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "posd", "--config", str(self.street.daemon.config_file), *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        async with asyncio.timeout(COMMAND_SECONDS):
            said, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, said.decode("utf-8", "replace")

    async def start_daemon(self, after: str) -> bool:
        """Start the daemon; where it does not start, that is a finding. Tell whether it runs."""
        try:
            await self.street.start_daemon()
        except AssertionError:
            process, lines = self.street.daemon.process, self.street.daemon.lines
            code = await process.wait() if process is not None else None
            self.street.daemon.process = None
            words = [str(line.get("error") or line.get("text") or line) for line in lines]
            self.expect(False, "daemon", f"it ends with {code} {after}: {' '.join(words)[:300]}")
            return False
        return True

    async def certificate_is_good(self) -> bool:
        """Whether a terminal can verify the certificate of the webhook listener now."""
        context = ssl.create_default_context(cafile=str(self.street.daemon.ca))
        try:
            async with asyncio.timeout(SERVED_SECONDS):
                _, writer = await asyncio.open_connection(DAEMON_HOST, self.street.daemon.port, ssl=context)
        except ssl.SSLCertVerificationError:
            return False
        except (OSError, TimeoutError):
            return True  # it says nothing of the certificate
        writer.transport.abort()
        return True

    @asynccontextmanager
    async def others_served(self, during: str) -> AsyncIterator[None]:
        """While the block runs, others call on the till's socket and at the webhooks: each must be answered."""
        ends: list[str] = []
        calls = 0

        async def till() -> None:
            reply = await self.street.daemon.call("GET", "/transactions?limit=1")
            if reply.status != 200:
                raise ConnectionRefusedError(f"it was answered {reply.status}")

        async def terminal() -> None:
            where = (DAEMON_HOST, self.street.daemon.port)
            while True:  # one that has shown no token yet is turned away at times, and comes again
                with suppress(ConnectionError):
                    _, writer = await asyncio.open_connection(*where, ssl=context)
                    writer.transport.abort()
                    return
                await asyncio.sleep(LOOK_SECONDS)

        async def look(who: str, call: Callable[[], Awaitable[None]]) -> None:
            nonlocal calls
            while True:
                calls += 1
                try:
                    async with asyncio.timeout(SERVED_SECONDS):
                        await call()
                except (TimeoutError, OSError, httpx2.TransportError) as error:
                    ends.append(f"a {who}: {type(error).__name__} {error}")
                await asyncio.sleep(LOOK_SECONDS)

        context = ssl.create_default_context(cafile=str(self.street.daemon.ca))
        looks = [asyncio.create_task(look(*who)) for who in (("till", till), ("terminal", terminal))]
        try:
            yield
        finally:
            for task in looks:
                task.cancel()
            await asyncio.gather(*looks, return_exceptions=True)
        self.seen[f"calls of others during {during}"] += calls
        self.seen[f"of these not answered during {during}"] += len(ends)
        self.expect(not ends, "daemon", f"{len(ends)} of {calls} calls of others failed during {during}: {ends[:2]}")


#: What a fault of the surroundings is done by: it is told the form, how long, and which of the terminals or tills, and
#: tells whether it happened.
Deed = Callable[[Surroundings, Any], Awaitable[bool]]
