"""The print jobs of two databases side by side: rows of the replaced one (`old`) into the one that replaces it.

As `posd.upkeep.merge` has it for payments; a print job has one journal, and holds no terminal.
"""
# ruff: noqa: S608 - what is put into SQL here are names of tables and columns, constants of the code

import sqlite3
from collections.abc import Iterable

import msgspec

from posd.printing import rows as print_jobs
from posd.printing.entries import Entry
from posd.printing.events import read_webhook
from posd.upkeep import merge
from posd.upkeep.merge import Row, Rows

_ENTRY: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(Entry)


def _read(row: Row) -> None:
    _ENTRY.decode(row["entry"])
    if row["body"] is not None:
        read_webhook(row["body"])


JOURNAL = Rows(
    "print_journal",
    "print_job_id",
    ("print_job_id", "at", "kind", "entry", "body"),
    ("print_job_id", "at", "kind", "entry", "body"),
    _read,
)
CHANGES = msgspec.structs.replace(merge.CHANGES, kind=print_jobs.KIND)


def newer(db: sqlite3.Connection) -> list[str]:
    """Return the ids of the jobs that `old` alone has, or has more of, in its order."""
    rows = db.execute(
        "SELECT o.print_job_id FROM old.print_jobs o"
        " LEFT JOIN main.print_jobs n ON n.print_job_id = o.print_job_id"
        " WHERE (n.revision IS NULL OR o.revision > n.revision OR (o.revision = n.revision AND"
        " (SELECT count(*) FROM old.print_journal x WHERE x.print_job_id = o.print_job_id)"
        " > (SELECT count(*) FROM main.print_journal x WHERE x.print_job_id = o.print_job_id)))"
        " AND o.print_job_id NOT IN (SELECT print_job_id FROM main.pruned_print_jobs) ORDER BY o.rowid"
    )
    return [identity for (identity,) in rows]


def without_row(db: sqlite3.Connection) -> set[str]:
    """Return the ids that `old` names somewhere without having a row of them."""
    names = "SELECT print_job_id FROM old.print_journal UNION SELECT id FROM old.changes WHERE kind = ?"
    query = (
        f"{names} EXCEPT SELECT print_job_id FROM old.print_jobs EXCEPT SELECT print_job_id FROM main.pruned_print_jobs"
    )
    return {row[0] for row in db.execute(query, (print_jobs.KIND,))}


def is_removed(db: sqlite3.Connection, identity: str) -> bool:
    """Whether retention has removed that job."""
    query = "SELECT 1 FROM main.pruned_print_jobs WHERE print_job_id = ?"
    return db.execute(query, (identity,)).fetchone() is not None


def in_old(db: sqlite3.Connection, identity: str) -> bool:
    """Whether `old` has a row of that job."""
    return db.execute("SELECT 1 FROM old.print_jobs WHERE print_job_id = ?", (identity,)).fetchone() is not None


def rowid(db: sqlite3.Connection, identity: str) -> int | None:
    """Return the rowid of a job here."""
    row = db.execute("SELECT rowid FROM main.print_jobs WHERE print_job_id = ?", (identity,)).fetchone()
    return row[0] if row else None


def old_rowid(db: sqlite3.Connection, identity: str) -> int:
    """Return the rowid of a job that `old` has."""
    row = db.execute("SELECT rowid FROM old.print_jobs WHERE print_job_id = ?", (identity,)).fetchone()
    return int(row[0])


def copy_rows(db: sqlite3.Connection, ids: Iterable[str]) -> None:
    """Put the rows of `old` in place of those here, or add them."""
    columns = ", ".join(print_jobs.COLUMNS)
    for identity in ids:
        source = f"SELECT {columns} FROM old.print_jobs WHERE print_job_id = :id"
        if rowid(db, identity) is None:
            db.execute(f"INSERT INTO main.print_jobs ({columns}) {source}", {"id": identity})
        else:
            db.execute(
                f"UPDATE main.print_jobs SET ({columns}) = ({source}) WHERE print_job_id = :id", {"id": identity}
            )


def number_below(db: sqlite3.Connection, identity: str) -> None:
    """Note that the record of a job is not all that there was, so that it cannot be derived again: a rowid below 1."""
    db.execute(
        "UPDATE print_jobs SET rowid = (SELECT min(0, min(rowid)) - 1 FROM print_jobs)"
        " WHERE print_job_id = ? AND rowid > 0",
        (identity,),
    )


def history_behind(db: sqlite3.Connection) -> list[tuple[str, str, str | None, str | None, str | None]]:
    """Return the jobs whose newest change says otherwise: id, phase and status, and those of the change."""
    return db.execute(
        "SELECT j.print_job_id, j.phase, j.status, c.phase, c.status FROM main.print_jobs j"
        " LEFT JOIN (SELECT id, phase, status, max(seq) FROM main.changes WHERE kind = ? GROUP BY id) c"
        " ON c.id = j.print_job_id WHERE (j.phase, j.status) IS NOT (c.phase, c.status)",
        (print_jobs.KIND,),
    ).fetchall()
