"""One connection on a real socket: the response, the app's messages, and remaining data of both."""

import asyncio
import gc
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from posd.base.clocks import wall
from posd.httpd import bodies
from posd.httpd.admission import ListenerPolicy, RejectedTraffic
from posd.httpd.connection import BodyChannel, HttpConnection, HttpExchange
from posd.httpd.messages import MAX_AT_ONCE, RequestParser
from posd.httpd.server import HttpListener
from tests.rig.streams import Reply
from tests.rig.waits import until
from tests.rig.webhooks import parse

#: Maximum duration of a wait, in seconds.
PATIENCE = 30.0
#: Seconds after which an idle connection ends, for tests that wait for the end.
SHORT = 0.1

CHUNKED = "transfer-encoding: chunked"
OK = (b"content-length", b"2")


class House:
    """A listener without TLS, its app, and the recorded messages."""

    def __init__(self, *, in_turn: bool, keep_alive_seconds: float = PATIENCE) -> None:
        self.noise = RejectedTraffic()
        #: Path and body of each request. The body is None if the client left before its end.
        self.heard: list[tuple[str, bytes | None]] = []
        #: Set when the app receives the next message.
        self.told = asyncio.Event()
        #: Set when the app may reply at /wait.
        self.go = asyncio.Event()
        self.pieces: BodyChannel | None = None
        self.faults: list[dict[str, Any]] = []
        sock = socket.create_server(("127.0.0.1", 0))
        self.listener = HttpListener(
            self._app,
            sock,
            ListenerPolicy(name="test", keep_alive_seconds=keep_alive_seconds, max_connections=10, in_turn=in_turn),
            self.noise,
            wall,
        )

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"]
        if path in EARLY:
            await EARLY[path](receive, send)
            return
        self.pieces = scope["state"]["pieces"]
        try:
            body: bytes | None = await bodies.read(receive, scope, 1_000_000, PATIENCE)
        except ConnectionAbortedError:
            body = None
        self.heard.append((path, body))
        self.told.set()
        if body is None:
            return
        if path == "/wait":
            await self.go.wait()
        await APPS.get(path, answer_ok)(send)

    async def hears(self, *expected: tuple[str, bytes | None]) -> None:
        """Wait until the app has received exactly these requests."""
        async with asyncio.timeout(PATIENCE):
            while len(self.heard) < len(expected):
                self.told.clear()
                await self.told.wait()
        assert self.heard == list(expected)

    async def empty(self) -> None:
        """Wait until no connection is left."""
        await until(lambda: not self.listener.connections)

    async def connect(self) -> "Client":
        return Client(*await asyncio.open_connection("127.0.0.1", self.listener.port))

    async def talk(self, data: bytes) -> list[Reply]:
        """Send bytes. Return the responses until the listener closes."""
        client = await self.connect()
        client.send(data)
        received = await client.rest()
        client.writer.close()
        return parse(received)


class Client:
    """One connection to the listener."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> Reply:
        """Return the next response. The response must have a length."""
        async with asyncio.timeout(PATIENCE):
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
            (found,) = parse(head + await self.reader.readexactly(int(length)))
        return found

    async def rest(self) -> bytes:
        """Return all bytes until the listener closes."""
        received = bytearray()
        async with asyncio.timeout(PATIENCE):
            with suppress(ConnectionError):
                while data := await self.reader.read(65_536):
                    received += data
        return bytes(received)

    def reset(self) -> None:
        """End the connection with a reset."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


