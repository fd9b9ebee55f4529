"""What a terminal answers to the start, and to an abort (spec 2.2, 4.1; design 4 and 6)."""

from typing import Any

from tests.vectors.case import Body, Case, parts, reply
from tests.vectors.tables.events import document
from tests.vectors.wire import (
    ACK,
    APPROVAL,
    CANCELED,
    CARD,
    DECLINED,
    IDENTITY,
    OTHER,
    REQUESTED,
    SECOND,
    TERMINAL,
    Literal,
    body,
    changed,
)

#: The acknowledgement as the spec shows it.
GOOD = {
    "event_id": "00000000-0000-4000-8000-0000000000aa",
    "status": ACK,
    "previous_status": "",
    "operation": {"type": "charge", "client_transaction_id": IDENTITY, "amount": {"iva": Literal("1.20")}},
    "terminal": {
        "serialNumber": TERMINAL,
        "model": "M-100",
        "wifiMac": "00:00:5e:00:53:01",
        "room": "",
        "terminal_id": "1",
    },
}

#: What a reply proves, by word: how the payment stands, and what a person is told.
ACTIVE = {"phase": "active", "status": ACK, "outcome": None, "attention": []}
DOUBT = {"phase": "in_doubt", "status": None, "outcome": None, "attention": ["in_doubt"]}
NOT_STARTED = {"phase": "final", "status": None, "outcome": "not_started", "attention": []}
MISMATCH = ACTIVE | {"attention": ["serial_mismatch"]}


def _start(
    name: str, about: str, answer: dict[str, Any], expect: dict[str, Any], source: str = "design 4 step 5"
) -> Case:
    given = {"client_transaction_id": IDENTITY, "terminal": TERMINAL, **answer}
    if "evidence" in expect:
        expect = {"terminal": None} | expect
    return Case("start-reply", name, about, source, given, expect)


