"""What comes to one payment, in order: replies to the start, events, searches; and how it then stands (design 4 to 6).

The payment is a charge of 11.20 on SN-0001. The rules by which the orders are filled in are here in short, apart from
posd: an event counts where it is further than all before it; a gap stays where a state is named that no event reached.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from tests.vectors.case import Case
from tests.vectors.wire import ACK, APPROVAL, CANCELED, CARD, DECLINED, REFERENCE, REJECTED, REQUESTED

#: Events by letter: file, state, the state that it names as its previous one.
EVENTS = {
    "A": ("valid-acknowledged", ACK, None),
    "C": ("valid-card-contactless", CARD, ACK),
    "R": ("valid-requested", REQUESTED, CARD),
    "F": ("valid-approval", APPROVAL, REQUESTED),
    "D": ("valid-declined", DECLINED, REQUESTED),
    "X": ("valid-canceled-before-card", CANCELED, ACK),
    "Y": ("valid-canceled-after-card", CANCELED, CARD),
    "J": ("valid-rejected-before-card", REJECTED, ACK),
    "K": ("valid-rejected-after-card", REJECTED, CARD),
}
RANKS = {ACK: 1, CARD: 2, REQUESTED: 3}
WORDS = {
    "A": "ack",
    "C": "card",
    "R": "requested",
    "F": "approval",
    "D": "declined",
    "X": "canceled",
    "Y": "canceled",
    "J": "rejected",
    "K": "rejected",
}

APPROVED: dict[str, Any] = {
    "result": "approved",
    "status": APPROVAL,
    "transaction_reference": REFERENCE,
    "reached_acquirer": True,
    "evidence": ["event"],
    "supersedes": None,
}


def outcome_of(result: str, status: str, *, reached: bool | None = False, **changes: Any) -> dict[str, Any]:
    return (
        APPROVED
        | {"result": result, "status": status, "transaction_reference": None, "reached_acquirer": reached}
        | changes
    )


OUTCOMES = {
    "F": APPROVED,
    "D": outcome_of("declined", DECLINED, reached=True),
    "X": outcome_of("canceled", CANCELED),
    "Y": outcome_of("canceled", CANCELED),
    "J": outcome_of("rejected", REJECTED),
    "K": outcome_of("rejected", REJECTED),
}


def event(name: str) -> dict[str, str]:
    """Return the step of an event: a letter, or the name of a file."""
    return {"event": f"transaction-event/{EVENTS[name][0] if name in EVENTS else name}.json"}


def start(name: str = "acknowledged") -> dict[str, str]:
    """Return the step of the reply to the start."""
    return {"start": f"start-reply/{name}.json"}


def search(name: str) -> dict[str, str]:
    """Return the step of a search."""
    return {"search": f"search-reply/{name}.json"}


def sequence(name: str, about: str, steps: Sequence[dict[str, str]], expect: dict[str, Any], source: str) -> Case:
    return Case("sequence", name, about, source, {"steps": list(steps)}, expect)


def stands(
    status: str | None,
    outcome: dict[str, Any] | None = None,
    attention: Iterable[str] = (),
    verdicts: Sequence[str] = (),
    *,
    phase: str | None = None,
    next_step: str | None = None,
) -> dict[str, Any]:
    usual = "wait" if outcome is None else "done" if outcome["result"] == "approved" else "new_id_ok"
    return {
        "phase": phase or ("final" if outcome else "active"),
        "status": status,
        "next_step": next_step or usual,
        "outcome": outcome,
        "attention": sorted(attention),
        "verdicts": list(verdicts),
    }


def verdicts_of(letters: Sequence[str]) -> list[str]:
    highest, ended, found = 0, False, []
    for letter in letters:
        status = EVENTS[letter][1]
        rank = RANKS.get(status, 9)
        found.append("after_final" if ended else "applied" if rank > highest else "late")
        highest, ended = max(highest, rank), ended or rank == 9
    return found