def start(status: int, *headers: tuple[bytes, bytes]) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def piece(body: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": more}


async def answer_ok(send: Any) -> None:
    await bodies.answer(send, 200, b"ok")


async def answer_nothing(_send: Any) -> None:
    """Return without a response."""


async def fail(_send: Any) -> None:
    raise RuntimeError


async def fail_in_the_middle(send: Any) -> None:
    await send(start(200))
    await send(piece(b"text", more=True))
    raise RuntimeError


async def fail_in_a_body(send: Any) -> None:
    await send(start(200, (b"content-length", b"10")))
    await send(piece(b"text", more=True))
    raise RuntimeError


async def end_in_a_body(send: Any) -> None:
    await send(start(200, (b"content-length", b"10")))
    await send(piece(b"text"))


async def answer_twice(send: Any) -> None:
    await answer_ok(send)
    await answer_ok(send)


async def answer_backwards(send: Any) -> None:
    await send(piece(b"text"))


async def answer_two_heads(send: Any) -> None:
    await send(start(200, (b"x", b"y\r\nz: a")))


async def stream(send: Any) -> None:
    await send(start(200))
    for part in (b"a", b"", b"bc"):
        await send(piece(part, more=True))
    await send(piece(b""))


async def refuse(receive: Any, send: Any) -> None:
    await bodies.refuse(receive, send, 403)


async def answer_early(receive: Any, send: Any) -> None:
    await bodies.answer_early(receive, send, 413, b"no")


async def answer_and_keep(_receive: Any, send: Any) -> None:
    await answer_ok(send)


async def return_early(_receive: Any, _send: Any) -> None:
    """Return before the request is complete."""


#: Path -> the app's action after the whole request has arrived.
APPS: dict[str, Callable[[Any], Awaitable[None]]] = {
    "/nothing": answer_nothing,
    "/fail": fail,
    "/fail-in-the-middle": fail_in_the_middle,
    "/fail-in-a-body": fail_in_a_body,
    "/end-in-a-body": end_in_a_body,
    "/twice": answer_twice,
    "/backwards": answer_backwards,
    "/two-heads": answer_two_heads,
    "/stream": stream,
}
#: Path -> the app's action before the body has arrived.
EARLY: dict[str, Callable[[Any, Any], Awaitable[None]]] = {
    "/refuse": refuse,
    "/early": answer_early,
    "/keep": answer_and_keep,
    "/return": return_early,
}


def head(path: str, *fields: str, method: str = "POST", version: str = "1.1") -> bytes:
    """Return a request line and headers."""
    return "\r\n".join([f"{method} {path} HTTP/{version}", "host: posd", *fields, "", ""]).encode()


def request(path: str, body: bytes = b"", *fields: str) -> bytes:
    """Return a complete request."""
    return head(path, f"content-length: {len(body)}", *fields) + body


def statuses(answers: list[Reply]) -> list[int]:
    return [answer.status for answer in answers]


async def run(house: House) -> AsyncIterator[House]:
    """Run a house. At the end, check that no task and no connection remains, and that loop and log have only expected
    faults.
    """
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: house.faults.append(context))
    house.listener.start()
    yield house
    await house.listener.close(0)
    assert not house.faults


@pytest.fixture(params=[True, False], ids=["in turn", "in parallel"])
async def house(request: pytest.FixtureRequest) -> AsyncIterator[House]:
    async for house in run(House(in_turn=request.param)):
        yield house


@pytest.fixture(params=[True, False], ids=["in turn", "in parallel"])
async def hasty(request: pytest.FixtureRequest) -> AsyncIterator[House]:
    """Yield a house that ends idle connections after a short time."""
    async for house in run(House(in_turn=request.param, keep_alive_seconds=SHORT)):
        yield house


