"""The local API: problems in their exact form, lists, documents, amounts as texts."""

import json
from collections.abc import Iterable
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest

from posd.base.problems import PROBLEMS
from tests.rig.events import APPROVED
from tests.rig.shop import AMOUNT, FEW_TERMINALS, OFFLINE, Shop, acknowledging
from tests.rig.streams import Reply

pytestmark = pytest.mark.asyncio(loop_scope="module")

NEW = "/transactions/{new}"
KNOWN = "/transactions/{known}"
CHARGE: dict[str, Any] = {"terminal": "SN-023", "amount": AMOUNT}
ORIGINAL = str(uuid4())
REFERENCE = str(uuid4())


def charge(**changes: Any) -> dict[str, Any]:
    return CHARGE | changes


#: Call -> status and code. `{new}` is an unused id. `{known}` is the id of a payment that waits on terminal SN-023.
PROBLEM_ROWS: list[tuple[str, str, Any, int, str]] = [
    ("PUT", NEW, b"{", 400, "malformed_json"),
    ("PUT", NEW, charge(amuont={}), 422, "invalid_request"),
    ("PUT", f"{NEW}?a=1", CHARGE, 422, "invalid_request"),
    ("PUT", "/transactions/not-a-uuid", CHARGE, 422, "invalid_request"),
    ("GET", "/transactions/not-a-uuid", None, 422, "invalid_request"),
    ("GET", f"{KNOWN}/outcome?timeout=-1", None, 422, "invalid_request"),
    ("GET", f"{KNOWN}/outcome?timeout=1&timeout=2", None, 422, "invalid_request"),
    ("GET", "/transactions?limit=0", None, 422, "invalid_request"),
    ("GET", "/transactions?phase=done", None, 422, "invalid_request"),
    ("GET", "/transactions?open=yes", None, 422, "invalid_request"),
    ("GET", "/transactions?since=2026-11-20T10:42:03", None, 422, "invalid_request"),
    ("GET", "/print-jobs?until=2026-11-20", None, 422, "invalid_request"),
    *(
        row
        for identity in (str(UUID(int=0)), str(UUID(int=2**128 - 1)).upper())
        for row in (
            ("PUT", f"/transactions/{identity}", CHARGE, 422, "invalid_request"),
            ("GET", f"/transactions/{identity}", None, 422, "invalid_request"),
            ("GET", f"/transactions/{identity}/outcome", None, 422, "invalid_request"),
            ("POST", f"/transactions/{identity}/abort", None, 422, "invalid_request"),
        )
    ),
    ("PUT", NEW, charge(not_after="0001-01-01T00:00:00+14:00"), 409, "expired"),
    ("PUT", NEW, charge(not_after="9999-12-31T23:59:59-14:00"), 409, "terminal_busy"),
    ("GET", "/transactions?cursor=xx", None, 422, "invalid_request"),
    ("GET", "/transactions?color=red", None, 422, "invalid_request"),
    ("GET", "/transactions?metadata=x", None, 422, "invalid_request"),
    ("GET", "/transactions?result=done", None, 422, "invalid_request"),
    ("GET", "/transactions?totals=2", None, 422, "invalid_request"),
    ("GET", "/feed?after=-1", None, 422, "invalid_request"),
    ("GET", "/terminals?all=yes", None, 422, "invalid_request"),
    ("PUT", NEW, {"amount": AMOUNT}, 422, "unknown_terminal"),
    ("PUT", NEW, charge(terminal="SN-NOBODY"), 422, "unknown_terminal"),
    ("PUT", NEW, charge(terminal=OFFLINE), 503, "terminal_offline"),
    ("PUT", NEW, CHARGE, 409, "terminal_busy"),
    ("PUT", KNOWN, charge(metadata={"other": 1}), 409, "id_reused"),
    ("PUT", KNOWN, b"{", 409, "id_reused"),
    ("GET", NEW, None, 404, "not_found"),
    ("GET", f"{NEW}/outcome", None, 404, "not_found"),
    ("GET", f"{NEW}/events", None, 404, "not_found"),
    ("POST", f"{NEW}/abort", None, 404, "not_found"),
    ("GET", "/terminals/SN-NOBODY", None, 404, "not_found"),
    ("GET", "/nothing", None, 404, "not_found"),
    ("GET", "/transactions/", None, 404, "not_found"),
    ("GET", f"{KNOWN}/../..", None, 404, "not_found"),
    ("PUT", NEW, charge(type="capture", original=ORIGINAL), 422, "unknown_original"),
    ("PUT", NEW, charge(terminal=OFFLINE, type="capture", original=ORIGINAL), 422, "unknown_original"),
    ("PUT", NEW, {"terminal": "SN-023", "type": "void", "transaction_reference": REFERENCE}, 409, "terminal_busy"),
    ("POST", f"{NEW}/reconcile", None, 404, "not_found"),
    ("POST", f"{KNOWN}/reconcile", {"now": True}, 422, "invalid_request"),
    ("POST", f"{NEW}/release", {"operator": "o", "note": "n"}, 404, "not_found"),
    ("POST", f"{KNOWN}/release", {"operator": "o"}, 422, "invalid_request"),
    ("POST", f"{KNOWN}/release", b"{", 400, "malformed_json"),
    ("POST", f"{KNOWN}/resolve", {"result": "canceled"}, 403, "forbidden"),
    ("POST", f"{KNOWN}/acknowledge", {"code": "gap"}, 403, "forbidden"),
    ("GET", "/quarantine", None, 403, "forbidden"),
    ("GET", "/quarantine/1", None, 403, "forbidden"),
    ("POST", "/reprocess", None, 403, "forbidden"),
    ("GET", f"{NEW}/history", None, 404, "not_found"),
    ("DELETE", KNOWN, None, 405, "method_not_allowed"),
    ("POST", "/version", {}, 405, "method_not_allowed"),
    ("PUT", "/transactions/", {}, 404, "not_found"),
    ("PUT", NEW, b'{"a": "' + b"x" * 300_000 + b'"}', 413, "payload_too_large"),
]

