"""Records of all parts of a run, collected by payment."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.chaos.ledgers import Line


@dataclass(frozen=True)
class Finding:
    """A fault in the records: `lost`, `doubled` or `wrong`."""

    kind: str
    subject: str
    what: str


@dataclass
class Books:
    """Records of all parts of a run."""

    #: Serial -> the lines of its ledger.
    terminals: Mapping[str, Sequence[Line]]
    #: Till -> the lines of its ledger.
    tills: Mapping[str, Sequence[Line]]
    #: Transactions as the local API shows them.
    transactions: Sequence[dict[str, Any]]
    database: Path
    #: Id -> the key of its sale, if it has one.
    sales: Mapping[str, str]
    #: Ids that the operator closed, with the result.
    resolved: Mapping[str, str] = field(default_factory=dict)

    def by_person(self, case: "Case") -> bool:
        """Return whether its till received an operator's decision."""
        return case.heard is not None and case.heard["result"] == self.resolved.get(case.id)


@dataclass
class Case:
    """All records of one id."""

    id: str
    starts: list[Line] = field(default_factory=list)
    finals: list[Line] = field(default_factory=list)
    #: The lines of its till.
    till: list[Line] = field(default_factory=list)
    shown: dict[str, Any] | None = None

    @property
    def charges(self) -> list[Line]:
        """Final events of the terminal that charged money."""
        return [line for line in self.finals if line["charged"]]

    @property
    def heard(self) -> Line | None:
        """Outcome that the till received."""
        return next((line for line in reversed(self.till) if line["kind"] == "outcome"), None)

    @property
    def attention(self) -> set[str]:
        """The codes of its open attentions."""
        return {item["code"] for item in self.shown["attention"]} if self.shown else set()


def cases(books: Books) -> dict[str, Case]:
    """Collect all records by id."""
    found: dict[str, Case] = {}

    def of(identity: str) -> Case:
        return found.setdefault(identity, Case(identity))

    for ledger in books.terminals.values():
        for line in ledger:
            if line["kind"] == "start":
                of(line["client_transaction_id"]).starts.append(line)
            elif line["kind"] == "final":
                of(line["client_transaction_id"]).finals.append(line)
    for ledger in books.tills.values():
        for line in ledger:
            of(line["id"]).till.append(line)
    for document in books.transactions:
        of(document["client_transaction_id"]).shown = document
    return found


def delivered(ledgers: Iterable[Sequence[Line]]) -> Iterator[Line]:
    """Yield the deliveries that posd answered with 2xx."""
    for ledger in ledgers:
        for line in ledger:
            if line["kind"] == "attempt" and isinstance(line["result"], int) and 200 <= line["result"] <= 299:
                yield line


def number(value: Any) -> Decimal | None:
    return None if value is None else Decimal(str(value))
