"""What `posd watch` shows: the daemon's answers, the rows of the three lists, the figures of the last hour. No I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, NamedTuple

#: A document of the local API.
Document = Mapping[str, Any]

#: How far back payments are counted.
WINDOW = timedelta(hours=1)
#: How long a payment that ended stays on the screen: a person should see how it ended.
LINGER = timedelta(seconds=10)


class ListName(Enum):
    """The lists of the screen."""

    TERMINALS = "TERMINALS"
    OPEN = "OPEN"
    ATTENTION = "ATTENTION"


class Kind(Enum):
    """What a row is about, by the path below which the local API shows it."""

    TERMINAL = "terminals"
    PAYMENT = "transactions"
    PRINT_JOB = "print-jobs"


class Row(NamedTuple):
    """A line of a list. `attention` is that which the row is about; `runs` is the open payment on a terminal."""

    section: ListName
    kind: Kind
    identity: str
    document: Document
    attention: Document | None = None
    runs: Document | None = None

    @property
    def key(self) -> tuple[ListName, Kind, str, str]:
        """What names the row while the rest of it changes."""
        return self.section, self.kind, self.identity, "" if self.attention is None else self.attention["code"]

    @property
    def outcome(self) -> Document | None:
        """The outcome of a payment that has ended."""
        return self.document.get("outcome") if self.kind is Kind.PAYMENT else None


@dataclass(frozen=True, slots=True)
class Shop:
    """The daemon's last answers. `recent`: payments that ended; `cut`: the lists that are longer than was asked for."""

    health: Document = field(default_factory=dict)
    version: str = ""
    terminals: Sequence[Document] = ()
    open: Sequence[Document] = ()
    attention: Sequence[Document] = ()
    recent: Sequence[Document] = ()
    totals: Sequence[Document] = ()
    open_prints: Sequence[Document] = ()
    print_attention: Sequence[Document] = ()
    cut: frozenset[str] = frozenset()

    def rows(self, now: datetime) -> list[Row]:
        """Return the rows of all lists in their order on the screen."""
        return [*self._terminals(), *self._open(now), *self._attention()]

    def _terminals(self) -> list[Row]:
        runs = {item["terminal"]: item for item in self.open if not item["released"]}
        rows = [
            Row(ListName.TERMINALS, Kind.TERMINAL, item["serial"], item, runs=runs.get(item["serial"]))
            for item in self.terminals
        ]
        # Where there is not room for all, those that cannot be reached are to be seen.
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
        return sorted(rows, key=lambda row: row.document["phase"] == "final")  # open ones first: they block


def decided_at(payment: Document) -> datetime:
    """Return when a payment ended."""
    return datetime.fromisoformat(payment["outcome"]["decided_at"])


class Summary(NamedTuple):
    """The figures of the last hour; `median` and `late` (the 95th percentile) in seconds, of the newest payments."""

    ended: int
    approved: int
    last_minute: int
    median: float
    late: float


def summary(shop: Shop, now: datetime) -> Summary | None:
    """Return the figures; None if no payment ended."""
    ended = [(decided_at(item), datetime.fromisoformat(item["created_at"])) for item in shop.recent]
    times = sorted((end - begun).total_seconds() for end, begun in ended)
    if not times:
        return None
    return Summary(
        ended=sum(item["count"] for item in shop.totals),
        approved=sum(item["count"] for item in shop.totals if item["result"] == "approved"),
        last_minute=sum(end > now - timedelta(minutes=1) for end, _ in ended),
        median=_quantile(times, 50),
        late=_quantile(times, 95),
    )


def _quantile(times: Sequence[float], percent: int) -> float:
    """Return the smallest of the times that so many percent do not exceed."""
    return times[-(-len(times) * percent // 100) - 1]


class Away(NamedTuple):
    """Why the daemon cannot be asked, since when, and when it is tried again."""

    reason: str
    since: datetime
    again_at: datetime


@dataclass
class WatchState:
    """The last answers, and whether the daemon still answers."""

    shop: Shop = field(default_factory=Shop)
    away: Away | None = None
    #: Number of changes of this state.
    version: int = 0
    #: Ids that the feed named since the last frame.
    changed_ids: set[str] = field(default_factory=set)

    def add_changed(self, identity: str) -> None:
        """Record that the feed named it."""
        self.changed_ids.add(identity)

    def set_shop(self, shop: Shop) -> None:
        """Replace the daemon's answers."""
        self.shop, self.away = shop, None
        self.version += 1

    def set_unreachable(self, reason: str, now: datetime, pause: float) -> None:
        """Record that the daemon does not answer. The next attempt is in `pause` seconds."""
        since = now if self.away is None else self.away.since
        self.away = Away(reason, since, now + timedelta(seconds=pause))
        self.version += 1
