"""What the sync and the async client have in common: every call that is the same but for the `await` before it.

`Starts`, `PaymentCalls` and the rest are written once. What they answer is a `Payment` or an
`Awaitable[AsyncPayment]`, a `Transaction` or an `Awaitable[Transaction]`: the type parameters.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Generic, TypeAlias, TypeVar
from uuid import UUID

from posd.client import calls
from posd.client.calls import Amount, Call

Started = TypeVar("Started", covariant=True)
Printed = TypeVar("Printed", covariant=True)
Payments = TypeVar("Payments", covariant=True)
PrintJobs = TypeVar("PrintJobs", covariant=True)
State = TypeVar("State", covariant=True)

Id: TypeAlias = UUID | str
Json: TypeAlias = Mapping[str, object]


class Starts(ABC, Generic[Started, Printed]):
    """The calls that start a payment or a print job.

    `id` is a UUID that the till has made **and stored** before the call: asked again with it, posd never starts a
    second time. `amount`: its parts (`iva`, `subtotal_iva`, `subtotal_iva0`, ...), or one number that means
    `subtotal_iva0`; Decimal, int or str, never a float. `terminal` may be left out where there is only one. `sale`:
    what is being paid, so that it is not paid twice; `repeat` lifts that (split payment). `metadata` is kept and can be
    searched for, `options` go to the terminal as they are. An operation on another payment names it by its id
    (`original`), or by the `transaction_reference` that the acquirer gave it.

    A call returns once the terminal has acknowledged or refused, or left doubt; the handle's outcome says which. While
    posd is away it is repeated with the same id, for the client's patience.

    Raise Problem (this call sent nothing; after IdReused and Pruned look at what this id was used for before),
    Unreachable (nothing is known: repeat the same call with the same id), or TypeError and ValueError for what is no
    amount and no id.
    """

    @abstractmethod
    def _begin(self, identity: str, call: Call) -> Started:
        """Make the call that starts."""

    @abstractmethod
    def _begin_print(self, identity: str, call: Call) -> Printed:
        """Make the call that starts a print job."""

    def _start(self, kind: str, given: Id, amount: Amount | None, **fields: object) -> Started:
        identity = calls.transaction_id(given)
        return self._begin(identity, calls.start(identity, kind, amount, fields))

    def charge(
        self,
        id: Id,  # noqa: A002 - the field's name
        amount: Amount,
        *,
        terminal: str | None = None,
        sale: str | None = None,
        metadata: Json | None = None,
        options: Json | None = None,
        repeat: bool = False,
    ) -> Started:
        """Charge a card."""
        return self._start(
            "charge",
            id,
            amount,
            terminal=terminal,
            sale=sale,
            metadata=metadata,
            options=options,
            repeat=repeat,
        )

    def pre_auth(
        self,
        id: Id,  # noqa: A002 - the field's name
        amount: Amount,
        *,
        terminal: str | None = None,
        sale: str | None = None,
        metadata: Json | None = None,
        options: Json | None = None,
        repeat: bool = False,
    ) -> Started:
        """Reserve an amount on a card, to capture it later."""
        return self._start(
            "pre-auth",
            id,
            amount,
            terminal=terminal,
            sale=sale,
            metadata=metadata,
            options=options,
            repeat=repeat,
        )

    def re_auth(
        self,
        id: Id,  # noqa: A002 - the field's name
        amount: Amount,
        *,
        original: Id | None = None,
        transaction_reference: Id | None = None,
        terminal: str | None = None,
        sale: str | None = None,
        metadata: Json | None = None,
        options: Json | None = None,
        repeat: bool = False,
    ) -> Started:
        """Change what a pre-authorization reserves."""
        return self._start(
            "re-auth",
            id,
            amount,
            original=original and calls.transaction_id(original),
            transaction_reference=transaction_reference and str(transaction_reference),
            terminal=terminal,
            sale=sale,
            metadata=metadata,
            options=options,
            repeat=repeat,
        )

    def capture(
        self,
        id: Id,  # noqa: A002 - the field's name
        amount: Amount,
        *,
        original: Id | None = None,
        transaction_reference: Id | None = None,
        terminal: str | None = None,
        sale: str | None = None,
        metadata: Json | None = None,
        options: Json | None = None,
        repeat: bool = False,
    ) -> Started:
        """Charge what a pre-authorization reserves."""
        return self._start(
            "capture",
            id,
            amount,
            original=original and calls.transaction_id(original),
            transaction_reference=transaction_reference and str(transaction_reference),
            terminal=terminal,
            sale=sale,
            metadata=metadata,
            options=options,
            repeat=repeat,
        )

    def post_tip(
        self,
        id: Id,  # noqa: A002 - the field's name
        amount: Amount,
        *,
        original: Id | None = None,
        transaction_reference: Id | None = None,
        terminal: str | None = None,
        sale: str | None = None,
        metadata: Json | None = None,
        options: Json | None = None,
        repeat: bool = False,
    ) -> Started:
        """Add a tip to an approved charge."""
        return self._start(
            "post-tip",
            id,
            amount,
            original=original and calls.transaction_id(original),
            transaction_reference=transaction_reference and str(transaction_reference),
            terminal=terminal,
            sale=sale,
            metadata=metadata,
            options=options,
            repeat=repeat,
        )

    def void(
        self,
        id: Id,  # noqa: A002 - the field's name
        amount: Amount | None = None,
        *,
        original: Id | None = None,
        transaction_reference: Id | None = None,
        terminal: str | None = None,
        sale: str | None = None,
        metadata: Json | None = None,
        options: Json | None = None,
        repeat: bool = False,
    ) -> Started:
        """Reverse a charge, a capture or a pre-authorization; no amount is needed."""
        return self._start(
            "void",
            id,
            amount,
            original=original and calls.transaction_id(original),
            transaction_reference=transaction_reference and str(transaction_reference),
            terminal=terminal,
            sale=sale,
            metadata=metadata,
            options=options,
            repeat=repeat,
        )

    def print_job(
        self,
        id: str,  # noqa: A002 - the field's name
        document: Json,
        *,
        terminal: str | None = None,
        external_reference: str | None = None,
        reprint_of: str | None = None,
    ) -> Printed:
        """Print a document, which goes to the terminal as it is. `id`: 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-'."""
        identity = calls.print_job_id(id)
        fields = {
            "document": document,
            "terminal": terminal,
            "external_reference": external_reference,
            "reprint_of": reprint_of,
        }
        return self._begin_print(identity, calls.put(calls.print_job_path(identity), fields))


