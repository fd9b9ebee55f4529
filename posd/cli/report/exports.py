"""The report for programs: CSV (RFC 4180) and JSON (docs/report.md)."""

import csv
import io
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec

from posd.base.text import shown
from posd.cli.report import sums
from posd.cli.report.expect import Comparison
from posd.cli.report.facts import money
from posd.cli.report.standing import Payment, Section
from posd.cli.report.sums import Report, Sum

#: A cell that begins with one of these is run as a formula by a spreadsheet; the last four are as wide as two letters.
FORMULA = (
    *("=", "+", "-", "@"),
    *("\N{FULLWIDTH EQUALS SIGN}", "\N{FULLWIDTH PLUS SIGN}"),
    *("\N{FULLWIDTH HYPHEN-MINUS}", "\N{FULLWIDTH COMMERCIAL AT}"),
)
#: Where a cell may begin with it: at the beginning of a text, or behind a semicolon, where the spreadsheet of a country
#: with a decimal comma separates.
_BEGINS = re.compile(rf'(^|;)([\s"]*)(?=[{re.escape("".join(FORMULA))}])')

#: Columns of the CSV: members of a payment's JSON document.
COLUMNS = (
    "at",
    "at_by",
    "client_transaction_id",
    "terminal",
    "type",
    "kind",
    "section",
    "result",
    "counted",
    "amount",
    "amount_by",
    "requested",
    "authorized",
    "currency",
    "brand",
    "transaction_reference",
    "ticket_number",
    "authorization_code",
    "sale",
    "original",
    "created_at",
    "decided_at",
    "seconds",
    "in_question",
    "attention",
    "clock_unsure",
    "standing",
)


def write_csv(report: Report, *, metadata: str | None = None) -> str:
    """Return the CSV; `metadata` names the member of the metadata that gets a column of its own."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow([*COLUMNS, *([] if metadata is None else [_cell(f"metadata.{metadata}")])])
    for payment in report.payments:
        document = _payment(payment, report) | {
            "result": payment.facts.result or "open",
            "in_question": "yes" if payment.in_question else "no",
            "attention": " ".join(code for code, _ in payment.facts.attention),
            "clock_unsure": "yes" if report.clock_doubts else "no",
        }
        row = [document[column] for column in COLUMNS]
        writer.writerow(map(_cell, row if metadata is None else [*row, payment.facts.note]))
    return text.getvalue()


def _cell(value: str | Decimal | None) -> str:
    """Write a number as it is, its sign too; a text in one line, and so that no spreadsheet takes it for a formula."""
    if value is None or isinstance(value, Decimal):
        return "" if value is None else f"{value:f}"
    return _BEGINS.sub(r"\1\2'", shown(value))


# The report as JSON: exact numbers, the names of the local API (see docs/report.md).

_ENCODER = msgspec.json.Encoder(decimal_format="number")


def write_json(report: Report, comparison: Comparison | None = None) -> bytes:
    """Return the JSON document; `comparison` with the terminal's own total."""
    span = report.span
    times = sums.times(report)
    document = {
        "from": span.first.isoformat(),
        "to": span.last.isoformat(),
        "timezone": span.zone.key,
        "starts_at": _time(span.local(span.start)),
        "ends_at": _time(span.local(span.end)),
        "terminal": report.terminal,
        "made_at": _time(span.local(report.made_at)),
        "currencies": report.currencies,
        "total": _sum(report.total),
        "sureness": [
            {
                "standing": item.standing.value,
                "in_total": item.in_totals,
                "number": item.number,
                "amount": _money(item.amount),
                "unknown": item.unknown,
            }
            for item in report.sureness
        ],
        "counts": {section.value: len(report.sections[section]) for section in Section},
        "by_terminal": _sums(report, terminal=sums.terminal_of),
        "by_type": _sums(report, type=sums.kind_of),
        "by_terminal_and_type": _sums(report, terminal=sums.terminal_of, type=sums.kind_of),
        "by_brand": _sums(report, brand=sums.brand_of),
        "by_currency": _sums(report, currency=sums.currency_of),
        "by_part": [{"part": part.name, "total": _money(part.total)} for part in report.parts],
        "reserved": [
            {
                "type": kind,
                "became": became or None,
                "number": item.payments + item.reversals,
                "amount": _money(item.total),
            }
            for item in report.reserved
            for kind, became in (item.name,)
        ],
        **_course(report),
        "results": [{"terminal": terminal, **counts} for terminal, counts in sums.results(report).items()],
        "seconds": {"count": times.count, "median": times.median, "p95": times.p95, "longest": times.longest},
        "in_question": [item.facts.id for item in report.in_question],
        "amount_differs": [item.facts.id for item in report.differing],
        "unsure": [item.facts.id for item in report.unsure],
        "attention_elsewhere": report.elsewhere,
        "clock_unsure": report.clock_doubts,
        **_shift(report),
        **_comparison(comparison),
        "payments": [_payment(item, report) for item in report.payments],
    }
    return _ENCODER.encode(document)


