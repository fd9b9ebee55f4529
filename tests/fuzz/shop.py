"""A daemon process for fuzzing, asked by threads that block."""

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from threading import Thread
from uuid import UUID, uuid5

from posd.base import ids
from posd.base.ids import Channel
from tests.fuzz.seeds import SERIAL
from tests.fuzz.wire import Answer, Message, ask_local, ask_tls
from tests.support.daemon import Daemon, running
from tests.support.ports import reserve
from tests.support.webhooks import faults, key_file

#: In the fleet; nothing listens at its address.
GONE = "SN-GONE"

_NAMESPACE = UUID("7f3c1f0e-3b0a-4d7c-9d55-0f6b1c2a9e11")


class Shop:
    """The daemon, and unused ids."""

    def __init__(self, posd: Daemon) -> None:
        self.posd = posd
        self._numbers = count()
        self._tls = ssl.create_default_context(cafile=str(posd.ca))

    def fresh(self) -> str:
        """Return an id that was not used yet."""
        return str(uuid5(_NAMESPACE, str(next(self._numbers))))

    def ask(self, message: Message) -> Answer:
        """Ask the local API."""
        return ask_local(self.posd.till_socket, message.encode(), message.method)

    def deliver(self, data: bytes, method: str = "POST") -> Answer:
        """Send bytes to the webhook listener."""
        return ask_tls(self.posd.port, self._tls, data, method)

    def address(self, channel: Channel, identity: str) -> str:
        """Return the path of the callback address of an id."""
        key = bytes.fromhex(key_file(self.posd).read_text().split()[0])
        return ids.path(channel, identity, ids.token(key, channel, identity))

    def check(self) -> None:
        """The daemon is alive, and its log tells of no fault of its own."""
        assert self.posd.process is not None
        assert self.posd.process.returncode is None, "the daemon has ended"
        assert faults(self.posd) == []
        assert self.ask(Message("GET", "/v1/version")).status == 200


@contextmanager
def open_shop(directory: Path) -> Iterator[Shop]:
    """Run a daemon for the block; at the end its log must not have internal errors."""
    terminals = "".join(
        f'[[terminals]]\nserial = "{serial}"\nbase_url = "http://127.0.0.1:{reserve()}"\n' for serial in (SERIAL, GONE)
    )
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever)
    thread.start()
    daemon = running(directory, terminals, "[print]\npoll_first_seconds = 0.1\npoll_max_seconds = 0.2\n")
    try:
        posd = asyncio.run_coroutine_threadsafe(daemon.__aenter__(), loop).result()
        try:
            yield Shop(posd)
        finally:
            asyncio.run_coroutine_threadsafe(daemon.__aexit__(None, None, None), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
