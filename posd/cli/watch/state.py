"""State of `posd watch`: the daemon's responses, the rows of the lists, and the threads that poll the daemon."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from posd.base.times import iso
from posd.cli.app.connection import Api, Problem, Unreachable
from posd.cli.app.errors import problem_lines
from posd.cli.app.outcome import Arrived
from posd.cli.explain.catalogue import translate
from posd.client.documents import PosdError
from posd.client.plans import Place

#: A document of the local API.
Document = Mapping[str, Any]

#: Payments of this last period are counted.
WINDOW = timedelta(hours=1)
#: After its end, a payment stays on the screen for this time.
LINGER = timedelta(seconds=10)


class ListName(Enum):
    """Lists of the screen."""

    TERMINALS = "TERMINALS"
    OPEN = "OPEN"
    ATTENTION = "ATTENTION"


class Kind(Enum):
    """Kind of a row's subject. The value is its path in the local API."""

    TERMINAL = "terminals"
    PAYMENT = "transactions"
    PRINT_JOB = "print-jobs"


class Row(NamedTuple):
    """Row of a list. `document`: terminal, payment or print job. `attention`: attention that the row is about.

    `runs`: open payment on the terminal.
    """

    section: ListName
    kind: Kind
    identity: str
    document: Document
    attention: Document | None = None
    runs: Document | None = None

    @property
    def key(self) -> tuple[ListName, Kind, str, str]:
        """Key of the row, which stays the same while its content changes."""
        return self.section, self.kind, self.identity, "" if self.attention is None else self.attention["code"]

    @property
    def outcome(self) -> Document | None:
        """Outcome of the row's payment, or None."""
        return self.document.get("outcome") if self.kind is Kind.PAYMENT else None


@dataclass(frozen=True, slots=True)
class Shop:
    """The daemon's last responses. `recent`: payments that have just ended. `figures`: report of the last hour.

    `cut`: names of lists that have more rows than were requested.
    """

    health: Document = field(default_factory=dict)
    version: str = ""
    terminals: Sequence[Document] = ()
    open: Sequence[Document] = ()
    attention: Sequence[Document] = ()
    recent: Sequence[Document] = ()
    open_prints: Sequence[Document] = ()
    print_attention: Sequence[Document] = ()
    figures: Document = field(default_factory=dict)
    cut: frozenset[str] = frozenset()

    def rows(self, now: datetime) -> list[Row]:
        """Return the rows of all lists, in the order of the screen."""
        return [*self._terminals(), *self._open(now), *self._attention()]

    def _terminals(self) -> list[Row]:
        runs = {item["terminal"]: item for item in self.open if not item["released"]}
        rows = [
            Row(ListName.TERMINALS, Kind.TERMINAL, item["serial"], item, runs=runs.get(item["serial"]))
            for item in self.terminals
        ]
        # Unreachable terminals come first, because the screen may not have room for all.
        return sorted(rows, key=lambda row: row.document["reachable"] is not False)

    def _open(self, now: datetime) -> list[Row]:
        ended = sorted((item for item in self.recent if decided_at(item) >= now - LINGER), key=decided_at, reverse=True)
        ids = {item["client_transaction_id"] for item in ended}
        still_open = [item for item in self.open if item["client_transaction_id"] not in ids]
        prints = [Row(ListName.OPEN, Kind.PRINT_JOB, item["print_job_id"], item) for item in self.open_prints]
        payments, done = (
            [Row(ListName.OPEN, Kind.PAYMENT, item["client_transaction_id"], item) for item in items]
            for items in (still_open, ended)
        )
        return [*sorted([*payments, *prints], key=lambda row: str(row.document["created_at"])), *done]

    def _attention(self) -> list[Row]:
        rows = [
            Row(ListName.ATTENTION, kind, item[name], item, attention)
            for kind, name, items in (
                (Kind.PAYMENT, "client_transaction_id", self.attention),
                (Kind.PRINT_JOB, "print_job_id", self.print_attention),
            )
            for item in items
            for attention in item["attention"]
        ]
        rows.sort(key=lambda row: str((row.attention or {}).get("since")), reverse=True)
        return sorted(rows, key=lambda row: row.document["phase"] == "final")  # open payments come first


def decided_at(payment: Document) -> datetime:
    """Return the time when a payment ended."""
    return datetime.fromisoformat(payment["outcome"]["decided_at"])


class Away(NamedTuple):
    """Outage of the daemon: reason, start, and time of the next attempt."""

    reason: str
    since: datetime
    again_at: datetime


@dataclass
class WatchState:
    """Last responses of the daemon, and its outage, or None while it replies."""

    shop: Shop = field(default_factory=Shop)
    away: Away | None = None
    #: Number of changes of this state.
    version: int = 0

    def set_shop(self, shop: Shop) -> None:
        """Replace the daemon's responses."""
        self.shop, self.away = shop, None
        self.version += 1

    def set_unreachable(self, reason: str, now: datetime, pause: float) -> None:
        """Record that the daemon does not reply, and that the next attempt follows in `pause` seconds."""
        since = now if self.away is None else self.away.since
        self.away = Away(reason, since, now + timedelta(seconds=pause))
        self.version += 1


# Threads that poll the daemon for `posd watch`. Only the screen's own thread draws.

#: Number of changes of the feed in one request.
PAGE = 500

T = TypeVar("T")


def newest(api: Api) -> str:
    """Return the place of the newest change in the feed. Raise Problem or Unreachable."""
    last = api.get("/feed", {"limit": "1"}).body["databases"][-1]["last_seq"] or 0
    return str(api.get("/feed", {"limit": "1", "after": str(last)}).body["place"])


