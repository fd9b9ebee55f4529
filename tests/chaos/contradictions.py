"""Rules for payments of bad days: their terminals do not always tell what they did, and some tell what they did not.

The terminal's ledger is the truth about money. What it *said* are the finals among the events and the answers of
searches that posd holds. posd has to follow what was said; where the terminal said two things, posd has to want
attention; and where what was said is not what the ledger has, the scenario must be one that falsifies or keeps silent.
"""

from collections.abc import Iterator, Sequence

from tests.chaos.baddays import refuses
from tests.chaos.books import RESULTS, Books, Case, Said, number


def of_bad_requests(case: Case) -> Iterator[tuple[str, str]]:
    """What reached the terminal, and what it charged."""
    assert case.day is not None
    if len(case.charges) > 1 and not case.day.two_ends:
        yield "doubled", f"it was charged {len(case.charges)} times"


def of_bad_outcome(case: Case, books: Books) -> Iterator[tuple[str, str]]:
    """What posd says has ended."""
    assert case.shown is not None
    assert case.day is not None
    outcome = case.shown["outcome"]
    result = outcome["result"]
    if not case.told:
        yield from _of_untold(case, books, result)
        return
    if result not in {RESULTS[said.status] for said in case.told}:
        yield "lost" if case.charges else "wrong", f"it is {result}, and its terminal said {_names(case)}"
    elif result == "approved":
        reference, amount = outcome["transaction_reference"], number(outcome["authorized_amount"])
        approvals = [said for said in case.told if said.status == "APPROVAL"]
        if reference not in {said.reference for said in approvals} or amount not in {said.amount for said in approvals}:
            yield "wrong", f"it is approved with {reference} and {amount}, and its terminal said {approvals}"
    if _differ(case.told) and "conflicting_final" not in case.attention:
        yield "wrong", f"its terminal said {_names(case)}, and posd does not tell that they differ"
    truth = {(final["status"], final["transaction_reference"]) for final in case.finals}
    untrue = {(said.status, said.reference) for said in case.told} - truth
    if untrue and not case.day.falsified:
        yield "wrong", f"posd holds {sorted(map(str, untrue))}, of which its terminal's ledger has nothing"
    if case.charges and result != "approved" and "conflicting_final" not in case.attention and not _denied(case):
        yield "lost", f"it is {result}, and its terminal has charged it"
    if not case.charges and result == "approved" and not case.day.falsified:
        yield "wrong", "it is approved, and its terminal has not charged it"


def _of_untold(case: Case, books: Books, result: str) -> Iterator[tuple[str, str]]:
    """It has ended, and its terminal said nothing of an end."""
    if result == books.resolved.get(case.id):
        return
    if result != "not_started":
        yield "wrong", f"it is {result}, and its terminal said nothing of the kind"
    elif case.charges and not _denied(case):
        yield "lost", "it is not_started, and its terminal has charged it"


def _differ(told: Sequence[Said]) -> bool:
    """Whether finals differ in status, or in the reference where they name one."""
    references = {said.reference for said in told if said.reference is not None}
    return len({said.status for said in told}) > 1 or len(references) > 1


def _denied(case: Case) -> bool:
    """Whether the terminal refused the start and charged it, or can have kept the charge to itself, or denied it."""
    assert case.day is not None
    refused = any(refuses(start["http_status"]) for start in case.starts)
    return refused or case.day.falsified or case.day.two_ends or case.day.silent


def of_bad_opens(case: Case) -> Iterator[tuple[str, str]]:
    """What posd says is open."""
    assert case.day is not None
    if case.told:
        yield "lost" if case.charges else "wrong", f"it is open, and its terminal said {_names(case)}"
    elif case.finals and not case.day.silent and not case.day.falsified:
        final = case.finals[-1]["status"]
        yield "wrong", f"it is open after the last search, and its terminal says {final}"


def of_bad_till(case: Case, books: Books) -> Iterator[tuple[str, str]]:
    """What the till heard."""
    assert case.day is not None
    heard = case.heard
    if heard is None or books.by_person(case):
        return
    result = heard["result"]
    if result == "not_started":
        if case.charges and not _denied(case):
            yield "lost", f"it was charged, and its till heard {result}"
    elif result not in {RESULTS[said.status] for said in case.told}:
        yield "wrong", f"its till heard {result}, and its terminal said {_names(case)}"
    if result == "approved" and not case.charges and not case.day.falsified:
        yield "wrong", "it was not charged, and its till heard approved"


def _names(case: Case) -> str:
    return ", ".join(sorted({f"{said.status} {said.reference or ''}".strip() for said in case.told})) or "nothing"
