"""Starting print jobs: the same promises as for payments, and a line of its own (local API, Print jobs).

The intent is committed, the job waits for its turn at the terminal, the request is sent once, the answer is judged and
committed. It runs to its end, also where no till waits for it. A crash between two of these leaves `starting` on disk:
the next daemon asks for the job and never sends it again; where it still waited in line, nothing was sent.

The till gets the job when the terminal has answered. Where other jobs stand before it, the till gets it no later than
one call to that terminal may take, or at once where very many do: then in the phase `starting`.
"""

import asyncio
import secrets
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import partial

import msgspec
import structlog

from posd.base.crashpoints import crash_point
from posd.base.ids import Channel
from posd.base.limits import FREE_FOR_EXTRAS
from posd.base.problems import Problem
from posd.base.times import iso
from posd.httpd.senders import Sender
from posd.printing import record, rows
from posd.printing.entries import Created, Turn
from posd.printing.model import NAMES, PrintJob
from posd.printing.request import PrintRequest, differing_fields, print_body, read_print, unknown_commands
from posd.printing.turns import MAX_HELD, MAX_WAITING, Ticket, Turns
from posd.printing.wire import judge
from posd.records import pruned
from posd.records.callback_urls import CallbackUrls
from posd.records.intake import Intake
from posd.records.model import Phase
from posd.records.request import Fault, MalformedJson, check, malformed, unsignable
from posd.records.start import (
    RETRY_STORING_SECONDS,
    Missing,
    Running,
    destination,
    draining,
    identity_conflict,
    not_known,
    of_unknown_id,
    require_same,
    unavailable,
)
from posd.storage.errors import CommitUncertain, StorageUnavailable
from posd.storage.store import Store
from posd.storage.writer import Unit
from posd.terminals.attempt import Attempt, Lost, NotSent, Replied
from posd.terminals.fleet import Fleet

# The commits of a print job that is sent: its intent, its turn, and what the attempt proves.


def record_intent(unit: Unit, draft: PrintJob, problem: Problem | None) -> PrintJob | None:
    """Record a new job (runs inside the commit); return it, None where its id was not free.

    `problem` is why it cannot be sent anywhere. Raise Problem: that, or unknown_original.
    """
    if rows.find(unit.db, draft.print_job_id) is not None:
        return None
    pruned.refuse_print_job(unit.db, draft.print_job_id)
    if draft.reprint_of is not None:
        original = rows.find(unit.db, draft.reprint_of)
        if original is None:
            raise Problem(
                "unknown_original",
                f"cannot print: no print job {draft.reprint_of} is known here, which this one should print again "
                "(reprint_of); check its id, or leave it out",
            )
        draft = msgspec.structs.replace(draft, reprint_of=original.print_job_id)
    if problem is not None:
        raise problem  # identity_conflict, terminal_offline
    record.begin(unit, draft, "intent")
    return draft


def take_turn(unit: Unit, identity: str, sent_to: str | None, now: datetime) -> PrintJob | None:
    """Note that the job is about to be sent, to where its terminal is now (runs inside the commit).

    Return it, None where it is no longer to be sent.
    """
    job = rows.get(unit.db, identity)
    if job is None or job.phase is not Phase.STARTING:
        return None  # something of the terminal came for it
    return record.record(unit, job, Turn(sent_to), now)


def record_attempt(unit: Unit, identity: str, attempt: Attempt, now: datetime) -> PrintJob | None:
    """Record what the attempt proves; return the job, None where it had not come to disk."""
    found = rows.get(unit.db, identity)
    return record.record(unit, found, Created(attempt, reads_errors=True), now) if found is not None else None


STOPPING = "posd was stopped before its turn to be sent came"


#: The codes of the problems with which a start is refused.
REFUSALS = (
    "malformed_json",
    "unknown_terminal",
    "terminal_offline",
    "identity_conflict",
    "id_reused",
    "unknown_original",
    "queue_full",
    "pruned",
    "limit_reached",
    "storage_unavailable",
    "draining",
)

log = structlog.get_logger("posd.printing")


