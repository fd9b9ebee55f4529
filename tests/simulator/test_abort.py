"""Aborts, at every state and in races (spec 3.1, rule 2)."""

import asyncio
from collections import Counter
from random import Random

import httpx2
import pytest

from tests.simulator.conftest import Receiver, Stage, Till
from tests.simulator.own import CANCELED, OK, WAITS, A, C, Q, step, steps
from tests.simulator.test_scenarios import SEQUENCES


async def test_nothing_running_is_a_conflict(till: Till) -> None:
    answer = await till.abort()
    assert (answer.status_code, answer.json()["code"]) == (409, "NOTHING_RUNNING")


@pytest.mark.quick(6)
@pytest.mark.parametrize("scenario", SEQUENCES)
async def test_an_abort_before_the_first_event_still_lets_that_event_come(
    virtual_till: Till, receiver: Receiver, scenario: str
) -> None:
    await virtual_till.charge(metadata={"scenario": scenario}, events_webhook_url=receiver.url)
    assert (await virtual_till.abort()).status_code == 200
    await virtual_till.advance(3)
    events = [delivery.event for delivery in await receiver.wait_for(2)]
    assert [event["status"] for event in events] == ["TERMINAL_ACKNOWLEDGED", "TERMINAL_CANCELED"]
    assert events[1]["previous_status"] == "TERMINAL_ACKNOWLEDGED"
    assert not {"reading_type", "failure_reason", "raw_response"} & set(events[1])


async def until_told(till: Till, status: str) -> None:
    """Let time pass until a state was entered, and no further."""
    while not till.terminal.ledger.of("event", status=status):
        await till.advance(0.5)


async def test_an_abort_after_the_card_was_presented(virtual_till: Till, receiver: Receiver) -> None:
    await virtual_till.charge(metadata={"scenario": "approve-chip-pin"}, events_webhook_url=receiver.url)
    await until_told(virtual_till, "CARD_PRESENTED")
    assert (await virtual_till.abort()).status_code == 200
    await virtual_till.advance(3)
    last = (await receiver.wait_for(3))[-1].event
    assert (last["status"], last["previous_status"]) == ("TERMINAL_CANCELED", "CARD_PRESENTED")
    assert not {"reading_type", "failure_reason", "raw_response"} & set(last)
    assert last["operation"]["type"] == "CHARGE"


async def test_after_approval_was_requested_it_is_too_late(virtual_till: Till, receiver: Receiver) -> None:
    await virtual_till.charge(events_webhook_url=receiver.url)
    await until_told(virtual_till, "APPROVAL_REQUESTED")
    answer = await virtual_till.abort()
    assert (answer.status_code, answer.json()["code"]) == (409, "PAST_POINT_OF_NO_RETURN")
    await virtual_till.advance(12)
    await receiver.wait_for(4)
    assert receiver.statuses[-1] == "APPROVAL"


async def test_two_aborts_of_one_payment_cancel_it_once(virtual_till: Till) -> None:
    await virtual_till.charge(metadata={"scenario": "wait-for-abort"})
    answers = await asyncio.gather(virtual_till.abort(), virtual_till.abort())
    assert [answer.status_code for answer in answers] == [200, 200]
    await virtual_till.advance(3)
    assert (await virtual_till.abort()).status_code == 409
    assert len(virtual_till.terminal.ledger.of("final")) == 1


async def test_an_abort_that_races_the_approval_is_kept_or_refused_but_never_half(virtual_till: Till) -> None:
    """At each moment: 200 means canceled and not charged, 409 means that the payment took its course."""
    ends = {200: ("TERMINAL_CANCELED", False), 409: ("APPROVAL", True)}
    rng, seen = Random(5), Counter[str]()
    for _ in range(40):
        transaction = (await virtual_till.charge()).json()["operation"]["client_transaction_id"]
        await virtual_till.advance(rng.uniform(0, 20))
        abort = asyncio.create_task(virtual_till.abort())
        while not abort.done():  # time passes while the abort is on its way
            await virtual_till.advance(0.01)
        await virtual_till.advance(60)
        (final,) = virtual_till.terminal.ledger.of("final", client_transaction_id=transaction)
        assert (final["status"], final["charged"]) == ends[(await abort).status_code]
        seen[final["status"]] += 1
    assert set(seen) == {"TERMINAL_CANCELED", "APPROVAL"}, seen


