"""A daemon with many terminals, and payments from the till's PUT to the last event, many at once and one after the
other. All terminals run in this process behind one port, and accept every payment at once. The raw client needs
little processor time compared with the measured daemon.
"""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

from tests.rig import events
from tests.rig.daemon import Daemon, running
from tests.rig.https import connect
from tests.rig.senders import crowd
from tests.rig.shop import AMOUNT
from tests.rig.streams import Connection
from tests.rig.terminal import Request, acknowledgement, http, scripted_terminal
from tests.rig.usage import FRESH, processor_seconds, quiet


@dataclass
class Shop:
    """One daemon and its terminals."""

    daemon: Daemon
    serials: Sequence[str]
    #: The callback path of each start, by its payment's id.
    arrived: dict[str, str]


@asynccontextmanager
async def open_shop(
    directory: Path,
    count: int,
    environment: Mapping[str, str] | None = None,
    discovery: str = "enabled = false",
    *,
    secure: bool = False,
) -> AsyncIterator[Shop]:
    """Run a daemon with this many terminals for the block. With `secure` the terminals use HTTPS."""
    serials = [f"SN-{number:04}" for number in range(1, count + 1)]
    arrived: dict[str, str] = {}
    directory.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - no other task runs yet

    async def acknowledge(request: Request, writer: asyncio.StreamWriter) -> None:
        arrived[request.json["client_transaction_id"]] = urlsplit(request.callback).path
        writer.write(http(200, acknowledgement(request, request.path.split("/")[1])))

    async with scripted_terminal(directory, plain=not secure) as terminal:
        terminal.start = acknowledge
        trust = f'ca_file = "{terminal.ca_file}"\n' if secure else ""
        entries = "".join(
            f'[[terminals]]\nserial = "{serial}"\nbase_url = "{terminal.base_url}/{serial}"\n{trust}\n'
            for serial in serials
        )
        async with running(directory, entries, "", discovery, environment, FRESH) as daemon:
            yield Shop(daemon, serials, arrived)


async def connected(path: Path) -> Connection:
    """Connect to the socket of the tills."""
    return Connection(*await asyncio.open_unix_connection(str(path)))


async def listener(shop: Shop) -> Connection:
    """Connect to the listener for callbacks, over TLS."""
    return Connection(*await connect(shop.daemon.port, shop.daemon.ca))


async def expect(connection: Connection, status: int) -> None:
    """Read one response. Check its status."""
    reply = await connection.answer()
    assert reply.status == status, reply


#: Pause after each step of a single payment, in seconds. In a shop the next step also comes later, so two steps share
#: no work.
PAUSE_SECONDS = 0.003
JSON = "content-type: application/json\r\n"


async def start(own: Connection, serial: str) -> str:
    """Start a payment. Return the id."""
    identity = str(uuid4())
    own.send("PUT", f"/v1/transactions/{identity}", JSON, json.dumps({"terminal": serial, "amount": AMOUNT}).encode())
    await expect(own, 201)
    return identity


async def end(shop: Shop, lan: Connection, identity: str, serial: str) -> None:
    """Send all events of an approved payment."""
    path = shop.arrived.pop(identity)
    for status, previous in events.APPROVED:
        lan.send("POST", path, JSON, events.body(identity, status, previous, serial))
        await expect(lan, 200)


async def pay(shop: Shop, count: int) -> None:
    """Run this many payments to their end, on all terminals at once.

    Each terminal has a till in a process of its own, because a process may start only a limited number of payments in a
    day. Each terminal sends its events over one connection.
    """
    left = repeat(None, count)
    with crowd(shop.daemon.till_socket, len(shop.serials), each=1) as tills:
        async with asyncio.TaskGroup() as group:
            for connection, serial in zip(tills, shop.serials, strict=True):
                group.create_task(_pay(shop, connection, serial, left))


async def _pay(shop: Shop, connection: socket.socket, serial: str, left: Iterator[None]) -> None:
    own, lan = Connection(*await asyncio.open_unix_connection(sock=connection.dup())), await listener(shop)
    try:
        for _ in left:
            await end(shop, lan, await start(own, serial), serial)
    finally:
        own.hang_up()
        lan.hang_up()


@asynccontextmanager
async def one_by_one(shop: Shop) -> AsyncIterator[Callable[[int], Awaitable[float]]]:
    """Connect a till, a waiting till, a reader of the feed and the terminals for the block. Yield a function that runs
    payments one after the other on the terminals in turn. Each payment has a start, the terminal's acknowledgement,
    four events, a till that waits for the outcome, and a reader of the feed that gets the changes. The function returns
    the daemon's processor seconds for each payment, over all its threads.
    """
    own, waiter, feed = [await connected(shop.daemon.till_socket) for _ in range(3)]
    lan = await listener(shop)
    feed.send("GET", "/v1/feed", "accept: text/event-stream\r\n")
    reading = asyncio.create_task(feed.reader.read())

    async def pay_in_turn(count: int) -> float:
        await quiet(shop.daemon.pid)
        used = processor_seconds(shop.daemon.pid)
        for number in range(count):
            serial = shop.serials[number % len(shop.serials)]
            identity = await start(own, serial)
            await asyncio.sleep(PAUSE_SECONDS)
            waiter.send("GET", f"/v1/transactions/{identity}/outcome")
            await asyncio.sleep(PAUSE_SECONDS)
            await end(shop, lan, identity, serial)
            await expect(waiter, 200)
            await asyncio.sleep(PAUSE_SECONDS)
        await quiet(shop.daemon.pid)
        return (processor_seconds(shop.daemon.pid) - used) / count

    try:
        yield pay_in_turn
    finally:
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading
        for connection in (own, waiter, feed, lan):
            connection.hang_up()
