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
    name: str,
    about: str,
    answer: dict[str, Any],
    result: str,
    elements: int,
    after: dict[str, Any],
    pointer: str = "",
    **more: object,
) -> Case:
    given = {"client_transaction_id": IDENTITY, "terminal": TERMINAL, "pointer": pointer, **more, **answer}
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


def _without_status(final: dict[str, Any], **response: object) -> dict[str, Any]:
    """Return an element with no state but what the acquirer's answer in it says."""
    return changed(final, "status", remove=True) | {"raw_response": final["raw_response"] | response}


UNUSABLE = STILL | {"attention": ["in_doubt", "quarantined_event"]}


def _statuses(final: dict[str, Any]) -> list[Case]:
    """Return the replies whose element states its end by the acquirer's answer alone, or in other names."""
    reference = final["raw_response"]["transaction_reference"]
    approved = _ended("approved", APPROVAL, reference)
    found = []

    def add(name: str, about: str, element: bytes | dict[str, Any], after: dict[str, Any] = UNUSABLE) -> None:
        content = element if isinstance(element, bytes) else body([element])
        result = "no_answer" if after is UNUSABLE else "found"
        elements = 0 if after is UNUSABLE else 1
        found.append(_search(name, about, {"reply": reply(200, content)}, result, elements, after))

    stated = _without_status(final, transaction_status="APPROVAL")
    stateless = changed(stated, "raw_response.transaction_status", remove=True)
    add("found-transaction-status", "approved by the acquirer's answer in it", stated, approved)
    add("found-transaction-status-null", "the same beside a state of null", stated | {"status": None}, approved)
    declined = _without_status(final, transaction_status="DECLINED")
    add("found-transaction-status-declined", "declined by it", declined, _ended("declined", DECLINED))
    camel = changed(stated, "raw_response", remove=True) | {"rawResponse": stated["raw_response"]}
    add("found-raw-response-camel-case", "the acquirer's answer in camelCase", camel, approved)
    both = stated | {"rawResponse": stated["raw_response"]}
    add("found-raw-response-both", "the same under both names", both, approved)
    serial = changed(final, "terminal.serial_number", remove=True)
    serial = changed(serial, "terminal.serialNumber", SECOND)
    about = "the serial of another terminal in camelCase"
    add("found-serial-camel-case", about, serial, _ended("approved", APPROVAL, reference, "serial_mismatch"))
    for word in ("APPROVED", "approval", "ERROR", "INITIALIZED", "", "TERMINAL_CANCELED"):
        name = f"no-answer-transaction-status-{word.lower().replace('_', '-') or 'empty'}"
        name += "-lower-case" if word.islower() else ""
        add(name, f"the acquirer's answer says {word!r}: no state", _without_status(final, transaction_status=word))
    add(
        "no-answer-transaction-status-none",
        "the acquirer's answer says no state",
        stateless,
    )
    other = stated | {"rawResponse": stated["raw_response"] | {"transaction_status": "DECLINED"}}
    add("no-answer-raw-response-two", "two answers of the acquirer", other)
    twice = body([stated]).replace(b'"transaction_status"', b'"transaction_status": "DECLINED", "transaction_status"')
    add("no-answer-transaction-status-twice", "two states in it", twice)
    top = stateless | {"transaction_status": "APPROVAL"}
    add("no-answer-transaction-status-at-top", "beside the acquirer's answer: not of a page", top)
    serials = final | {"terminal": final["terminal"] | {"serialNumber": SECOND}}
    add("no-answer-serial-two", "two serials under two names", serials)
    approved_alone = {"client_transaction_id": IDENTITY, "approved": True}
    add("no-answer-approved", "`approved` alone approves nothing", approved_alone)
    return found


#: What may stand beside an empty list, and what may not: with it, it is no answer.
NO_MORE: dict[str, dict[str, Any]] = {
    "meta": {"meta": {"total": 0, "from": 0, "pageSize": 20}, "errors": [], "error": None, "message": ""},
    "first": {"page": "1", "limit": "50"},
    "ok": {"ok": True, "success": True},
}
SAYS_MORE: dict[str, dict[str, Any]] = {
    "error-text": {"error": "busy"},
    "status": {"status": "ERROR"},
    "not-success": {"success": False},
    "errors": {"errors": [{"message": "no"}]},
    "hits": {"hits": 5},
    "pages": {"pages": 3},
    "scroll": {"scroll_id": "x"},
    "metas": {"meta": [{"total": 5}]},
    "later-page": {"page": 3},
    "from": {"from": 1},
    "size-text": {"size": "many"},
    "failure": {"failure": {"type": "TERMINAL", "code": "TER-003"}},
    "code-zero": {"code": 0},
    "ok-text": {"ok": "no"},
    "meta-twice": {"meta": Literal('{"total": 1, "total": 0}')},
}


