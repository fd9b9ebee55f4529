"""Fills a database with ended payments as posd leaves them: some are run through a real daemon, and multiplied.

Of each course one payment is run. Its rows are taken as they lie there; ids, terminal, times and the till's texts are
then replaced by those of the payment that is made from it. A payment is known by how many are newer, `ago`: the same
one is the same, but for its times, in every database.
"""

import asyncio
import json
import re
import sqlite3
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID, uuid4

from posd.base.times import iso, parse_iso
from posd.payments.journal import BLOCK
from posd.storage import numbers
from posd.storage.connection import open_database
from tests.bench.load import connected, post
from tests.bench.shop import open_shop
from tests.support import events

#: Of so many payments one has attention, and some are declined; all others are approved.
CYCLE = 50
_ATTENTION = 1
DECLINED_OF_CYCLE = 6

DECLINED = (*events.APPROVED[:3], ("DECLINED", "APPROVAL_REQUESTED"))
#: The newest payment is this old; each one before it is older by so much.
_NEWEST = timedelta(hours=1)
APART = timedelta(seconds=40)
#: Payments whose rows are handed to SQLite at one time.
_CHUNK = 1_000
#: Kept in memory while it is filled, in KiB: ids are random, so that any page of their indexes may be the next.
_CACHE_KIB = 1_500_000

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
#: What the payments of the template have where others have their own.
_SALE, _TICKET, _SERIAL = "sale-of-the-template", "ticket-of-the-template", "SN-0001"

#: Tables of a payment's rows, and the column that says whose they are. The numbers of its events are a block of its
#: own (`posd.payments.journal`); those of other rows come by themselves.
_OWNERS = {
    "transactions": "client_transaction_id",
    "events": "client_transaction_id",
    "journal": "client_transaction_id",
    "changes": "id",
}
#: Parts a column with a text in the template of a course; no text of posd's has it.
_END = "\0"


@dataclass(frozen=True)
class Course:
    """One payment to be made again: its texts in one template, what stays as it is, and which of both a row has."""

    texts: str
    reply: str  # of the terminal to the start: it stands in the journal in base64
    constants: Sequence[Any]
    rows: Mapping[str, Sequence[Callable[[Sequence[Any]], tuple[Any, ...]]]]
    events_before_final: int


@dataclass(frozen=True)
class Courses:
    """The courses, and what inserts a row of each table."""

    approved: Course
    declined: Course
    attention: Course
    inserts: Mapping[str, str]

    def of(self, ago: int) -> Course:
        """Return the course of a payment."""
        place = ago % CYCLE
        if place < _ATTENTION:
            return self.attention
        return self.declined if place < _ATTENTION + DECLINED_OF_CYCLE else self.approved


def identity(ago: int) -> str:
    """Return the id of a payment: random, as those of tills are."""
    return str(UUID(int=Random(ago).getrandbits(128), version=4))


def terminal(ago: int, terminals: int) -> str:
    """Return its terminal: they take turns."""
    return f"SN-{ago % terminals + 1:04}"


def sale(ago: int) -> str:
    """Return its sale."""
    return f"sale-{ago:08}"


def ticket(ago: int) -> str:
    """Return what its metadata have under `ticket`."""
    return f"ticket-{ago:08}"


async def run_courses(directory: Path) -> Courses:
    """Run a payment of each course through a daemon with a database of its own, and read what it left."""
    without_reference = {"raw_response": events.event("", "APPROVAL")["raw_response"] | {"transaction_reference": ""}}
    played = []
    async with open_shop(directory, 1) as shop:
        for steps, last in ((events.APPROVED, {}), (DECLINED, {}), (events.APPROVED, without_reference)):
            number = str(uuid4())
            body = {
                "terminal": _SERIAL,
                "amount": {"subtotal_iva": 10.00, "iva": 1.20, "subtotal_iva0": 0},
                "sale": _SALE,
                "metadata": {"ticket": _TICKET, "till": "2"},
                "repeat": True,
            }
            async with shop.till() as client:
                (await client.put(f"/transactions/{number}", json=body)).raise_for_status()
            bodies = [events.body(number, status, previous, _SERIAL) for status, previous in steps[:-1]]
            bodies.append(events.body(number, *steps[-1], _SERIAL, **last))
            path = shop.terminals.arrived[number]
            async with connected(shop.server, 1) as sender:
                (await sender.send([[post(path, body) for body in bodies]])).all_are(200)
            played.append(number)
    with closing(sqlite3.connect(shop.daemon.database)) as db:
        columns = {table: _columns(db, table) for table in _OWNERS}
        inserts = {
            table: f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
            for table, names in columns.items()
        }
        # A body is a BLOB, and is made as a text.
        inserts["events"] = inserts["events"].removesuffix("?)") + "CAST(? AS BLOB))"
        approved, declined, attention = (_Made(db, number).course(columns) for number in played)
    return Courses(approved, declined, attention, inserts)


def _columns(db: sqlite3.Connection, table: str) -> list[str]:
    names = [row[1] for row in db.execute(f"PRAGMA table_info({table})") if row[1] != "seq" or table == "events"]
    return sorted(names, key=lambda name: name == "body")


