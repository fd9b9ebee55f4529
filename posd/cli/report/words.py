"""The report's words: one table for each kind."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal

from posd.base.money import ZERO
from posd.cli.app.advice import Advice, attention_advice
from posd.cli.payments.words import words_of
from posd.cli.report.expect import Candidate, Comparison, Reason
from posd.cli.report.facts import Span, money
from posd.cli.report.standing import Basis, Payment, Section, Standing
from posd.cli.report.sums import Report, Sureness

#: kind -> its name in the singular; what is not here is written as it is.
KIND_NAMES: Mapping[str, str] = {
    "post-tip": "tip",
    "cancellation": "void, same day",
    "refund": "refund",
    "void": "void",
    "void of unknown": "void",
    "release": "void of reservation",
    "unknown": "unknown type",
}

#: part of an amount -> its name.
PART_NAMES: Mapping[str, str] = {
    "iva": "IVA (iva)",
    "subtotal_iva": "subtotal with IVA (subtotal_iva)",
    "subtotal_iva0": "subtotal without IVA (subtotal_iva0)",
    "tip": "tip (tip)",
}

#: result -> its name.
RESULT_NAMES: Mapping[str, str] = {"not_started": "not started"}

#: what an amount rests on -> what is added to it.
BASIS_NOTES: Mapping[Basis, str] = {
    Basis.REQUESTED: "as asked: the terminal named no amount",
    Basis.ORIGINAL: "the original's: the terminal named no amount",
    Basis.NEW_TOTAL: "as asked: the terminal named the new total",
}

#: how sure it is -> what stands beside its sum.
STANDING_NAMES: Mapping[Standing, str] = {
    Standing.CERTAIN: "certain",
    Standing.BY_PERSON: "by a person's word, or inferred",
    Standing.QUESTIONED: "contradicted, corrected or unlikely",
    Standing.OPEN: "still open",
    Standing.IN_DOUBT: "in doubt",
    Standing.NOT_COUNTED: "not counted, but for a person to settle",
    Standing.DENIED: "not charged, by a person's word",
}

#: Stands beside every total of a time in which the clock of posd's machine was not believed.
CLOCK_MARK = "clock unsure"

#: How the totals are made, for a person who compares them with another list.
RULES = (
    (
        "A payment counts when the terminal's final event says that it ended; where that says no time, or one that "
        "cannot be, when the till asked for it."
    ),
    (
        "It counts with the amount that the terminal authorized; where it named none, with the one that the till asked "
        "for, and is marked."
    ),
    (
        "The totals hold approved charges, captures and tips, less the approved voids of them. A reservation counts "
        "once it is captured. What is open, or of which type or amount are not known, is in no total."
    ),
)


#: Of a shift this stands in place of the first of `RULES`.
SHIFT_RULE = (
    "A payment counts in the shift in which its outcome was first known, whatever the clocks say. What ends otherwise "
    "after that is corrected, by its difference, in the shift in which that is known."
)


def rules(report: Report) -> Sequence[str]:
    """Say how the totals of a report are made."""
    return RULES if report.shift is None else (SHIFT_RULE, *RULES[1:])


def days(span: Span) -> str:
    """Write which days these are."""
    if span.first == span.last:
        return day(span.first)
    return f"{day(span.first)} to {day(span.last)}"


def day(value: date) -> str:
    """Write a day in words."""
    return f"{value:%A} {value.day} {value:%B} {value.year}"


def time(value: datetime) -> str:
    """Write a moment."""
    return f"{value:%Y-%m-%d %H:%M}"


def title(report: Report) -> str:
    """Say what the report is of."""
    shift = report.shift
    if shift is None:
        return days(report.span)
    if shift.closed is not None:
        local = report.span.local(shift.closed.closed_at)
        return f"shift {shift.closed.number}, closed by {shift.closed.operator} on {time(local)}"
    if shift.last is None:
        return "the first shift, which is not closed yet"
    return f"shift {shift.last.number + 1}, which is not closed yet"


def scope(report: Report) -> str:
    """Say in which time zone its times are, and what bounds it."""
    zone, shift = report.span.zone.key, report.shift
    if shift is None:
        return f"A day is one in {zone}{'' if report.made_at >= report.span.end else '; it is not over yet'}"
    if shift.last is None:
        begin = "From the first payment on"
    else:
        local = report.span.local(shift.last.closed_at)
        begin = f"Since shift {shift.last.number} (closed by {shift.last.operator} on {time(local)})"
    return f"{begin}; times of {zone}"


def shift_lines(report: Report) -> list[str]:
    """Say what stands out about a shift as a whole."""
    shift = report.shift
    if shift is None:
        return []
    found = []
    if shift.closed is not None and shift.closed.note:
        found.append(f"Note: {shift.closed.note}")
    carried = [item for item in report.ended if item.open_at is not None]
    if carried:
        still = sum(item.section is Section.OPEN for item in carried)
        found.append(
            f"{number(len(carried), 'payment')} of an earlier shift, open at its close, "
            f"{'is' if len(carried) == 1 else 'are'} here; still open: {still}."
        )
    waiting = [item for item in report.ended if item.section is Section.OPEN]
    if waiting:
        found.append(
            f"{number(len(waiting), 'payment')} {'is' if len(waiting) == 1 else 'are'} open: in no total here, and in "
            "that of the shift in which the outcome comes."
        )
    if report.corrections:
        amounts = ", ".join(money(item.amount or ZERO) for item in report.corrections[:SHOWN])
        found.append(
            f"{number(len(report.corrections), 'payment')} that an earlier shift has counted "
            f"{'is' if len(report.corrections) == 1 else 'are'} corrected here; the difference is in the total "
            f"({amounts})."
        )
    if shift.removed:
        found.append(
            f"Of {number(shift.removed, 'payment')} the record was removed when the days had passed for which records "
            "are kept: what was counted of them stays, by type and terminal; the rest is not known any more."
        )
    changed = sum(item.changed_since for item in report.payments)
    if changed:
        found.append(
            f"{number(changed, 'payment')} ended otherwise after the close: here stands what was counted then; the "
            "difference is in a later shift."
        )
    if shift.more:
        found.append("More payments have come than one shift can hold: the rest is in the next one. Close again.")
    return found


#: why a terminal may count a payment differently -> what is said of it.
REASONS: Mapping[Reason, str] = {
    Reason.DOUBT: "in doubt here; the terminal may have charged it",
    Reason.OPEN: "open here; the terminal may have charged it",
    Reason.QUESTIONED: "contradicted or unlikely; the terminal may count it otherwise",
    Reason.CORRECTED: "corrected here; the terminal may not have that",
    Reason.BY_PERSON: "counted by a person's word; the terminal may not count it",
    Reason.AMOUNT: "authorized with another amount than was asked for",
    Reason.VOIDED: "given back here; the terminal may not have that",
    Reason.NOT_CHARGED: "not charged here; the terminal may count it",
    Reason.COUNTED: "counted here without doubt; the terminal may count it to another day or shift, or not at all",
}


def comparison(found: Comparison) -> list[str]:
    """Say whether the terminal's own total is the same, and which payments explain it where it is not."""
    both = f"The terminal's total is {money(found.expected)}, posd's is {money(found.counted)}"
    if found.equal:
        return [f"{both}: they are the same."]
    way = "more" if found.difference > 0 else "less"
    lines = [f"{both}: the terminal has {money(abs(found.difference))} {way}."]
    if not found.sets:
        lines.append(
            "No single payment explains that, and no two or three of those that are open, in doubt, corrected, given "
            "back or not charged. Compare the terminal's list with this one, line by line."
        )
    elif len(found.sets) == 1 and not found.more:
        lines.append("One explanation fits exactly. It is no proof: look at it on the terminal's list.")
    else:
        count = f"More than {len(found.sets)}" if found.more else f"{len(found.sets)}"
        lines.append(f"{count} explanations fit exactly, so none is proven: look at them on the terminal's list.")
    if found.searched < found.doubtful:
        lines.append(
            f"Two and three together were looked for among the {found.searched} most doubtful of {found.doubtful}."
        )
    return lines


