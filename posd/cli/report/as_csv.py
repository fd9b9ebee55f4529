"""The report as CSV (RFC 4180): one row a payment, in the order of time. The column `counted` adds up to the total."""

import csv
import io
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal

from posd.cli.report.exact import money
from posd.cli.report.sections import Payment
from posd.cli.report.sums import Report

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


def write(report: Report, *, metadata: str | None = None) -> str:
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
