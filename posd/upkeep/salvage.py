"""Recovery of every recognisable row from a damaged database, page by page.

The file is not opened as a database, so the recovery works even if its header, trees or free list are damaged. Each
page is read on its own, in the state of the last commit in the WAL. A row is recognised by its shape: number and types
of its columns, and a UUID in the column `client_transaction_id`. The rows go into a new database of the same schema.

The id of a print job may be a UUID too. Then the first columns of a row show the kind of record. An index entry counts
as a payment if it matches no known print job, because a lost payment costs money.
"""

import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path

import msgspec

from posd.base.ids import Channel, canonical_uuid, is_print_job_id
from posd.payments.model import Result
from posd.printing import rows as print_rows
from posd.records.model import Phase
from posd.storage.connection import migrate, open_file, schema_version
from posd.storage.pages import CellRecord, Pages, Value, records

#: Pages between two reports of the progress.
PAGES_AT_A_TIME = 256

PHASES = frozenset(Phase)
RESULTS = frozenset(Result)
DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", re.ASCII)


def is_ended(result: Value, day: Value) -> bool:
    """Return whether two values are the result and the day of a removed payment."""
    return result in RESULTS and DAY.fullmatch(str(day)) is not None


class _Column(msgspec.Struct, frozen=True):
    name: str
    type: str
    required: bool
    key: bool  # INTEGER PRIMARY KEY: it is stored as NULL, and the rowid has the value

    def fits(self, value: Value) -> bool:
        if value is None or self.key:
            return value is None and not self.required
        if self.name in IDENTITIES:
            return IDENTITIES[self.name](value)
        return isinstance(value, {"TEXT": str, "INTEGER": int, "BLOB": bytes}[self.type])


def _fits(columns: Sequence[_Column], values: Sequence[Value]) -> bool:
    """Return whether a record can be a row. Columns of a later migration may be missing at the end."""
    if len(values) > len(columns) or any(column.required for column in columns[len(values) :]):
        return False
    return all(column.fits(value) for column, value in zip(columns, values, strict=False))


def is_id(value: Value) -> bool:
    """Return whether a value can be a client_transaction_id."""
    return isinstance(value, str) and canonical_uuid(value) == value


def is_print_id(value: Value) -> bool:
    """Return whether a value can be a print_job_id."""
    return isinstance(value, str) and is_print_job_id(value)


#: Column whose value shows that a row is posd's -> check of a value.
IDENTITIES: Mapping[str, Callable[[Value], bool]] = {"client_transaction_id": is_id, "print_job_id": is_print_id}


def print_job_of(values: Sequence[Value]) -> str | None:
    """Return the print job of a table's row, by its first columns, or None."""
    match values[:4]:
        case [str(identity), None | str(), str(phase), *_] if phase in PHASES:  # print_jobs
            named = identity
        case [None, str(identity), str(at), str(), *_] if is_time(at):  # print_journal
            named = identity
        case [None, str(), print_rows.KIND | Channel.PRINT, str(identity)]:  # changes, quarantine
            named = identity
        case _:
            return None
    return named if is_print_id(named) else None


def is_time(text: str) -> bool:
    """Return whether a text begins with a time in posd's format."""
    return TIME.match(text) is not None


def salvage(path: Path, target: Path, look: Callable[[int, int], None]) -> "Salvaged":
    """Copy the readable rows of the database at `path`, with its WAL, into a new database at `target`.

    `look` is called with the number of processed pages and the total. The files are only read. Raise OSError if they
    cannot be read.
    """
    with Pages(path) as pages, closing(open_file(target)) as db:
        for pragma in ("journal_mode = OFF", "synchronous = OFF", "foreign_keys = OFF"):
            db.execute(f"PRAGMA {pragma}").close()
        _make_schema(db, pages.user_version)
        db.execute("BEGIN")
        found = Salvaged(db)
        for done, number in enumerate(pages, 1):
            for record in records(pages, number):
                found.take(record)
            if done % PAGES_AT_A_TIME == 0:
                look(done, len(pages))
        db.execute("COMMIT")
        found.finish()
        return found


def _make_schema(db: sqlite3.Connection, version: int | None) -> None:
    """Create the tables of a schema version. If the version is unknown, use that of this posd."""
    migrate(db, version if version is not None and 0 < version <= schema_version() else None)
    if "marks" in {row[0] for row in db.execute("SELECT name FROM sqlite_master")}:
        db.execute("DELETE FROM marks")  # only the marks of the damaged file count


