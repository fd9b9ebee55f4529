"""Retention: what may be removed when its days have passed, and what posd keeps of it (architecture, Promises).

A payment or print job is removed with all its inputs and results once it has ended and needs no person any more.
Its id stays for the life of the database, with terminal, type, result and day. It is never started again, and a call
that asks for it gets how it ended.
"""

import msgspec

from posd.base.problems import Problem

#: The code of the problem for a call with a removed id.
CODE = "pruned"


class Pruned(msgspec.Struct, frozen=True):
    """What is left of a payment that was removed."""

    client_transaction_id: str
    terminal: str
    type: str | None
    result: str
    ended_on: str


class PrunedJob(msgspec.Struct, frozen=True):
    """What is left of a print job that was removed; `status` is None if it was not accepted."""

    print_job_id: str
    terminal: str | None
    status: str | None
    ended_on: str


def refusal(pruned: Pruned) -> Problem:
    """Return the answer to a call about a removed payment; it must not be mistaken for "nothing was charged"."""
    kind = pruned.type or "payment"
    paid = pruned.result == "approved"
    advice = "The customer was charged then: do not charge again for it" if paid else "The customer was not charged"
    return Problem(
        CODE,
        f"{pruned.client_transaction_id} was used before: a {kind} on terminal {pruned.terminal or 'unknown'} that "
        f"ended {pruned.result} on {pruned.ended_on}. {advice}. Its record was removed at the end of "
        "its retention; this call did nothing. For a new payment choose a new id",
        result=pruned.result,
        terminal=pruned.terminal,
        transaction_type=pruned.type,
        ended_on=pruned.ended_on,
    )


def job_refusal(pruned: PrunedJob) -> Problem:
    """Return the answer to a call about a removed print job."""
    return Problem(
        CODE,
        f"{pruned.print_job_id} was used before: a print job that ended {pruned.status or 'without being accepted'} on "
        f"{pruned.ended_on}. Its record was removed at the end of its retention; this call did "
        "nothing. For a new document choose a new id",
        print_status=pruned.status,
        terminal=pruned.terminal,
        ended_on=pruned.ended_on,
    )
