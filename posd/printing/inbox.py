"""The inbox of the print channel: every authentic print webhook ends as one of these rows (terminal API, Printing).

| what arrives                                          | reply | what is kept                                         |
| ----------------------------------------------------- | ----- | ---------------------------------------------------- |
| COMPLETED or FAILED of the job                        | 200   | raw bytes verbatim and their effect, in one commit   |
| the same again (by `printJobId`: nothing new in it)   | 200   | nothing new                                          |
| another final than the terminal's first               | 200   | kept; attention `conflicting_final`                  |
| PENDING, IN_PROGRESS                                  | 200   | kept, and taken like a poll's answer; no end         |
| a state that posd does not know                       | 200   | kept; attention `unknown_status`; no end             |
| of a job that the database does not know              | 200   | kept; the job is rebuilt from it, attention `orphan` |
| of a job that retention has removed                   | 200   | nothing                                              |
| no print webhook, or one that names another job       | 400   | quarantine, attention, a poll at once                |
| without the right signature (`webhook_signature`)     | 403   | the same                                             |
| a body over the limit                                 | 413   | attention, a poll at once                            |
| storage cannot commit now, shutting down              | 503   | nothing; a poll finds it                             |

A wrong token is answered before the body is read, 403, and leaves nothing on disk. Delivery is fire-and-forget: no code
makes the terminal send it again, so that each refusal is followed by a poll, and the codes only say what happened.
"""

from collections.abc import Callable
from datetime import datetime
from functools import partial

import msgspec
import structlog

from posd.base.crashpoints import crash_point
from posd.base.ids import Channel
from posd.base.limits import Limit
from posd.base.times import iso
from posd.printing import record, rows
from posd.printing.entries import Called, Quarantined, Reapplied, repeats
from posd.printing.model import PrintJob, Report, belongs, rebuild
from posd.printing.wire import NotAPrintEvent, read_webhook
from posd.records import pruned, quarantine
from posd.records.came import Came, FirstHeaders
from posd.records.intake import Intake
from posd.records.intake import sender as sender_of
from posd.records.quarantine import NotUsable, QuarantinedBody
from posd.storage.errors import CommitUncertain, StorageUnavailable
from posd.storage.store import Store
from posd.storage.writer import Unit
from posd.terminals.auth.webhooks import Headers
from posd.terminals.fleet import Fleet

log = structlog.get_logger("posd.print_inbox")


class Receipt(msgspec.Struct, frozen=True):
    """What became of one webhook: the HTTP status to answer with, and the facts for the log."""

    status: int
    verdict: str | None = None  # "applied" or "repeated"
    reported: str | None = None
    reason: str | None = None
    job: PrintJob | None = None
    limit: Limit | None = None  # that kept it out of the quarantine
    kept_of: str | None = None  # whose budget of the quarantine takes the body
    updates_terminal: bool = False  # see the payment's


