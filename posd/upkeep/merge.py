"""Merge of two databases of one schema: rows of the replaced database (`old`) are added to its replacement.

Rows receive new numbers above all numbers of both databases, in the old order. A client of the feed or of a stream may
receive a row twice, but misses no row.
"""
# ruff: noqa: S608 - only names of tables and columns from the code are inserted into SQL here

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from posd.payments import entries as payment_entries
from posd.payments import journal, reprocess
from posd.payments import record as payment_record
from posd.payments import rows as transactions
from posd.payments.wire import NotAnEvent, read_event
from posd.printing import entries as print_entries
from posd.printing import rows as print_rows
from posd.printing.wire import read_webhook
from posd.records.model import Phase
from posd.records.quarantine import Differing
from posd.records.service import CallsInFlight
from posd.records.table import RecordKind
from posd.storage import changes, marks
from posd.storage.batch import WriteTransaction
from posd.upkeep import retention

#: Errors from decoding a damaged row. SQLite's own errors are not included.
MEANINGLESS = (ValueError, TypeError, AttributeError, NotAnEvent)
#: Errors from reading a damaged database.
UNREADABLE = (sqlite3.Error, *MEANINGLESS)

#: Tables with row numbers that people and programs store.
NUMBERED = ("events", "journal", "print_journal", "changes", "quarantine")
#: If the newest row numbers of the replaced file are unknown, this many row numbers are skipped: more than that file
#: can have used.
NUMBERS_LEFT_OUT = 1_000_000_000

_ENTRY: msgspec.json.Decoder[payment_entries.Entry] = msgspec.json.Decoder(payment_entries.Entry)
_PRINT_ENTRY: msgspec.json.Decoder[print_entries.Entry] = msgspec.json.Decoder(print_entries.Entry)
_CODES = msgspec.json.Decoder(tuple[str, ...])

Row = Mapping[str, Any]


class MergedRows(msgspec.Struct, frozen=True):
    """Table of rows that belong to a payment or print job.

    `owner`: column with the id. `columns`: copied columns. `same`: columns that identify a row. `read` raises if a row
    is damaged. `kind`: selects the rows of one kind in a table with several kinds. `found_in`: the view for a search by
    owner, if it is not the table. `make_room`: makes room for more rows of an owner.
    """

    table: str
    owner: str
    columns: tuple[str, ...]
    same: tuple[str, ...]
    read: Callable[[Row], object]
    kind: str | None = None
    found_in: str | None = None
    make_room: Callable[[sqlite3.Connection, str], None] | None = None

    @property
    def source(self) -> str:
        """Table or view for a search by owner."""
        return self.found_in or self.table


class MergedKind(msgspec.Struct, frozen=True):
    """Payments or print jobs: their rows, their table, their record, and their lines of the feed.

    `named_in`: tables that may contain an id without a row in `table`. `copy`: replaces a row by that of `old`, or adds
    that row. `end`: column of the feed with the end of a record. `ended`: SQL for the same value in the table of the
    records (as `t`). `requested`: column that is NULL if a row has only the id of a record. `differing`: returns the
    differences between a row and its record, and a function that stores the derived values; raises one of UNREADABLE,
    or AssertionError. `note`: adds a state to the feed. `last_incomplete_rowid`: returns the rowid of the last
    incomplete record.
    """

    rows: RecordKind[Any, Any]
    table: str
    record: tuple[MergedRows, ...]
    named_in: tuple[str, ...]
    copy: Callable[[sqlite3.Connection, "MergedKind", str], None]
    forget: Callable[[sqlite3.Connection, str], None]
    end: str
    ended: str
    unended: str  # word for a record without an end
    requested: str
    differing: Callable[[sqlite3.Connection, Any, str], tuple[Differing, Callable[[WriteTransaction], object]]]
    note: Callable[[WriteTransaction, Any, str, str], None]
    last_incomplete_rowid: Callable[[sqlite3.Connection], int] = lambda _: 0

    @property
    def key(self) -> str:
        """Column with the id."""
        return self.rows.columns[0]

    @property
    def pruned(self) -> str:
        """Table of the ids whose records retention removed."""
        return f"pruned_{self.table}"

    @property
    def changes(self) -> MergedRows:
        """Lines of the feed."""
        same = ("at", "kind", "id", "reason", "phase", "status", "result", "attention")
        return MergedRows("changes", "id", (*same, "terminal"), same, _read_change, self.rows.name)


