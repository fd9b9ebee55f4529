"""Documents of the report (local API, GET /report)."""

from decimal import Decimal
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from posd.base.json_types import Exact, Moment, Uuid
from posd.clock.clock import Stretch
from posd.payments.counting import Basis, Of, Section
from posd.payments.documents import Id, NextStepNow, Operation, Sale
from posd.payments.lifecycle import Status
from posd.payments.model import Attention, Result
from posd.records.model import Phase

#: Largest number of payments listed in a report (about 10 MB). The totals include further payments too.
MOST_LISTED = 10_000
#: Name of the part for amounts that the till did not split: tips and taxes from the terminal, and amounts without
#: parts.
ADDED = "not split by the till"


class TimeSource(StrEnum):
    """Source of the time at which a payment counts."""

    TERMINAL = "terminal"  # the final event of the payment
    POSD = "posd"  # the till's request
    SHIFT = "shift"  # the close of the shift, because retention removed the payment


class Certainty(StrEnum):
    """Certainty of a payment's amount. The amounts with the first three values add up to the totals."""

    CERTAIN = "certain"  # the terminal reports it, without contradiction
    BY_PERSON = "by_person"  # an operator decided it, or posd inferred it
    QUESTIONED = "questioned"  # counted, but corrected, contradicted or unlikely, or an operator has to decide
    OPEN = "open"  # no outcome yet
    IN_DOUBT = "in_doubt"  # no outcome yet; posd cannot tell whether the terminal has the payment
    NOT_COUNTED = "not_counted"  # not in the totals, and an operator has to decide
    DENIED = "not_charged_by_person"  # an operator recorded that nothing was charged


#: Certainties of the payments in the totals.
COUNTED_CERTAINTIES = frozenset({Certainty.CERTAIN, Certainty.BY_PERSON, Certainty.QUESTIONED})


class Correction(msgspec.Struct, frozen=True):
    """Correction of an amount that an earlier shift has counted."""

    shift: Annotated[int, Meta(description="number of the earlier shift")]
    was: Annotated[Exact, Meta(description="the amount in the earlier shift")]
    now: Annotated[Exact | None, Meta(description="the present amount, null if it is open again")]


