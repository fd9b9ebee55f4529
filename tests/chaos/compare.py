"""Comparison of the ledgers of terminals, tills and daemon.

| word    | what it means here                                                                                        |
| ------- | --------------------------------------------------------------------------------------------------------- |
| lost    | a charge that posd or its till does not have as approved; an event that was answered 2xx and is not there |
| doubled | an id that was sent more than once, or was charged twice; a sale that was charged twice                   |
| wrong   | anything else that contradicts the terminal's ledger, and what is open without attention                  |
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal

from tests.chaos.books import Books, Case, Finding, cases, number
from tests.chaos.stored import of_database
from tests.support.events import RESULTS


def compare(books: Books) -> list[Finding]:
    """Return all faults in the records."""
    known = cases(books)
    found = [Finding(kind, case.id, what) for case in known.values() for kind, what in _of_case(case, books)]
    found += _of_sales(known, books.sales)
    return [*found, *of_database(books)]


def _of_case(case: Case, books: Books) -> Iterator[tuple[str, str]]:
    yield from _of_requests(case)
    if case.shown is None:
        yield from _of_unknown(case)
    elif case.shown["phase"] == "final":
        yield from _of_outcome(case, books)
    else:
        yield from _of_open(case)
    yield from _of_till(case, books)


def _of_requests(case: Case) -> Iterator[tuple[str, str]]:
    """Yield faults in the requests that reached the terminals."""
    if len(case.starts) > 1:
        yield "doubled", f"{len(case.starts)} start requests reached terminals"
    if len(case.charges) > 1:
        yield "doubled", f"it was charged {len(case.charges)} times"
    if sum(line["kind"] == "answer" and line["status"] == 201 for line in case.till) > 1:
        yield "doubled", "posd has told its till more than once that it was started now"


def _of_unknown(case: Case) -> Iterator[tuple[str, str]]:
    """Faults of payments that posd does not know."""
    if case.charges:
        yield "lost", "it was charged, and posd does not know it"
    elif case.starts:
        yield "lost", "it was sent, and posd does not know it"
    if any(line["kind"] in ("answer", "outcome") for line in case.till):
        yield "lost", "posd has shown it to its till, and does not know it"


def _of_outcome(case: Case, books: Books) -> Iterator[tuple[str, str]]:
    """Faults of payments that ended in posd."""
    assert case.shown is not None
    outcome = case.shown["outcome"]
    result = outcome["result"]
    if not case.finals:
        if case.id in books.resolved and result == books.resolved[case.id]:
            return
        if result != "not_started":
            yield "wrong", f"it is {result}, and its terminal knows of no end of it"
        return
    final = case.finals[-1]
    if result != RESULTS[final["status"]]:
        kind = "lost" if case.charges else "wrong"
        yield kind, f"it is {result}, and its terminal says {final['status']}"
    elif case.charges:
        said = (outcome["transaction_reference"], outcome["ticket_number"], number(outcome["authorized_amount"]))
        true = (final["transaction_reference"], final["ticket_number"], number(final["amount"]))
        if said != true:
            yield "wrong", f"it is approved with {said}, and its terminal says {true}"
        asked = sum((number(value) or Decimal() for value in case.shown["amount"].values()), Decimal())
        if asked != true[2]:
            yield "wrong", f"{asked} was asked for, and {true[2]} was charged"


def _of_open(case: Case) -> Iterator[tuple[str, str]]:
    """Faults of payments that are open in posd."""
    assert case.shown is not None
    if not case.attention:
        yield "lost" if case.charges else "wrong", f"it is open ({case.shown['phase']}) and not in attention"
    if case.shown["phase"] == "starting":
        yield "wrong", "it is still starting"
    if case.finals:
        final = case.finals[-1]["status"]
        yield "wrong", f"it is open after the last search, and its terminal says {final}"


def _of_till(case: Case, books: Books) -> Iterator[tuple[str, str]]:
    """Compare the outcome that the till received with the terminal's record."""
    if case.till and case.till[-1]["kind"] == "refused" and (case.starts or case.shown):
        yield "wrong", f"it was refused ({case.till[-1]['code']}): nothing should be recorded, and nothing sent"
    heard = case.heard
    if heard is None:
        return
    by_person = books.by_person(case)
    if case.charges and not by_person:
        if heard["result"] != "approved":
            yield "lost", f"it was charged, and its till heard {heard['result']}"
        elif heard["reference"] != case.charges[-1]["transaction_reference"]:
            yield "wrong", "its till heard another reference than the terminal's"
    elif heard["result"] == "approved" and not case.charges:
        yield "wrong", "it was not charged, and its till heard approved"
    now = case.shown["outcome"]["result"] if case.shown and case.shown["outcome"] else None
    if now != heard["result"] and "outcome_corrected" not in case.attention:
        yield "wrong", f"its till heard {heard['result']}, and now it is {now}, without a word of a correction"


def _of_sales(known: Mapping[str, Case], sales: Mapping[str, str]) -> Iterator[Finding]:
    charged = Counter(sales[case.id] for case in known.values() if case.charges and case.id in sales)
    return (
        Finding("doubled", sale, f"the sale was charged {count} times") for sale, count in charged.items() if count > 1
    )
