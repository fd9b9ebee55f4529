"""A daemon with simulated terminals behind loopback ports: schemathesis speaks TCP alone."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.support.connections import Connections
from tests.support.ports import reserve
from tests.support.simulated import simulated

#: Longest that start and stop may take, in seconds: then they are stuck.
STUCK_SECONDS = 120.0
SERIAL = "SN-0001"


@dataclass
class Gateway:
    """Where the sockets can be reached, that of tills, and the directory of all that the daemon owns."""

    till: str
    admin: str
    till_socket: Path
    home: Path


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()


async def _pass_on(socket: Path, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on what one says to the other, until one of them ends."""
    inner_reader, inner_writer = await asyncio.open_unix_connection(str(socket))
    pumps = [
        asyncio.create_task(_pump(reader, inner_writer)),
        asyncio.create_task(_pump(inner_reader, writer)),
    ]
    try:
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
    finally:
        inner_writer.transport.abort()  # without waiting for anything: the end may come in any state
        for pump in pumps:
            pump.cancel()
    await asyncio.gather(*pumps, return_exceptions=True)


@asynccontextmanager
async def _listening(socket: Path) -> AsyncIterator[str]:
    """Listen on a loopback port for the block; yield its URL."""
    port = reserve()
    connections = Connections(partial(_pass_on, socket))
    server = await asyncio.start_server(connections, "127.0.0.1", port)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await connections.close(server)


@asynccontextmanager
async def _opened(home: Path, serials: Sequence[str]) -> AsyncIterator[Gateway]:
    async with AsyncExitStack() as stack:
        daemon, _ = await stack.enter_async_context(simulated(home, dict.fromkeys(serials, "")))
        till = await stack.enter_async_context(_listening(daemon.till_socket))
        admin = await stack.enter_async_context(_listening(daemon.admin_socket))
        yield Gateway(till, admin, daemon.till_socket, home)


@contextmanager
def opened(home: Path, serials: Sequence[str] = (SERIAL,)) -> Iterator[Gateway]:
    """Run it for the block, on a loop of its own in a thread; `serials` are those of its terminals."""
    ready, over = threading.Event(), threading.Event()
    found: list[Gateway] = []
    failed: list[BaseException] = []

    async def run() -> None:
        async with _opened(home, serials) as gateway:
            found.append(gateway)
            ready.set()
            await asyncio.to_thread(over.wait)

    def work() -> None:
        try:
            asyncio.run(run())
        except BaseException as error:  # noqa: BLE001 - the test's thread raises it
            failed.append(error)
            ready.set()

    thread = threading.Thread(target=work, name="gateway")
    thread.start()
    try:
        assert ready.wait(STUCK_SECONDS)
        if not failed:
            yield found[0]
    finally:
        over.set()
        thread.join(STUCK_SECONDS)
        if failed:
            raise failed[0]
