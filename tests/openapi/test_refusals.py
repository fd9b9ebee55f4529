"""Refusals that all calls share, their examples in the description, and the messages of streams.

`tests/rig/described.py` checks every response of any test.
"""

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from posd.api import routes
from posd.api.openapi import Examples
from posd.calls.parameters import Route
from tests.rig.described import described
from tests.rig.shop import Shop, open_shop
from tests.rig.streams import Reply, collect, stream

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

BY_ANA = {"operator": "Ana", "note": "the display says so"}
#: Call -> request with the example of `invalid_request` as its reply. The request is the last part of the path, or a
#: body.
WRONG: dict[str, str | dict[str, Any]] = {
    "start_transaction": {"terminal": "SN-0001", "amount": {"iva": -1.20, "subtotal_iva": 10.00}},
    "release_transaction": {"operator": "Ana"},
    "resolve_transaction": {"result": "paid", **BY_ANA},
    "acknowledge_transaction": {"code": "gap", "operator": "Ana"},
    "list_transactions": "?limit=0",
    "await_outcome": "?timeout=-1",
    "start_print_job": {"terminal": "SN-0001"},
    "resolve_print_job": {"result": "printed", **BY_ANA},
    "acknowledge_print_job": {"code": "print_stuck", "operator": "Ana"},
    "await_print_job": "?timeout=-1",
    "list_print_jobs": "?limit=0",
    "list_terminals": "?all=maybe",
    "decide_identity": BY_ANA,
    "commission_terminal": BY_ANA | {"proven": ["abort", "refund"]},
    "read_feed": "?limit=0",
    "list_quarantine": "?limit=0",
    "get_quarantined": "x",
    "get_report": "?since=2026-11-20T00:00:00Z&until=2025-11-20T00:00:00Z",
    "list_shifts": "?limit=0",
    "close_shift": {"note": "late shift"},
    "back_up": {"keep": 14},
    "confirm_restore": {"operator": "Ana"},
    "prune": {"older_than_days": -1},
    "confirm_clock": {"note": "by the phone"},
}
#: Call -> parameters with an unknown name, for calls without an id in the path.
ABSENT = {"get_report": "?shift=99"}
#: Calls whose example of `not_found` is about an existing payment.
OTHERWISE = {"acknowledge_transaction", "acknowledge_print_job", "get_report"}
#: Maximum duration of a response, in seconds. A longer wait fails the test.
STUCK_SECONDS = 60.0
ROUTES = [route for route in routes.ALL if route.path != "/metrics"]
#: Parts of a text that vary: ids, serials, the sale of the examples, addresses, times, numbers, and ends.
CHANGES = re.compile(
    r"[0-9a-f]{8}-[0-9a-f-]{27}|receipt-\d+|SN-\w+|2026-11-20/till-3/1042|https?://[\w.:]+"
    r"|\d{4}-\d\d-\d\d[T ][\d:.]+Z?|\d{4}-\d\d-\d\d|\d+|approved"
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop() -> AsyncIterator[Shop]:
    with TemporaryDirectory(prefix="posd-") as directory:
        async with open_shop(Path(directory)) as shop:
            yield shop


def where(route: Route) -> str:
    """Return the path of a call after /v1, with unknown ids."""
    ids = {"client_transaction_id": str(uuid4()), "print_job_id": f"job-{uuid4()}", "serial": "SN-NOBODY", "id": 9999}
    return route.path.removeprefix("/v1").format_map(ids)


def fits(example: str, said: str) -> bool:
    """Return whether an example matches a text, except for the parts that vary."""
    return re.fullmatch(".+?".join(re.escape(piece) for piece in CHANGES.split(example)), said) is not None


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
async def test_every_call_has_the_refusals_that_all_calls_share(shop: Shop, route: Route) -> None:
    socket = shop.daemon.admin_socket if route.admin else shop.daemon.till_socket
    path, said = where(route), defaultdict[str, list[str]](list)

    async def refused(code: str, query: str, body: Any = None, **options: Any) -> None:
        reply: Reply = await shop.daemon.call(route.method, path + query, body, **({"socket": socket} | options))
        assert reply.json["code"] == code, reply.body
        said[code].append(reply.json["detail"])

    if route.admin:
        await refused("forbidden", "", socket=shop.daemon.till_socket)
    await refused("invalid_request", "?nonsense=1", b"{}")
    await refused("unsupported_media_type", "", b"{}", headers={"content-type": "text/plain"})
    await refused("payload_too_large", "", b" " * 300_000)
    operation = described().operation(route.method, route.path) or {}
    if route.body is not None:
        await refused("malformed_json", "", b"{")
        await refused("invalid_request", "", {"nonsense": 1})
    if wrong := WRONG.get(route.name):
        await (refused("invalid_request", wrong) if isinstance(wrong, str) else refused("invalid_request", "", wrong))
    if "not_found" in json.dumps(operation["responses"].get("404", "")):
        bodies = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("examples", {})
        body = next((example["value"] for example in bodies.values()), None)
        await refused("not_found", ABSENT.get(route.name, ""), body)
    examples = Examples.read()
    for code in said.keys() - ({"not_found"} if route.name in OTHERWISE else set()):
        calls = examples.calls(route.name, code)
        assert calls is not None, code
        example = examples.problems[code][calls]["detail"]
        assert any(fits(example, detail) for detail in said[code]), (code, example, said[code])


async def test_every_call_refuses_an_incomplete_body(shop: Shop) -> None:
    async def stalled(route: Route) -> None:
        socket = shop.daemon.admin_socket if route.admin else shop.daemon.till_socket
        reader, writer = await asyncio.open_unix_connection(str(socket))
        writer.write(f"{route.method} /v1{where(route)} HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{{".encode())
        async with asyncio.timeout(STUCK_SECONDS):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            body = await reader.readexactly(int(head.split("content-length: ")[1].split("\r\n")[0]))
        writer.transport.abort()
        described().hold(route.method, route.path, int(head.split(" ")[1]), "application/problem+json", body)
        assert head.split(" ")[1] == "408"

    await asyncio.gather(*map(stalled, ROUTES))


@pytest.mark.parametrize("path", ["/transactions/{id}/events", "/feed"])
async def test_each_message_of_a_stream_is_as_described(shop: Shop, path: str) -> None:
    payment = await shop.started()
    await payment.end()
    operation = described().operation("GET", "/v1" + path.format(id=payment.identity))
    assert operation is not None
    rows = operation["responses"]["200"]["content"]["text/event-stream"]["x-posd-messages"]
    kinds = {row["event"]: row["data"] for row in rows}
    last = "outcome" if "events" in path else "transaction"
    async with stream(shop.daemon.till_socket, path.format(id=payment.identity)) as source:
        for message in await collect(source, lambda message: message.event == last):
            data = kinds.get(message.event, rows[0]["data"])
            assert described().errors(data, json.loads(message.data)) == [], message