def _pages(final: dict[str, Any], others: dict[str, Any]) -> list[Case]:
    """Return the replies that are pages of a list."""
    reference = final["raw_response"]["transaction_reference"]
    approved = _ended("approved", APPROVAL, reference)
    found = []

    def add(
        name: str, about: str, content: object, result: str, after: dict[str, Any] = STILL, pointer: str = ""
    ) -> None:
        answer = {"reply": reply(200, content if isinstance(content, bytes) else body(content))}
        elements = 1 if result == "found" else 0
        found.append(_search(f"page-{name}", about, answer, result, elements, after, pointer, paged=True))

    add("found", "ours in `data`", {"data": [others, final], "total": 2}, "found", approved)
    add("found-pointer", "ours at the pointer", {"page": {"items": [final]}}, "found", approved, "/page/items")
    top = changed(changed(final, "status", remove=True), "raw_response", remove=True) | {
        "transaction_status": "APPROVAL"
    }
    missing = _ended("approved", APPROVAL, None, "missing_reference")
    add("found-status-at-top", "its state beside its other members", {"data": [top]}, "found", missing)
    add(
        "found-status-declined",
        "declined",
        {"data": [top | {"transaction_status": "DECLINED"}]},
        "found",
        _ended("declined", DECLINED),
    )
    two = _without_status(final, transaction_status="DECLINED") | {"transaction_status": "APPROVAL"}
    add("no-answer-two-states", "two states", {"data": [two]}, "no_answer", UNUSABLE)
    for name, more in {
        "alone": {},
        "total": {"total": 0, "page": 1, "size": 50},
        "next": {"next": None, "has_more": False, "count": "0"},
        **NO_MORE,
    }.items():
        add(f"none-{name}", "an empty page, and nothing says that there is more", {"data": [], **more}, "none")
    for name, more in {
        "total": {"total": 1},
        "count": {"totalCount": "3"},
        "next": {"next": "/page/2"},
        "more": {"hasMore": True},
        "meta": {"meta": {"pagination": {"total": 1}}},
        "error": {"type": "TERMINAL", "code": "TER-004"},
        **SAYS_MORE,
    }.items():
        add(f"no-answer-{name}", "an empty page, and there is more to it", {"data": [], **more}, "no_answer")
    add("no-answer-twice", "two totals", b'{"data": [], "total": 1, "total": 0}', "no_answer")
    add("no-answer-list", "a list instead of a page", [final], "no_answer")
    add("no-answer-empty-list", "an empty list instead of a page", [], "no_answer")
    add("no-answer-object", "no list in it", {"data": final}, "no_answer")
    add("no-answer-nothing", "no `data`", {"items": []}, "no_answer")
    add("none-in-list", "the pointer leads into a list", [[]], "none", pointer="/0")
    return found


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
        **more: object,
    ) -> None:
        found.append(_search(name, about, {"reply": reply(status, content)}, result, elements, after, pointer, **more))

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
        "no-answer-unusable",
        "our id, and no state: not found, and no explicit none either",
        body([{"client_transaction_id": IDENTITY, "amount": 11}]),
        "no_answer",
        0,
        unusable,
    )
    damaged = _ended("approved", APPROVAL, reference, "damaged_event")
    for name in ("event_id", "terminal", "merchant_id", "occurred_at"):
        content = body([changed(final, name, remove=True)])
        add(
            f"found-without-{name.replace('_', '-')}",
            f"ours, without {name}: read around it",
            content,
            "found",
            1,
            damaged,
        )
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
        "no-answer-status-twice",
        "our id, and two states",
        body([final])[:-2] + b', "status": "DECLINED"}]',
        "no_answer",
        0,
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
    for name, more in NO_MORE.items():
        about = "an empty list at the pointer, and nothing says that there is more"
        add(f"none-pointer-{name}", about, body({"data": [], **more}), "none", pointer="/data")
    for name, more in SAYS_MORE.items():
        about = "an empty list at the pointer, and there is more to it"
        add(f"no-answer-pointer-{name}", about, body({"data": [], **more}), "no_answer", pointer="/data")
    inner = body({"page": {"items": [], "hits": 5}})
    add("no-answer-pointer-inner", "more beside it, deeper in the reply", inner, "no_answer", pointer="/page/items")
    outer = body({"page": {"items": []}, "error": "busy"})
    add("no-answer-pointer-outer", "more beside what holds it", outer, "no_answer", pointer="/page/items")
    add("no-answer-pointer-lists", "a list beside it that is not empty", body([[], [7]]), "no_answer", pointer="/0")
    add("none-pointer-lists", "empty lists", body([[], []]), "none", pointer="/0")

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
    found += [*_statuses(final), *_pages(final, others)]
    add("found-206", "HTTP 206 with our final", body([final]), "found", 1, approved, status=206)
    return found
