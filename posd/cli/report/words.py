"""The report's words: one table for each kind."""

from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal

from posd.cli.app.advice import Advice, attention_advice
from posd.cli.payments.words import words_of
from posd.cli.report.facts import Span, money
from posd.cli.report.sums import Basis, Payment, Report, Section, Standing, Sureness

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


def days(span: Span) -> str:
    """Write which days these are."""
    if span.first == span.last:
        return day(span.first)
    return f"{day(span.first)} to {day(span.last)}"


def day(value: date) -> str:
    """Write a day in words."""
    return f"{value:%A} {value.day} {value:%B} {value.year}"


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
    return attention_advice(code, {"type": facts.type, "abortable": facts.abortable})


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
