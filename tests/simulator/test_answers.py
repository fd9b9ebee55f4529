"""Answers that go wrong, on the real wire: lost, silent, cut, late, of another status or body (spec 4.1)."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import pytest

from posd.simulator.messages import changed
from tests.simulator.conftest import CHARGE, PATIENCE, Stage, Till, request
from tests.simulator.own import APPROVED, WAITS

UUID = "7f3c0000-0000-4000-8000-000000000001"


CHANGES: list[tuple[Any, dict[str, Any], list[str], Any]] = [
    ({"a": 1}, {}, [], {"a": 1}),
    ({"a": 1}, {"b": 2}, [], {"a": 1, "b": 2}),
    ({"a": {"b": 1, "c": 2}}, {"a.b": 3}, [], {"a": {"b": 3, "c": 2}}),
    ({}, {"a.b.c": 3}, [], {"a": {"b": {"c": 3}}}),
    ({"a": 1}, {"a.b": 3}, [], {"a": {"b": 3}}),
    ({"a": {"b": 1, "c": 2}}, {}, ["a.b"], {"a": {"c": 2}}),
    ({"a": 1}, {}, ["a"], {}),
    ({"a": 1}, {}, ["b", "a.b", "b.c"], {"a": 1}),
    ({"a": 1}, {"a": 2}, ["a"], {}),
    ([{"a": 1}, {"b": 1}], {"a": 2}, ["b"], [{"a": 2}, {"a": 2}]),
    ([], {"a": 2}, [], []),
]


@pytest.mark.parametrize(("value", "members", "removed", "result"), CHANGES)
def test_members_are_changed_by_their_path(
    value: Any, members: dict[str, Any], removed: list[str], result: Any
) -> None:
    before = json.dumps(value)
    assert changed(value, members, removed) == result
    assert json.dumps(value) == before


async def start_line(till: Till) -> tuple[int | None, str | None, bool]:
    line = await till.terminal.ledger.wait_for("start")
    return line["http_status"], line["code"], line["runs"]


async def test_a_payment_can_run_though_its_start_was_answered_with_an_error(stage: Stage) -> None:
    page = "<html><h1>502 Bad Gateway</h1></html>"
    text = f'[start]\nstatus = 502\nbody = "{page}"\ncontent_type = "text/html"\n' + APPROVED
    async with stage.plays(text) as till:
        answer = await till.charge()
        assert (answer.status_code, answer.text) == (502, page)
        assert answer.headers["content-type"].startswith("text/html")
        assert await start_line(till) == (502, None, True)
        assert (await till.terminal.ledger.wait_for("final"))["charged"] is True


@pytest.mark.parametrize("status", [400, 401, 409, 422, 500, 599])
async def test_a_start_that_is_refused_leaves_the_terminal_free(stage: Stage, status: int) -> None:
    async with stage.plays(f"[start]\nstatus = {status}\nruns = false\n" + APPROVED) as till:
        answer = await till.charge()
        assert answer.status_code == status
        assert answer.headers["content-type"] == "application/json"
        assert answer.json()["code"] == f"HTTP_{status}"
        assert await start_line(till) == (status, None, False)
        assert [line["kind"] for line in till.terminal.ledger] == ["start", "over"]
        assert (await till.abort()).json()["code"] == "NOTHING_RUNNING"
        assert (await till.charge()).status_code == status  # and not 409 for being busy


async def test_the_acknowledgement_can_have_other_members(stage: Stage) -> None:
    text = (
        '[start]\nset = { "terminal.serialNumber" = "SN-9999", new = [1, 2.5] }\n'
        'remove = ["operation.client_transaction_id", "previous_status"]\n'
    )
    async with stage.plays(text + APPROVED) as till:
        sent = request()
        body = (await till.charge(**sent)).json()
    assert body["terminal"]["serialNumber"] == "SN-9999"
    assert body["new"] == [1, 2.5]
    assert body["operation"] == {"amount": sent["amount"], "type": "charge"}
    assert "previous_status" not in body


async def test_only_so_many_starts_of_a_transaction_are_answered_so(stage: Stage) -> None:
    text = "[start]\nstatus = 500\nruns = false\ntimes = 2\n" + APPROVED
    async with stage.plays(text) as till:
        spellings = [UUID, UUID.upper(), UUID]
        assert [(await till.charge(client_transaction_id=item)).status_code for item in spellings] == [500, 500, 200]
        assert (await till.terminal.ledger.wait_for("final"))["charged"] is True
        assert (await till.charge()).status_code == 500  # another transaction has its own count


@pytest.mark.parametrize(("after", "early"), [("5", 4.9), ("[5, 6]", 4.9)])
async def test_an_answer_can_be_slow(stage: Stage, after: str, early: float) -> None:
    async with stage.plays(f"[start]\nafter = {after}\n" + APPROVED, virtual=True) as till:
        call = asyncio.create_task(till.charge())
        await till.terminal.ledger.wait_for("start")
        await till.advance(early)
        assert [line["status"] for line in till.terminal.ledger.of("final")] == ["APPROVAL"]  # meanwhile
        assert not call.done()
        await till.advance(1.2)
        assert (await call).status_code == 200


async def test_an_answer_can_be_lost(stage: Stage) -> None:
    async with stage.plays('[start]\nfault = "lost"\n' + APPROVED) as till:
        with pytest.raises(httpx2.TransportError):
            await till.charge()
        assert await start_line(till) == (None, None, True)
        assert (await till.terminal.ledger.wait_for("final"))["charged"] is True
        assert (await till.search(str(uuid_of(till)))).status_code == 200  # others are answered


async def test_an_answer_can_be_lost_after_a_while(stage: Stage) -> None:
    async with stage.plays('[start]\nfault = "lost"\nafter = 9\n' + APPROVED, virtual=True) as till:
        call = asyncio.create_task(till.charge())
        await till.terminal.ledger.wait_for("start")
        await till.advance(8.9)
        assert not call.done()
        await till.advance(0.2)
        with pytest.raises(httpx2.TransportError):
            await call


def uuid_of(till: Till) -> str:
    (line,) = till.terminal.ledger.of("start")
    return str(line["client_transaction_id"])


async def test_an_answer_can_break_off_in_its_body(stage: Stage, client_tls: ssl.SSLContext) -> None:
    async with stage.plays('[start]\nfault = "cut"\n' + APPROVED) as till:
        with pytest.raises(httpx2.TransportError):
            await till.charge()
        assert await start_line(till) == (200, None, True)
        await till.terminal.ledger.wait_for("over")
        async with calling(till, client_tls) as (reader, _):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            promised = int(head.split("content-length: ")[1].split("\r\n")[0])
            body = await reader.read()
    assert head.startswith("http/1.1 200")
    assert len(body) == promised // 2
    assert body.startswith(b'{"event_id":"')


@contextlib.asynccontextmanager
async def calling(
    till: Till, tls: ssl.SSLContext, **fields: Any
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Start a payment over a connection of one's own."""
    address = httpx2.URL(till.terminal.base_url)
    reader, writer = await asyncio.open_connection(address.host, address.port, ssl=tls)
    body = json.dumps(request(**fields)).encode()
    head = f"POST {CHARGE} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110 - nothing tells when it does
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("held", ['fault = "silent"', "after = 1e9", 'after_event = "TERMINAL_CANCELED"'])
async def test_an_answer_that_does_not_come_ends_with_its_caller(
    stage: Stage, client_tls: ssl.SSLContext, held: str
) -> None:
    """Nothing is left of the call in the terminal, and the payment runs."""
    async with stage.plays(f"[start]\n{held}\n" + WAITS) as till:
        before = len(asyncio.all_tasks())
        async with calling(till, client_tls, events_webhook_url=stage.receiver.url) as (_, writer):
            line = await till.terminal.ledger.wait_for("start")
            assert line["http_status"] == (None if "silent" in held else 200)
            await till.terminal.ledger.wait_for("attempt")
            writer.close()
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()
        await until(lambda: len(asyncio.all_tasks()) <= before + 1)  # the course of the payment
        assert (await till.abort()).status_code == 200
        assert (await till.terminal.ledger.wait_for("final"))["status"] == "TERMINAL_CANCELED"


