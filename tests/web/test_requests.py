"""Parsing of requests from bytes in any pieces. No request is parsed after invalid bytes.

h11 is the reference. If posd and h11 accept the same bytes, both must read the same request.
"""

from itertools import pairwise
from typing import Any

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posd.httpd.messages import (
    END,
    MAX_AT_ONCE,
    MAX_HEADER_BYTES,
    MAX_HEADERS,
    MAX_UNUSED_BYTES,
    Event,
    RefusedRequest,
    RequestHead,
    RequestParser,
)
from tests.rig.slow import examples

CHUNKED = "transfer-encoding: chunked"
UPGRADE = ("connection: upgrade", "upgrade: h2c")


def head(*fields: str, line: str = "POST / HTTP/1.1") -> bytes:
    """Return a request line and headers. Add a host header if the headers have no host."""
    host = [] if any(field.startswith("host") for field in fields) or line.endswith("1.0") else ["host: posd"]
    return "\r\n".join([line, *host, *fields, "", ""]).encode("latin-1")


def read(*pieces: bytes) -> list[Event]:
    """Return the events of bytes in pieces, with the pieces of bodies joined."""
    requests = RequestParser()
    joined: list[Event] = []
    for piece in pieces:
        for event in requests.feed(piece):
            if isinstance(event, bytearray) and joined and isinstance(joined[-1], bytearray):
                joined[-1] += event
            else:
                joined.append(event)
    return joined


def outline(events: list[Event]) -> list[object]:
    """Return the events of bytes. The target replaces each head, and the status replaces each refusal."""
    made: list[object] = []
    for event in events:
        if isinstance(event, RequestHead):
            made.append(event.target.decode())
        elif isinstance(event, RefusedRequest):
            made.append(event.status)
        else:
            made.append("end" if event is END else bytes(event))
    return made


GET = head(line="GET / HTTP/1.1")
LONGEST = "y" * (MAX_HEADER_BYTES - len("/" + "host" + "posd" + "x"))

