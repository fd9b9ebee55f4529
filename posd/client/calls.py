"""The sync client: `Posd`, and the handles of payments and print jobs. The async client has the same calls.

First come the methods of both clients, with the checks before a call.
"""

import difflib
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Generator, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from types import TracebackType
from typing import Any, Generic, Self, TypedDict, TypeVar, Unpack, cast
from uuid import UUID

from posd.client import operations, plans, states
from posd.client.connection import Connection, socket_path
from posd.client.documents import OutcomeUnknown, PosdError, Problem
from posd.client.operations import Amount, Id, Json, Operations, PaidOne, ReservedOne, ReversedOne
from posd.client.store import Store, StoredPayment

# Amounts are checked before a call, by the same rules as in posd: exact numbers, known members, a sum above 0.

#: Member for an amount that is given as one sum, without its parts.
SUM = "subtotal_iva0"
#: Members of an amount that posd accepts. `[amounts]` in posd's configuration can add members. A dotted name (`a.b`) is
#: a member of an object.
MEMBERS = (
    "iva",
    "subtotal_iva",
    "subtotal_iva0",
    "tip",
    "extra_taxes.airport_tax",
    "extra_taxes.iac",
    "extra_taxes.ice",
    "extra_taxes.travel_agency",
)
#: Maximum number of digits before and after the point.
MAX_INTEGER_DIGITS = 12
MAX_FRACTION_DIGITS = 4

_TEXT = re.compile(rf"\d{{1,{MAX_INTEGER_DIGITS}}}(\.\d{{1,{MAX_FRACTION_DIGITS}}})?", re.ASCII)
_DIGITS = f"at most {MAX_INTEGER_DIGITS} digits before and {MAX_FRACTION_DIGITS} after the point"


def check_amount(given: Amount | None, further: Collection[str] = ()) -> Mapping[str, object]:
    """Return the parts of an amount. `further`: members beyond `MEMBERS` that posd accepts, such as `extra_taxes.isd`.

    Raise TypeError for None, and for a float, because a float cannot hold 0.10. Raise ValueError for an amount that
    posd would refuse: an unknown member, a number below 0 or with too many digits, or an amount of 0.
    """
    parts = given if isinstance(given, Mapping) else {SUM: given}
    if sum(_numbers(parts, (*MEMBERS, *further))) == 0:
        raise ValueError(f"{given!r} is an amount of 0: an amount has to be above 0")
    return parts


def _numbers(parts: Mapping[str, object], known: Collection[str], inside: str = "") -> Iterator[Decimal]:
    for name, value in parts.items():
        path = f"{inside}{name}"
        if isinstance(value, Mapping) and any(member.startswith(f"{path}.") for member in known):
            yield from _numbers(value, known, f"{path}.")
        elif path in known and "." not in name:
            yield _number(path, value)
        else:
            near = difflib.get_close_matches(path.lower(), known, n=1, cutoff=0.5)
            meant = f"did you mean {near[0]!r}? " if near else ""
            raise ValueError(f"{path!r} is not a part of an amount: {meant}The parts are {', '.join(known)}")


def _number(name: str, value: object) -> Decimal:
    """Return the exact value of a part. Raise TypeError or ValueError."""
    if isinstance(value, bool) or not isinstance(value, Decimal | int | str):
        hint = f': write Decimal("{value!r}") or "{value!r}"' if isinstance(value, float) else ""
        raise TypeError(f"{name} is {value!r} ({type(value).__name__}): an amount is a Decimal, an int or a str{hint}")
    if isinstance(value, str) and not _TEXT.fullmatch(value):
        raise ValueError(f"{name} is {value!r}: as a text it has to be digits such as '11.20', {_DIGITS}")
    number = Decimal(value)
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int) or number < 0:
        raise ValueError(f"{name} is {number}: it has to be a finite number, not below 0")
    if -exponent > MAX_FRACTION_DIGITS or (number and number.adjusted() >= MAX_INTEGER_DIGITS):
        raise ValueError(f"{name} is {number:g}: it can have {_DIGITS}")
    return number


