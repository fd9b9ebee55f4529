"""Searches that find something else than what happened, and answers to them that go wrong."""

import asyncio
from typing import Any

import httpx2
import pytest

from tests.simulator.conftest import Receiver, Stage, Till
from tests.simulator.own import APPROVED, CANCELED, NO, OK, A, C, Q, step, steps

UUID = "7f3cabcd-0000-4000-8000-00000000000f"
STATES = (A, C, Q, OK)


async def found_in_each_state(stage: Stage, receiver: Receiver, text: str) -> list[list[dict[str, Any]]]:
    """Pay, and search before the first state, in each of them, and once the payment is over; check the delivered."""
    found = []
    async with stage.plays(text + "".join(step(status, after="10") for status in STATES), virtual=True) as till:
        await till.charge(client_transaction_id=UUID, events_webhook_url=receiver.url)
        for count in range(len(STATES) + 1):
            await till.advance(0 if count == 0 else 10)
            found.append((await till.search(UUID.upper())).json())
            assert till.terminal.ledger.of("search")[-1]["found"] == len(found[-1])
        await receiver.wait_for(len(STATES))
    return found


def statuses(found: list[list[dict[str, Any]]]) -> list[str | None]:
    return [events[0]["status"] if events else None for events in found]


FINDS = {
    "usual": [None, None, None, Q, OK],
    "nothing": [None, None, None, None, None],
    "stale": [None, None, A, C, Q],
    "all-states": [None, A, C, Q, OK],
    "another": [None, A, C, Q, OK],
    "contradiction": [None, None, None, Q, NO],
}


@pytest.mark.parametrize(("finds", "expected"), FINDS.items())
async def test_what_a_search_finds(stage: Stage, receiver: Receiver, finds: str, expected: list[str | None]) -> None:
    found = await found_in_each_state(stage, receiver, f'[search]\nfinds = "{finds}"\n')
    assert statuses(found) == expected
    told = {delivery.event["status"]: delivery.event for delivery in receiver.deliveries}
    for event, *_ in filter(None, found):
        if finds == "another":
            assert event["client_transaction_id"] != UUID
            assert event.get("operation", event)["client_transaction_id"] == event["client_transaction_id"]
        elif event["status"] == NO:
            assert event["failure_reason"]["code"] == "05"
            assert event["event_id"] != told[OK]["event_id"]
        else:
            assert event == told[event["status"]]


async def test_a_search_can_find_an_approval_where_there_was_none(stage: Stage) -> None:
    async with stage.plays('[search]\nfinds = "contradiction"\n' + steps(A, CANCELED)) as till:
        await till.charge(client_transaction_id=UUID)
        await till.terminal.ledger.wait_for("over")
        first, second = (await till.search(UUID)).json(), (await till.search(UUID)).json()
        assert till.terminal.ledger.of("final")[0]["charged"] is False
    assert first == second
    assert (first[0]["status"], first[0]["raw_response"]["authorized_amount"]) == (OK, 5)


@pytest.mark.parametrize(
    ("search", "status", "body"),
    [
        ("status = 404", 404, '{"code":"HTTP_404","message":"Not Found"}'),
        ('status = 200\nbody = "<html>"\ncontent_type = "text/html"', 200, "<html>"),
        ('finds = "nothing"', 200, "[]"),
    ],
)
async def test_what_a_search_is_answered(stage: Stage, search: str, status: int, body: str) -> None:
    """A search for any other payment is answered as always."""
    async with stage.plays(f"[search]\n{search}\n" + APPROVED) as till:
        await till.charge(client_transaction_id=UUID)
        await till.terminal.ledger.wait_for("over")
        answer = await till.search(UUID)
        assert (answer.status_code, answer.text) == (status, body)
        assert till.terminal.ledger.of("search")[-1]["http_status"] == status
        other = (await till.charge(metadata={"scenario": "decline"})).json()["operation"]["client_transaction_id"]
        await till.terminal.ledger.wait_for("over", client_transaction_id=other)
        assert (await till.search(other)).json()[0]["status"] == NO
        assert (await till.search("7f3c0000-0000-4000-8000-000000000001")).json() == []