#: Name -> bytes and their events.
TABLE: dict[str, tuple[bytes, list[object]]] = {
    "no body": (GET, ["/", "end"]),
    "a body": (head("content-length: 3") + b"abc", ["/", b"abc", "end"]),
    "an empty body": (head("content-length: 0"), ["/", "end"]),
    "half a body": (head("content-length: 3") + b"ab", ["/", b"ab"]),
    "a body with GET": (head("content-length: 3", line="GET / HTTP/1.1") + b"abc", ["/", b"abc", "end"]),
    "half a head": (head()[:-2], []),
    "two requests": (GET + head("content-length: 1", line="PUT /b HTTP/1.1") + b"x", ["/", "end", "/b", b"x", "end"]),
    "empty lines between": (b"\r\n\r\n" + GET + b"\r\n" + GET, ["/", "end", "/", "end"]),
    "a target with path, query and fragment": (head(line="GET /a%20b?c=d#e HTTP/1.1"), ["/a%20b?c=d#e", "end"]),
    "a whole address": (head(line="GET http://a/b?c=/d HTTP/1.1"), ["/b?c=/d", "end"]),
    "a whole address without a path": (head(line="GET HTTPS://u@a:1?c HTTP/1.1"), ["/?c", "end"]),
    "a whole address in a path": (head(line="GET /http://a/b HTTP/1.1"), ["/http://a/b", "end"]),
    "chunks": (head(CHUNKED) + b"1\r\na\r\n2\r\nbc\r\n0\r\n\r\n", ["/", b"abc", "end"]),
    "chunks with extensions": (head(CHUNKED) + b'3;a;b="c"\r\nabc\r\n0;d\r\n\r\n', ["/", b"abc", "end"]),
    "trailers": (head(CHUNKED) + b"0\r\nx: y\r\nz:\r\n\r\n" + GET, ["/", "end", "/", "end"]),
    "a length in a trailer": (head(CHUNKED) + b"0\r\ncontent-length: 3\r\n\r\n" + GET, ["/", "end", "/", "end"]),
    "HTTP/1.0": (head(line="GET / HTTP/1.0"), ["/", "end"]),
    "HTTP/0.9": (b"GET /\r\n\r\n", [400]),
    "HTTP/1.2": (head(line="GET / HTTP/1.2"), [400]),
    "HTTP/2": (head(line="GET / HTTP/2.0"), [400]),
    "the preface of HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + GET, [400]),
    "the preface of HTTP/2 as HTTP/1.1": (head(line="PRI * HTTP/1.1") + b"SM\r\n\r\n" + GET, [400]),
    "CONNECT": (head(line="CONNECT posd:1 HTTP/1.1") + GET, [501]),
    "an unknown method": (head(line="PAY / HTTP/1.1"), [400]),
    "a method in small letters": (head(line="get / HTTP/1.1"), [400]),
    "a target with a byte outside ASCII": (head(line="GET /\xe9 HTTP/1.1"), [400]),
    "no host": (b"GET / HTTP/1.1\r\n\r\n", [400]),
    "two hosts": (head("host: a", "host: b"), [400]),
    "two hosts in HTTP/1.0": (head("host: a", "host: b", line="GET / HTTP/1.0"), [400]),
    "an unsupported coding": (head("transfer-encoding: gzip"), [501]),
    "two codings": (head("transfer-encoding: gzip, chunked"), [501]),
    "the coding identity": (head("transfer-encoding: identity"), [501]),
    "chunks in capitals": (head("Transfer-Encoding:  CHUNKED ") + b"0\r\n\r\n", ["/", "end"]),
    "chunks twice": (head(CHUNKED, CHUNKED) + b"0\r\n\r\n", [400]),
    "chunks and a length": (head(CHUNKED, "content-length: 3") + b"5\r\nhello\r\n0\r\n\r\n", ["/", b"hello", "end"]),
    "a length and chunks": (head("content-length: 3", CHUNKED) + b"5\r\nhello\r\n0\r\n\r\n", ["/", b"hello", "end"]),
    "the same length twice": (head("content-length: 3", "content-length: 3") + b"abc", [400]),
    "a list of lengths": (head("content-length: 3, 3") + b"abc", [400]),
    "a negative length": (head("content-length: -3") + b"abc", [400]),
    "a length with a sign": (head("content-length: +3") + b"abc", [400]),
    "a length in another base": (head("content-length: 0x3") + b"abc", [400]),
    "an empty length": (head("content-length:") + b"abc", [400]),
    "a length that is too large": (head(f"content-length: {2**64}") + b"abc", [400]),
    "a chunk size that is too large": (head(CHUNKED) + b"fffffffffffffffff\r\nabc", ["/", 400]),
    "a chunk in another base": (head(CHUNKED) + b"0x3\r\nabc\r\n0\r\n\r\n", ["/", 400]),
    "a chunk longer than its size": (head(CHUNKED) + b"3\r\nabcd\r\n0\r\n\r\n", ["/", b"abc", 400]),
    "a chunk that ends with a line feed": (head(CHUNKED) + b"3\nabc\r\n0\r\n\r\n", ["/", 400]),
    "an extension with a line feed": (head(CHUNKED) + b"3;a\nabc\r\n0\r\n\r\n", ["/", 400]),
    "lines that end with a line feed": (b"GET / HTTP/1.1\nhost: posd\n\n", [400]),
    "a header that ends with a line feed": (b"GET / HTTP/1.1\r\nhost: posd\n\r\n", [400]),
    "a header with a carriage return": (head("x: a\ry: b"), [400]),
    "a header with a null byte": (head("x: a\0b"), [400]),
    "a header with a byte outside ASCII": (head("x: \xe9"), ["/", "end"]),
    "a header on two lines": (head("x: a\r\n b"), [400]),
    "a first header that begins with a space": (b"GET / HTTP/1.1\r\n host: posd\r\n\r\n", [400]),
    "a space before the colon": (head("x : y"), [400]),
    "no colon": (head("x"), [400]),
    "no name": (head(": x"), [400]),
    "an empty header": (head("x:"), ["/", "end"]),
    "a request after the last request": (head("connection: close") + GET, ["/", "end", 400]),
    "an upgrade": (head(*UPGRADE) + GET, ["/", "end", "/", "end"]),
    "an upgrade with a body": (head(*UPGRADE, "content-length: 3") + b"abc" + GET, ["/", b"abc", "end", "/", "end"]),
    "an upgrade with chunks": (
        head(*UPGRADE, CHUNKED) + b"3\r\nabc\r\n0\r\n\r\n" + GET,
        ["/", b"abc", *["end", "/"], "end"],
    ),
    "an upgrade of an invalid request": (head(*UPGRADE, "host: a", "host: b"), [400]),
    "an upgrade and then nonsense": (head(*UPGRADE) + b"\0", ["/", "end", 400]),
    "the longest head": (head(f"x: {LONGEST}"), ["/", "end"]),
    "too long a head": (head(f"x: {LONGEST}y"), [431]),
    "too long a target": (head(line=f"GET /{LONGEST}yy HTTP/1.1"), [431]),
    "the most headers": (head(*["x:"] * (MAX_HEADERS - 1)), ["/", "end"]),
    "too many headers": (head(*["x:"] * MAX_HEADERS), [431]),
    "too long a trailer": (head(CHUNKED) + f"0\r\nx: {LONGEST}\r\n\r\n".encode(), ["/", 431]),
    "too many trailers": (head(CHUNKED) + b"0\r\n" + b"x:\r\n" * MAX_HEADERS + b"\r\n", ["/", 431]),
}


