"""The sync client: `Posd`, and the handles of payments and print jobs."""

import os
from collections.abc import Awaitable, Collection, Generator, Iterator
from dataclasses import replace
from datetime import datetime
from types import TracebackType
from typing import Generic, Self

from posd.client import calls, connection, plans
from posd.client.calls import Call, Id, Lists, PaymentCalls, Starts
from posd.client.connection import Connection
from posd.client.documents import OutcomeUnknown, Problem
from posd.client.plans import PATIENCE_SECONDS, Away, Handle, Latest, OnAway, OnNotice, Place, R, Show
from posd.client.states import (
    Change,
    E,
    FeedChange,
    Health,
    Outcome,
    Paid,
    PrintJob,
    Reserved,
    Reversed,
    State,
    Terminal,
    Transaction,
    Version,
)
from posd.client.store import Store, StoredPayment


class Payment(Handle["Posd", Transaction], PaymentCalls[Transaction], Generic[E]):
    """A payment that was started, or may have been.

    Dropping the handle does not affect it: it continues, and is found by id.
    """

    def _state(self, call: Call, *, once: bool = False) -> Transaction:
        self._latest.state = state = self._posd._one(call, Transaction, once=once)
        return state

    def _look(self, call: Call) -> Transaction:
        return self._posd._look(call, Transaction, self._latest)

    def outcome(self, timeout: float | None = None, *, show: Show | None = None) -> Outcome[E]:
        """Wait for the outcome, over restarts of posd, without limit or `timeout` seconds. It starts nothing.

        `show` is called with each new text for the cashier (`display`), the last one too. If a person has to check, the
        text says so, and there is no outcome yet.

        Raise StillOpen when the time is over (the payment continues), UnknownResult or OutcomeUnknown.
        """
        plan = plans.outcome(self.id, timeout, self._latest, self._posd.on_away, show, self._stored_at)
        found: Outcome[E] = self._posd.connection.run(plan)
        return found

    def is_known(self, within: float = plans.ON_ITS_WAY_SECONDS) -> bool:
        """Return whether posd knows a payment that was stored before a crash of the till; it starts nothing.

        Until posd knows it, the call is repeated for `within` seconds, because the start may still be on its way. False
        means that it was never started. Raise Unreachable. Raise OutcomeUnknown if posd may have lost its record in a
        restore, unless the payment was stored later.
        """
        plan = plans.is_known(self._posd.socket, self.id, self._latest, self._stored_at, within, self._posd._troubled())
        return self._posd.connection.run(plan)

    def watch(self) -> Generator[Change | State | Outcome[E], None, None]:
        """Yield the terminal's events and the payment's states, from the beginning, and last the outcome.

        Over restarts of posd, without repetition. Raise UnknownResult or OutcomeUnknown.
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


class Print(Handle["Posd", PrintJob]):
    """A print job that was started, or may have been."""

    def state(self) -> PrintJob:
        """Return its state. Raise Problem; raise Unreachable if posd is away or cannot read it."""
        call = calls.get(calls.print_job_path(self.id))
        return self._posd._look(call, PrintJob, self._latest)

    def outcome(self, timeout: float | None = None) -> PrintJob:
        """Wait for its end, over restarts of posd, without limit or `timeout` seconds.

        Raise StillPrinting when the time is over (the job continues), Problem if posd does not know it, or Unreachable
        if posd keeps failing.
        """
        return self._posd.connection.run(
            plans.print_outcome(self._posd.socket, self.id, timeout, self._latest, self._posd.on_away)
        )


class Posd(
    Starts[Payment[Paid], Payment[Reserved], Payment[Reversed], Payment, Print],
    Lists[Iterator[Transaction], Iterator[PrintJob]],
):
    """The daemon behind one Unix socket: `socket`, else that of POSD_SOCKET, else /run/posd/till.sock.

    `patience`: seconds for which a call is repeated while posd is away (restarting). `on_away`: called with the reason
    before each repetition of a call or a wait. `store`: called with each payment before its start, and returns once it
    is on disk. It is `PaymentStore.save`, or a function of the till; if it raises, nothing is started.
    `amount_members`: further parts of an amount in posd's configuration. `language`: that of the `display` texts (en,
    es), by default that of posd's configuration.

    Threads may share it. A forked process makes its own.
    """

    def __init__(
        self,
        socket: str | os.PathLike[str] | None = None,
        *,
        patience: float = PATIENCE_SECONDS,
        on_away: OnAway | None = None,
        amount_members: Collection[str] = (),
        store: Store | None = None,
        language: str | None = None,
    ) -> None:
        self.socket = connection.socket_path(socket)
        self.patience = patience
        self.on_away = on_away
        self.amount_members = amount_members
        self.store = store
        self.connection = Connection(self.socket, language)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the client; started payments continue."""
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
        """Yield every recorded change of every payment and print job after that place, without end.

        Over restarts of posd, without repetition or gap, if the till stores the `place` of the last one. `on_notice` is
        called if changes may be missing (removed by retention, or a restored backup). Raise Problem.
        """
        place = Place(self.socket, "/feed", FeedChange, after, self.on_away, on_notice)
        for _, change in self.connection.follow(place):
            if change is not None:
                yield replace(change, place=place.resume)

    def terminals(self, *, everything: bool = False, check: bool = False) -> list[Terminal]:
        """Return the terminals of the fleet; with `everything` also announced ones outside it.

        With `check` posd first probes those without a recent probe.
        """
        call = calls.get("/terminals", {"all": everything or None, "check": check or None})
        return self.connection.run(plans.page(call, "terminals", Terminal, self._away()))[0]

    def terminal(self, serial: str) -> Terminal:
        """Return one terminal. Raise Problem."""
        return self._one(calls.get(calls.terminal_path(serial)), Terminal)

    def health(self) -> Health:
        """Return the health of posd; a failing posd replies too."""
        return self._one(calls.HEALTH, Health)

    def version(self) -> Version:
        """Return the version of posd."""
        return self._one(calls.get("/version"), Version)

    def _away(self) -> Away:
        return Away(self.patience, self.on_away)

    def _one(self, call: Call, kind: type[R], *, once: bool = False) -> R:
        return self.connection.run(plans.one(call, kind, self._away(), once=once))

    def _look(self, call: Call, kind: type[R], latest: Latest[R]) -> R:
        return self.connection.run(plans.look(self.socket, call, kind, self._troubled(), latest))

    def _troubled(self) -> Away:
        return Away(self.patience, self.on_away, plans.passes)

    def _begin(self, payment: StoredPayment, stored_at: datetime | None) -> Payment:
        stored = self.store and self.store(payment)
        if isinstance(stored, Awaitable):
            raise TypeError(f"`store` has stored nothing yet, it returned {stored!r}: that is for AsyncPosd")
        stored_at = stored.stored_at if isinstance(stored, StoredPayment) else stored_at
        call = calls.Call("PUT", calls.transaction_path(payment.id), body=payment.body)
        plan = plans.begin(self.socket, call, Transaction, self.patience, self.on_away, stored_at)
        return Payment(self, payment.id, self.connection.run(plan), stored_at)

    def _begin_print(self, identity: str, call: Call) -> Print:
        plan = plans.begin(self.socket, call, PrintJob, self.patience, self.on_away)
        return Print(self, identity, self.connection.run(plan))

    def _payments(self, call: Call) -> Iterator[Transaction]:
        return self._rows(call, "transactions", Transaction)

    def _print_jobs(self, call: Call) -> Iterator[PrintJob]:
        return self._rows(call, "print_jobs", PrintJob)

    def _rows(self, call: Call, member: str, kind: type[R]) -> Iterator[R]:
        cursor: str | None = ""
        while cursor is not None:
            paged = replace(call, params={**call.params, "cursor": cursor}) if cursor else call
            rows, cursor = self.connection.run(plans.page(paged, member, kind, self._away()))
            yield from rows
