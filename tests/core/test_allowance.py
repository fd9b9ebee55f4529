"""Rule that all limits follow. A key never gets more than the allowance plus the returned amounts.

The number of keys is bounded.
"""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posd.httpd.allowance import Allowance


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


AMOUNTS = st.integers(0, 12)
STEPS = st.lists(st.tuples(st.sampled_from("ab"), AMOUNTS, st.integers(0, 5)), max_size=40)


@given(STEPS, st.integers(1, 10), st.integers(1, 4))
def test_no_key_gets_more_than_its_allowance_and_the_refill(steps: list, room: int, rate: int) -> None:
    clock = Clock()
    allowance = Allowance(room, rate, clock)
    taken: dict[str, list[tuple[float, int]]] = {"a": [], "b": []}
    for key, amount, seconds in steps:
        clock.now += seconds
        wait = allowance.seconds_until(key, amount)
        if allowance.try_take(key, amount):
            assert wait == 0
            taken[key].append((clock.now, amount))
        else:
            clock.now += wait
            assert allowance.seconds_until(key, amount) == pytest.approx(0, abs=1e-6)
    for events in taken.values():
        for first, (since, _) in enumerate(events):
            for last in range(first, len(events)):
                got = sum(min(amount, room) for _, amount in events[first : last + 1])
                assert got <= room + (events[last][0] - since) * rate + 1e-6


@given(st.lists(st.tuples(st.sampled_from("ab"), AMOUNTS), max_size=40), st.integers(1, 10))
def test_an_amount_given_back_is_free_again_and_its_key_is_removed(steps: list, room: int) -> None:
    allowance = Allowance(room)
    held = [(key, amount) for key, amount in steps if allowance.try_take(key, amount)]
    for key in "ab":
        assert allowance.used(key) == sum(amount for name, amount in held if name == key)
    for key, amount in held:
        allowance.give_back(key, amount)
    assert len(allowance) == 0
    assert allowance.used("a") == 0


def test_an_allowance_without_a_rate_never_refills() -> None:
    allowance = Allowance(1)
    allowance.take()
    assert allowance.seconds_until("") == math.inf
    assert not allowance.try_take()
    allowance.give_back()
    assert allowance.try_take()


def test_an_amount_larger_than_the_allowance_waits_until_the_allowance_is_full() -> None:
    allowance = Allowance(10, 1, Clock())
    assert allowance.seconds_until("a", 1000) == 0
    allowance.take("a", 1000)
    assert allowance.seconds_until("a", 10) == 1000


def test_the_number_of_stored_keys_is_bounded_and_an_idle_key_is_dropped_first() -> None:
    allowance = Allowance(10, 1, Clock(), most=3)
    for key in ("a", "b", "a", "c", "d"):
        allowance.take(key, 5)
    assert len(allowance) == 3
    assert [allowance.used(key) for key in "abcd"] == [10, 0, 5, 5]
    lent = Allowance(10, most=3)
    for key in "abcd":
        lent.take(key)
    assert len(lent) == 4, "a used amount is given back later"


def test_a_refilled_amount_no_longer_counts_as_used() -> None:
    clock = Clock()
    allowance = Allowance(10, 1, clock)
    allowance.take("a", 5)
    clock.now += 2
    allowance.take("a", 5)
    assert allowance.used("a") == 8