class ReportPayment(msgspec.Struct, frozen=True, kw_only=True):
    """A payment in the report."""

    client_transaction_id: Id
    at: Annotated[Moment, Meta(description="time at which it counts")]
    at_by: Annotated[TimeSource, Meta(description="source of `at`")]
    terminal: Annotated[str, Meta(description="the terminal of its final event, otherwise that of the request")]
    type: Operation
    kind: Annotated[
        str,
        Meta(
            description="its type, or the kind of a void: `cancellation`, `refund`, `void`, `release` (of a "
            "reservation), `void of unknown`; `correction` of an amount in an earlier shift"
        ),
    ]
    of: Annotated[Of | None, Meta(description="what it moves: money or a reservation; null: not known")]
    section: Annotated[Section, Meta(description="its place in the report; only `counted` is in the totals")]
    phase: Annotated[Phase, Meta(description="posd's own view")]
    status: Annotated[Status | None, Meta(description="the terminal's newest known state")]
    next_step: NextStepNow
    result: Annotated[Result | None, Meta(description="null while it is open, or if only its amount was kept")]
    counted: Annotated[Exact | None, Meta(description="its amount in the totals, null if none")]
    amount: Annotated[Exact | None, Meta(description="its amount, negative for a void and a refund; null if not known")]
    amount_by: Annotated[Basis, Meta(description="basis of `amount`")]
    requested: Annotated[Exact | None, Meta(description="the sum that the till requested")]
    authorized: Annotated[Exact | None, Meta(description="what the acquirer authorized")]
    parts: Annotated[dict[str, Exact], Meta(description="the parts of the amount by name, as the till sent them")]
    currency: Annotated[str | None, Meta(description="as in the terminal's final event")]
    brand: Annotated[str | None, Meta(description="brand of the card; for a void or tip, that of its original")]
    transaction_reference: Annotated[str | None, Meta(description="the acquirer's reference")]
    ticket_number: Annotated[str | None, Meta(description="the acquirer's ticket number")]
    authorization_code: Annotated[str | None, Meta(description="authorization code of the issuer")]
    failure: Annotated[str | None, Meta(description="why it was not approved, in words")]
    sale: Sale
    original: Annotated[Uuid | None, Meta(description="its original, if known here")]
    became: Annotated[
        str | None,
        Meta(description="now, of a pre-authorization: `held`, `captured`, `released` or `in question`; else null"),
    ]
    created_at: Annotated[Moment, Meta(description="time of the till's request")]
    decided_at: Annotated[Moment | None, Meta(description="time at which posd knew its outcome")]
    seconds: Annotated[
        Decimal | None, Meta(description="how long the terminal took to report its end, null if it did not")
    ]
    standing: Annotated[Certainty | None, Meta(description="certainty of its amount; null if no money moved")]
    in_question: Annotated[bool, Meta(description="whether it may have moved money, and is not settled")]
    differs: Annotated[bool, Meta(description="whether the authorized amount differs from the requested one")]
    by_person: Annotated[bool, Meta(description="whether an operator decided it")]
    unsure: Annotated[bool, Meta(description="whether an operator decided it, or its outcome was corrected")]
    was: Annotated[Result | None, Meta(description="result of its first outcome, null if `result` is the same")]
    clock_wrong: Annotated[bool, Meta(description="whether the terminal reported an impossible time")]
    abortable: Annotated[bool, Meta(description="whether an abort is possible now")]
    attention: Annotated[tuple[Attention, ...], Meta(description="what an operator should check")]
    open_at: Annotated[
        int | UnsetType, Meta(description="of a shift: number of the earlier shift that was closed while it was open")
    ] = UNSET
    changed_since: Annotated[
        bool | UnsetType, Meta(description="of a closed shift: shown as counted; its outcome has changed since")
    ] = UNSET
    removed: Annotated[bool | UnsetType, Meta(description="of a closed shift: retention has removed its record")] = (
        UNSET
    )
    correction: Annotated[
        Correction | UnsetType, Meta(description="of a shift: correction of an earlier shift's amount")
    ] = UNSET
    metadata: Annotated[str | UnsetType, Meta(description="the value of the requested key, as text")] = UNSET


Currency = Annotated[str | None, Meta(description="as in the terminals' final events, null if none gives it")]


class ReportSum(msgspec.Struct, frozen=True, kw_only=True):
    """Totals of counted payments. `charged` is not negative, `reversed` not positive; they add up to `total`.

    The fields before `payments` are equal for all these payments.
    """

    currency: Currency
    terminal: Annotated[str | UnsetType, Meta(description="serial number, if sums are by terminal")] = UNSET
    type: Annotated[str | UnsetType, Meta(description="`kind` of the payments, if sums are by kind")] = UNSET
    of: Annotated[Of | UnsetType | None, Meta(description="money or a reservation, if sums are by kind")] = UNSET
    brand: Annotated[str | UnsetType | None, Meta(description="brand of the card, if sums are by brand")] = UNSET
    day: Annotated[str | UnsetType, Meta(description="YYYY-MM-DD, if sums are by day")] = UNSET
    hour: Annotated[str | UnsetType, Meta(description="two digits, if sums are by hour")] = UNSET
    starts_at: Annotated[
        Moment | UnsetType | None,
        Meta(description="for one day: when that hour began, since it can occur twice; else null"),
    ] = UNSET
    payments: Annotated[int, Meta(description="number of operations that charged")]
    charged: Annotated[Exact, Meta(description="the sum that they charged")]
    reversals: Annotated[int, Meta(description="number of voids, refunds and corrections that gave money back")]
    reversed: Annotated[Exact, Meta(description="the sum that they gave back, negative")]
    total: Annotated[Exact, Meta(description="`charged` and `reversed` together")]