EFFECTS: list[tuple[str, list[str], str]] = [
    ('effect = "cancels"', [A, CANCELED], "cancels"),
    ('effect = "ignored"', [A, C, Q, OK], "ignored"),
    ('effect = "raced"', [A, C, Q, OK], "raced"),
    ('status = 409\neffect = "ignored"', [A, C, Q, OK], "ignored"),
    ("status = 500", [A, CANCELED], "cancels"),
    ('fault = "lost"', [A, CANCELED], "cancels"),
    ('fault = "cut"\neffect = "ignored"', [A, C, Q, OK], "ignored"),
    ('body = "<html>"\ncontent_type = "text/html"', [A, CANCELED], "cancels"),
    ('set = { code = "DONE" }\nremove = ["message"]', [A, CANCELED], "cancels"),
]
#: What the caller gets: the status and the body, None where the connection breaks.
TOLD: list[tuple[int, bytes] | None] = [
    (200, b'{"code":"ABORTED","message":"the payment is being canceled"}'),
    (200, b'{"code":"ABORTED","message":"the payment is being canceled"}'),
    (200, b'{"code":"ABORTED","message":"the payment is being canceled"}'),
    (409, b'{"code":"HTTP_409","message":"Conflict"}'),
    (500, b'{"code":"HTTP_500","message":"Internal Server Error"}'),
    None,
    None,
    (200, b"<html>"),
    (200, b'{"code":"DONE"}'),
]


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("abort", "states", "effect", "told"), [(*row, told) for row, told in zip(EFFECTS, TOLD, strict=True)]
)
async def test_what_an_abort_is_answered_and_what_it_does(
    stage: Stage, receiver: Receiver, abort: str, states: list[str], effect: str, told: tuple[int, bytes] | None
) -> None:
    """The answer and the effect are two things: a terminal can say one and do the other."""
    text = f"[abort]\n{abort}\n" + step(A) + step(C, after="10") + steps(Q, OK)
    async with stage.plays(text, virtual=True) as till:
        await till.charge(events_webhook_url=receiver.url)
        await till.advance(1.5)
        if told is None:
            with pytest.raises(httpx2.TransportError):
                await till.abort()
        else:
            answer = await till.abort()
            assert (answer.status_code, answer.content) == told
        await till.advance(0.9)
        (line,) = till.terminal.ledger.of("abort")
        lost = "lost" in abort
        assert (line["http_status"], line["effect"]) == (None if lost else told[0] if told else 200, effect)
        if effect == "raced":  # the next state has come at once
            assert [event["status"] for event in till.terminal.ledger.of("event")] == [A, C]
        await till.advance(20)
        await receiver.wait_for(len(states))
    assert receiver.statuses == states


async def test_a_cancellation_can_be_late(stage: Stage, receiver: Receiver) -> None:
    """And no further abort makes it come sooner, or later."""
    async with stage.plays("[abort]\ncancels_after = [30, 31]\n" + WAITS, virtual=True) as till:
        await till.charge(events_webhook_url=receiver.url)
        await till.advance(1.5)
        for _ in range(2):
            assert (await till.abort()).status_code == 200
            await till.advance(14)
        assert till.terminal.ledger.of("final") == []
        await till.advance(4)
        assert [line["status"] for line in till.terminal.ledger.of("final")] == [CANCELED]


async def test_an_answer_to_an_abort_can_be_slow(stage: Stage) -> None:
    async with stage.plays("[abort]\nafter = 5\n" + WAITS, virtual=True) as till:
        await till.charge()
        await till.advance(1.5)
        call = asyncio.create_task(till.abort())
        await till.terminal.ledger.wait_for("abort")
        await till.advance(4.9)
        assert not call.done()
        assert len(till.terminal.ledger.of("final")) == 1
        await till.advance(0.2)
        assert (await call).status_code == 200


async def test_only_so_many_aborts_are_answered_so(stage: Stage) -> None:
    async with stage.plays('[abort]\nstatus = 500\neffect = "ignored"\ntimes = 2\n' + WAITS, virtual=True) as till:
        await till.charge()
        await till.advance(1.5)
        assert [(await till.abort()).status_code for _ in range(3)] == [500, 500, 200]
        await till.advance(1)
        assert [line["status"] for line in till.terminal.ledger.of("final")] == [CANCELED]


async def test_at_the_point_of_no_return_an_abort_has_no_effect_however_it_is_answered(stage: Stage) -> None:
    text = '[abort]\nstatus = 200\nset = { code = "ABORTED" }\n' + steps(A, C, Q) + step(OK, after="60")
    async with stage.plays(text, virtual=True) as till:
        await till.charge()
        await till.advance(5)
        answer = await till.abort()
        assert (answer.status_code, answer.json()["code"]) == (200, "ABORTED")
        await till.advance(60)
        assert [line["status"] for line in till.terminal.ledger.of("final")] == [OK]
        assert till.terminal.ledger.of("abort")[0]["effect"] is None


async def test_an_abort_that_is_raced_before_the_first_state_lets_it_come_at_once(stage: Stage) -> None:
    async with stage.plays('[abort]\neffect = "raced"\n' + step(A, after="50"), virtual=True) as till:
        await till.charge()
        await till.abort()
        await till.advance(0)
        assert till.terminal.ledger.of("forgotten")[0]["status"] == A


async def test_the_card_too_comes_at_once_where_the_abort_was_there_before_the_first_state(stage: Stage) -> None:
    """A till may abort as soon as its request was answered; the card that is tapped in that moment is still tapped."""
    text = '[abort]\neffect = "raced"\n' + step(A, after="50") + step(C, after='"for-ever"') + steps(Q, OK)
    async with stage.plays(text, virtual=True) as till:
        await till.charge()
        await till.abort()
        await till.advance(20)
        assert [line["status"] for line in till.terminal.ledger.of("final")] == [OK]
