"""A fleet of lanes with real daemons and relays, a NATS server, PostgreSQL and collectors. Faults affect all parts.
`python -m tests.collect.fleet --lanes 20 --payments 2000 --seed 1` makes a long run. A test makes a short run.
"""

import argparse
import asyncio
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import repeat
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from tests.collect.postgres import Postgres, postgres
from tests.e2e.test_back_in_time import restored
from tests.e2e.test_backup import back_up
from tests.relay.lane import Lane, with_feed
from tests.relay.nats_server import NatsServer
from tests.rig.daemon import running
from tests.rig.program import Command
from tests.rig.proxy import Lan, Proxy
from tests.rig.shop import Payment, Shop, answering
from tests.rig.terminal import scripted_terminal

#: Maximum time until the table is complete after the last fault, in seconds.
PATIENCE_SECONDS = 180.0
#: The day before all payments.
FIRST = (datetime.now(UTC).date() - timedelta(days=300)).isoformat()


@dataclass
class Post:
    """A lane with a daemon and relays."""

    shop: Shop
    lane: Lane
    network: Lan
    relays: list[Command] = field(default_factory=list)
    payments: list[Payment] = field(default_factory=list)
    paying: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass
class Fleet:
    """The whole fleet. `broken`: the number of faults."""

    random: Random
    directory: Path
    server: NatsServer
    database: Postgres
    posts: list[Post]
    collectors: list[Command] = field(default_factory=list)
    broken: Counter[str] = field(default_factory=Counter)

    @property
    def config(self) -> Path:
        return self.directory / "collect.toml"

    async def posd(self, *arguments: str, config: Path | None = None) -> Command:
        """Run a command, by default with head office's configuration. Raise AssertionError if the command fails."""
        process = await Command.start(config or self.config, *arguments)
        assert await process.ended() == 0, process.lines
        return process

    async def begin(self) -> None:
        """Make head office's tables, and start all parts. The first lane has two relays."""
        self.config.write_text(f'[collect]\nservers = ["{self.server.url}"]\ndsn = "{self.database.dsn}"\n')
        await self.posd("collect", "--init")
        for post in self.posts:
            post.relays = [await post.lane.start() for _ in range(2 if post is self.posts[0] else 1)]
        self.collectors = [await Command.start(self.config, "collect") for _ in range(2)]

    async def pay(self, count: int) -> None:
        """Make payments on all lanes. Each lane makes one payment after the other."""

        async def work(post: Post, payments: int) -> None:
            for _ in range(payments):
                await self._pay(post)

        share = count // len(self.posts)
        await asyncio.gather(*(work(post, share) for post in self.posts))

    async def _pay(self, post: Post) -> None:
        """Make one payment. A lane has one terminal, which runs one payment at a time."""
        way = self.random.choice(("approved",) * 6 + ("declined", "corrected", "void", "refused"))
        async with post.paying:
            payment = post.shop.payment()
            if way in ("corrected", "refused"):
                post.shop.terminal.start = answering(409, {"message": "busy"})
            reply = await payment.put(sale=f"sale {len(post.payments)}")
            assert reply.status in (200, 201, 202), reply.body
            post.payments.append(payment)
            if way == "declined":
                await payment.end("DECLINED")
            elif way != "refused":
                await payment.approve()
            if way == "void":
                void = post.shop.payment()
                asked = {"type": "void", "original": payment.identity}
                reply = await post.shop.daemon.call("PUT", f"/transactions/{void.identity}", asked)
                assert reply.status in (200, 201, 202), reply.body
                await void.approve()
                post.payments.append(void)

    async def trouble(self) -> None:
        """Cause one fault and repair it."""
        deeds: list[Callable[[], Awaitable[None]]] = [
            self._kill_relay, self._kill_relay, self._stop_relay, self._cut_link, self._swallow, self._kill_collector,
            self._kill_collector, self._crash_server, self._crash_server,
        ]  # fmt: skip
        deed = self.random.choice(deeds)
        self.broken[deed.__name__.removeprefix("_")] += 1
        await deed()

    async def _kill_relay(self) -> None:
        post = self.random.choice(self.posts)
        number = self.random.randrange(len(post.relays))
        await post.relays[number].stop(signal.SIGKILL)
        post.relays[number] = await post.lane.start()

    async def _stop_relay(self) -> None:
        """Suspend a relay for a while, then continue it."""
        post = self.random.choice(self.posts)
        relay = self.random.choice(post.relays)
        relay.process.send_signal(signal.SIGSTOP)
        await self._pay(post)
        relay.process.send_signal(signal.SIGCONT)

    async def _cut_link(self) -> None:
        post = self.random.choice(self.posts)
        post.network.down(cut=True, refuse=True)
        await self._pay(post)
        post.network.up()

    async def _swallow(self) -> None:
        """Remove data of a lane between relay and head office without an error."""
        post = self.random.choice(self.posts)
        post.network.down(cut=False, refuse=False)
        for _ in range(3):
            await self._pay(post)
        post.network.up(lost=True)

    async def _kill_collector(self) -> None:
        number = self.random.randrange(len(self.collectors))
        await self.collectors[number].stop(signal.SIGKILL)
        self.collectors[number] = await Command.start(self.config, "collect")

    async def _crash_server(self) -> None:
        """Crash head office's stream or database."""
        server, number = self.random.choice([(self.server, signal.SIGKILL), (self.database, signal.SIGQUIT)])
        await server.stop(number)
        await self._pay(self.random.choice(self.posts))
        await server.start()

    async def restore(self) -> None:
        """Restore a backup on the last lane."""
        post = self.posts[-1]
        backup = self.directory / "backup.db"
        await back_up(post.shop.daemon, backup)
        for _ in range(3):
            await self._pay(post)
        await post.shop.daemon.kill()
        await restored(post.shop.daemon, str(backup))
        await post.shop.daemon.start()
        admin = post.shop.daemon.admin_socket
        await post.shop.daemon.call("POST", "/restore/seen", {"operator": "Ana", "note": ""}, socket=admin)
        self.broken["restore"] += 1

    async def complete(self) -> None:
        """Wait until head office has all data of the lanes, including the data of earlier databases.

        If the database crashes while a collector has a message, the message is delivered again after ACK_SECONDS.
        """
        async with asyncio.timeout(PATIENCE_SECONDS):
            for post in self.posts:
                await post.lane.until_complete()
                newest = (await post.lane.feed())[-1]["seq"]
                query = (
                    "SELECT complete_to_seq, (SELECT count(*) FROM posd.gaps g WHERE g.lane = l.lane)"
                    " FROM posd.lanes l WHERE lane = %s"
                )
                while await self.database.rows(query, (post.lane.name,)) != [(newest, 0)]:  # noqa: ASYNC110 - no event
                    await asyncio.sleep(0.1)

    async def end(self) -> None:
        """Stop relays and collectors in order. SIGTERM kills a process that has not set its signal handler."""
        for process in [*self.collectors, *(relay for post in self.posts for relay in post.relays)]:
            await process.log_line("collect.connected" if process in self.collectors else "relay.connected")
            assert await process.stop() == 0, process.lines

    async def compare(self) -> None:
        """Compare the table with the lanes' databases row by row, and the totals with the lanes' reports."""
        for post in self.posts:
            feed = await post.lane.feed()
            # A lane restores an older backup. Changes after this backup exist only at head office.
            page = (await post.shop.daemon.call("GET", "/feed?limit=1")).json
            ends = {item["database_id"]: item["last_seq"] for item in page["databases"]}
            rows = await self.database.rows(
                "SELECT c.database_id, seq, change FROM posd.changes c JOIN posd.databases USING (database_id)"
                " WHERE c.lane = %s ORDER BY ordinal, seq",
                (post.lane.name,),
            )
            assert [change for database_id, seq, change in rows if seq <= ends[database_id]] == feed, post.lane.name
            stored = {
                row[0]: row[1:]
                for row in await self.database.rows(
                    "SELECT client_transaction_id, phase, result, type, authorized_amount, sale, transaction_reference,"
                    " corrected FROM posd.payments WHERE lane = %s",
                    (post.lane.name,),
                )
            }
            for identity in {change["id"] for change in feed}:
                document = await post.shop.daemon.transaction(identity)
                outcome = document["outcome"] or {}
                phase, result, kind, authorized, sale, reference, corrected = stored.pop(identity)
                assert (phase, result) == (document["phase"], outcome.get("result")), identity
                assert kind == (document["type"] if outcome else kind)
                assert authorized == outcome.get("authorized_amount")
                assert reference == outcome.get("transaction_reference")
                assert corrected == (outcome.get("supersedes") is not None)
                assert sale == (document["sale"] if outcome else sale)
            assert not stored, "head office has payments that no lane has"
        ((count,),) = await self.database.rows("SELECT count(*) FROM posd.unreadable")
        assert count == 0
        await self.posd("collect", "--check")
        await self._compare_totals()

    async def _compare_totals(self) -> None:
        today = datetime.now(UTC).date().isoformat()
        asked = await self.posd("collect", "totals", "--day", FIRST, "--to", today, "--timezone", "UTC", "--json")
        found = {
            (row["lane"], row["kind"]): (row["payments"], Decimal(str(row["total"])))
            for row in asked.lines[0]["totals"]
        }
        wanted: dict[tuple[str, str], tuple[int, Decimal]] = {}
        for post in self.posts:
            days = ("--from", FIRST, "--timezone", "UTC", "--json")
            report = await self.posd("report", *days, config=post.shop.daemon.config_file)
            for row in report.lines[0]["by_type"]:
                payments, total = wanted.get((post.lane.name, row["type"]), (0, Decimal(0)))
                payments += row["payments"] + row["reversals"]
                wanted[post.lane.name, row["type"]] = (payments, total + Decimal(str(row["total"])))
        assert found == wanted, (found, wanted)


