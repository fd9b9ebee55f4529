"""Start of a payment or print job, and the wait for its outcome, across restarts of the daemon.

A started payment or print job continues without its till, so a wait does not end by itself. While the daemon is
unreachable, the call is repeated with the same id. Only the outcome, the caller's deadline or Ctrl-C ends a wait.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from posd.cli.app.connection import Api, Call, ForeignAnswer, Problem, Reply, Unreachable
from posd.client import plans
from posd.client.documents import PosdError, encode
from posd.client.plans import Place

#: Seconds between two attempts to reach an unreachable daemon. The user does not notice them, and the load is small.
RETRY_SECONDS = 0.5
#: Seconds between two reads of the transaction during a wait without events. A new attention, such as a silent
#: terminal, does not arrive as an event.
REFRESH_SECONDS = 5.0
#: Seconds between two reads of a print job's state (queued, printing) during a wait.
LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class CurrentState:
    """The current state of the transaction or the print job."""

    reply: Reply

    @property
    def transaction(self) -> Mapping[str, Any]:
        body: Mapping[str, Any] = self.reply.body
        return body

    @property
    def final(self) -> bool:
        return bool(self.transaction["phase"] == "final")


@dataclass(frozen=True, slots=True)
class Arrived:
    """Event of the terminal, as in the event stream: `{seq, received_at, verdict, event}`."""

    document: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The daemon is unreachable or cannot read its database.

    The wait continues. Any later update of another type means that the daemon replies again.
    """

    reason: str


Update = CurrentState | Arrived | Disconnected


class TimedOut(Exception):
    """Error if the caller's deadline has passed. The payment or print job continues."""


def start(
    api: Api,
    path: str,
    request: Mapping[str, Any],
    *,
    deadline: float | None,
    away: Callable[[str], None],
    fresh: bool = True,
) -> Reply:
    """PUT a transaction or a print job until the daemon replies, and return the response.

    If no call can have reached posd, nothing was started: raise Unreachable. If posd may have read a call, repeat it.
    This is safe, because the id is the same. `away`: function that gets the reason before each repetition.

    `deadline` is a time of `time.monotonic()`. `fresh`: whether the id was made for this call. Then `never_started` of
    a Problem is also True if posd refused the first call. Raise Problem, Unreachable or TimedOut.
    """
    first = True

    def told(error: PosdError) -> None:
        nonlocal first
        first = False
        if isinstance(error, Problem) and error.lasting:
            raise error  # the call is not repeated here: the user can repeat the command
        away(error.reason if isinstance(error, Unreachable) else str(error))

    patience = None if deadline is None else max(0.0, deadline - time.monotonic())
    call = Call("PUT", path, body=encode(request))
    try:
        return api.run(plans.start(api.socket, call, patience, told, unsent_patience=0.0))
    except ForeignAnswer:
        raise
    except (Unreachable, Problem) as error:
        cause = error.__cause__ if isinstance(error, Unreachable) else None
        if isinstance(error, Unreachable) and error.sent and isinstance(cause, Unreachable | Problem):
            raise TimedOut from error
        found = cause or error
        if isinstance(found, Problem):
            found.never_started |= fresh and first and not found.sent
        raise found from None


def follow(api: Api, transaction_id: str, *, deadline: float | None) -> Iterator[Update]:
    """Yield the updates of a transaction, until a CurrentState that is final.

    The updates begin with the first event. Raise Problem or ForeignAnswer if waiting does not help. Raise TimedOut at
    `deadline`, a time of `time.monotonic()`.
    """
    updates: queue.SimpleQueue[Update | Exception] = queue.SimpleQueue()
    stop = threading.Event()
    path = f"/transactions/{transaction_id}"
    # A thread reads, because a blocked read cannot end at the deadline or redraw the screen. It is a daemon thread, so
    # a blocked read does not delay the exit.
    threading.Thread(target=_read, args=(api.socket, path, updates, stop), daemon=True).start()
    try:
        while True:
            left = REFRESH_SECONDS if deadline is None else min(REFRESH_SECONDS, deadline - time.monotonic())
            if left <= 0:
                raise TimedOut
            try:
                update = updates.get(timeout=left)
            except queue.Empty:
                update = _glance(api, path)
            if isinstance(update, Exception):
                raise update
            yield update
            if isinstance(update, CurrentState) and update.final:
                return
    finally:
        stop.set()


def follow_print_job(api: Api, path: str, *, deadline: float | None) -> Iterator[CurrentState | Disconnected]:
    """Yield the state of a print job, at least every `LOOK_SECONDS`, until it is final.

    Raise Problem or ForeignAnswer if waiting does not help. Raise TimedOut at `deadline`, a time of `time.monotonic()`.
    """
    passing = plans.Away(None, passing=plans.passes)
    while True:
        left = LOOK_SECONDS if deadline is None else min(LOOK_SECONDS, deadline - time.monotonic())
        if left <= 0:
            raise TimedOut
        try:
            snapshot = CurrentState(api.get(f"{path}/outcome", {"timeout": f"{left:.3f}"}))
        except PosdError as error:
            away = as_away(error, plans.passes)
            if away is None or passing.pause(error) is None:
                raise
            yield away
            time.sleep(min(RETRY_SECONDS, left))
            continue
        passing.back()
        yield snapshot
        if snapshot.final:
            return


def _read(socket: str, path: str, updates: "queue.SimpleQueue[Update | Exception]", stop: threading.Event) -> None:
    """Put events and states into the queue until the outcome arrives. A broken stream is resumed."""

    def told(error: PosdError) -> None:
        if stop.is_set():
            raise error
        updates.put(as_away(error, plans.passes) or error)

    def look() -> None:
        snapshot = CurrentState(api.get(path))
        # A final state is not queued here. It comes last, after events that arrived while the daemon was unreachable.
        if not snapshot.final:
            updates.put(snapshot)

    # This thread has its own client, because the caller may close its client while the thread still reads.
    with Api(socket) as api:
        place = Place(socket, f"{path}/events", Arrived, 0, told)
        try:
            for item, event in api.follow(place, before=look):
                if item.event == plans.OUTCOME_ITEM:
                    break
                if event is not None:
                    updates.put(event)
            away = plans.Away(None, told, plans.passes)
            updates.put(CurrentState(api.run(plans.steady(plans.get(path), away))))
        except Exception as error:  # noqa: BLE001 - the caller's thread raises it
            updates.put(error)


def _glance(api: Api, path: str) -> Update:
    """Return the state of the transaction, or Disconnected."""
    try:
        return CurrentState(api.get(path))
    except PosdError as error:
        away = as_away(error, plans.passes)
        if away is None:
            raise
        return away


def as_away(error: PosdError, passing: Callable[[PosdError], bool] = plans.is_away) -> Disconnected | None:
    """Return a Disconnected if `passing` says that an error is temporary, else None."""
    if not passing(error):
        return None
    return Disconnected(error.reason if isinstance(error, Unreachable) else str(error))