class Lists(ABC, Generic[Payments, PrintJobs]):
    """The lists, newest first, read page by page (`page_size` rows at a time, up to 500) while they are gone through.

    `since` is inclusive, `until` is not; both are aware times. Raise InvalidRequest or Unreachable.
    """

    @abstractmethod
    def _payments(self, call: Call) -> Payments:
        """Yield the rows of a list of payments, from its first page on."""

    @abstractmethod
    def _print_jobs(self, call: Call) -> PrintJobs:
        """Yield the rows of a list of print jobs, from its first page on."""

    def transactions(
        self,
        *,
        phase: str | None = None,
        open: bool | None = None,  # noqa: A002 - the field's name
        terminal: str | None = None,
        sale: str | None = None,
        attention: bool | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        metadata: Json | None = None,
        page_size: int | None = None,
    ) -> Payments:
        """Yield the payments that fit."""
        filters = {
            "phase": phase,
            "open": open,
            "terminal": terminal,
            "sale": sale,
            "attention": attention,
            "since": since,
            "until": until,
            "limit": page_size,
        }
        return self._payments(calls.get("/transactions", filters | calls.metadata_filters(metadata)))

    def print_jobs(
        self,
        *,
        phase: str | None = None,
        open: bool | None = None,  # noqa: A002 - the field's name
        terminal: str | None = None,
        external_reference: str | None = None,
        attention: bool | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        page_size: int | None = None,
    ) -> PrintJobs:
        """Yield the print jobs that fit."""
        filters = {
            "phase": phase,
            "open": open,
            "terminal": terminal,
            "external_reference": external_reference,
            "attention": attention,
            "since": since,
            "until": until,
            "limit": page_size,
        }
        return self._print_jobs(calls.get("/print-jobs", filters))


class PaymentCalls(ABC, Generic[State]):
    """The calls on a payment that was started. None of them starts anything."""

    def __init__(self, identity: str) -> None:
        #: The id that the till chose, in lower case.
        self.id = identity

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    @abstractmethod
    def _state(self, call: Call, *, once: bool = False) -> State:
        """Make a call that answers the transaction; with `once`, it is not repeated where it may have been read."""

    @abstractmethod
    def _look(self, call: Call) -> State:
        """Make a call that reads the transaction, also while posd cannot read its database."""

    def state(self) -> State:
        """Return how it stands. Raise NotFound, Pruned, or Unreachable where posd is away or cannot look."""
        return self._look(calls.get(calls.transaction_path(self.id)))

    def abort(self) -> State:
        """Ask the terminal to stop it; the outcome still has to be awaited: an approval can be faster.

        Raise PastPointOfNoReturn, AlreadyFinal, NotAbortable, NothingRunning, TerminalOffline or Unreachable.
        """
        return self._state(calls.post(calls.transaction_path(self.id, "/abort")))

    def reconcile(self) -> State:
        """Ask the terminal now what became of it (posd does so by itself, too)."""
        return self._state(calls.post(calls.transaction_path(self.id, "/reconcile")))

    def release(self, operator: str, note: str) -> State:
        """Free its terminal, by a person's word; it stays open. Raise CallOutstanding or AlreadyFinal."""
        return self._decide("/release", operator=operator, note=note)

    def resolve(self, result: str, operator: str, note: str, *, transaction_reference: Id | None = None) -> State:
        """Close it by a person's word, on the admin socket: `result` is a word of the contract.

        Raise Forbidden, CallOutstanding or AlreadyFinal.
        """
        reference = transaction_reference and str(transaction_reference)
        return self._decide("/resolve", result=result, operator=operator, note=note, transaction_reference=reference)

    def acknowledge(self, code: str, operator: str, note: str) -> State:
        """Clear one attention, on the admin socket: a person has looked at it. Raise Forbidden."""
        return self._decide("/acknowledge", code=code, operator=operator, note=note)

    def _decide(self, call: str, **fields: Any) -> State:
        return self._state(calls.post(calls.transaction_path(self.id, call), fields), once=True)
