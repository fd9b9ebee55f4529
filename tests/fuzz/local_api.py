"""Target: the local API of a real daemon over its sockets."""

import json
import re
from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from posd.api import routes
from posd.base.problems import PROBLEMS
from tests.fuzz import reading, seeds
from tests.fuzz.mutation import bodies
from tests.fuzz.requests import check_amount
from tests.fuzz.shop import GONE, OFFLINE, Shop
from tests.fuzz.target import Case, Target
from tests.fuzz.wire import Answer, Message, query, quoted

#: Stands for an unused id, in paths and bodies.
FRESH = "11111111-2222-4333-8444-555555555555"

#: The calls; `{id}` and the like are filled in. What makes copies of the database has bodies of its own.
PATHS = (
    *sorted({re.sub("{[^}]*}", "{id}", route.path) for route in routes.ALL} - {"/v1/backup"}),
    "/v1/certificate",
    "/v1/",
    "/",
    "//v1//feed",
    "*",
)
METHODS = ("GET", "GET", "GET", "PUT", "PUT", "PUT", "POST", "POST", "HEAD", "DELETE", "OPTIONS", "PATCH", "PROPFIND")
PARAMETERS = (
    *sorted({row.name for route in routes.ALL for row in route.query}),
    "metadata.reference",
    "metadata.a\x00b",
    "metadata.a.b[0]",
    *(f"metadata.{number}" for number in range(4)),
    'metadata."',
)
VALUES = (
    "true",
    "false",
    "final",
    "0",
    "1",
    "500",
    "501",
    "-1",
    "1e3",
    "nan",
    "inf",
    "9" * 19,
    "9223372036854775807",
    "9" * 30,
    "٣",
    "2026-11-20T10:42:00Z",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00",
    "2026-W47-5",
    "2026-02-30",
    "MjAyNiBh",
    "AAAA",
    "",
    "\x00",
    "a\x00b",
    "é\U0001f4b3",
    "%",
    "x" * 3000,
    seeds.SERIAL,
    "ticket 1042",
)
HEADERS = (
    ("content-type", "application/json"),
    ("content-type", "application/json; charset=utf-16"),
    ("content-type", "application/problem+json"),
    ("content-type", "text/plain"),
    ("content-type", "\xff"),
    ("accept", "text/event-stream"),
    ("accept", "text/html"),
    ("last-event-id", "1"),
    ("last-event-id", "x"),
    ("last-event-id", "9" * 40),
    ("expect", "100-continue"),
    ("upgrade", "websocket"),
    ("upgrade", "h2c"),
    ("accept-encoding", "gzip"),
    ("content-encoding", "gzip"),
    ("host", "other"),
    ("cookie", "x" * 2000),
    ("range", "bytes=0-1"),
    ("if-none-match", "*"),
    ("transfer-encoding", "identity"),
)


