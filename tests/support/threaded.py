"""Objects that need an event loop, for tests that run outside a loop. The loop runs in a thread."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


@contextmanager
def in_thread(opened: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Open the object for the block."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever)

    def run(step: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(step, loop).result()

    thread.start()
    try:
        value = run(opened.__aenter__())
        try:
            yield value
        finally:
            run(opened.__aexit__(None, None, None))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
