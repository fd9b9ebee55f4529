"""Quarantine of unusable bodies of authentic callbacks, for operators and for reprocessing."""

import hashlib
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Generic

import msgspec
import structlog

from posd.base import limits
from posd.base.ids import Channel
from posd.base.replies import RefusedBody
from posd.base.times import iso
from posd.records.pages import fill
from posd.records.table import R, RecordKind
from posd.storage import marks
from posd.storage.batch import WriteTransaction
from posd.storage.store import Store
from posd.terminals import authentication

log = structlog.get_logger("posd.reprocess")

#: Maximum number of stored bodies of one subject (the id of a payment or a print job).
MAX_KEPT = limits.QUARANTINE_OF_SUBJECT.value
#: Reason for a body that exceeds another limit. It is always the same, because each new reason would be stored as a
#: change of the payment or print job.
NOT_KEPT = (
    "it could not be used, and was not kept: its terminal has too many bodies in quarantine today, or the disk "
    "is nearly full. The terminal sends it again"
)


class ReceivedCallback(msgspec.Struct, frozen=True):
    """A body received at a callback address with a valid token, with sender, time and headers (names in lower case)."""

    body: bytes
    peer: str
    at: datetime
    headers: authentication.Headers = ()


class QuarantineEntry(msgspec.Struct, frozen=True):
    """One refused body of an authentic callback. `subject`: the id in the callback address."""

    id: int
    received_at: str
    channel: str
    subject: str
    reason: str
    peer: str
    body: bytes


def put(unit: WriteTransaction, channel: str, subject: str, reason: str, came: ReceivedCallback) -> bool:
    """Store a refused body of an authentic callback, unless equal bytes are stored.

    Return False if the body is not stored, because the limit of its subject is reached.
    """
    kept, there = unit.db.execute(
        "SELECT count(*), coalesce(max(body = ?), 0) FROM quarantine WHERE channel = ? AND subject = ?",
        (came.body, channel, subject),
    ).fetchone()
    if there or kept >= MAX_KEPT:
        return bool(there)
    unit.db.execute(
        "INSERT INTO quarantine (received_at, channel, subject, reason, peer, body) VALUES (?,?,?,?,?,?)",
        (iso(came.at), channel, subject, reason, came.peer, came.body),
    )
    if carried := authentication.signature_headers(came.headers):
        # A later check of the signature needs the headers (as Latin-1) and the digest of their body.
        headers = [(name.decode(), value.decode("latin-1")) for name, value in carried]
        signed = {"of": _digest(channel, subject, came.body), "headers": headers}
        marks.add(unit.db, iso(came.at), marks.SIGNED, signed)
    return True


def again(db: sqlite3.Connection, item: QuarantineEntry, at: datetime) -> ReceivedCallback:
    """Return a body of the quarantine as a callback received at the time `at`, with the stored headers."""
    query = "SELECT detail FROM marks WHERE kind = ? AND detail ->> 'of' = ?"
    found = db.execute(query, (marks.SIGNED, _digest(item.channel, item.subject, item.body))).fetchone()
    headers = msgspec.json.decode(found[0])["headers"] if found else ()
    return ReceivedCallback(
        item.body, item.peer, at, [(name.encode(), value.encode("latin-1")) for name, value in headers]
    )


def remove(unit: WriteTransaction, numbers: Sequence[int]) -> None:
    """Remove bodies from the quarantine, with their stored headers. `numbers`: ids of the bodies."""
    query = "DELETE FROM quarantine WHERE id IN (SELECT value FROM json_each(?)) RETURNING channel, subject, body"
    gone = [_digest(*row) for row in unit.db.execute(query, (msgspec.json.encode(numbers).decode(),)).fetchall()]
    query = "DELETE FROM marks WHERE kind = ? AND detail ->> 'of' IN (SELECT value FROM json_each(?))"
    unit.db.execute(query, (marks.SIGNED, msgspec.json.encode(gone).decode())).close()


def _digest(channel: str, subject: str, body: bytes) -> str:
    return hashlib.sha256(b"\0".join((channel.encode(), subject.encode(), body))).hexdigest()


_QUARANTINED = "SELECT id, received_at, channel, subject, reason, peer, body FROM quarantine"


def page(db: sqlite3.Connection, after: int, limit: int) -> list[QuarantineEntry]:
    """Return the bodies with ids above `after`, ascending: at most `limit`, and at most the bytes of one page."""
    rows = db.execute(f"{_QUARANTINED} WHERE id > ? ORDER BY id LIMIT ?", (after, limit))
    return fill((QuarantineEntry(*row) for row in rows), lambda item: len(item.body))[0]


def one(db: sqlite3.Connection, identity: int) -> QuarantineEntry | None:
    """Return the body with an id, or None."""
    row = db.execute(f"{_QUARANTINED} WHERE id = ?", (identity,)).fetchone()
    return QuarantineEntry(*row) if row else None


def count(db: sqlite3.Connection) -> int:
    """Return the number of bodies in the quarantine."""
    row = db.execute("SELECT count(*) FROM quarantine").fetchone()
    return int(row[0])


def take_out(unit: WriteTransaction, item: QuarantineEntry) -> int:
    """Remove a body that was applied. Return the number of remaining bodies of its subject."""
    remove(unit, [item.id])
    row = unit.db.execute(
        "SELECT count(*) FROM quarantine WHERE channel = ? AND subject = ?", (item.channel, item.subject)
    ).fetchone()
    return int(row[0])


