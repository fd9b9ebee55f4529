"""State of `posd watch`: the daemon's responses, the rows of its lists, and the polling threads."""

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

#: Length of the time in which payments are counted.
WINDOW = timedelta(hours=1)
#: Time for which an ended payment stays on the screen.
LINGER = timedelta(seconds=10)


class ListName(Enum):
    """Lists of the screen."""

    TERMINALS = "TERMINALS"
    OPEN = "OPEN"
    ATTENTION = "ATTENTION"


class Kind(Enum):
    """Subject of a row, by its path in the local API."""

    TERMINAL = "terminals"
    PAYMENT = "transactions"
    PRINT_JOB = "print-jobs"


class Row(NamedTuple):
    """Row of a list. `attention`: the attention of the row. `runs`: the open payment on a terminal."""

    section: ListName
    kind: Kind
    identity: str
    document: Document
    attention: Document | None = None
    runs: Document | None = None

    @property
    def key(self) -> tuple[ListName, Kind, str, str]:
        """Stable key of the row, while its content changes."""
        return self.section, self.kind, self.identity, "" if self.attention is None else self.attention["code"]

    @property
    def outcome(self) -> Document | None:
        """Outcome of an ended payment."""
        return self.document.get("outcome") if self.kind is Kind.PAYMENT else None


@dataclass(frozen=True, slots=True)
class Shop:
    """The daemon's last responses. `recent`: ended payments. `figures`: the report of the last hour.

    `cut`: lists with more rows than requested.
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
        """Return the rows of all lists in screen order."""
        return [*self._terminals(), *self._open(now), *self._attention()]

    def _terminals(self) -> list[Row]:
        runs = {item["terminal"]: item for item in self.open if not item["released"]}
        rows = [
            Row(ListName.TERMINALS, Kind.TERMINAL, item["serial"], item, runs=runs.get(item["serial"]))
            for item in self.terminals
        ]
        # If there is too little room, unreachable terminals come first.
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
    """Return the end time of a payment."""
    return datetime.fromisoformat(payment["outcome"]["decided_at"])


class Away(NamedTuple):
    """Why the daemon is unreachable, since when, and the time of the next attempt."""

    reason: str
    since: datetime
    again_at: datetime


@dataclass
class WatchState:
    """Last responses, and whether the daemon still replies."""

    shop: Shop = field(default_factory=Shop)
    away: Away | None = None
    #: Number of changes of this state.
    version: int = 0

    def set_shop(self, shop: Shop) -> None:
        """Replace the daemon's responses."""
        self.shop, self.away = shop, None
        self.version += 1

    def set_unreachable(self, reason: str, now: datetime, pause: float) -> None:
        """Record that the daemon does not reply. The next attempt follows in `pause` seconds."""
        since = now if self.away is None else self.away.since
        self.away = Away(reason, since, now + timedelta(seconds=pause))
        self.version += 1


# Threads that poll the daemon for `posd watch`. They never draw.

#: Lines of the feed read at once.
PAGE = 500

T = TypeVar("T")


def newest(api: Api) -> str:
    """Return the place of the newest line of the feed. Raise Problem or Unreachable."""
    last = api.get("/feed", {"limit": "1"}).body["databases"][-1]["last_seq"] or 0
    return str(api.get("/feed", {"limit": "1", "after": str(last)}).body["place"])


def changes(
    api: Api, place: str, away: Callable[[PosdError], None], before: Callable[[], None]
) -> Iterator[tuple[Document, str]]:
    """Yield the lines of the feed after a place as they arrive, decoded and as received, over restarts of posd.

    `away` is called with each error, `before` before each opening. An error of `before` counts too.
    """
    stream = Place(api.socket, f"/feed?limit={PAGE}", Arrived, place, away)
    for item, change in api.follow(stream, before):
        if change is not None:
            yield change.document, item.data


#: Seconds between two polls while the feed is silent.
LOOK_SECONDS = 10.0
#: Least seconds between two polls.
BETWEEN_SECONDS = 0.3
#: Seconds after which a poll counts as failed; the socket is on this machine.
ANSWER_SECONDS = 10.0
#: Seconds until the next attempt to reach the daemon: the first pause, which doubles, and the longest.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 8.0
#: Most payments of a list. A screen has no room for more.
MOST = 200
#: Most ended payments whose details are requested.
MOST_RECENT = 100

#: list of the shop -> its call.
LISTS: Mapping[str, tuple[str, dict[str, str]]] = {
    "open": ("/transactions", {"open": "true", "limit": str(MOST)}),
    "attention": ("/transactions", {"attention": "true", "limit": str(MOST)}),
    "recent": ("/transactions", {"phase": "final", "limit": str(MOST_RECENT)}),
    "open_prints": ("/print-jobs", {"open": "true", "limit": str(MOST)}),
    "print_attention": ("/print-jobs", {"attention": "true", "limit": str(MOST)}),
}


def look(api: Api, before: Shop, *, everything: bool = True) -> Shop:
    """Return the shop after a poll of its lists, or of everything. Raise Problem or Unreachable.

    If the daemon cannot read its database, its health says so, and the lists stay unchanged.
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
    """Write in one line why something was not answered or not done."""
    if isinstance(error, Problem):
        return " ".join(map(str.strip, problem_lines(error)))
    return translate(error.reason) if isinstance(error, Unreachable) else str(error)


class Source:
    """Polling threads. `call` runs a function with its arguments in the screen's thread."""

    def __init__(self, socket: Path, state: WatchState, call: Callable[..., object]) -> None:
        """Start with the shop of `state`."""
        self._socket, self._state, self._call = socket, state, call
        self._shop = state.shop
        self._closed = threading.Event()
        self._woken = threading.Event()

    def start(self) -> None:
        """Start polling and following the feed."""
        self._run(self._poll)
        self._run(self._follow)

    def close(self) -> None:
        """End the threads. A waiting thread does not delay the exit."""
        self._closed.set()
        self._woken.set()

    def ask(self, work: Callable[[Api], T], done: Callable[[T | None, str], None]) -> None:
        """Run `work` in a thread, then `done` with its result, or with None and the problem."""

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
            except Exception as error:  # noqa: BLE001 - the screen raises it
                if not self._closed.is_set():
                    self._call(_fail, error)

        # A daemon thread, so that a blocked read does not delay the exit.
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
        def look(_: object = None) -> None:  # the poll reports an error
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
