"""Abort of the transaction that holds a terminal.

The terminal's abort call carries no transaction id. So posd sends it only while the transaction holds the terminal's
lease, and only to the device that received the start. posd sends no abort after another device answered for the
transaction, or after the acquirer was asked. An abort does not end the transaction: posd still awaits the outcome.

Source: terminal API, Lifecycle.
"""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial

import structlog

from posd.base.crashpoints import crash_point
from posd.base.problems import Problem
from posd.payments import rows
from posd.payments.answers import AbortAnswer, judge_abort
from posd.payments.entries import AbortAnswered, AbortRequested
from posd.payments.model import Transaction, past_point_of_no_return
from posd.payments.record import free_if_ended, record
from posd.records.model import facts_of
from posd.records.service import RecordService, storage_problem
from posd.records.start import identity_conflict
from posd.storage import CommitUncertain, StorageUnavailable
from posd.storage.batch import WriteTransaction
from posd.terminals.attempt import Attempt, NotSent, cut, size_of

#: Problem codes of a refused abort. The codes for an unknown id are in `handlers.KNOWN`.
REFUSED = (
    "past_point_of_no_return",
    "already_final",
    "nothing_running",
    "not_abortable",
    "terminal_offline",
    "identity_conflict",
    "not_configured",
)

#: Largest number of stored bytes of a reply to an abort. A reply has a status and a short error.
MAX_REPLY_BYTES = 4 * 1024

log = structlog.get_logger("posd.aborts")