def candidate(item: Candidate) -> str:
    """Name a payment that would explain a difference, and by how much."""
    sign = "+" if item.difference > 0 else ""
    return f"{item.id}  {item.payment.facts.terminal}  {kind_name(item.payment.kind)}  {sign}{money(item.difference)}"


def number(count: int, noun: str) -> str:
    """Write how many there are of something."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def kind_name(kind: str) -> str:
    """Write what a payment is."""
    return KIND_NAMES.get(kind, kind)


def result_name(result: str) -> str:
    """Write how it ended."""
    return RESULT_NAMES.get(result, result)


def amount(value: Decimal | None) -> str:
    """Write an amount; a dash where it is not known."""
    return "-" if value is None else money(value)


def reversed_amount(value: Decimal) -> str:
    """Write what was given back; a dash where nothing was."""
    return money(value) if value else "-"


def question(payment: Payment) -> str:
    """Say what is not settled about a payment."""
    facts = payment.facts
    operation = words_of({"type": facts.type})
    match payment.section:
        case Section.OPEN:
            return f"Still open ({facts.state}): not known yet {operation.whether}."
        case Section.UNCLEAR if facts.type == "void":
            return "Approved, but posd does not know what it reversed: a payment, or only a reservation."
        case Section.UNCLEAR if payment.amount is None:
            return "Approved, but no amount of it is known."
        case Section.UNCLEAR:
            return "Approved, but posd does not know whether it is a charge, a reservation or a void."
        case Section.NOT_CHARGED:
            return (
                f"Ended as {result_name(facts.state)}, but the terminal's word is not sure: check {operation.whether}."
            )
        case _:
            return (
                "The terminal or a person said different things about it; its first final counts. Check "
                f"{operation.whether}, and how often."
            )


def advice(code: str, payment: Payment) -> Advice:
    """Return what to do about an attention of a payment."""
    facts = payment.facts
    given = {"type": facts.type, "terminal": facts.terminal, "abortable": facts.abortable}
    return attention_advice(code, given)


def in_totals(payment: Payment) -> str:
    """Say whether its amount is in the totals."""
    return "in the totals" if payment.section is Section.COUNTED else "not in the totals"


def unknown_amounts(item: Sureness) -> str:
    """Say how many of them have an amount that is not known; empty where all are known."""
    return f" and {item.unknown} of unknown amount" if item.unknown else ""


def clock_mark(report: Report) -> str:
    """Return what stands behind a total; empty where the clock was believed."""
    return f" ({CLOCK_MARK})" if report.clock_doubts else ""


def open_line(report: Report) -> str:
    """Say in one line what is left out of the totals and may yet belong there; empty where nothing is."""
    items = [item for item in report.in_question if item.section is not Section.COUNTED]
    if not items:
        return ""
    known = [money(item.amount) for item in items if item.amount is not None]
    unknown = len(items) - len(known)
    shown = ", ".join(known[:SHOWN]) + (f" and {len(known) - SHOWN} more" if len(known) > SHOWN else "")
    without = f"{unknown} of unknown amount" if unknown else ""
    amounts = "; ".join(filter(None, (shown, without)))
    return f"Not in the totals: {number(len(items), 'payment')} that may have moved money ({amounts})."


def elsewhere(report: Report) -> str:
    """Say how many payments need attention that are not in the report."""
    where = "other days" if report.shift is None else "other shifts"
    return f"Payments of {where} that need attention too: {report.elsewhere} (posd list --attention)."


def wrong_clocks(report: Report) -> str:
    """Say which terminals have a clock that is wrong."""
    serials = ", ".join(report.wrong_clocks)
    return (
        f"What {serials} said of the time cannot be: set its clock. Until then its payments stand at the time of the "
        "till's request."
    )


def clock_doubt(since: datetime | None, until: datetime | None) -> str:
    """Say when the clock of posd's machine was not believed: None for a time that is not known, or goes on."""
    begin = "" if since is None else f" from {since:%Y-%m-%d %H:%M}"
    end = " and is not yet" if until is None else f" to {until:%Y-%m-%d %H:%M}"
    return (
        f"The clock of this machine was not believed{begin}{end}: payments of that time may be missing here, or be of "
        "another day. Compare these totals with the terminals' own."
    )


