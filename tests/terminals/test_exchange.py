"""One request and its response.

For any bytes posd reports correctly whether the request was sent, and uses little memory.
"""

import asyncio
import errno
import gc
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trustme

from posd.terminals.attempt import CallFailed, NotSent, Replied, ReplyLost
from posd.terminals.client import TerminalAccess
from posd.terminals.exchange import (
    MAX_FRAMING_BYTES,
    MAX_HEAD_BYTES,
    MAX_HEADERS,
    MAX_INTERIM,
    MAX_REPLY_BYTES,
    AnswerReader,
    ClientExchange,
    HttpAnswer,
    request_bytes,
)
from posd.terminals.trust import why_not
from tests.rig.access import access
from tests.rig.ports import reserve
from tests.rig.shop import answering as shop_answering
from tests.rig.tables import every
from tests.rig.terminal import ScriptedTerminal, scripted_terminal

#: Number of bytes that exceeds the buffers of the sockets.
MUCH = 32 * 1024 * 1024

Raw = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

OK = b"HTTP/1.1 200 OK\r\n"
NOT_HTTP = "the reply is not HTTP"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"


@pytest.fixture(params=["http", "https"])
async def terminal(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[ScriptedTerminal]:
    async with scripted_terminal(tmp_path, plain=request.param == "http") as terminal:
        yield terminal


def device(terminal: ScriptedTerminal, connect_timeout: float = 30, reply_timeout: float = 30) -> TerminalAccess:
    return access(terminal, connect_timeout_seconds=connect_timeout, reply_timeout_seconds=reply_timeout)


def answering(*pieces: bytes) -> Raw:
    """Return a server that reads a request and sends the response in pieces. Each piece is a packet."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n{}")
        for piece in pieces:
            writer.write(piece)
            await writer.drain()

    return answer


#: Valid responses -> content.
ANSWERS = {
    "with a length": (OK + b"Content-Length: 2\r\n\r\n{}", HttpAnswer(200, None, b"{}")),
    "until the connection ends": (OK + b"\r\n{}", HttpAnswer(200, None, b"{}")),
    "from HTTP/1.0": (b"HTTP/1.0 200 OK\r\n\r\n{}", HttpAnswer(200, None, b"{}")),
    "in chunks": (CHUNKED + b"1;x=y\r\n{\r\n1\r\n}\r\n0\r\nx-sum: 1\r\ndate: no\r\n\r\n", HttpAnswer(200, None, b"{}")),
    "without a reason": (b"HTTP/1.1 500\r\ncontent-length: 0\r\n\r\n", HttpAnswer(500, None, b"")),
    "without content": (b"HTTP/1.1 204 No Content\r\n\r\n", HttpAnswer(204, None, b"")),
    "with a redirect": (
        b"HTTP/1.1 302 Found\r\nlocation: /other\r\ncontent-length: 0\r\n\r\n",
        HttpAnswer(302, None, b""),
    ),
    "with a date": (OK + b"dAtE:  now \r\ncontent-length: 2\r\n\r\n{}", HttpAnswer(200, "now", b"{}")),
    "after interim responses": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\ndate: no\r\ncontent-length: 7\r\n\r\n"
        + OK
        + b"content-length: 2\r\n\r\n{}",
        HttpAnswer(200, None, b"{}"),
    ),
    "with further bytes": (OK + b"content-length: 2\r\n\r\n{}HTTP/1.1 500 X\r\n\r\n", HttpAnswer(200, None, b"{}")),
    "with further bytes and connection close": (
        OK + b"connection: close\r\ncontent-length: 2\r\n\r\n{}\r\n\r\nx",
        HttpAnswer(200, None, b"{}"),
    ),
}


def read(*pieces: bytes) -> HttpAnswer:
    """Parse pieces, and the end of the connection. Return the response. Raise CallFailed."""
    reader = AnswerReader()
    try:
        for piece in pieces:
            if (answer := reader.feed(piece)) is not None:
                return answer
        return reader.end()
    finally:
        reader.close()


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
@pytest.mark.parametrize("case", ANSWERS)
def test_a_response_in_any_pieces_means_the_same(case: str, size: int) -> None:
    raw, answer = ANSWERS[case]
    assert read(*(raw[at : at + size] for at in range(0, len(raw), size))) == answer


#: Bytes that posd does not accept as a response.
NONE = {
    "no HTTP": b"SECRET\r\n\r\n",
    "a request": b"POST / HTTP/1.1\r\n\r\n",
    "HTTP/2": b"HTTP/2.0 200 OK\r\ncontent-length: 0\r\n\r\n",
    "a status of two digits": b"HTTP/1.1 20 OK\r\ncontent-length: 0\r\n\r\n",
    "another protocol": b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: x\r\n\r\nx",
    "another protocol without a name": b"HTTP/1.1 101 Switching\r\n\r\n",
    "two lengths": OK + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}",
    "length and chunks": OK + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "a compressed body": OK + b"transfer-encoding: gzip\r\n\r\n{}",
    "compressed chunks": OK + b"transfer-encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "a folded header": OK + b"x: a\r\n b\r\ncontent-length: 0\r\n\r\n",
    "an invalid chunk": CHUNKED + b"x\r\n",
    "too many interim responses": b"HTTP/1.1 100 Continue\r\n\r\n" * (MAX_INTERIM + 1),
    "too many headers": OK + b"x: y\r\n" * (MAX_HEADERS + 1) + b"\r\n",
    "a header that is too long": OK + b"x: " + b"y" * MAX_HEAD_BYTES + b"\r\n",
    "headers that are too long": OK + (b"x: " + b"y" * 1024 + b"\r\n") * (MAX_HEAD_BYTES // 1024),
    "an endless header": OK + b"x: " + b"y" * (MAX_HEAD_BYTES + 1),
    "endless spaces": OK + b"x: " + b" " * (MAX_HEAD_BYTES + 1),
    "endless empty lines": b"\r\n" * MAX_HEAD_BYTES,
    "an endless extension of a chunk": CHUNKED + b"1;" + b"x" * (2 * MAX_FRAMING_BYTES),
    "too many trailers": CHUNKED + b"0\r\n" + b"x: y\r\n" * (MAX_HEADERS + 1),
    "an endless trailer": CHUNKED + b"0\r\nx: " + b"y" * (2 * MAX_FRAMING_BYTES),
}


@pytest.mark.parametrize("size", [1 << 12, 1 << 16])
@pytest.mark.parametrize("case", NONE)
def test_an_invalid_response_is_refused_without_quoting_it(case: str, size: int) -> None:
    raw = NONE[case]
    with pytest.raises(CallFailed, match=f"^{NOT_HTTP}$"):
        read(*(raw[at : at + size] for at in range(0, len(raw), size)))


@pytest.mark.parametrize(
    "raw",
    [
        OK + b"x: " + b"y" * (MAX_HEAD_BYTES - 64) + b"\r\ncontent-length: 2\r\n\r\n{}",
        OK + b"x: y\r\n" * (MAX_HEADERS - 1) + b"content-length: 2\r\n\r\n{}",
        b"HTTP/1.1 100 Continue\r\n\r\n" * MAX_INTERIM + OK + b"content-length: 2\r\n\r\n{}",
    ],
    ids=["length", "headers", "interim"],
)
def test_a_response_within_the_limits_is_read(raw: bytes) -> None:
    assert read(*(raw[at : at + 4096] for at in range(0, len(raw), 4096))) == HttpAnswer(200, None, b"{}")


@pytest.mark.parametrize("head", [b"content-length: %d\r\n\r\n" % MUCH, b"\r\n"], ids=["length", "no length"])
def test_at_most_the_limit_of_a_long_body_is_stored(head: bytes) -> None:
    reader = AnswerReader()
    assert reader.feed(OK + head + b"x" * MAX_REPLY_BYTES) is None
    assert reader.feed(b"x") == HttpAnswer(200, None, b"x" * MAX_REPLY_BYTES, complete=False)
    reader.close()


@pytest.mark.parametrize("raw", [b"", b"HTTP/1.1 200", OK + b"content-length: 2\r\n"], ids=["nothing", "line", "head"])
def test_an_incomplete_head_is_not_a_response(raw: bytes) -> None:
    with pytest.raises(CallFailed, match="it closed the connection without an answer"):
        read(*filter(None, [raw]))


@pytest.mark.parametrize(
    "raw", [OK + b"content-length: 3\r\n\r\n{}", CHUNKED + b"2\r\n{}\r\n"], ids=["length", "chunks"]
)
def test_an_incomplete_body_is_not_a_response(raw: bytes) -> None:
    with pytest.raises(CallFailed, match="it closed the connection in the middle of its answer"):
        read(raw)


def test_a_response_parser_leaves_no_garbage() -> None:
    gc.collect()
    gc.disable()
    try:
        assert read(ANSWERS["in chunks"][0]) == HttpAnswer(200, None, b"{}")
        assert not any(isinstance(item, AnswerReader) for item in gc.get_objects())
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("method", "target", "headers"),
    [
        ("GET", "/x y", {}),
        ("GET", "/x\r\nx-more: 1", {}),
        ("GET", "/é", {}),
        ("GET", "", {}),
        ("GET", "/x", {"a": "b\r\nc: d"}),
        ("GET", "/x", {"a": "b\nc: d"}),
        ("GET", "/x", {"a\r\nb": "c"}),
        ("GET", "/x", {"a": "é"}),
    ],
)
def test_a_request_that_hides_a_second_request_is_refused(method: str, target: str, headers: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"line break|visible ASCII|ordinal not in range"):
        request_bytes(method, target, headers, b"{}")


@pytest.mark.parametrize(
    ("method", "body", "sent"),
    [
        ("POST", b"{}", b"POST /x HTTP/1.1\r\na: b\r\ncontent-length: 2\r\n\r\n{}"),
        ("POST", None, b"POST /x HTTP/1.1\r\na: b\r\ncontent-length: 0\r\n\r\n"),
        ("GET", None, b"GET /x HTTP/1.1\r\na: b\r\n\r\n"),
    ],
)
def test_a_request_states_its_length(method: str, body: bytes | None, sent: bytes) -> None:
    assert request_bytes(method, "/x", {"a": "b"}, body) == sent


@pytest.mark.parametrize("case", ANSWERS)
async def test_a_response_over_the_network_is_read_correctly(terminal: ScriptedTerminal, case: str) -> None:
    raw, answer = ANSWERS[case]
    terminal.instead = answering(raw)
    found = await device(terminal).call("POST", f"{terminal.base_url}/x", b"{}")
    assert found == Replied(answer.status, answer.body)


async def test_a_response_that_arrives_byte_by_byte_is_read(terminal: ScriptedTerminal) -> None:
    raw = ANSWERS["after interim responses"][0]
    terminal.instead = answering(*(raw[at : at + 1] for at in range(len(raw))))
    assert await device(terminal).call("POST", f"{terminal.base_url}/x", b"{}") == Replied(200, b"{}")


async def test_a_long_response_is_cut_off_and_its_connection_closed(terminal: ScriptedTerminal) -> None:
    cut_off = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answering(OK + b"\r\n")(reader, writer)
        with suppress(ConnectionError, ssl.SSLError):
            while not writer.is_closing():
                writer.write(b"x" * 65536)
                await writer.drain()
                await asyncio.sleep(0)  # `drain` does not wait on a TLS connection that has ended
        cut_off.set()

    terminal.instead = talk
    found = await device(terminal).call("POST", f"{terminal.base_url}/x", b"{}")
    assert found == Replied(200, b"x" * MAX_REPLY_BYTES, complete=False)
    await cut_off.wait()


async def test_request_and_body_are_sent_in_one_piece(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", reserve())) as listening:
        listening.setblocking(False)
        loop = asyncio.get_running_loop()
        called = access()
        port = listening.getsockname()[1]
        call = asyncio.create_task(called.call("POST", f"http://127.0.0.1:{port}/a?b=c", b"{}"))
        connection, _ = await loop.sock_accept(listening)
        with connection:
            request = await loop.sock_recv(connection, 65536)
            await loop.sock_sendall(connection, OK + b"\r\n")
        assert await call == Replied(200, b"")
    head, _, body = request.partition(b"\r\n\r\n")
    line, *headers = head.decode().split("\r\n")
    assert (line, body) == ("POST /a?b=c HTTP/1.1", b"{}")
    assert dict(item.split(": ") for item in headers) == {
        "host": f"127.0.0.1:{port}",
        "user-agent": "posd",
        "connection": "close",
        "accept": "application/json",
        "accept-encoding": "identity",
        "content-type": "application/json",
        "content-length": "2",
    }


async def test_a_response_before_the_end_of_the_request_counts(terminal: ScriptedTerminal) -> None:
    called = device(terminal)
    done = asyncio.Event()

    async def refuse(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        await done.wait()
        writer.transport.abort()

    terminal.instead = refuse
    found = await called.call("POST", f"{terminal.base_url}/x", b" " * MUCH)
    done.set()
    assert found == Replied(413, b"")


async def test_a_request_that_the_terminal_does_not_read_may_have_arrived_in_part(terminal: ScriptedTerminal) -> None:
    called = device(terminal, reply_timeout=0.2)
    done = asyncio.Event()

    async def hold(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await done.wait()
        writer.transport.abort()

    terminal.instead = hold
    found = await called.call("POST", f"{terminal.base_url}/x", b" " * MUCH)
    done.set()
    secure = terminal.context is not None  # asyncio's TLS buffers all bytes at once
    assert found == ReplyLost("no reply in time" if secure else "the request could not be written in time")


@pytest.mark.parametrize(
    ("drips", "reason"),
    [(False, "no reply in time"), pytest.param(True, "no complete reply within 2.2 s", marks=pytest.mark.slow)],
)
async def test_an_incomplete_response_times_out(terminal: ScriptedTerminal, drips: bool, reason: str) -> None:
    called = device(terminal, reply_timeout=0.2, connect_timeout=2.0)
    done = asyncio.Event()

    async def stop(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answering(OK + b"content-length: 1000\r\n\r\n{")(reader, writer)
        while not done.is_set():  # each byte arrives long before the time-out of a read
            writer.write(b" " * drips)
            with suppress(TimeoutError):
                await asyncio.wait_for(done.wait(), 0.02)

    terminal.instead = stop
    found = await called.call("POST", f"{terminal.base_url}/x", b"{}")
    done.set()
    assert found == ReplyLost(reason)


async def test_a_request_before_a_broken_connection_may_have_arrived(terminal: ScriptedTerminal) -> None:
    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answering()(reader, writer)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        writer.transport.abort()

    terminal.instead = break_off
    found = await device(terminal).call("POST", f"{terminal.base_url}/x", b"{}")
    assert found == ReplyLost("the connection broke (ConnectionResetError)")


async def test_a_cancelled_call_closes_its_connection(terminal: ScriptedTerminal) -> None:
    asked, gone = asyncio.Event(), asyncio.Event()

    async def hold(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n{}")
        asked.set()
        try:
            assert await reader.read() == b""
        finally:
            gone.set()

    terminal.instead = hold
    call = asyncio.create_task(device(terminal).call("POST", f"{terminal.base_url}/x", b"{}"))
    await asked.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await gone.wait()


async def test_a_call_given_up_right_after_connecting_sends_nothing(terminal: ScriptedTerminal) -> None:
    came: list[bytes] = []
    gone = asyncio.Event()

    async def listen(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            came.append(await reader.read())
        gone.set()

    def too_late(_certificate: str | None) -> None:
        raise CallFailed("too late")

    terminal.instead = listen
    written: list[bool] = []
    called = device(terminal)
    found = await called.call(
        "POST", f"{terminal.base_url}/x", b"{}", connected=too_late, written=lambda: written.append(True)
    )
    if terminal.context is None:  # over TLS, the terminal does not see the end of the handshake
        await gone.wait()
    assert (found, written, b"".join(came)) == (NotSent("too late"), [], b"")


async def test_nothing_is_sent_on_a_connection_that_opens_after_the_call_was_given_up() -> None:
    near, far = socket.socketpair()
    with near, far:
        marked: list[bool] = []
        exchange = ClientExchange(b"GET / HTTP/1.1\r\n\r\n", lambda _transport: marked.append(True), 30)
        exchange.close()
        near.setblocking(False)
        await asyncio.get_running_loop().create_connection(lambda: exchange, sock=near)
        assert (far.recv(100), marked) == (b"", [])


async def test_nothing_is_sent_to_a_terminal_without_tls(tmp_path: Path) -> None:
    async with scripted_terminal(tmp_path, plain=True) as terminal:

        async def talk(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        terminal.instead = talk
        found = await device(terminal).call("POST", terminal.base_url.replace("http:", "https:"), b"{}")
        assert isinstance(found, NotSent)
        assert found.reason.startswith("cannot connect: ")


async def test_the_connect_time_out_includes_the_handshake(tmp_path: Path) -> None:
    async with scripted_terminal(tmp_path, plain=True) as terminal:
        gone = asyncio.Event()

        async def hold(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
            await reader.read()
            gone.set()

        terminal.instead = hold
        called = device(terminal, connect_timeout=0.2)
        found = await called.call("POST", terminal.base_url.replace("http:", "https:"), b"{}")
        assert found == NotSent("the connection was not established in time")
        await gone.wait()


@every(
    ("error", "todo"),
    [
        (OSError(errno.ECONNREFUSED, ""), "start its payment application, or correct the port"),
        (OSError(errno.EHOSTUNREACH, ""), "is the terminal switched on"),
        (OSError(errno.ENETUNREACH, ""), "check its network"),
        (ConnectionResetError(), "restart its payment application"),
        (ValueError(), "correct base_url"),
    ],
)
def test_each_reason_of_a_failed_connection_says_what_to_do(error: OSError | ValueError, todo: str) -> None:
    assert todo in why_not(error)


async def test_a_refused_connection_says_that_nothing_listens(tmp_path: Path) -> None:
    called = access()
    found = await called.call("POST", f"http://127.0.0.1:{reserve()}/x", b"{}")
    assert isinstance(found, NotSent)
    assert found.reason.startswith("cannot connect: nothing listens there")


@pytest.mark.parametrize("name", ["no-such-host.invalid", "x" * 64 + ".invalid"])
async def test_nothing_is_sent_to_an_unknown_host_name(name: str) -> None:
    called = access()
    found = await called.call("POST", f"http://{name}/x", b"{}")
    assert isinstance(found, NotSent)
    assert found.reason.startswith("cannot connect: ")


async def test_only_an_address_that_replies_is_called_if_a_name_has_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def issue(authority: trustme.CA) -> trustme.LeafCert:
        return authority.issue_cert("terminal.example")

    async with scripted_terminal(tmp_path, issue=issue) as terminal:
        terminal.start = shop_answering(200, b"{}")
        port = int(terminal.base_url.rpartition(":")[2])

        async def several(*_args: Any, **_options: Any) -> Any:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{n}", port)) for n in (3, 2, 1)]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", several)
        found = await device(terminal).call("POST", f"https://terminal.example:{port}/x", b"{}")
        assert isinstance(found, Replied)
        assert [request.headers["host"] for request in terminal.requests] == [f"terminal.example:{port}"]


async def test_the_zone_of_an_ipv6_address_is_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def issue(authority: trustme.CA) -> trustme.LeafCert:
        return authority.issue_cert("fe80::1")

    asked: list[tuple[Any, ...]] = []
    async with scripted_terminal(tmp_path, issue=issue) as terminal:
        terminal.start = shop_answering(200, b"{}")
        port = int(terminal.base_url.rpartition(":")[2])

        async def resolve(*args: Any, **_options: Any) -> Any:
            asked.append(args)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
        found = await device(terminal).call("POST", f"https://[fe80::1%25eth0]:{port}/x", b"{}")
        assert isinstance(found, Replied)
        assert asked == [("fe80::1%eth0", port)]
        assert [request.headers["host"] for request in terminal.requests] == [f"[fe80::1]:{port}"]
