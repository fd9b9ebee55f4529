"""The commits of a print job that is sent: its intent, its turn, and what the attempt proves."""

from datetime import datetime

from posd.base.problems import Problem
from posd.printing import rows
from posd.printing.entries import Created, Turn
from posd.printing.model import PrintJob
from posd.records import pruned
from posd.records.model import Phase
from posd.storage.batch import Unit
from posd.terminals.attempt import Attempt


def record_intent(unit: Unit, draft: PrintJob) -> bool:
    """Record a new job (runs inside the commit); tell whether its id was free. Raise Problem unknown_original."""
    if rows.get(unit.db, draft.print_job_id) is not None:
        return False
    pruned.refuse_print_job(unit.db, draft.print_job_id)
    if draft.reprint_of is not None and rows.get(unit.db, draft.reprint_of) is None:
        raise Problem(
            "unknown_original",
            f"cannot print: no print job {draft.reprint_of} is known here, which this one should print again "
            "(reprint_of); check its id, or leave it out",
        )
    rows.insert(unit, draft, "intent")
    return True


def take_turn(unit: Unit, identity: str, sent_to: str | None, now: datetime) -> PrintJob | None:
    """Note that the job is about to be sent, to where its terminal is now (runs inside the commit).

    Return it, None where it is no longer to be sent.
    """
    job = rows.get(unit.db, identity)
    if job is None or job.phase is not Phase.STARTING:
        return None  # something of the terminal came for it
    return rows.record(unit, job, Turn(sent_to), now)


def record_attempt(unit: Unit, identity: str, attempt: Attempt, now: datetime) -> PrintJob | None:
    """Record what the attempt proves; return the job, None where it had not come to disk."""
    found = rows.get(unit.db, identity)
    return rows.record(unit, found, Created(attempt), now) if found is not None else None