def totals(report: Report) -> dict[str, Any]:
    """Return the totals that are kept with a closed shift: members of the JSON document."""
    return {
        "currencies": report.currencies,
        "total": _sum(report.total),
        "sureness": [
            {
                "standing": item.standing.value,
                "number": item.number,
                "amount": _money(item.amount),
                "unknown": item.unknown,
            }
            for item in report.sureness
        ],
        "counts": {section.value: len(report.sections[section]) for section in Section},
        "by_terminal": _sums(report, terminal=sums.terminal_of),
        "by_type": _sums(report, type=sums.kind_of),
        "clock_unsure": report.clock_doubts,
    }


def _course(report: Report) -> dict[str, Any]:
    """Return what was counted by day and hour; of a shift no clock says what belongs to it."""
    if report.shift is not None:
        return {"by_day": [], "by_hour": []}
    return {
        "by_day": [{"day": day.isoformat(), **_sum(item)} for day, item in sums.by_day(report)],
        "by_hour": [{"hour": item.name[0], **_sum(item)} for item in sums.by_hour(report)],
    }


def _shift(report: Report) -> dict[str, Any]:
    shift = report.shift
    if shift is None:
        return {}
    closed, last = shift.closed, shift.last
    document = {
        "number": closed.number if closed else 1 if last is None else last.number + 1,
        "closed_at": closed and _time(report.span.local(closed.closed_at)),
        "operator": closed and closed.operator,
        "note": closed and closed.note,
        "begins_at": last and _time(report.span.local(last.closed_at)),
        "total": closed and _money(closed.total),
        "totals": closed and closed.totals,
        "corrections": [
            {
                "client_transaction_id": item.facts.id,
                "terminal": item.facts.terminal,
                "shift": item.correction.shift,
                "was": _money(item.correction.was),
                "now": _money(item.correction.now),
                "difference": _money(item.amount),
            }
            for item in report.corrections
            if item.correction is not None
        ],
        "open": [item.facts.id for item in report.ended if item.section is Section.OPEN],
        "open_before": [item.facts.id for item in report.ended if item.open_at is not None],
        "removed": shift.removed,
        "more": shift.more,
    }
    return {"shift": document}


def _comparison(found: Comparison | None) -> dict[str, Any]:
    if found is None:
        return {}
    document = {
        "expected": _money(found.expected),
        "counted": _money(found.counted),
        "difference": _money(found.difference),
        "explanations": [
            [
                {
                    "client_transaction_id": item.id,
                    "reason": item.reason.value,
                    "difference": _money(item.difference),
                }
                for item in items
            ]
            for items in found.sets
        ],
        "more": found.more,
        "searched": found.searched,
        "doubtful": found.doubtful,
    }
    return {"comparison": document}


def _payment(payment: Payment, report: Report) -> dict[str, Any]:
    facts = payment.facts
    local = report.span.local
    document: dict[str, Any] = {
        "client_transaction_id": facts.id,
        "at": _time(local(facts.at)),
        "at_by": facts.at_by,
        "terminal": facts.terminal,
        "type": facts.type,
        "kind": payment.kind,
        "section": payment.section.value,
        "result": facts.result,
        "counted": _money(payment.counted),
        "amount": _money(payment.amount),
        "amount_by": payment.basis.value,
        "requested": _money(facts.requested),
        "authorized": _money(facts.authorized),
        "parts": {name: _money(value) for name, value in payment.parts.items()},
        "currency": facts.currency,
        "brand": payment.brand,
        "transaction_reference": facts.reference,
        "ticket_number": facts.ticket,
        "authorization_code": facts.authorization_code,
        "sale": facts.sale,
        "original": facts.original,
        "became": payment.became,
        "created_at": _time(local(facts.created_at)),
        "decided_at": facts.decided_at and _time(local(facts.decided_at)),
        "seconds": facts.seconds,
        "standing": payment.standing,
        "in_question": payment.in_question,
        "by_person": facts.by_person,
        "was": facts.corrects,
        "attention": [{"code": code, "detail": detail} for code, detail in facts.attention],
    }
    return document if facts.note is None else {**document, "metadata": facts.note}


def _sums(report: Report, **keys: Callable[[Payment], str]) -> Sequence[dict[str, Any]]:
    return [{**dict(zip(keys, item.name, strict=True)), **_sum(item)} for item in report.by(*keys.values())]


def _sum(item: Sum) -> dict[str, Any]:
    return {
        "payments": item.payments,
        "charged": _money(item.charged),
        "reversals": item.reversals,
        "reversed": _money(item.reversed),
        "total": _money(item.total),
    }


def _money(value: Decimal | None) -> Decimal | None:
    """Keep every digit, and show at least cents."""
    return None if value is None else Decimal(money(value))


def _time(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds")