#: Amounts that are written out in a line.
SHOWN = 5


def notes(payment: Payment) -> list[str]:
    """Say what stands out about a payment that is settled."""
    facts = payment.facts
    found = []
    if payment.correction is not None:
        fixed = payment.correction
        now = "open again" if fixed.now is None else f"counts {money(fixed.now)} now"
        return [f"shift {fixed.shift} has counted {money(fixed.was)}, it {now} ({result_name(facts.state)})"]
    if facts.at_by == "shift":
        found.append("record removed; the time is that of the close")
    if payment.open_at is not None:
        found.append(f"was open at the close of shift {payment.open_at}")
    if payment.changed_since:
        found.append(f"as counted at the close; now {result_name(facts.state)}")
    if facts.result == "approved" and payment.basis in BASIS_NOTES:
        found.append(BASIS_NOTES[payment.basis])
    if payment.differs and facts.type != "void" and facts.requested:
        found.append(f"asked for {amount(facts.requested)}")
    if payment.differs and (facts.type == "void" or not facts.requested):
        found.append("not the amount of its original")
    if facts.by_person:
        found.append("by a person's word")
    if facts.corrects:
        found.append(f"was {result_name(facts.corrects)} at first")
    if facts.clock_wrong:
        found.append("time of the till: the terminal's cannot be")
    if payment.in_question:
        found.append("in question")
    return found
