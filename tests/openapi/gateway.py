"""A daemon with a simulated terminal behind loopback ports: schemathesis speaks TCP alone."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.support.ports import reserve
from tests.support.simulated import simulated

#: Longest that start and stop may take, in seconds: then they are stuck.
STUCK_SECONDS = 120.0
SERIAL = "SN-0001"


@dataclass
class Gateway:
    """Where the sockets can be reached, and the directory of all that the daemon owns."""

    till: str
    admin: str
    home: Path


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()
    with suppress(OSError):
        writer.write_eof()


async def _pass_on(socket: Path, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        inner_reader, inner_writer = await asyncio.open_unix_connection(str(socket))
    except OSError:
        writer.close()
        return
    try:
        await asyncio.gather(_pump(reader, inner_writer), _pump(inner_reader, writer))
    finally:
        inner_writer.close()
        writer.close()


@asynccontextmanager
async def _opened(home: Path) -> AsyncIterator[Gateway]:
    async with AsyncExitStack() as stack:
        daemon, _ = await stack.enter_async_context(simulated(home, {SERIAL: ""}))
        urls = []
        for socket in (daemon.till_socket, daemon.admin_socket):
            port = reserve()
            server = await asyncio.start_server(partial(_pass_on, socket), "127.0.0.1", port)
            stack.callback(server.close)
            urls.append(f"http://127.0.0.1:{port}")
        yield Gateway(*urls, home)


@contextmanager
def opened(home: Path) -> Iterator[Gateway]:
    """Run it for the block, on a loop of its own in a thread."""
    ready, over = threading.Event(), threading.Event()
    found: list[Gateway] = []
    failed: list[BaseException] = []

    async def run() -> None:
        async with _opened(home) as gateway:
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
