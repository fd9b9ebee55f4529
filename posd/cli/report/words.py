"""The report's words: one table for each kind."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal

from posd.cli.app.advice import attention_advice
from posd.cli.explain.catalogue import Advice
from posd.cli.payments.words import state, words_of
from posd.cli.report.days import money
from posd.cli.report.view import Comparison, ReportView, Row

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

#: What stands for a name that was not said.
UNNAMED = "not said"

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
BASIS_NOTES: Mapping[str, str] = {
    "requested": "as asked: the terminal named no amount",
    "original": "the original's: the terminal named no amount",
    "new_total": "as asked: the terminal named the new total",
}

#: how sure it is -> what stands beside its sum.
STANDING_NAMES: Mapping[str, str] = {
    "certain": "certain",
    "by_person": "by a person's word, or inferred",
    "questioned": "contradicted, corrected or unlikely",
    "open": "still open",
    "in_doubt": "in doubt",
    "not_counted": "not counted, but for a person to settle",
    "not_charged_by_person": "not charged, by a person's word",
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
        "The totals hold approved charges, captures and tips, less approved voids and refunds of them. A reservation "
        "counts once it is captured. A payment that is open, or whose type or amount is not known, is in no total."
    ),
)


#: Of a shift this stands in place of the first of `RULES`.
SHIFT_RULE = (
    "A payment counts in the shift in which its outcome was first known, whatever the clocks say. What ends otherwise "
    "after that is corrected, by its difference, in the shift in which that is known."
)


def rules(report: ReportView) -> Sequence[str]:
    """Return how the totals of a report are made."""
    return RULES if report["shift"] is None else (SHIFT_RULE, *RULES[1:])


def day(value: date) -> str:
    """Write a day in words."""
    return f"{value:%A} {value.day} {value:%B} {value.year}"


def time(value: datetime) -> str:
    """Write a moment."""
    return f"{value:%Y-%m-%d %H:%M}"


def title(report: ReportView) -> str:
    """Return the title of the report."""
    shift = report["shift"]
    if shift is None:
        first, last = report.days[0], report.days[-1]
        return day(first) if first == last else f"{day(first)} to {day(last)}"
    if shift["closed_at"] is not None:
        return f"shift {shift['number']}, closed by {shift['operator']} on {time(report.local(shift['closed_at']))}"
    which = "the first shift" if shift["previous"] is None else f"shift {shift['number']}"
    return f"{which}, which is not closed yet"


def scope(report: ReportView) -> str:
    """Return the time zone of its times, and what bounds it."""
    zone, shift = report["timezone"], report["shift"]
    if shift is None:
        return f"A day is one in {zone}{'' if report.is_over else '; it is not over yet'}"
    begin, last = "From the first payment on", shift["previous"]
    if last is not None:
        closed = time(report.local(last["closed_at"]))
        begin = f"Since shift {last['number']} (closed by {last['operator']} on {closed})"
    return f"{begin}; times of {zone}"


def shift_lines(report: ReportView) -> list[str]:
    """Return what stands out about a shift as a whole."""
    shift = report["shift"]
    if shift is None:
        return []
    found = []
    if shift["note"]:
        found.append(f"Note: {shift['note']}")
    if carried := shift["open_before"]:
        still = len(set(carried) & set(shift["open"]))
        found.append(
            f"{number(len(carried), 'payment')} of an earlier shift, open at its close, "
            f"{'is' if len(carried) == 1 else 'are'} here; still open: {still}."
        )
    if waiting := shift["open"]:
        found.append(
            f"{number(len(waiting), 'payment')} {'is' if len(waiting) == 1 else 'are'} open: in no total here, and in "
            "that of the shift in which the outcome comes."
        )
    if corrections := shift["corrections"]:
        amounts = ", ".join(money(item["difference"]) for item in corrections[:SHOWN])
        found.append(
            f"{number(len(corrections), 'payment')} that an earlier shift has counted "
            f"{'is' if len(corrections) == 1 else 'are'} corrected here; the difference is in the total "
            f"({amounts})."
        )
    if shift["removed"]:
        found.append(
            f"Of {number(shift['removed'], 'payment')} the record was removed when the days had passed for which "
            "records are kept: what was counted of them stays, by type and terminal; the rest is not known any more."
        )
    if changed := len([row for row in report["payments"] if row.get("changed_since")]):
        found.append(
            f"{number(changed, 'payment')} ended otherwise after the close: here stands what was counted then; the "
            "difference is in a later shift."
        )
    if shift["more"]:
        found.append("More payments have come than one shift can hold: the rest is in the next one. Close again.")
    return found


def comparison(found: Comparison) -> str:
    """Return the words on whether the terminal's own total is the same."""
    of = f" {found.currency}" if found.currency else ""
    both = f"The terminal's total is {money(found.expected)}{of}, posd's is {money(found.counted)}{of}"
    if found.equal:
        return f"{both}: they are the same."
    way = "more" if found.difference > 0 else "less"
    return (
        f"{both}: the terminal has {money(abs(found.difference))} {way}. Compare the terminal's list with this one, "
        "first what is open, in doubt, corrected, given back or not charged."
    )


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