_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII)
#: The nil and the max UUID (RFC 9562), which are refused as ids, because they come from variables without a value.
NEVER_MEANT = frozenset({str(UUID(int=0)), str(UUID(int=2**128 - 1))})
_PRINT_JOB_ID = re.compile(r"(?!\.+\Z)[A-Za-z0-9._-]{1,64}", re.ASCII)


def transaction_id(given: UUID | str) -> str:
    """Return the id of a payment in posd's format. Raise ValueError."""
    text = str(given).lower()
    if not _UUID.fullmatch(text) or text in NEVER_MEANT:
        unset = " A variable that was never set has this value: two payments would share the id" * (text in NEVER_MEANT)
        raise ValueError(
            f"{given!r} is not the id of a transaction: an id is a UUID that the till makes (uuid.uuid4()) and stores "
            f"before the call, so that it can ask again.{unset}"
        )
    return text


def print_job_id(given: str) -> str:
    """Return the id of a print job unchanged. Raise ValueError if posd would refuse it."""
    if not _PRINT_JOB_ID.fullmatch(given):
        raise ValueError(f"{given!r} is not the id of a print job: it needs 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-'")
    return given


# Common methods of the sync and the async client, which differ only by the `await` before the call.
#
# The type parameters are the results of the methods: a `Payment` or an `Awaitable[AsyncPayment]`, a `Transaction` or an
# `Awaitable[Transaction]`.

AnyOne = TypeVar("AnyOne", covariant=True)
Printed = TypeVar("Printed", covariant=True)
Payments = TypeVar("Payments", covariant=True)
PrintJobs = TypeVar("PrintJobs", covariant=True)
OneState = TypeVar("OneState", covariant=True)
Ending = TypeVar("Ending", covariant=True)
Known = TypeVar("Known", covariant=True)
Terminals = TypeVar("Terminals", covariant=True)
OneTerminal = TypeVar("OneTerminal", covariant=True)
OneHealth = TypeVar("OneHealth", covariant=True)
OneVersion = TypeVar("OneVersion", covariant=True)

#: Keyword argument -> name in the API, if different.
API_NAMES: Mapping[str, str] = {"page_size": "limit"}


#: Keyword argument of a start -> function that converts the value.
CONVERSIONS: Mapping[str, Callable[[Any], object]] = {
    "original": transaction_id,
    "transaction_reference": str,
    "not_after": plans.moment,
}


class ListFilters(TypedDict, total=False):
    """Arguments of each list (see `Reads`)."""

    phase: str | None
    open: bool | None
    terminal: str | None
    attention: bool | None
    since: datetime | None
    until: datetime | None
    page_size: int | None


class PaymentFilters(ListFilters, total=False):
    """Arguments of the list of payments."""

    sale: str | None
    metadata: Json | None
    result: str | None


class PrintFilters(ListFilters, total=False):
    """Arguments of the list of print jobs."""

    external_reference: str | None