class LocalApi:
    """The target, with the daemon that it asks."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self._known = shop.fresh()
        start = json.dumps({"terminal": GONE, "amount": {"subtotal_iva0": 5}, "metadata": {"reference": "r"}}).encode()
        assert self._put("transactions", self._known, start).status == 201
        assert self._put("print-jobs", self._known, b'{"terminal": "%s", "document": {}}' % GONE.encode()).status == 201

    def _put(self, channel: str, identity: str, body: bytes) -> Answer:
        return self._shop.ask(Message("PUT", f"/v1/{channel}/{identity}", body=body))

    def check(self, case: Case) -> None:
        """No call is answered 500; a refusal is a problem document with a known code; what is right is JSON.

        A refused start leaves nothing behind and sends nothing. A start that is taken is shown as it was answered,
        is answered the same when it is repeated, and goes out with the amounts that the till wrote. Bytes that are no
        HTTP are refused or hung up on. The daemon is alive and has logged no fault.
        """
        kind, *given = case.given
        if kind == "raw":
            answer = self._shop.ask_raw(case.body, admin=given[0])
            assert answer.status in (0, *range(200, 500), 501, 503), answer
        elif kind == "start":
            self._check_start(given[0], case.body, given[1])
        else:
            message: Message = given[0]
            message = message._replace(
                target=message.target.replace("KNOWN", self._known).replace("FRESH", self._shop.fresh()),
                body=case.body.replace(FRESH.encode(), self._known.encode()),
            )
            check_answer(self._shop.ask(message), message)
        self._shop.check()

    def _check_start(self, channel: str, body: bytes, chunks: int | None) -> None:
        identity = self._shop.fresh()
        target = f"/v1/{channel}/{identity}"
        message = Message("PUT", target, body=body, chunks=chunks)
        answer = self._shop.ask(message)
        check_answer(answer, message)
        shown = self._shop.ask(Message("GET", target))
        if answer.status != 201:
            assert answer.status in (400, 409, 413, 422, 503), answer
            assert shown.status == 404, "a refused start was recorded"
            assert identity not in self._shop.sent, "a refused start was sent"
            return
        assert shown.status == 200
        again = self._shop.ask(message)
        assert again.status == 200
        check_answer(again, message)
        if channel == "transactions":
            assert answer.json["phase"] == "final"  # refused or not sent
            assert answer.body == shown.body == again.body, "the same call is answered in different ways"
        sent = self._shop.sent.get(identity)
        if sent is not None and channel == "transactions":
            check_amount(reading.pairs(body), reading.pairs(sent))


def check_answer(answer: Answer, message: Message) -> None:
    """Hold an answer to a well formed request against the contract of the local API."""
    assert answer.status, f"{message} was not answered"
    assert answer.status != 500, answer
    if message.method == "HEAD":
        return
    if answer.status == 431:  # by the server, before there is a call
        return
    if answer.status >= 400:
        assert answer.content_type == "application/problem+json" or "/health" in message.target, answer
        if answer.content_type == "application/problem+json":
            check_problem(answer)
    elif answer.content_type == "application/json":
        assert answer.json is not None
    else:
        assert answer.content_type in ("text/event-stream", "text/plain"), answer


def check_problem(answer: Answer) -> None:
    """A problem has a known code, the status of its code, and words."""
    problem = answer.json
    status, title = PROBLEMS[problem["code"]][:2]
    assert problem["code"] not in ("internal_error", "storage_unavailable"), "what was asked is no fault of the disk"
    assert (answer.status, problem["status"], problem["title"]) == (status, status, title)
    assert problem["type"] == f"urn:posd:problem:{problem['code']}"
    assert problem["detail"]
    if problem["code"] == "invalid_request":
        assert problem["errors"]
        assert all(isinstance(error["path"], str) and error["message"] for error in problem["errors"])


@st.composite
def _messages(draw: DrawFn) -> Message:
    path = draw(st.sampled_from(PATHS))
    if "{id}" in path:
        strange = draw(st.sampled_from(("KNOWN",) * 4 + ("FRESH", "", ".", "..", "%00", "%2F", "1", seeds.SERIAL, "*")))
        path = path.replace("{id}", draw(st.just(strange) | st.text(max_size=8).map(quoted)))
    names = st.sampled_from(PARAMETERS) | st.text(max_size=5)
    values = st.sampled_from(VALUES) | st.text(max_size=8)
    pairs = draw(st.lists(st.tuples(names, values), max_size=3))
    if path.endswith("outcome"):
        short = draw(st.sampled_from(("0", *VALUES[:14])))  # never an hour
        pairs = [pair for pair in pairs if pair[0] != "timeout"] + [("timeout", short)]
    headers = draw(st.lists(st.sampled_from(HEADERS), max_size=2, unique_by=lambda header: header[0]))
    chunks = draw(st.sampled_from((None, None, 1, 7, 4096)))
    headers = [header for header in headers if header[0] not in ("host", "transfer-encoding")]
    return Message(
        draw(st.sampled_from(METHODS)), path + query(pairs), tuple(headers), chunks=chunks, admin=draw(st.booleans())
    )


@st.composite
def _raw(draw: DrawFn) -> bytes:
    """Draw bytes that are no HTTP, or nearly: a request with lines of its head changed."""
    lines = [b"PUT /v1/transactions/x HTTP/1.1", b"host: posd", b"connection: close", b"content-length: 2"]
    for _ in range(draw(st.integers(0, 3))):
        line = draw(st.sampled_from(RAW_LINES) | st.binary(max_size=9))
        at = draw(st.integers(0, len(lines)))
        lines[at : at + draw(st.integers(0, 1))] = [line]
    return b"\r\n".join([*lines, b"", b"{}"])


RAW_LINES = (
    b"GET / HTTP/0.9",
    b"GET / HTTP/9.9",
    b"GET http://other/v1/version HTTP/1.1",
    b"PRI * HTTP/2.0",
    b"content-length: -1",
    b"content-length: 99999999999999999999",
    b"content-length: 1, 2",
    b"content-length: 0x2",
    b"transfer-encoding: chunked",
    b"transfer-encoding: gzip, chunked",
    b"host: ",
    b"host: other",
    b" folded",
    b"no colon",
    b": no name",
    b"x: \x00",
    b"x: \xff\xfe",
    b"expect: 100-continue",
    b"upgrade: websocket\r\nconnection: upgrade",
    b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nsec-websocket-version: 13",
    b"x" * 20_000,
)


def target(shop: Shop) -> Target:
    """Return the target for a daemon that runs."""
    api = LocalApi(shop)

    def cases(corpus: Sequence[bytes]) -> SearchStrategy[Case]:
        starts = _filled(bodies(seeds.START_REQUESTS, seeds.START_WORDS, corpus))
        prints = _filled(bodies(seeds.PRINT_REQUESTS, seeds.PRINT_REQUEST_WORDS, corpus))
        anything: SearchStrategy[bytes] = st.just(b"") | starts | bodies(seeds.DECISIONS, seeds.DECISION_WORDS)
        chunks = st.sampled_from((None, None, None, 1, 4096))
        return st.one_of(
            st.builds(Case, starts, st.tuples(st.just("start"), st.just("transactions"), chunks)),
            st.builds(Case, prints, st.tuples(st.just("start"), st.just("print-jobs"), chunks)),
            st.builds(Case, anything, st.tuples(st.just("call"), _messages())),
            st.builds(Case, anything, st.tuples(st.just("call"), _messages())),
            st.builds(Case, _raw(), st.tuples(st.just("raw"), st.booleans())),
        )

    return Target("local-api", cases, api.check)


def _filled(drawn: SearchStrategy[bytes]) -> SearchStrategy[bytes]:
    """Let some of the requests name another terminal of the fleet."""

    def fill(body: bytes, serial: str) -> bytes:
        return body.replace(seeds.SERIAL.encode(), serial.encode())

    return st.builds(fill, drawn, st.sampled_from((seeds.SERIAL,) * 6 + (GONE, OFFLINE)))