#: Code -> fields that only this problem has.
EXTRA = {
    "invalid_request": {"errors"},
    "unknown_terminal": {"fleet"},
    "terminal_busy": {"blocking_transaction"},
    "id_reused": {"fields"},
    "payload_too_large": {"limit_bytes"},
    "expired": {"not_after", "now"},
    "amount_exceeds": {"asked", "allowed", "transactions"},
}


@pytest.fixture(scope="module")
def known() -> str:
    return str(uuid4())


async def start_known(shop: Shop, known: str) -> None:
    shop.terminal.start = None
    assert (await shop.daemon.call("PUT", f"/transactions/{known}", CHARGE)).status in (200, 201)


def assert_problem(reply: Reply, status: int, code: str, *more: str) -> Any:
    """Check the exact form of a problem, with these additional members. Return the problem."""
    assert reply.status == status, reply.body
    assert reply.headers["content-type"] == "application/problem+json"
    problem = reply.json
    assert set(problem) == {"type", "title", "status", "detail", "code", *more} | EXTRA.get(code, set())
    assert (problem["code"], problem["status"]) == (code, status)
    assert (problem["type"], problem["title"]) == (f"urn:posd:problem:{code}", PROBLEMS[code].title)
    assert len(problem["detail"]) > 20
    assert ("retry-after" in reply.headers) == (status == 503)
    for error in problem.get("errors", []):
        assert set(error) == {"path", "message"}
    return problem


def row_name(row: Any) -> str:
    return f"{row[0]} {row[1]} {row[4]} {str(row[2])[:40]}"


@pytest.mark.quick(11)
@pytest.mark.parametrize("row", PROBLEM_ROWS, ids=row_name)
async def test_each_problem_has_its_exact_form(shop: Shop, known: str, row: tuple[str, str, Any, int, str]) -> None:
    method, path, content, status, code = row
    await start_known(shop, known)
    new = str(uuid4())
    seen = len(shop.terminal.requests)
    reply = await shop.daemon.call(method, path.format(new=new, known=known), content)
    starts = method == "PUT" or (method, path) == ("DELETE", KNOWN)
    unknown = path.startswith(NEW) and (method in ("PUT", "GET") or path.endswith("/release"))
    more = ["next_step"] * starts + ["never_started"] * unknown
    problem = assert_problem(reply, status, code, *more)
    if starts:
        assert problem["next_step"] == PROBLEMS[code].next_step
    if unknown:
        assert problem["never_started"] is True
    if code == "unknown_terminal":
        assert problem["fleet"][:2] == ["SN-000", "SN-001"]
        assert len(problem["fleet"]) > FEW_TERMINALS
    if code == "terminal_busy":
        assert problem["blocking_transaction"] == known
    if code == "method_not_allowed":
        assert "GET" in reply.headers["allow"]
    assert len(shop.terminal.requests) == seen
    assert (await shop.daemon.call("GET", f"/transactions/{new}")).status == 404


