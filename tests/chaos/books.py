"""What all parts of the run have written down, collected by payment."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.chaos.baddays import BadDay
from tests.chaos.ledgers import Line

#: The terminal's final -> posd's result (spec 3.1).
RESULTS = {
    "APPROVAL": "approved",
    "DECLINED": "declined",
    "TERMINAL_REJECTED": "rejected",
    "TERMINAL_CANCELED": "canceled",
}


@dataclass(frozen=True)
class Finding:
    """Something that must not be: `lost`, `doubled` or `wrong`."""

    kind: str
    subject: str
    what: str


@dataclass(frozen=True)
class Said:
    """A final that a terminal told posd, in an event or in the answer of a search."""

    status: str
    reference: str | None
    amount: Decimal | None


@dataclass(frozen=True)
class Window:
    """A database that was replaced by an older one: by one of when (as ledgers write times), when, and how.

    `ended_at` is later by as much as a terminal may have to wait for the answer to what came before.
    """

    made_at: str
    ended_at: str
    how: str

    def has(self, at: str) -> bool:
        """Whether what happened at a moment can be missing from the older one."""
        return self.made_at <= at <= self.ended_at


@dataclass(frozen=True)
class Damaged:
    """An event that was damaged on its way: how, and what posd answered (None: nothing that could be read)."""

    id: str
    status: str
    how: str
    answer: int | None


@dataclass
class Books:
    """What all parts of the run have written down."""

    #: Serial -> the lines of its ledger.
    terminals: Mapping[str, Sequence[Line]]
    #: Till -> the lines of its ledger.
    tills: Mapping[str, Sequence[Line]]
    #: Transactions as the local API shows them.
    transactions: Sequence[dict[str, Any]]
    database: Path
    #: Id -> the key of its sale, of those that have one.
    sales: Mapping[str, str]
    #: Ids that a person closed, with the word, the last one where it was closed again.
    resolved: Mapping[str, str] = field(default_factory=dict)
    #: What the follower of the feed has read: seq -> id, reason, phase, result.
    feed: Mapping[int, tuple[str, str, str, str | None]] = field(default_factory=dict)
    #: Id -> what the terminal has told posd of its end, as posd holds it.
    told: Mapping[str, Sequence[Said]] = field(default_factory=dict)
    #: Id -> the bad day that its terminal had, of those that had one.
    days: Mapping[str, BadDay] = field(default_factory=dict)
    #: For each device that claimed to be a terminal, the lines of its ledger.
    impostors: Mapping[str, Sequence[Line]] = field(default_factory=dict)
    windows: Sequence[Window] = ()
    damaged: Sequence[Damaged] = ()
    #: Ids to whose callback address far too many events were sent.
    flooded: Set[str] = frozenset()
    #: All words of the person on an id.
    words: Mapping[str, Set[str]] = field(default_factory=dict)

    def by_person(self, case: "Case") -> bool:
        """Whether what its till heard was the word of a person."""
        return case.heard is not None and case.heard["result"] in self.words.get(case.id, ())

    def went_back(self, line: Line) -> bool:
        """Whether what was written down then can be missing from the database, for that went back since."""
        return any(window.has(line["at"]) for window in self.windows)


@dataclass
class Case:
    """All that is known of one id."""

    id: str
    starts: list[Line] = field(default_factory=list)
    finals: list[Line] = field(default_factory=list)
    #: The lines of its till.
    till: list[Line] = field(default_factory=list)
    shown: dict[str, Any] | None = None
    told: Sequence[Said] = ()
    day: BadDay | None = None
    #: Something of it may be missing, for the database went back in time meanwhile.
    went_back: bool = False
    damaged: list[Damaged] = field(default_factory=list)
    flooded: bool = False

    @property
    def charges(self) -> list[Line]:
        """The finals of the terminal that took money."""
        return [line for line in self.finals if line["charged"]]

    @property
    def heard(self) -> Line | None:
        """The outcome that the till heard."""
        return next((line for line in reversed(self.till) if line["kind"] == "outcome"), None)

    @property
    def attention(self) -> set[str]:
        """The codes of its open attentions."""
        return {item["code"] for item in self.shown["attention"]} if self.shown else set()


def cases(books: Books) -> dict[str, Case]:
    """Collect what is known by id."""
    found: dict[str, Case] = {}

    def of(identity: str) -> Case:
        return found.setdefault(
            identity, Case(identity, told=books.told.get(identity, ()), day=books.days.get(identity))
        )

    for ledger in books.terminals.values():
        for line in ledger:
            if line.get("client_transaction_id") and books.went_back(line):
                of(line["client_transaction_id"]).went_back = True
            if line["kind"] == "start":
                of(line["client_transaction_id"]).starts.append(line)
            elif line["kind"] == "final":
                of(line["client_transaction_id"]).finals.append(line)
    for ledger in books.tills.values():
        for line in ledger:
            of(line["id"]).till.append(line)
            of(line["id"]).went_back |= books.went_back(line)
    for document in books.transactions:
        of(document["client_transaction_id"]).shown = document
    for damaged in books.damaged:
        of(damaged.id).damaged.append(damaged)
    for identity in books.flooded:
        of(identity).flooded = True
    return found


def delivered(ledgers: Iterable[Sequence[Line]]) -> Iterator[Line]:
    """The attempts that posd has answered 2xx."""
    for ledger in ledgers:
        for line in ledger:
            if line["kind"] == "attempt" and isinstance(line["result"], int) and 200 <= line["result"] <= 299:
                yield line


def number(value: Any) -> Decimal | None:
    return None if value is None else Decimal(str(value))
