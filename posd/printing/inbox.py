"""Inbox of the print channel: the handling of each authentic print webhook (terminal API, Printing).

`base.replies` has the replies. A terminal never sends a webhook again, for any HTTP status of the reply. So posd
polls the job after it has refused a webhook.

| webhook                                                    | effect                                           |
| ---------------------------------------------------------- | ------------------------------------------------ |
| COMPLETED or FAILED                                        | the job ends                                     |
| COMPLETED or FAILED, after the terminal reported the other | attention `conflicting_final`                    |
| PENDING or IN_PROGRESS                                     | the terminal has the job; the job does not end   |
| a state that posd does not know                            | attention `unknown_status`; the job does not end |
| about a job that is not in the database                    | posd rebuilds the job, with attention `orphan`   |
"""

from collections.abc import Callable
from functools import partial

import structlog

from posd.base.crashpoints import crash_point
from posd.base.fair_queue import read_apart
from posd.base.replies import CallbackResult, RefusedBody, refusal
from posd.base.times import iso
from posd.printing import rows
from posd.printing.documents import PrintApplied, PrintDifference
from posd.printing.entries import Called, repeats
from posd.printing.model import JobReport, PrintJob, belongs, rebuild
from posd.printing.wire import NotAPrintEvent, read_webhook
from posd.records import quarantine
from posd.records.inbox import CallbackInbox, CallbackReceipt, UnreadableCallback
from posd.records.quarantine import Derivable, QuarantineEntry, ReceivedCallback
from posd.records.service import RecordService, ServiceParts
from posd.storage import CommitUncertain, StorageUnavailable
from posd.storage.batch import WriteTransaction
from posd.terminals.authentication import Headers

log = structlog.get_logger("posd.print_inbox")


class PrintInbox(RecordService):
    """Handler of print webhooks with a checked token."""

    def __init__(self, parts: ServiceParts, on_unusable: Callable[[str], None] = lambda _identity: None) -> None:
        """`on_unusable`: called with the id of a job after an unusable webhook, which is never sent again."""
        super().__init__(parts)
        self.callbacks = CallbackInbox(rows.PRINT_JOB, parts, rows.record, on_unusable, comes_once=True)

    async def receive(self, print_job_id: str, body: bytes, peer: str, headers: Headers = ()) -> CallbackReceipt:
        """Process the body of a webhook. Return the receipt, which determines the reply."""
        came = ReceivedCallback(body, peer, self._now(), headers)
        try:
            report = await read_apart(read_webhook, body, peer)
        except NotAPrintEvent as error:
            work = partial(self.callbacks.refuse, identity=print_job_id, refusal=_unreadable(error), came=came)
        else:
            work = partial(self._apply, identity=print_job_id, report=report, came=came)
        crash_point("print_event.before_commit")
        try:
            receipt = await self._store.write(work)
        except (StorageUnavailable, CommitUncertain) as error:
            return self.callbacks.not_stored(print_job_id, error)
        crash_point("print_event.committed")
        self.callbacks.committed(print_job_id, came, receipt)
        if receipt.verdict is not None:
            log.info(
                "webhook.print",
                print_job=print_job_id,
                verdict=receipt.verdict,
                status=receipt.states,
                phase=receipt.phase,
            )
            if receipt.terminal is not None and receipt.updates_terminal:
                self._fleet.heard_from(receipt.terminal, iso(self._now()))
        return receipt

    async def broke_off(self, print_job_id: str) -> None:
        """Poll a job after an incomplete authentic webhook, which the terminal does not send again."""
        self.callbacks.on_unusable(print_job_id)

    async def lose(self, print_job_id: str, lost: UnreadableCallback) -> CallbackResult:
        """Record on a job that an authentic webhook was unreadable, and poll the terminal."""
        return await self.callbacks.lose(print_job_id, lost, self._now())

    def reapply(self, unit: WriteTransaction, item: QuarantineEntry) -> str | None:
        """Apply a body of the quarantine (inside a commit). Return its verdict. Raise RefusedBody."""
        try:
            report = read_webhook(item.body)
        except NotAPrintEvent as error:
            raise _unreadable(error) from error
        known, came = rows.get(unit.db, item.subject), quarantine.again(unit.db, item, self._now())
        if known is not None and (refused := self._refusal(known, report, came)) is not None:
            raise refused
        receipt = self._apply(unit, item.subject, report, came)
        self.callbacks.take_out(unit, item, self._now())
        return receipt.verdict

    def _refusal(self, known: PrintJob, report: JobReport, came: ReceivedCallback) -> RefusedBody | None:
        """Return why a webhook of a known job is refused, or None.

        The signature is checked with the key of the terminal that was asked. The signature of a webhook about an
        unknown job is not checked, because no serial tells which key to use. A webhook with a damaged id belongs to
        the job of its address, as the token proves.
        """
        fault = self._fleet.webhook_fault(known.terminal, came.headers, came.body) if known.terminal else None
        ours = report.job_id is None or belongs(known, report.job_id)
        return refusal(signature_fault=fault, another=None if ours else "print job")

    def _apply(
        self, unit: WriteTransaction, identity: str, report: JobReport, came: ReceivedCallback
    ) -> CallbackReceipt:
        """Record a webhook and its effect. Runs inside the commit."""
        before, at, body = rows.get(unit.db, identity), came.at, came.body
        if before is None and rows.PRINT_JOB.find_pruned(unit.db, identity) is not None:
            return CallbackReceipt(CallbackResult.REMOVED)  # an operator need not check this late report
        if before is not None and (refused := self._refusal(before, report, came)) is not None:
            return self.callbacks.refuse(unit, identity, refused, came)
        stored = before or rebuild(report, identity, at)
        result, job = CallbackResult.APPLIED, stored
        if before is None:
            rows.begin(unit, stored, "orphan")
        elif repeats(stored, body, rows.callbacks(unit.db, identity), at):
            result = CallbackResult.REPEATED
        if result is CallbackResult.APPLIED:
            job = rows.record(unit, stored, Called(body), at)
        updates = stored.updates_terminal
        return CallbackReceipt(
            result, job.terminal, result.word, report.status, phase=job.phase, updates_terminal=updates
        )


def _unreadable(error: NotAPrintEvent) -> RefusedBody:
    return RefusedBody(error.result, f"the body is not a print webhook: {error}")


def print_records(inbox: PrintInbox) -> Derivable[PrintJob]:
    """Return the functions that derive print jobs again. Every print job has a complete journal."""
    differs = partial(rows.differing, word="reprocessed")
    return Derivable(rows.PRINT_JOB, differs, inbox.reapply, PrintApplied, PrintDifference)
