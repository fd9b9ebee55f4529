"""Replacement of the threads of SQLite's connections. Each function for a thread is a step of the loop."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import aiosqlite.core

from posd.storage import backup
from tests.simulation.loop import VirtualLoop


class _Queue:
    """Substitute for the queue of a connection's thread. The steps run in order, one at a time."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._waiting: list[tuple[Any, Callable[[], Any]]] = []
        self._busy = False

    def put_nowait(self, item: tuple[Any, Callable[[], Any]]) -> None:
        """Run a function after the earlier functions."""
        if self._loop.is_closed():
            return  # Python can collect the object after the end of its daemon
        self._waiting.append(item)
        if not self._busy:
            self._busy = True
            self._next()

    def _next(self) -> None:
        self._loop.call_later(self._loop.thread_seconds(), self._run)

    def _run(self) -> None:
        future, function = self._waiting.pop(0)
        try:
            result = function()
        except BaseException as error:  # noqa: BLE001 - the caller gets the exception
            told: Callable[..., None] = aiosqlite.core.set_exception
            what: Any = error
        else:
            told, what = aiosqlite.core.set_result, result
        if future is not None:
            self._loop.call_later(self._loop.thread_seconds(), told, future, what)
        self._busy = bool(self._waiting)
        if self._busy:
            self._next()


class _Thread:
    """Substitute for the thread, without any work."""

    def __init__(self, **_options: Any) -> None:
        """Accept the arguments of a thread."""

    def start(self) -> None:
        """Do nothing."""

    def join(self) -> None:
        """Do nothing. The thread has ended."""


class _Look:
    """Substitute for a thread that reads a folder. The read takes no time."""

    def __init__(self, target: Callable[..., None], args: tuple[Any, ...], **_options: Any) -> None:
        """Accept the arguments of a thread."""
        self.start = partial(target, *args)


@contextmanager
def without_threads(loop: VirtualLoop) -> Iterator[None]:
    """Make aiosqlite's connections use steps of this loop."""
    of_connections = patch.multiple(aiosqlite.core, SimpleQueue=lambda: _Queue(loop), Thread=_Thread)
    with of_connections, patch.object(backup, "Thread", _Look):
        yield