class PrintInbox:
    """Takes print webhooks whose token was checked."""

    def __init__(
        self,
        store: Store,
        fleet: Fleet,
        now: Callable[[], datetime],
        on_unusable: Callable[[str], None] = lambda _identity: None,
        intake: Intake | None = None,
    ) -> None:
        """`on_unusable`: called with the id of a job of which a webhook could not be used: it will not come again."""
        self._intake = intake or Intake()
        self._store = store
        self._fleet = fleet
        self._now = now
        #: Webhooks that came again since the start of the process.
        self.repeated = 0
        self._on_unusable = on_unusable
        self._first_headers = FirstHeaders(Channel.PRINT)

    async def receive(self, print_job_id: str, body: bytes, peer: str, headers: Headers = ()) -> Receipt:
        """Take the body of a webhook; the answer to it is 200, 400, 403, 429 or 503."""
        came = Came(body, peer, self._now(), headers)
        try:
            report = read_webhook(body)
        except NotAPrintEvent as error:
            reason = f"the body is not a print webhook: {error}"
            work = partial(self._quarantine, identity=print_job_id, status=400, reason=reason, came=came)
        else:
            work = partial(self._apply, identity=print_job_id, report=report, came=came)
        crash_point("print_event.before_commit")
        try:
            receipt = await self._store.write(work)
        except (StorageUnavailable, CommitUncertain) as error:
            log.warning(
                "webhook.not_stored",
                print_job=print_job_id,
                error=str(error),
                detail="the terminal does not send it again; a poll will find it when the disk takes it",
            )
            self._on_unusable(print_job_id)
            return Receipt(503)
        crash_point("print_event.committed")
        if receipt.updates_terminal and receipt.job is not None:
            self._first_headers.tell(receipt.job.terminal, headers)
        self._tell(print_job_id, receipt)
        if receipt.limit is not None:
            self._intake.reached.count(receipt.limit)
        elif receipt.kept_of is not None:
            self._intake.keep_body(receipt.kept_of, len(body))
        if receipt.reason is not None:
            self._on_unusable(print_job_id)
        return receipt

    async def broke_off(self, print_job_id: str) -> None:
        """Ask for the job: an authentic webhook began, did not become whole, and will not come again."""
        self._on_unusable(print_job_id)

    async def too_large(self, print_job_id: str, limit: int, peer: str) -> int:
        """Note on the job that an authentic body was over the limit and could not be read.

        Return the HTTP status to answer with: 413, or 503 where that could not be noted.
        """
        reason = f"it was larger than {limit} bytes"
        log.warning("webhook.too_large", print_job=print_job_id, limit_bytes=limit, peer=peer)
        try:
            await self._store.write(partial(_attend, identity=print_job_id, reason=reason, at=self._now()))
        except (StorageUnavailable, CommitUncertain) as error:
            log.warning("webhook.not_stored", print_job=print_job_id, error=str(error))
            return 503
        finally:
            self._on_unusable(print_job_id)
        return 413

    def reapply(self, unit: Unit, item: QuarantinedBody) -> str | None:
        """Apply a body of the quarantine (runs inside a commit); return its verdict. Raise NotUsable."""
        try:
            report = read_webhook(item.body)
        except NotAPrintEvent as error:
            raise NotUsable from error
        known, came = rows.get(unit.db, item.subject), quarantine.again(unit.db, item, self._now())
        if known is not None and (self._unsigned(known, came) or not _belongs(known, report)):
            raise NotUsable
        receipt = self._apply(unit, item.subject, report, came)
        if not quarantine.take_out(unit, item) and (known := rows.get(unit.db, item.subject)) is not None:
            record.record(unit, known, Reapplied(), self._now())
        return receipt.verdict

    def _unsigned(self, known: PrintJob | None, came: Came) -> str:
        """Say why a webhook is refused by its signature, empty where it is not.

        The terminal that was asked decides. A webhook names none: one of a job that is not known is believed by its
        address.
        """
        terminal = known.terminal if known is not None else None
        return self._fleet.webhook_fault(terminal, came.headers, came.body) if terminal is not None else ""

    def _apply(self, unit: Unit, identity: str, report: Report, came: Came) -> Receipt:
        """Record a webhook and its effect (runs inside the commit)."""
        before, at, body = rows.get(unit.db, identity), came.at, came.body
        if before is None and pruned.print_job(unit.db, identity) is not None:
            return Receipt(200)  # retention has removed it; no word of a printer is worth more than that
        if reason := self._unsigned(before, came):
            return self._quarantine(unit, identity, 403, reason, came)
        stored = before or rebuild(report, identity, at)
        if not _belongs(stored, report):
            reason = "the body names another print job than the callback address"
            return self._quarantine(unit, identity, 400, reason, came)
        if before is None:
            record.begin(unit, stored, "orphan")
        elif repeats(stored, body, rows.callbacks(unit.db, identity), at):
            return Receipt(200, "repeated", report.status, job=before, updates_terminal=before.updates_terminal)
        job = record.record(unit, stored, Called(body), at)
        return Receipt(200, "applied", report.status, job=job, updates_terminal=stored.updates_terminal)

    def _quarantine(self, unit: Unit, identity: str, status: int, reason: str, came: Came) -> Receipt:
        """Keep a body that cannot be used (runs inside the commit)."""
        known = rows.get(unit.db, identity)
        updates = known is not None and known.updates_terminal
        terminal = known.terminal if known is not None else None
        sender = sender_of(terminal, updates_terminal=updates) if terminal else came.peer
        if (limit := self._intake.limit_of_body(sender, len(came.body))) is not None:
            reason = quarantine.NOT_KEPT
            job = _attend(unit, identity, reason, came.at)
            status = quarantine.status_past(limit)
            return Receipt(status, reason=reason, job=job, limit=limit, updates_terminal=updates)
        if not quarantine.put(unit, Channel.PRINT, identity, reason, came):
            # One reason for all that follow: each other one would be a change that is written down.
            reason = f"{quarantine.MAX_KEPT} callbacks of this job are in quarantine already; more are not kept"
            sender = ""
        job = _attend(unit, identity, reason, came.at)
        return Receipt(status, reason=reason, job=job, kept_of=sender or None, updates_terminal=updates)

    def _tell(self, identity: str, receipt: Receipt) -> None:
        if receipt.reason is not None:
            log.warning("webhook.quarantined", print_job=identity, http_status=receipt.status, reason=receipt.reason)
        if receipt.job is None or receipt.reason is not None:
            return
        self.repeated += receipt.verdict == "repeated"
        log.info(
            "webhook.print",
            print_job=identity,
            verdict=receipt.verdict,
            status=receipt.reported,
            phase=receipt.job.phase,
        )
        if receipt.job.terminal is not None and receipt.updates_terminal:
            self._fleet.heard_from(receipt.job.terminal, iso(self._now()))


def _belongs(job: PrintJob, report: Report) -> bool:
    """Tell whether a webhook is of the job of its address; one whose id is damaged is, by the token."""
    return report.job_id is None or belongs(job, report.job_id)


def _attend(unit: Unit, identity: str, reason: str, at: datetime) -> PrintJob | None:
    """Note it on the job, where it is known; return the job as it then stands."""
    known = rows.get(unit.db, identity)
    return record.record(unit, known, Quarantined(reason), at) if known is not None else None
