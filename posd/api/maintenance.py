"""Calls for operators on the whole database (quarantine, reprocessing, backup, restores, prune) and on the clock.

The calls on the clock show the evidence for the clock and the delayed work, and record an operator's confirmation.
"""

import asyncio
import base64
import os
import sqlite3
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import structlog
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from posd.api import documents
from posd.api.documents import PruneProgress, Quarantine, Reprocessed, RestoresSeen
from posd.base.ids import Channel
from posd.base.json_types import Moment, WireFormat
from posd.base.problems import Problem
from posd.base.times import iso
from posd.calls import parameters
from posd.calls.app import json_response, page_response, redacted
from posd.calls.streams import CallContext
from posd.clock.clock import REMEDY, Confirmation, Stretch, WallClock, last_confirmation
from posd.clock.rules import Doubt, Kernel, TerminalTimes
from posd.payments.reprocess import report as payment_report
from posd.payments.request import DECISIONS
from posd.printing.documents import report as print_report
from posd.records import quarantine
from posd.records.model import same_fields
from posd.records.quarantine import QuarantineEntry, Reprocessing
from posd.records.request import (
    MAX_NOTE_CHARACTERS,
    MAX_OPERATOR_CHARACTERS,
    FieldReader,
    check,
    decided,
    read_body,
)
from posd.records.service import storage_problem
from posd.storage import CommitUncertain, StorageUnavailable, backup, marks
from posd.storage.backup import KEEP, MOST_KEPT, BadTarget, Rotated
from posd.storage.batch import WriteTransaction
from posd.upkeep.restore_guard import RestoreGuard, taken_over
from posd.upkeep.retention import Retention

# Bodies of the calls.

#: Maximum number of days of retention, as in the configuration.
MOST_DAYS = 36_500
#: An absolute path on this machine.
AbsolutePath = Annotated[str, Meta(pattern="^/", min_length=1)]


class BackupRequest(msgspec.Struct, frozen=True):
    """Target of a backup: exactly one of `path`, `into` and `send`."""

    path: Annotated[
        Path | None,
        WireFormat(AbsolutePath | None),
        Meta(description="a file, which is replaced when the new one is complete"),
    ] = None
    into: Annotated[
        Path | None,
        WireFormat(AbsolutePath | None),
        Meta(description="a directory: the name of the file contains the time, and the oldest files are removed"),
    ] = None
    keep: Annotated[
        int,
        WireFormat(Annotated[int, Meta(ge=1, le=MOST_KEPT)] | None),
        Meta(description=f"with `into`: number of files to keep, {KEEP} if left out"),
    ] = KEEP
    send: Annotated[bool, WireFormat(bool | None), Meta(description="the response is the backup")] = False

    @property
    def field(self) -> str:
        """Name of the field with the target."""
        return "path" if self.path is not None else "into"


class PruneRequest(msgspec.Struct, frozen=True):
    """Which ended records to remove."""

    older_than_days: Annotated[
        int,
        WireFormat(Annotated[int, Meta(ge=0, le=MOST_DAYS)] | None),
        Meta(description="age of the records, counted from their end; required if the configuration keeps all"),
    ]
    dry_run: Annotated[bool, WireFormat(bool | None), Meta(description="only report what would be removed")] = False


def read_backup(body: bytes) -> BackupRequest:
    """Read the body of `POST /backup`. Raise Problem."""
    reader = read_body(BackupRequest, body, "no backup was made")
    path, into = reader.parsed("path", _path), reader.parsed("into", _path)
    keep, send = reader.whole("keep", 1, MOST_KEPT), bool(reader.flag("send"))
    if keep is not None and into is None:
        reader.fault("/keep", "is the number of backups to keep in /into, which is missing")
    if [bool(path), bool(into), send].count(True) != 1 and not reader.faults:
        message = "is required if neither `into` nor `send` is given; only one of the three is allowed"
        reader.fault("/path", message)
    check(reader.faults, "nothing was done")
    return BackupRequest(path, into, KEEP if keep is None else keep, send)


def _path(value: Any) -> Path:
    if not isinstance(value, str) or not value:
        raise ValueError("must be a string: an absolute path")
    return Path(value)


