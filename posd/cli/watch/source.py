"""What asks posd, beside the display: three kinds of threads, which hand over what they learn and never draw.

The feed says when to ask. While it is silent, there is a look every `LOOK_SECONDS`: terminals, health and time (a
payment comes to need a person) are in no feed.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from posd.cli.app.connection import Api, Problem, Unreachable, decode
from posd.cli.app.errors import problem_lines
from posd.cli.payments.decide import RECONCILE_SECONDS
from posd.cli.payments.show import links
from posd.cli.watch.state import LINGER, WINDOW, Kind, Row, Shop

# The feed from a moment on: what was recorded since then, and then what comes.
#
# The feed is numbered, not dated. Where a moment stands in it is found by looking at some of its lines.

#: Lines that are read at once.
PAGE = 500
#: The most past lines that are read: some seconds of work on a small machine.
MOST_PAST = 50_000

#: Names of the messages that are changes; others tell of the stream itself.
KINDS = frozenset({"transaction", "print_job"})

Change = Mapping[str, Any]


def newest(api: Api) -> int:
    """Return the number of the newest line of the feed. Raise Problem or Unreachable."""
    return _first(api, lambda _change: False)


def begin(api: Api, moment: datetime) -> int:
    """Return the number behind which the lines since that moment stand. Raise Problem or Unreachable."""
    return max(_first(api, lambda change: datetime.fromisoformat(change["at"]) >= moment), newest(api) - MOST_PAST)


def holds(api: Api, place: int) -> bool:
    """Whether the feed still has the line of that number: it has not in another database."""
    found = _changes(api, place - 1, 1) if place else []
    return place == 0 or (bool(found) and found[0]["seq"] == place)


def past(api: Api, place: int) -> Iterator[Sequence[Change]]:
    """Yield the lines behind that number, as far as they are there."""
    while page := _changes(api, place, PAGE):
        yield page
        place = page[-1]["seq"]


def live(api: Api, place: int) -> Iterator[tuple[Change, str]]:
    """Yield the lines behind that number as they come, decoded and as they came, until posd ends that.

    Raise Problem or Unreachable.
    """
    for item in api.stream(f"/feed?limit={PAGE}", after=place):
        if item.name in KINDS:
            yield decode(item.data), item.data


def _first(api: Api, is_there: Callable[[Change], bool]) -> int:
    """Return the smallest number behind which the next line is such a one, or there is none."""

    def behind(place: int) -> bool:
        found = _changes(api, place, 1)
        return not found or is_there(found[0])

    low, high = 0, 1
    while not behind(high):
        low, high = high, high * 2
    while low < high:
        middle = (low + high) // 2
        if behind(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _changes(api: Api, place: int, limit: int) -> list[Change]:
    changes: list[Change] = api.get("/feed", {"after": str(place), "limit": str(limit)}).body["changes"]
    return changes


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
#: The most payments that ended between two looks of which more is asked for.
MOST_ENDED = 10

#: list of the shop -> its call.
LISTS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "open": ("/transactions", {"open": "true", "limit": str(MOST)}),
    "attention": ("/transactions", {"attention": "true", "limit": str(MOST)}),
    "open_prints": ("/print-jobs", {"open": "true", "limit": str(MOST)}),
    "print_attention": ("/print-jobs", {"attention": "true", "limit": str(MOST)}),
}
PAYMENTS, PRINTS = frozenset({"open", "attention"}), frozenset({"open_prints", "print_attention"})
EVERYTHING = frozenset({"health", "terminals", *LISTS})


class Answered(NamedTuple):
    """The daemon answered."""

    shop: Shop


class NoAnswer(NamedTuple):
    """It did not, and is tried again after so many seconds."""

    reason: str
    pause: float


class Changed(NamedTuple):
    """Lines of the feed; `anew`: it is another database, what was counted of the other one counts no more."""

    changes: tuple[Change, ...]
    anew: bool = False


class Ended(NamedTuple):
    """A payment that the feed said has ended."""

    document: Mapping[str, Any]


class Acted(NamedTuple):
    """What became of an action (`abort` or `reconcile`) on a row."""

    row: Row
    call: str
    document: Mapping[str, Any] | None
    problem: str


class Told(NamedTuple):
    """Everything about a row, or the problem."""

    row: Row
    told: Mapping[str, Any]


class Fault(NamedTuple):
    """A fault of ours: the view ends with it."""

    error: Exception


Message = Answered | NoAnswer | Changed | Ended | Acted | Told | Fault


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
                page = api.get(path, query, seconds=ANSWER_SECONDS).body
                cut = shop.cut - {name} | ({name} if page["next_cursor"] else set())
                rows = page["print_jobs" if name in PRINTS else "transactions"]
                shop = replace(shop, cut=frozenset(cut), **{name: rows})
    except Problem as problem:
        if problem.code != "storage_unavailable":
            raise
        shop = replace(shop, health=api.get("/health", also={503}, seconds=ANSWER_SECONDS).body)
    return shop


def everything_about(api: Api, row: Row) -> Mapping[str, Any]:
    """Return a row's document and its history. Raise Problem or Unreachable."""
    if row.kind is Kind.TERMINAL:
        return {"document": api.get(f"/terminals/{quote(row.identity, safe='')}", seconds=ANSWER_SECONDS).body}
    path = f"/{row.kind.value}/{quote(row.identity, safe='')}"
    document = api.get(path, seconds=ANSWER_SECONDS).body
    told = {"document": document, "history": api.get(f"{path}/history", seconds=ANSWER_SECONDS).body["history"]}
    if row.kind is Kind.PRINT_JOB:
        return told | {"events": [], "chain": []}
    events = api.get(f"{path}/events", seconds=ANSWER_SECONDS).body["events"]
    return told | {"events": events, "chain": links(api, document)}