class PartSum(msgspec.Struct, frozen=True):
    """Total of one part of the amounts."""

    part: Annotated[str, Meta(description=f"as the till named it, or `{ADDED}`")]
    currency: Currency
    total: Annotated[Exact, Meta(description="the sum")]


class ReservedSum(msgspec.Struct, frozen=True):
    """Amounts that were reserved or released. Reserved amounts are in no total."""

    type: Annotated[str, Meta(description="`kind` of the operations")]
    became: Annotated[str | None, Meta(description="their present state")]
    of: Annotated[Of | None, Meta(description="what they move: money or a reservation")]
    currency: Currency
    number: Annotated[int, Meta(description="number of operations")]
    amount: Annotated[Exact, Meta(description="their sum; a release is negative")]


class CertaintySum(msgspec.Struct, frozen=True):
    """Amounts by certainty. The counted amounts add up to the totals."""

    standing: Annotated[Certainty, Meta(description="certainty of the amounts")]
    currency: Currency
    in_total: Annotated[bool, Meta(description="whether they are in the totals")]
    number: Annotated[int, Meta(description="number of payments")]
    amount: Annotated[Exact, Meta(description="their sum, without unknown amounts")]
    unknown: Annotated[int, Meta(description="number of payments of unknown amount")]


class TerminalResults(msgspec.Struct, frozen=True, kw_only=True):
    """Number of operations of a terminal by result."""

    terminal: Annotated[str, Meta(description="its serial number")]
    approved: Annotated[int, Meta(description="how many")] = 0
    declined: Annotated[int, Meta(description="how many")] = 0
    rejected: Annotated[int, Meta(description="how many")] = 0
    canceled: Annotated[int, Meta(description="how many")] = 0
    not_started: Annotated[int, Meta(description="how many")] = 0
    open: Annotated[int, Meta(description="how many")] = 0


class Duration(msgspec.Struct, frozen=True):
    """Number of payments in a range of durations."""

    least: Annotated[int, Meta(description="lower bound in seconds")]
    below: Annotated[int | None, Meta(description="upper bound in seconds; null: none")]
    count: Annotated[int, Meta(description="number of operations")]


class Durations(msgspec.Struct, frozen=True):
    """Time from the till's request to the terminal's final report, in seconds. Without payments, times are null."""

    count: Annotated[int, Meta(description="number of operations")]
    median: Annotated[Decimal | None, Meta(description="half of them took at most this long")]
    p95: Annotated[Decimal | None, Meta(description="95 % of them took at most this long")]
    longest: Annotated[Decimal | None, Meta(description="duration of the longest")]
    columns: Annotated[list[Duration], Meta(description="number of operations by duration")]


class ReportTotals(msgspec.Struct, frozen=True, kw_only=True):
    """The sums of a report, each by currency."""

    currencies: Annotated[list[str], Meta(description="currencies of the counted amounts, as the terminals gave them")]
    total: Annotated[
        ReportSum | None,
        Meta(description="total of all; null if `by_currency` has several (an unknown currency is one of its own)"),
    ]
    by_currency: Annotated[list[ReportSum], Meta(description="totals of each currency")]
    by_terminal: Annotated[list[ReportSum], Meta(description="by terminal")]
    by_type: Annotated[list[ReportSum], Meta(description="by kind")]
    by_terminal_and_type: Annotated[list[ReportSum], Meta(description="by terminal and kind")]
    by_brand: Annotated[list[ReportSum], Meta(description="by brand of the card")]
    by_day: Annotated[list[ReportSum], Meta(description="by day in the time zone; empty for a shift")]
    by_hour: Annotated[list[ReportSum], Meta(description="by hour of the day; empty for a shift")]
    by_part: Annotated[list[PartSum], Meta(description="by part of the amounts; they add up to the totals")]
    reserved: Annotated[list[ReservedSum], Meta(description="reservations, which are in no total")]
    sureness: Annotated[list[CertaintySum], Meta(description="by certainty of the amounts")]
    counts: Annotated[dict[str, int], Meta(description="number of payments by `section`")]
    results: Annotated[list[TerminalResults], Meta(description="how operations ended, by terminal")]
    seconds: Annotated[Durations, Meta(description="durations of the operations")]


