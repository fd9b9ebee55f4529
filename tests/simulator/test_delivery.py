"""The delivery policy against the spec's tables (6.2 and 8), without a network."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posd.simulator import delivery
from posd.simulator.delivery import Delivered, Drop, Lost, Retry, Verdict
from tests.support.tables import every

RETRIED = {408, 429, 500, 502, 503, 504}


@every("status", range(100, 600))
def test_every_status_has_the_verdict_of_the_spec(status: int) -> None:
    if 200 <= status <= 299:
        expected = Verdict.DELIVERED
    elif status in RETRIED:
        expected = Verdict.RETRY
    else:
        expected = Verdict.PERMANENT
    assert delivery.judge(status) is expected


def test_the_table_names_exactly_what_the_spec_names() -> None:
    permanent = {400, 401, 403, 404, 409, 422}
    assert {code for code, verdict in delivery.VERDICTS.items() if verdict is Verdict.RETRY} == RETRIED
    assert {code for code, verdict in delivery.VERDICTS.items() if verdict is Verdict.PERMANENT} == permanent
    assert set(delivery.VERDICTS) == RETRIED | permanent


@pytest.mark.parametrize("lost", list(Lost))
def test_a_lost_attempt_is_retried(lost: Lost) -> None:
    assert delivery.judge(lost) is Verdict.RETRY


@pytest.mark.parametrize(
    ("attempt", "seconds"), [(0, 2), (1, 4), (2, 8), (3, 16), (4, 32), (5, 60), (6, 60), (7, 60), (8, 60)]
)
def test_backoff_doubles_up_to_a_minute_with_a_jitter_of_two_seconds(attempt: int, seconds: float) -> None:
    assert delivery.backoff(attempt, 0.0) == seconds
    assert delivery.backoff(attempt, 0.5) == seconds + 1
    assert delivery.backoff(attempt, 1.0) == seconds + 2


@given(st.integers(0, 8), st.floats(0, 1))
def test_backoff_stays_within_the_bounds_of_its_formula(attempt: int, jitter: float) -> None:
    assert 0 <= delivery.backoff(attempt, jitter) - min(60, 2 * 2**attempt) <= 2


def test_the_tenth_failure_is_the_last() -> None:
    for attempts in range(1, 10):
        assert isinstance(delivery.decide(503, attempts=attempts, elapsed=0, jitter=0), Retry)
    assert delivery.decide(503, attempts=10, elapsed=0, jitter=0) == Drop("attempts_exhausted")


@pytest.mark.parametrize(
    ("elapsed", "expected"),
    [(898.0, Retry(2.0)), (898.001, Drop("window_exhausted")), (900.0, Drop("window_exhausted"))],
)
def test_no_attempt_begins_after_fifteen_minutes(elapsed: float, expected: Retry | Drop) -> None:
    assert delivery.decide(Lost.TIMEOUT, attempts=1, elapsed=elapsed, jitter=0) == expected


def test_attempts_run_out_before_the_window_where_answers_are_quick() -> None:
    elapsed, attempts = 0.0, 1
    while isinstance(decision := delivery.decide(500, attempts=attempts, elapsed=elapsed, jitter=1.0), Retry):
        elapsed += decision.delay
        attempts += 1
    assert (decision, attempts) == (Drop("attempts_exhausted"), 10)
    assert 302 <= elapsed <= 320


@given(st.integers(200, 299), st.integers(1, 10), st.floats(0, 2000))
def test_a_delivery_counts_whenever_it_succeeds(status: int, attempts: int, elapsed: float) -> None:
    assert delivery.decide(status, attempts=attempts, elapsed=elapsed, jitter=0) == Delivered()


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422, 301, 302, 307, 405, 413])
def test_a_permanent_rejection_ends_it_at_once(status: int) -> None:
    assert delivery.decide(status, attempts=1, elapsed=0, jitter=0) == Drop("permanent_rejection")


@given(st.integers())
def test_a_detour_stays_within_its_bounds(seed: int) -> None:
    detour = delivery.detoured(Random(seed))
    assert 0 <= detour.delay <= delivery.DETOUR_SECONDS
    assert 0 <= detour.again_after <= delivery.AGAIN_SECONDS
    assert detour == delivery.detoured(Random(seed))


def test_about_a_third_comes_again() -> None:
    rng = Random(1)
    assert 300 <= sum(delivery.detoured(rng).again for _ in range(1000)) <= 367