class Printing:
    """Use case of the till: print."""

    def __init__(
        self,
        store: Store,
        fleet: Fleet,
        callback_urls: CallbackUrls,
        turns: Turns,
        now: Callable[[], datetime],
        intake: Intake | None = None,
        missing: Missing = lambda: None,
    ) -> None:
        self._intake = intake or Intake()
        self._missing = missing
        self._store = store
        self._fleet = fleet
        self._callback_urls = callback_urls
        self._turns = turns
        self._now = now
        self._running = Running()
        self._uncertain: set[str] = set()  # in lower case; posd cannot tell whether their intent is on disk
        self._deliveries: dict[str, asyncio.Task[PrintJob | None]] = {}
        self._draining = False

    async def start(
        self, print_job_id: str, body: bytes, refusal: Problem | None = None, sender: Sender | None = None
    ) -> tuple[PrintJob, bool]:
        """Print, or answer for a job that is known: the job, and whether it was started now.

        `refusal` is what is wrong with the call as such; an id that is known is answered before it counts. `sender` is
        the process that asks, None where it is not counted.
        Raise Problem: with a 4xx or 503 nothing was sent, and nothing of the call is recorded.
        """
        return await asyncio.shield(self._running.keep(self._start(print_job_id, body, refusal, sender)))

    def under_way(self, print_job_id: str) -> bool:
        """Tell whether the creation of that job waits in line, runs, or is not recorded yet."""
        return print_job_id in self._deliveries or print_job_id.lower() in self._uncertain

    async def drain(self, seconds: float) -> None:
        """Send nothing any more: what waits in line is not sent. Give what is being sent some seconds."""
        self._draining = True
        await self._running.wait(seconds)

    async def close(self) -> None:
        """Wait for what is left, when the calls to the terminals were ended: each is judged and recorded."""
        await self._running.wait()

    async def _start(
        self, print_job_id: str, body: bytes, refusal: Problem | None, sender: Sender | None
    ) -> tuple[PrintJob, bool]:
        request = PrintRequest()
        faults: tuple[Fault, ...] = (Fault("", "is not a request"),)
        try:
            request, faults = read_print(body)
        except MalformedJson as error:
            refusal = refusal or malformed(error, "nothing was printed")
        async with self._running.alone(print_job_id.lower()):
            if print_job_id.lower() in self._uncertain:
                raise _not_known(print_job_id, "its intent is not on disk for certain")
            known = await self._look_up(print_job_id)
            if known is None:
                with of_unknown_id(self._missing):
                    if refusal is not None:
                        raise refusal
                    draft, problem = await self._plan(print_job_id, request, faults)
                    self._intake.require_free(FREE_FOR_EXTRAS, "cannot print")
                    self._intake.print_jobs.require(sender, len(body), "cannot print")
                    started = await self._begin(draft, problem)
                if started is not None:
                    self._intake.print_jobs.take(sender, len(body))
                    _tell_unknown(started)
                known, created = started or await self._again(print_job_id), started is not None
            else:
                created = False
            if not created:
                fields = differing_fields(known, request, faults)
                require_same(print_job_id, fields, used_for="print job", new_id_for="document")
        return await self._wait(known), created

    async def _wait(self, job: PrintJob) -> PrintJob:
        """Wait for the end of its delivery, within bounds; return it as it then stands."""
        delivery = self._deliveries.get(job.print_job_id)
        if delivery is None or job.terminal is None or self._turns.in_line(job.terminal) > MAX_HELD:
            return job
        await asyncio.wait({delivery}, timeout=self._fleet.contact.longest(job.terminal))
        return (delivery.result() if delivery.done() else None) or job

    async def _look_up(self, print_job_id: str) -> PrintJob | None:
        """Return the job of that id, None where it is free. Raise Problem."""

        def look(db: sqlite3.Connection) -> PrintJob | None:
            found = rows.find(db, print_job_id)
            if found is None:
                pruned.refuse_print_job(db, print_job_id)
            return found

        try:
            return await self._store.look_up(look)
        except StorageUnavailable as error:
            raise _not_known(print_job_id, error) from error

    async def _again(self, print_job_id: str) -> PrintJob:
        """Return the job that was there already when the intent was to be recorded: a webhook was faster."""
        known = await self._look_up(print_job_id)
        assert known is not None  # noqa: S101 - an id that was there is never free again
        return known

    async def _plan(
        self, print_job_id: str, request: PrintRequest, faults: tuple[Fault, ...]
    ) -> tuple[PrintJob, Problem | None]:
        """Return the job that the request asks for, and why it cannot be sent anywhere, if so.

        Raise Problem: nothing is recorded.
        """
        check(faults, "cannot print")
        serial = self._fleet.resolve(request.terminal)
        if (auth := self._fleet.auth(serial)) != "none":
            beside = auth == "hash-encrypt" and not self._fleet.rows(serial)["print"].document_member
            check(unsignable({"document": request.document}, ("document",) if beside else ()), "cannot print")
        to = await destination(self._fleet, serial, "cannot print")
        if self._draining:
            raise draining()
        if self._turns.waiting >= MAX_WAITING:
            raise Problem(
                "queue_full",
                f"cannot print: {self._turns.waiting} print jobs wait for their terminals already; nothing was "
                "recorded. Repeat the same call when some of them are printed (posd print-jobs --open)",
            )
        at = iso(self._now())
        job = PrintJob(
            print_job_id=print_job_id,
            terminal=serial,
            created_at=at,
            updated_at=at,
            phase=Phase.STARTING,
            external_reference=request.external_reference,
            document=request.document,
            reprint_of=request.reprint_of,
            sent_to=to.base_url,
            queued=self._turns.busy(serial),
        )
        return job, to.problem

    async def _begin(self, draft: PrintJob, problem: Problem | None) -> PrintJob | None:
        """Record the intent and let it run; return the job, None where its id was there already. Raise Problem."""
        assert draft.terminal is not None  # noqa: S101 - `_plan` has resolved it
        ticket = self._turns.join(draft.terminal)
        try:
            url = await self._callback_url(draft) if problem is None else ""
            crash_point("print.before_intent")
            self._store.check_placed()
            recorded = await self._store.write(partial(record_intent, draft=draft, problem=problem))
        except CommitUncertain as error:
            self._turns.leave(draft.terminal)
            return await self._never_mind(draft, error)
        except BaseException as error:
            self._turns.leave(draft.terminal)
            if isinstance(error, StorageUnavailable):
                raise unavailable(error) from error
            raise
        if recorded is None:
            self._turns.leave(draft.terminal)
            return None
        crash_point("print.intended")
        identity, terminal = draft.print_job_id, draft.terminal
        job = None if draft.queued else recorded
        delivery = self._running.keep(self._deliver(identity, terminal, job, url, ticket))
        self._deliveries[identity] = delivery

        def delivered(_delivery: object) -> None:
            del self._deliveries[identity]
            self._turns.leave(terminal)

        delivery.add_done_callback(delivered)
        return recorded

    async def _callback_url(self, job: PrintJob) -> str:
        """Return where its terminal calls back. Raise Problem terminal_offline."""
        assert job.terminal is not None  # noqa: S101 - what is to be sent has both
        assert job.sent_to is not None  # noqa: S101
        mode = self._fleet.access_mode(job.terminal)
        return await self._callback_urls.url(Channel.PRINT, job.print_job_id, job.sent_to, mode)

    async def _never_mind(self, draft: PrintJob, error: CommitUncertain) -> PrintJob:
        """Do not send what may or may not be on disk; record that it was not sent, where it is. Raise Problem."""
        identity = draft.print_job_id
        log.warning("print.commit_uncertain", print_job=identity, error=str(error))
        attempt = NotSent("its intent could not be committed for certain, so it was not sent")
        self._uncertain.add(identity.lower())
        try:
            concluded = await self._conclude(identity, attempt)
        except Exception as failure:
            self._report(identity, failure)
            self._running.keep(self._conclude_later(identity, attempt))
            raise _not_known(identity, failure) from failure
        self._uncertain.discard(identity.lower())
        if concluded is None:
            raise unavailable(StorageUnavailable("the commit failed")) from error
        return concluded

    async def _deliver(
        self, identity: str, terminal: str, job: PrintJob | None, url: str, ticket: Ticket
    ) -> PrintJob | None:
        """Send it when its turn comes, and commit what the answer proves; return it as it then stands.

        `job` is None where it had to wait: it is read again when its turn comes.
        """
        attempt: Attempt | None
        async with self._turns.send(terminal):
            try:
                attempt = await self._attempt(identity, terminal, job, url, ticket)
            except Exception as error:  # noqa: BLE001 - the job needs a judgement
                self._report(identity, error)
                attempt = Lost("posd failed in a way that it should not while it sent the request")
        if attempt is None:
            return None
        try:
            return await self._conclude(identity, attempt)
        except Exception as error:  # noqa: BLE001 - it is told, and tried again
            self._report(identity, error)
            self._running.keep(self._conclude_later(identity, attempt))
            return None

    async def _attempt(
        self, identity: str, terminal: str, job: PrintJob | None, url: str, ticket: Ticket
    ) -> Attempt | None:
        """Send it, in its turn; None where it is not to be sent any more."""
        if self._draining:
            return NotSent(STOPPING)
        if ticket.failure is not None:
            return NotSent(f"the terminal could not be reached for a print job before it in line: {ticket.failure}")
        if job is None:
            chosen = await self._fleet.addresses.choose(terminal)  # it may have moved while the job waited
            if (dispute := self._fleet.addresses.conflict(terminal)) is not None:
                return NotSent(identity_conflict(dispute, "it was not sent").detail)
            sent_to = chosen[0] if chosen else None
            try:
                job = await self._store.write(partial(take_turn, identity=identity, sent_to=sent_to, now=self._now()))
                if job is None:
                    return None
                url = await self._callback_url(job)
            except (StorageUnavailable, CommitUncertain) as error:
                return NotSent(f"that its turn had come could not be recorded: {error}")
            except Problem as problem:
                return NotSent(problem.detail)
        body = print_body(job, url, self._fleet.rows(terminal)["print"].document_member)
        request = self._fleet.request(terminal, "print", job.sent_to or "", body)
        log.info("print.started", print_job=identity, terminal=terminal)
        crash_point("print.before_send")
        attempt = await self._fleet.contact.call(request, written=partial(crash_point, "print.written"))
        crash_point("print.replied")
        if isinstance(attempt, NotSent):
            ticket.failed(attempt.reason)
        return attempt

    async def _conclude(self, identity: str, attempt: Attempt) -> PrintJob | None:
        """Commit what the attempt proves; None where the intent had not come to disk. Raise what the store raises."""
        after = await self._store.write(partial(record_attempt, identity=identity, attempt=attempt, now=self._now()))
        crash_point("print.concluded")
        judgement = judge(attempt)
        log.info(
            "print.answered",
            print_job=identity,
            terminal=after.terminal if after else None,
            judgement=NAMES[type(judgement)],
            phase=after.phase if after else None,
            reason=getattr(judgement, "reason", None),
            http_status=attempt.status if isinstance(attempt, Replied) else None,
        )
        return after

    async def _conclude_later(self, identity: str, attempt: Attempt) -> None:
        """Try again until the store takes it, or posd stops: the next start then takes it up."""
        while not self._draining:
            await asyncio.sleep(RETRY_STORING_SECONDS)
            with suppress(Exception):  # it was told the first time
                await self._conclude(identity, attempt)
                self._uncertain.discard(identity.lower())
                return

    def _report(self, identity: str, error: Exception) -> None:
        """Tell once that what an attempt proves could not be recorded."""
        if isinstance(error, StorageUnavailable | CommitUncertain):
            log.warning("print.not_recorded", print_job=identity, error=str(error))
        else:
            log.error("posd.internal_error", error_id=secrets.token_hex(8), print_job=identity, exc_info=error)


def _tell_unknown(job: PrintJob) -> None:
    """Log that its document has commands which this version does not know: they go to the terminal as they are."""
    if unknown := unknown_commands(job.document):
        detail = "; ".join(unknown)
        log.warning("print.unknown_command", print_job=job.print_job_id, terminal=job.terminal, detail=detail)


def _not_known(print_job_id: str, why: object) -> Problem:
    problem = not_known(why)
    log.warning("print.not_readable", print_job=print_job_id, error=str(why), error_id=problem.extra["error_id"])
    return problem
