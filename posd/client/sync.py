"""The sync client: `Posd`, and the handles of payments and print jobs."""

from collections.abc import Awaitable, Generator, Iterator
from dataclasses import replace
from datetime import datetime
from types import TracebackType
from typing import Any, Generic, Self

from posd.client import calls, plans
from posd.client.calls import PaymentCalls, PrintCalls, Reads, Starts
from posd.client.connection import Connection
from posd.client.documents import OutcomeUnknown, Problem
from posd.client.operations import Id, Operations, Paid, Reserved, Reversed
from posd.client.plans import Call, OnNotice, Place, Plan, R, transaction_path
from posd.client.states import (
    Change,
    E,
    FeedChange,
    Health,
    Outcome,
    PrintJob,
    State,
    Terminal,
    Transaction,
    Version,
)
from posd.client.store import StoredPayment


class Payment(PaymentCalls[Transaction, Outcome[E], bool], Generic[E]):
    """Handle of a payment that was started, or may have been (see `PaymentCalls`)."""

    _posd: "Posd"

    def watch(self) -> Generator[Change | State | Outcome[E], None, None]:
        """Yield the terminal's events and the payment's states, from the beginning, and finally the outcome.

        The stream continues over restarts of posd, without repetition. Raise UnknownResult or OutcomeUnknown.
        """
        place = plans.watched(self._posd.socket, self.id, self._posd.on_away)
        try:
            for item, change in self._posd.connection.follow(place):
                if item.name == plans.OUTCOME_ITEM:
                    break
                if change is not None:
                    yield change
        except Problem as problem:
            raise OutcomeUnknown(self.id, problem.compare(self._stored_at)) from problem
        yield self.outcome()


class Print(PrintCalls[PrintJob]):
    """Handle of a print job that was started, or may have been."""


class Posd(
    Starts[Payment, Print],
    Operations[Payment[Paid], Payment[Reserved], Payment[Reversed]],
    Reads[Iterator[Transaction], Iterator[PrintJob], list[Terminal], Terminal, Health, Version],
):
    """Client of the daemon behind one Unix socket: `socket`, else the socket in POSD_SOCKET, else /run/posd/till.sock.

    `patience`: seconds for which a call is repeated while posd is away (for example restarting). `on_away`: called with
    the reason before each repetition of a call or a wait. `store`: called with each payment before its start, and
    returns when the payment is on disk. It is `PaymentStore.save`, or a function of the till. If it raises, nothing is
    started. `amount_members`: further parts of an amount that posd's configuration allows. `language`: language of the
    `display` texts (en, es); by default that of posd's configuration.

    Threads may share it. A forked process creates its own.
    """

    def _connect(self, language: str | None) -> None:
        self.connection = Connection(self.socket, language)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the client. Started payments continue."""
        self.connection.close()

    def transaction(self, id: Id | StoredPayment) -> Payment:  # noqa: A002 - the field's name
        """Return the handle of a payment by its id, or as stored, without a call to posd."""
        known = id if isinstance(id, StoredPayment) else StoredPayment(str(id), None)
        return Payment(self, calls.transaction_id(known.id), stored_at=known.stored_at)

    def printed(self, id: str) -> Print:  # noqa: A002 - the field's name
        """Return the handle of a print job by its id, without a call to posd."""
        return Print(self, calls.print_job_id(id))

    def feed(
        self, after: int | str = plans.START, *, on_notice: OnNotice | None = None
    ) -> Generator[FeedChange, None, None]:
        """Yield every recorded change of every payment and print job after a place, without end.

        The stream continues over restarts of posd, without repetition or gap, if the till stores the `place` of the
        last change. `on_notice` is called if changes may be missing (after removal by retention, or a restored backup).
        Raise Problem.
        """
        place = Place(self.socket, "/feed", FeedChange, after, self.on_away, on_notice)
        for _, change in self.connection.follow(place):
            if change is not None:
                yield replace(change, place=place.resume)

    def _run(self, plan: Plan[Any]) -> Any:
        return self.connection.run(plan)

    def _begin(self, payment: StoredPayment, stored_at: datetime | None) -> Payment:
        stored = self.store and self.store(payment)
        if isinstance(stored, Awaitable):
            raise TypeError(f"`store` has stored nothing yet, it returned {stored!r}: that is for AsyncPosd")
        stored_at = stored.stored_at if isinstance(stored, StoredPayment) else stored_at
        call = Call("PUT", transaction_path(payment.id), body=payment.body)
        plan = plans.begin(self.socket, call, Transaction, self.patience, self.on_away, stored_at)
        return Payment(self, payment.id, self.connection.run(plan), stored_at)

    def _begin_print(self, identity: str, call: Call) -> Print:
        plan = plans.begin(self.socket, call, PrintJob, self.patience, self.on_away)
        return Print(self, identity, self.connection.run(plan))

    def _rows(self, call: Call, member: str, kind: type[R]) -> Iterator[R]:
        cursor: str | None = ""
        while cursor is not None:
            paged = replace(call, params={**call.params, "cursor": cursor}) if cursor else call
            rows, cursor = self.connection.run(plans.page(paged, member, kind, self._away()))
            yield from rows
