"""What retention leaves of what it removes: the ids, and how each of them ended (see `records.retention`)."""

import sqlite3

from posd.base.problems import Problem
from posd.records.retention import Pruned, PrunedJob, job_refusal, refusal


def payment(db: sqlite3.Connection, client_transaction_id: str) -> Pruned | None:
    """Return what is left of a payment that was removed, None where none of that id was."""
    row = db.execute(
        "SELECT client_transaction_id, terminal, type, result, ended_on FROM pruned_transactions"
        " WHERE client_transaction_id = ?",
        (client_transaction_id,),
    ).fetchone()
    return Pruned(*row) if row else None


def print_job(db: sqlite3.Connection, print_job_id: str) -> PrunedJob | None:
    """Return what is left of a print job that was removed, None where none of that id, in any case, was."""
    row = db.execute(
        "SELECT print_job_id, terminal, status, ended_on FROM pruned_print_jobs WHERE print_job_id = ? COLLATE NOCASE",
        (print_job_id,),
    ).fetchone()
    return PrunedJob(*row) if row else None


def refuse_payment(db: sqlite3.Connection, client_transaction_id: str) -> None:
    """Raise Problem `pruned` where a payment of that id was removed."""
    if (found := payment(db, client_transaction_id)) is not None:
        raise refusal(found)


def refuse_print_job(db: sqlite3.Connection, print_job_id: str) -> None:
    """Raise Problem `pruned` where a print job of that id was removed."""
    if (found := print_job(db, print_job_id)) is not None:
        raise job_refusal(found)


def missing_payment(db: sqlite3.Connection, client_transaction_id: str, what: str = "") -> Problem:
    """Return what a call hears about a payment that is not here: removed, or never known."""
    if (found := payment(db, client_transaction_id)) is not None:
        return refusal(found)
    return Problem("not_found", f"{what}no transaction {client_transaction_id} is known here; check the id")


def missing_print_job(db: sqlite3.Connection, print_job_id: str) -> Problem:
    """Return what a call hears about a print job that is not here: removed, or never known."""
    if (found := print_job(db, print_job_id)) is not None:
        return job_refusal(found)
    return Problem("not_found", f"no print job {print_job_id} is known here; check the id")


def keep_payment(db: sqlite3.Connection, found: Pruned) -> None:
    """Write down what is left of a payment that is removed."""
    db.execute(
        "INSERT OR REPLACE INTO pruned_transactions VALUES (?, ?, ?, ?, ?)",
        (found.client_transaction_id, found.terminal, found.type, found.result, found.ended_on),
    ).close()


def keep_print_job(db: sqlite3.Connection, found: PrunedJob) -> None:
    """Write down what is left of a print job that is removed."""
    db.execute(
        "INSERT OR REPLACE INTO pruned_print_jobs VALUES (?, ?, ?, ?)",
        (found.print_job_id, found.terminal, found.status, found.ended_on),
    ).close()