def _read_event(row: Row) -> None:
    event = read_event(row["body"])
    identity = event.client_transaction_id or row["client_transaction_id"]  # empty if the event was damaged in `old`
    if (identity, event.event_id, event.status) != (row["client_transaction_id"], row["event_id"], row["status"]):
        raise ValueError("the columns of the row differ from the event in it")


def _read_print_entry(row: Row) -> None:
    _PRINT_ENTRY.decode(row["entry"])
    if row["body"] is not None:
        read_webhook(row["body"])


def _read_change(row: Row) -> None:
    Phase(row["phase"])
    _CODES.decode(row["attention"])


def _last_incomplete_rowid(db: sqlite3.Connection) -> int:
    """Return `journal.last_incomplete_rowid`, or 0 if the mark cannot be read."""
    try:
        return journal.last_incomplete_rowid(db)
    except UNREADABLE:
        return 0


EVENTS = MergedRows(
    "events",
    "client_transaction_id",
    ("client_transaction_id", "event_id", "received_at", "verdict", "status", "body"),
    ("client_transaction_id", "event_id", "body"),
    _read_event,
    found_in="payment_events",
    make_room=journal.scatter,
)
JOURNAL = MergedRows(
    "journal",
    "client_transaction_id",
    ("client_transaction_id", "at", "events_before", "entry"),
    ("client_transaction_id", "at", "events_before", "entry"),
    lambda row: _ENTRY.decode(row["entry"]),
)
PRINT_JOURNAL = MergedRows(
    "print_journal",
    "print_job_id",
    ("print_job_id", "at", "kind", "entry", "body"),
    ("print_job_id", "at", "kind", "entry", "body"),
    _read_print_entry,
)


@contextmanager
def attached(db: sqlite3.Connection, old: Path) -> Iterator[None]:
    """Attach `old`, read-only, and run the block in one transaction of `db` (which was opened by URI)."""
    db.text_factory = text
    db.execute("CREATE TEMP TABLE IF NOT EXISTS wanted (id TEXT PRIMARY KEY)")
    db.execute("ATTACH ? AS old", (f"{old.absolute().as_uri()}?mode=ro",))
    try:
        db.execute("BEGIN")
        yield
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")
        db.execute("DETACH old")
        db.text_factory = str