def changes(
    api: Api, place: str, away: Callable[[PosdError], None], before: Callable[[], None]
) -> Iterator[tuple[Document, str]]:
    """Yield the changes of the feed after a place as they arrive, decoded and as received, across restarts of posd.

    `away` is called with each error, and `before` each time before the stream is opened. An error of `before` counts as
    an error of the stream.
    """
    stream = Place(api.socket, f"/feed?limit={PAGE}", Arrived, place, away)
    for item, change in api.follow(stream, before):
        if change is not None:
            yield change.document, item.data


#: Seconds between two full polls while the feed has no new change.
LOOK_SECONDS = 10.0
#: Minimum number of seconds between two polls.
BETWEEN_SECONDS = 0.3
#: Time-out of a call of a poll in seconds. The daemon is on this machine.
ANSWER_SECONDS = 10.0
#: Seconds before the next attempt to reach the daemon: the first pause, which doubles each time, and the longest.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 8.0
#: Maximum number of payments in a list. A screen has no room for more.
MOST = 200
#: Maximum number of ended payments that are requested.
MOST_RECENT = 100

#: Name of a list in `Shop` -> path and filters of its call.
LISTS: Mapping[str, tuple[str, dict[str, str]]] = {
    "open": ("/transactions", {"open": "true", "limit": str(MOST)}),
    "attention": ("/transactions", {"attention": "true", "limit": str(MOST)}),
    "recent": ("/transactions", {"phase": "final", "limit": str(MOST_RECENT)}),
    "open_prints": ("/print-jobs", {"open": "true", "limit": str(MOST)}),
    "print_attention": ("/print-jobs", {"attention": "true", "limit": str(MOST)}),
}


def look(api: Api, before: Shop, *, everything: bool = True) -> Shop:
    """Poll the daemon, and return the new state of the shop. Raise Problem or Unreachable.

    `everything`: also poll what seldom changes. If the daemon cannot read its database, its health says so, and the
    lists stay as in `before`.
    """
    found: dict[str, Any] = {}
    get = partial(api.get, seconds=ANSWER_SECONDS)
    try:
        since = {"since": iso(datetime.now(UTC) - WINDOW)}
        if everything:
            found["health"] = get("/health", also={503}).body
            found["version"], found["terminals"] = get("/version").body["version"], get("/terminals").body["terminals"]
            found["figures"] = get("/report", {**since, "until": iso(datetime.now(UTC))}).body
        cut = set()
        for name, (path, query) in LISTS.items():
            page = get(path, query | since if name == "recent" else query).body
            found[name] = page["print_jobs" if path == "/print-jobs" else "transactions"]
            cut |= {name} if page["next_cursor"] else set()
        found["cut"] = frozenset(cut)
    except Problem as problem:
        if problem.code != "storage_unavailable":
            raise
        found["health"] = get("/health", also={503}).body
    return replace(before, **found)


def words(error: PosdError) -> str:
    """Return the reason of an error on one line."""
    if isinstance(error, Problem):
        return " ".join(map(str.strip, problem_lines(error)))
    return translate(error.reason) if isinstance(error, Unreachable) else str(error)


class Source:
    """Threads that poll the daemon. `call`: runs a function with its arguments in the screen's thread."""

    def __init__(self, socket: Path, state: WatchState, call: Callable[..., object]) -> None:
        """`state`: is updated by `call`, and has the first shop."""
        self._socket, self._state, self._call = socket, state, call
        self._shop = state.shop
        self._closed = threading.Event()
        self._woken = threading.Event()

    def start(self) -> None:
        """Start the threads: one polls, one follows the feed."""
        self._run(self._poll)
        self._run(self._follow)

    def close(self) -> None:
        """End the threads. A waiting thread does not delay the exit."""
        self._closed.set()
        self._woken.set()

    def ask(self, work: Callable[[Api], T], done: Callable[[T | None, str], None]) -> None:
        """Run `work` in a thread. Then call `done` with its result and "", or with None and the problem."""

        def run(api: Api) -> None:
            try:
                self._call(done, work(api), "")
            except (Problem, Unreachable) as error:
                self._call(done, None, words(error))
            self._woken.set()

        self._run(run)

    def _run(self, work: Callable[[Api], None]) -> None:
        def body() -> None:
            try:
                with Api(self._socket) as api:
                    work(api)
            except Exception as error:  # noqa: BLE001 - the screen's thread raises it
                if not self._closed.is_set():
                    self._call(_fail, error)

        # The thread is a daemon, so that a blocked read does not delay the exit.
        threading.Thread(target=body, daemon=True).start()

    def _poll(self, api: Api) -> None:
        pause, full_look_at = FIRST_PAUSE, 0.0
        while not self._closed.is_set():
            everything = time.monotonic() >= full_look_at
            try:
                self._shop = look(api, self._shop, everything=everything)
            except (Problem, Unreachable) as error:
                self._call(self._state.set_unreachable, words(error), datetime.now(UTC), pause)
                self._closed.wait(pause)
                pause, full_look_at = min(2 * pause, LONGEST_PAUSE), 0.0
                continue
            self._call(self._state.set_shop, self._shop)
            pause = FIRST_PAUSE
            if everything:
                full_look_at = time.monotonic() + LOOK_SECONDS
            self._closed.wait(BETWEEN_SECONDS)
            self._woken.wait(max(0.0, full_look_at - time.monotonic()))
            self._woken.clear()

    def _follow(self, api: Api) -> None:
        def look(_: object = None) -> None:  # an error is ignored here: the next poll reports it
            self._woken.set()

        while True:
            try:
                place = newest(api)
                break
            except (Problem, Unreachable):
                self._closed.wait(FIRST_PAUSE)
        for _ in changes(api, place, look, look):
            if self._closed.is_set():
                return
            self._woken.set()


def _fail(error: Exception) -> None:
    raise error