def read_prune(body: bytes, configured: int) -> PruneRequest:
    """Read the body of `POST /prune`. Raise Problem.

    `configured`: days for which the configuration keeps records; 0: without limit.
    """
    reader = read_body(PruneRequest, body or b"{}", "nothing was removed")
    days, dry_run = reader.whole("older_than_days", 0, MOST_DAYS), bool(reader.flag("dry_run"))
    if days is None and not configured and not reader.faults:
        message = "is required, because the configuration keeps everything (database.retention_days is 0)"
        reader.fault("/older_than_days", message)
    check(reader.faults, "nothing was removed")
    return PruneRequest(configured if days is None else days, dry_run)


#: Work that waits while the clock is not trusted.
WAITING = (
    "retention and posd prune: nothing is removed",
    "certificates: none is made or renewed",
)


class Witnesses(msgspec.Struct, frozen=True):
    """Evidence for and against the clock."""

    now: Annotated[Moment, Meta(description="the time that the clock shows")]
    highest: Annotated[Moment | None, Meta(description="the latest trusted time, null before the first")]
    confirmed: Annotated[
        Moment | None, Meta(description="the latest confirmed time, which retention uses; null without any")
    ]
    built: Annotated[Moment, Meta(description="build time of this version")]
    kernel: Annotated[Kernel, Meta(description="whether a time service controls the clock, according to the kernel")]
    terminals: Annotated[TerminalTimes, Meta(description="times in the terminals' events")]
    max_step_seconds: Annotated[float, Meta(description="the largest usual step (`clock.max_step_seconds`)")]


class ClockState(msgspec.Struct, frozen=True):
    """Whether posd trusts the clock, and the reason if it does not."""

    sure: Annotated[bool, Meta(description="whether posd trusts the clock")]
    reason: Annotated[Doubt | None, Meta(description="reason as a word, null if posd trusts the clock")]
    detail: Annotated[str, Meta(description="the reason as a sentence, empty if posd trusts the clock")]
    todo: Annotated[str, Meta(description="what to do, empty if nothing")]
    since: Annotated[Moment | None, Meta(description="the last trusted time, null if posd trusts it now")]
    unsure: Annotated[list[Stretch], Meta(description="earlier times without trust, the newest first")]
    waiting: Annotated[list[str], Meta(description="work that waits until posd trusts the clock")]
    witnesses: Annotated[Witnesses, Meta(description="the evidence for and against the clock")]
    confirmation: Annotated[Confirmation | None, Meta(description="the latest confirmation by an operator, or null")]


class ClockRequest(msgspec.Struct, frozen=True):
    """Operator's confirmation that the clock of this machine is right."""

    operator: Annotated[str, Meta(description="name", min_length=1, max_length=MAX_OPERATOR_CHARACTERS, pattern="\\S")]
    note: Annotated[
        str,
        WireFormat(Annotated[str, Meta(max_length=MAX_NOTE_CHARACTERS)] | None),
        Meta(description="a note to store; may be empty"),
    ] = ""


def read_signature(reader: FieldReader) -> tuple[str, str]:
    """Return the operator, and the note or ""."""
    operator = reader.required_text("operator", MAX_OPERATOR_CHARACTERS)
    return operator, (reader.text("note", MAX_NOTE_CHARACTERS, least=0) or "").strip()


def read_confirmation(body: bytes) -> ClockRequest:
    """Read the body of `POST /clock/confirm`. Raise Problem."""
    reader = read_body(ClockRequest, body, "nothing was changed")
    asked = ClockRequest(*read_signature(reader))
    check(reader.faults, "the clock was not confirmed")
    return asked


# The calls.

log = structlog.get_logger("posd.backup")

#: Number of bytes of a backup that are read and sent at a time.
PIECE_BYTES = 256 * 1024


