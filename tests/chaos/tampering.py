"""Records with one falsification each, and the fault that the comparison must find."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any

from tests.chaos.books import Books, Case, cases


def charged(books: Books) -> Iterator[Case]:
    """Yield charged payments whose tills received the outcome."""
    return (case for case in cases(books).values() if case.charges and case.heard is not None)


def lines(books: Books, kind: str, identity: str) -> list[tuple[list[Any], dict[str, Any]]]:
    """Return the lines of a kind and an id in any ledger, each with its ledger."""
    return [
        (ledger, line)
        for ledger in (*books.terminals.values(), *books.tills.values())
        for line in ledger
        if line["kind"] == kind and identity in (line.get("client_transaction_id"), line.get("id"))
    ]


def unknown(books: Books, case: Case) -> None:
    """Remove it from posd."""
    books.transactions.remove(case.shown)


def not_charged(books: Books, case: Case) -> None:
    """Make posd report it as declined."""
    case.shown["outcome"]["result"] = "declined"


def heard_canceled(books: Books, case: Case) -> None:
    """Make its till receive that it was canceled."""
    for _, line in lines(books, "outcome", case.id):
        line["result"] = "canceled"


def never_stored(books: Books, case: Case) -> None:
    """Add an event that got 2xx but is not in the database."""
    ledger, line = lines(books, "attempt", case.id)[0]
    ledger.append(line | {"event_id": "another", "result": 200})


def sent_twice(books: Books, case: Case) -> None:
    """Make the terminal receive it twice."""
    ledger, line = lines(books, "start", case.id)[0]
    ledger.append(line)


def started_twice(books: Books, case: Case) -> None:
    """Make posd report twice that it was started by this call."""
    ledger, line = lines(books, "answer", case.id)[0]
    ledger[:] = [{**line, "status": 201}, {**line, "status": 201}, *ledger]


def charged_twice(books: Books, case: Case) -> None:
    """Make the terminal charge it twice."""
    ledger, line = lines(books, "final", case.id)[0]
    ledger.append(line)


def sale_charged_twice(books: Books, case: Case) -> None:
    """Give it the basket of another charged payment."""
    other = next(other for other in charged(books) if other.id != case.id)
    books.sales.update({case.id: "basket", other.id: "basket"})


def never_charged(books: Books, case: Case) -> None:
    """Make posd report it approved, while the terminal has no end of it."""
    for ledger, line in lines(books, "final", case.id):
        ledger.remove(line)


def another_reference(books: Books, case: Case) -> None:
    """Give it another reference in posd than at the terminal."""
    case.shown["outcome"]["transaction_reference"] = "another"


def another_amount(books: Books, case: Case) -> None:
    """Make the terminal charge another amount than requested."""
    for _, line in lines(books, "final", case.id):
        line["amount"] += 1
    case.shown["outcome"]["authorized_amount"] += 1


def refused_and_sent(books: Books, case: Case) -> None:
    """Make posd report that nothing was sent."""
    ledger, _ = lines(books, "outcome", case.id)[-1]
    ledger.append({"at": "", "kind": "refused", "id": case.id, "code": "sale_conflict"})


def open_unseen(books: Books, case: Case) -> None:
    """Leave it open in posd without an attention."""
    case.shown.update(phase="active", outcome=None, attention=[])


def sent_and_unknown(books: Books, case: Case) -> None:
    """Make it sent but unknown to posd."""
    for ledger, line in lines(books, "final", case.id):
        ledger.remove(line)
    unknown(books, case)


def open_and_charged(books: Books, case: Case) -> None:
    """Leave it open in posd, although its terminal would have reported the end."""
    case.shown.update(phase="in_doubt", outcome=None, attention=[{"code": "in_doubt"}])


def still_starting(books: Books, case: Case) -> None:
    """Leave it in the phase of its start."""
    case.shown.update(phase="starting", outcome=None, attention=[{"code": "in_doubt"}])


def heard_another_reference(books: Books, case: Case) -> None:
    """Make its till receive another reference than the terminal's."""
    for _, line in lines(books, "outcome", case.id):
        line["reference"] = "another"


def heard_approved(books: Books, case: Case) -> None:
    """Make its till receive approved, while its terminal has not charged it."""
    for _, line in lines(books, "final", case.id):
        line["charged"] = False


def changed_without_a_word(books: Books, case: Case) -> None:
    """Change its outcome after its till received it, without a report by posd."""
    case.shown["outcome"]["result"] = "declined"
    case.shown["attention"] = []


def copied(books: Books) -> Books:
    """Return a copy that can be falsified."""
    names = ("terminals", "tills", "sales", "transactions")
    return replace(books, **{name: deepcopy(getattr(books, name)) for name in names})


def undisturbed(books: Books) -> Case:
    """Return a charged payment that no person, abort or fault affected."""
    return next(case for case in charged(books) if not lines(books, "abort", case.id) and case.id not in books.resolved)


#: Falsification, kind of the finding, and a part of its text.
TAMPERINGS: tuple[tuple[Callable[[Books, Case], None], str, str], ...] = (
    (unknown, "lost", "it was charged, and posd does not know it"),
    (not_charged, "lost", "it is declined, and its terminal says APPROVAL"),
    (heard_canceled, "lost", "its till heard canceled"),
    (never_stored, "lost", "was answered 2xx and is not there"),
    (sent_twice, "doubled", "2 start requests reached terminals"),
    (started_twice, "doubled", "more than once that it was started now"),
    (charged_twice, "doubled", "it was charged 2 times"),
    (sale_charged_twice, "doubled", "the sale was charged 2 times"),
    (never_charged, "wrong", "its terminal knows of no end of it"),
    (another_reference, "wrong", "it is approved with"),
    (another_amount, "wrong", "was asked for, and"),
    (refused_and_sent, "wrong", "nothing should be recorded"),
    (open_unseen, "lost", "and not in attention"),
    (open_and_charged, "wrong", "it is open after the last search"),
    (still_starting, "wrong", "it is still starting"),
    (sent_and_unknown, "lost", "it was sent, and posd does not know it"),
    (unknown, "lost", "posd has shown it to its till, and does not know it"),
    (unknown, "wrong", "it stands in one of database and list"),
    (heard_another_reference, "wrong", "its till heard another reference than the terminal's"),
    (heard_approved, "wrong", "it was not charged, and its till heard approved"),
    (changed_without_a_word, "wrong", "without a word of a correction"),
)
