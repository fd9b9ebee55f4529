"""A kind of record (payments or print jobs): its columns, the SQL for its rows, and its tombstones."""

import sqlite3
from collections.abc import Callable, Sequence
from functools import cache, partial
from operator import attrgetter, itemgetter
from typing import Any, Generic, TypeVar

import msgspec

from posd.base.ids import Channel
from posd.base.json_types import encode
from posd.base.problems import Problem
from posd.records.model import Phase, Pruned, PrunedJob, RecordState
from posd.storage import StaleState
from posd.storage.batch import WriteTransaction


class RecordColumn(msgspec.Struct, frozen=True):
    """Column of a record. `store` and `load` convert a value to the database and back; None: the value is unchanged.

    NULL is always None. `fixed`: only the insert writes the column. `source`: name of the field that is stored, if it
    differs from the name of the column.
    """

    name: str
    store: Callable[[Any], Any] | None = None
    load: Callable[[Any], Any] | None = None
    fixed: bool = False
    source: str = ""


def raw_json(name: str) -> RecordColumn:
    """Return a column for a JSON object of the till: text in the database, bytes in memory."""
    return RecordColumn(name, bytes.decode, str.encode, fixed=True)


def as_json(name: str, kind: Any) -> RecordColumn:
    """Return a column that stores values of the type `kind` as JSON."""
    return RecordColumn(name, lambda value: encode(value).decode(), msgspec.json.Decoder(kind).decode)


def _loaded(loads: Sequence[Callable[[Any], Any] | None], row: Sequence[Any]) -> list[Any]:
    return [value if load is None or value is None else load(value) for load, value in zip(loads, row, strict=True)]


R = TypeVar("R", bound=RecordState)
P = TypeVar("P", bound=Pruned | PrunedJob)