class MaintenanceCalls(msgspec.Struct, eq=False):
    """Handlers of /v1/quarantine, /v1/reprocess, /v1/backup, /v1/restore, /v1/prune and /v1/clock.

    `keys`: the callback keys, which each backup contains.
    """

    context: CallContext
    keys: tuple[bytes, ...]
    restore_guard: RestoreGuard
    retention: Retention
    reprocessing: Reprocessing
    clock: WallClock
    _one_at_a_time: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)
    _stopping: bool = False

    async def list_quarantine(self, request: Request) -> Response:
        """`GET /quarantine`: refused bodies, ascending by id, in pages."""
        after, limit = request.state.query["after"], request.state.query["limit"]
        found = await self.context.read(partial(quarantine.page, after=after, limit=limit))
        items = [quarantine_document(item) for item in found]
        return await page_response(Quarantine(items, next_after=found[-1].id if found else after))

    async def get_quarantined(self, request: Request) -> Response:
        """`GET /quarantine/{id}`: one refused body."""
        identity = parameters.path(request, parameters.QUARANTINE_ID)
        found = await self.context.read(partial(quarantine.one, identity=identity))
        if found is None:
            raise Problem("not_found", f"the quarantine has no id {identity}; posd quarantine lists them")
        return json_response(quarantine_document(found))

    async def reprocess(self, request: Request) -> Response:
        """`POST /reprocess`: apply usable bodies of the quarantine, derive all records again, report differences."""
        parameters.check_no_body(request)
        with storage_problem("reprocessing broke off ({error}); what it did is kept. Check the disk, and call again"):
            done, quarantined = await self.reprocessing.run()
        payments = msgspec.structs.asdict(payment_report(done[Channel.TRANSACTION], quarantined))
        return json_response(Reprocessed(**payments, printing=print_report(done[Channel.PRINT])))

    def stop_backup(self) -> None:
        """Stop a running backup and remove its unfinished file."""
        self._stopping = True

    async def back_up(self, request: Request) -> Response:
        """`POST /backup`: copy the database while payments continue.

        The target is the file `path`, the directory `into` (which keeps the newest backups), or the response (`send`).
        """
        asked = read_backup(request.state.body)
        path, now = self.retention.store.path, self.context.now()
        stopping = lambda: self._stopping  # noqa: E731
        work: Callable[[], Any]
        if asked.send:
            work = partial(backup.write_unnamed, path, self.keys, iso(now), stopping)
        elif asked.into is not None:
            work = partial(backup.write_into, path, asked.into, asked.keep, self.keys, now, stopping)
        else:
            assert asked.path is not None  # noqa: S101 - one of the three members is set
            work = partial(backup.write, path, asked.path, self.keys, iso(now), stopping)
        async with self._one_at_a_time:
            done = await self._do(work, asked.field)
        if isinstance(done, tuple):
            written, descriptor = done
            log.info("store.backup", database="the caller", count=written.transactions)
            return DescriptorStream(descriptor, written.bytes)
        log.info("store.backup", database=done.path, count=done.transactions)
        if isinstance(done, Rotated) and done.unusable:
            words = f"these files cannot be used, and are not counted: {', '.join(done.unusable)}"
            log.warning("store.backups_unusable", directory=str(asked.into), detail=words)
        return json_response(done)

    async def _do(self, work: Callable[[], Any], target: str) -> Any:
        try:
            self.retention.store.check_placed()
            return await asyncio.to_thread(work)
        except BadTarget as error:
            errors = [{"path": f"/{target}", "message": str(error)}]
            raise Problem("invalid_request", f"nothing was done: /{target} {error}", errors=errors) from error
        except (StorageUnavailable, OSError) as error:
            log.error("store.backup_failed", error=str(error))  # noqa: TRY400 - the traceback adds nothing to the message
            raise Problem("storage_unavailable", f"no backup was made: {error}") from error

    async def get_restore(self, _request: Request) -> Response:
        """`GET /restore`: unconfirmed restores and steps back in time, with the payments in question."""
        restores = await self.context.read(marks.unseen_restores)
        gone_back = await self.context.read(marks.unseen_gone_back)
        payments = await self.context.read(taken_over)
        return json_response(documents.Restores(restores, gone_back, self.restore_guard.refuses, payments))

    async def confirm_restore(self, request: Request) -> Response:
        """`POST /restore/seen`: record that the operator has checked the restores.

        Then the health check `restore` is ok again.
        """
        # The body is the same as for a release: operator and reason.
        decision, _ = decided(DECISIONS["release"], request.state.body, request.state.uid, "nothing was done")
        detail = {"operator": decision.operator, "note": decision.note, "uid": decision.uid}
        with storage_problem("not possible now: {error}; check the disk, and try again"):
            seen = await self.retention.store.write(partial(_see, at=iso(self.context.now()), detail=detail))
            await self.restore_guard.look()
        log.info("store.restore_seen", uid=decision.uid, count=len(seen.restores) + len(seen.gone_back))
        return json_response(seen)

    async def get_prune(self, _request: Request) -> Response:
        """`GET /prune`: the days for which records are kept, and the progress of a run."""
        doing, count = self.retention.progress
        return json_response(PruneProgress(retention_days=self.retention.days, doing=doing or None, removed=count))

    async def prune(self, request: Request) -> Response:
        """`POST /prune`: remove records that ended more than the given number of days ago. Payments continue."""
        asked = read_prune(request.state.body, self.retention.days)
        try:
            report = await self.retention.prune(asked.older_than_days, dry_run=asked.dry_run)
        except (StorageUnavailable, CommitUncertain, sqlite3.Error) as error:
            raise Problem(
                "storage_unavailable", f"not everything was removed: {error}; check the disk, and call again"
            ) from error
        return json_response(report)

    async def get_clock(self, _request: Request) -> Response:
        """`GET /clock`: the evidence for the clock, and the delayed work."""
        return json_response(await self._clock_state())

    async def confirm_clock(self, request: Request) -> Response:
        """`POST /clock/confirm`: record an operator's confirmation of the clock."""
        asked = read_confirmation(request.state.body)
        with storage_problem("not possible now: {error}; check the disk, and try again"):
            await self.clock.confirm(asked.operator, asked.note, request.state.uid)
        return json_response(await self._clock_state())

    async def _clock_state(self) -> ClockState:
        said = await self.context.read(last_confirmation)
        clock, detail = self.clock, self.clock.doubt
        known = clock.known
        return ClockState(
            sure=detail is None,
            reason=clock.reason,
            detail=detail or "",
            todo=REMEDY if detail is not None else "",
            since=None if clock.stretch is None else clock.stretch.since,
            unsure=[*filter(None, (clock.stretch,)), *clock.past],
            waiting=list(WAITING) if detail is not None else [],
            witnesses=Witnesses(
                now=iso(clock.reading.wall),
                highest=None if known is None else iso(known.highest),
                confirmed=None if known is None else iso(known.confirmed),
                built=iso(clock.built),
                kernel=clock.kernel,
                terminals=clock.terminals,
                max_step_seconds=clock.limit.total_seconds(),
            ),
            confirmation=said,
        )


