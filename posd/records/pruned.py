"""What retention leaves of what it removes: the ids, and how each of them ended (see `records.retention`)."""

import sqlite3
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from posd.base.problems import Problem
from posd.records.retention import Pruned, PrunedJob, job_refusal, refusal

P = TypeVar("P", bound=Pruned | PrunedJob)


class PrunedRecords(msgspec.Struct, Generic[P], frozen=True):
    """What is left of one kind of record. `refusal` returns what a call about one of them is answered.

    The columns of the table are the fields of the row, the first is the id. `noun`: what it is called.
    `ids_in_any_case`: an id that differs in case alone is the same id.
    """

    table: str
    row: type[P]
    refusal: Callable[[P], Problem]
    noun: str
    ids_in_any_case: bool = False

    def find(self, db: sqlite3.Connection, identity: str) -> P | None:
        """Return the tombstone of a pruned record, or None."""
        names, collation = self.row.__struct_fields__, " COLLATE NOCASE" if self.ids_in_any_case else ""
        query = f"SELECT {', '.join(names)} FROM {self.table} WHERE {names[0]} = ?{collation}"  # noqa: S608 - of the code
        row = db.execute(query, (identity,)).fetchone()
        return self.row(*row) if row else None

    def refuse(self, db: sqlite3.Connection, identity: str) -> None:
        """Raise Problem `pruned` where a record of that id was removed."""
        if (found := self.find(db, identity)) is not None:
            raise self.refusal(found)

    def missing(self, db: sqlite3.Connection, identity: str, cannot: str = "") -> Problem:
        """Return the problem of a record that is not here: it was removed, or was never known."""
        if (found := self.find(db, identity)) is not None:
            return self.refusal(found)
        return Problem("not_found", f"{cannot}no {self.noun} {identity} is known here; check the id")

    def keep(self, db: sqlite3.Connection, found: P) -> None:
        """Write down what is left of a record that is removed."""
        values = msgspec.structs.astuple(found)
        marks = ", ".join("?" * len(values))
        db.execute(f"INSERT OR REPLACE INTO {self.table} VALUES ({marks})", values).close()  # noqa: S608 - as above


PAYMENTS = PrunedRecords("pruned_transactions", Pruned, refusal, "transaction")
PRINT_JOBS = PrunedRecords("pruned_print_jobs", PrunedJob, job_refusal, "print job", ids_in_any_case=True)
