"""Encoded responses. h11 is the client. h11 must read the response that the app has given."""

from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posd.base.clocks import wall
from posd.httpd.messages import CLOSE, RequestHead, ResponseEncoder, response_head
from tests.rig.slow import examples

LENGTH = b"content-length"


def request(method: str = "GET", version: str = "1.1", *, keep_alive: bool = True) -> RequestHead:
    return RequestHead(method, b"/", "/", version, [], keep_alive=keep_alive, expects=False)


def answer(asked: RequestHead | None = None) -> ResponseEncoder:
    """Return a response before any byte is sent."""
    return ResponseEncoder(wall, asked or request())


def lines(head: bytes) -> list[bytes]:
    """Return status line and headers, without the date, which must be present."""
    found = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    dates = [line for line in found if line.startswith(b"date: ") and line.endswith(b" GMT")]
    assert len(dates) == 1
    return [line for line in found if line not in dates]


def test_a_response_with_a_length_is_sent_in_one_piece() -> None:
    made = answer()
    assert made.start(200, [(LENGTH, b"2")]) == b""
    head, _, body = made.piece(b"ok", more=False).partition(b"\r\n\r\n")
    assert lines(head) == [b"HTTP/1.1 200 OK", b"content-length: 2"]
    assert (body, made.over, made.closes) == (b"ok", True, False)


def test_a_stream_begins_at_once_and_is_sent_in_chunks() -> None:
    made = answer()
    assert lines(made.start(200, [])) == [b"HTTP/1.1 200 OK", b"transfer-encoding: chunked"]
    pieces = [made.piece(b"x" * 17, more=True), made.piece(b"", more=True), made.piece(b"end", more=False)]
    assert pieces == [b"11\r\n" + b"x" * 17 + b"\r\n", b"", b"3\r\nend\r\n0\r\n\r\n"]
    assert (made.over, made.closes) == (True, False)


def test_a_stream_for_http_1_0_ends_with_the_connection() -> None:
    made = answer(request(version="1.0", keep_alive=False))
    assert lines(made.start(200, [])) == [b"HTTP/1.1 200 OK", b"connection: close"]
    assert [made.piece(b"x", more=True), made.piece(b"y", more=False)] == [b"x", b"y"]
    assert made.closes


@pytest.mark.parametrize("status", [204, 304])
@pytest.mark.parametrize("body", [b"", b"text"])
def test_some_statuses_have_no_body(status: int, body: bytes) -> None:
    made = answer()
    sent = made.start(status, []) + made.piece(body, more=False)
    assert sent.endswith(b"\r\n\r\n")
    assert b"transfer-encoding" not in sent
    assert not made.closes


@pytest.mark.parametrize("headers", [[], [(LENGTH, b"4")]], ids=["stream", "length"])
def test_a_response_to_head_has_no_body(headers: list[tuple[bytes, bytes]]) -> None:
    made = answer(request("HEAD"))
    sent = made.start(200, headers) + made.piece(b"text", more=False)
    assert sent.endswith(b"\r\n\r\n")
    assert lines(sent) == [b"HTTP/1.1 200 OK", *(b"%b: %b" % header for header in headers)]
    assert not made.closes


def test_a_client_that_asks_to_close_gets_connection_close() -> None:
    made = answer(request(keep_alive=False))
    sent = made.start(200, [(LENGTH, b"0")]) + made.piece(b"", more=False)
    assert lines(sent) == [b"HTTP/1.1 200 OK", b"content-length: 0", b"connection: close"]
    assert made.closes


def test_an_app_can_close_the_connection() -> None:
    made = answer()
    sent = made.start(403, [(LENGTH, b"0"), CLOSE]) + made.piece(b"", more=False)
    assert lines(sent) == [b"HTTP/1.1 403 Forbidden", b"content-length: 0", b"connection: close"]
    assert made.closes


def test_a_body_that_is_too_short_ends_the_connection() -> None:
    made = answer()
    made.start(200, [(LENGTH, b"3")])
    assert made.piece(b"ab", more=False).endswith(b"\r\n\r\nab")
    assert made.closes


