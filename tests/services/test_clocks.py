"""The clocks that posd uses (posd.base.clocks)."""

import asyncio
import time

import pytest

from posd.base.clocks import monotonic, next_tick


class LoopOfItsOwn(asyncio.SelectorEventLoop):
    """A loop with a clock of its own instead of the system's clock."""

    def time(self) -> float:
        return super().time() + 1e6


def test_durations_use_the_clock_of_the_running_loop() -> None:
    async def read() -> float:
        return monotonic()

    with asyncio.Runner(loop_factory=LoopOfItsOwn) as runner:
        assert runner.run(read()) - time.monotonic() > 9e5


def test_without_a_loop_durations_use_the_system_clock() -> None:
    before = time.monotonic()
    assert before <= monotonic() <= time.monotonic()


@pytest.mark.parametrize("seconds", [0.5, 10.0, 60.0])
def test_the_next_tick_is_the_next_multiple_of_the_pause(seconds: float) -> None:
    before = monotonic()
    at = next_tick(seconds)
    assert before < at <= monotonic() + seconds
    assert min(at % seconds, seconds - at % seconds) == pytest.approx(0, abs=1e-6)