class Starts(
    Operations[PaidOne, ReservedOne, ReversedOne], Generic[AnyOne, PaidOne, ReservedOne, ReversedOne, Printed]
):
    """Calls that start a payment or a print job, with one method for each operation type.

    `id`: a UUID that the till has created **and stored** before the call (the client's `store` does that). A repeated
    call with the same id never starts a second payment. `amount`: the parts (`iva`, `subtotal_iva`, `subtotal_iva0`,
    `tip`, `extra_taxes`), or one sum that is sent as `subtotal_iva0`. Numbers are Decimal, int or str, and never float.
    `terminal`: may be omitted if the fleet has only one. `sale`: key of the sale, so that it is not paid twice.
    `additional`: the payment is a further part of that sale (split payment). `metadata`: posd stores it, and payments
    can be searched by it. `options`: sent to the terminal unchanged. `not_after`: an aware time after which the payment
    is not started. An operation on another payment names it by its id (`original`), or by the acquirer's
    `transaction_reference`.

    A call returns when the terminal has acknowledged or refused the payment, or the payment is in doubt. For the
    result, call `outcome` of the returned handle. While posd is away, the call is repeated with the same id, for the
    client's `patience`.

    Raise PosdError, whose `never_started` and `next_step` tell the till what to do. Raise TypeError or ValueError for
    an invalid amount, id or time. Then nothing was sent.
    """

    def __init__(
        self,
        socket: str | os.PathLike[str] | None = None,
        *,
        patience: float = plans.PATIENCE_SECONDS,
        on_away: plans.OnAway | None = None,
        amount_members: Collection[str] = (),
        store: Store | None = None,
        language: str | None = None,
    ) -> None:
        self.socket = socket_path(socket)
        self.patience = patience
        self.on_away = on_away
        self.amount_members = amount_members
        self.store = store
        self._connect(language)

    @abstractmethod
    def _connect(self, language: str | None) -> None:
        """Create the connection to the socket."""

    @abstractmethod
    def _begin(self, payment: StoredPayment, stored_at: datetime | None) -> Any:
        """Store a payment and make the call that starts it. `stored_at`: time of the first storage, if known."""

    def _begin_stored(self, payment: StoredPayment, stored: object, stored_at: datetime | None) -> plans.Plan[Any]:
        """Make the call that starts a payment. `stored`: result of the till's `store`."""
        first = stored if isinstance(stored, StoredPayment) else replace(payment, stored_at=stored_at)
        handle = self.transaction(replace(first, id=payment.id))
        call = plans.Call("PUT", plans.transaction_path(payment.id), body=payment.body)
        return plans.begin(handle, call, states.Transaction)

    @abstractmethod
    def _run(self, plan: plans.Plan[Any]) -> Any:
        """Run a plan. Return its result, or an awaitable of the result."""

    @abstractmethod
    def transaction(self, id: Id | StoredPayment) -> Any:  # noqa: A002 - the field's name
        """Return the handle of a payment from its id or its `StoredPayment`, without a call to posd."""

    @abstractmethod
    def printed(self, id: str) -> Any:  # noqa: A002 - the field's name
        """Return the handle of a print job from its id, without a call to posd."""

    def _start(
        self, kind: str, given: Id, amount: Amount | None, fields: Mapping[str, object], names: type, *, whole: bool
    ) -> Any:
        identity = transaction_id(given)
        parts = None if amount is None and whole else check_amount(amount, self.amount_members)
        known = _known(fields, names)
        for name, convert in CONVERSIONS.items():
            if known.get(name) is not None:
                known[name] = convert(known[name])
        # A repeated call must have the same bytes, so the order of the members is fixed.
        first = {"type": kind, "amount": parts, "original": None, "transaction_reference": None}
        body = plans.put("", {**first, **known}).body
        return self._begin(StoredPayment(identity, body, datetime.now(UTC)), None)

    def start(self, payment: StoredPayment) -> AnyOne:
        """Start a stored payment. If it was started before, return its handle.

        After a crash of the till, call this to repeat the till's last call.
        """
        payment.readable_body()
        return cast(AnyOne, self._begin(replace(payment, id=transaction_id(payment.id)), payment.stored_at))

    def print_job(
        self,
        id: str,  # noqa: A002 - the field's name
        document: Json,
        *,
        terminal: str | None = None,
        external_reference: str | None = None,
        reprint_of: str | None = None,
    ) -> Printed:
        """Print a document, which is sent to the terminal unchanged.

        `id`: 1 to 64 characters of A-Z, a-z, 0-9, '.', '_' and '-'.
        """
        handle = self.printed(id)
        fields = {
            "document": document,
            "terminal": terminal,
            "external_reference": external_reference,
            "reprint_of": reprint_of,
        }
        call = plans.put(plans.print_job_path(handle.id), fields)
        return cast(Printed, self._run(plans.begin(handle, call, states.PrintJob)))