class RecordKind(Generic[R, P]):
    """Access to the rows of one kind of record, and to the tombstones of its removed records.

    The first column is the id.
    """

    def __init__(
        self,
        channel: Channel,
        name: str,
        kind: type[R],
        columns: Sequence[RecordColumn],
        pruned: type[P],
        *,
        word: str,
        id_name: str,
        noun: str,
        ids_in_any_case: bool = False,
    ) -> None:
        """`name`: name of the table. The table of the tombstones has this name with `pruned_` before it.

        `pruned`: type of the tombstones. Its fields are the columns of their table, and the first one is the id.
        `word`: prefix of the names of log events. `id_name`: name of the id in log lines, and `kind` in the feed.
        `noun`: name of a record in sentences. `ids_in_any_case`: ids that differ only in case are equal.
        """
        self.channel, self.word, self.name, self.noun = channel, word, id_name, noun
        self._pruned, self._pruned_table, self._ids_in_any_case = pruned, f"pruned_{name}", ids_in_any_case
        self._kind, self._fields = kind, kind.__struct_fields__
        self._columns = {column.name: column for column in columns}
        sources = {column.name: column.source or column.name for column in columns}
        self.columns = tuple(self._columns)
        self._id = self.columns[0]
        self.id_of: Callable[[R], str] = attrgetter(self._id)
        self._changing = tuple(column.name for column in columns if not column.fixed)
        self._changing_values = attrgetter(*[sources[name] for name in self._changing])
        self._places = itemgetter(*[self.columns.index(field) for field in self._fields])
        self._stores = {column.name: (sources[column.name], column.store) for column in columns}
        self._loads = tuple(self._columns[field].load for field in self._fields)
        self._update = cache(self._update_of)
        # The SQL texts contain only names from the code.
        names, marks = ", ".join(self.columns), ", ".join("?" * len(columns))
        self.select = f"SELECT {names} FROM {name}"  # noqa: S608
        self._table = name
        self._select_by_rowid = f"SELECT rowid, {names} FROM {name} WHERE rowid > ? ORDER BY rowid LIMIT ?"  # noqa: S608
        self._insert = f"INSERT INTO {name} ({names}) VALUES ({marks})"  # noqa: S608

    def read(self, row: Sequence[Any]) -> R:
        """Return the record of a row with all columns."""
        return self._kind(**dict(zip(self._fields, _loaded(self._loads, self._places(row)), strict=True)))

    def reader(self, *columns: str) -> Callable[[Sequence[Any]], list[Any]]:
        """Return a function that loads the values of a row with only these columns."""
        return partial(_loaded, [self._columns[name].load for name in columns])

    def get(self, db: sqlite3.Connection, identity: str) -> R | None:
        """Return the record of an id, or None."""
        row = db.execute(f"{self.select} WHERE {self._id} = ?", (identity,)).fetchone()
        return self.read(row) if row else None

    def require(self, db: sqlite3.Connection, identity: str, cannot: str = "") -> R:
        """Return the record of an id. If there is none, raise the Problem that `missing` returns."""
        if (found := self.get(db, identity)) is None:
            raise self.missing(db, identity, cannot)
        return found

    def by_rowid(self, db: sqlite3.Connection, after: int, limit: int) -> list[tuple[int, R]]:
        """Return the next records after a rowid, each with its rowid, in the order of their inserts."""
        return [(row[0], self.read(row[1:])) for row in db.execute(self._select_by_rowid, (after, limit))]

    def stored(self, record: R, *columns: str) -> list[Any]:
        """Return the stored values of these columns."""
        found = [self._stores[name] for name in columns]
        pairs = [(store, getattr(record, field)) for field, store in found]
        return [value if store is None or value is None else store(value) for store, value in pairs]

    def insert(self, unit: WriteTransaction, record: R) -> None:
        """Insert a new record."""
        unit.db.execute(self._insert, self.stored(record, *self.columns))

    def update(self, unit: WriteTransaction, before: R, after: R) -> R:
        """Update a row from `before` to `after`. Return the new record, or `before` if both are equal.

        Raise StaleState if the row differs from `before`.
        """
        if before == after:
            return before
        changed = msgspec.structs.replace(after, revision=before.revision + 1)
        pairs = zip(self._changing, self._changing_values(before), self._changing_values(changed), strict=True)
        columns = tuple([name for name, old, new in pairs if old != new])
        expected = (self.id_of(before), before.phase, before.revision)
        values = self.stored(changed, *columns)
        if unit.db.execute(self._update(columns), (*values, *expected)).rowcount != 1:
            raise StaleState(f"{expected[0]} is not {before.phase} at revision {before.revision}")
        return changed

    def as_inserted(self, record: R, **others: Any) -> R:
        """Return a record as it was inserted: its fixed columns, the fields in `others`, and phase `starting`."""
        fixed = {name: getattr(record, name) for name, column in self._columns.items() if column.fixed}
        return self._kind(**fixed, updated_at=record.created_at, phase=Phase.STARTING, **others)

    def _update_of(self, columns: tuple[str, ...]) -> str:
        """Return the statement that updates only these columns, so that indexes of other columns are not written."""
        return (
            f"UPDATE {self._table} SET {', '.join(f'{name} = ?' for name in columns)}"  # noqa: S608
            f" WHERE {self._id} = ? AND phase = ? AND revision = ?"
        )

    # Tombstones of removed records, and names of a record.

    def named(self, identity: str) -> dict[str, str]:
        """Return the field of a log line with the id of a record."""
        return {self.name: identity}

    def find_pruned(self, db: sqlite3.Connection, identity: str) -> P | None:
        """Return the tombstone of a removed record, or None."""
        names, collation = self._pruned.__struct_fields__, " COLLATE NOCASE" if self._ids_in_any_case else ""
        query = f"SELECT {', '.join(names)} FROM {self._pruned_table} WHERE {names[0]} = ?{collation}"  # noqa: S608 - SQL of the code
        row = db.execute(query, (identity,)).fetchone()
        return self._pruned(*row) if row else None

    def refuse_pruned(self, db: sqlite3.Connection, identity: str) -> None:
        """Raise Problem `pruned` if retention removed a record with that id."""
        if (found := self.find_pruned(db, identity)) is not None:
            raise found.refusal()

    def missing(self, db: sqlite3.Connection, identity: str, cannot: str = "") -> Problem:
        """Return the problem for an id without a record: removed by retention, or unknown.

        `cannot`: words about the refused action, at the beginning of the text.
        """
        if (found := self.find_pruned(db, identity)) is not None:
            return found.refusal()
        noun = self.name.replace("_", " ")
        return Problem("not_found", f"{cannot}no {noun} {identity} is known here; check the id")

    def keep_pruned(self, db: sqlite3.Connection, found: P) -> None:
        """Insert the tombstone of a removed record."""
        values = msgspec.structs.astuple(found)
        marks = ", ".join("?" * len(values))
        db.execute(f"INSERT OR REPLACE INTO {self._pruned_table} VALUES ({marks})", values).close()  # noqa: S608 - SQL of this file
