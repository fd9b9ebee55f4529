"""Start of print jobs, with the same promises as for payments, and with a queue (local API, Print jobs).

The intent is committed, the job waits for its turn at the terminal, the request is sent once, and the judgement of the
reply is committed. These steps run to their end, even if no till waits. A crash between two steps leaves the phase
`starting`. The next daemon polls the job and never sends it again. If the job still waited in the queue, the next
daemon ends it as not sent.

The till's call ends when the terminal has replied. If other jobs are before it in the queue, the call waits at most for
the time of one call to the terminal. Then it returns the job in phase `starting`. If more than `MAX_HELD` jobs are in
the queue, the call returns at once.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial

import msgspec
import structlog

from posd.base.crashpoints import crash_point
from posd.base.ids import Channel
from posd.base.limits import FREE_FOR_EXTRAS
from posd.base.problems import Problem
from posd.base.times import iso
from posd.httpd.admission import SocketPeer
from posd.printing import rows
from posd.printing.entries import Created, Dismissed, Turn
from posd.printing.model import NAMES, PrintJob
from posd.printing.request import Decision, PrintRequest, differing_fields, print_body, read_print
from posd.printing.wire import judge
from posd.records import start as starts
from posd.records.callback_urls import CallbackUrls
from posd.records.model import Phase
from posd.records.request import check, unsignable
from posd.records.service import ServiceParts, decide, require_attention
from posd.records.start import Faults, Starts, destination, identity_conflict, unavailable
from posd.storage import CommitUncertain, StorageUnavailable
from posd.storage.batch import WriteTransaction
from posd.terminals.attempt import Attempt, NotSent, ReplyLost
from posd.terminals.terminal import FleetTerminal

# Turns of print calls: one call at a time to each terminal, and `MAX_CALLS` in total.
#
# Payments need no turn and do not wait. The jobs to be sent to a terminal form a queue. The first job of the queue and
# a poll take turns, so that neither blocks the other.

#: Maximum number of terminals with a print call at the same time, so that a burst does not delay payments.
MAX_CALLS = 8
#: Maximum number of jobs in the queues of all terminals. Above it, a till has to retry later. Only the id and the
#: callback URL of each job are in memory. Its document is read from the disk when it is sent.
MAX_WAITING = 2048
#: Largest queue of a terminal in which a till's call waits for the reply. With a larger queue, calls return at once, so
#: that their requests do not stay in memory.
MAX_HELD = 32


class PrintLine:
    """Queue of print calls to one terminal.

    `waiting`: number of jobs in the queue, including the one that is being sent. `failures`: number of jobs that could
    not be sent. `failure`: the last reason. After a failure, the jobs that are already in the queue are not sent.
    """

    def __init__(self) -> None:
        self.sending = asyncio.Lock()  # held by the job that is sent next
        self.calling = asyncio.Lock()  # held during a call: by that job, or by a poll
        self.waiting = 0
        self.failures = 0
        self.failure = ""


class PrintTurns:
    """Turns of the print calls to all terminals."""

    def __init__(self) -> None:
        self._lines: dict[str, PrintLine] = {}
        self._fleet = asyncio.Semaphore(MAX_CALLS)

    @property
    def waiting(self) -> int:
        """Number of jobs in the queues of all terminals."""
        return sum(line.waiting for line in self._lines.values())

    def line(self, terminal: str) -> PrintLine:
        """Return the queue of a terminal."""
        return self._lines.setdefault(terminal, PrintLine())

    def busy(self, terminal: str) -> bool:
        """Return whether a job for that terminal would have to wait for its turn."""
        line = self.line(terminal)
        return bool(line.waiting) or line.calling.locked() or self._fleet.locked()

    @asynccontextmanager
    async def send(self, terminal: str) -> AsyncIterator[None]:
        """Wait for the turn of a job to be sent, and hold it for the block."""
        line = self.line(terminal)
        async with line.sending, line.calling, self._fleet:
            yield

    @asynccontextmanager
    async def ask(self, terminal: str) -> AsyncIterator[None]:
        """Wait for the turn of a poll, and hold it for the block."""
        async with self.line(terminal).calling, self._fleet:
            yield


# Commits of a print job: its intent, its sending, and the judgement of the attempt.


def record_intent(unit: WriteTransaction, draft: PrintJob, problem: Problem | None) -> tuple[PrintJob, bool]:
    """Record a new job (inside the commit). Return the record, and whether this call recorded it.

    `problem`: why the job cannot be sent, or None. Raise `problem`, or Problem unknown_original or pruned.
    """
    if (known := rows.find(unit.db, draft.print_job_id)) is not None:
        return known, False  # a webhook arrived before the call
    rows.PRINT_JOB.refuse_pruned(unit.db, draft.print_job_id)
    if draft.reprint_of is not None:
        original = rows.find(unit.db, draft.reprint_of)
        if original is None:
            raise Problem(
                "unknown_original",
                f"cannot print: the print job {draft.reprint_of} in reprint_of is not known here; check its id, or "
                "omit reprint_of",
            )
        draft = msgspec.structs.replace(draft, reprint_of=original.print_job_id)
    if problem is not None:
        raise problem  # `problem` is identity_conflict or terminal_offline
    rows.begin(unit, draft, "intent")
    return draft, True


def take_turn(unit: WriteTransaction, identity: str, sent_to: str | None, now: datetime) -> PrintJob | None:
    """Record that the job is about to be sent (inside the commit). `sent_to`: see `Turn`.

    Return the job, or None if it must not be sent any more.
    """
    job = rows.get(unit.db, identity)
    if job is None or job.phase is not Phase.STARTING:
        return None  # for example, the terminal has already sent a webhook about it
    return rows.record(unit, job, Turn(sent_to), now)


def record_attempt(unit: WriteTransaction, identity: str, attempt: Attempt, now: datetime) -> PrintJob | None:
    """Record the judgement of the attempt (inside the commit). Return the job, or None if it is not on disk."""
    found = rows.get(unit.db, identity)
    return rows.record(unit, found, Created(attempt, reads_errors=True), now) if found is not None else None


STOPPING = "posd was stopped before this job's turn to be sent"


#: Problem codes of a refused start.
REFUSALS = (*starts.REFUSALS, "queue_full")

log = structlog.get_logger("posd.printing")


class Printing(Starts[PrintJob, PrintRequest, tuple[PrintJob, Problem | None]]):
    """Use cases of tills (print) and of operators (decide about a print job)."""

    kind = rows.PRINT_JOB
    free = FREE_FOR_EXTRAS
    cannot = "cannot print"
    used_for = "print job"
    new_id_for = "document"

    def __init__(self, parts: ServiceParts, callback_urls: CallbackUrls, turns: PrintTurns) -> None:
        super().__init__(parts, parts.quotas.print_jobs, PrintRequest())
        self._callback_urls = callback_urls
        self._turns = turns
        self._uncertain: set[str] = set()  # ids (lower case) of jobs whose intent may be on disk
        self._deliveries: dict[str, asyncio.Task[PrintJob | None]] = {}

    async def start(
        self, identity: str, body: bytes, refusal: Problem | None = None, sender: SocketPeer | None = None
    ) -> tuple[PrintJob, bool]:
        """Start a print job, or return the known one (see `Starts.start`). Wait a limited time until it is sent."""
        known, created = await super().start(identity, body, refusal, sender)
        return await self._wait(known), created

    def under_way(self, print_job_id: str) -> bool:
        """Return whether a job waits in the queue, is being sent, or is perhaps not on disk."""
        return print_job_id in self._deliveries or print_job_id.lower() in self._uncertain

    async def drain(self, seconds: float) -> None:
        """Refuse new starts, and send no further jobs. Wait some seconds for open calls."""
        self._draining = True
        await self._finish(seconds)

    async def close(self) -> None:
        """Wait until the judgements of the remaining jobs are recorded.

        Called after the open requests to terminals were cancelled.
        """
        await self._finish()

    async def decide(self, print_job_id: str, decision: Decision) -> PrintJob:
        """Apply an operator's decision. Return the changed job. Raise Problem."""
        work = partial(self._decide, identity=print_job_id, decision=decision)
        return await decide(rows.PRINT_JOB, self._store, print_job_id, decision, work)

    def _decide(self, unit: WriteTransaction, identity: str, decision: Decision) -> PrintJob:
        before = rows.find(unit.db, identity)
        if before is None:
            raise rows.PRINT_JOB.missing(unit.db, identity)
        if isinstance(decision, Dismissed):
            require_attention(before, decision.code, identity)
        elif before.phase is Phase.FINAL:
            how = before.status or "it was not accepted"
            raise Problem("already_final", f"the print job has already ended ({how})")
        elif before.phase is Phase.STARTING or self.under_way(before.print_job_id):
            raise Problem(
                "call_outstanding",
                f"the job waits for its turn at terminal {before.terminal}, or is being sent; try again afterwards",
            )
        return rows.record(unit, before, decision, self._now())

    async def _wait(self, job: PrintJob) -> PrintJob:
        """Wait until the job is sent and judged, for a limited time (see the module). Return the job."""
        delivery = self._deliveries.get(job.print_job_id)
        if delivery is None or job.terminal is None or self._turns.line(job.terminal).waiting > MAX_HELD:
            return job
        await asyncio.wait({delivery}, timeout=self._fleet.of(job.terminal).device.longest_call)
        return (delivery.result() if delivery.done() else None) or job

    def _read(self, body: bytes) -> tuple[PrintRequest, Faults]:
        return read_print(body)

    def _differing(self, known: PrintJob, request: PrintRequest, faults: Faults) -> list[str]:
        return differing_fields(known, request, faults)

    def _find(self, db: sqlite3.Connection, identity: str) -> PrintJob | None:
        if identity.lower() in self._uncertain:
            raise self._not_known(identity, "its intent may not be on disk")
        return rows.find(db, identity)

    async def _draft(self, identity: str, request: PrintRequest, faults: Faults) -> tuple[PrintJob, Problem | None]:
        """Return the job to record, and why it cannot be sent, or None.

        Raise Problem; then nothing is recorded.
        """
        check(faults, "cannot print")
        terminal = self._fleet.resolve(request.terminal)
        if (auth := terminal.config.auth) != "none":
            beside = auth == "hash-encrypt" and not terminal.rows["print"].document_member
            check(unsignable({"document": request.document}, ("document",) if beside else ()), "cannot print")
        sent_to, problem = await destination(terminal, "cannot print")
        self._refuse_draining()  # posd may have begun to stop during the steps above
        if self._turns.waiting >= MAX_WAITING:
            raise Problem(
                "queue_full",
                f"cannot print: {self._turns.waiting} print jobs already wait for their terminals; nothing was "
                "recorded. Repeat the same call when some of them are printed (posd list --print-jobs --open)",
            )
        at = iso(self._now())
        job = PrintJob(
            print_job_id=identity,
            terminal=terminal.serial,
            created_at=at,
            updated_at=at,
            phase=Phase.STARTING,
            external_reference=request.external_reference,
            document=request.document,
            reprint_of=request.reprint_of,
            sent_to=sent_to,
            queued=self._turns.busy(terminal.serial),
        )
        return job, problem

    async def _run(self, drafted: tuple[PrintJob, Problem | None]) -> tuple[PrintJob, bool]:
        draft, problem = drafted
        identity, terminal = draft.print_job_id, draft.terminal
        assert terminal is not None  # noqa: S101 - `_draft` has resolved it
        line, created = self._turns.line(terminal), False
        line.waiting, failures = line.waiting + 1, line.failures
        try:
            url = await self._callback_url(draft, self._fleet.of(terminal)) if problem is None else ""
            crash_point("print.before_intent")
            self._store.check_placed()
            recorded, created = await self._store.write(partial(record_intent, draft=draft, problem=problem))
        except StorageUnavailable as error:
            raise unavailable(error) from error
        except CommitUncertain as error:
            self._uncertain.add(identity.lower())
            return await self._resolve_uncertain(identity, error, partial(self._conclude, identity)), True
        finally:
            if not created:
                line.waiting -= 1
        if not created:
            return recorded, False
        crash_point("print.intended")
        job = None if draft.queued else recorded
        delivery = self._keep(self._deliver(identity, terminal, job, url, failures))
        self._deliveries[identity] = delivery

        def delivered(_delivery: object) -> None:
            del self._deliveries[identity]
            line.waiting -= 1

        delivery.add_done_callback(delivered)
        return recorded, True

    async def _callback_url(self, job: PrintJob, terminal: FleetTerminal) -> str:
        """Return the callback URL of a job. Raise Problem terminal_offline."""
        sent_to = job.sent_to or ""  # never empty, because the job is to be sent
        return await self._callback_urls.url(Channel.PRINT, job.print_job_id, sent_to, terminal.config.access_mode)

    async def _deliver(
        self, identity: str, terminal: str, job: PrintJob | None, url: str, failures: int
    ) -> PrintJob | None:
        """Send a job in its turn, and commit the judgement of the reply. Return the changed job.

        `job`: None if the job has to wait. Then it is read from the database when it is sent. `failures`: value of
        `PrintLine.failures` when the job joined the queue.
        """
        attempt: Attempt | None
        async with self._turns.send(terminal):
            try:
                attempt = await self._attempt(identity, terminal, job, url, failures)
            except Exception as error:  # noqa: BLE001 - every error needs a judgement of the job
                self._log_failure(identity, error)
                attempt = ReplyLost("posd failed because of a fault of its own while it sent the request")
        if attempt is None:
            return None
        try:
            return await self._conclude(identity, attempt)
        except Exception as error:  # noqa: BLE001 - the error is logged, and the work is tried again
            self._settle_later(identity, error, partial(self._conclude, identity, attempt))
            return None

    async def _attempt(
        self, identity: str, terminal: str, job: PrintJob | None, url: str, failures: int
    ) -> Attempt | None:
        """Send a job whose turn has come. Return None if it must not be sent any more. Parameters as in `_deliver`."""
        if self._draining:
            return NotSent(STOPPING)
        line = self._turns.line(terminal)
        if line.failures != failures:
            return NotSent(f"the terminal could not be reached for an earlier print job: {line.failure}")
        known = self._fleet.of(terminal)
        if job is None:
            sent_to = await known.choose()  # the terminal may have moved while the job waited
            if (dispute := known.conflict) is not None:
                return NotSent(identity_conflict(dispute, "it was not sent").detail)
            try:
                job = await self._store.write(partial(take_turn, identity=identity, sent_to=sent_to, now=self._now()))
                if job is None:
                    return None
                url = await self._callback_url(job, known)
            except (StorageUnavailable, CommitUncertain) as error:
                return NotSent(f"its turn could not be recorded: {error}")
            except Problem as problem:
                return NotSent(problem.detail)
        body = print_body(job, url, known.rows["print"].document_member)
        request = known.request("print", job.sent_to or "", body)
        log.info("print.started", print_job=identity, terminal=terminal)
        crash_point("print.before_send")
        attempt = await known.call(request, written=partial(crash_point, "print.written"))
        crash_point("print.replied")
        if isinstance(attempt, NotSent):
            line.failures, line.failure = line.failures + 1, attempt.reason
        return attempt

    async def _conclude(self, identity: str, attempt: Attempt) -> PrintJob | None:
        """Commit the judgement of the attempt.

        Return None if the intent did not reach the disk. Raise the store's errors.
        """
        after = await self._store.write(partial(record_attempt, identity=identity, attempt=attempt, now=self._now()))
        crash_point("print.concluded")
        terminal, phase = (after.terminal, after.phase) if after else (None, None)
        self._log_answered(identity, terminal, phase, judge(attempt), attempt, NAMES)
        self._uncertain.discard(identity.lower())
        return after
