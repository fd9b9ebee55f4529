"""A signal ends the relay and the collector, even if a library has swallowed their cancellation."""

import signal
import subprocess
import sys

import pytest

#: Maximum time until the process ends, in seconds.
PATIENCE_SECONDS = 60

#: Program that swallows the first CancelledError. `asyncio.wait_for` of Python 3.11 can also swallow it if the awaited
#: result arrives at the same time. The second CancelledError arrives during the end or the close.
SCRIPT = """
import asyncio, sys
from posd.relay import process

async def work(when):
    try:
        try:
            print("ready", flush=True)
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if when == "working":
                await asyncio.Event().wait()
    except asyncio.CancelledError:
        pass
    finally:
        if when == "closing":
            await asyncio.Event().wait()
    return 0

sys.exit(process.run(work(sys.argv[1]), "info"))
"""


@pytest.mark.parametrize(
    ("when", "number"), [("at once", signal.SIGINT), ("working", signal.SIGTERM), ("closing", signal.SIGTERM)]
)
def test_a_signal_ends_the_process_even_if_the_first_cancellation_was_lost(when: str, number: signal.Signals) -> None:
    command = [sys.executable, "-c", SCRIPT, when]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            assert process.stdout.readline() == "ready\n"
            process.send_signal(number)
            assert process.wait(PATIENCE_SECONDS) == 0
            assert process.stderr.read() == ""
        finally:
            process.kill()