def test_a_body_that_is_too_long_is_not_sent() -> None:
    made = answer()
    made.start(200, [(LENGTH, b"3")])
    made.piece(b"ab", more=True)
    with pytest.raises(ValueError, match="longer"):
        made.piece(b"cd", more=False)


#: Invalid statuses and headers.
FAULTS: dict[str, tuple[int, list[tuple[bytes, bytes]]]] = {
    "a second header in a value": (200, [(b"x", b"y\r\nset-cookie: z")]),
    "a line feed": (200, [(b"x", b"y\nz: a")]),
    "a second header in a name": (200, [(b"x: y\r\nz", b"a")]),
    "an invalid length": (200, [(LENGTH, b"many")]),
    "an unknown status": (299, []),
}


@pytest.mark.parametrize("name", FAULTS)
def test_after_a_fault_in_the_head_another_response_is_possible(name: str) -> None:
    made = answer()
    with pytest.raises(ValueError, match=r".+"):
        made.start(*FAULTS[name])
    assert not made.started
    sent = made.start(500, [(LENGTH, b"0")]) + made.piece(b"", more=False)
    assert lines(sent) == [b"HTTP/1.1 500 Internal Server Error", b"content-length: 0"]


def test_a_head_has_the_time_of_its_response() -> None:
    at = datetime.fromtimestamp(1.0, UTC)
    assert response_head(200, (), at) == b"HTTP/1.1 200 OK\r\ndate: Thu, 01 Jan 1970 00:00:01 GMT\r\n\r\n"


STATUSES = st.sampled_from([status for status in HTTPStatus if status >= 200])
NAMES = st.sampled_from([b"content-type", b"x-request", b"retry-after", b"allow", b"etag"])
VALUES = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=20).map(str.encode)


@settings(max_examples=examples(50, 500))
@given(
    status=STATUSES,
    headers=st.lists(st.tuples(NAMES, VALUES), max_size=4),
    pieces=st.lists(st.binary(max_size=40), min_size=1, max_size=4),
    method=st.sampled_from(["GET", "HEAD", "POST"]),
    version=st.sampled_from(["1.0", "1.1"]),
    measured=st.booleans(),
    asked_to_close=st.booleans(),
    close=st.booleans(),
)
def test_h11_reads_the_response_that_the_app_gave(
    status: HTTPStatus,
    headers: list[tuple[bytes, bytes]],
    pieces: list[bytes],
    method: str,
    version: str,
    measured: bool,
    asked_to_close: bool,
    close: bool,
) -> None:
    bodyless = method == "HEAD" or status in (204, 304)
    own = [(LENGTH, b"%d" % len(b"".join(pieces)))] if measured else []
    own += [CLOSE] if close else []
    made = answer(request(method, version, keep_alive=version == "1.1" and not asked_to_close))
    sent = made.start(status, [*headers, *own])
    for number, piece in enumerate(pieces, start=1):
        assert not made.over
        sent += made.piece(piece, more=number < len(pieces))
    assert made.over
    found, body, stays = _read(method, sent, closed=made.closes)
    assert found.status_code == status
    assert bytes(found.reason) == status.phrase.encode()
    assert body == (b"" if bodyless else b"".join(pieces))
    framing = (b"date", b"transfer-encoding", b"connection")
    ours = [(name, value) for name, value in found.headers if name not in framing]
    assert ours == [*headers, *(header for header in own if header != CLOSE)]
    assert stays == (not made.closes)


def _read(method: str, sent: bytes, *, closed: bool) -> tuple[h11.Response, bytes, bool]:
    """Return the result of h11: the response, its body, and whether the connection can be used again."""
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method=method, target="/", headers=[("host", "posd")]))
    client.send(h11.EndOfMessage())
    client.receive_data(sent)
    if closed:
        client.receive_data(b"")
    response: Any = client.next_event()
    assert isinstance(response, h11.Response)
    body = b""
    while isinstance(event := client.next_event(), h11.Data):
        body += bytes(event.data)
    assert isinstance(event, h11.EndOfMessage)
    assert client.trailing_data[0] == b""
    return response, body, client.our_state is h11.DONE and client.their_state is h11.DONE
