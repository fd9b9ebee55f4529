"""The control API over real HTTP. A developer can use the control API, and a web page in a browser cannot use it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from posd.simulator import Settings, Simulator, control, started
from tests.simulator.conftest import PATIENCE, QUICK_SPEED, Receiver, Till, request

SERIAL = "SN/1"
JSON = {"content-type": "application/json"}


class Developer:
    """A developer who calls the control API of one terminal."""

    def __init__(self, terminal: Simulator, url: str, client: httpx2.AsyncClient) -> None:
        self.terminal = terminal
        self.till = Till(self.terminal, client)
        self.url = url
        self.client = client

    async def get(self, path: str) -> Any:
        answer = await self.client.get(self.url + path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def post(self, path: str, body: object = None) -> httpx2.Response:
        content = b"" if body is None else json.dumps(body).encode()
        return await self.client.post(self.url + path, content=content, headers=JSON)

    async def do(self, deed: str, **body: Any) -> dict[str, Any]:
        answer = await self.post(f"/terminals/SN%2F1/{deed}", body or None)
        assert answer.status_code == 200, answer.text
        state: dict[str, Any] = answer.json()
        return state

    async def refused(self, path: str, body: object = None) -> tuple[int, str]:
        answer = await self.post(path, body)
        problem = answer.json()
        assert set(problem) == {"code", "message"}
        return answer.status_code, problem["code"]


@asynccontextmanager
async def controlled(wanted: Settings, client: httpx2.AsyncClient) -> AsyncIterator[Developer]:
    async with started([wanted]) as terminals, control.controlled(terminals, "127.0.0.1", 0) as url:
        yield Developer(terminals[SERIAL], url, client)


@pytest.fixture
async def developer(settings: Callable[..., Settings], client: httpx2.AsyncClient) -> AsyncIterator[Developer]:
    async with controlled(settings(serial=SERIAL, speed=QUICK_SPEED), client) as made:
        yield made


async def test_a_payment_is_played_by_hand(developer: Developer, receiver: Receiver) -> None:
    assert (await developer.get("/terminals/SN%2F1"))["payment"] is None
    assert (await developer.do("scenario", name="by-hand"))["armed"] == "by-hand"
    identity = request()["client_transaction_id"]
    await developer.till.charge(client_transaction_id=identity, events_webhook_url=receiver.url)
    await receiver.wait_for(1)
    state = await developer.get("/terminals/SN%2F1")
    assert state["payment"] == {
        "client_transaction_id": identity,
        "operation": "charge",
        "scenario": "by-hand",
        "status": "TERMINAL_ACKNOWLEDGED",
    }
    assert state["armed"] is None
    await developer.do("present-card")
    await receiver.wait_for(3)
    assert await developer.refused("/terminals/SN%2F1/cancel") == (409, "NOT_NOW")
    await developer.do("approve")
    await receiver.wait_for(4)
    assert receiver.statuses[1:] == ["CARD_PRESENTED", "APPROVAL_REQUESTED", "APPROVAL"]
    ledger = await developer.get("/terminals/SN%2F1/ledger")
    assert ledger == json.loads(json.dumps(list(developer.terminal.ledger), default=float))
    hands = [(entry["hand"], entry["taken"]) for entry in ledger if entry["kind"] == "hand"]
    assert hands == [("present-card", True), ("cancel", False), ("approve", True)]


async def test_each_switch_takes_effect(developer: Developer) -> None:
    first = developer.terminal.base_url
    assert (await developer.do("unplug"))["plugged"] is False
    assert (await developer.do("plug"))["plugged"] is True
    assert (await developer.do("power-off"))["powered"] is False
    assert (await developer.do("power-on"))["powered"] is True
    on_again = developer.terminal.ledger.next(lambda entry: entry["kind"] == "power_on")
    assert (await developer.do("power-cycle", seconds=200))["powered"] is False
    async with asyncio.timeout(PATIENCE):
        await on_again
    moved = (await developer.do("move"))["base_url"]
    assert moved != first
    assert (await developer.do("certificate", which="expired"))["certificate"] == "expired"
    (state,) = await developer.get("/terminals")
    assert state == {
        "serial": SERIAL,
        "base_url": moved,
        "powered": True,
        "plugged": True,
        "certificate": "expired",
        "scenario": "approve-contactless",
        "armed": None,
        "armed_print": None,
        "payment": None,
        "waiting_events": 0,
    }


WRONG: list[tuple[str, object, int, str]] = [
    ("/terminals/SN%2F1/scenario", {"name": "aprove"}, 404, "UNKNOWN_SCENARIO"),
    ("/terminals/SN%2F1/scenario", {}, 422, "WRONG_BODY"),
    ("/terminals/SN%2F1/scenario", {"name": "decline", "x": 1}, 422, "WRONG_BODY"),
    ("/terminals/SN%2F1/unplug", [], 422, "WRONG_BODY"),
    ("/terminals/SN%2F1/unplug", {"seconds": 1}, 422, "WRONG_BODY"),
    ("/terminals/SN%2F1/power-cycle", {"seconds": -1}, 422, "WRONG_BODY"),
    ("/terminals/SN%2F1/certificate", {"which": "new"}, 422, "WRONG_BODY"),
    ("/terminals/SN%2F1/unplug", "x" * 70_000, 413, "TOO_LARGE"),
    ("/terminals/SN%2F1/explode", {}, 404, "UNKNOWN_PATH"),
    ("/terminals/SN-2/unplug", {}, 404, "UNKNOWN_TERMINAL"),
    ("/terminals", {}, 405, "HTTP_405"),
    ("/nowhere", {}, 404, "UNKNOWN_PATH"),
    ("/clock", {"advance": 1}, 409, "REAL_TIME"),
    ("/clock", {"advance": -1}, 422, "WRONG_BODY"),
]


async def test_invalid_calls_are_refused(developer: Developer, settings: Callable[..., Settings]) -> None:
    for path, body, status, code in WRONG:
        assert await developer.refused(path, body) == (status, code), path
    assert (await developer.client.post(developer.url + "/clock", content=b"{", headers=JSON)).status_code == 422
    assert (await developer.client.get(developer.url + "/terminals/SN-2")).json()["code"] == "UNKNOWN_TERMINAL"
    assert (await developer.client.get(developer.url + "/terminals/SN%2F1/unplug")).json()["code"] == "HTTP_405"


#: Headers of a call, and the code of its refusal. None stands for an accepted call.
BROWSERS: list[tuple[dict[str, str], str | None]] = [
    (JSON, None),
    ({"content-type": "application/json; charset=utf-8"}, None),
    (JSON | {"host": "localhost:6870"}, None),
    (JSON | {"host": "127.0.0.1"}, None),
    (JSON | {"host": "[::1]:6870"}, None),
    (JSON | {"sec-fetch-site": "none"}, None),
    ({}, "NOT_JSON"),
    ({"content-type": "text/plain"}, "NOT_JSON"),
    ({"content-type": "application/x-www-form-urlencoded"}, "NOT_JSON"),
    ({"content-type": "multipart/form-data; boundary=application/json"}, "NOT_JSON"),
    (JSON | {"host": "evil.example"}, "FOREIGN_HOST"),
    (JSON | {"host": "127.0.0.1.evil.example:6870"}, "FOREIGN_HOST"),
    (JSON | {"host": "localhost.evil.example"}, "FOREIGN_HOST"),
    (JSON | {"host": "192.0.2.1:6870"}, "FOREIGN_HOST"),
    (JSON | {"host": ""}, "FOREIGN_HOST"),
    (JSON | {"origin": "https://evil.example"}, "FOREIGN_PAGE"),
    (JSON | {"origin": "null"}, "FOREIGN_PAGE"),
    (JSON | {"sec-fetch-site": "cross-site"}, "FOREIGN_PAGE"),
]


async def test_no_web_page_in_a_browser_can_control_the_simulator(developer: Developer) -> None:
    for headers, code in BROWSERS:
        call = developer.client.build_request("POST", f"{developer.url}/terminals/SN%2F1/unplug", content=b"{}")
        del call.headers["host"]
        call.headers.update({"host": "127.0.0.1:1"} | headers)
        answer = await developer.client.send(call)
        assert answer.json().get("code") == code, headers
        assert developer.terminal.switchboard.plugged is (code is not None), headers
        assert not any(name.startswith("access-control") for name in answer.headers)
        await developer.terminal.switchboard.set_plugged(True)
    asked = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    preflight = await developer.client.request("OPTIONS", f"{developer.url}/terminals/SN%2F1/unplug", headers=asked)
    assert preflight.status_code == 403
    read = await developer.client.get(f"{developer.url}/terminals", headers={"host": "evil.example"})
    assert read.status_code == 421
    upgrade = {
        "connection": "upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    for headers in (upgrade, upgrade | {"origin": "https://evil.example"}):
        assert (await developer.client.get(developer.url + "/terminals", headers=headers)).status_code == 403
