"""What is known of the shop, and what the person at the screen looks at. Nothing here reads or writes anything."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, NamedTuple

# How many payments ended, how, and how long they took, counted from the feed.

#: How far back is counted; older payments are forgotten.
WINDOW = timedelta(hours=1)
#: What the rate of the moment is counted over.
NOW = timedelta(minutes=1)
#: The most payments that are remembered: far above what a shop runs in an hour, a bound for what it does not.
MOST = 20_000


class Ended(NamedTuple):
    """A payment that ended: when, how, and after how many seconds."""

    at: datetime
    result: str
    seconds: float


class Summary(NamedTuple):
    """The numbers of the bottom line; `median` and `late` (the 95th percentile) in seconds."""

    ended: int
    approved: int
    last_minute: int
    median: float | None
    late: float | None


class Rates:
    """Counts payments (print jobs have no outcome to count). Feed it every change, in order."""

    def __init__(self) -> None:
        self._begun: OrderedDict[str, datetime] = OrderedDict()
        self._ended: OrderedDict[str, Ended] = OrderedDict()

    def take(self, change: Mapping[str, Any]) -> bool:
        """Count a change of the feed. Return whether a payment ended by it."""
        if change["kind"] != "transaction":
            return False
        identity, at = change["id"], datetime.fromisoformat(change["at"])
        result = change["result"]
        if result is None:
            self._begun.setdefault(identity, at)
            _bound(self._begun)
            return False
        begun = self._begun.pop(identity, None)
        if begun is not None:
            self._ended[identity] = Ended(at, result, (at - begun).total_seconds())
            _bound(self._ended)
        elif identity in self._ended:  # corrected: it ended when it ended
            self._ended[identity] = self._ended[identity]._replace(result=result)
        return begun is not None  # else it ended long ago: acknowledged now, or the like

    def summary(self, now: datetime) -> Summary:
        """Return the numbers as of `now`."""
        while self._ended and next(iter(self._ended.values())).at < now - WINDOW:
            self._ended.popitem(last=False)
        ended = list(self._ended.values())
        times = sorted(item.seconds for item in ended)
        return Summary(
            ended=len(ended),
            approved=sum(item.result == "approved" for item in ended),
            last_minute=sum(item.at > now - NOW for item in ended),
            median=_quantile(times, 50),
            late=_quantile(times, 95),
        )


def _quantile(times: list[float], percent: int) -> float | None:
    """Return the smallest of the times that so many percent do not exceed."""
    return times[-(-len(times) * percent // 100) - 1] if times else None


def _bound(items: "OrderedDict[str, Any]") -> None:
    if len(items) > MOST:
        items.popitem(last=False)


#: A document of the local API.
Document = Mapping[str, Any]

#: How long a payment that ended stays on the screen: a person should see how it ended.
LINGER = timedelta(seconds=10)


class Section(Enum):
    """The lists of the screen."""

    TERMINALS = "TERMINALS"
    OPEN = "OPEN"
    ATTENTION = "ATTENTION"


class Kind(Enum):
    """What a row is about, by the path below which the local API shows it."""

    TERMINAL = "terminals"
    PAYMENT = "transactions"
    PRINT_JOB = "print-jobs"


#: What names a row while the rest of it changes: its list, its kind, its id, the attention's code.
Key = tuple[Section, Kind, str, str]


class Row(NamedTuple):
    """A line of a list. `attention` is that which the row is about; `ended` is what the feed said of the end."""

    section: Section
    kind: Kind
    identity: str
    document: Document
    attention: Document | None = None
    ended: Document | None = None

    @property
    def key(self) -> Key:
        """What names the row."""
        return self.section, self.kind, self.identity, "" if self.attention is None else self.attention["code"]


@dataclass(frozen=True, slots=True)
class Shop:
    """What the daemon answered last. `cut` names the lists of which there is more than was asked for."""

    health: Document = field(default_factory=dict)
    version: str = ""
    terminals: Sequence[Document] = ()
    open: Sequence[Document] = ()
    attention: Sequence[Document] = ()
    open_prints: Sequence[Document] = ()
    print_attention: Sequence[Document] = ()
    cut: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Away:
    """The daemon cannot be asked: why, since when, and when it is tried again."""

    reason: str
    since: datetime
    again_at: datetime


@dataclass
class State:
    """All that is known: what the daemon answered, whether it still does, what the feed told."""

    shop: Shop = field(default_factory=Shop)
    away: Away | None = None
    rates: Rates = field(default_factory=Rates)
    _ended: dict[str, Row] = field(default_factory=dict)

    def answered(self, shop: Shop) -> None:
        """Take what the daemon answered."""
        self.shop = shop
        self.away = None

    def unreachable(self, reason: str, now: datetime, pause: float) -> None:
        """Take that it did not answer, and is tried again after `pause` seconds."""
        since = now if self.away is None else self.away.since
        self.away = Away(reason, since, now + timedelta(seconds=pause))

    def changed(self, change: Document, now: datetime) -> None:
        """Take a change of the feed."""
        ended = self.rates.take(change)
        if not ended or datetime.fromisoformat(change["at"]) < now - LINGER:
            return
        unknown = {"type": None, "amount": None, "created_at": None}
        known = next((item for item in self.shop.open if item["client_transaction_id"] == change["id"]), unknown)
        document = {**known, "client_transaction_id": change["id"], "terminal": change["terminal"]}
        self._ended[change["id"]] = Row(Section.OPEN, Kind.PAYMENT, change["id"], document, ended=change)

    def known(self, document: Document) -> None:
        """Take a payment that ended as the daemon shows it."""
        row = self._ended.get(document["client_transaction_id"])
        if row is not None:
            self._ended[row.identity] = row._replace(document=document)

    def forget_feed(self) -> None:
        """Count anew: what was counted is of another database, or will be told again."""
        self.rates = Rates()
        self._ended.clear()

    def rows(self, now: datetime) -> list[Row]:
        """Return the rows of all lists in their order on the screen."""
        return [*self._terminals(), *self._open(now), *self._attention()]

    def _terminals(self) -> list[Row]:
        runs = {item["terminal"]: item for item in self.shop.open if not item["released"]}
        rows = [
            Row(Section.TERMINALS, Kind.TERMINAL, item["serial"], {**item, "runs": runs.get(item["serial"])})
            for item in self.shop.terminals
        ]
        # Where there is not room for all, those that cannot be reached are to be seen.
        return sorted(rows, key=lambda row: row.document["reachable"] is not False)

    def _open(self, now: datetime) -> list[Row]:
        self._ended = {
            identity: row
            for identity, row in self._ended.items()
            if row.ended is not None and datetime.fromisoformat(row.ended["at"]) >= now - LINGER
        }
        payments = [
            Row(Section.OPEN, Kind.PAYMENT, item["client_transaction_id"], item)
            for item in self.shop.open
            if item["client_transaction_id"] not in self._ended
        ]
        prints = [Row(Section.OPEN, Kind.PRINT_JOB, item["print_job_id"], item) for item in self.shop.open_prints]
        oldest_first = sorted([*payments, *prints], key=lambda row: str(row.document["created_at"]))
        return [*oldest_first, *reversed(self._ended.values())]

    def _attention(self) -> list[Row]:
        rows = [
            Row(Section.ATTENTION, kind, item[name], item, attention)
            for kind, name, items in (
                (Kind.PAYMENT, "client_transaction_id", self.shop.attention),
                (Kind.PRINT_JOB, "print_job_id", self.shop.print_attention),
            )
            for item in items
            for attention in item["attention"]
        ]
        rows.sort(key=lambda row: str((row.attention or {}).get("since")), reverse=True)
        return sorted(rows, key=lambda row: row.document["phase"] == "final")  # open ones first: they block


class Page(NamedTuple):
    """What covers the lists: the help, or everything about one row (None until the daemon told)."""

    title: str
    of: Row | None = None
    told: Document | None = None


class Status(NamedTuple):
    """What is said on the bottom line, in which style, until when (None: until something else is said)."""

    text: str
    style: str = ""
    until: datetime | None = None


@dataclass
class Ui:
    """What the person looks at. `selected` is the row that keys act on, once one was chosen."""

    selected: Key | None = None
    place: int = 0
    page: Page | None = None
    scroll: int = 0
    status: Status | None = None
    #: A question that y answers with yes and any other key with no, and the row that it is about.
    asking: tuple[str, Row] | None = None


def marked(ui: Ui, rows: Sequence[Row]) -> Row | None:
    """Return the row that is marked: the one chosen; while none was, what presses most."""
    if ui.selected is not None:
        return next((row for row in rows if row.key == ui.selected), None)
    for section in (Section.ATTENTION, Section.OPEN):
        for row in rows:
            if row.section is section:
                return row
    return rows[0] if rows else None


def settle(ui: Ui, rows: Sequence[Row]) -> None:
    """Mark the row in the place of one that is gone: of the same list, else of what presses most."""
    if ui.selected is None:
        return
    keys = [row.key for row in rows]
    if ui.selected in keys:
        ui.place = keys.index(ui.selected)
        return
    same = [place for place, key in enumerate(keys) if key[0] is ui.selected[0]]
    ui.selected = keys[min(max(ui.place, same[0]), same[-1])] if same else None


def move(ui: Ui, rows: Sequence[Row], steps: int) -> None:
    """Mark another row: so many further, at most to the first or the last."""
    chosen = marked(ui, rows)
    if chosen is not None:
        place = [row.key for row in rows].index(chosen.key)
        ui.selected = rows[min(max(0, place + steps), len(rows) - 1)].key


def next_section(ui: Ui, rows: Sequence[Row]) -> None:
    """Mark the first row of the next list that has any."""
    chosen = marked(ui, rows)
    if chosen is None:
        return
    order = list(Section)
    start = order.index(chosen.section)
    for section in [*order[start + 1 :], *order[: start + 1]]:
        for row in rows:
            if row.section is section:
                ui.selected = row.key
                return