# Reprocessing: apply usable bodies of the quarantine, and derive all records again.
#
# The row of a record follows from its stored inputs (raw bytes) and its journal. A difference between the derived row
# and the stored row shows a fault of this version, an earlier version or the disk. The difference is corrected and
# reported.

#: Number of records that are read in one step. A payment waits for one step at most.
CHUNK = 50
#: Number of differences that a report shows in full. Further differences are only counted.
MAX_SHOWN = 500

#: Field of a record -> (stored value, derived value).
Differing = Mapping[str, tuple[Any, Any]]


class ReprocessResult(msgspec.Struct):
    """Result for one kind of record.

    `derived`: number of records derived again. `skipped`: number of records with an incomplete journal. `applied` and
    `differences`: documents of the local API. `differing`: number of records that differed.
    """

    derived: int = 0
    skipped: int = 0
    applied: list[Any] = []
    differences: list[Any] = []
    differing: int = 0


class Derivable(msgspec.Struct, Generic[R], frozen=True):
    """Kind of record that can be derived again from its inputs.

    `differing` returns the differences between a stored record and the derived one, and a function that stores the
    derived one. `reapply` (unit, item) applies a body of the quarantine inside a commit and returns its verdict, or
    raises RefusedBody. `applied` (id in the quarantine, id of the record, verdict) and `difference` (id, fields,
    before, after) make documents of the local API. `last_incomplete_rowid` returns the rowid of the last record from a
    version without journals, or 0.
    """

    kind: RecordKind[R, Any]
    differing: Callable[[sqlite3.Connection, R], tuple[Differing, Callable[[WriteTransaction], object]]]
    reapply: Callable[..., str | None]
    applied: Callable[[int, str, Any], object]
    difference: Callable[[str, tuple[str, ...], dict[str, Any], dict[str, Any]], object]
    last_incomplete_rowid: Callable[[sqlite3.Connection], int] = lambda _db: 0

    def chunk(self, db: sqlite3.Connection, after: int, limit: int) -> list[tuple[int, str, bool]]:
        """Return the next records: rowid, id, and whether the stored record differs from the derived one."""
        found = self.kind.by_rowid(db, after, limit)
        return [(rowid, self.kind.id_of(row), bool(self._differing(db, row)[0])) for rowid, row in found]

    def correct(self, unit: WriteTransaction, identity: str) -> Differing | None:
        """Store the derived record. Return the differences, or None if there are none. Runs inside a commit.

        A record with an unreadable input stays unchanged, and its difference has the reason.
        """
        stored = self.kind.get(unit.db, identity)
        differing, store = self._differing(unit.db, stored) if stored is not None else ({}, None)
        if store is not None and differing:
            store(unit)
        return differing or None

    def _differing(
        self, db: sqlite3.Connection, stored: R
    ) -> tuple[Differing, Callable[[WriteTransaction], object] | None]:
        try:
            return self.differing(db, stored)
        # Damaged data, or an input of a newer version. The other records must still be derived.
        except ValueError as error:
            return {"record": ("stored", f"cannot be derived, and stays unchanged: {error}")}, None


class Reprocessing:
    """Reprocessing of all kinds of records."""

    def __init__(self, store: Store, kinds: Collection[Derivable[Any]]) -> None:
        self._store = store
        self._kinds = {item.kind.channel: item for item in kinds}

    async def run(self) -> tuple[Mapping[Channel, ReprocessResult], int]:
        """Reprocess while payments run. Return the result of each kind, and the number of bodies left in quarantine.

        Raise StorageUnavailable or CommitUncertain.
        """
        done = {channel: ReprocessResult() for channel in self._kinds}
        await self._apply_quarantine(done)
        for channel, kind in self._kinds.items():
            await self._derive(kind, done[channel])
        return done, await self._store.read(count)

    async def _apply_quarantine(self, done: Mapping[Channel, ReprocessResult]) -> None:
        after = 0
        while items := await self._store.read(partial(page, after=after, limit=CHUNK)):
            for item in items:
                after = item.id
                channel = Channel(item.channel)
                kind = self._kinds[channel]
                try:
                    verdict = await self._store.write(partial(kind.reapply, item=item))
                except RefusedBody:
                    continue
                done[channel].applied.append(kind.applied(item.id, item.subject, verdict))

    async def _derive(self, kind: Derivable[Any], done: ReprocessResult) -> None:
        after = done.skipped = await self._store.read(kind.last_incomplete_rowid)
        while chunk := await self._store.read(partial(kind.chunk, after=after, limit=CHUNK)):
            after = chunk[-1][0]
            for _, identity, differs in chunk:
                done.derived += 1
                if differs:
                    await self._correct(kind, identity, done)
        if kind.kind.channel is Channel.PRINT:
            log.info("store.print_jobs_reprocessed", count=done.derived, kind=f"{done.differing} differences")
        else:
            log.info("store.reprocessed", count=done.derived, kind=f"{done.differing} differences")

    async def _correct(self, kind: Derivable[Any], identity: str, done: ReprocessResult) -> None:
        differing = await self._store.write(partial(kind.correct, identity=identity))
        if differing is None:
            return  # a call has changed the record, or retention has removed it
        done.differing += 1
        log.error("store.difference", **kind.kind.named(identity), detail=", ".join(differing))
        if len(done.differences) < MAX_SHOWN:
            before = {name: pair[0] for name, pair in differing.items()}
            after = {name: pair[1] for name, pair in differing.items()}
            done.differences.append(kind.difference(identity, tuple(differing), before, after))
