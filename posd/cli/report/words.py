"""Texts of the report, from [report] in the catalogue of words."""

from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import partial

from posd.cli.app.output import counted, money
from posd.cli.explain.catalogue import Advice, chosen, named
from posd.cli.payments.words import attention_advice, state, words_of
from posd.cli.report.view import Comparison, ReportView, Row

#: Maximum number of amounts on a line.
SHOWN = 5


def said(name: str, **words: object) -> str:
    """Return a sentence of [report] in the catalogue, with its braces filled."""
    template: str = chosen("report")["says"][name]
    return template.format(**words)


def _name(table: str, code: str) -> str:
    return str(chosen("report")[table].get(code) or named(code))


#: Functions that return the name of a type, a part of an amount, a result or a standing. Without a name they return the
#: code.
kind_name, part_name, result_name, standing_name = (
    partial(_name, table) for table in ("kind", "part", "result", "standing")
)
#: Function that returns the text for a missing name.
unnamed = partial(said, "unnamed")


def currency_of(report: ReportView, row: Row) -> str:
    """Return the currency of a total. Return a text for an unknown currency only if the report has several."""
    return str(row["currency"] or (said("unnamed_currency") if report.several else ""))


def _payments(count: int) -> dict[str, str]:
    return {"payments": counted(count, named("payment")), "are": "is" if count == 1 else "are"}


def _amounts(values: Sequence[Decimal]) -> str:
    return ", ".join(money(value) for value in values[:SHOWN])


def rules(report: ReportView) -> Sequence[str]:
    """Return sentences on how the totals are computed, for a comparison with another list."""
    return [said(f"rule_{name}") for name in ("day" if report["shift"] is None else "shift", "amount", "totals")]


def day(value: date) -> str:
    """Return the text of a day."""
    return said("day", day=value, number=value.day)


def time(value: datetime) -> str:
    """Return the text of a time: 2026-11-20 14:03."""
    return f"{value:%Y-%m-%d %H:%M}"


def title(report: ReportView) -> str:
    """Return the title of the report."""
    shift = report["shift"]
    if shift is None:
        first, last = report.days[0], report.days[-1]
        return day(first) if first == last else said("days", first=day(first), last=day(last))
    if shift["closed_at"] is not None:
        return said("closed_shift", **shift, at=time(report.local(shift["closed_at"])))
    return said("first_shift" if shift["previous"] is None else "open_shift", **shift)


def scope(report: ReportView) -> str:
    """Return the text about the time zone of the report, and where the report begins and ends."""
    zone, shift = report["timezone"], report["shift"]
    if shift is None:
        return said("scope_day" if report.is_over else "scope_day_open", zone=zone)
    if (last := shift["previous"]) is None:
        return said("scope_first", zone=zone)
    return said("scope_shift", zone=zone, **last, at=time(report.local(last["closed_at"])))


def shift_lines(report: ReportView) -> list[str]:
    """Return remarks about the whole shift of a report."""
    shift = report["shift"]
    if shift is None:
        return []
    carried, waiting, corrections = shift["open_before"], shift["open"], shift["corrections"]
    differences = _amounts([item["difference"] for item in corrections])
    counts = {
        "carried": len(carried),
        "waiting": len(waiting),
        "corrections": len(corrections),
        "removed": shift["removed"],
        "changed": len([row for row in report["payments"] if row.get("changed_since")]),
    }
    words = {"amounts": differences, "still": len(set(carried) & set(waiting))}
    found = [said("note", note=shift["note"])] if shift["note"] else []
    found += [said(name, **_payments(count), **words) for name, count in counts.items() if count]
    return [*found, said("more")] if shift["more"] else found


def comparison(found: Comparison) -> str:
    """Return the sentence that says whether the terminal's total equals posd's."""
    name = "equal" if found.equal else "terminal_more" if found.difference > 0 else "terminal_less"
    sums = {"expected": found.expected, "counted": found.counted, "difference": abs(found.difference)}
    of = f" {found.currency}" if found.currency else ""
    return said(name, **{key: money(value) for key, value in sums.items()}, of=of)


def amount(value: Decimal | None) -> str:
    """Return the text of an amount, or a dash if it is unknown."""
    return "-" if value is None else money(value)


