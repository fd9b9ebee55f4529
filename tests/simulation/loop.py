"""An event loop with virtual time. The loop never waits, and the seed decides the order of all steps.

When nothing is ready to run, the clock advances to the next timer. The loop also simulates threads, sub-processes and
signals. A function for a thread runs as one step, a little later. All code that the daemon starts has the number of the
daemon's life in its context. A life can therefore end at any point, as after a kill.
"""

import asyncio
import contextvars
import gc
import sys
import warnings
import weakref
from asyncio import tasks
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, TypeVar
from unittest.mock import patch

import aiosqlite.core

from posd.storage import backup

if TYPE_CHECKING:
    from tests.simulation.network import Network

T = TypeVar("T")

#: Number of the daemon's life to which the running code belongs. The world around the daemon has the number 0.
LIFE: contextvars.ContextVar[int] = contextvars.ContextVar("life", default=0)

#: Context outside all lives of the daemon.
OUTSIDE: Final = contextvars.Context()

#: The monotonic clock at the beginning, in seconds. The value is not 0, because the machine was booted before the run.
BEGIN: Final = 1000.0

#: Maximum number of turns of the loop without progress of time. A burst of a thousand connections takes some hundred
#: turns.
MOST_TURNS: Final = 50_000

#: Maximum number of attempts to close a coroutine. A coroutine may wait again while it is being closed.
MOST_CLOSES: Final = 100


class Stuck(Exception):
    """Error of a loop that makes no progress. Either no timer is set, or time does not advance while the loop runs."""


