"""Starts a real daemon over a database, and counts what it asks the terminals."""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from posd import tls
from tests.restart.fill import fill
from tests.support.daemon import Daemon, toml
from tests.support.shop import entry
from tests.support.terminal import Request, http, scripted_terminal


@dataclass(frozen=True)
class Start:
    """One start: seconds to READY, seconds until every open payment was asked for, and how terminals were asked."""

    ready: float
    asked: float
    searches: int
    most_at_once: int
    most_of_a_terminal: int
    longest_read: float


async def start(home: Path, *, ended: int, opened: int, terminals: int) -> Start:
    """Fill a database in `home` and start a daemon over it, with terminals that know nothing."""
    running: Counter[str] = Counter()
    most_at_once = most_of_a_terminal = 0
    everything = asyncio.Event()
    seen: set[str] = set()

    async with scripted_terminal(home, ports=terminals) as terminal:

        async def search(request: Request, writer: asyncio.StreamWriter) -> None:
            nonlocal most_at_once, most_of_a_terminal
            port = str(writer.get_extra_info("sockname")[1])
            running[port] += 1
            most_at_once = max(most_at_once, running.total())
            most_of_a_terminal = max(most_of_a_terminal, running[port])
            await asyncio.sleep(0.005)  # the terminal's own time
            writer.write(http(200, b"[]"))
            running[port] -= 1
            seen.add(request.json["client_transaction_id"])
            if len(seen) == opened:
                everything.set()

        terminal.search = search
        (home / "state").mkdir()
        path = home / "state" / "posd.db"
        fill(
            path,
            ended=ended,
            opened=opened,
            terminals=terminals,
            sent_to=terminal.base_url,
            with_attention=ended // 100,
        )
        entries = "".join(entry(f"SN-{number}", url, terminal) for number, url in enumerate(terminal.base_urls))
        posd = Daemon(home, toml(home, entries))
        tls.init(home / "state" / "tls", names=["localhost"], addresses=["127.0.0.1"])
        begun = time.monotonic()
        await posd.start()
        ready = time.monotonic() - begun
        longest = 0.0
        try:
            async with asyncio.timeout(300):
                while opened and not everything.is_set():
                    asked = time.monotonic()
                    await posd.call("GET", "/transactions?limit=1")
                    longest = max(longest, time.monotonic() - asked)
        finally:
            await posd.stop()
        faults = [line for line in posd.lines if line["event"] == "posd.internal_error"]
        assert not faults, faults
        total = time.monotonic() - begun
        return Start(
            ready, total if opened else ready, len(terminal.searches), most_at_once, most_of_a_terminal, longest
        )