@pytest.mark.parametrize("name", TABLE)
def test_bytes_give_the_expected_events(name: str) -> None:
    data, expected = TABLE[name]
    assert outline(read(data)) == expected
    assert outline(read(*(data[place : place + 1] for place in range(len(data))))) == expected


#: Name -> head, whether the connection stays open, and whether the client waits for 100 Continue.
INTENTS: dict[str, tuple[bytes, bool, bool]] = {
    "HTTP/1.1": (head(), True, False),
    "the client closes": (head("connection: close"), False, False),
    "the client closes, with another option": (head("connection: keep-alive, Close"), False, False),
    "HTTP/1.0": (head(line="POST / HTTP/1.0"), False, False),
    "HTTP/1.0 with keep-alive": (head("connection: keep-alive", line="POST / HTTP/1.0"), False, False),
    "the client waits": (head("content-length: 3", "Expect: 100-Continue"), True, True),
    "the client expects something else": (head("content-length: 3", "expect: 200-ok"), True, False),
    "HTTP/1.0 cannot wait": (head("content-length: 3", "expect: 100-continue", line="POST / HTTP/1.0"), False, False),
    "client waits and upgrades": (head(*UPGRADE, "content-length: 3", "expect: 100-continue"), True, True),
}


@pytest.mark.parametrize("name", INTENTS)
def test_keep_alive_and_the_wait_for_100_continue_are_read_from_the_head(name: str) -> None:
    data, keep_alive, expects = INTENTS[name]
    first = read(data)[0]
    assert isinstance(first, RequestHead)
    assert (first.keep_alive, first.expects) == (keep_alive, expects)


def test_a_head_has_method_target_and_headers() -> None:
    (found, _) = read(head("X-Y:  a b\t", "empty:", "host: posd", line="GET /a?b HTTP/1.1"))
    headers = [(b"x-y", b"a b"), (b"empty", b""), (b"host", b"posd")]
    assert found == RequestHead("GET", b"/a?b", "/a", "1.1", headers, keep_alive=True, expects=False)


def test_a_request_to_upgrade_is_ignored() -> None:
    (found, _) = read(head(*UPGRADE, "x: y"))
    assert isinstance(found, RequestHead)
    assert found.headers == [(b"host", b"posd"), (b"connection", b"upgrade"), (b"x", b"y")]


def test_headers_after_a_body_do_not_belong_to_the_next_request() -> None:
    *_, found, _ = read(head(CHUNKED) + b"0\r\nhost: evil\r\nx: y\r\n\r\n" + GET)
    assert isinstance(found, RequestHead)
    assert found.headers == [(b"host", b"posd")]