def words(error: Problem | Unreachable) -> str:
    """Write in one line why something was not answered or not done."""
    return error.reason if isinstance(error, Unreachable) else " ".join(map(str.strip, problem_lines(error)))


class Source:
    """Asks in threads of its own until it is closed; `take` is called in them with each message."""

    def __init__(self, socket: Path, shop: Shop, take: Callable[[Message], None]) -> None:
        """`shop` is the first look, which was taken already."""
        self._socket = socket
        self._shop = shop
        self._take = take
        self._closed = threading.Event()
        self._woken = threading.Event()
        self._lock = threading.Lock()
        self._wanted: set[str] = set()
        self._ended: list[str] = []

    def start(self) -> None:
        """Begin to look and to follow the feed."""
        self._run(self._looking)
        self._run(self._following)

    def close(self) -> None:
        """Let the threads end; one that waits for an answer does not hold the exit."""
        self._closed.set()
        self._woken.set()

    def tell(self, row: Row) -> None:
        """Ask for everything about a row: a `Told` follows."""

        def ask(api: Api) -> None:
            try:
                self._take(Told(row, everything_about(api, row)))
            except (Problem, Unreachable) as error:
                self._take(Told(row, {"problem": f"cannot show it: {words(error)}"}))

        self._run(ask)

    def act(self, row: Row, call: str) -> None:
        """Call `abort` or `reconcile` of a payment: an `Acted` follows."""

        def do(api: Api) -> None:
            try:
                reply = api.post(f"/transactions/{row.identity}/{call}", seconds=RECONCILE_SECONDS)
                self._take(Acted(row, call, reply.body, ""))
            except (Problem, Unreachable) as error:
                self._take(Acted(row, call, None, words(error)))
            self._want(PAYMENTS)

        self._run(do)

    def _run(self, work: Callable[[Api], None]) -> None:
        def body() -> None:
            try:
                with Api(self._socket) as api:
                    work(api)
            except Exception as error:  # noqa: BLE001 - the loop raises it, once the terminal is as it was
                if not self._closed.is_set():
                    self._take(Fault(error))

        # A daemon thread: a blocked read must not hold the exit.
        threading.Thread(target=body, daemon=True).start()

    def _want(self, names: frozenset[str]) -> None:
        with self._lock:
            self._wanted |= names
        self._woken.set()

    def _looking(self, api: Api) -> None:
        pause, wanted = FIRST_PAUSE, PAYMENTS
        full_look_at = time.monotonic() + LOOK_SECONDS
        while not self._closed.is_set():
            try:
                self._shop = look(api, self._shop, wanted)
                self._look_at_ended(api)
            except (Problem, Unreachable) as error:
                self._take(NoAnswer(words(error), pause))
                self._closed.wait(pause)
                pause, wanted = min(2 * pause, LONGEST_PAUSE), EVERYTHING
                continue
            self._take(Answered(self._shop))
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

    def _look_at_ended(self, api: Api) -> None:
        """Ask for the newest of those that ended: a quick one was in no list of open ones."""
        with self._lock:
            ended, self._ended = self._ended[-MOST_ENDED:], []
        for identity in ended:
            with suppress(Problem):  # then it is shown with what the feed said
                self._take(Ended(api.get(f"/transactions/{identity}", seconds=ANSWER_SECONDS).body))

    def _following(self, api: Api) -> None:
        pause, place = FIRST_PAUSE, None
        while not self._closed.is_set():
            try:
                if place is None or not holds(api, place):
                    place = begin(api, datetime.now(UTC) - WINDOW)
                    self._take(Changed((), anew=True))
                for page in past(api, place):
                    place = self._changed(*page)
                pause = FIRST_PAUSE
                for change, _ in live(api, place):
                    place = self._changed(change)
            except (Problem, Unreachable):
                self._want(EVERYTHING)  # whether it is away is for the look to say
            self._closed.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _changed(self, *changes: Change) -> int:
        self._take(Changed(changes))
        recent = datetime.now(UTC) - LINGER
        with self._lock:
            self._ended += [
                change["id"]
                for change in changes
                if change["kind"] == "transaction"
                and change["result"] is not None
                and datetime.fromisoformat(change["at"]) >= recent
            ]
        kinds = {change["kind"] for change in changes}
        self._want(
            (PAYMENTS if "transaction" in kinds else frozenset()) | (PRINTS if kinds - {"transaction"} else set())
        )
        return int(changes[-1]["seq"])