class _Made:
    """Turns the rows of one payment into what makes those of another."""

    def __init__(self, db: sqlite3.Connection, number: str) -> None:
        self._db = db
        self._number = number
        created: str = self._one("SELECT created_at FROM transactions WHERE client_transaction_id = ?")
        self._created = parse_iso(created).replace(microsecond=0)
        self._others: dict[str, str] = {}
        self._texts: list[str] = []
        self._constants: list[Any] = []
        self._reply = ""

    def _one(self, query: str, *parameters: Any) -> Any:
        return self._db.execute(query, (self._number, *parameters)).fetchone()[0]

    def course(self, columns: Mapping[str, Sequence[str]]) -> Course:
        """Return the course of the payment, which has ended."""
        places: dict[str, list[list[tuple[bool, int]]]] = {}
        for table, owner in _OWNERS.items():
            query = f"SELECT {', '.join(columns[table])} FROM {table} WHERE {owner} = ? ORDER BY rowid"
            found = self._db.execute(query, (self._number,)).fetchall()
            places[table] = [
                [self._place(name, value) for name, value in zip(columns[table], row, strict=True)] for row in found
            ]
        rows = {
            table: [itemgetter(*(place + len(self._texts) * constant for constant, place in row)) for row in made]
            for table, made in places.items()
        }
        final = self._one("SELECT final_event FROM transactions WHERE client_transaction_id = ?")
        before = self._one("SELECT count(*) FROM events WHERE client_transaction_id = ? AND seq < ?", final)
        return Course(_END.join(self._texts), self._reply, self._constants, rows, before)

    def _place(self, name: str, value: Any) -> tuple[bool, int]:
        """Return where a value is among the constants (True) or the texts."""
        if name in ("final_event", "first_event"):
            return self._text(f"%({name})s")
        if name == "seq":
            return self._text(f"%(event_{value % BLOCK})s")
        if name == "entry" and (reply := json.loads(value)["attempt"]["body"]):
            self._reply = self._template(b64decode(reply).decode())
            return self._text(self._template(value).replace(reply, "%(reply)s"))
        if isinstance(value, bytes):
            return self._text(self._template(value.decode()))
        if isinstance(value, str):
            return self._text(self._template(value))
        self._constants.append(value)
        return True, len(self._constants) - 1

    def _text(self, text: str) -> tuple[bool, int]:
        self._texts.append(text)
        return False, len(self._texts) - 1

    def _template(self, text: str) -> str:
        text = _UUID.sub(self._identity, text.replace("%", "%%"))
        text = _TIME.sub(self._time, text)
        for word, name in ((_SALE, "sale"), (_TICKET, "ticket"), (_SERIAL, "terminal")):
            text = text.replace(word, f"%({name})s")
        return text

    def _identity(self, found: re.Match[str]) -> str:
        """Make another id out of the payment's own, turned around so that their order is as random."""
        word = found[0].lower()
        if word == self._number:
            return "%(identity)s"
        other = self._others.setdefault(word, f"{len(self._others):04x}")
        return f"%(turned)s{other}" if found[0] == word else f"%(TURNED)s{other.upper()}"

    def _time(self, found: re.Match[str]) -> str:
        """Keep the distance to the payment's first second, within a minute."""
        passed = (parse_iso(found[0]) - self._created).total_seconds()
        return f"%(minute)s{passed if 0 <= passed < 60 else 0:06.3f}Z"


#: By the function that migrations have.
_WORDS = (
    "INSERT OR IGNORE INTO transaction_words SELECT w.value, t.created_at, t.client_transaction_id"
    " FROM transactions t, json_each(index_words(CAST(t.metadata AS BLOB))) w ORDER BY 1, 2, 3"
)


async def fill(
    path: Path, courses: Courses, count: int, *, terminals: int, since: int = 0, newest: datetime | None = None
) -> None:
    """Add so many payments, the oldest first, to the database at `path`, made where there is none.

    So many newer ones than these there will be (`since`); the last of all is of `newest`. No other process may have
    the database open. It can be cancelled: a million take some minutes.
    """
    newest = newest or datetime.now(UTC) - _NEWEST
    with closing(open_database(path)) as db:
        for pragma in ("journal_mode = OFF", "synchronous = OFF", f"cache_size = -{_CACHE_KIB}", "foreign_keys = OFF"):
            db.execute(f"PRAGMA {pragma}").close()
        db.execute("BEGIN")
        agos = range(since + count, since, -1)
        for first in range(0, count, _CHUNK):
            _add(db, courses, agos[first : first + _CHUNK], terminals, newest)
            await asyncio.sleep(0)
        db.execute(_WORDS)
        db.execute("COMMIT")
        db.execute("PRAGMA journal_mode = WAL").close()


def _add(db: sqlite3.Connection, courses: Courses, agos: Iterable[int], terminals: int, newest: datetime) -> None:
    event = (numbers.newest(db, "events") // BLOCK + 1) * BLOCK
    made: dict[str, list[tuple[Any, ...]]] = {table: [] for table in _OWNERS}
    for ago in agos:
        course, own = courses.of(ago), identity(ago)
        turned = own[28:] + own[8:32]
        words = {
            "identity": own,
            "turned": turned,
            "TURNED": turned.upper(),
            "terminal": terminal(ago, terminals),
            "minute": iso(newest - ago * APART)[:17],
            "sale": sale(ago),
            "ticket": ticket(ago),
            "first_event": event,
            "final_event": event + course.events_before_final,
        }
        words |= {f"event_{place}": event + place for place in range(len(course.rows["events"]))}
        words["reply"] = b64encode((course.reply % words).encode()).decode()
        values = [*(course.texts % words).split(_END), *course.constants]
        for table, rows in course.rows.items():
            made[table] += [row(values) for row in rows]
        event += BLOCK
    for table, insert in courses.inserts.items():
        db.executemany(insert, made[table])
