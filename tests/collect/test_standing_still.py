"""The relay and the collector do not block payments. The test suspends the readers of their logs and both servers, and
payments continue. A signal still ends both processes in time.
"""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.collect.postgres import Postgres, postgres
from tests.e2e.test_standing_still import pay, well
from tests.relay.lane import Lane, with_feed
from tests.relay.nats_server import NatsServer
from tests.relay.scrapes import numbers, scraped
from tests.rig import forks
from tests.rig.daemon import running
from tests.rig.leftovers import OWNER, owner
from tests.rig.needs import needs
from tests.rig.ports import reserve
from tests.rig.standing import FullOutput
from tests.rig.terminal import scripted_terminal

pytestmark = [pytest.mark.slow, needs("postgres", "initdb", "nats-server")]

#: Maximum time in which a process must end if no peer is suspended, in seconds. The clients of both servers wait for at
#: most two seconds.
END_SECONDS = 20.0
#: Open descriptors of the two processes, without Unix sockets (the loop's own pair, and feed.sock or PostgreSQL).
KNOWN = {"the log", "nats", "metrics", "unix", "its own", "a file"}
#: Number of Unix sockets. The relay keeps no connection to feed.sock open. The collector keeps two connections to
#: PostgreSQL open.
UNIX_SOCKETS = 4


@asynccontextmanager
async def process(config: Path, command: str, output: FullOutput) -> AsyncIterator[Any]:
    """Run the relay or the collector for the block. Nothing reads the log."""
    environment = os.environ | {OWNER: owner()}
    found = await forks.start(
        "--config", str(config), command, env=environment, stdout=output.write, stderr=asyncio.subprocess.STDOUT
    )
    try:
        yield found
    finally:
        if found.returncode is None:
            found.kill()
            await found.wait()


def opened(pid: int, ports: Mapping[int, str]) -> Counter[str]:
    """Return the open descriptors of a process. `ports`: the TCP ports that the process may use."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    tcp = {row[9]: {int(end.rpartition(":")[2], 16) for end in row[1:3]} for row in rows}
    unix = {line.split()[6] for line in Path("/proc/net/unix").read_text().splitlines()[1:]}
    found = Counter[str]()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            target = str(descriptor.readlink())
            inode = target.partition(":")[2].strip("[]")
            if descriptor.name in ("1", "2"):
                found["the log"] += 1
            elif target.startswith("socket:"):
                ends = [ports[port] for port in tcp.get(inode, ()) if port in ports]
                found[ends[0] if ends else "unix" if inode in unix else target] += 1
            else:
                found["its own" if target.startswith("anon_inode:") else "a file" if target[0] == "/" else target] += 1
    return found


async def until_stored(database: Postgres, identity: str) -> None:
    """Wait until head office has a payment."""
    async with asyncio.timeout(60):
        query = "SELECT count(*) FROM posd.payments WHERE client_transaction_id = %s AND result = 'approved'"
        while await database.rows(query, (identity,)) != [(1,)]:
            pass


async def test_payments_continue_while_the_logs_are_not_read_and_both_servers_are_suspended(tmp_path: Path) -> None:
    ports = reserve(), reserve()
    with TemporaryDirectory(prefix="posd-") as name, FullOutput("pipe") as one, FullOutput("socket") as other:
        home = Path(name)
        with_feed(home)
        async with (
            NatsServer(tmp_path) as server,
            postgres() as database,
            scripted_terminal(home) as terminal,
            running(home, terminal.toml) as posd,
        ):
            office = tmp_path / "office.toml"
            office.write_text(
                f'[collect]\nservers = ["{server.url}"]\ndsn = "{database.dsn}"\n'
                f'metrics_listen = "127.0.0.1:{ports[0]}"\n[logging]\nlevel = "debug"\n'
            )
            made = await forks.start("--config", str(office), "collect", "--init", env=os.environ | {OWNER: owner()})
            await made.communicate()
            lane = Lane(posd, server, f'metrics_listen = "127.0.0.1:{ports[1]}"\n[logging]\nlevel = "debug"')
            lane.configure()
            async with process(lane.config, "relay", one) as relay, process(office, "collect", other) as collector:
                (identity,) = await pay(posd, terminal)
                await until_stored(database, identity)
                assert numbers(await scraped(ports[0]), "posd_collect_connected") == {"": 1}
                assert numbers(await scraped(ports[1]), "posd_relay_connected") == {"": 1}
                known = {server.port: "nats", **dict.fromkeys(ports, "metrics")}
                for each in (relay, collector):
                    found = opened(each.pid, known)
                    assert found.keys() <= KNOWN, "the process writes to a peer that this test does not suspend"
                    assert found["unix"] <= UNIX_SOCKETS, found
                server.send(signal.SIGSTOP)
                database.send(signal.SIGSTOP)
                try:
                    await pay(posd, terminal, 2)
                    await well(posd)
                    for each in (relay, collector):
                        each.send_signal(signal.SIGTERM)
                        async with asyncio.timeout(END_SECONDS):
                            assert await each.wait() == 0
                finally:
                    server.send(signal.SIGCONT)
                    database.send(signal.SIGCONT)
