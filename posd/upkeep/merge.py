"""Two databases of one schema side by side: rows of the replaced one (`old`) into the one that replaces it.

Rows get new numbers above all that either database gave out, in the old order: whoever follows the feed or a stream
may see a row twice, and misses none.
"""
# ruff: noqa: S608 - what is put into SQL here are names of tables and columns, constants of the code

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from posd.payments import journal, rows
from posd.payments import rows as transactions
from posd.payments.entries import Entry
from posd.payments.record import KIND as PAYMENT
from posd.payments.wire import NotAnEvent, read_event
from posd.records.model import Phase
from posd.storage import marks
from posd.storage.batch import Unit
from posd.upkeep import retention

#: What a row raises that is damaged, when somebody reads it.
UNREADABLE = (sqlite3.Error, ValueError, TypeError, AttributeError, NotAnEvent)

#: Tables whose numbers people and programs hold on to.
NUMBERED = ("events", "journal", "print_journal", "changes", "quarantine")
#: Where the replaced file does not tell its newest numbers, so many are left out: more than it can have given out.
NUMBERS_LEFT_OUT = 1_000_000_000

_ENTRY: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(Entry)
_CODES = msgspec.json.Decoder(tuple[str, ...])

Row = Mapping[str, Any]


class Rows(msgspec.Struct, frozen=True):
    """A table of rows that belong to a transaction: by which column, what is copied, what makes two rows the same.

    `kind` names those of the table that are meant, where it has others too.
    """

    table: str
    owner: str
    columns: tuple[str, ...]
    same: tuple[str, ...]
    read: Callable[[Row], object]  # raises where the row is damaged
    kind: str | None = None


def _read_event(row: Row) -> None:
    event = read_event(row["body"])
    named = (event.client_transaction_id, event.event_id, event.status)
    if named != (row["client_transaction_id"], row["event_id"], row["status"]):
        raise ValueError("the row is not about the event in it")