#: Members of one in that shape, and of a page with the number of its elements.
RAW = {"terminal": {"serialNumber": "SN-0001", "model": "SIM-1"}, "client_transaction_id": UUID}
PAGE = {"data": 1, "total": 1, "page": 1, "size": 10}


async def test_the_answer_to_a_search_can_have_another_shape(stage: Stage) -> None:
    for text, status in ((APPROVED, OK), (steps(A, C, Q, NO), NO), (steps(A, CANCELED), None)):
        for shape in ("events", "raw-response", "paged"):
            async with stage.plays(f'[search]\nshape = "{shape}"\n' + text) as till:
                await till.charge(client_transaction_id=UUID)
                await till.terminal.ledger.wait_for("over")
                answer = (await till.search(UUID)).json()
            if shape == "events":
                (event,) = answer
                assert event["status"] == (status or CANCELED)
            elif shape == "paged":
                assert {name: len(value) if name == "data" else value for name, value in answer.items()} == PAGE
                assert answer["data"][0]["status"] == (status or CANCELED)
            else:
                (element,) = answer
                raw = element.pop("rawResponse")
                assert element.items() >= (RAW | {"approved": status == OK}).items()
                assert not element.keys() & {"status", "previous_status", "raw_response"}
                assert raw.get("transaction_status") == status
                assert ("transaction_reference" in raw) == (status == OK)


async def test_what_is_found_can_have_other_members(stage: Stage) -> None:
    text = '[search]\nset = { "terminal.serial_number" = "SN-9999" }\nremove = ["raw_response"]\n'
    async with stage.plays(text + APPROVED) as till:
        await till.charge(client_transaction_id=UUID)
        await till.terminal.ledger.wait_for("over")
        (event,) = (await till.search(UUID)).json()
    assert event["terminal"] == {"serial_number": "SN-9999", "brand": "Simulated", "model": "SIM-1"}
    assert "raw_response" not in event


@pytest.mark.parametrize("fault", ["lost", "cut"])
async def test_the_answer_to_a_search_can_be_lost_for_a_time(stage: Stage, fault: str) -> None:
    async with stage.plays(f'[search]\nfault = "{fault}"\ntimes = 2\n' + APPROVED) as till:
        await till.charge(client_transaction_id=UUID)
        await till.terminal.ledger.wait_for("over")
        for _ in range(2):
            with pytest.raises(httpx2.TransportError):
                await till.search(UUID)
        assert [event["status"] for event in (await till.search(UUID)).json()] == [OK]
        told = [line["http_status"] for line in till.terminal.ledger.of("search")]
        assert told == [None if fault == "lost" else 200] * 2 + [200]


async def test_the_answer_to_a_search_can_be_slow(stage: Stage) -> None:
    """It tells what was so when the search came."""
    async with stage.plays("[search]\nafter = 20\n" + APPROVED, virtual=True) as till:
        await till.charge(client_transaction_id=UUID)
        await till.advance(3)
        call = asyncio.create_task(till.search(UUID))
        await till.terminal.ledger.wait_for("search")
        await till.advance(19)
        assert not call.done()
        await till.advance(2)
        assert [event["status"] for event in (await call).json()] == [Q]


async def test_of_an_id_that_was_taken_twice_the_newest_scenario_counts(till: Till) -> None:
    till.terminal.terminal.arm("search-empty")
    await till.charge(client_transaction_id=UUID)
    await till.terminal.ledger.wait_for("over")
    assert (await till.search(UUID)).json() == []
    await till.charge(client_transaction_id=UUID.upper(), metadata={"scenario": "wait-for-abort"})
    assert [event["status"] for event in (await till.search(UUID)).json()] == [OK]
