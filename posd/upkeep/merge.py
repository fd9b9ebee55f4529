"""Two databases of one schema side by side: rows of the replaced one (`old`) into the one that replaces it.

Rows get new numbers above all that either database gave out, in the old order: a client that follows the feed or a
stream may see a row twice, and misses none.
"""
# ruff: noqa: S608 - what is put into SQL here are names of tables and columns, constants of the code

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from posd.payments import entries as payment_entries
from posd.payments import journal
from posd.payments import rows as transactions
from posd.payments.record import KIND as PAYMENT
from posd.payments.wire import NotAnEvent, read_event
from posd.printing import entries as print_entries
from posd.printing import rows as print_jobs
from posd.printing.record import KIND as PRINT_JOB
from posd.printing.wire import read_webhook
from posd.records.model import Phase
from posd.storage import marks, numbers
from posd.storage.writer import Unit
from posd.upkeep import retention_rows

#: What reading a damaged row raises, beside SQLite's own errors.
MEANINGLESS = (ValueError, TypeError, AttributeError, NotAnEvent)
#: What reading from a damaged database raises.
UNREADABLE = (sqlite3.Error, *MEANINGLESS)

#: Tables whose numbers people and programs hold on to.
NUMBERED = ("events", "journal", "print_journal", "changes", "quarantine")
#: Where the replaced file does not tell its newest numbers, so many are left out: more than it can have given out.
NUMBERS_LEFT_OUT = 1_000_000_000

_ENTRY: msgspec.json.Decoder[payment_entries.Entry] = msgspec.json.Decoder(payment_entries.Entry)
_PRINT_ENTRY: msgspec.json.Decoder[print_entries.Entry] = msgspec.json.Decoder(print_entries.Entry)
_CODES = msgspec.json.Decoder(tuple[str, ...])

Row = Mapping[str, Any]


class Rows(msgspec.Struct, frozen=True):
    """A table of rows that belong to a payment or print job: by which column, what is copied, what makes two the same.

    `read` raises where a row is damaged. `kind` names those of the table that are meant, where it has others too.
    `found_in` is the view by which an owner's are found, where it is not the table; `make_room` lets rows be added to
    those of an owner.
    """

    table: str
    owner: str
    columns: tuple[str, ...]
    same: tuple[str, ...]
    read: Callable[[Row], object]
    kind: str | None = None
    found_in: str | None = None
    make_room: Callable[[sqlite3.Connection, str], None] = lambda _db, _owner: None

    @property
    def source(self) -> str:
        """Where rows are looked for by their owner."""
        return self.found_in or self.table


class Kind(msgspec.Struct, frozen=True):
    """Payments, or print jobs: their table and its key, what is recorded of each, and the lines of the feed.

    `named_in` are the tables that may name one of which there is no row, `pruned` is that of what retention removed.
    `begins_after` is up to which rowid a record is not all that there was.
    `end` is the column of the feed that says how one ended, `ended` the same of the table (as `t`).
    """

    noun: str
    table: str
    key: str
    columns: tuple[str, ...]
    record: tuple[Rows, ...]
    named_in: tuple[str, ...]
    changes: Rows
    pruned: str
    get: Callable[[sqlite3.Connection, str], Any]
    forget: Callable[[sqlite3.Connection, str], None]
    begins_after: Callable[[sqlite3.Connection], int]
    end: str
    ended: str
    unended: str  # what is said where it has no end


def _read_event(row: Row) -> None:
    event = read_event(row["body"])
    identity = event.client_transaction_id or row["client_transaction_id"]  # empty where the event was damaged there
    if (identity, event.event_id, event.status) != (row["client_transaction_id"], row["event_id"], row["status"]):
        raise ValueError("the row is not about the event in it")


def _read_print_entry(row: Row) -> None:
    _PRINT_ENTRY.decode(row["entry"])
    if row["body"] is not None:
        read_webhook(row["body"])


def _changes(kind: str) -> Rows:
    same = ("at", "kind", "id", "reason", "phase", "status", "result", "attention")
    read: Callable[[Row], object] = lambda row: (Phase(row["phase"]), _CODES.decode(row["attention"]))  # noqa: E731
    return Rows("changes", "id", (*same, "terminal"), same, read, kind)


def _begins_after(db: sqlite3.Connection) -> int:
    """See `journal.begins_after`; 0 where the mark could not be read."""
    try:
        return journal.begins_after(db)
    except UNREADABLE:
        return 0


