"""Times of posd's own probes of a terminal. Probes without a reason are rare."""

import math

import pytest

from posd.terminals.fleet import (
    CONTESTED_SECONDS,
    LOST_LOOKS,
    LOST_SECONDS,
    MAX_LOST_SECONDS,
    OPEN_SECONDS,
    SPACING_SECONDS,
    TOGETHER_SECONDS,
    ProbeState,
)

QUIET = 600.0


def test_without_a_reason_a_terminal_is_probed_rarely_or_never() -> None:
    assert ProbeState(100.0, QUIET).due(busy=False) == 100.0 + QUIET
    assert ProbeState(100.0, 0).due(busy=False) is None


@pytest.mark.parametrize("last", [100.0, 101.0, 119.999, 1234.5])
def test_routine_probes_are_made_together_before_their_pauses_end(last: float) -> None:
    at = ProbeState(last, QUIET).due(busy=False)
    assert at is not None
    assert at % TOGETHER_SECONDS == 0
    assert last + QUIET - TOGETHER_SECONDS < at <= last + QUIET


def test_a_probe_with_a_short_pause_is_not_moved_to_the_shared_time() -> None:
    assert ProbeState(101.0, 60.0).due(busy=False) == 161.0


def test_a_probe_with_a_reason_waits_for_no_other_probe() -> None:
    assert ProbeState(101.0, QUIET).due(busy=True) == 101.0 + OPEN_SECONDS
    assert ProbeState(101.0, QUIET).due(busy=False, contested=True) == 101.0 + CONTESTED_SECONDS
    assert ProbeState(101.0, QUIET, wanted=True).due(busy=False) == 101.0 + SPACING_SECONDS


def test_a_requested_probe_is_due_after_the_shortest_pause() -> None:
    state = ProbeState(100.0, 0, wanted=True)
    assert state.due(busy=False) == 100.0 + SPACING_SECONDS
    state.begin(200.0, 0)
    assert state.due(busy=False) is None
    state.wanted, state.every = True, 1.0
    assert state.due(busy=True) == 200.0 + SPACING_SECONDS


def test_a_probe_requested_during_a_call_stays_requested() -> None:
    state = ProbeState(100.0, 0, wanted=True)
    state.record(200.0, reached=True)
    assert state.wanted


def test_silence_during_an_open_payment_causes_a_probe() -> None:
    assert ProbeState(100.0, QUIET).due(busy=True) == 100.0 + OPEN_SECONDS


@pytest.mark.parametrize("busy", [False, True])
def test_a_lost_terminal_is_probed_more_and_more_rarely(busy: bool) -> None:
    lost, pauses = ProbeState(0.0, 0), []
    for _ in range(LOST_LOOKS + 3):
        lost.record(0.0, reached=False)
        pauses.append(lost.due(busy=busy))
    most = OPEN_SECONDS if busy else MAX_LOST_SECONDS
    expected: list[float | None] = [min(LOST_SECONDS * 2.0**number, most) for number in range(LOST_LOOKS)]
    assert pauses == expected + ([most] * 3 if busy else [None] * 3)
    lost.record(0.0, reached=True)
    assert lost.due(busy=False) is None


def test_even_the_smallest_configured_pause_causes_no_flood() -> None:
    assert ProbeState(0.0, 0.001).due(busy=False) == SPACING_SECONDS


def test_a_terminal_lost_long_ago_causes_no_overflow() -> None:
    due = ProbeState(0.0, 0, failures=10**9).due(busy=True)
    assert due is not None
    assert math.isfinite(due)