@pytest.mark.parametrize(
    ("query", "meant"),
    [
        ("/transactions?Sales=x", "sale"),
        ("/transactions?metdata.reference=x", "metadata.KEY"),
        ("/transactions?untill=x", "until"),
        ("/print-jobs?external-reference=x", "external_reference"),
        ("/transactions?zzzz=x", None),
    ],
)
async def test_an_unknown_parameter_is_reported_with_the_nearest_parameter(
    shop: Shop, query: str, meant: str | None
) -> None:
    (error,) = assert_problem(await shop.daemon.call("GET", query), 422, "invalid_request")["errors"]
    assert (f"did you mean {meant}?" in error["message"]) == (meant is not None)
    assert ("did you mean" in error["message"]) == (meant is not None)


async def test_admin_calls_need_the_admin_socket(shop: Shop, known: str) -> None:
    await start_known(shop, known)
    for call in ("resolve", "acknowledge"):
        reply = await shop.daemon.call("POST", f"/transactions/{known}/{call}", {}, socket=shop.daemon.admin_socket)
        assert_problem(reply, 422, "invalid_request")
    seen = await shop.daemon.call("GET", f"/transactions/{known}", socket=shop.daemon.admin_socket)
    assert seen.json == await shop.daemon.transaction(known)


async def test_a_body_must_be_json(shop: Shop) -> None:
    identity = str(uuid4())
    for kind, status in (("text/plain", 415), ("application/x-www-form-urlencoded", 415)):
        reply = await shop.daemon.call(
            "PUT", f"/transactions/{identity}", json.dumps(CHARGE).encode(), headers={"content-type": kind}
        )
        assert_problem(reply, status, "unsupported_media_type", "next_step", "never_started")
    for coding, status, code in (
        ("gzip", 415, "unsupported_media_type"),
        ("identity, br", 415, "unsupported_media_type"),
        ("Identity", 400, "malformed_json"),
    ):
        reply = await shop.daemon.call("PUT", f"/transactions/{identity}", b"{", headers={"content-encoding": coding})
        detail = assert_problem(reply, status, code, "next_step", "never_started")["detail"]
        assert (status == 415) == ("content-encoding" in detail)
    for kind in ("application/json; charset=utf-8", "application/vnd.till+json"):
        reply = await shop.daemon.call("PUT", f"/transactions/{identity}", b"{", headers={"content-type": kind})
        assert_problem(reply, 400, "malformed_json", "next_step", "never_started")


async def test_health_has_all_its_checks(shop: Shop) -> None:
    reply = await shop.daemon.call("GET", "/health")
    assert reply.status == 200
    # The check `identity` may be degraded, because a device of another test reports another serial.
    words = {name: check["status"] for name, check in reply.json["checks"].items() if name != "identity"}
    well = ("storage", "local_api", "webhook_listener", "certificate", "discovery", "clock", "configuration", "restore")
    assert words == dict.fromkeys(well, "ok")
    assert reply.json["checks"]["identity"]["status"] == reply.json["status"]


async def test_status_has_open_payments_and_the_last_payment_of_each_terminal(shop: Shop) -> None:
    payment = await shop.started()
    reply = await shop.daemon.call("GET", "/status", socket=shop.daemon.admin_socket)
    status = reply.json
    assert (reply.status, status["health"]["checks"]["clock"]) == (200, status["clock"])
    assert status["configuration"] | {"loaded_at": ""} == {"loaded_at": "", "refused": None, "needs_restart": []}
    assert status["counters"]["open_payments"] >= 1
    assert 0 < status["disk"]["free_bytes"] <= status["disk"]["size_bytes"]
    assert (status["relay"], status["backup_at"], status["uptime_seconds"] > 0) == (None, None, True)
    (there,) = (item for item in status["terminals"] if item["serial"] == payment.serial)
    last = there["last_payment"]
    assert (last["client_transaction_id"], last["phase"], last["result"]) == (payment.identity, "active", None)
    assert there["transaction"] == payment.identity
    till = await shop.daemon.call("GET", "/status")
    assert (till.status, till.json["code"]) == (403, "forbidden")