def text(content: bytes) -> str | bytes:
    """Decode a text (`text_factory`). An invalid text stays bytes, so that reading the row fails."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content


def number_above(db: sqlite3.Connection, *, known: bool) -> None:
    """Skip all row numbers that either database has used.

    `known`: whether `old` has the newest number that it used.
    """
    for table in NUMBERED:
        newest = max(changes.newest_number(db, table, schema) for schema in ("main", "old"))
        changes.advance_sequence(db, table, newest if known else newest + NUMBERS_LEFT_OUT)
    changes.advance_sequence(db, EVENTS.table, journal.next_block(db) - 1)  # skip the rest of the newest block


def leave_out_numbers(db: sqlite3.Connection, given_out: int = 0) -> None:
    """Skip all row numbers that an unreadable file may have used.

    `given_out`: highest known number of a change in that file.
    """
    for table in NUMBERED:
        changes.advance_sequence(db, table, max(changes.newest_number(db, table), given_out) + NUMBERS_LEFT_OUT)


def newer(db: sqlite3.Connection, kind: MergedKind) -> dict[str, int]:
    """Return the rows of `old` that `db` lacks or has in an older state, as id -> rowid, in the order of `old`.

    A row is also included if its record has rows in `old` that `db` lacks. The numbers of the rows cannot show this,
    because both files may have continued from the same older copy.
    """
    key = kind.key
    more = " OR ".join(
        f"EXISTS (SELECT 1 FROM old.{rows.source} x WHERE x.{key} = o.{key} AND NOT EXISTS (SELECT 1"
        f" FROM main.{rows.source} y WHERE {' AND '.join(f'y.{name} IS x.{name}' for name in rows.same)}))"
        for rows in kind.record
    )
    query = (
        f"SELECT o.{key}, o.rowid FROM old.{kind.table} o LEFT JOIN main.{kind.table} n ON n.{key} = o.{key}"
        f" WHERE (n.revision IS NULL OR o.revision > n.revision OR {more})"
        f" AND o.{key} NOT IN (SELECT {key} FROM main.{kind.pruned}) ORDER BY o.rowid"
    )
    return dict(db.execute(query).fetchall())


def without_row(db: sqlite3.Connection, kind: MergedKind) -> set[str]:
    """Return the ids in `old` that have no row."""
    names = [f"SELECT {kind.key} FROM old.{table}" for table in kind.named_in]
    names.append("SELECT id FROM old.changes WHERE kind = ?")
    query = (
        f"{' UNION '.join(names)} EXCEPT SELECT {kind.key} FROM old.{kind.table}"
        f" EXCEPT SELECT {kind.key} FROM main.{kind.pruned}"
    )
    return {row[0] for row in db.execute(query, (kind.changes.kind,))}


def keep_removed(db: sqlite3.Connection, kind: MergedKind) -> None:
    """Apply the removals of retention in `old`: copy the ids of removed records, and delete these records in `db`."""
    query = f"SELECT {kind.key} FROM main.{kind.table} JOIN old.{kind.pruned} USING ({kind.key})"
    for (identity,) in db.execute(query).fetchall():
        kind.forget(db, identity)
    db.execute(f"INSERT OR IGNORE INTO main.{kind.pruned} SELECT * FROM old.{kind.pruned}")


def is_known(db: sqlite3.Connection, kind: MergedKind, identity: str) -> bool:
    """Return whether `old` has a row of the id, or retention has removed that row."""
    return any(_has(db, table, kind.key, identity) for table in (f"old.{kind.table}", f"main.{kind.pruned}"))


def _has(db: sqlite3.Connection, table: str, key: str, identity: str) -> bool:
    return db.execute(f"SELECT 1 FROM {table} WHERE {key} = ?", (identity,)).fetchone() is not None


def rowid(db: sqlite3.Connection, kind: MergedKind, identity: str) -> int | None:
    """Return the rowid of an id in `db`, or None."""
    row = db.execute(f"SELECT rowid FROM main.{kind.table} WHERE {kind.key} = ?", (identity,)).fetchone()
    return row[0] if row else None


def stands(db: sqlite3.Connection, kind: MergedKind, identity: str) -> bool:
    """Return whether the row in `db` stays and is not replaced by the row of `old`.

    The row stays if it is newer, unless it is open and the row of `old` has ended. The row also stays if it has the
    till's request, while `old` has only the id.
    """
    query = (
        f"SELECT 1 FROM main.{kind.table} n JOIN old.{kind.table} o USING ({kind.key}) WHERE {kind.key} = ?"
        f" AND (n.{kind.requested} IS NOT NULL AND o.{kind.requested} IS NULL"
        " OR n.revision > o.revision AND (n.phase = ? OR o.phase <> ?))"
    )
    return db.execute(query, (identity, Phase.FINAL, Phase.FINAL)).fetchone() is not None


def copy_row(db: sqlite3.Connection, kind: MergedKind, identity: str) -> None:
    """Replace the row in `db` by the row of `old`, or add that row. `final_event` of a payment is set separately."""
    columns = ", ".join(kind.rows.columns)
    source = f"SELECT {columns} FROM old.{kind.table} WHERE {kind.key} = :id"
    if rowid(db, kind, identity) is None:
        db.execute(f"INSERT INTO main.{kind.table} ({columns}) {source}", {"id": identity})
    else:
        db.execute(f"UPDATE main.{kind.table} SET ({columns}) = ({source}) WHERE {kind.key} = :id", {"id": identity})


def copy_payment(db: sqlite3.Connection, kind: MergedKind, identity: str) -> None:
    """Copy the row of a payment, and its words of the search index."""
    retention.drop_words(db, identity)
    copy_row(db, kind, identity)
    if copied := retention.words_of(db, identity):
        transactions.keep_words(db, identity, *copied)


PAYMENTS = MergedKind(
    transactions.PAYMENT,
    "transactions",
    record=(EVENTS, JOURNAL),
    named_in=("events", "journal", "leases", "unread_approvals"),
    copy=copy_payment,
    forget=retention.forget,
    end="result",
    ended="t.outcome ->> 'result'",
    unended="open",
    requested="type",
    differing=partial(reprocess.differing, outstanding=CallsInFlight()),
    note=payment_record.note,
    last_incomplete_rowid=_last_incomplete_rowid,
)
PRINT_JOBS = MergedKind(
    print_rows.PRINT_JOB,
    "print_jobs",
    record=(PRINT_JOURNAL,),
    named_in=("print_journal",),
    copy=copy_row,
    forget=retention.forget_job,
    end="status",
    ended="t.status",
    unended="no state",
    requested="print_job_id",
    differing=print_rows.differing,
    note=print_rows.note,
)


#: Number of a row in `old` -> its number in `db`.
Numbers = Mapping[int | None, int]


def append(db: sqlite3.Connection, rows: MergedRows, ids: Iterable[str]) -> tuple[Numbers, set[str]]:
    """Add the readable rows of these ids that are in `old` and missing in `db`.

    Return the numbers of these rows, and the ids with new rows.
    """
    _want(db, ids)
    if rows.make_room is not None:
        for (owner,) in db.execute("SELECT id FROM temp.wanted").fetchall():
            rows.make_room(db, owner)
    here: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for row in _select(db, "main", rows):
        here[tuple(row[name] for name in rows.same)].append(row["seq"])
    insert = (
        f"INSERT INTO main.{rows.table} (seq, {', '.join(rows.columns)})"
        f" VALUES ({changes.next_number(rows.table)}, {', '.join('?' * len(rows.columns))})"
    )
    numbers, grown = dict[int | None, int](), set[str]()
    for row in _select(db, "old", rows):
        try:
            rows.read(row)
        except UNREADABLE:
            continue  # the damaged row stays in the replaced file
        same = here[tuple(row[name] for name in rows.same)]
        if same:
            numbers[row["seq"]] = same.pop(0)
            continue
        numbers[row["seq"]] = db.execute(insert, [row[name] for name in rows.columns]).lastrowid or 0
        grown.add(row[rows.owner])
    return numbers, grown


def histories(db: sqlite3.Connection, ids: Iterable[str], rows: MergedRows) -> dict[str, list[dict[str, Any]]]:
    """Return id -> its changes in `db`, in order. `rows` names the table of the changes."""
    _want(db, ids)
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in _select(db, "main", rows):
        found[row["id"]].append(row)
    return found


def _want(db: sqlite3.Connection, ids: Iterable[str]) -> None:
    db.execute("DELETE FROM temp.wanted")
    db.executemany("INSERT OR IGNORE INTO temp.wanted VALUES (?)", ((identity,) for identity in ids))


def _select(db: sqlite3.Connection, schema: str, rows: MergedRows) -> Iterator[dict[str, Any]]:
    names = ("seq", *rows.columns)
    where = f"{rows.owner} IN (SELECT id FROM temp.wanted)" + ("" if rows.kind is None else " AND kind = ?")
    query = f"SELECT {', '.join(names)} FROM {schema}.{rows.source} WHERE {where} ORDER BY seq"
    for values in db.execute(query, () if rows.kind is None else (rows.kind,)):
        yield dict(zip(names, values, strict=True))


def history_behind(
    db: sqlite3.Connection, kind: MergedKind
) -> list[tuple[str, str, str | None, str | None, str | None]]:
    """Return the rows that differ from their newest change: id, phase and end, then phase and end of the change."""
    return db.execute(
        f"SELECT t.{kind.key}, t.phase, {kind.ended}, c.phase, c.{kind.end} FROM main.{kind.table} t"
        f" LEFT JOIN (SELECT id, phase, {kind.end}, max(seq) FROM main.changes WHERE kind = ? GROUP BY id) c"
        f" ON c.id = t.{kind.key} WHERE (t.phase, {kind.ended}) IS NOT (c.phase, c.{kind.end})",
        (kind.changes.kind,),
    ).fetchall()


def set_final(db: sqlite3.Connection, identity: str, numbers: Numbers) -> None:
    """Set the event of an outcome as in `old`. `numbers`: number of an event in `old` -> number in `db`."""
    query = "SELECT final_event FROM old.transactions WHERE client_transaction_id = ?"
    (number,) = db.execute(query, (identity,)).fetchone()
    db.execute(
        "UPDATE transactions SET final_event = ? WHERE client_transaction_id = ?", (numbers.get(number), identity)
    )


def number_below(db: sqlite3.Connection, kind: MergedKind, identity: str) -> None:
    """Mark a record as incomplete, so that it is not derived again.

    The record gets a negative rowid, because every record up to the rowid `last_incomplete_rowid` counts as incomplete.
    """
    db.execute(
        f"UPDATE {kind.table} SET rowid = (SELECT min(0, min(rowid)) - 1 FROM {kind.table})"
        f" WHERE {kind.key} = ? AND rowid > ?",
        (identity, kind.last_incomplete_rowid(db)),
    )


def take_leases(db: sqlite3.Connection, lost: Collection[tuple[str, str]], *, sound: bool) -> None:
    """Set the leases of open transactions as in `old`. If `old` is damaged, set those in `lost` too.

    If another transaction holds the terminal in `db`, that transaction keeps it, unless `old` shows its release.
    """
    then = db.execute("SELECT terminal, client_transaction_id FROM old.leases").fetchall()
    for terminal, holder in transactions.leases(db).items():
        if _ended(db, holder) or (
            sound and (terminal, holder) not in then and _has(db, "old.transactions", PAYMENTS.key, holder)
        ):
            transactions.give_up_lease(WriteTransaction(db), terminal, holder)
    for terminal, identity in (*then, *lost):
        if _ended(db, identity) is False and transactions.lease_holder(db, terminal) is None:
            transactions.take_lease(WriteTransaction(db), terminal, identity)


def _ended(db: sqlite3.Connection, identity: str) -> bool | None:
    row = db.execute("SELECT phase FROM main.transactions WHERE client_transaction_id = ?", (identity,)).fetchone()
    return row[0] == Phase.FINAL if row else None


def copy_the_rest(db: sqlite3.Connection) -> None:
    """Add from `old` the quarantine, proven searches, unread approvals, terminal addresses and marks."""
    columns = "received_at, channel, subject, reason, peer, body"
    db.execute(
        f"INSERT INTO main.quarantine ({columns}) SELECT {columns} FROM old.quarantine o WHERE NOT EXISTS (SELECT 1"
        " FROM main.quarantine n WHERE (n.channel, n.subject, n.body) = (o.channel, o.subject, o.body)) ORDER BY id"
    )
    db.execute("INSERT OR IGNORE INTO main.proven_searches SELECT * FROM old.proven_searches")
    db.execute("INSERT OR IGNORE INTO main.unread_approvals SELECT * FROM old.unread_approvals")
    # The addresses in `old` are newer.
    db.execute("DELETE FROM main.terminal_addresses WHERE terminal IN (SELECT terminal FROM old.terminal_addresses)")
    db.execute("INSERT INTO main.terminal_addresses SELECT * FROM old.terminal_addresses")
    db.execute(
        "INSERT INTO main.marks (at, kind, detail) SELECT at, kind, detail FROM old.marks o"
        " WHERE kind NOT IN ('journal_begins', ?) AND NOT EXISTS"
        " (SELECT 1 FROM main.marks n WHERE (n.at, n.kind, n.detail) = (o.at, o.kind, o.detail)) ORDER BY rowid",
        (marks.BACKUP,),
    )
