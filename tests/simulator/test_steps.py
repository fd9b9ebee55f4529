"""The steps of scenarios of one's own: what is told of a state, how it gets there, and what is true (spec 3.1, 6)."""

import json
from typing import Any

import pytest

from posd.simulator.operations import BY_NAME
from tests.simulator.conftest import Receiver, Stage, Till, request
from tests.simulator.own import APPROVED, CANCELED, NO, OK, REJECTED, WAITS, A, C, Q, step, steps

FAILED = '{ type = "ACQUIRER", code = "51", message = "Insufficient funds" }'


async def paid(stage: Stage, text: str, **changes: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Play a payment, return the events as they came, and the ledger's finals."""
    async with stage.plays(text, **changes) as till:
        events = await stage.told(till)
        return events, till.terminal.ledger.of("final")


async def test_reading_type_and_failure_are_new_from_their_step_on(stage: Stage) -> None:
    chip = step(C, reading_type='"CHIP"')
    stripe = step(C, reading_type='"MAGNETIC_STRIPE"')
    events, _ = await paid(stage, step(A) + chip + step(C) + stripe + step(Q) + step(NO, failure=FAILED))
    assert [event.get("reading_type") for event in events] == [None, "CHIP", "CHIP", *["MAGNETIC_STRIPE"] * 3]
    assert events[-1]["failure_reason"] == {"type": "ACQUIRER", "code": "51", "message": "Insufficient funds"}


async def test_what_is_told_can_differ_from_what_is_true(stage: Stage) -> None:
    """The ledger and a search have the payment as it was."""
    other = '{ "terminal.serial_number" = "SN-9999", status = "SETTLED", "raw_response.authorized_amount" = 0.5 }'
    end = step(OK, set=other, remove='["merchant_id", "raw_response.ticket_number"]')
    async with stage.plays(steps(A, C, Q) + end) as till:
        *_, told = await stage.told(till)
        (final,) = till.terminal.ledger.of("final")
        (true,) = (await till.search(told["client_transaction_id"])).json()
    assert (told["terminal"]["serial_number"], told["status"]) == ("SN-9999", "SETTLED")
    assert str(told["raw_response"].pop("authorized_amount")) == "0.5"
    assert "merchant_id" not in told
    assert (true["terminal"]["serial_number"], true["status"], true["merchant_id"]) == ("SN-0001", OK, "MERCHANT-0001")
    assert (final["charged"], final["amount"], true["raw_response"]["authorized_amount"]) == (True, 5, 5)
    assert final["ticket_number"] == true["raw_response"].pop("ticket_number")
    assert set(true["raw_response"]) - set(told["raw_response"]) == {"authorized_amount"}
    assert true["event_id"] == told["event_id"]


async def test_the_acquirer_can_approve_another_amount_than_was_asked_for(stage: Stage) -> None:
    """That is the truth: the ledger, the event and a search have it."""
    async with stage.plays(steps(A, C, Q) + step(OK, authorized_amount='"2.50"')) as till:
        *_, told = await stage.told(till)
        (final,) = till.terminal.ledger.of("final")
        (found,) = (await till.search(told["client_transaction_id"])).json()
    assert (final["charged"], str(final["amount"])) == (True, "2.50")
    assert str(told["raw_response"]["authorized_amount"]) == "2.50"
    assert found["raw_response"]["authorized_amount"] == 2.5


async def test_a_state_that_is_not_published(stage: Stage) -> None:
    events, finals = await paid(stage, step(A) + step("PIN_REQUESTED", reading_type='"CHIP"') + steps(Q, OK))
    assert [(event["status"], event.get("previous_status")) for event in events] == [
        (A, None),
        ("PIN_REQUESTED", A),
        (Q, "PIN_REQUESTED"),
        (OK, Q),
    ]
    assert events[1]["reading_type"] == "CHIP"
    assert len(finals) == 1


async def test_an_event_can_bear_the_id_of_the_one_before(stage: Stage) -> None:
    events, _ = await paid(stage, steps(A, C) + step(Q, same_event_id="true") + step(OK))
    assert events[1]["event_id"] == events[2]["event_id"]
    assert (events[1]["status"], events[2]["status"]) == (C, Q)
    assert len({event["event_id"] for event in events}) == 3


async def test_the_event_before_can_be_told_once_more_as_a_new_one(stage: Stage) -> None:
    events, finals = await paid(stage, APPROVED + step(OK, restates="true"))
    *_, first, second = events
    assert first["event_id"] != second["event_id"]
    same = {name: value for name, value in first.items() if name not in ("event_id", "occurred_at")}
    assert {name: value for name, value in second.items() if name not in ("event_id", "occurred_at")} == same
    assert [final["event_id"] for final in finals] == [first["event_id"]]


async def test_an_event_can_be_left_unsaid(stage: Stage) -> None:
    events, finals = await paid(stage, step(A) + step(C, deliver="{ never = true }") + step(Q) + step(OK))
    assert [(event["status"], event.get("previous_status")) for event in events] == [(A, None), (Q, C), (OK, Q)]
    assert len(finals) == 1


async def test_something_else_can_be_sent_in_place_of_an_event(stage: Stage) -> None:
    _, finals = await paid(stage, steps(A, C, Q) + step(OK, deliver="{ raw = '\"<oops>\"' }"))
    assert stage.receiver.deliveries[-1].raw == b'"<oops>"'
    assert finals[0]["charged"] is True


@pytest.mark.slow
async def test_a_late_event_is_overtaken(stage: Stage) -> None:
    async with stage.plays(steps(A) + step(C, deliver="{ late = 500 }") + steps(Q, OK)) as till:
        events = await stage.told(till)
    assert [event["status"] for event in events] == [A, Q, OK, C]


@pytest.mark.slow
async def test_an_event_comes_again_as_often_as_it_is_said(stage: Stage, receiver: Receiver) -> None:
    """The copies are the same, byte for byte, and keep no order."""
    async with stage.plays(step(A) + step(C, deliver="{ again = [300, 600] }") + steps(Q, OK)) as till:
        await till.charge(events_webhook_url=receiver.url)
        await receiver.wait_for(6)
        await till.terminal.ledger.wait_for("attempt", again=True)
    assert receiver.statuses == [A, C, Q, OK, C, C]
    assert len({delivery.raw for delivery in receiver.deliveries if delivery.event["status"] == C}) == 1


async def test_a_terminal_can_distrust_the_receiver(stage: Stage) -> None:
    """Its events wait for it to trust again, until they are given up; what comes after a distrusted one waits too."""
    distrusted = step(A, deliver="{ distrusted = true }")
    async with stage.plays(distrusted + steps(C, Q, OK)) as till:
        await till.charge(events_webhook_url=stage.receiver.url)
        failed = await till.terminal.ledger.wait_for("attempt", status=A)
        await till.terminal.ledger.wait_for("over")
        assert failed["result"] == "tls_failure"
        assert stage.receiver.deliveries == []


async def test_two_finals_are_two_ends(stage: Stage) -> None:
    """An approval after a cancellation is money taken; a search tells the newest."""
    async with stage.plays(steps(A, C, CANCELED, OK)) as till:
        events = await stage.told(till)
        finals = till.terminal.ledger.of("final")
        (found,) = (await till.search(events[0]["client_transaction_id"])).json()
    assert [event["status"] for event in events] == [A, C, CANCELED, OK]
    assert [(final["status"], final["charged"]) for final in finals] == [(CANCELED, False), (OK, True)]
    assert found["event_id"] == finals[1]["event_id"]


async def test_two_approvals_are_two_charges(stage: Stage) -> None:
    _, finals = await paid(stage, APPROVED + step(OK))
    assert [final["charged"] for final in finals] == [True, True]
    assert len({final["transaction_reference"] for final in finals}) == 2


async def test_what_follows_a_final_does_not_hold_the_terminal(stage: Stage) -> None:
    """The next payment runs to its end before the second final of the first one comes."""
    text = steps(A, CANCELED) + step(OK, after="60")
    async with stage.plays(text, virtual=True) as till:
        first = (await till.charge()).json()["operation"]["client_transaction_id"]
        await till.advance(3)
        assert till.terminal.terminal.running is None
        assert (await till.abort()).json()["code"] == "NOTHING_RUNNING"
        second = (await till.charge(metadata={"scenario": "cancel-by-cardholder"})).json()["operation"]
        await till.advance(30)
        await till.terminal.ledger.wait_for("final", client_transaction_id=second["client_transaction_id"])
        assert len(till.terminal.ledger.of("final", client_transaction_id=first)) == 1
        await till.advance(60)
        assert len(till.terminal.ledger.of("final", client_transaction_id=first)) == 2


async def test_a_payment_whose_steps_come_to_no_end_is_forgotten(stage: Stage) -> None:
    async with stage.plays(steps(A, C)) as till:
        assert [event["status"] for event in await stage.told(till)] == [A, C]
        (line,) = till.terminal.ledger.of("forgotten")
        assert line["status"] == C
        assert (await till.charge()).status_code == 200  # the terminal is free


async def test_a_scenario_without_steps_is_a_payment_without_events(stage: Stage) -> None:
    async with stage.plays("steps = []\n") as till:
        assert await stage.told(till) == []
        assert (await till.search((await till.charge()).json()["operation"]["client_transaction_id"])).json() == []


def running(till: Till) -> tuple[str, str, str | None] | None:
    payment = till.terminal.terminal.running
    return None if payment is None else (payment.start.operation.name, payment.name, payment.status)


async def test_times_are_the_terminals_and_the_payment_that_runs_can_be_looked_at(stage: Stage) -> None:
    text = step(A, after="2") + step(C, after="[3, 4]") + step(REJECTED, after='"limit"', failure=FAILED)
    async with stage.plays(text, virtual=True, wait_seconds=50) as till:
        await till.charge()
        for seconds, expected in ((1.9, None), (0.2, A), (2.8, A), (1.1, C), (48.9, C)):
            await till.advance(seconds)
            assert running(till) == ("charge", "own", expected)
        await till.advance(1.1)
        assert running(till) is None
        assert till.terminal.ledger.of("final")[0]["status"] == REJECTED


@pytest.mark.parametrize("status", [None, A])
async def test_a_terminal_that_is_switched_off_forgets_and_can_go_on(stage: Stage, status: str | None) -> None:
    async with stage.plays(WAITS) as till:
        await till.charge(events_webhook_url=stage.receiver.url)
        if status is not None:
            await till.terminal.ledger.wait_for("event", status=status)
        await till.terminal.power_off()
        (line,) = till.terminal.ledger.of("forgotten")
        assert line["status"] in (status, A)  # the first state may have come in between
        assert len(till.terminal.ledger.of("over")) == 1
        await till.terminal.power_on()
        assert (await till.charge()).status_code == 200


async def test_a_payment_that_is_forgotten_before_it_began_leaves_the_terminal_free(stage: Stage) -> None:
    async with stage.plays(APPROVED) as till:
        terminal = till.terminal.terminal
        assert terminal.start(json.dumps(request()).encode(), BY_NAME["charge"], "local").status == 200
        await terminal.stop()
        assert [line["kind"] for line in till.terminal.ledger] == ["start", "forgotten", "over"]
        assert terminal.running is None
        assert (await till.charge()).status_code == 200