@pytest.mark.parametrize(
    "first",
    [
        b"GET / HTTP/1.1\r\nx: ",
        b"GET / HTTP/1.1\r\n",
        b"GET /",
        head(CHUNKED) + b"0\r\nx: ",
        head(CHUNKED) + b"3;",
        b"",
    ],
    ids=["a header", "a name", "a target", "a header behind", "an extension", "nothing"],
)
def test_an_endless_head_or_trailer_is_refused(first: bytes) -> None:
    requests = RequestParser()
    requests.feed(first)
    drop = b"\r\n" * 500 if not first else b"a" * 1000
    events = [event for _ in range(MAX_UNUSED_BYTES // len(drop) + 1) for event in requests.feed(drop)]
    assert outline(events) == [431]


def test_a_body_in_tiny_chunks_becomes_one_piece() -> None:
    events = RequestParser().feed(head(CHUNKED) + b"1\r\nx\r\n" * 5000)
    assert outline(events) == ["/", b"x" * 5000]


@pytest.mark.parametrize("one", [GET, head("content-length: 1") + b"x", head(*UPGRADE)], ids=["GET", "body", "upgrade"])
def test_requests_that_arrive_together_are_parsed_up_to_the_limit(one: bytes) -> None:
    assert sum(event is END for event in read(one * MAX_AT_ONCE)) == MAX_AT_ONCE
    assert outline(read(*[one] * (2 * MAX_AT_ONCE)))[-1] == "end"
    more = read(one * (2 * MAX_AT_ONCE))
    assert (
        sum(isinstance(event, RequestHead) for event in more) == MAX_AT_ONCE + 1
    )  # posd logs the address of the request that exceeds the limit
    assert outline(more)[-2:] == ["/", 503]


def test_no_event_follows_the_end() -> None:
    requests = RequestParser()
    requests.feed(GET)
    requests.end()
    assert requests.feed(GET) == []


NAMES = ["host", "content-length", "transfer-encoding", "connection", "upgrade", "expect", "x", "X-Y", "cookie", "te"]
VALUES = [
    *("posd", "0", "3", "5", "03", "3, 3", "chunked", "Chunked", "gzip, chunked", "identity", "close", "keep-alive"),
    *("upgrade", "upgrade, close", "h2c", "websocket", "100-continue", "", " a  b\t", "\xe9", '"x\\"'),
]
LINES = [
    *("GET / HTTP/1.1", "POST /webhooks/a?b HTTP/1.1", "PUT * HTTP/1.0", "HEAD http://a/b HTTP/1.1"),
    *(
        "OPTIONS * HTTP/1.1",
        "CONNECT a:1 HTTP/1.1",
        "PRI * HTTP/2.0",
        "GET /",
        "POST / RTSP/1.0",
        "DELETE /%2e HTTP/1.1",
    ),
]
BODIES = [
    *(b"", b"abc", b"abcde", b"0\r\n\r\n", b"3\r\nabc\r\n0\r\n\r\n", b"1;x=y\r\na\r\n2\r\nbc\r\n00;z\r\n\r\n"),
    *(b"3\r\nabc\r\n0\r\nx: y\r\n\r\n", b"5\r\nGET /\r\n0\r\n\r\n", b"0\r\nhost: b\r\n\r\n"),
]


@st.composite
def plausible(draw: st.DrawFn) -> bytes:
    """Generate a request, which is mostly valid."""
    line = draw(st.sampled_from(LINES[:4]) | st.sampled_from(LINES))
    framing = draw(
        st.sampled_from([("", b""), ("content-length: 3", b"abc"), (CHUNKED, BODIES[4]), (CHUNKED, BODIES[5])])
    )
    fields = draw(st.lists(st.builds("{}: {}".format, st.sampled_from(NAMES[3:]), st.sampled_from(VALUES)), max_size=3))
    if draw(st.booleans()):
        fields.append(draw(st.builds("{}: {}".format, st.sampled_from(NAMES), st.sampled_from(VALUES))))
    fields.insert(0, "host: posd")
    if framing[0]:
        fields.append(framing[0])
    return head(*fields, line=line) + draw(st.just(framing[1]) | st.sampled_from(BODIES))


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Generate several requests, half of the time with a few bytes changed."""
    data = bytearray(b"".join(draw(st.lists(plausible(), min_size=1, max_size=4))))
    if draw(st.booleans()):
        for _ in range(draw(st.integers(1, 3))):
            place = draw(st.integers(0, len(data)))
            data[place : place + draw(st.integers(0, 2))] = draw(
                st.sampled_from([b"", b" ", b"\r", b"\n", b"\r\n", b"\0", b":", b"\t", b"1", b",", b"\xff", b"x", b";"])
            )
    return bytes(data)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """Cut bytes at places."""
    bounds = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in pairwise(bounds)]


def plainly(events: list[Event]) -> list[object]:
    """Return events without the texts of refusals. If bytes have two faults, the pieces decide which fault is found
    first.
    """
    return [RefusedRequest if isinstance(event, RefusedRequest) else event for event in events]


@settings(max_examples=examples(50, 500))
@given(streams(), st.lists(st.integers(0, 2000), max_size=8))
def test_bytes_in_any_pieces_give_the_same_events(data: bytes, places: list[int]) -> None:
    assert plainly(read(*cut(data, places))) == plainly(read(data))


@settings(max_examples=examples(30, 300))
@given(streams() | st.binary(max_size=200), streams())
def test_no_event_follows_a_refusal(data: bytes, behind: bytes) -> None:
    requests = RequestParser()
    events = requests.feed(data)
    assert not any(isinstance(event, RefusedRequest) for event in events[:-1])
    if events and isinstance(events[-1], RefusedRequest):
        assert requests.feed(behind) == []
        assert requests.feed(GET) == []


@settings(max_examples=examples(30, 300))
@given(streams() | st.binary(max_size=200))
def test_the_events_of_a_request_come_in_order(data: bytes) -> None:
    before: object = type(END)
    for event in read(data):
        kind = type(event)
        assert (kind is RequestHead) == (before is type(END) and kind is not RefusedRequest), (before, kind)
        before = kind


Meaning = tuple[str, bytes, str, list[tuple[bytes, bytes]], bytes]


def meanings(events: list[Event]) -> list[Meaning]:
    """Return the complete requests."""
    made: list[Meaning] = []
    current: RequestHead | None = None
    body = b""
    for event in events:
        if isinstance(event, RequestHead):
            current, body = event, b""
        elif isinstance(event, bytearray):
            body += event
        elif event is END and current is not None:
            made.append((current.method, current.target, current.version, _fields(current.headers), body))
    return made


def _fields(headers: Any) -> list[tuple[bytes, bytes]]:
    """Return headers in h11's spelling, without the header `upgrade`."""
    return [
        (name, value.lower() if name == b"transfer-encoding" else value)
        for name, value in headers
        if name != b"upgrade"
    ]


def _origin_form(target: bytes) -> bytes:
    """Return a target in posd's form: an absolute URL without scheme and authority."""
    if not target.lower().startswith((b"http://", b"https://")):
        return target
    rest = target.split(b"//", 1)[1]
    place = min((at for mark in (b"/", b"?") if (at := rest.find(mark)) >= 0), default=len(rest))
    return rest[place:] if rest[place : place + 1] == b"/" else b"/" + rest[place:]


def h11_meanings(data: bytes) -> list[Meaning]:
    """Return the requests that h11 finds, up to the first bytes that it refuses."""
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(data)
    made: list[Meaning] = []
    request: h11.Request | None = None
    body = b""
    try:
        while not isinstance(event := connection.next_event(), type) and not isinstance(event, h11.ConnectionClosed):
            if isinstance(event, h11.Request):
                request, body = event, b""
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage) and request is not None:
                version, method = request.http_version.decode(), request.method.decode()
                made.append((method, _origin_form(request.target), version, _fields(request.headers), body))
                connection.send(h11.Response(status_code=204, headers=[]))
                connection.send(h11.EndOfMessage())
                connection.start_next_cycle()
    except (h11.RemoteProtocolError, h11.LocalProtocolError):  # not a request, so the connection must end
        pass
    return made


@settings(max_examples=examples(70, 700))
@given(streams())
def test_h11_reads_the_same_requests(data: bytes) -> None:
    ours, theirs = meanings(read(data)), h11_meanings(data)
    both = min(len(ours), len(theirs))
    assert ours[:both] == theirs[:both]


def test_h11_accepts_many_requests_that_posd_accepts() -> None:
    """Without accepted requests the comparison would prove nothing."""
    taken = [data for data, outcome in TABLE.values() if outcome[-1:] == ["end"]]
    agreed = [data for data in taken if meanings(read(data)) == h11_meanings(data)]
    assert len(agreed) >= 15


@pytest.mark.parametrize("fields", [("content-length: 3", CHUNKED), (CHUNKED, "content-length: 3")])
def test_a_request_with_chunks_and_a_length_ends_the_connection(fields: tuple[str, str]) -> None:
    (first, *_) = read(head(*fields) + b"0\r\n\r\n")
    assert isinstance(first, RequestHead)
    assert not first.keep_alive
