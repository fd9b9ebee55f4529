"""The judge of payments and of their database. The ledger of a payment's terminal has the truth about the money."""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from tests.rig.events import RESULTS

Line = dict[str, Any]

#: Sets of evidence for a payment without a final event: an unsent request, a refusal, both rounds of a proof, an
#: operator's decision.
PROOFS = ({"unsent"}, {"refusal"}, {"abort", "search"}, {"operator"})


@dataclass
class Case:
    """All records of one payment."""

    id: str
    #: Number of start requests that reached a terminal.
    starts: int = 0
    #: Whether the terminal ran the payment.
    ran: bool = False
    #: Final events in the terminal's ledger.
    finals: list[Line] = field(default_factory=list)
    #: The payment in posd's API, or None.
    shown: Any = None
    #: Statuses of posd's successful replies to starts.
    answers: list[int] = field(default_factory=list)
    #: Outcomes that the till received.
    told: list[Line] = field(default_factory=list)
    #: Code of the problem after which the till gave the payment up.
    refused: str | None = None
    #: Result that an operator recorded.
    resolved: str | None = None

    @property
    def charges(self) -> list[Line]:
        """Final events that charged money."""
        return [line for line in self.finals if line["charged"]]

    @property
    def attention(self) -> set[str]:
        """The codes of the open attentions."""
        return {item["code"] for item in self.shown["attention"]} if self.shown else set()


class Cases(dict[str, Case]):
    """Cases by id. A new id gets a new case."""

    def __missing__(self, identity: str) -> Case:
        return self.setdefault(identity, Case(identity))

    def read(self, ledger: Iterable[Line]) -> None:
        """Add the starts and ends in a terminal's ledger."""
        for line in ledger:
            if line["kind"] == "start":
                case = self[line["client_transaction_id"]]
                case.starts, case.ran = case.starts + 1, case.ran or line["runs"]
            elif line["kind"] == "final":
                self[line["client_transaction_id"]].finals.append(line)


def payment_faults(case: Case) -> Iterator[str]:
    """Yield the contradictions between the records of a payment."""
    counts = {
        "start requests reached terminals": case.starts,
        "final events were made by the terminal": len(case.finals),
        "replies 201 were sent to the till": case.answers.count(201),
    }
    yield from (f"{count} {what}" for what, count in counts.items() if count > 1)
    if case.refused is not None and (case.shown or case.starts):
        yield f"posd refused the payment ({case.refused}), and recorded or sent it"
    if case.shown is None:
        if case.starts or case.answers or case.told:
            yield f"posd does not know a payment with {case.starts} starts and {len(case.charges)} charges"
        return
    outcome = case.shown["outcome"]
    result = outcome and outcome["result"]
    if (case.shown["phase"] == "final") != (outcome is not None):
        yield f"the phase is {case.shown['phase']}, and the outcome is {outcome}"
    if bool(case.charges) != (result == "approved"):
        yield f"the terminal made {len(case.charges)} charges, and posd has {result}"
    yield from _of_ended(case, outcome) if case.finals else _of_not_ended(case, outcome)
    for told in case.told:
        if told["result"] not in (result, case.resolved):
            yield f"the till received {told['result']}, and posd has {result}"
        elif told["result"] == result and told["transaction_reference"] != outcome["transaction_reference"]:
            yield f"the till received another reference than {outcome['transaction_reference']}"


def _of_ended(case: Case, outcome: Any) -> Iterator[str]:
    """Yield the faults of a payment that its terminal has ended."""
    final = case.finals[-1]
    names = ("status", "transaction_reference", "ticket_number")
    true = (RESULTS[final["status"]], *(final[name] for name in names), _number(final["amount"]))
    said = outcome and (outcome["result"], *(outcome[name] for name in names), _number(outcome["authorized_amount"]))
    if said != true:
        yield f"the terminal has {true}, and posd has {said} ({case.shown['phase']})"
    requested = sum(_number(value) or Decimal() for value in case.shown["amount"].values())
    if final["charged"] and requested != true[-1]:
        yield f"the till requested {requested}, and the terminal charged {true[-1]}"


def _of_not_ended(case: Case, outcome: Any) -> Iterator[str]:
    """Yield the faults of a payment without a final event. posd must have a proof, or report doubt."""
    phase = case.shown["phase"]
    if outcome is None:
        doubtful = phase == "in_doubt" and "in_doubt" in case.attention
        if not (doubtful or (case.ran and phase != "starting" and case.attention)):
            yield f"the payment is open ({phase}, run: {case.ran}) with the attentions {case.attention}"
        return
    kinds = {item["kind"] for item in outcome["evidence"]}
    if outcome["result"] not in ("not_started", case.resolved) or kinds not in PROOFS:
        yield f"the terminal has no end, and posd has {outcome['result']} by {kinds}"
    if ("unsent" in kinds and case.starts) or ("operator" in kinds and case.resolved is None):
        yield f"the evidence is {kinds}, and the terminal received {case.starts} requests"


def _number(value: Any) -> Decimal | None:
    return None if value is None else Decimal(str(value))


#: Rows that no database may have: a query for subject and detail, and what is wrong.
RULES = (
    ("SELECT 'database', integrity_check FROM pragma_integrity_check WHERE integrity_check <> 'ok'", "damaged:"),
    ("""SELECT "table", parent FROM pragma_foreign_key_check""", "refers to a missing row of"),
    (
        "SELECT client_transaction_id, phase FROM transactions WHERE (phase = 'final') <> (outcome IS NOT NULL)",
        "a final payment without an outcome, or the reverse:",
    ),
    (
        "SELECT client_transaction_id, status FROM events GROUP BY client_transaction_id, body HAVING count(*) > 1",
        "the database has an event twice:",
    ),
    (
        """SELECT client_transaction_id, leases.terminal FROM leases JOIN transactions USING (client_transaction_id)
        WHERE phase = 'final'""",
        "the ended payment still holds its terminal",
    ),
    (
        """SELECT id, before || ' to ' || result FROM (SELECT id, result, attention,
        lag(result) OVER (PARTITION BY id ORDER BY seq) AS before FROM changes WHERE result IS NOT NULL)
        WHERE before <> result AND (before = 'approved' OR attention NOT LIKE '%"outcome_corrected"%')""",
        "the outcome changed from",
    ),
)


def row_faults(db: sqlite3.Connection, rules: Sequence[tuple[str, str]] = RULES) -> Iterator[str]:
    """Yield the rows that the rules forbid."""
    for query, what in rules:
        yield from (f"{subject}: {what} {detail}" for subject, detail in db.execute(query))


def lost_events(db: sqlite3.Connection, ledger: Iterable[Line]) -> Iterator[str]:
    """Yield the acknowledged events of a terminal's ledger that the database lacks."""
    stored = set(db.execute("SELECT client_transaction_id, event_id FROM events"))
    for line in ledger:
        acknowledged = line["kind"] == "attempt" and isinstance(line["result"], int) and line["result"] // 100 == 2
        if acknowledged and (line["client_transaction_id"], line["event_id"]) not in stored:
            yield f"{line['client_transaction_id']}: posd acknowledged {line['status']} and has lost it"