EVENTS = Rows(
    "events",
    "client_transaction_id",
    ("client_transaction_id", "event_id", "received_at", "verdict", "status", "body"),
    ("client_transaction_id", "event_id", "body"),
    _read_event,
)
JOURNAL = Rows(
    "journal",
    "client_transaction_id",
    ("client_transaction_id", "at", "events_before", "entry"),
    ("client_transaction_id", "at", "events_before", "entry"),
    lambda row: _ENTRY.decode(row["entry"]),
)
CHANGES = Rows(
    "changes",
    "id",
    ("at", "kind", "id", "reason", "phase", "status", "result", "attention", "terminal"),
    ("at", "kind", "id", "reason", "phase", "status", "result", "attention"),
    lambda row: (Phase(row["phase"]), _CODES.decode(row["attention"])),
    PAYMENT,
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
    """Read a text (`text_factory`); what is none stays bytes, which whoever reads the row finds out."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content


def number_above(db: sqlite3.Connection, *, sound: bool) -> None:
    """Let new rows be numbered above all of both databases; `sound`: `old` has the newest that it gave out."""
    for table in NUMBERED:
        newest = max(_last_number(db, schema, table) for schema in ("main", "old"))
        _number_from(db, table, newest if sound else newest + NUMBERS_LEFT_OUT)


def leave_out_numbers(db: sqlite3.Connection) -> None:
    """Let new rows be numbered above all that a file which cannot be read may have given out."""
    for table in NUMBERED:
        _number_from(db, table, _last_number(db, "main", table) + NUMBERS_LEFT_OUT)


def _last_number(db: sqlite3.Connection, schema: str, table: str) -> int:
    row = db.execute(f"SELECT seq FROM {schema}.sqlite_sequence WHERE name = ?", (table,)).fetchone()
    return int(row[0]) if row else 0


def _number_from(db: sqlite3.Connection, table: str, number: int) -> None:
    if not db.execute("UPDATE main.sqlite_sequence SET seq = ? WHERE name = ?", (number, table)).rowcount:
        db.execute("INSERT INTO main.sqlite_sequence (name, seq) VALUES (?, ?)", (table, number))


def begins_after(db: sqlite3.Connection) -> int:
    """See `journal.begins_after`; 0 where the mark could not be read."""
    try:
        return journal.begins_after(db)
    except UNREADABLE:
        return 0


def newer(db: sqlite3.Connection) -> dict[str, tuple[int, int | None]]:
    """Return what `old` alone has, or has more of, in its order: id -> rowid and final_event in `old`."""
    more = " OR ".join(
        f"(SELECT count(*) FROM old.{table} x WHERE x.client_transaction_id = o.client_transaction_id)"
        f" > (SELECT count(*) FROM main.{table} x WHERE x.client_transaction_id = o.client_transaction_id)"
        for table in ("events", "journal")
    )
    rows = db.execute(
        "SELECT o.client_transaction_id, o.rowid, o.final_event FROM old.transactions o"
        " LEFT JOIN main.transactions n ON n.client_transaction_id = o.client_transaction_id"
        f" WHERE (n.revision IS NULL OR o.revision > n.revision OR (o.revision = n.revision AND ({more})))"
        " AND o.client_transaction_id NOT IN (SELECT client_transaction_id FROM main.pruned_transactions)"
        " ORDER BY o.rowid"
    )
    return {identity: (place, final_event) for identity, place, final_event in rows}


def without_row(db: sqlite3.Connection) -> set[str]:
    """Return the ids that `old` names somewhere without having a row of them."""
    names = " UNION ".join(f"SELECT {rows.owner} FROM old.{rows.table}" for rows in (EVENTS, JOURNAL))
    names += " UNION SELECT id FROM old.changes WHERE kind = ? UNION SELECT client_transaction_id FROM old.leases"
    query = (
        f"{names} EXCEPT SELECT client_transaction_id FROM old.transactions"
        " EXCEPT SELECT client_transaction_id FROM main.pruned_transactions"
    )
    return {row[0] for row in db.execute(query, (CHANGES.kind,))}


def keep_removed(db: sqlite3.Connection) -> None:
    """Let what retention had removed from `old` stay removed: its ids come over, and what `db` has of it goes."""
    for identity in _ids(db, "client_transaction_id", "transactions", "pruned_transactions"):
        retention.forget(db, identity)
    for identity in _ids(db, "print_job_id", "print_jobs", "pruned_print_jobs"):
        retention.forget_job(db, identity)
    for table in ("pruned_transactions", "pruned_print_jobs"):
        db.execute(f"INSERT OR IGNORE INTO main.{table} SELECT * FROM old.{table}")


def _ids(db: sqlite3.Connection, key: str, here: str, removed: str) -> list[str]:
    query = f"SELECT {key} FROM main.{here} JOIN old.{removed} USING ({key})"
    return [row[0] for row in db.execute(query).fetchall()]


def is_removed(db: sqlite3.Connection, identity: str) -> bool:
    """Whether retention has removed that transaction."""
    return _exists(db, "SELECT 1 FROM main.pruned_transactions WHERE client_transaction_id = ?", identity)


def in_old(db: sqlite3.Connection, identity: str) -> bool:
    """Whether `old` has a row of that transaction."""
    return _exists(db, "SELECT 1 FROM old.transactions WHERE client_transaction_id = ?", identity)


def copy_row(db: sqlite3.Connection, identity: str) -> None:
    """Put the row of `old` in place of the one here, or add it; `final_event` is a matter of its own."""
    columns = ", ".join(transactions.COLUMNS)
    source = f"SELECT {columns} FROM old.transactions WHERE client_transaction_id = :id"
    if here := _of_words(db, identity):
        rows.drop_words(db, identity, *here)
        db.execute(
            f"UPDATE main.transactions SET ({columns}) = ({source}) WHERE client_transaction_id = :id", {"id": identity}
        )
    else:
        db.execute(f"INSERT INTO main.transactions ({columns}) {source}", {"id": identity})
    if copied := _of_words(db, identity):
        rows.keep_words(db, identity, *copied)


def _of_words(db: sqlite3.Connection, identity: str) -> tuple[str, bytes] | None:
    """Return what the words of a transaction here are made of, None where it is not here."""
    query = "SELECT created_at, metadata FROM main.transactions WHERE client_transaction_id = ?"
    row = db.execute(query, (identity,)).fetchone()
    return (row[0], str(row[1]).encode()) if row else None


def _exists(db: sqlite3.Connection, query: str, identity: str) -> bool:
    return db.execute(query, (identity,)).fetchone() is not None


class Appended(msgspec.Struct, frozen=True):
    """What came of `append`: number in `old` -> number here, and the transactions that something was added to."""

    numbers: dict[int | None, int]
    grown: set[str]


def append(db: sqlite3.Connection, rows: Rows, ids: Iterable[str]) -> Appended:
    """Add what `old` has of these ids and `db` has not, where it can be read."""
    _want(db, ids)
    here: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for row in _select(db, "main", rows):
        here[tuple(row[name] for name in rows.same)].append(row["seq"])
    insert = f"INSERT INTO main.{rows.table} ({', '.join(rows.columns)}) VALUES ({', '.join('?' * len(rows.columns))})"
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
    query = f"SELECT {', '.join(names)} FROM {schema}.{rows.table} WHERE {where} ORDER BY seq"
    for values in db.execute(query, () if rows.kind is None else (rows.kind,)):
        yield dict(zip(names, values, strict=True))


def history_behind(db: sqlite3.Connection) -> list[tuple[str, str, str | None, str | None, str | None]]:
    """Return the transactions whose newest change says otherwise: id, phase and result, and those of the change."""
    return db.execute(
        "SELECT t.client_transaction_id, t.phase, t.outcome ->> 'result', c.phase, c.result FROM main.transactions t"
        " LEFT JOIN (SELECT id, phase, result, max(seq) FROM main.changes WHERE kind = ? GROUP BY id) c"
        " ON c.id = t.client_transaction_id WHERE (t.phase, t.outcome ->> 'result') IS NOT (c.phase, c.result)",
        (PAYMENT,),
    ).fetchall()


def set_final(db: sqlite3.Connection, identity: str, number: int | None) -> None:
    """Name the event that the outcome rests on."""
    db.execute("UPDATE transactions SET final_event = ? WHERE client_transaction_id = ?", (number, identity))


def number_below(db: sqlite3.Connection, identity: str) -> None:
    """Note that the record of a transaction is not all that there was, so that it cannot be derived again.

    Like what is of before the journal, such rows have rowids up to the mark `journal_begins`: these from 0 downwards.
    """
    db.execute(
        "UPDATE transactions SET rowid = (SELECT min(0, min(rowid)) - 1 FROM transactions)"
        " WHERE client_transaction_id = ? AND rowid > ?",
        (identity, begins_after(db)),
    )


def rowid(db: sqlite3.Connection, identity: str) -> int | None:
    """Return the rowid of a transaction here."""
    row = db.execute("SELECT rowid FROM main.transactions WHERE client_transaction_id = ?", (identity,)).fetchone()
    return row[0] if row else None


def take_leases(db: sqlite3.Connection, lost: Collection[tuple[str, str]], *, sound: bool) -> None:
    """Let open transactions hold their terminals as in `old`, and then, where `old` is damaged, those of `lost`.

    A terminal that another one holds stays with it, unless `old` says that this one had given it up.
    """
    then = db.execute("SELECT terminal, client_transaction_id FROM old.leases").fetchall()
    for terminal, holder in rows.leases(db).items():
        if _ended(db, holder) or (sound and (terminal, holder) not in then and in_old(db, holder)):
            rows.give_up_lease(Unit(db), terminal, holder)
    for terminal, identity in (*then, *lost):
        if _ended(db, identity) is False and rows.lease_holder(db, terminal) is None:
            rows.take_lease(Unit(db), terminal, identity)


def _ended(db: sqlite3.Connection, identity: str) -> bool | None:
    row = db.execute("SELECT phase FROM main.transactions WHERE client_transaction_id = ?", (identity,)).fetchone()
    return row[0] == Phase.FINAL if row else None


def copy_the_rest(db: sqlite3.Connection) -> None:
    """Add what `old` has in quarantine, of proven searches, and of marks."""
    columns = "received_at, channel, subject, reason, peer, body"
    db.execute(
        f"INSERT INTO main.quarantine ({columns}) SELECT {columns} FROM old.quarantine o WHERE NOT EXISTS (SELECT 1"
        " FROM main.quarantine n WHERE (n.channel, n.subject, n.body) = (o.channel, o.subject, o.body)) ORDER BY id"
    )
    db.execute("INSERT OR IGNORE INTO main.proven_searches SELECT * FROM old.proven_searches")
    db.execute(
        "INSERT INTO main.marks (at, kind, detail) SELECT at, kind, detail FROM old.marks o"
        " WHERE kind NOT IN ('journal_begins', ?) AND NOT EXISTS"
        " (SELECT 1 FROM main.marks n WHERE (n.at, n.kind, n.detail) = (o.at, o.kind, o.detail)) ORDER BY rowid",
        (marks.BACKUP,),
    )