@pytest.fixture
async def client(house: House) -> AsyncIterator[Client]:
    """Yield a connection to the house. At the end, close it, and wait until the house has no connection."""
    client = await house.connect()
    yield client
    client.writer.close()
    await house.empty()


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the time for which a refused sender may continue to send."""
    monkeypatch.setattr(bodies, "DRAIN_SECONDS", SHORT)


async def served(house: House) -> HttpConnection:
    """Wait until the server reads from a connection, and return it."""
    idle = house.listener.context.idle
    await until(lambda: bool(idle))
    end: Any = next(iter(idle))
    assert isinstance(end.__self__, HttpConnection)
    return end.__self__


# Tests of one request and its pieces.


async def test_requests_that_follow_each_other_are_answered(house: House, client: Client) -> None:
    for number in range(3):
        client.send(request(f"/{number}", b"x" * number))
        assert (await client.answer()).body == b"ok"
    await house.hears(("/0", b""), ("/1", b"x"), ("/2", b"xx"))


@pytest.mark.quick(1)
@pytest.mark.parametrize("framing", ["content-length: 3", CHUNKED])
async def test_a_request_in_two_pieces_is_answered(house: House, framing: str) -> None:
    data = head("/", framing, method="PUT") + (b"1\r\na\r\n2\r\nbc\r\n0\r\n\r\n" if framing == CHUNKED else b"abc")
    for place in range(1, len(data)):
        client = await house.connect()
        await served(house)
        client.send(data[:place])
        await asyncio.sleep(0)
        client.send(data[place:])
        assert (await client.answer()).status == 200
        await house.hears(("/", b"abc"))
        client.send(data)
        assert (await client.answer()).status == 200
        house.heard.clear()
        client.writer.close()
        await house.empty()


async def test_an_interrupted_request_reaches_the_app_once_its_head_is_complete(house: House) -> None:
    """The head identifies the sender of the request, so the app must get the request."""
    data = request("/", b"abc")
    whole = len(data) - 3
    for place in range(len(data)):
        client = await house.connect()
        client.send(data[:place])
        client.writer.write_eof()
        assert await client.rest() == b""
        client.writer.close()
        await house.empty()
        assert house.heard == ([("/", None)] if place >= whole else []), data[:place]
        house.heard.clear()


@pytest.mark.parametrize("field", ["expect: 100-continue", "x: y"])
async def test_an_app_gets_a_request_whose_client_has_already_gone(house: House, client: Client, field: str) -> None:
    await served(house)
    client.send(head("/", field, "content-length: 10"))
    client.reset()
    await house.hears(("/", None))


@pytest.mark.parametrize("broken", [b"x\r\n", b"1\r\nab"], ids=["an invalid chunk", "too long a chunk"])
@pytest.mark.parametrize("apart", [True, False], ids=["in two pieces", "at once"])
async def test_a_broken_body_is_refused_and_reported(house: House, client: Client, broken: bytes, apart: bool) -> None:
    client.send(head("/", CHUNKED) + b"1\r\na\r\n" + (b"" if apart else broken))
    if apart:
        await until(lambda: house.pieces is not None)
        client.send(broken)
    assert statuses(parse(await client.rest())) == [400]
    await house.hears(("/", None))


async def test_the_method_connect_is_refused(house: House) -> None:
    assert statuses(await house.talk(head("posd:1", method="CONNECT") + request("/"))) == [501]
    assert house.heard == []


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_a_client_that_waits_gets_100_continue(house: House, client: Client, version: str) -> None:
    client.send(head("/", "content-length: 3", "expect: 100-continue", version=version))
    if version == "1.1":
        async with asyncio.timeout(PATIENCE):
            assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.send(b"abc")
    assert (await client.answer()).status == 200


async def test_a_client_that_does_not_wait_gets_no_100_continue(house: House, client: Client) -> None:
    client.send(request("/", b"abc", "expect: 100-continue", "connection: close"))
    assert b" 100 " not in await client.rest()


async def test_100_continue_waits_for_the_turn_of_its_request(house: House, client: Client) -> None:
    client.send(request("/wait") + head("/", "content-length: 3", "expect: 100-continue"))
    await house.hears(("/wait", b""))
    house.go.set()
    assert (await client.answer()).status == 200
    async with asyncio.timeout(PATIENCE):
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.send(b"abc")
    assert (await client.answer()).status == 200


# Tests of several requests at once.


async def test_simultaneous_requests_are_answered_in_order(house: House, client: Client) -> None:
    paths = ["/wait", "/a", "/nothing", "/b"]
    client.send(b"".join(request(path) for path in paths))
    await house.hears(("/wait", b""))  # the app gets no other request before the response to this request
    house.go.set()
    with capture_logs():
        assert statuses(parse(await client.rest())) == [200, 200, 500]
    client.writer.close()
    await house.empty()
    assert house.heard[:3] == [("/wait", b""), ("/a", b""), ("/nothing", b"")]


async def test_too_many_simultaneous_requests_are_refused(house: House, client: Client) -> None:
    client.send(request("/wait"))
    await house.hears(("/wait", b""))
    client.send(request("/", b"x") * (MAX_AT_ONCE + 5))
    await client.writer.drain()
    house.go.set()
    answers = statuses(parse(await client.rest()))
    client.writer.close()
    await house.empty()
    assert answers == [200] * (MAX_AT_ONCE + 1) + [503]
    assert house.heard[-2:] == [("/", b"x"), ("/", None)]


async def test_an_invalid_request_is_refused_after_the_previous_response(house: House, client: Client) -> None:
    client.send(request("/wait") + b"nonsense\r\n\r\n" + request("/a"))
    await house.hears(("/wait", b""))
    house.go.set()
    answers = parse(await client.rest())
    assert statuses(answers) == [200, 400]
    assert answers[1].headers["connection"] == "close"
    client.writer.close()
    await house.hears(("/wait", b""))


async def test_nothing_follows_the_last_response(house: House) -> None:
    for fields in (("connection: close",), ()):
        path = "/wait" if fields else "/refuse"
        house.go.set()
        assert len(await house.talk(request(path, b"", *fields) + b"nonsense\r\n\r\n")) == 1
        assert len(await house.talk(request(path, b"", *fields) + request("/a"))) == 1
    assert all(path == "/wait" for path, _ in house.heard)


@pytest.mark.parametrize("sent", [request("/b", b"abc"), request("/b", b"abc")[:-1]], ids=["whole", "half"])
async def test_a_request_is_processed_even_if_its_client_has_left(house: House, client: Client, sent: bytes) -> None:
    client.send(request("/wait") + sent)
    await house.hears(("/wait", b""))
    (transport,) = house.listener._connections.values()
    client.reset()
    await until(lambda: transport is None or transport.is_closing())
    house.go.set()
    await house.hears(("/wait", b""), ("/b", None))
    await house.empty()


# Responses.


#: Faulty app -> its path, the client's response, and whether it is logged.
WRONG: dict[str, tuple[str, bytes, bool]] = {
    "no response": ("/nothing", b"HTTP/1.1 500 Internal Server Error\r\n", False),
    "an exception": ("/fail", b"HTTP/1.1 500 Internal Server Error\r\n", True),
    "a body before the head": ("/backwards", b"HTTP/1.1 500 Internal Server Error\r\n", True),
    "two heads": ("/two-heads", b"HTTP/1.1 500 Internal Server Error\r\n", True),
    "an exception in a stream": ("/fail-in-the-middle", b"4\r\ntext\r\n", True),
    "an exception in a body": ("/fail-in-a-body", b"\r\n\r\ntext", True),
    "half a body": ("/end-in-a-body", b"\r\n\r\ntext", False),
}


@pytest.mark.parametrize("name", WRONG)
async def test_a_fault_of_an_app_ends_the_connection(house: House, client: Client, name: str) -> None:
    path, expected, logged = WRONG[name]
    with capture_logs() as lines:
        client.send(request(path))
        received = await client.rest()
    assert expected in received
    assert received.count(b"HTTP/1.1 ") == 1
    assert not received.endswith(b"0\r\n\r\n")  # these bytes are the end marker of a stream
    assert [line["event"] for line in lines] == ["posd.internal_error"] * logged


async def test_messages_of_an_app_after_its_response_are_ignored(house: House, client: Client) -> None:
    for _ in range(2):
        client.send(request("/twice"))
        assert (await client.answer()).status == 200
    client.writer.write_eof()
    assert await client.rest() == b""


#: Path -> status of a response before the body has arrived.
BEFORE = {"/refuse": 403, "/early": 413, "/keep": 200, "/return": 500}


@pytest.mark.parametrize("path", BEFORE)
@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("framing", ["content-length: 100000", CHUNKED])
async def test_an_early_response_ends_the_connection(house: House, client: Client, path: str, framing: str) -> None:
    client.send(head(path, framing))
    status = (await client.answer()).status
    with suppress(ConnectionError):
        for _ in range(20):
            client.send(b"3e8\r\n" + b"x" * 1000 + b"\r\n")
            await client.writer.drain()
    assert await client.rest() == b""
    assert status == BEFORE[path]


@pytest.mark.parametrize("path", BEFORE)
async def test_an_app_may_respond_without_reading_an_arrived_body(house: House, path: str) -> None:
    """The whole request has arrived when the app starts. After an ordinary response the connection stays open."""
    answers = await house.talk(request(path, b"abc") + request("/a", b"", "connection: close"))
    assert statuses(answers) == ([200, 200] if path == "/keep" else [BEFORE[path]])


async def test_a_client_that_leaves_during_its_response_is_not_counted_as_a_fault(house: House, client: Client) -> None:
    client.send(request("/wait"))
    await house.hears(("/wait", b""))
    client.reset()
    await asyncio.sleep(0)
    house.go.set()
    await house.empty()
    assert not house.noise.counts


async def test_an_app_that_runs_in_parallel_is_told_when_its_client_leaves() -> None:
    async for house in run(House(in_turn=False)):
        client = await house.connect()
        client.send(request("/wait"))
        await house.hears(("/wait", b""))
        assert house.pieces is not None
        gone = asyncio.Event()
        house.pieces.on_gone = gone.set
        client.writer.close()
        async with asyncio.timeout(PATIENCE):
            await gone.wait()
        house.go.set()


# Ends of connections.


async def test_a_request_that_is_cut_off_by_the_stop_is_not_counted_as_a_fault(house: House, client: Client) -> None:
    client.send(request("/wait"))
    await house.hears(("/wait", b""))
    async with asyncio.timeout(PATIENCE):
        await house.listener.close(0)
    assert not house.noise.counts


async def test_a_stopping_posd_answers_a_request_in_progress(house: House, client: Client) -> None:
    idle = await house.connect()
    client.send(request("/wait") + request("/a"))
    await house.hears(("/wait", b""))
    closing = asyncio.create_task(house.listener.close(PATIENCE))
    assert await idle.rest() == b""  # the stop has begun
    house.go.set()
    assert statuses(parse(await client.rest())) == [200]
    async with asyncio.timeout(PATIENCE):
        await closing
    assert house.heard == [("/wait", b""), ("/a", None)]
    idle.writer.close()


async def test_a_connection_lost_while_posd_ends_it_causes_no_fault(house: House, client: Client) -> None:
    idle = await served(house)
    (transport,) = house.listener._connections.values()
    assert transport is not None
    transport.abort()
    await asyncio.sleep(0)  # the connection is lost, but its reader has not detected the loss
    idle.end_idle()
    ending = idle._ending
    await house.empty()
    assert ending is not None
    assert ending.exception() is None


async def test_a_request_during_the_end_of_an_idle_connection_is_answered(house: House, client: Client) -> None:
    idle = await served(house)
    client.send(request("/wait"))
    await house.hears(("/wait", b""))
    idle.end_idle()  # the timer calls this function when it expires
    ending = idle._ending
    assert ending is not None
    await ending
    house.go.set()
    assert (await client.answer()).status == 200
    client.send(request("/"))
    assert (await client.answer()).status == 200
    idle.end_idle()
    assert await client.rest() == b""


async def test_an_idle_connection_is_ended_in_time_and_leaves_no_timer(hasty: House) -> None:
    client = await hasty.connect()
    client.send(request("/") * 3)
    for _ in range(3):
        assert (await client.answer()).status == 200
    assert await client.rest() == b""
    await hasty.empty()
    assert not hasty.listener.context.idle
    client.writer.close()


async def test_a_connection_with_a_request_in_progress_is_not_idle(hasty: House) -> None:
    client = await hasty.connect()
    await served(hasty)
    client.send(request("/wait"))
    await hasty.hears(("/wait", b""))
    assert not hasty.listener.context.idle  # `idle` has the timer of each idle connection
    hasty.go.set()
    assert (await client.answer()).status == 200
    assert await client.rest() == b""
    client.writer.close()


#: Bytes that a client sends before it closes the connection.
ENDS: dict[str, bytes] = {
    "nothing": b"",
    "half a head": head("/")[:-5],
    "a request": request("/"),
    "half a body": request("/", b"abc")[:-1],
    "an invalid request": b"nonsense\r\n\r\n",
    "requests": request("/") * 3,
    "an upgrade": head("/", "connection: upgrade", "upgrade: h2c"),
    "a stream": request("/stream"),
    "a request that is refused": request("/refuse"),
}


def kept() -> int:
    """Return the number of connection objects created since `gc.freeze`."""
    return sum(isinstance(item, (HttpConnection, HttpExchange, RequestParser)) for item in gc.get_objects())


@pytest.fixture
def no_garbage() -> Iterator[None]:
    """Disable garbage collection, and freeze existing objects."""
    gc.disable()
    gc.freeze()
    yield
    gc.unfreeze()
    gc.enable()


@pytest.mark.usefixtures("no_garbage")
@pytest.mark.parametrize("name", ENDS)
async def test_a_closed_connection_leaves_no_garbage(house: House, client: Client, name: str) -> None:
    await served(house)
    client.send(ENDS[name])
    client.writer.write_eof()
    await client.rest()
    client.writer.close()
    await house.empty()
    assert kept() == 0


@pytest.mark.usefixtures("no_garbage")
@pytest.mark.parametrize("sent", [b"", request("/wait")], ids=["nothing", "a request"])
async def test_a_connection_that_is_cut_leaves_no_garbage(house: House, client: Client, sent: bytes) -> None:
    await served(house)
    if sent:
        client.send(sent)
        await house.hears(("/wait", b""))
    for connection in list(house.listener._connections):
        house.listener._crowd_out(connection, "127.0.0.1")
    del connection
    await client.rest()
    client.writer.close()
    await house.empty()
    house.pieces = None
    await asyncio.sleep(0)
    assert kept() == 0


# Whether the client got its response.


async def test_a_response_to_a_closed_client_does_not_count_as_delivered(tmp_path: Path) -> None:
    """The daemon detects the close only when it writes its response, because a Unix socket reports the close at this
    moment.
    """
    delivered: asyncio.Queue[bool] = asyncio.Queue()
    clients: list[socket.socket] = []

    async def app(scope: Any, _receive: Any, send: Any) -> None:
        if scope["path"] == "/closed":
            clients.pop().close()
        await answer_ok(send)
        delivered.put_nowait(scope["state"]["pieces"].delivered)

    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / "s"))
        sock.listen()
        listener = HttpListener(
            app,
            sock,
            ListenerPolicy(name="test", keep_alive_seconds=PATIENCE, max_connections=10),
            RejectedTraffic(),
            wall,
        )
        listener.start()
        for path, expected in (("/open", True), ("/closed", False)):
            clients.append(socket.socket(socket.AF_UNIX))
            clients[-1].connect(str(tmp_path / "s"))
            clients[-1].sendall(request(path))
            async with asyncio.timeout(PATIENCE):
                assert await delivered.get() is expected, path
        clients.pop().close()
        await listener.close(0)
