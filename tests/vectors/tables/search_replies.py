"""What a terminal answers to a search for a payment that is in doubt (design 6 and 7; spec 4.1)."""

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
    SECOND_REFERENCE,
    TERMINAL,
    Literal,
    body,
    changed,
)


def _search(
    name: str, about: str, answer: dict[str, Any], result: str, elements: int, after: dict[str, Any], pointer: str = ""
) -> Case:
    given = {"client_transaction_id": IDENTITY, "terminal": TERMINAL, "pointer": pointer, **answer}
    return Case(
        "search-reply", name, about, "design 6, 7", given, {"answer": result, "elements": elements, "after": after}
    )


STILL = {"phase": "in_doubt", "status": None, "outcome": None, "reference": None, "attention": ["in_doubt"]}


def _ended(result: str, status: str, reference: str | None = None, *attention: str) -> dict[str, Any]:
    return {
        "phase": "final",
        "status": status,
        "outcome": result,
        "reference": reference,
        "attention": sorted(attention),
    }


def _running(status: str) -> dict[str, Any]:
    return {"phase": "active", "status": status, "outcome": None, "reference": None, "attention": []}


def cases() -> list[Case]:
    """Return the replies to a search for a payment that is in doubt."""
    final = document(APPROVAL, REQUESTED)
    reference = final["raw_response"]["transaction_reference"]
    approved = _ended("approved", APPROVAL, reference)
    declined = document(DECLINED, REQUESTED)
    canceled = document(CANCELED, ACK)
    card = document(CARD, ACK)
    others = changed(final, "client_transaction_id", OTHER)
    found = [
        _search("transport-not-sent", "no connection", {"transport": "not_sent"}, "no_answer", 0, STILL),
        _search("transport-lost", "no whole reply", {"transport": "lost"}, "no_answer", 0, STILL),
    ]

    def add(
        name: str,
        about: str,
        content: bytes | Body,
        result: str,
        elements: int = 0,
        after: dict[str, Any] = STILL,
        status: int = 200,
        pointer: str = "",
    ) -> None:
        found.append(_search(name, about, {"reply": reply(status, content)}, result, elements, after, pointer))

    add("found-approval", "our final, one object", body(final), "found", 1, approved)
    add("found-approval-list", "our final in a list", body([final]), "found", 1, approved)
    add("found-approval-among-others", "our final among others", body([others, final, others]), "found", 1, approved)
    add(
        "found-approval-upper-case",
        "our id in upper case",
        body(final | {"client_transaction_id": IDENTITY.upper()}),
        "found",
        1,
        approved,
    )
    add("found-declined", "declined", body([declined]), "found", 1, _ended("declined", DECLINED))
    add("found-canceled", "canceled", body([canceled]), "found", 1, _ended("canceled", CANCELED))
    add(
        "found-rejected",
        "rejected",
        body([document("TERMINAL_REJECTED", ACK)]),
        "found",
        1,
        _ended("rejected", "TERMINAL_REJECTED"),
    )
    add("found-card", "it waits for the PIN", body([card]), "found", 1, _running(CARD))
    add(
        "found-requested",
        "the acquirer is being asked",
        body([document(REQUESTED, CARD)]),
        "found",
        1,
        _running(REQUESTED),
    )
    add("found-acknowledged", "it waits for the card", body(document(ACK, None)), "found", 1, _running(ACK))
    add(
        "found-all-events",
        "every event of it, in order",
        body([document(ACK, None), card, document(REQUESTED, CARD), final]),
        "found",
        4,
        approved,
    )
    add(
        "found-all-events-reversed",
        "every event of it, the newest first",
        body([final, document(REQUESTED, CARD), card, document(ACK, None)]),
        "found",
        4,
        approved,
    )
    add("found-same-twice", "the same final twice", body([final, final]), "found", 2, approved)
    add(
        "found-two-references",
        "two approvals of one id: the first stands, and a person looks",
        body(
            [
                final,
                document(APPROVAL, REQUESTED, 24)
                | {"raw_response": final["raw_response"] | {"transaction_reference": SECOND_REFERENCE}},
            ]
        ),
        "found",
        2,
        _ended("approved", APPROVAL, reference, "conflicting_final"),
    )
    add(
        "found-contradiction",
        "approved and declined",
        body([final, declined]),
        "found",
        2,
        _ended("approved", APPROVAL, reference, "conflicting_final"),
    )
    add(
        "found-contradiction-reversed",
        "declined and approved",
        body([declined, final]),
        "found",
        2,
        _ended("declined", DECLINED, None, "conflicting_final"),
    )
    add(
        "found-without-raw-response",
        "an approval without raw_response",
        body([changed(final, "raw_response", remove=True)]),
        "found",
        1,
        _ended("approved", APPROVAL, None, "missing_reference"),
    )
    add(
        "found-without-previous",
        "a final without previous_status",
        body([changed(final, "previous_status", remove=True)]),
        "found",
        1,
        approved,
    )
    add(
        "found-second-terminal",
        "another terminal has it",
        body([changed(final, "terminal.serial_number", SECOND)]),
        "found",
        1,
        _ended("approved", APPROVAL, reference, "serial_mismatch"),
    )
    add(
        "found-other-amount",
        "another amount was authorized",
        body([changed(final, "raw_response.authorized_amount", Literal("10.00"))]),
        "found",
        1,
        _ended("approved", APPROVAL, reference, "amount_differs"),
    )
    unknown = STILL | {"attention": ["in_doubt", "unknown_status"]}
    add(
        "found-unknown-status",
        "ours, in a state that the spec does not have",
        body([final | {"status": "PENDING"}]),
        "found",
        1,
        unknown,
    )
    unusable = STILL | {"attention": ["in_doubt", "quarantined_event"]}
    add(
        "found-unusable",
        "ours, and no event: something is there",
        body([{"client_transaction_id": IDENTITY, "amount": 11}]),
        "found",
        1,
        unusable,
    )
    damaged = _ended("approved", APPROVAL, reference, "damaged_event")
    for name in ("event_id", "status", "terminal", "merchant_id", "occurred_at"):
        content = body([changed(final, name, remove=True)])
        about = f"ours, without {name}: " + ("something is there" if name == "status" else "read around it")
        after = unusable if name == "status" else damaged
        add(f"found-without-{name.replace('_', '-')}", about, content, "found", 1, after)
    deep = parts((body([final])[:-1] + b", ", 1), (b"[", 1000), (b"]", 1001))
    whole = body([final])
    for name, about, damage in (
        ("nan", "NaN beside ours", whole[:-1] + b", NaN]"),
        ("deep", "1,000 levels beside ours", deep),
        ("bad-utf-8", "no UTF-8 in a text of ours", whole.replace(b"NO_CVM", b"NO\xffCVM")),
        ("bom", "a byte order mark before ours", b"\xef\xbb\xbf" + whole),
    ):
        add(f"found-damaged-{name}", f"{about}: read around it", damage, "found", 1, damaged)
    lost = whole.replace(reference.encode(), b"\xff" + reference[1:].encode())
    add(
        "found-damaged-reference",
        "a byte of the reference is damaged: there is none",
        lost,
        "found",
        1,
        _ended("approved", APPROVAL, None, "damaged_event", "missing_reference"),
    )
    add(
        "found-status-twice",
        "ours, and it says two states",
        body([final])[:-2] + b', "status": "DECLINED"}]',
        "found",
        1,
        unusable,
    )
    add(
        "found-unusable-and-final",
        "ours twice: once of no use, once a final",
        body([{"client_transaction_id": IDENTITY}, final]),
        "found",
        2,
        approved | {"attention": ["quarantined_event"]},
    )
    for name, pointer, holder in (
        ("list", "/data", {"data": [final]}),
        ("object", "/data", {"data": final}),
        ("deeper", "/data/items", {"data": {"items": [others, final]}}),
        ("solidus", "/a~1b", {"a/b": [final]}),
        ("tilde", "/a~0b", {"a~b": [final]}),
        ("tilde-one", "/~01", {"~1": final}),
        ("empty-name", "/", {"": [final]}),
        ("index", "/0", [[final]]),
    ):
        about = f"at the pointer {pointer}"
        add(f"found-pointer-{name}", about, body(holder), "found", 1, approved, pointer=pointer)

    add("none", "an empty list: the explicit none, which alone proves nothing", b"[]", "none")
    add("none-space", "an empty list with white space", b" [ \r\n ] ", "none")
    add("none-pointer", "an empty list at the pointer", b'{"data": []}', "none", pointer="/data")

    nothing: dict[str, tuple[str, bytes | Body, str]] = {
        "others": ("other payments alone", body([others]), ""),
        "others-object": ("another payment", body(others), ""),
        "empty-object": ("an empty object", b"{}", ""),
        "empty-body": ("no body", b"", ""),
        "null": ("null", b"null", ""),
        "list-of-null": ("a list of null", b"[null]", ""),
        "list-of-lists": ("a list of lists", b"[[], []]", ""),
        "list-of-ids": ("a list of ids", body([IDENTITY]), ""),
        "number": ("0", b"0", ""),
        "false": ("false", b"false", ""),
        "text": ("a text", b'"[]"', ""),
        "html": ("a page", b"<html><body>[]</body></html>", ""),
        "cut": ("cut", body([final])[:-1], ""),
        "cut-none": ("half an empty list", b"[", ""),
        "garbage-after": ("more after an empty list", b"[]]", ""),
        "two-lists": ("two lists", b"[][]", ""),
        "bom": ("a byte order mark", b"\xef\xbb\xbf[]", ""),
        "nul": ("a NUL after an empty list", b"[]\0", ""),
        "utf-16": ("UTF-16", "[]".encode("utf-16"), ""),
        "bad-utf-8": ("no UTF-8", b'["\xff"]', ""),
        "id-damaged": ("a byte of the id is damaged", body([final]).replace(IDENTITY[:1].encode(), b"\xff", 1), ""),
        "message": ("an error under HTTP 200", b'{"code": 404, "message": "not found"}', ""),
        "wrapped-none": ("an empty list elsewhere than at the pointer", b'{"data": []}', ""),
        "wrapped-ours": ("ours elsewhere than at the pointer", body({"data": [final]}), ""),
        "id-in-metadata": (
            "our id in another's metadata",
            body([others | {"metadata": {"client_transaction_id": IDENTITY}}]),
            "",
        ),
        "camel-case": ("our id under another name", body([{"clientTransactionId": IDENTITY}]), ""),
        "id-number": ("a number as id", body([{"client_transaction_id": 7}]), ""),
        "id-space": ("our id and a space", body([final | {"client_transaction_id": f"{IDENTITY} "}]), ""),
        "id-nul": ("our id and a NUL", body([final | {"client_transaction_id": f"{IDENTITY}\0"}]), ""),
        "pointer-missing": ("nothing at the pointer", b"{}", "/data"),
        "pointer-null": ("null at the pointer", b'{"data": null}', "/data"),
        "pointer-text": ("a text at the pointer", b'{"data": "[]"}', "/data"),
        "pointer-case": ("another case of the name", b'{"Data": []}', "/data"),
        "pointer-into-list": ("a list where an object is expected", b"[]", "/data"),
        "pointer-beyond-list": ("an index beyond the list", b"[[]]", "/1"),
        "pointer-negative": ("a negative index", b"[[]]", "/-1"),
        "pointer-twice": (
            "two lists under one name: one empty",
            body({"data": [final]})[:-1] + b', "data": []}',
            "/data",
        ),
        "pointer-twice-before": (
            "two lists under one name: one empty",
            b'{"data": [], ' + body({"data": [final]})[1:],
            "/data",
        ),
        "too-many": ("more elements than are looked at", parts((b"[0", 1), (b",0", 300), (b"]", 1)), ""),
    }
    for name, (about, content, pointer) in nothing.items():
        add(f"no-answer-{name}", f"{about}: nothing is known", content, "no_answer", pointer=pointer)
    for status in (204, 301, 400, 401, 403, 404, 408, 409, 429, 500, 502, 503, 504):
        add(
            f"no-answer-{status}",
            f"HTTP {status} with an empty list: no answer",
            b"" if status == 204 else b"[]",
            "no_answer",
            status=status,
        )
    add("no-answer-404-final", "HTTP 404 with our final", body([final]), "no_answer", status=404)
    add("no-answer-404-html", "HTTP 404 with a page", b"<html>Not Found</html>", "no_answer", status=404)
    add("found-206", "HTTP 206 with our final", body([final]), "found", 1, approved, status=206)
    return found