class Aborts(RecordService):
    """Sender of aborts. A till requests an abort; the reconciler sends one as a probe."""

    async def abort(self, client_transaction_id: str, uid: int | None) -> Transaction:
        """Send the abort that a till requested.

        Return the changed transaction. Raise Problem if the abort is refused.
        """
        self._quotas.require_calls(client_transaction_id, "cannot abort")
        answer, after = await self._run(client_transaction_id, AbortRequested(probe=False, uid=uid))
        if answer in REFUSALS:
            _require_open(after)  # if the transaction ended during the abort, the problem is `already_final`
            dispute = self._fleet.conflict(after.terminal)
            if answer is AbortAnswer.UNREACHABLE and dispute is not None:
                raise identity_conflict(dispute, "cannot abort")
            code, words = REFUSALS[answer]
            detail = words.format(id=client_transaction_id)
            raise Problem(code, f"cannot abort: terminal {after.terminal} {detail}")
        return after

    def possible(self, transaction: Transaction) -> bool:
        """Whether the transaction's state allows an abort, and the profile allows it for this operation type."""
        if not transaction.abortable:
            return False
        terminal = self._fleet.get(transaction.terminal)
        return terminal is None or transaction.type is None or terminal.rows[transaction.type].abortable

    async def probe(self, client_transaction_id: str) -> AbortAnswer | None:
        """Send an abort to find out whether the terminal runs any transaction.

        Return None if no abort may be sent now.
        """
        try:
            answer, _ = await self._run(client_transaction_id, AbortRequested(probe=True))
        except Problem:
            return None
        return answer

    async def _run(self, client_transaction_id: str, request: AbortRequested) -> tuple[AbortAnswer, Transaction]:
        try:
            return await self._call(client_transaction_id, request)
        except Problem:
            # If the transaction ended during this call, the open call kept the lease. So free the terminal here.
            with suppress(StorageUnavailable, CommitUncertain):
                await self._store.write(partial(self._free, client_transaction_id=client_transaction_id))
            raise

    async def _call(self, client_transaction_id: str, request: AbortRequested) -> tuple[AbortAnswer, Transaction]:
        with self._outstanding.call(client_transaction_id):
            crash_point("abort.before_fence")
            with storage_problem("cannot abort now: {error}; nothing was sent. Try again, and check the disk"):
                transaction = await self._store.write(
                    partial(self._fence, client_transaction_id=client_transaction_id, request=request)
                )
            crash_point("abort.fenced")
            attempt = cut(await self._send(transaction), MAX_REPLY_BYTES)
            self._quotas.keep_event(transaction.terminal, size_of(attempt))
            crash_point("abort.replied")
        after = transaction
        # A disk error here must not fail the abort. If the lease is not freed, the next start replaces it.
        with suppress(StorageUnavailable, CommitUncertain):
            after = await self._store.write(
                partial(self._settle, client_transaction_id=client_transaction_id, attempt=attempt)
            )
        crash_point("abort.settled")
        answer = judge_abort(attempt)
        log.info(
            "payment.abort",
            transaction=client_transaction_id,
            terminal=transaction.terminal,
            kind="probe" if request.probe else "request",
            judgement=answer,
            **facts_of(attempt),
        )
        return answer, after

    async def _send(self, transaction: Transaction) -> Attempt:
        terminal = self._fleet.get(transaction.terminal)
        base_url = await terminal.choose() if terminal is not None else None
        if terminal is not None and (dispute := terminal.conflict) is not None:
            # An abort carries no id, so another terminal at this address would abort its own payment.
            return NotSent(dispute.detail)
        if terminal is None or base_url is None:
            return NotSent(f"no address of terminal {transaction.terminal} is known")
        sent_to = transaction.sent_to or ""  # only an orphan has none, and `_fence` refuses an orphan
        same = terminal.addresses.same_device(sent_to, base_url)
        if same is False:
            return NotSent(
                f"terminal {terminal.serial} is at {base_url} now, and nothing shows that it is the device that "
                f"got the payment at {sent_to}"
            )
        request = terminal.request("abort", base_url)
        return await terminal.call(request, same_as=same if isinstance(same, str) else None)

    def _fence(self, unit: WriteTransaction, client_transaction_id: str, request: AbortRequested) -> Transaction:
        """Record the abort in the journal, and return the transaction. Raise Problem if no abort may be sent for it."""
        transaction = rows.PAYMENT.require(unit.db, client_transaction_id, "cannot abort: ")
        _require_open(transaction)
        if past_point_of_no_return(transaction):
            raise Problem(
                "past_point_of_no_return",
                "cannot abort: the acquirer was already asked; wait for the outcome, and void an approval if necessary",
            )
        if transaction.mismatched:
            raise Problem(
                "not_abortable",
                f"cannot abort: another device than terminal {transaction.terminal} answered for this payment, "
                "and an abort has no id; cancel it on that device",
            )
        if rows.lease_holder(unit.db, transaction.terminal) != client_transaction_id:
            raise Problem(
                "not_abortable",
                f"cannot abort: this payment does not hold terminal {transaction.terminal} any more, and an "
                "abort could cancel another payment. If the terminal still runs this one, cancel it there",
            )
        if not self.possible(transaction):
            raise Problem(
                "not_abortable",
                f"cannot abort: the configuration says that a {transaction.type} on terminal {transaction.terminal} "
                "cannot be aborted (abortable = false in its row of the profile); wait for the outcome",
            )
        return record(unit, transaction, request, self._now(), self._outstanding)

    def _free(self, unit: WriteTransaction, client_transaction_id: str) -> None:
        transaction = rows.get(unit.db, client_transaction_id)
        if transaction is not None:
            free_if_ended(unit, transaction, self._outstanding)

    def _settle(self, unit: WriteTransaction, client_transaction_id: str, attempt: Attempt) -> Transaction:
        """Record the result of an abort, and free the terminal if the transaction has ended. Return the transaction."""
        transaction = rows.PAYMENT.require(unit.db, client_transaction_id)
        return record(unit, transaction, AbortAnswered(attempt, reads_errors=True), self._now(), self._outstanding)


def _require_open(transaction: Transaction) -> None:
    """Raise Problem if the transaction has ended."""
    if (outcome := transaction.outcome) is not None:
        raise Problem("already_final", f"cannot abort: the payment has already ended ({outcome.result})")


#: Results of an abort that the till gets as a Problem -> (problem code, detail). `{id}`: the transaction's id.
REFUSALS: Mapping[AbortAnswer, tuple[str, str]] = {
    AbortAnswer.UNREACHABLE: (
        "terminal_offline",
        "cannot be reached; the payment continues there. Cancel it on the terminal, or try again",
    ),
    AbortAnswer.NOTHING_RUNNING: (
        "nothing_running",
        "says that it runs nothing to abort, and posd still waits for the outcome; ask for it: posd reconcile {id}",
    ),
    AbortAnswer.NOT_TAKEN: (
        "not_configured",
        "does not take this request; check [profile.abort] in the configuration, and cancel on the terminal meanwhile",
    ),
}
