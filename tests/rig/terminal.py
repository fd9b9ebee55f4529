"""A scripted terminal: a raw TLS server that counts requests and sends exactly the replies of the test."""

import asyncio
import hashlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trustme

from tests.rig.certificates import public_key_sha256
from tests.rig.connections import Connections, shut
from tests.rig.https import read_head
from tests.rig.ports import reserve

#: Limit of a wait in seconds.
PATIENCE_SECONDS = 30.0


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def callback(self) -> str:
        """The callback URL in the request."""
        return str(self.json["events_webhook_url"])

    @property
    def print_callback(self) -> str:
        """The callback URL in the creation of a print job."""
        return str(self.json["webhookUrl"])


#: Function that may write a reply to a request. Afterwards the server closes the connection.
Script = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]


def http(status: int, body: bytes, content_type: str = "application/json") -> bytes:
    """Return an HTTP response as bytes."""
    head = f"HTTP/1.1 {status} X\r\ncontent-type: {content_type}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def acknowledgement(request: Request, serial: str, **changes: Any) -> bytes:
    """Return the acknowledgement of a request (terminal API, Acknowledgement)."""
    document = {
        "event_id": "00000000-0000-4000-8000-000000000000",
        "status": "TERMINAL_ACKNOWLEDGED",
        "previous_status": "",
        "operation": {"type": "charge", "client_transaction_id": request.json["client_transaction_id"]},
        "terminal": {"serialNumber": serial, "model": "M", "wifiMac": "00:00", "room": "", "terminal_id": "1"},
    }
    return json.dumps(document | changes).encode()


async def nowhere(_request: Request, writer: asyncio.StreamWriter) -> None:
    """Script for requests to an unknown path."""
    writer.write(http(404, b"not found", "text/plain"))


async def taking_abort(_request: Request, writer: asyncio.StreamWriter) -> None:
    """Script of a terminal that accepts an abort. The request of an abort has no body."""
    writer.write(http(200, b""))


async def taking_print(request: Request, writer: asyncio.StreamWriter) -> None:
    """Script of a terminal that accepts a print job."""
    reply = {"printJobId": request.json["printJobId"], "status": "PENDING"}
    writer.write(http(202, json.dumps(reply).encode()))


@dataclass
class ScriptedTerminal:
    """The received requests, and the scripts that reply to them. `start`, `abort` and `search`: scripts of the paths
    with these names. `print_start` and `print_poll` are the scripts of printing. Searches, print jobs and polls have
    their own lists. Without a script, a search and a poll get 404, which proves nothing. Without a script, the terminal
    accepts aborts and print jobs.
    """

    serial: str
    ca_file: Path
    context: ssl.SSLContext | None
    fingerprint: str
    public_key: str
    requests: list[Request] = field(default_factory=list)
    searches: list[Request] = field(default_factory=list)
    prints: list[Request] = field(default_factory=list)
    polls: list[Request] = field(default_factory=list)
    #: Set at each request.
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    start: Script | None = None
    abort: Script | None = None
    search: Script | None = None
    print_start: Script | None = None
    print_poll: Script | None = None
    #: Script that runs instead of reading a request. Afterwards the server closes the connection, and counts no
    #: request.
    instead: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]] | None = None
    base_urls: list[str] = field(default_factory=list)
    servers: list[asyncio.Server] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.connections = Connections(self._serve)

    @property
    def base_url(self) -> str:
        return self.base_urls[0]

    @property
    def toml(self) -> str:
        """The terminal's entry in a configuration."""
        return self.entry(self.serial, self.base_url)

    def entry(self, serial: str, base_url: str) -> str:
        """Return the configuration of one serial at an address of this terminal."""
        return f'[[terminals]]\nserial = "{serial}"\nbase_url = "{base_url}"\nca_file = "{self.ca_file}"\n'

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until a state of the received requests holds. Raise TimeoutError if this takes too long."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not holds():
                self.arrived.clear()
                await self.arrived.wait()

    @property
    def aborts(self) -> int:
        """Number of abort requests."""
        return sum(1 for request in self.requests if request.path.endswith("/abort"))

    def starts_of(self, identity: str) -> int:
        """Return the number of start requests for an id."""
        return sum(1 for request in self.requests if request.method == "POST" and identity in request.body.decode())

    async def unplug(self, number: int = 0) -> None:
        """Close one of the listening ports."""
        await shut(self.servers[number])

    async def plug_in(self, number: int = 0) -> None:
        """Listen on the port again."""
        port = int(self.base_urls[number].rsplit(":", 1)[1])
        self.servers[number] = await asyncio.start_server(self.connections, "127.0.0.1", port, ssl=self.context)

    async def acknowledge(self, request: Request, writer: asyncio.StreamWriter) -> None:
        """Script of a terminal that accepts the payment."""
        writer.write(http(200, acknowledgement(request, self.serial)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            if self.instead is not None:
                await self.instead(reader, writer)
                return
            (method, path, _), headers = read_head(await reader.readuntil(b"\r\n\r\n"))
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            request = Request(method, path, headers, body)
            if path.endswith("/transaction_search_online"):
                received, script = self.searches, self.search or nowhere
            elif path.endswith(("/print", "/print/job")):
                received, script = self.prints, self.print_start or taking_print
            elif "print_job" in path:
                received, script = self.polls, self.print_poll or nowhere
            elif path.endswith("/abort"):
                received, script = self.requests, self.abort or taking_abort
            else:
                received, script = self.requests, self.start or self.acknowledge
            received.append(request)
            self.arrived.set()
            await script(request, writer)
            await writer.drain()


@asynccontextmanager
async def scripted_terminal(
    directory: Path,
    serial: str = "SN-TEST",
    issue: Callable[[trustme.CA], trustme.LeafCert] = lambda authority: authority.issue_cert("127.0.0.1"),
    ports: int = 1,
    *,
    plain: bool = False,
) -> AsyncIterator[ScriptedTerminal]:
    """Run a scripted terminal on loopback over TLS. `issue` makes the certificate. `ports`: number of listening ports.
    `plain`: use HTTP without TLS.
    """
    authority = trustme.CA()
    ca_file = directory / f"{serial}.ca.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate = issue(authority)
    certificate.configure_cert(tls)
    der = ssl.PEM_cert_to_DER_cert(certificate.cert_chain_pems[0].bytes().decode())
    fingerprint, context = hashlib.sha256(der).hexdigest(), None if plain else tls
    terminal = ScriptedTerminal(serial, ca_file, context, fingerprint, public_key_sha256(der))
    for _ in range(ports):
        port = reserve()
        terminal.servers.append(await asyncio.start_server(terminal.connections, "127.0.0.1", port, ssl=context))
        terminal.base_urls.append(f"{'http' if plain else 'https'}://127.0.0.1:{port}")
    try:
        yield terminal
    finally:
        await terminal.connections.close(*terminal.servers)