@asynccontextmanager
async def fleet(seed: int, lanes: int) -> AsyncIterator[Fleet]:
    """Run a fleet for the block."""
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="posd-")))
        (directory / "nats").mkdir()
        server = await stack.enter_async_context(NatsServer(directory / "nats"))
        database = await stack.enter_async_context(postgres())
        posts = []
        for number in range(lanes):
            home = directory / f"{number}"
            home.mkdir()
            with_feed(home)
            terminal = await stack.enter_async_context(scripted_terminal(home, f"SN-{number}"))
            daemon = await stack.enter_async_context(running(home, terminal.toml))
            shop = Shop(daemon, terminal, repeat(terminal.serial))
            network = Lan()
            proxy = Proxy(network)
            proxy.upstream = ("127.0.0.1", server.port)
            await proxy.listen("127.0.0.1")
            stack.push_async_callback(proxy.stop)
            lane = Lane(daemon, server, name=f"lane-{number}", urls=[f"nats://127.0.0.1:{proxy.port}"])
            posts.append(Post(shop, lane, network))
        yield Fleet(Random(seed), directory, server, database, posts)


async def play(seed: int, lanes: int, payments: int, troubles: int) -> Fleet:
    """Run the whole fleet. Raise AssertionError if head office lacks data of the lanes."""
    async with fleet(seed, lanes) as found:
        await found.begin()
        paying = asyncio.create_task(found.pay(payments))
        for number in range(troubles):
            await found.trouble()
            if number == troubles // 2:
                await paying  # this process must not read the database during the restore
                await found.restore()
                paying = asyncio.create_task(found.pay(payments // 4))
        await paying
        await found.complete()
        await found.end()
        await found.compare()
        return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.collect.fleet", description=str(__doc__))
    parser.add_argument("--lanes", type=int, default=20)
    parser.add_argument("--payments", type=int, default=2000)
    parser.add_argument("--troubles", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    began = time.monotonic()
    found = asyncio.run(play(given.seed, given.lanes, given.payments, given.troubles))
    paid = sum(len(post.payments) for post in found.posts)
    print(f"{paid} payments on {given.lanes} lanes in {time.monotonic() - began:.0f} s; broken: {dict(found.broken)}")
    print("head office has what the lanes have, row for row, and the same totals", file=sys.stderr)


if __name__ == "__main__":
    main()
