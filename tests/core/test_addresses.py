"""A change of this machine's address during a payment.

The payment gets an attention, and posd searches for it more often. The payment ends as usual.
"""

from typing import Any

import msgspec
import pytest

from posd.config.schema import ReconcileConfig
from posd.payments.lifecycle import Status
from posd.payments.model import AttentionCode, SearchResult, Transaction
from posd.payments.schedule import (
    LOST_PAUSE_SECONDS,
    LOST_TRIES,
    MAX_BACKOFF_SECONDS,
    TransactionWatch,
    after_change,
    answered,
    due,
    overdue,
    silence_limit,
)
from posd.payments.transitions import RepeatedEvent, address_back, address_lost, advance, dismissed, doubt
from posd.records.model import Phase
from tests.core.inputs import content
from tests.core.scenarios import ACK, CARD, NOW, SCENARIOS, Path, event_bodies, read, starting
from tests.rig.tables import there

OLD = "192.168.7.20"
LIMITS = ReconcileConfig(10.0, 300.0, 60.0, 60.0, probe_with_abort=False)
ACKNOWLEDGED, CARD_PRESENTED = Status.TERMINAL_ACKNOWLEDGED, Status.CARD_PRESENTED


def running() -> Transaction:
    """Return a payment that waits for the card."""
    return advance(starting(callback_host=OLD), read(content(ACK)), seen=RepeatedEvent.NEW, now=NOW)[0]


def codes(transaction: Transaction) -> set[str]:
    return {item.code for item in transaction.attention}


def test_a_lost_address_is_reported_with_its_meaning_and_the_remedy() -> None:
    lost = address_lost(running(), OLD, NOW)
    attention = there(lost.attention_of(AttentionCode.ADDRESS_CHANGED))
    assert attention.detail == (
        "terminal SN-TEST sends the events of this payment to 192.168.7.20. This machine has lost that address, so "
        "the events may not arrive. posd asks the terminal by itself. If the terminal does not know the payment any "
        f"more: posd show {lost.client_transaction_id}"
    )
    assert (lost.callback_lost, lost.phase, lost.outcome) == (True, Phase.ACTIVE, None)


def test_the_return_of_the_address_clears_the_attention() -> None:
    assert address_back(address_lost(running(), OLD, NOW), NOW) == running()


def test_acknowledging_the_attention_does_not_end_its_cause() -> None:
    dismissed_one = dismissed(address_lost(running(), OLD, NOW), AttentionCode.ADDRESS_CHANGED, NOW)
    assert (dismissed_one.callback_lost, dismissed_one.attention) == (True, ())


def test_one_arrived_event_does_not_prove_that_the_next_will_arrive() -> None:
    lost = address_lost(running(), OLD, NOW)
    after, _ = advance(lost, read(content(CARD, ACK)), seen=RepeatedEvent.NEW, now=NOW)
    assert (after.status, after.callback_lost, codes(after)) == (CARD_PRESENTED, True, {"address_changed"})


@pytest.mark.parametrize("path", SCENARIOS.values(), ids=SCENARIOS)
def test_the_payment_ends_as_usual_and_its_end_closes_the_attention(path: Path) -> None:
    for before in range(len(path)):
        lived, undisturbed = doubt(starting(), "reset", NOW), doubt(starting(), "reset", NOW)
        for number, body in enumerate(event_bodies(path)):
            if number == before:
                lived = address_lost(lived, OLD, NOW)
            lived, _ = advance(lived, read(body), seen=RepeatedEvent.NEW, now=NOW)
            undisturbed, _ = advance(undisturbed, read(body), seen=RepeatedEvent.NEW, now=NOW)
        assert (lived.phase, lived.attention) == (Phase.FINAL, undisturbed.attention)
        assert lived.outcome is not None
        assert undisturbed.outcome is not None
        assert (lived.outcome.result, lived.outcome.status) == (undisturbed.outcome.result, undisturbed.outcome.status)


# Times of the searches.


def callback_lost(phase: Phase = Phase.ACTIVE, status: Status | None = ACKNOWLEDGED, **fields: Any) -> TransactionWatch:
    return TransactionWatch("SN-1", phase, status, quiet_since=100.0, callback_lost=True, **fields)


@pytest.mark.parametrize("result", SearchResult)
@pytest.mark.parametrize("phase", [Phase.ACTIVE, Phase.IN_DOUBT])
def test_searches_are_frequent_enough_for_a_waiting_cashier_after_any_reply(phase: Phase, result: SearchResult) -> None:
    item, pauses = callback_lost(phase), []
    for _ in range(LOST_TRIES + 2):
        item = answered(item, result, LIMITS, 1000.0, 0.0)
        assert item.search_at is not None
        pauses.append(item.search_at - 1000.0)
    assert pauses[:3] == [10.0, 20.0, LOST_PAUSE_SECONDS]
    assert set(pauses[2:-2]) == {LOST_PAUSE_SECONDS}
    assert pauses[-2:] == [MAX_BACKOFF_SECONDS] * 2


def test_without_callbacks_a_silence_counts_as_stalled_after_the_usual_limit() -> None:
    assert (callback_lost().silence, silence_limit(callback_lost(), LIMITS)) == (AttentionCode.STALLED, 300.0)
    assert silence_limit(callback_lost(Phase.IN_DOUBT, None), LIMITS) == LIMITS.first_event_grace_seconds
    assert overdue(callback_lost(), LIMITS, 399.0) is None
    assert overdue(callback_lost(), LIMITS, 400.0) is not None


@pytest.mark.parametrize("event", [True, False])
def test_a_search_result_or_an_event_does_not_change_the_planned_pauses(event: bool) -> None:
    planned = callback_lost(search_at=130.0, wanted=True, tries=5)
    after = after_change(planned, Phase.ACTIVE, CARD_PRESENTED, 120.0, event=event, gap=False)
    assert (after.search_at, after.wanted, after.tries, after.callback_lost) == (130.0, True, 0, True)
    under_way = msgspec.structs.replace(planned, search_at=None, wanted=False)
    assert after_change(under_way, Phase.ACTIVE, CARD_PRESENTED, 120.0, event=event, gap=False).search_at is None


def test_an_event_cancels_a_search_that_an_operator_requested() -> None:
    calm = msgspec.structs.replace(callback_lost(search_at=130.0, wanted=True), callback_lost=False)
    after = after_change(calm, Phase.ACTIVE, CARD_PRESENTED, 120.0, event=True, gap=False)
    assert (after.search_at, after.wanted) == (None, False)
    waiting = callback_lost(search_at=130.0)
    assert not after_change(waiting, Phase.ACTIVE, CARD_PRESENTED, 120.0, event=True, gap=False).wanted


def test_searches_begin_when_the_start_has_ended() -> None:
    beginning = callback_lost(Phase.STARTING, None)
    calm = msgspec.structs.replace(beginning, callback_lost=False)
    assert after_change(calm, Phase.ACTIVE, ACKNOWLEDGED, 120.0, event=False, gap=False).search_at is None
    assert due(beginning, LIMITS) is None
    assert due(after_change(beginning, Phase.ACTIVE, ACKNOWLEDGED, 120.0, event=False, gap=False), LIMITS) == 120.0


def test_after_the_return_of_the_address_one_reply_ends_the_searches() -> None:
    item = TransactionWatch("SN-1", Phase.ACTIVE, ACKNOWLEDGED, quiet_since=100.0, wanted=True)
    assert answered(item, SearchResult.FOUND, LIMITS, 120.0, 0.0).search_at is None
