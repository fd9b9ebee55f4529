"""Calls of tills that run to their end, whoever waits for them; and of one id, one after the other."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

T = TypeVar("T")


class Running:
    """The calls under way of one use case."""

    def __init__(self) -> None:
        self._busy: dict[str, asyncio.Future[None]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    def keep(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run to the end, whoever waits for it or not."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # seen: the till that would have heard of it may have hung up

    @asynccontextmanager
    async def alone(self, identity: str) -> AsyncIterator[None]:
        """Let one call of an id through at a time."""
        while (busy := self._busy.get(identity)) is not None:
            await asyncio.wait({busy})
        mine = self._busy[identity] = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            del self._busy[identity]
            mine.set_result(None)

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until nothing runs any more, or so long."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