def starts() -> list[Case]:
    """Return the replies to the start."""
    good = body(GOOD)
    found = [
        _start(
            "transport-not-sent",
            "no connection: nothing was written",
            {"transport": "not_sent"},
            NOT_STARTED | {"evidence": "unsent"},
        ),
        _start("transport-lost", "written, and no whole reply came", {"transport": "lost"}, DOUBT),
    ]

    def add(name: str, about: str, content: bytes | Body, expect: dict[str, Any], status: int = 200) -> None:
        found.append(_start(name, about, {"reply": reply(status, content)}, expect))

    add("acknowledged", "the acknowledgement of the spec", good, ACTIVE)
    for status in (201, 202, 203, 206, 207, 299):
        add(f"acknowledged-{status}", f"the acknowledgement under HTTP {status}: any 2xx", good, ACTIVE, status)
    add("acknowledged-least", "the status alone: nothing contradicts it", body({"status": ACK}), ACTIVE)
    add(
        "acknowledged-upper-case-id",
        "the id echoed in upper case: the same id",
        body(changed(GOOD, "operation.client_transaction_id", IDENTITY.upper())),
        ACTIVE,
    )
    add("acknowledged-id-at-top", "the id echoed at the top", body(GOOD | {"client_transaction_id": IDENTITY}), ACTIVE)
    add("acknowledged-more", "more members", body(GOOD | {"message": "ok", "code": 0, "extra": [{}]}), ACTIVE)
    add("acknowledged-space", "white space around it", b"\r\n " + good + b"\r\n", ACTIVE)
    for kind, value in {"text": "charge", "null": None, "list": [], "number": 7}.items():
        add(
            f"acknowledged-operation-{kind}",
            f"operation is no object ({kind}): no id is echoed",
            body(GOOD | {"operation": value}),
            ACTIVE,
        )
        add(
            f"acknowledged-terminal-{kind}",
            f"terminal is no object ({kind}): it is not said who answers",
            body(GOOD | {"terminal": value}),
            ACTIVE,
        )
    add(
        "serial-snake-case",
        "another serial, under the event's name of it",
        body(GOOD | {"terminal": {"serial_number": SECOND}}),
        MISMATCH,
    )
    for kind, value in {"null": None, "empty": ""}.items():
        id_ = body(changed(GOOD, "operation.client_transaction_id", value))
        add(f"acknowledged-id-{kind}", f"the echoed id is {kind}: none is echoed", id_, ACTIVE)
    for kind, value in {"null": None, "list": [], "true": True}.items():
        serial = body(changed(GOOD, "terminal.serialNumber", value))
        add(f"acknowledged-serial-{kind}", f"the serial is {kind}: it is not said who answers", serial, ACTIVE)
    for word in ("another", "lower-case", "space"):
        serial = {"another": SECOND, "lower-case": TERMINAL.lower(), "space": f"{TERMINAL} "}[word]
        add(
            f"serial-{word}",
            f"acknowledged by {serial!r}, {TERMINAL} was asked",
            body(changed(GOOD, "terminal.serialNumber", serial)),
            MISMATCH,
        )

    others = {
        "another": OTHER,
        "number": 7,
        "list": [],
        "true": True,
        "braces": f"{{{IDENTITY}}}",
        "nul": f"{IDENTITY}\0",
        "cut": IDENTITY[:-1],
    }
    for word, value in others.items():
        add(
            f"id-{word}",
            "another id is echoed: the acknowledgement of another payment",
            body(changed(GOOD, "operation.client_transaction_id", value)),
            DOUBT,
        )
        add(
            f"id-{word}-at-top", "another id is echoed at the top", body(GOOD | {"client_transaction_id": value}), DOUBT
        )
    add(
        "id-contradiction",
        "the top names another id than the operation",
        body(changed(GOOD, "operation.client_transaction_id", OTHER) | {"client_transaction_id": IDENTITY}),
        DOUBT,
    )
    for word in (
        CARD,
        REQUESTED,
        APPROVAL,
        DECLINED,
        CANCELED,
        "terminal_acknowledged",
        "ACKNOWLEDGED",
        f"{ACK} ",
        "OK",
        "",
    ):
        name = word.strip().lower().replace("_", "-") or "empty"
        name = {"terminal-acknowledged": "lower-case" if word.islower() else "space"}.get(name, name)
        add(f"status-{name}", f"status is {word!r}", body(GOOD | {"status": word}), DOUBT)
    for kind, value in {"null": None, "number": 1, "list": [ACK], "object": {"code": ACK}, "true": True}.items():
        add(f"status-{kind}", f"status is of another kind: {kind}", body(GOOD | {"status": value}), DOUBT)
    add("status-missing", "no status", body(changed(GOOD, "status", remove=True)), DOUBT)

    strange: dict[str, tuple[str, bytes | Body]] = {
        "empty": ("no body", b""),
        "html": ("a page", b"<html><body>It works!</body></html>"),
        "html-with-words": ("a page that has the words", f"<pre>{good.decode()}</pre>".encode()),
        "list": ("the acknowledgement in a list", b"[" + good + b"]"),
        "text": ("the word alone, as JSON", b'"TERMINAL_ACKNOWLEDGED"'),
        "wrapped": ("the acknowledgement inside of another object", body({"data": GOOD})),
        "cut": ("its last byte is missing", good[:-1]),
        "cut-half": ("cut in the middle", good[: len(good) // 2]),
        "two": ("two of them", good + good),
        "utf-16": ("UTF-16", good.decode().encode("utf-16")),
        "deep-open": ("100,000 levels that are never closed", parts((b"[", 100_000))),
        "error": ("an error under HTTP 200", b'{"code": "ERR-9", "message": "terminal busy"}'),
    }
    for name, (about, content) in strange.items():
        add(f"no-acknowledgement-{name}", f"{about}: it may be running", content, DOUBT)
    damaged: dict[str, tuple[str, bytes | Body]] = {
        "garbage-after": ("more bytes after it", good + b"x"),
        "nul-after": ("a NUL after it", good + b"\0"),
        "bom": ("a byte order mark before it", b"\xef\xbb\xbf" + good),
        "bad-utf-8": ("bytes that are no UTF-8", good[:-1] + b', "extra": "\xff"}'),
        "lone-surrogate": ("half a character", good[:-1] + b', "extra": "\\ud800"}'),
        "nan": ("NaN", good[:-1] + b', "extra": NaN}'),
        "deep": ("1,000 levels", parts((good[:-1] + b', "extra": ', 1), (b"[", 1000), (b"]", 1000), (b"}", 1))),
        "id": ("a damaged id", good.replace(IDENTITY.encode(), b"\xff" + IDENTITY[1:].encode())),
    }
    for name, (about, content) in damaged.items():
        add(f"damaged-{name}", f"{about}: what is needed can be read", content, ACTIVE)
    word = good.replace(b"TERMINAL_ACKNOWLEDGED", b"TERMINAL_ACKNOWLEDGE\xc4")
    add("damaged-status", "a byte of the status is damaged: it may be running", word, DOUBT)
    add("no-acknowledgement-204", "HTTP 204", b"", DOUBT, 204)
    add(
        "no-acknowledgement-event",
        "an event instead of an acknowledgement: its own shape, and the words are there",
        body(document(ACK, None)),
        ACTIVE,
    )

    twice = {
        "status": b', "status": "DECLINED"}',
        "operation": b', "operation": {"client_transaction_id": "%s"}}' % OTHER.encode(),
        "terminal": b', "terminal": {"serialNumber": "SN-0002"}}',
    }
    for name, more in twice.items():
        add(f"twice-{name}", f"{name} stands twice and says two things: no acknowledgement", good[:-1] + more, DOUBT)
        before = b"{" + more[2:-1] + b", " + good[1:]
        add(f"twice-{name}-before", f"{name} stands twice and says two things: no acknowledgement", before, DOUBT)
    serials = Literal('{"serialNumber": "SN-0002", "serialNumber": "SN-0001"}')
    add("twice-serial", "two serials in one terminal", body(GOOD | {"terminal": serials}), DOUBT)
    ids = Literal(f'{{"client_transaction_id": "{OTHER}", "client_transaction_id": "{IDENTITY}"}}')
    add("twice-id", "two ids in one operation", body(GOOD | {"operation": ids}), DOUBT)
    add(
        "twice-id-at-top",
        "two ids at the top",
        b'{"client_transaction_id": "%s", "client_transaction_id": "%s", ' % (OTHER.encode(), IDENTITY.encode())
        + good[1:],
        DOUBT,
    )
    add("twice-same", "all twice, and the same", good[:-1] + b", " + good[1:], ACTIVE)
    add("twice-unread", "a member that posd does not read says two things", good[:-1] + b', "x": 1, "x": 2}', ACTIVE)

    refusal = b'{"code": "ERR-1", "message": "no"}'
    named = {"type": None, "code": "ERR-1", "message": "no"}
    for status in (
        300,
        301,
        302,
        303,
        304,
        307,
        308,
        400,
        401,
        403,
        404,
        405,
        409,
        410,
        413,
        415,
        422,
        426,
        429,
        451,
        499,
    ):
        add(
            f"refused-{status}",
            f"HTTP {status}: it is not run",
            b"" if status == 304 else refusal,
            NOT_STARTED | {"evidence": "refusal", "terminal": None if status == 304 else named},
            status,
        )
    add(
        "refused-409-acknowledgement",
        "HTTP 409 with the body of an acknowledgement: the status counts, the id was sent once",
        good,
        NOT_STARTED | {"evidence": "refusal"},
        409,
    )
    add(
        "refused-404-html",
        "HTTP 404 with a page",
        b"<html>Not Found</html>",
        NOT_STARTED | {"evidence": "refusal"},
        404,
    )
    add(
        "refused-422-not-utf-8",
        "HTTP 422 with bytes that are no text",
        b"\xff\xfe\0",
        NOT_STARTED | {"evidence": "refusal"},
        422,
    )
    for status in (408, 500, 501, 502, 503, 504, 507, 520, 599):
        add(f"doubt-{status}", f"HTTP {status}: it may be running", refusal, DOUBT, status)
    add("doubt-500-acknowledgement", "HTTP 500 with the body of an acknowledgement", good, DOUBT, 500)
    add("doubt-503-html", "HTTP 503 with a page", b"<html>Service Unavailable</html>", DOUBT, 503)
    return found


def aborts() -> list[Case]:
    """Return the replies to an abort."""
    expected = {200: "taken", 202: "taken", 204: "taken", 299: "taken", 409: "nothing_running"}
    expected |= dict.fromkeys((300, 302, 400, 401, 403, 404, 405, 422, 429, 499), "not_taken")
    expected |= dict.fromkeys((408, 500, 502, 503, 504), "unknown")
    found = [
        Case(
            "abort-reply",
            f"http-{status}",
            f"HTTP {status}",
            "design 7 (200 aborted, 409 nothing running), design 6",
            {"reply": reply(status, b"")},
            {"answer": answer},
        )
        for status, answer in expected.items()
    ]
    for transport, answer in (("not_sent", "unreachable"), ("lost", "unknown")):
        found.append(
            Case(
                "abort-reply",
                f"transport-{transport.replace('_', '-')}",
                "no reply",
                "design 6",
                {"transport": transport},
                {"answer": answer},
            )
        )
    found.append(
        Case(
            "abort-reply",
            "http-200-html",
            "HTTP 200 with a page: the status counts",
            "design 7",
            {"reply": reply(200, b"<html>ok</html>")},
            {"answer": "taken"},
        )
    )
    return found


def cases() -> list[Case]:
    """Return every case of this theme."""
    return [*starts(), *aborts()]
