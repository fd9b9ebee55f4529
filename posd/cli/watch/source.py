"""Threads that ask the daemon for what `posd watch` shows. They never draw.

The feed says when to ask. While it is silent, there is a look every `LOOK_SECONDS`: terminals, health and time (a
payment comes to need a person) are in no feed.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from posd.base.times import iso
from posd.cli.app.connection import Api, Problem, Unreachable, decode
from posd.cli.app.errors import problem_lines
from posd.cli.watch.state import WINDOW, Shop, WatchState

#: Lines of the feed that are read at once.
PAGE = 500
#: Names of the messages that are changes; others tell of the stream itself.
KINDS = frozenset({"transaction", "print_job"})

Change = Mapping[str, Any]


class FeedEnd(NamedTuple):
    """The number of a line of the feed. Another database counts from the start."""

    database_id: str
    seq: int


T = TypeVar("T")


def newest(api: Api) -> FeedEnd:
    """Return the place of the newest line of the feed. Raise Problem or Unreachable."""
    database = api.get("/feed", {"limit": "1"}).body["databases"][-1]
    return FeedEnd(database["database_id"], database["last_seq"] or 0)


def live(api: Api, seq: int) -> Iterator[tuple[Change, str]]:
    """Yield the lines behind that number as they come, decoded and as received, until posd ends that.

    Raise Problem or Unreachable.
    """
    for item in api.stream(f"/feed?limit={PAGE}", after=seq):
        if item.name in KINDS:
            yield decode(item.data), item.data


#: seconds between two looks while the feed is silent.
LOOK_SECONDS = 10.0
#: seconds between two looks at least, however much happens.
BETWEEN_SECONDS = 0.3
#: seconds: a look that takes longer is no answer; the socket is on this machine.
ANSWER_SECONDS = 10.0
#: seconds until a daemon that is away is tried again: at first, and at most; it doubles.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 8.0
#: The most payments of a list; more do not fit on any screen.
MOST = 200
#: The most ended payments that details are requested for.
MOST_RECENT = 100

#: list of the shop -> its call.
LISTS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "open": ("/transactions", {"open": "true", "limit": str(MOST)}),
    "attention": ("/transactions", {"attention": "true", "limit": str(MOST)}),
    "recent": ("/transactions", {"phase": "final", "totals": "true", "limit": str(MOST_RECENT)}),
    "open_prints": ("/print-jobs", {"open": "true", "limit": str(MOST)}),
    "print_attention": ("/print-jobs", {"attention": "true", "limit": str(MOST)}),
}
PAYMENTS, PRINTS = frozenset({"open", "attention", "recent"}), frozenset({"open_prints", "print_attention"})
EVERYTHING = frozenset({"health", "terminals", *LISTS})


def look(api: Api, before: Shop, wanted: frozenset[str] = EVERYTHING) -> Shop:
    """Return the shop with what is wanted of it asked for. Raise Problem or Unreachable.

    A daemon that cannot read its database says so in its health; the lists stay as they were then.
    """
    shop = before
    if "health" in wanted:
        shop = replace(shop, health=api.get("/health", also={503}, seconds=ANSWER_SECONDS).body)
        if not shop.version or not before.health:
            shop = replace(shop, version=api.get("/version", seconds=ANSWER_SECONDS).body["version"])
    try:
        if "terminals" in wanted:
            shop = replace(shop, terminals=api.get("/terminals", seconds=ANSWER_SECONDS).body["terminals"])
        for name, (path, query) in LISTS.items():
            if name in wanted:
                since = {"since": iso(datetime.now(UTC) - WINDOW)} if name == "recent" else {}
                page = api.get(path, {**query, **since}, seconds=ANSWER_SECONDS).body
                cut = shop.cut - {name} | ({name} if page["next_cursor"] else set())
                rows = page["print_jobs" if name in PRINTS else "transactions"]
                shop = replace(shop, cut=frozenset(cut), totals=page.get("totals", shop.totals), **{name: rows})
    except Problem as problem:
        if problem.code != "storage_unavailable":
            raise
        shop = replace(shop, health=api.get("/health", also={503}, seconds=ANSWER_SECONDS).body)
    return shop


def words(error: Problem | Unreachable) -> str:
    """Write in one line why something was not answered or not done."""
    return error.reason if isinstance(error, Unreachable) else " ".join(map(str.strip, problem_lines(error)))


class Source:
    """Threads that ask the daemon. `call` runs a function with its arguments in the thread of the screen."""

    def __init__(self, socket: Path, state: WatchState, call: Callable[..., object]) -> None:
        """Start with the shop of `state`."""
        self._socket, self._state, self._call = socket, state, call
        self._shop = state.shop
        self._closed = threading.Event()
        self._woken = threading.Event()
        self._lock = threading.Lock()
        self._wanted: set[str] = set()

    def start(self) -> None:
        """Start to poll and to follow the feed."""
        self._run(self._poll)
        self._run(self._follow)

    def close(self) -> None:
        """End the threads. One that waits for an answer does not delay the exit."""
        self._closed.set()
        self._woken.set()

    def ask(self, work: Callable[[Api], T], done: Callable[[T | None, str], None]) -> None:
        """Run `work` in a thread, then `done` with its result, or with None and the problem."""

        def run(api: Api) -> None:
            try:
                self._call(done, work(api), "")
            except (Problem, Unreachable) as error:
                self._call(done, None, words(error))
            self._want(PAYMENTS)

        self._run(run)

    def _run(self, work: Callable[[Api], None]) -> None:
        def body() -> None:
            try:
                with Api(self._socket) as api:
                    work(api)
            except Exception as error:  # noqa: BLE001 - the screen raises it
                if not self._closed.is_set():
                    self._call(_fail, error)

        # A daemon thread: a blocked read must not delay the exit.
        threading.Thread(target=body, daemon=True).start()

    def _want(self, names: frozenset[str]) -> None:
        with self._lock:
            self._wanted |= names
        self._woken.set()

    def _poll(self, api: Api) -> None:
        pause, wanted = FIRST_PAUSE, PAYMENTS
        full_look_at = time.monotonic() + LOOK_SECONDS
        while not self._closed.is_set():
            try:
                self._shop = look(api, self._shop, wanted)
            except (Problem, Unreachable) as error:
                self._call(self._state.set_unreachable, words(error), datetime.now(UTC), pause)
                self._closed.wait(pause)
                pause, wanted = min(2 * pause, LONGEST_PAUSE), EVERYTHING
                continue
            self._call(self._state.set_shop, self._shop)
            pause = FIRST_PAUSE
            if wanted == EVERYTHING:
                full_look_at = time.monotonic() + LOOK_SECONDS
            self._closed.wait(BETWEEN_SECONDS)
            woken = self._woken.wait(max(0.0, full_look_at - time.monotonic()))
            with self._lock:
                wanted, self._wanted = frozenset(self._wanted), set()
                self._woken.clear()
            if not woken or time.monotonic() >= full_look_at:
                wanted = EVERYTHING

    def _follow(self, api: Api) -> None:
        pause, place = FIRST_PAUSE, FeedEnd("", 0)
        while not self._closed.is_set():
            try:
                if (found := newest(api)).database_id != place.database_id:
                    place = found
                    self._want(EVERYTHING)
                pause = FIRST_PAUSE
                for change, _ in live(api, place.seq):
                    place = place._replace(seq=change["seq"])
                    self._call(self._state.add_changed, change["id"])
                    self._want(PAYMENTS if change["kind"] == "transaction" else PRINTS)
            except (Problem, Unreachable):
                self._want(EVERYTHING)  # the poll reports it
            self._closed.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE)


def _fail(error: Exception) -> None:
    raise error