class Reads(ABC, Generic[Payments, PrintJobs, Terminals, OneTerminal, OneHealth, OneVersion]):
    """Calls that read.

    The lists are newest first, and read page by page during the iteration (`page_size` rows at a time, up to 500).
    `since` is inclusive, and `until` is exclusive. `since` and `until` are aware times. Raise PosdError.
    """

    socket: str
    patience: float
    on_away: plans.OnAway | None

    @abstractmethod
    def _run(self, plan: plans.Plan[Any]) -> Any:
        """Run a plan. Return its result, or an awaitable of the result."""

    @abstractmethod
    def _rows(self, call: plans.Call, member: str, kind: type[Any]) -> Any:
        """Yield the rows of all pages of a list."""

    def _away(self, passing: Callable[[PosdError], bool] = plans.is_away) -> plans.Away:
        return plans.Away(self.patience, self.on_away, passing)

    def terminals(self, *, everything: bool = False, check: bool = False) -> Terminals:
        """Return the terminals of the fleet.

        With `everything`, also return announced terminals outside the fleet. With `check`, posd first probes the
        terminals that have no recent probe.
        """
        call = plans.get("/terminals", {"all": everything or None, "check": check or None})
        return cast(Terminals, self._run(plans.whole(call, "terminals", states.Terminal, self._away())))

    def terminal(self, serial: str) -> OneTerminal:
        """Return one terminal. Raise Problem."""
        return cast(
            OneTerminal, self._run(plans.one(plans.get(plans.terminal_path(serial)), states.Terminal, self._away()))
        )

    def health(self) -> OneHealth:
        """Return the health of posd. posd also replies if its health is `failing`."""
        return cast(OneHealth, self._run(plans.one(plans.HEALTH, states.Health, self._away())))

    def version(self) -> OneVersion:
        """Return the version of posd."""
        return cast(OneVersion, self._run(plans.one(plans.get("/version"), states.Version, self._away())))

    def transactions(self, **filters: Unpack[PaymentFilters]) -> Payments:
        """Yield the payments that match."""
        metadata = plans.metadata_filters(filters.pop("metadata", None))
        call = plans.get("/transactions", _known(filters, PaymentFilters) | metadata)
        return cast(Payments, self._rows(call, "transactions", states.Transaction))

    def print_jobs(self, **filters: Unpack[PrintFilters]) -> PrintJobs:
        """Yield the print jobs that match."""
        return cast(
            PrintJobs,
            self._rows(plans.get("/print-jobs", _known(filters, PrintFilters)), "print_jobs", states.PrintJob),
        )


def _known(given: Mapping[str, object], names: type) -> dict[str, object]:
    """Return keyword arguments under the API's names, in the order of `names` (a TypedDict).

    Raise TypeError for an unknown argument, because a misspelt `sale` would start a payment without a sale.
    """
    for name in given.keys() - names.__annotations__.keys():
        raise TypeError(f"got an unexpected keyword argument {name!r}")
    return {API_NAMES.get(name, name): given[name] for name in names.__annotations__ if name in given}