def state_name(row: Row) -> str:
    """Return the text of a payment's state."""
    if row["section"] == "open" and row.get("changed_since"):
        return said("open_at_close")
    if row.get("removed") and row["result"] is None:
        return said("removed_record")
    outcome = None if row["result"] is None else {"result": row["result"]}
    return result_name(state({**row, "outcome": outcome}))


def question(row: Row) -> str:
    """Return the text on what is not settled about a payment."""
    name = row["section"]
    if name == "unclear":
        name = "unclear_void" if row["type"] == "void" else "unclear_amount" if row["amount"] is None else name
    elif name not in ("open", "not_charged"):
        name = "contradicted"
    return said(f"question_{name}", state=state_name(row), whether=words_of(row).whether)


def advice(code: str, row: Row) -> Advice:
    """Return the advice on an attention of a payment."""
    return attention_advice(code, {name: row[name] for name in ("type", "terminal", "abortable")})


def in_totals(row: Row) -> str:
    """Return the text that says whether the amount of a payment is in the totals."""
    return said("in_totals" if row["section"] == "counted" else "not_in_totals")


def unknown_amounts(item: Row) -> str:
    """Return the text on how many payments of a row have an unknown amount, or ""."""
    return said("and_unknown", count=item["unknown"]) if item.get("unknown") else ""


def clock_mark(report: ReportView) -> str:
    """Return the remark after a total if posd did not trust the clock, or ""."""
    return said("clock_mark") if report["clock_unsure"] else ""


def open_line(report: ReportView) -> str:
    """Return the line about payments that may belong in the totals but are not there, or ""."""
    items = [row for row in report.marked("in_question") if row["section"] != "counted"]
    if not items:
        return ""
    known = [row["amount"] for row in items if row["amount"] is not None]
    shown = _amounts(known) + (said("and_more", count=len(known) - SHOWN) if len(known) > SHOWN else "")
    unknown = said("unknown", count=len(items) - len(known)) if len(items) > len(known) else ""
    return said("may_have_moved", **_payments(len(items)), amounts="; ".join(filter(None, (shown, unknown))))


def unlisted(report: ReportView) -> str:
    """Return the text on how many payments are not listed, or ""."""
    return said("unlisted", more=counted(report["unlisted"], named("more payment"))) if report["unlisted"] else ""


def elsewhere(report: ReportView) -> str:
    """Return the text on how many payments outside of the report have an attention."""
    where = named("days" if report["shift"] is None else "shifts")
    return said("elsewhere", where=where, count=report["attention_elsewhere"])


def wrong_clocks(report: ReportView) -> str:
    """Return the text on which terminals have a wrong clock."""
    return said("wrong_clocks", serials=", ".join(report["wrong_clocks"]))


def clock_doubts(report: ReportView) -> list[str]:
    """Return a sentence for each period in which posd did not trust the clock."""
    names = ("since", "until", "said_from", "said_to")
    periods = [{name: one[name] and time(report.local(one[name])) for name in names} for one in report["clock_unsure"]]
    doubts = [said("clock_doubt" if one["until"] else "clock_doubt_open", **one) for one in periods]
    shown = [said("clock_showed", **one) if one["said_from"] else "" for one in periods]
    return [f"{doubt} {times}".rstrip() for doubt, times in zip(doubts, shown, strict=True)]


def notes(row: Row) -> list[str]:
    """Return remarks about a payment."""
    if (fixed := row.get("correction")) is not None:
        name, now = ("correction_open", None) if fixed["now"] is None else ("correction", fixed["now"])
        return [said(name, shift=fixed["shift"], was=money(fixed["was"]), now=amount(now), state=state_name(row))]
    asked = row["requested"] if row["type"] != "void" else None
    basis = row["amount_by"]
    stands = {
        "record_removed": row["at_by"] == "shift",
        "was_open": "open_at" in row,
        "as_counted": row.get("changed_since") and row["section"] != "open",
        f"by_{basis}": row["result"] == "approved" and basis in ("requested", "original", "new_total"),
        "asked_for": row["differs"] and asked,
        "differs": row["differs"] and not asked,
        "by_person": row["by_person"],
        "was_result": row["was"],
        "clock_wrong": row["clock_wrong"],
        "in_question": row["in_question"],
    }
    words = {"at": row.get("open_at"), "asked": amount(asked), "was": result_name(row["was"] or "")}
    return [said(f"note_{name}", **words, state=state_name(row)) for name, true in stands.items() if true]
