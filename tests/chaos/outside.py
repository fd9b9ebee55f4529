"""Rules for what the surroundings did to a payment: damaged events, floods, databases that went back, impostors."""

from collections.abc import Iterator

from tests.chaos.books import Books, Case, Finding
from tests.chaos.damage import TOLD_DAMAGE, UNREADABLE

#: What a flood of events can raise: states without order, bodies that cannot be read, and that it was too much.
FLOOD_ATTENTION = frozenset({"event_limit", "illegal_transition", "unknown_status", "quarantined_event"})
#: What an event can raise that was damaged on its way, and comes again whole where its answer was lost.
DAMAGE_ATTENTION = frozenset({"damaged_event", "event_id_reused", "quarantined_event"})
#: What an id can raise that the database did not know when its events came.
BACK_ATTENTION = frozenset({"orphan", "missing_reference", "amount_differs"})


def possible_attention(case: Case) -> frozenset[str]:
    """Return what the payment can raise by what was done to it from outside."""
    found = FLOOD_ATTENTION if case.flooded else frozenset[str]()
    found |= DAMAGE_ATTENTION if case.damaged else frozenset()
    return found | (BACK_ATTENTION if case.went_back else frozenset())


def of_damaged(case: Case) -> Iterator[tuple[str, str]]:
    """An event of which posd can read what it needs is taken, and posd says that it was damaged."""
    if case.day is not None and "quarantined_event" in case.day.attention:
        return  # its terminal sends what posd cannot use
    for item in case.damaged:
        if item.how == UNREADABLE or item.answer is None:
            continue
        if 400 <= item.answer < 500 and item.answer not in (408, 429):
            yield "lost", f"{item.status} with {item.how} was answered {item.answer}"
        # Where it came whole before, that it came again with other bytes is what is told.
        told = case.attention & {"damaged_event", "event_id_reused"} or case.went_back
        if item.answer == 200 and item.how in TOLD_DAMAGE and not told:
            yield "wrong", f"{item.status} with {item.how} was taken, and posd does not tell that it was damaged"


def of_impostors(books: Books) -> Iterator[Finding]:
    """A device that only claims to be a terminal is sent nothing."""
    for name, ledger in books.impostors.items():
        for line in ledger:
            if line["kind"] in ("start", "search", "abort"):
                yield Finding("wrong", line["client_transaction_id"] or name, f"{name} got the {line['kind']} of it")
