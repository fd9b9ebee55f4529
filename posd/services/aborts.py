"""Aborting: a request, fenced to the transaction that holds the terminal (design 6; spec 3.1, rules 2 and 5).

Abort on these terminals carries no transaction id, so it is sent only while the transaction holds the lease, to the
device that was asked, never after that device turned out to be another one, never past the point of no return.
The outcome is still awaited: it is a cancellation, or an approval that was faster.
"""

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import partial

import structlog

from posd.core.problems import Problem
from posd.core.profile import Profile, resolve_path
from posd.core.starts import Attempt, Lost, NotSent, Replied
from posd.core.times import iso
from posd.core.transactions import AttentionCode, Phase, Transaction, past_point_of_no_return
from posd.services.outstanding import Outstanding
from posd.store import leases, transactions
from posd.store.errors import CommitUncertain, StorageUnavailable
from posd.store.store import Store
from posd.store.writer import Unit
from posd.terminals.fleet import Fleet

log = structlog.get_logger("posd.aborts")


class Aborts:
    """Use case of the till: abort."""

    def __init__(
        self, store: Store, fleet: Fleet, profile: Profile, outstanding: Outstanding, now: Callable[[], datetime]
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._profile = profile
        self._outstanding = outstanding
        self._now = now

    async def abort(self, client_transaction_id: str) -> Transaction:
        """Ask the terminal to abort; return the transaction as it then stands. Raise Problem."""
        with self._outstanding.call(client_transaction_id):
            try:
                transaction = await self._store.write(partial(self._fence, client_transaction_id=client_transaction_id))
            except (StorageUnavailable, CommitUncertain) as error:
                detail = f"cannot abort now: {error}; nothing was sent. Try again, and check the disk"
                raise Problem("storage_unavailable", detail) from error
            attempt = await self._send(transaction)
        after = transaction
        # The abort is under way whatever the disk does now; a lease that is left the next start takes over.
        with suppress(StorageUnavailable, CommitUncertain):
            after = await self._store.write(partial(self._settle, client_transaction_id=client_transaction_id))
        log.info(
            "payment.abort",
            transaction=client_transaction_id,
            terminal=transaction.terminal,
            http_status=attempt.status if isinstance(attempt, Replied) else None,
            reason=None if isinstance(attempt, Replied) else attempt.reason,
        )
        _judge(attempt, after)
        return after

    async def _send(self, transaction: Transaction) -> Attempt:
        row = self._profile.local["abort"]
        terminal = transaction.terminal
        path = resolve_path(row, terminal_serial=terminal)
        newest = self._fleet.base_url(terminal) if terminal in self._fleet else None
        if newest is None:
            return NotSent(f"no address of terminal {terminal} is known")
        attempt = await self._fleet.device(terminal).call(row.method, f"{newest[0]}{path}")
        self._fleet.reached(terminal, not isinstance(attempt, NotSent), iso(self._now()))
        return attempt

    def _fence(self, unit: Unit, client_transaction_id: str) -> Transaction:
        """Return the transaction if an abort may be sent for it, and note in its history that it is."""
        transaction = transactions.get(unit.db, client_transaction_id)
        if transaction is None:
            raise Problem("not_found", f"cannot abort: no transaction {client_transaction_id} is known here")
        _require_open(transaction)
        if past_point_of_no_return(transaction):
            raise Problem(
                "past_point_of_no_return",
                "cannot abort: the acquirer was already asked; wait for the outcome, and void an approval if need be",
            )
        if transaction.attention_of(AttentionCode.SERIAL_MISMATCH):
            raise Problem(
                "not_abortable",
                f"cannot abort: another device than terminal {transaction.terminal} answered for this payment, and an "
                "abort carries no id; cancel it on that device",
            )
        if leases.holder(unit.db, transaction.terminal) != client_transaction_id:
            raise Problem(
                "not_abortable",
                f"cannot abort: this payment no longer holds terminal {transaction.terminal}, and an abort would hit "
                "whatever runs there now; cancel it on the terminal",
            )
        transactions.note(unit, transaction, "abort_requested", iso(self._now()))
        return transaction

    def _settle(self, unit: Unit, client_transaction_id: str) -> Transaction:
        """Return the transaction as it stands after the call, and free the terminal if it ended meanwhile."""
        transaction = transactions.get(unit.db, client_transaction_id)
        assert transaction is not None  # noqa: S101 - the fence has seen it, and started ids are never removed
        if transaction.phase is Phase.FINAL and not self._outstanding.of(client_transaction_id):
            leases.give_up(unit, client_transaction_id)
        return transaction


def _require_open(transaction: Transaction) -> None:
    """Raise Problem where it has ended."""
    if transaction.phase is Phase.FINAL and transaction.outcome is not None:
        raise Problem("already_final", f"cannot abort: it has already ended ({transaction.outcome.result})")


def _judge(attempt: Attempt, transaction: Transaction) -> None:
    """Raise Problem where the terminal certainly did not take the abort."""
    refusal = _refusal(attempt, transaction.terminal)
    if refusal is not None:
        _require_open(transaction)  # it may have ended while the abort was under way: that says more
        raise refusal


def _refusal(attempt: Attempt, terminal: str) -> Problem | None:
    """Return why the terminal did not take an abort, None where it did or may have."""
    match attempt:
        case NotSent(reason=reason):
            return Problem(
                "terminal_offline",
                f"cannot abort: terminal {terminal} cannot be reached ({reason}); "
                "the payment goes on there. Cancel it on the terminal, or try again",
            )
        case Replied(status=409):
            return Problem(
                "nothing_running",
                f"cannot abort: terminal {terminal} says that it runs nothing it could abort; "
                "the outcome is still awaited",
            )
        case Replied(status=status) if 300 <= status < 500 and status != 408:
            return Problem(
                "not_configured",
                f"cannot abort: terminal {terminal} does not take this request (HTTP {status}); check "
                "[profile.abort] in the configuration, and cancel on the terminal meanwhile",
            )
        case Replied() | Lost():
            return None