EVENTS = Rows(
    "events",
    "client_transaction_id",
    ("client_transaction_id", "event_id", "received_at", "verdict", "status", "body"),
    ("client_transaction_id", "event_id", "body"),
    _read_event,
    found_in="payment_events",
    make_room=journal.scatter,
)
JOURNAL = Rows(
    "journal",
    "client_transaction_id",
    ("client_transaction_id", "at", "events_before", "entry"),
    ("client_transaction_id", "at", "events_before", "entry"),
    lambda row: _ENTRY.decode(row["entry"]),
)
PRINT_JOURNAL = Rows(
    "print_journal",
    "print_job_id",
    ("print_job_id", "at", "kind", "entry", "body"),
    ("print_job_id", "at", "kind", "entry", "body"),
    _read_print_entry,
)

PAYMENTS = Kind(
    noun="payment",
    table="transactions",
    key="client_transaction_id",
    columns=transactions.COLUMNS,
    record=(EVENTS, JOURNAL),
    named_in=("events", "journal", "leases"),
    changes=_changes(PAYMENT),
    pruned="pruned_transactions",
    get=transactions.get,
    forget=retention_rows.forget,
    begins_after=_begins_after,
    end="result",
    ended="t.outcome ->> 'result'",
    unended="open",
)
PRINT_JOBS = Kind(
    noun="print job",
    table="print_jobs",
    key="print_job_id",
    columns=print_jobs.COLUMNS,
    record=(PRINT_JOURNAL,),
    named_in=("print_journal",),
    changes=_changes(PRINT_JOB),
    pruned="pruned_print_jobs",
    get=print_jobs.get,
    forget=retention_rows.forget_job,
    begins_after=lambda _: 0,
    end="status",
    ended="t.status",
    unended="no state",
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
    """Read a text (`text_factory`); what is none stays bytes, at which reading the row fails."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content


def number_above(db: sqlite3.Connection, *, known: bool) -> None:
    """Let new rows be numbered above all of both databases; `known`: `old` has the newest that it gave out."""
    for table in NUMBERED:
        newest = max(numbers.newest(db, table, schema) for schema in ("main", "old"))
        numbers.go_on_above(db, table, newest if known else newest + NUMBERS_LEFT_OUT)
    numbers.go_on_above(db, EVENTS.table, journal.next_block(db) - 1)  # none that is in the block of a payment


def leave_out_numbers(db: sqlite3.Connection, given_out: int = 0) -> None:
    """Let new rows be numbered above all that a file which cannot be read may have given out.

    `given_out` is the highest number of a change that is known of it.
    """
    for table in NUMBERED:
        numbers.go_on_above(db, table, max(numbers.newest(db, table), given_out) + NUMBERS_LEFT_OUT)


def newer(db: sqlite3.Connection, kind: Kind) -> dict[str, int]:
    """Return what `old` alone has, or of which it has a record that is not here, in its order: id -> rowid in `old`.

    Numbers do not tell that: both may have gone on from an older copy, each with its own.
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


def without_row(db: sqlite3.Connection, kind: Kind) -> set[str]:
    """Return the ids that `old` names somewhere without having a row of them."""
    names = [f"SELECT {kind.key} FROM old.{table}" for table in kind.named_in]
    names.append("SELECT id FROM old.changes WHERE kind = ?")
    query = (
        f"{' UNION '.join(names)} EXCEPT SELECT {kind.key} FROM old.{kind.table}"
        f" EXCEPT SELECT {kind.key} FROM main.{kind.pruned}"
    )
    return {row[0] for row in db.execute(query, (kind.changes.kind,))}


def keep_removed(db: sqlite3.Connection, kind: Kind) -> None:
    """Let what retention had removed from `old` stay removed: its ids come over, and what `db` has of it goes."""
    query = f"SELECT {kind.key} FROM main.{kind.table} JOIN old.{kind.pruned} USING ({kind.key})"
    for (identity,) in db.execute(query).fetchall():
        kind.forget(db, identity)
    db.execute(f"INSERT OR IGNORE INTO main.{kind.pruned} SELECT * FROM old.{kind.pruned}")


def is_known(db: sqlite3.Connection, kind: Kind, identity: str) -> bool:
    """Whether `old` has a row of it, or retention has removed it."""
    return any(_has(db, table, kind.key, identity) for table in (f"old.{kind.table}", f"main.{kind.pruned}"))


def _has(db: sqlite3.Connection, table: str, key: str, identity: str) -> bool:
    return db.execute(f"SELECT 1 FROM {table} WHERE {key} = ?", (identity,)).fetchone() is not None


def rowid(db: sqlite3.Connection, kind: Kind, identity: str) -> int | None:
    """Return the rowid of what is here, None where it is not."""
    row = db.execute(f"SELECT rowid FROM main.{kind.table} WHERE {kind.key} = ?", (identity,)).fetchone()
    return row[0] if row else None


def stands(db: sqlite3.Connection, kind: Kind, identity: str) -> bool:
    """Whether the row here stays: it is the newer one, and not an open one in place of an ended one."""
    query = (
        f"SELECT 1 FROM main.{kind.table} n JOIN old.{kind.table} o USING ({kind.key}) WHERE {kind.key} = ?"
        " AND n.revision > o.revision AND (n.phase = ? OR o.phase <> ?)"
    )
    return db.execute(query, (identity, Phase.FINAL, Phase.FINAL)).fetchone() is not None


def copy_row(db: sqlite3.Connection, kind: Kind, identity: str) -> None:
    """Put the row of `old` in place of the one here, or add it; a payment's `final_event` is a matter of its own."""
    columns = ", ".join(kind.columns)
    source = f"SELECT {columns} FROM old.{kind.table} WHERE {kind.key} = :id"
    if rowid(db, kind, identity) is None:
        db.execute(f"INSERT INTO main.{kind.table} ({columns}) {source}", {"id": identity})
    else:
        db.execute(f"UPDATE main.{kind.table} SET ({columns}) = ({source}) WHERE {kind.key} = :id", {"id": identity})


def has_more_of_request(db: sqlite3.Connection, identity: str) -> bool:
    """Whether the row of a payment here has its request, and that of `old` was made of no more than the id."""
    return _has_request(db, "main", identity) and not _has_request(db, "old", identity)


def copy_payment(db: sqlite3.Connection, identity: str) -> None:
    """Copy the row of a payment, and the words by which it is found."""
    if here := _of_words(db, identity):
        transactions.drop_words(db, identity, *here)
    copy_row(db, PAYMENTS, identity)
    if copied := _of_words(db, identity):
        transactions.keep_words(db, identity, *copied)


def _has_request(db: sqlite3.Connection, schema: str, identity: str) -> bool:
    query = f"SELECT type FROM {schema}.transactions WHERE client_transaction_id = ?"
    row = db.execute(query, (identity,)).fetchone()
    return row is not None and row[0] is not None


def _of_words(db: sqlite3.Connection, identity: str) -> tuple[str, bytes] | None:
    """Return what the words of a payment here are made of, None where it is not here."""
    query = "SELECT created_at, metadata FROM main.transactions WHERE client_transaction_id = ?"
    row = db.execute(query, (identity,)).fetchone()
    return (row[0], str(row[1]).encode()) if row else None


class Appended(msgspec.Struct, frozen=True):
    """What came of `append`: number in `old` -> number here, and the transactions that something was added to."""

    numbers: dict[int | None, int]
    grown: set[str]


def append(db: sqlite3.Connection, rows: Rows, ids: Iterable[str]) -> Appended:
    """Add what `old` has of these ids and `db` has not, where it can be read."""
    _want(db, ids)
    for (owner,) in db.execute("SELECT id FROM temp.wanted").fetchall():
        rows.make_room(db, owner)
    here: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for row in _select(db, "main", rows):
        here[tuple(row[name] for name in rows.same)].append(row["seq"])
    insert = (
        f"INSERT INTO main.{rows.table} (seq, {', '.join(rows.columns)})"
        f" VALUES ({numbers.following(rows.table)}, {', '.join('?' * len(rows.columns))})"
    )
    appended = Appended({}, set())
    for row in _select(db, "old", rows):
        try:
            rows.read(row)
        except UNREADABLE:
            continue  # it stays in the replaced file
        same = here[tuple(row[name] for name in rows.same)]
        if same:
            appended.numbers[row["seq"]] = same.pop(0)
            continue
        appended.numbers[row["seq"]] = db.execute(insert, [row[name] for name in rows.columns]).lastrowid or 0
        appended.grown.add(row[rows.owner])
    return appended


def histories(db: sqlite3.Connection, ids: Iterable[str], rows: Rows) -> dict[str, list[dict[str, Any]]]:
    """Return the changes here (`rows` says of what) with these ids, in order."""
    _want(db, ids)
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in _select(db, "main", rows):
        found[row["id"]].append(row)
    return found


def _want(db: sqlite3.Connection, ids: Iterable[str]) -> None:
    db.execute("DELETE FROM temp.wanted")
    db.executemany("INSERT OR IGNORE INTO temp.wanted VALUES (?)", ((identity,) for identity in ids))


def _select(db: sqlite3.Connection, schema: str, rows: Rows) -> Iterator[dict[str, Any]]:
    names = ("seq", *rows.columns)
    where = f"{rows.owner} IN (SELECT id FROM temp.wanted)" + ("" if rows.kind is None else " AND kind = ?")
    query = f"SELECT {', '.join(names)} FROM {schema}.{rows.source} WHERE {where} ORDER BY seq"
    for values in db.execute(query, () if rows.kind is None else (rows.kind,)):
        yield dict(zip(names, values, strict=True))


def history_behind(db: sqlite3.Connection, kind: Kind) -> list[tuple[str, str, str | None, str | None, str | None]]:
    """Return those whose newest change says otherwise: id, phase and end, and those of the change."""
    return db.execute(
        f"SELECT t.{kind.key}, t.phase, {kind.ended}, c.phase, c.{kind.end} FROM main.{kind.table} t"
        f" LEFT JOIN (SELECT id, phase, {kind.end}, max(seq) FROM main.changes WHERE kind = ? GROUP BY id) c"
        f" ON c.id = t.{kind.key} WHERE (t.phase, {kind.ended}) IS NOT (c.phase, c.{kind.end})",
        (kind.changes.kind,),
    ).fetchall()


def set_final(db: sqlite3.Connection, identity: str, numbers: Mapping[int | None, int]) -> None:
    """Name the event that an outcome rests on, as `old` does: `numbers` are those of its events there and here."""
    query = "SELECT final_event FROM old.transactions WHERE client_transaction_id = ?"
    (number,) = db.execute(query, (identity,)).fetchone()
    db.execute(
        "UPDATE transactions SET final_event = ? WHERE client_transaction_id = ?", (numbers.get(number), identity)
    )


def number_below(db: sqlite3.Connection, kind: Kind, identity: str) -> None:
    """Note that the record of one is not all that there was, so that it cannot be derived again.

    Like payments of before the journal, such rows have rowids up to a mark: these from 0 downwards.
    """
    db.execute(
        f"UPDATE {kind.table} SET rowid = (SELECT min(0, min(rowid)) - 1 FROM {kind.table})"
        f" WHERE {kind.key} = ? AND rowid > ?",
        (identity, kind.begins_after(db)),
    )


def take_leases(db: sqlite3.Connection, lost: Collection[tuple[str, str]], *, sound: bool) -> None:
    """Let open transactions hold their terminals as in `old`, and then, where `old` is damaged, those of `lost`.

    A terminal that another one holds stays with it, unless `old` says that this one had given it up.
    """
    then = db.execute("SELECT terminal, client_transaction_id FROM old.leases").fetchall()
    for terminal, holder in transactions.leases(db).items():
        if _ended(db, holder) or (
            sound and (terminal, holder) not in then and _has(db, "old.transactions", PAYMENTS.key, holder)
        ):
            transactions.give_up_lease(Unit(db), terminal, holder)
    for terminal, identity in (*then, *lost):
        if _ended(db, identity) is False and transactions.lease_holder(db, terminal) is None:
            transactions.take_lease(Unit(db), terminal, identity)


def _ended(db: sqlite3.Connection, identity: str) -> bool | None:
    row = db.execute("SELECT phase FROM main.transactions WHERE client_transaction_id = ?", (identity,)).fetchone()
    return row[0] == Phase.FINAL if row else None


def copy_the_rest(db: sqlite3.Connection) -> None:
    """Add what `old` has in quarantine, of proven searches, addresses of terminals, and of marks."""
    columns = "received_at, channel, subject, reason, peer, body"
    db.execute(
        f"INSERT INTO main.quarantine ({columns}) SELECT {columns} FROM old.quarantine o WHERE NOT EXISTS (SELECT 1"
        " FROM main.quarantine n WHERE (n.channel, n.subject, n.body) = (o.channel, o.subject, o.body)) ORDER BY id"
    )
    db.execute("INSERT OR IGNORE INTO main.proven_searches SELECT * FROM old.proven_searches")
    # What `old` knows of them is newer.
    db.execute("DELETE FROM main.terminal_addresses WHERE terminal IN (SELECT terminal FROM old.terminal_addresses)")
    db.execute("INSERT INTO main.terminal_addresses SELECT * FROM old.terminal_addresses")
    db.execute(
        "INSERT INTO main.marks (at, kind, detail) SELECT at, kind, detail FROM old.marks o"
        " WHERE kind NOT IN ('journal_begins', ?) AND NOT EXISTS"
        " (SELECT 1 FROM main.marks n WHERE (n.at, n.kind, n.detail) = (o.at, o.kind, o.detail)) ORDER BY rowid",
        (marks.BACKUP,),
    )