def quarantine_document(item: QuarantineEntry) -> documents.QuarantinedBody:
    """Return one refused body with the id of its callback address. The body is in base64, without callback tokens."""
    ids: dict[str, str | None] = {"client_transaction_id": None, "print_job_id": None}
    ids["print_job_id" if item.channel == Channel.PRINT else "client_transaction_id"] = item.subject
    body = base64.b64encode(redacted(item.body, item.subject)).decode("ascii")
    return documents.QuarantinedBody(**same_fields(documents.QuarantinedBody, item) | ids | {"body": body})


def _see(unit: WriteTransaction, at: str, detail: dict[str, Any]) -> RestoresSeen:
    seen = RestoresSeen(marks.unseen_restores(unit.db), marks.unseen_gone_back(unit.db))
    if not (seen.restores or seen.gone_back):
        raise Problem("not_found", "every restore is confirmed already; nothing is left to confirm")
    marks.add(unit.db, at, marks.SEEN, detail)
    return seen


class DescriptorStream(StreamingResponse):
    """Response with the content of a descriptor, in pieces. The response always closes the descriptor."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor = descriptor
        headers = {"content-length": str(size), "cache-control": "no-store"}
        super().__init__(self._pieces(), media_type="application/octet-stream", headers=headers)

    async def _pieces(self) -> AsyncIterator[bytes]:
        while piece := await asyncio.to_thread(os.read, self._descriptor, PIECE_BYTES):
            yield piece

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Send the response."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            os.close(self._descriptor)
