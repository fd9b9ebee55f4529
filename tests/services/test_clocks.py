"""The clocks that posd goes by (posd.base.clocks)."""

import asyncio
import time

import pytest

from posd.base.clocks import monotonic, next_tick


class LoopOfItsOwn(asyncio.SelectorEventLoop):
    """A loop whose clock is not the system's."""

    def time(self) -> float:
        return super().time() + 1e6


def test_durations_go_by_the_clock_of_the_loop_that_runs() -> None:
    async def read() -> float:
        return monotonic()

    with asyncio.Runner(loop_factory=LoopOfItsOwn) as runner:
        assert runner.run(read()) - time.monotonic() > 9e5


def test_without_a_loop_they_go_by_the_systems() -> None:
    before = time.monotonic()
    assert before <= monotonic() <= time.monotonic()


@pytest.mark.parametrize("seconds", [0.5, 10.0, 60.0])
def test_the_next_tick_is_a_multiple_and_no_later_than_the_pause(seconds: float) -> None:
    before = monotonic()
    at = next_tick(seconds)
    assert before < at <= monotonic() + seconds
    assert min(at % seconds, seconds - at % seconds) == pytest.approx(0, abs=1e-6)
