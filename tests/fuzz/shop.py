"""A daemon process for fuzzing, asked by threads that block, and a terminal that keeps what it was sent."""

import asyncio
import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import UUID, uuid5

from posd.base import ids
from posd.base.ids import Channel
from tests.fuzz.seeds import SERIAL
from tests.fuzz.wire import Answer, Message, ask_local, ask_tls
from tests.support.daemon import Daemon, running
from tests.support.ports import reserve
from tests.support.webhooks import faults, key_file

#: In the fleet: nothing listens at its address; it has no address.
GONE, OFFLINE = "SN-GONE", "SN-OFFLINE"

_NAMESPACE = UUID("7f3c1f0e-3b0a-4d7c-9d55-0f6b1c2a9e11")


class Wire(BaseHTTPRequestHandler):
    """A terminal on the wire: it refuses every payment and prints every job, and keeps the bodies by id."""

    sent: dict[str, bytes]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        document = json.loads(body)
        if "printJobId" in document:
            self.sent[document["printJobId"]] = body
            self._answer(202, {"printJobId": document["printJobId"], "status": "COMPLETED"})
        elif self.path.endswith("transaction_search_online"):
            self._answer(404, {})
        else:
            self.sent[document.get("client_transaction_id", "")] = body
            self._answer(422, {"message": "refused"})

    def do_GET(self) -> None:
        self._answer(404, {})

    def log_message(self, *_arguments: Any) -> None:
        """Say nothing."""

    def _answer(self, status: int, document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Shop:
    """The daemon, the terminal's record, and unused ids."""

    def __init__(self, posd: Daemon, sent: dict[str, bytes]) -> None:
        self.posd = posd
        self.sent = sent
        self._numbers = count()
        self._tls = ssl.create_default_context(cafile=str(posd.ca))

    def fresh(self) -> str:
        """Return an id that was not used yet."""
        return str(uuid5(_NAMESPACE, str(next(self._numbers))))

    def ask(self, message: Message) -> Answer:
        """Ask the local API."""
        return self.ask_raw(message.encode(), method=message.method, admin=message.admin)

    def ask_raw(self, data: bytes, *, method: str = "GET", admin: bool = False) -> Answer:
        """Send bytes to a socket of the local API."""
        return ask_local(self.posd.admin_socket if admin else self.posd.till_socket, data, method)

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
    """Run a daemon and its terminal for the block; at the end its log must not have internal errors."""
    handler = type("Handler", (Wire,), {"sent": {}})
    with ThreadingHTTPServer(("127.0.0.1", reserve()), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        terminals = (
            f'[[terminals]]\nserial = "{SERIAL}"\nbase_url = "http://127.0.0.1:{server.server_port}"\n'
            f'[[terminals]]\nserial = "{GONE}"\nbase_url = "http://127.0.0.1:{reserve()}"\n'
            f'[[terminals]]\nserial = "{OFFLINE}"\n'
        )
        loop = asyncio.new_event_loop()
        thread = Thread(target=loop.run_forever)
        thread.start()
        daemon = running(directory, terminals, "[print]\npoll_first_seconds = 0.1\npoll_max_seconds = 0.2\n")
        try:
            posd = asyncio.run_coroutine_threadsafe(daemon.__aenter__(), loop).result()
            try:
                yield Shop(posd, handler.sent)  # type: ignore[attr-defined]
            finally:
                asyncio.run_coroutine_threadsafe(daemon.__aexit__(None, None, None), loop).result()
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()
            server.shutdown()