class Salvaged:
    """Result of a recovery: number of complete rows, and every id of a transaction or print job that was found.

    `take` sorts the records into tables of a new database. After the last record, `finish` completes the ids.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._tables = _tables(db)
        self.rows = 0
        self.ids: set[str] = set()
        self.print_ids: set[str] = set()
        self._sales: set[Value] = set()
        # Index entries that may belong to transactions or to print jobs: by time and id, and by id. An entry by id may
        # also be from the index of sales, whose keys the till chooses.
        self._by_time: set[tuple[Value, str]] = set()
        self._by_id: set[str] = set()
        self._print_times: set[tuple[Value, str]] = set()

    def take(self, record: CellRecord) -> None:
        """Add the content of one cell.

        In an index entry, at most three texts come before an id, and all of them are the till's.
        """
        if record.rowid is None:
            self._take_entry(record.values)
        else:
            self._take_row(record, record.rowid)

    def _take_row(self, record: CellRecord, rowid: int) -> None:
        values = record.values
        table = next((name for name, columns in self._tables.items() if record.complete and _fits(columns, values)), "")
        if table:
            row = dict(zip((column.name for column in self._tables[table]), values, strict=False))
            self._sales.add(row.get("sale"))
            self._put(table, rowid, row)
        job = print_job_of(values)
        if job is not None:
            self.print_ids.add(job)
            self._print_times |= {(time, job) for time in values if isinstance(time, str) and is_time(time)}
            return
        identity = next((value for value in values[:4] if is_id(value)), None)
        if isinstance(identity, str):
            self.ids.add(identity)

    def _take_entry(self, values: Sequence[Value]) -> None:
        """Add an entry of an index, or a row of a table that is also an index."""
        match values:
            case [str(identity), str(), None | str(), str(result), str(day)] if is_id(identity) and is_ended(
                result, day
            ):
                self._keep("pruned_transactions", values)
            case [str(identity), None | str(), None | str(), str(day)] if is_print_id(identity) and DAY.fullmatch(day):
                self._keep("pruned_print_jobs", values)
            case [Channel.PRINT, str(identity), int()] if is_print_id(identity):  # quarantine
                self.print_ids.add(identity)
            case [*_, str(time), str(identity), int()] if is_time(time) and is_print_id(identity):
                if is_id(identity):
                    self._by_time.add((time, identity))
                else:
                    self.print_ids.add(identity)
            case [_, str(identity)] if is_id(identity):
                self._db.execute("INSERT OR IGNORE INTO leases VALUES (?, ?)", tuple(values))
                self.ids.add(identity)
            case [str(identity), _] if is_id(identity):
                self._by_id.add(identity)
            case _:
                identity = next((str(value) for value in values[:4] if is_id(value)), "")
                self.ids |= {identity} - {""}

    def _keep(self, table: str, values: Sequence[Value]) -> None:
        """Insert the id of a record that retention removed."""
        places = ", ".join("?" * len(values))
        with suppress(sqlite3.OperationalError):  # an older schema has no such table, so the entry is of another table
            insert = f"INSERT OR IGNORE INTO {table} VALUES ({places})"  # noqa: S608 - a constant
            self.rows += self._db.execute(insert, tuple(values)).rowcount

    def _put(self, table: str, rowid: int, row: dict[str, Value]) -> None:
        """Insert a row. If there is a duplicate (on an unused page), keep the newer state."""
        columns = self._tables[table]
        number = next((column.name for column in columns if column.key), "rowid")
        row = row | {number: rowid}
        verb = "INSERT OR IGNORE"
        if "revision" in row:
            owner = columns[0].name
            same = f"SELECT 1 FROM {table} WHERE {owner} = ? AND revision >= ?"  # noqa: S608 - of the schema
            if self._db.execute(same, (row[owner], row["revision"])).fetchone():
                return
            verb = "INSERT OR REPLACE"
        places = ", ".join("?" * len(row))
        with suppress(sqlite3.IntegrityError):  # the row violates the schema, so only its id is kept
            insert = f"{verb} INTO {table} ({', '.join(row)}) VALUES ({places})"
            self.rows += self._db.execute(insert, tuple(row.values())).rowcount

    def finish(self) -> None:
        """Add the ids of index entries that belong to no print job and to no sale."""
        self.ids |= {identity for _, identity in self._by_time - self._print_times}
        self.ids |= {identity for identity in self._by_id if identity not in self._sales} - self.print_ids


def _tables(db: sqlite3.Connection) -> dict[str, tuple[_Column, ...]]:
    """Return the columns of the tables with rowids.

    Tables with an id of posd are first, because their rows are easier to recognise.
    """
    tables = {}
    for name, sql in db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall():
        if sql.endswith("WITHOUT ROWID") or name.startswith("sqlite_"):
            continue
        tables[name] = tuple(
            _Column(column, kind, bool(required) and default is None, bool(key))
            for _, column, kind, required, default, key in db.execute(f"PRAGMA table_info({name})")
        )
    return dict(sorted(tables.items(), key=lambda item: "client_transaction_id" not in {one.name for one in item[1]}))