class VirtualLoop(asyncio.BaseEventLoop):
    """The event loop. `network` creates the transports."""

    # Attributes of asyncio's loop that asyncio does not declare.
    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self, network: "Network") -> None:
        super().__init__()
        self._selector = self
        self._now, self._turns = BEGIN, 0
        self._clock_resolution = 1e-9
        self.network = network
        network.loop = self
        #: Function that draws the seconds of a step on a thread. The loop calls it twice for each step: for the start,
        #: and for the delivery of the result.
        self.thread_seconds: Callable[[], float] = lambda: 0.0005
        #: The daemon's signal handlers.
        self.signals: dict[int, Callable[[], object]] = {}
        #: Exceptions that no daemon handled, as asyncio reports them.
        self.uncaught: list[Mapping[str, Any]] = []
        self.set_debug(False)
        self._ended: set[int] = set()
        #: Life -> its tasks, by number and in order.
        self._tasks: dict[int, weakref.WeakValueDictionary[int, asyncio.Task[Any]]] = {}
        self._task_numbers = count()
        self.set_task_factory(self._task)  # type: ignore[arg-type]

    # The clock.

    def time(self) -> float:
        """Return the virtual monotonic time, in seconds."""
        return self._now

    def select(self, timeout: float | None) -> list[Any]:
        """Advance the time to the next timer, as the selector of this loop. It never waits for the kernel."""
        self._turns += 1
        if timeout is None or self._turns > MOST_TURNS:
            raise Stuck("no timer is set" if timeout is None else "the loop turns, and no time passes")
        if timeout > 0:
            self._turns, self._now = 0, max(self._now, self._scheduled[0].when())
        return []

    def _process_events(self, _events: list[Any]) -> None:
        """Do nothing. The loop has no events from outside."""

    def _write_to_self(self) -> None:
        """Do nothing. No thread needs a wake-up."""

    # Lives.

    def _is_over(self, context: contextvars.Context | None) -> bool:
        return (LIFE.get() if context is None else context.get(LIFE, 0)) in self._ended

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        """Call the function in this turn or the next turn, unless the daemon's life has ended."""
        if self._is_over(context):
            return asyncio.Handle(callback, args, self, context)
        return super().call_soon(callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        """Call the function at a moment, unless the daemon's life has ended."""
        if self._is_over(context):
            return asyncio.TimerHandle(when, callback, args, self, context)
        return super().call_at(when, callback, *args, context=context)

    def end_life(self, life: int) -> None:
        """End a life of the daemon at once. No callback and no task of that life runs again.

        The loop closes the coroutines, as Python closes unreferenced coroutines. The caller prevents any effect of
        their cleanup.
        """
        self._ended.add(life)
        doomed = [*self._tasks.pop(life, {}).values()]
        self.signals.clear()
        hook, sys.unraisablehook = sys.unraisablehook, lambda _error: None
        generators = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(finalizer=lambda _generator: None)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for handle in (*self._ready, *self._scheduled):
                    if handle._context.get(LIFE, 0) == life:  # type: ignore[attr-defined]
                        handle.cancel()
                in_life(life, _close_tasks, doomed)
                del doomed
                in_life(life, gc.collect)
        finally:
            sys.unraisablehook = hook
            sys.set_asyncgen_hooks(*generators)
            self.set_exception_handler(self._not_caught)

    def _not_caught(self, _loop: Any, context: dict[str, Any]) -> None:
        """Record an exception that no code caught, unless code of a daemon raised it."""
        if LIFE.get() == 0 and "never retrieved" not in context["message"]:
            self.uncaught.append(context)

    def _task(self, _loop: Any, coro: Coroutine[Any, Any, T], **options: Any) -> "asyncio.Task[T]":
        task = tasks.Task(coro, loop=self, **options)
        life = LIFE.get()
        if life in self._ended:
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # the close of a dead daemon's code made it
        elif life:
            self._tasks.setdefault(life, weakref.WeakValueDictionary())[next(self._task_numbers)] = task
        return task

    # Threads, sub-processes, signals.

    def run_in_executor(self, _executor: Any, func: Callable[..., T], *args: Any) -> "asyncio.Future[T]":  # type: ignore[override]
        """Run a function as one step, a little later. The caller gets the result some time after the step."""
        future: asyncio.Future[T] = self.create_future()
        self.step(lambda: func(*args), future)
        return future

    def step(
        self, function: Callable[[], T], future: "asyncio.Future[T] | None", then: Callable[[], None] | None = None
    ) -> None:
        """Run a function and set the result of the future, as a thread would. Call `then` after the function."""

        def run() -> None:
            set_in: Callable[[asyncio.Future[T], Any], None] = asyncio.Future.set_result
            try:
                result: Any = function()
            except BaseException as error:  # noqa: BLE001 - the caller gets the exception
                set_in, result = asyncio.Future.set_exception, error
            if future is not None:
                self.call_later(self.thread_seconds(), _deliver, set_in, future, result)
            if then is not None:
                then()

        self.call_later(self.thread_seconds(), run)

    def add_signal_handler(self, sig: int, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        """Record the daemon's handler of a signal."""
        context = contextvars.copy_context()
        self.signals[sig] = lambda: self.call_soon(callback, *args, context=context)

    def remove_signal_handler(self, sig: int) -> bool:
        """Remove the handler of a signal."""
        return self.signals.pop(sig, None) is not None

    # The network.

    def add_reader(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        """Call the function when data can be read."""
        fd.add_reader(callback, args)

    def remove_reader(self, fd: Any) -> bool:
        """Remove the callback."""
        return bool(fd.remove_reader())

    async def sock_accept(self, sock: Any) -> Any:
        """Wait for a connection on a listening socket."""
        return await sock.accepted()

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        """Connect from this machine."""
        return await self.network.connect(protocol_factory, host, port, **options)

    async def connect_accepted_socket(self, protocol_factory: Any, sock: Any, **options: Any) -> Any:
        """Create the transport of an accepted connection."""
        return await sock.serve(protocol_factory, **options)


def _close_tasks(doomed: "list[asyncio.Task[Any]]") -> None:
    for task in doomed:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        coroutine = task.get_coro()
        for _ in range(MOST_CLOSES if coroutine is not None else 0):
            try:
                coroutine.close()
            except RuntimeError:
                continue  # the coroutine waits again while it is being closed
            except BaseException:  # noqa: BLE001 - the exception ends the coroutine
                pass
            break


def _deliver(set_in: Callable[["asyncio.Future[T]", Any], None], future: "asyncio.Future[T]", result: Any) -> None:
    if not future.done():
        set_in(future, result)


class _Queue:
    """Substitute for the queue of a connection's thread. The steps run in order, one at a time."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._waiting: deque[tuple[Any, Callable[[], Any]]] = deque()

    def put_nowait(self, item: tuple[Any, Callable[[], Any]]) -> None:
        """Run a function after the earlier functions."""
        if self._loop.is_closed():
            return  # Python can collect the object after the end of its daemon
        self._waiting.append(item)
        if len(self._waiting) == 1:
            self._run()

    def _run(self) -> None:
        future, function = self._waiting[0]
        self._loop.step(function, future, self._ended)

    def _ended(self) -> None:
        self._waiting.popleft()
        if self._waiting:
            self._run()


def _thread(target: Callable[..., object], args: tuple[Any, ...], **_options: Any) -> SimpleNamespace:
    """Return a substitute for a thread. Its work is done at the start, and takes no time."""
    return SimpleNamespace(start=partial(target, *args), join=lambda: None)


@contextmanager
def without_threads(loop: VirtualLoop) -> Iterator[None]:
    """Make aiosqlite's connections use steps of this loop."""
    idle = _thread(lambda: None, ())  # the queue does the work of the thread
    of_connections = patch.multiple(aiosqlite.core, SimpleQueue=partial(_Queue, loop), Thread=lambda **_: idle)
    with of_connections, patch.object(backup, "Thread", _thread):
        yield


def in_life(life: int, function: Callable[..., T], *arguments: Any) -> T:
    """Call a function as code of a life of the daemon."""
    context = contextvars.copy_context()
    context.run(LIFE.set, life)
    return context.run(function, *arguments)
