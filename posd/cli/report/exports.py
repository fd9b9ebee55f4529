"""The report for programs: CSV (RFC 4180) and JSON (docs/report.md)."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec

from posd.cli.report import sums
from posd.cli.report.facts import money
from posd.cli.report.sums import Payment, Report, Section, Sum

#: A text that begins with one of these would be run as a formula by a spreadsheet.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")

_Cell = Callable[[Payment, Report], object]

#: column -> what stands in it: a text, a number, a time, or None.
COLUMNS: Mapping[str, _Cell] = {
    "at": lambda item, report: report.span.local(item.facts.at),
    "at_by": lambda item, _: item.facts.at_by,
    "client_transaction_id": lambda item, _: item.facts.id,
    "terminal": lambda item, _: item.facts.terminal,
    "type": lambda item, _: item.facts.type,
    "kind": lambda item, _: item.kind,
    "section": lambda item, _: item.section.value,
    "result": lambda item, _: item.facts.result or "open",
    "counted": lambda item, _: _number(item.counted),
    "amount": lambda item, _: _number(item.amount),
    "amount_by": lambda item, _: item.basis.value,
    "requested": lambda item, _: _number(item.facts.requested),
    "authorized": lambda item, _: _number(item.facts.authorized),
    "currency": lambda item, _: item.facts.currency,
    "brand": lambda item, _: item.brand,
    "transaction_reference": lambda item, _: item.facts.reference,
    "ticket_number": lambda item, _: item.facts.ticket,
    "authorization_code": lambda item, _: item.facts.authorization_code,
    "sale": lambda item, _: item.facts.sale,
    "original": lambda item, _: item.facts.original,
    "created_at": lambda item, report: report.span.local(item.facts.created_at),
    "decided_at": lambda item, report: item.facts.decided_at and report.span.local(item.facts.decided_at),
    "seconds": lambda item, _: _Number(item.facts.seconds) if item.facts.seconds is not None else None,
    "in_question": lambda item, _: "yes" if item.in_question else "no",
    "attention": lambda item, _: " ".join(code for code, _ in item.facts.attention),
}


class _Number(str):
    """A cell that a program reads as a number: nothing is put before its sign."""

    __slots__ = ()

    def __new__(cls, value: object) -> "_Number":
        return super().__new__(cls, value)


def write_csv(report: Report, *, metadata: str | None = None) -> str:
    """Return the CSV; `metadata` names the member of the metadata that gets a column of its own."""
    columns: dict[str, _Cell] = dict(COLUMNS)
    if metadata is not None:
        columns[f"metadata.{metadata}"] = lambda item, _: item.facts.note
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow([_cell(name) for name in columns])
    for payment in report.payments:
        writer.writerow([_cell(read(payment, report)) for read in columns.values()])
    return text.getvalue()


def _number(value: Decimal | None) -> _Number | None:
    return None if value is None else _Number(money(value))


def _cell(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    if value is None or isinstance(value, _Number):
        return value or ""
    text = str(value).replace("\0", "\N{REPLACEMENT CHARACTER}")
    return f"'{text}" if text.startswith(FORMULA) else text


# The report as JSON: exact numbers, the names of the local API (see docs/report.md).

_ENCODER = msgspec.json.Encoder(decimal_format="number")


def write_json(report: Report) -> bytes:
    """Return the JSON document."""
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
        "by_day": [{"day": day.isoformat(), **_sum(item)} for day, item in sums.by_day(report)],
        "by_hour": [{"hour": item.name[0], **_sum(item)} for item in sums.by_hour(report)],
        "results": [
            {"terminal": item.terminal, **dict(zip(sums.RESULTS, item.counts, strict=True))}
            for item in sums.results(report)
        ],
        "seconds": {"count": times.count, "median": times.median, "p95": times.p95, "longest": times.longest},
        "in_question": [item.facts.id for item in report.in_question],
        "amount_differs": [item.facts.id for item in report.differing],
        "unsure": [item.facts.id for item in report.unsure],
        "attention_elsewhere": report.elsewhere,
        "payments": [_payment(item, report) for item in report.payments],
    }
    return _ENCODER.encode(document)


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
