"""Times of polls for print jobs. Polls are frequent at first, then rare.

posd does not poll after the end, and polls an unreachable terminal more and more rarely.
"""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from posd.config.schema import PrintConfig
from posd.printing import schedule
from posd.printing.schedule import CAUSED_PAUSE_SECONDS, JITTER, SLOW

LIMITS = PrintConfig(2, 30, 300, "document", "text")
JITTERS = st.floats(0, 1)


def pauses(plan: schedule.PollPlan, count: int) -> list[float]:
    """Return the pauses between polls of a job that does not end."""
    found, now = [], 0.0
    for _ in range(count):
        found.append(plan.poll_at - now)
        now = plan.poll_at
        plan = schedule.answered(plan, LIMITS, now, 0)
    return found


def test_polls_start_soon_and_back_off() -> None:
    assert pauses(schedule.begin(True, LIMITS, 0), 8) == [2, 4, 8, 16, 30, 30, 30, 30]


def test_a_stuck_job_is_polled_slowly_and_without_end() -> None:
    assert pauses(schedule.begin(True, LIMITS, 0), 40)[-1] == 30 * SLOW
    assert pauses(schedule.begin(False, LIMITS, 0), 40)[-1] == 30 * SLOW
    assert schedule.answered(schedule.begin(True, LIMITS, 0), LIMITS, 300, 0).poll_at == 300 + 30 * SLOW


@given(st.integers(0, 10_000), JITTERS, st.floats(0, 1e6))
def test_a_pause_is_bounded_for_any_number_of_polls(tries: int, jitter: float, now: float) -> None:
    plan = msgspec.structs.replace(schedule.begin(True, LIMITS, now), tries=tries)
    shortest, pause = (schedule.answered(plan, LIMITS, now, share).poll_at - now for share in (0, jitter))
    assert LIMITS.poll_first_seconds <= shortest + 1e-6 <= pause + 2e-6
    assert pause <= LIMITS.poll_max_seconds * (1 + JITTER) + 1e-6


def test_a_job_that_takes_too_long_is_reported_once() -> None:
    plan = schedule.begin(True, LIMITS, 10)
    assert schedule.stuck_due(plan) == 310
    assert schedule.stuck_due(schedule.told(plan)) is None
    assert schedule.stuck_due(schedule.tell_later(schedule.told(plan), LIMITS, 400)) == 402
    assert schedule.stuck_due(schedule.begin(False, LIMITS, 10)) is None


def test_acceptance_restarts_the_schedule_once() -> None:
    doubtful = schedule.answered(schedule.begin(False, LIMITS, 0), LIMITS, 5, 0)
    plan = schedule.accepted(doubtful, LIMITS, 100)
    assert (plan.poll_at, plan.stuck_at, plan.accepted, plan.tries, plan.asked_at) == (102, 400, True, 0, 5)
    assert schedule.accepted(plan, LIMITS, 200) is plan


def test_after_a_restart_a_job_is_polled_at_once_and_its_age_continues() -> None:
    plan = schedule.adopt(True, 100, False, LIMITS, 7)
    assert (plan.poll_at, plan.stuck_at) == (7, 207)
    assert schedule.adopt(True, 1e9, False, LIMITS, 7).stuck_at == 7
    assert schedule.adopt(True, -1e9, False, LIMITS, 7).stuck_at == 307, "a clock that was set back proves nothing"
    assert schedule.stuck_due(schedule.adopt(True, 1e9, True, LIMITS, 7)) is None


def test_after_an_unusable_webhook_a_job_is_polled_soon_and_with_a_pause() -> None:
    plan = schedule.begin(True, LIMITS, 0)
    assert schedule.soon(plan, 1).poll_at == 1
    asked = schedule.answered(plan, LIMITS, 10, 0)
    assert schedule.soon(asked, 10.5).poll_at == 10 + CAUSED_PAUSE_SECONDS
    assert schedule.soon(asked, 13).poll_at == 13
    assert schedule.soon(asked, 99).poll_at == asked.poll_at, "the poll is due without the webhook"


def test_a_poll_requested_during_a_poll_is_made_afterwards() -> None:
    plan = schedule.begin(True, LIMITS, 0)
    asking = schedule.asking(plan, 2)
    assert (asking.poll_at, asking.asked_at) == (schedule.NEVER, 2)
    assert schedule.soon(asking, 2.5).poll_at == 2 + CAUSED_PAUSE_SECONDS
    assert schedule.asked_in_vain(asking, plan.poll_at).poll_at == plan.poll_at
    assert schedule.answered(asking, LIMITS, 3, 0).poll_at == 7


def test_an_unreachable_terminal_is_polled_more_and_more_rarely() -> None:
    found = [schedule.not_reached(failures, LIMITS, 5, 0) - 5 for failures in range(7)]
    assert found == [2, 4, 8, 16, 30, 30, 30]


@given(st.integers(0, 10_000), JITTERS)
def test_the_pause_for_an_unreachable_terminal_is_bounded(tries: int, jitter: float) -> None:
    shortest, until = (schedule.not_reached(tries, LIMITS, 0, share) for share in (0, jitter))
    assert LIMITS.poll_first_seconds <= shortest <= until <= LIMITS.poll_max_seconds * (1 + JITTER)