class PaymentCalls(plans.Handle[states.Transaction], Generic[OneState, Ending, Known]):
    """Calls of the handle of a payment that was, or may have been, started.

    If the till drops the handle, the payment continues. `transaction(id)` of the client returns a new handle. No call
    of a handle starts anything.
    """

    def outcome(self, timeout: float | None = None, *, show: plans.Show | None = None) -> Ending:
        """Wait for the outcome, across restarts of posd, for `timeout` seconds or without limit. Start nothing.

        `show` is called with each new text for the cashier (`display`), including the last one. If an operator has to
        check the payment, the text says so, and this call goes on waiting.

        Raise StillOpen after the time-out (the payment continues). Raise UnknownResult or OutcomeUnknown.
        """
        return cast(Ending, self._posd._run(plans.outcome(self, timeout, show)))

    def is_known(self, within: float = plans.ON_ITS_WAY_SECONDS) -> Known:
        """Return whether posd knows a payment that the till stored before a crash. Start nothing.

        If posd does not know it, repeat the call for `within` seconds, because the till's start may still be on its
        way. False means that the payment was never started. Raise Unreachable. Raise OutcomeUnknown if posd may have
        lost the record in a restore, unless the till stored the payment after the lost period.
        """
        plan = plans.is_known(self, within, self._posd._away(plans.passes))
        return cast(Known, self._posd._run(plan))

    def state(self) -> OneState:
        """Return the state of the payment. Raise Problem.

        Raise Unreachable if posd is away or cannot read the state.
        """
        return cast(OneState, _look(self, plans.transaction_path(self.id), states.Transaction))

    def _state(self, call: plans.Call, *, once: bool = False) -> OneState:
        """Make a call that returns the payment. With `once`, do not repeat the call if posd may have read it."""
        return cast(OneState, self._posd._run(plans.changed(self, call, once=once)))

    def abort(self) -> OneState:
        """Request the abort of the payment.

        Afterwards the till waits for the outcome, because an approval can be faster.

        Raise Problem (`past_point_of_no_return`, `already_final`, `not_abortable`, `nothing_running`,
        `terminal_offline`) or Unreachable.
        """
        return self._state(plans.post(plans.transaction_path(self.id, "/abort")))

    def reconcile(self) -> OneState:
        """Request that posd searches on the terminal for the outcome now. posd also searches on its own."""
        return self._state(plans.post(plans.transaction_path(self.id, "/reconcile")))

    def release(self, operator: str, note: str) -> OneState:
        """Free the payment's terminal for other payments, by an operator's decision. The payment stays open.

        Raise Problem (`call_outstanding`, `already_final`).
        """
        return self._decide("/release", operator=operator, note=note)

    def resolve(
        self,
        result: str,
        operator: str,
        note: str,
        *,
        transaction_reference: Id | None = None,
        lost: Json | None = None,
    ) -> OneState:
        """Close the payment by an operator's decision, on the admin socket.

        `result`: a value of `result` in the local API.

        `lost`: data of a payment that a restore lost (`terminal`, `type`, `amount`, `sale`, `original`).

        Raise Problem (`forbidden`, `call_outstanding`, `already_final`).
        """
        reference = transaction_reference and str(transaction_reference)
        person = {"result": result, "operator": operator, "note": note}
        return self._decide("/resolve", **person, transaction_reference=reference, **(lost or {}))

    def acknowledge(self, code: str, operator: str, note: str) -> OneState:
        """Clear one attention, on the admin socket, after an operator's check. Raise Problem."""
        return self._decide("/acknowledge", code=code, operator=operator, note=note)

    def _decide(self, call: str, **fields: Any) -> OneState:
        return self._state(plans.post(plans.transaction_path(self.id, call), fields), once=True)


class PrintCalls(plans.Handle[states.PrintJob], Generic[OneState]):
    """Calls of the handle of a print job that was, or may have been, started."""

    def state(self) -> OneState:
        """Return the state of the job. Raise Problem. Raise Unreachable if posd is away or cannot read the state."""
        return cast(OneState, _look(self, plans.print_job_path(self.id), states.PrintJob))

    def outcome(self, timeout: float | None = None) -> OneState:
        """Wait for the end of the job, across restarts of posd, for `timeout` seconds or without limit.

        Raise StillPrinting after the time-out (the job continues), Problem if posd does not know the job, or
        Unreachable if posd keeps failing.
        """
        plan = plans.print_outcome(self, timeout)
        return cast(OneState, self._posd._run(plan))


def _look(handle: plans.Handle[plans.R], path: str, kind: type[plans.R]) -> Any:
    """Read the state of a payment or print job. Repeat the call while posd cannot read its database."""
    posd = handle._posd
    return posd._run(plans.look(handle, plans.get(path), kind, posd._away(plans.passes)))


