"""Parts for the simulator's tests: a CA, a real webhook receiver over TLS, and simulators that end with the test."""

import asyncio
import contextlib
import json
import ssl
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trustme

from posd.simulator import Settings, Simulator
from tests.rig.certificates import Leaf, issued
from tests.rig.chains import PATHS
from tests.rig.connections import serving
from tests.rig.https import read_head
from tests.rig.waits import until

CHARGE = PATHS["charge"]
SEARCH = "/terminal/v1/transaction_search_online"
#: Terminal seconds in a real second. An approved cycle takes 40 to 170 ms.
SPEED = 200.0
#: Factor that is fast enough for chains of payments.
QUICK_SPEED = 2000.0
#: Maximum real time of a wait, in seconds.
PATIENCE = 30.0

#: Function that returns the status of the reply to a delivery. None disconnects without a reply.
Script = Callable[[dict[str, Any]], int | None]


@dataclass
class Delivery:
    """One POST that reached the receiver."""

    headers: dict[str, str]
    raw: bytes
    event: dict[str, Any]


@dataclass
class Receiver:
    """A small HTTP(S) server. A test can change `answer` at any time."""

    answer: Script = lambda _: 200
    location: str = ""
    silent: bool = False
    deliveries: list[Delivery] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}/hook"

    @property
    def statuses(self) -> list[str]:
        return [delivery.event["status"] for delivery in self.deliveries]

    async def wait_for(self, count: int) -> list[Delivery]:
        await until(lambda: len(self.deliveries) >= count)
        return self.deliveries

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, ssl.SSLError, asyncio.IncompleteReadError):
            _, headers = read_head(await reader.readuntil(b"\r\n\r\n"))
            raw = await reader.readexactly(int(headers["content-length"]))
            event = json.loads(raw, parse_float=Decimal)
            self.deliveries.append(Delivery(headers, raw, event))
            if self.silent:
                await reader.read()  # the receiver sends no reply, and the terminal times out
            elif (status := self.answer(event)) is not None:
                location = f"location: {self.location}\r\n" if self.location else ""
                head = f"HTTP/1.1 {status} X\r\n{location}content-length: 0\r\nconnection: close\r\n\r\n"
                writer.write(head.encode())
                await writer.drain()


@pytest.fixture(scope="session")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="session")
def pem(ca: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the files `ca`, `certificate` and `private_key` (for 127.0.0.1)."""
    directory = tmp_path_factory.mktemp("pem")
    ca.cert_pem.write_to_path(str(directory / "ca.pem"))
    leaf = issued(directory, ca, "127.0.0.1", "localhost")
    return {"ca": directory / "ca.pem", "certificate": leaf.certificate, "private_key": leaf.private_key}


@pytest.fixture
def server_tls(pem: dict[str, Path]) -> ssl.SSLContext:
    return Leaf(pem["certificate"], pem["private_key"]).context()


@pytest.fixture
async def receiver(server_tls: ssl.SSLContext) -> AsyncIterator[Receiver]:
    hook = Receiver()
    async with serving(hook.serve, tls=server_tls) as hook.port:
        yield hook


@pytest.fixture
def settings(tmp_path: Path, pem: dict[str, Path]) -> Callable[..., Settings]:
    """Return a function that makes settings for a quick HTTPS terminal without mDNS. A keyword replaces a setting."""

    def make(**changes: Any) -> Settings:
        defaults: dict[str, Any] = {
            "state": tmp_path,
            "certificate": pem["certificate"],
            "private_key": pem["private_key"],
            "trust": pem["ca"],
            "speed": SPEED,
            "mdns": False,
        }
        return Settings(**defaults | changes)

    return make


class Till:
    """A till that calls one terminal over real TLS."""

    def __init__(self, terminal: Simulator, client: httpx2.AsyncClient) -> None:
        self.terminal = terminal
        self._client = client

    async def post(self, body: bytes, path: str = CHARGE) -> httpx2.Response:
        return await self._client.post(self.terminal.base_url + path, content=body)

    async def charge(self, **fields: Any) -> httpx2.Response:
        return await self.start("charge", **fields)

    async def start(self, operation: str, **fields: Any) -> httpx2.Response:
        """Start an operation. The request omits a field that is None."""
        body = {name: value for name, value in request(**fields).items() if value is not None}
        return await self.post(json.dumps(body).encode(), PATHS[operation])

    async def run(self, operation: str, **fields: Any) -> dict[str, Any]:
        """Run an operation to its end. Return the operation's final event, with every number as text."""
        answer = await self.start(operation, **fields)
        assert answer.status_code == 200, answer.text
        transaction = answer.json()["operation"]["client_transaction_id"]
        await self.terminal.ledger.wait_for("final", client_transaction_id=transaction)
        (event,) = json.loads((await self.search(transaction)).content, parse_float=str, parse_int=str)
        return event

    async def search(self, transaction: str) -> httpx2.Response:
        return await self.post(json.dumps({"client_transaction_id": transaction}).encode(), SEARCH)

    async def get(self, path: str) -> httpx2.Response:
        return await self._client.get(self.terminal.base_url + path)


def request(**fields: Any) -> dict[str, Any]:
    return {"client_transaction_id": str(uuid.uuid4()), "amount": {"subtotal_iva0": 5}} | fields


@pytest.fixture
def client_tls(pem: dict[str, Path]) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(pem["ca"]))


@pytest.fixture
async def client(client_tls: ssl.SSLContext) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(verify=client_tls, trust_env=False, timeout=PATIENCE) as made:
        yield made


def terminal_at(speed: float) -> Any:
    """Return a fixture: a till with a terminal of this speed."""

    @pytest.fixture
    async def made(settings: Callable[..., Settings], client: httpx2.AsyncClient) -> AsyncIterator[Till]:
        async with Simulator(settings(speed=speed)) as terminal:
            yield Till(terminal, client)

    return made


#: Till with a terminal of ordinary test speed.
till = terminal_at(SPEED)
#: Terminal for many payments one after the other. A payment takes some 10 ms.
quick_till = terminal_at(QUICK_SPEED)