class ClosedShift(msgspec.Struct, frozen=True):
    """Summary of a closed shift."""

    number: Annotated[int, Meta(description="number of the shift")]
    closed_at: Annotated[Moment, Meta(description="when")]
    operator: Annotated[str, Meta(description="who closed it")]


class ShiftCorrection(msgspec.Struct, frozen=True):
    """Payment that an earlier shift counted with another amount."""

    client_transaction_id: Annotated[Uuid, Meta(description="its id")]
    terminal: Annotated[str, Meta(description="its terminal")]
    currency: Currency
    shift: Annotated[int, Meta(description="number of the shift that has counted it before")]
    was: Annotated[Exact, Meta(description="the amount in the earlier shift")]
    now: Annotated[Exact | None, Meta(description="the present amount, null if it is open again")]
    difference: Annotated[Exact, Meta(description="the difference, counted in these totals")]


class ShiftState(msgspec.Struct, frozen=True, kw_only=True):
    """Shift of a report."""

    number: Annotated[int, Meta(description="number of the shift")]
    closed_at: Annotated[Moment | None, Meta(description="null while it is not closed")]
    operator: Annotated[str | None, Meta(description="who closed it")]
    note: Annotated[str | None, Meta(description="the note of the close")]
    previous: Annotated[ClosedShift | None, Meta(description="the shift before it")]
    corrections: Annotated[list[ShiftCorrection], Meta(description="corrections of amounts in earlier shifts")]
    open: Annotated[list[Uuid], Meta(description="payments that are open, or were at the close")]
    open_before: Annotated[list[Uuid], Meta(description="payments that were open at the close of the shift before")]
    removed: Annotated[int, Meta(description="payments whose records were removed; only the amounts are left")]
    more: Annotated[bool, Meta(description="there are more payments than one shift can hold")]


class PaymentReport(ReportTotals, frozen=True, kw_only=True):
    """Sums of the payments of a span of time or of a shift, from one state of the database."""

    since: Annotated[Moment, Meta(description="beginning of the period")]
    until: Annotated[Moment, Meta(description="end of the period, not included")]
    timezone: Annotated[str, Meta(description="time zone of its days and hours")]
    terminal: Annotated[str | None, Meta(description="the only terminal in it, null for all")]
    made_at: Annotated[Moment, Meta(description="when it was made")]
    up_to: Annotated[int, Meta(description="the last included change of the feed")]
    shift: Annotated[ShiftState | None, Meta(description="null for a span of time")]
    in_question: Annotated[list[Uuid], Meta(description="payments that may or may not have moved money")]
    amount_differs: Annotated[list[Uuid], Meta(description="payments authorized with another amount than requested")]
    unsure: Annotated[list[Uuid], Meta(description="payments that an operator settled, or whose outcome was corrected")]
    wrong_clocks: Annotated[list[str], Meta(description="terminals that reported an impossible time")]
    attention_elsewhere: Annotated[int, Meta(description="payments outside this report that an operator should check")]
    clock_unsure: Annotated[
        list[Stretch],
        Meta(description="periods in which posd did not trust the clock, if payments of the report may be from them"),
    ]
    unlisted: Annotated[
        int, Meta(description=f"number of counted payments that are not listed; the limit is {MOST_LISTED}")
    ]
    payments: Annotated[list[ReportPayment], Meta(description="in order of time")]
