"""Start of a command of the tests, such as `python -m tests.chaos`."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any


def execute(run: Coroutine[Any, Any, int]) -> int:
    """Run a command. Return its exit code. SIGTERM ends the command like Ctrl-C, with the exit code 130."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return asyncio.run(run)
    except KeyboardInterrupt:
        return 130