@pytest.mark.parametrize("held", ['fault = "silent"', "after = 1e9", 'after_event = "TERMINAL_CANCELED"'])
async def test_a_terminal_whose_callers_wait_stops_all_the_same(stage: Stage, held: str) -> None:
    async with asyncio.timeout(PATIENCE):
        async with stage.plays(f"[start]\n{held}\n" + WAITS) as till:
            call = asyncio.create_task(till.charge(events_webhook_url=stage.receiver.url))
            await till.terminal.ledger.wait_for("start")
        with pytest.raises(httpx2.TransportError):
            await call


async def test_the_webhook_can_be_faster_than_the_acknowledgement(stage: Stage) -> None:
    answered: list[bool] = []
    async with stage.plays('[start]\nafter_event = "CARD_PRESENTED"\n' + APPROVED) as till:
        fails = [503, 503]

        def look(event: dict[str, Any]) -> int:
            answered.append(call.done())
            return fails.pop() if event["status"] == "CARD_PRESENTED" and fails else 200

        stage.receiver.answer = look
        call = asyncio.create_task(till.charge(events_webhook_url=stage.receiver.url))
        assert (await call).status_code == 200
        assert answered[:4] == [False] * 4  # the first state, and the second one until it was taken
        kinds = [line["status"] for line in till.terminal.ledger.of("attempt", result=200)]
        assert "CARD_PRESENTED" in kinds


async def test_without_a_webhook_nothing_is_waited_for(stage: Stage) -> None:
    async with stage.plays('[start]\nafter_event = "CARD_PRESENTED"\n' + APPROVED) as till:
        assert (await till.charge()).status_code == 200


async def test_a_request_that_cannot_be_is_refused_as_always(stage: Stage) -> None:
    async with stage.plays('[start]\nfault = "lost"\n' + APPROVED) as till:
        assert (await till.post(b"{")).status_code == 400
        assert await start_line(till) == (400, "MALFORMED_JSON", False)