# The sync client.


class Payment(PaymentCalls[states.Transaction, states.Outcome[states.E], bool], Generic[states.E]):
    """Handle of a payment that was, or may have been, started (see `PaymentCalls`)."""

    _posd: "Posd"

    def watch(self) -> Generator[states.Change | states.State | states.Outcome[states.E], None, None]:
        """Yield the terminal's events and the payment's states, from the beginning, and finally the outcome.

        The stream continues across restarts of posd, without repetition. Raise UnknownResult or OutcomeUnknown.
        """
        place = plans.watched(self)
        try:
            for item, change in self._posd.connection.follow(place):
                if item.event == plans.OUTCOME_ITEM:
                    break
                if change is not None:
                    yield change
        except Problem as problem:
            raise OutcomeUnknown(self.id, problem.compare(self._stored_at)) from problem
        yield self.outcome()


class Print(PrintCalls[states.PrintJob]):
    """Handle of a print job that was, or may have been, started."""


class Posd(
    Starts[Payment, Payment[operations.Paid], Payment[operations.Reserved], Payment[operations.Reversed], Print],
    Reads[
        Iterator[states.Transaction],
        Iterator[states.PrintJob],
        list[states.Terminal],
        states.Terminal,
        states.Health,
        states.Version,
    ],
):
    """Client of the daemon behind one Unix socket: `socket`, else the socket in POSD_SOCKET, else /run/posd/till.sock.

    `patience`: while posd is away (for example restarting), a call is repeated for this number of seconds. `on_away`:
    called with the reason before each repetition of a call or a wait. `store`: function that gets each payment before
    its start, and returns when the payment is on disk: `PaymentStore.save`, or a function of the till. If it raises,
    nothing is started. `amount_members`: further parts of an amount that posd's configuration allows. `language`:
    language of the `display` texts (en, es); by default that of posd's configuration.

    Threads may share a client. A forked process creates its own client.
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
        """Return the handle of a payment from its id or its `StoredPayment`, without a call to posd."""
        known = id if isinstance(id, StoredPayment) else StoredPayment(str(id), None)
        return Payment(self, transaction_id(known.id), stored_at=known.stored_at)

    def printed(self, id: str) -> Print:  # noqa: A002 - the field's name
        """Return the handle of a print job from its id, without a call to posd."""
        return Print(self, print_job_id(id))

    def feed(
        self, after: int | str = plans.START, *, on_notice: plans.OnNotice | None = None
    ) -> Generator[states.FeedChange, None, None]:
        """Yield every recorded change of every payment and print job after a place, without end.

        The stream continues across restarts of posd, without repetition or gap. To continue after a restart of the
        till, the till passes the `place` of its last change as `after`. `on_notice` is called if changes may be
        missing, because retention removed them or a backup was restored. Raise Problem.
        """
        place = plans.Place(self.socket, "/feed", states.FeedChange, after, self.on_away, on_notice)
        for _, change in self.connection.follow(place):
            if change is not None:
                yield replace(change, place=place.resume)

    def _run(self, plan: plans.Plan[Any]) -> Any:
        return self.connection.run(plan)

    def _begin(self, payment: StoredPayment, stored_at: datetime | None) -> Any:
        stored = self.store and self.store(payment)
        if isinstance(stored, Awaitable):
            raise TypeError(f"`store` returned {stored!r} and has stored nothing yet: an async `store` needs AsyncPosd")
        return self._run(self._begin_stored(payment, stored, stored_at))

    def _rows(self, call: plans.Call, member: str, kind: type[plans.R]) -> Iterator[plans.R]:
        cursor: str | None = ""
        while cursor is not None:
            paged = replace(call, params={**call.params, "cursor": cursor}) if cursor else call
            rows, cursor = self.connection.run(plans.page(paged, member, kind, self._away()))
            yield from rows
