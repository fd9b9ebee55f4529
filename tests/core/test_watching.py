"""Times of the searches for an open transaction. posd concludes nothing from elapsed time, and only searches again."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posd.config.schema import ReconcileConfig
from posd.payments.lifecycle import Status
from posd.payments.model import AttentionCode, SearchResult
from posd.payments.schedule import (
    ABORTED_SECONDS,
    CLOSED_PAUSE_SECONDS,
    CLOSED_SECONDS,
    JITTER,
    LOST_PAUSE_SECONDS,
    MAX_BACKOFF_SECONDS,
    TransactionWatch,
    after_change,
    answered,
    closed,
    due,
    overdue,
    search_now,
    silence_limit,
    stopped,
)
from posd.records.model import Phase
from tests.rig.tables import every, there

LIMITS = ReconcileConfig(10.0, 300.0, 60.0, 60.0, probe_with_abort=False)
ACK, CARD, REQUESTED = Status.TERMINAL_ACKNOWLEDGED, Status.CARD_PRESENTED, Status.APPROVAL_REQUESTED
FOUND, NONE, NO_ANSWER = SearchResult


def watch(phase: Phase = Phase.ACTIVE, status: Status | None = None, **fields: Any) -> TransactionWatch:
    return TransactionWatch("SN-1", phase, status, quiet_since=fields.pop("quiet_since", 100.0), **fields)


@pytest.mark.parametrize(
    ("item", "seconds"),
    [
        (watch(Phase.IN_DOUBT), 10.0),
        (watch(Phase.IN_DOUBT, called_back=True), 10.0),
        (watch(Phase.IN_DOUBT, REQUESTED, called_back=True), 10.0),
        (watch(status=ACK), 10.0),
        (watch(status=ACK, called_back=True), 300.0),
        (watch(status=CARD, called_back=True), 300.0),
        (watch(status=REQUESTED, called_back=True), 60.0),
        (watch(status=None, called_back=True), 300.0),
    ],
)
def test_each_state_has_its_limit_of_silence(item: TransactionWatch, seconds: float) -> None:
    assert silence_limit(item, LIMITS) == seconds


def test_the_attention_for_a_silence_depends_on_an_earlier_event() -> None:
    assert watch().silence is AttentionCode.NO_CALLBACK
    assert watch(called_back=True).silence is AttentionCode.STALLED


@pytest.mark.parametrize(
    ("item", "at"),
    [
        (watch(Phase.STARTING), None),
        (watch(Phase.STARTING, search_at=105.0), 105.0),
        (watch(), 110.0),
        (watch(called_back=True), 400.0),
        (watch(search_at=105.0), 105.0),
        (watch(search_at=115.0), 110.0),
        (watch(told=True), None),
        (watch(told=True, search_at=115.0), 115.0),
    ],
)
def test_the_next_action_is_the_earlier_of_silence_and_search(item: TransactionWatch, at: float | None) -> None:
    assert due(item, LIMITS) == at


@pytest.mark.parametrize(
    ("item", "now", "over"),
    [
        (watch(), 109.9, False),
        (watch(), 110.0, True),
        (watch(Phase.IN_DOUBT), 110.0, True),
        (watch(called_back=True), 399.9, False),
        (watch(called_back=True), 400.0, True),
        (watch(told=True), 1000.0, False),
        (watch(Phase.STARTING), 1000.0, False),
    ],
)
def test_a_silence_is_reported_once_and_causes_a_search_at_once(item: TransactionWatch, now: float, over: bool) -> None:
    told = overdue(item, LIMITS, now)
    assert told == (msgspec.structs.replace(item, told=True, search_at=now) if over else None)
    assert told is None or overdue(told, LIMITS, now + 1000) is None


def test_a_search_requested_by_a_caller_is_due_at_once() -> None:
    assert search_now(watch(search_at=900.0, tries=3), 500.0) == watch(search_at=500.0, tries=3, wanted=True)


@pytest.mark.parametrize(
    ("phase", "status", "event", "called_back"),
    [
        (Phase.ACTIVE, ACK, True, True),
        (Phase.ACTIVE, CARD, True, True),
        (Phase.ACTIVE, CARD, False, False),
        (Phase.IN_DOUBT, ACK, False, False),
    ],
)
def test_a_change_of_state_ends_a_silence(phase: Phase, status: Status, event: bool, called_back: bool) -> None:
    old = watch(status=ACK, told=True, search_at=700.0, wanted=True, tries=4)
    fresh = after_change(old, phase, status, 500.0, event=event, gap=False)
    assert fresh == watch(phase, status, quiet_since=500.0, called_back=called_back)


def test_a_change_without_a_new_state_does_not_end_a_silence() -> None:
    old = watch(status=ACK, told=True, search_at=700.0, wanted=True, tries=4)
    assert after_change(old, Phase.ACTIVE, ACK, 500.0, event=False, gap=True) is old


def test_after_a_change_without_an_event_an_earlier_event_still_counts() -> None:
    assert after_change(watch(called_back=True), Phase.ACTIVE, CARD, 500.0, event=False, gap=False).called_back


def test_a_gap_causes_a_search_at_once() -> None:
    fresh = after_change(watch(status=ACK), Phase.ACTIVE, REQUESTED, 500.0, event=True, gap=True)
    assert (fresh.search_at, fresh.wanted) == (500.0, True)


@every("waiting", (watch(status=ACK, called_back=True), watch(status=CARD), watch(Phase.IN_DOUBT, tries=9)))
def test_after_an_abort_the_search_is_due_within_seconds_until_the_acquirer_is_asked(waiting: TransactionWatch) -> None:
    item = stopped(msgspec.structs.replace(waiting, aborting=True), LIMITS, 101.0)
    assert item.search_at == 101.0 + ABORTED_SECONDS
    assert stopped(msgspec.structs.replace(item, search_at=102.0), LIMITS, 101.0).search_at == 102.0
    assert stopped(item, msgspec.structs.replace(LIMITS, first_event_grace_seconds=1.0), 101.0).search_at == 102.0, (
        "the search is due no later than after a doubt"
    )
    assert (
        after_change(item, Phase.ACTIVE, CARD, 102.0, event=True, gap=False, aborting=True).search_at == item.search_at
    )
    pauses = []
    for result in (FOUND, NONE, NO_ANSWER):
        item = answered(item, result, LIMITS, 200.0, jitter=0.0)
        pauses.append((item.search_at or 0) - 200.0)
    assert pauses == [ABORTED_SECONDS, 2 * ABORTED_SECONDS, 4 * ABORTED_SECONDS]
    asked = after_change(item, Phase.ACTIVE, REQUESTED, 300.0, event=True, gap=False)
    assert (asked.search_at, asked.aborting) == (None, False)


@every("result", SearchResult)
@every(
    ("item", "until"),
    [
        (watch(), ()),
        (watch(wanted=True), (NO_ANSWER,)),  # one reply is enough
        (watch(told=True), (FOUND, NONE, NO_ANSWER)),  # the terminal still sends no event
        (watch(told=True, wanted=True), (FOUND, NONE, NO_ANSWER)),
        (watch(Phase.IN_DOUBT), (FOUND, NONE, NO_ANSWER)),  # the payment is still in doubt
        (watch(Phase.STARTING), ()),
        (watch(Phase.STARTING, wanted=True), (NO_ANSWER,)),
        (watch(Phase.FINAL, wanted=True), (NO_ANSWER,)),
    ],
)
def test_a_search_is_repeated_while_the_payment_is_unclear(
    item: TransactionWatch, until: tuple[SearchResult, ...], result: SearchResult
) -> None:
    asked = msgspec.structs.replace(item, search_at=500.0, tries=2)
    after = answered(asked, result, LIMITS, 501.0, 0.0)
    if result in until:
        assert (after.search_at, after.tries) == (541.0, 3)
        assert after.wanted is (item.wanted and result is NO_ANSWER)
    else:
        assert (after.search_at, after.wanted, after.tries) == (None, False, 0)


def test_the_pause_doubles_up_to_the_longest_and_has_jitter() -> None:
    item, pauses = watch(Phase.IN_DOUBT), []
    for _ in range(7):
        item = answered(item, NO_ANSWER, LIMITS, 1000.0, 0.0)
        assert item.search_at is not None
        pauses.append(item.search_at - 1000.0)
    assert pauses == [10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0]
    stretched = answered(watch(Phase.IN_DOUBT), NO_ANSWER, LIMITS, 1000.0, 1.0)
    assert stretched.search_at == 1000.0 + 10.0 * (1 + JITTER)


watches = st.builds(
    TransactionWatch,
    terminal=st.just("SN-1"),
    phase=st.sampled_from(Phase),
    status=st.sampled_from([None, *Status]),
    quiet_since=st.floats(0, 1e6),
    called_back=st.booleans(),
    aborting=st.booleans(),
    callback_lost=st.booleans(),
    told=st.booleans(),
    search_at=st.none() | st.floats(0, 1e6),
    wanted=st.booleans(),
    tries=st.integers(0, 5000),
)
all_limits = st.builds(
    ReconcileConfig,
    first_event_grace_seconds=st.floats(0.1, 86400),
    stall_seconds=st.floats(1, 86400),
    stall_after_request_seconds=st.floats(1, 86400),
    settle_seconds=st.floats(0, 86400),
    probe_with_abort=st.booleans(),
)


@given(watches, st.sampled_from(SearchResult), all_limits, st.floats(0, 1e6), st.floats(0, 1))
def test_the_next_search_is_neither_in_the_past_nor_too_late(
    item: TransactionWatch, result: SearchResult, limits: ReconcileConfig, now: float, jitter: float
) -> None:
    after = answered(item, result, limits, now, jitter)
    if after.search_at is not None:
        aborted = ABORTED_SECONDS if item.aborting else MAX_BACKOFF_SECONDS
        shortest = min(
            limits.first_event_grace_seconds, aborted, LOST_PAUSE_SECONDS if item.callback_lost else MAX_BACKOFF_SECONDS
        )
        assert shortest * 0.999 <= after.search_at - now <= MAX_BACKOFF_SECONDS * (1 + JITTER) * 1.001
    assert (after.phase, after.status, after.told) == (item.phase, item.status, item.told)


@given(watches, st.sampled_from(SearchResult), all_limits, st.floats(0, 1e6), st.floats(0, 1))
def test_in_doubt_and_in_silence_another_search_is_always_planned(
    item: TransactionWatch, result: SearchResult, limits: ReconcileConfig, now: float, jitter: float
) -> None:
    after = answered(item, result, limits, now, jitter)
    assert after.search_at is not None or not (item.phase is Phase.IN_DOUBT or item.told or item.callback_lost)
    assert after.search_at is not None or result is not NO_ANSWER or not item.wanted


@given(watches, all_limits, st.floats(0, 1e6))
def test_an_open_payment_always_has_a_planned_action(
    item: TransactionWatch, limits: ReconcileConfig, now: float
) -> None:
    """posd plans an action after any input, unless the only reply has arrived or the start is under way."""
    for after in (
        search_now(item, now),
        overdue(item, limits, now),
        after_change(item, Phase.IN_DOUBT, None, now, event=True, gap=False),
        after_change(item, Phase.ACTIVE, CARD, now, event=True, gap=True),
        answered(msgspec.structs.replace(item, phase=Phase.IN_DOUBT), NONE, limits, now, 0.5),
    ):
        assert after is None or due(after, limits) is not None


def test_a_resolved_payment_is_searched_for_in_growing_pauses_for_an_hour() -> None:
    item = closed("SN-1", 100.0)
    assert (item.phase, item.until, due(item, LIMITS)) == (Phase.FINAL, 100.0 + CLOSED_SECONDS, 100.0)
    pauses = []
    now = 100.0
    for result in (FOUND, NONE, NO_ANSWER, NONE, NONE, NONE):
        item = answered(item, result, LIMITS, now, jitter=0.0)
        at = there(due(item, LIMITS))
        pauses.append(at - now)
        now = at
    assert pauses == [CLOSED_PAUSE_SECONDS, 60.0, 120.0, 240.0, MAX_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS]