def state_name(row: Row) -> str:
    """Write where a payment stands."""
    if row["section"] == "open" and row.get("changed_since"):
        return "open at the close"
    if row.get("removed") and row["result"] is None:
        return "removed"
    outcome = None if row["result"] is None else {"result": row["result"]}
    return result_name(state({**row, "outcome": outcome}))


def question(row: Row) -> str:
    """Return what is not settled about a payment."""
    operation = words_of(row)
    match row["section"]:
        case "open":
            return f"Still open ({state_name(row)}): not known yet {operation.whether}."
        case "unclear" if row["type"] == "void":
            return "Approved, but posd does not know what it reversed: a payment, or only a reservation."
        case "unclear" if row["amount"] is None:
            return "Approved, but no amount of it is known."
        case "unclear":
            return "Approved, but posd does not know whether it is a charge, a reservation or a void."
        case "not_charged":
            return f"Ended as {state_name(row)}, but the terminal's word is not sure: check {operation.whether}."
        case _:
            return (
                "The terminal or a person said different things about it; its first final counts. Check "
                f"{operation.whether}, and how often."
            )


def advice(code: str, row: Row) -> Advice:
    """Return what to do about an attention of a payment."""
    return attention_advice(code, {name: row[name] for name in ("type", "terminal", "abortable")})


def in_totals(row: Row) -> str:
    """Return whether its amount is in the totals."""
    return "in the totals" if row["section"] == "counted" else "not in the totals"


def unknown_amounts(item: Row) -> str:
    """Return how many of them have an unknown amount; empty where all are known."""
    return f" and {item['unknown']} of unknown amount" if item["unknown"] else ""


def clock_mark(report: ReportView) -> str:
    """Return what stands behind a total; empty where the clock was believed."""
    return f" ({CLOCK_MARK})" if report["clock_unsure"] else ""


def open_line(report: ReportView) -> str:
    """Return one line of what is left out of the totals and may yet belong there; empty where nothing is."""
    items = [row for row in report.marked("in_question") if row["section"] != "counted"]
    if not items:
        return ""
    known = [money(row["amount"]) for row in items if row["amount"] is not None]
    unknown = len(items) - len(known)
    shown = ", ".join(known[:SHOWN]) + (f" and {len(known) - SHOWN} more" if len(known) > SHOWN else "")
    without = f"{unknown} of unknown amount" if unknown else ""
    amounts = "; ".join(filter(None, (shown, without)))
    return f"Not in the totals: {number(len(items), 'payment')} that may have moved money ({amounts})."


def unlisted(report: ReportView) -> str:
    """Return the words on how many payments are not listed, "" where all are."""
    count = report["unlisted"]
    return f"{number(count, 'more payment')} counted and not listed: ask for fewer days." if count else ""


def elsewhere(report: ReportView) -> str:
    """Return how many payments need attention that are not in the report."""
    where = "other days" if report["shift"] is None else "other shifts"
    return f"Payments of {where} that need attention too: {report['attention_elsewhere']} (posd list --attention)."


def wrong_clocks(report: ReportView) -> str:
    """Return which terminals have a clock that is wrong."""
    serials = ", ".join(report["wrong_clocks"])
    return (
        f"What {serials} said of the time cannot be: set its clock. Until then its payments stand at the time of the "
        "till's request."
    )


def clock_doubts(report: ReportView) -> list[str]:
    """Return the words on when the clock of posd's machine was unsure."""
    found = []
    for item in report["clock_unsure"]:
        since, until = report.local(item["since"]), item["until"]
        end = " and is not yet" if until is None else f" to {time(report.local(until))}"
        found.append(
            f"The clock of this machine was not believed from {time(since)}{end}: payments of that time may be missing "
            "here, or be of another day. Compare these totals with the terminals' own."
        )
    return found


#: Amounts that are written out in a line.
SHOWN = 5


def notes(row: Row) -> list[str]:
    """Return what stands out about a payment that is settled."""
    if (fixed := row.get("correction")) is not None:
        now = "open again" if fixed["now"] is None else f"counts {money(fixed['now'])} now"
        return [f"shift {fixed['shift']} has counted {money(fixed['was'])}, it {now} ({state_name(row)})"]
    asked = row["requested"] if row["type"] != "void" else None
    said = {
        "record removed; the time is that of the close": row["at_by"] == "shift",
        f"was open at the close of shift {row.get('open_at')}": "open_at" in row,
        f"as counted at the close; now {state_name(row)}": row.get("changed_since") and row["section"] != "open",
        BASIS_NOTES.get(row["amount_by"], ""): row["result"] == "approved" and row["amount_by"] in BASIS_NOTES,
        f"asked for {amount(asked)}": row["differs"] and asked,
        "not the amount of its original": row["differs"] and not asked,
        "by a person's word": row["by_person"],
        f"was {result_name(row['was'] or '')} at first": row["was"],
        "time of the till: the terminal's cannot be": row["clock_wrong"],
        "in question": row["in_question"],
    }
    return [text for text, stands in said.items() if stands]