async def wrote(shop: Shop, metadata: str) -> str:
    """Start a payment whose metadata has exactly these bytes."""
    payment = shop.payment()
    shop.terminal.start = acknowledging(payment.serial)
    amount = '"amount": {"iva": 1.20, "subtotal_iva": 10.00}'
    body = f'{{"terminal": "{payment.serial}", {amount}, "metadata": {metadata}}}'.encode()
    assert (await shop.daemon.call("PUT", f"/transactions/{payment.identity}", body)).status == 201
    return payment.identity


#: Members with amounts that posd writes.
AMOUNTS = {"amount", "authorized_amount", "tips"}


#: Members that posd shows verbatim.
VERBATIM = {"metadata", "options", "final_event", "event"}


def in_texts(document: Any, *, amount: bool = False) -> Any:
    """Return a document with the amounts as texts, as `amounts=text` must show them."""
    match document:
        case dict():
            return {
                name: value if name in VERBATIM else in_texts(value, amount=amount or name in AMOUNTS)
                for name, value in document.items()
            }
        case list():
            return [in_texts(item, amount=amount) for item in document]
        case int() | Decimal() if amount and not isinstance(document, bool):
            return str(document)
        case _:
            return document


async def both(shop: Shop, path: str, **call: Any) -> tuple[Any, Any]:
    """Return the response of a call with amounts as numbers, and as texts."""
    asked = [path, f"{path}{'&' if '?' in path else '?'}amounts=text"]
    replies = [await shop.daemon.call(call.get("method", "GET"), each, call.get("body")) for each in asked]
    assert replies[0].status == replies[1].status
    return replies[0].json, replies[1].json


async def test_amounts_are_texts_in_any_call_that_requests_it(shop: Shop) -> None:
    payment = shop.payment()
    shop.terminal.start = acknowledging(payment.serial)
    amount = {"iva": 1.2, "subtotal_iva": "10.00", "extra_taxes": {"ice": 0.3}, "tip": 2}
    more = {"metadata": {"amount": 1.5, "n": 7}, "options": {"amount_limit": 9.99}}
    body = {"terminal": payment.serial, "amount": amount, **more}
    at = f"/transactions/{payment.identity}"
    started = await shop.daemon.call("PUT", f"{at}?amounts=text", body)
    assert started.status == 201
    assert started.json["amount"] == {
        "iva": "1.2",
        "subtotal_iva": "10.00",
        "subtotal_iva0": "0",
        "extra_taxes": {"ice": "0.3"},
        "tip": "2",
    }
    assert started.json["metadata"] == {"amount": Decimal("1.5"), "n": 7}
    first, *others = APPROVED  # the events are in order, so that posd does not search between two calls
    assert await payment.event(*first) == 200
    calls: Iterable[tuple[str, dict[str, Any]]] = [
        (at, {}),
        (at, {"method": "PUT", "body": body}),
        (f"{at}/outcome?timeout=0", {}),
        (f"{at}/history", {}),
        (f"/transactions?terminal={payment.serial}&totals=true", {}),
    ]
    for path, call in calls:
        numbers, texts = await both(shop, path, **call)
        assert texts == in_texts(numbers)
    for status, previous in others:
        assert await payment.event(status, previous) == 200
    for path in (at, f"{at}/outcome", f"{at}/events", f"/transactions?terminal={payment.serial}&totals=true", "/feed"):
        numbers, texts = await both(shop, path)
        assert texts == in_texts(numbers)
    numbers, texts = await both(shop, f"{at}/abort", method="POST")
    assert (numbers["code"], texts["outcome"]["authorized_amount"]) == ("already_final", "11.2")
    assert texts == in_texts(numbers)
    assert texts["outcome"]["final_event"]["raw_response"]["authorized_amount"] == Decimal("11.2")


async def test_an_unknown_value_of_the_parameter_amounts_is_refused(shop: Shop) -> None:
    for path in ("/version", f"/transactions/{uuid4()}", "/transactions"):
        for value in ("number", "", "Text"):
            reply = await shop.daemon.call("GET", f"{path}?amounts={value}")
            assert (reply.status, reply.json["code"]) == (422, "invalid_request")
            assert [error["path"] for error in reply.json["errors"]] == ["amounts"]
    payment = shop.payment()
    body = json.dumps({"terminal": payment.serial, "amount": {"iva": 1}}).encode()
    reply = await shop.daemon.call("PUT", f"/transactions/{payment.identity}?amounts=cents", body)
    assert (reply.status, reply.json["errors"][0]["path"]) == (422, "amounts")
    assert payment.requests == []
