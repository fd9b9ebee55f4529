"""Aborts, at every state and in races (spec 3.1, rule 2)."""

import asyncio
from collections import Counter
from random import Random

import pytest

from tests.simulator.conftest import Receiver, Stage, Till
from tests.simulator.own import CANCELED, OK, WAITS, A, C, Q

#: When an abort comes: the last state that was entered. What it is answered, and the states that are told in all.
MOMENTS = [
    (None, 200, "ABORTED", [A, CANCELED]),  # the first state still comes
    (A, 200, "ABORTED", [A, CANCELED]),
    (C, 200, "ABORTED", [A, C, CANCELED]),
    (Q, 409, "PAST_POINT_OF_NO_RETURN", [A, C, Q, OK]),
    (OK, 409, "NOTHING_RUNNING", [A, C, Q, OK]),
]


@pytest.mark.parametrize(("entered", "status", "code", "states"), MOMENTS)
async def test_an_abort_in_each_state(
    virtual_till: Till, receiver: Receiver, entered: str | None, status: int, code: str, states: list[str]
) -> None:
    await virtual_till.charge(events_webhook_url=receiver.url)
    while entered and not virtual_till.terminal.ledger.of("event", status=entered):
        await virtual_till.advance(0.5)
    answers = await asyncio.gather(virtual_till.abort(), virtual_till.abort())
    assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [(status, code)] * 2
    await virtual_till.advance(60)
    assert receiver.statuses == states
    last = receiver.deliveries[-1].event
    assert last["previous_status"] == states[-2]
    assert states[-1] == OK or not {"reading_type", "failure_reason", "raw_response"} & set(last)
    assert len(virtual_till.terminal.ledger.of("final")) == 1


async def test_an_abort_that_races_the_approval_is_kept_or_refused_but_never_half(virtual_till: Till) -> None:
    """At each moment: 200 means canceled and not charged, 409 means that the payment took its course."""
    ends = {200: (CANCELED, False), 409: (OK, True)}
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
    assert set(seen) == {CANCELED, OK}, seen


async def test_a_cancellation_can_be_late(stage: Stage) -> None:
    """And no further abort makes it come sooner, or later."""
    async with stage.plays("[abort]\ncancels_after = [30, 31]\n" + WAITS, virtual=True) as till:
        await till.charge()
        await till.advance(1.5)
        for _ in range(2):
            assert (await till.abort()).status_code == 200
            await till.advance(14)
        assert till.terminal.ledger.of("final") == []
        await till.advance(4)
        assert [line["status"] for line in till.terminal.ledger.of("final")] == [CANCELED]
