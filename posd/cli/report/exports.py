"""The report for programs: CSV (RFC 4180) and JSON (docs/guides/report.md)."""

import csv
import io
import re
from decimal import Decimal

from posd.base.text import shown
from posd.cli.app.output import money
from posd.cli.report.view import ReportView
from posd.client.documents import encode

#: A cell that begins with one of these is run as a formula by a spreadsheet; the last four are as wide as two letters.
FORMULA = (
    *("=", "+", "-", "@"),
    *("\N{FULLWIDTH EQUALS SIGN}", "\N{FULLWIDTH PLUS SIGN}"),
    *("\N{FULLWIDTH HYPHEN-MINUS}", "\N{FULLWIDTH COMMERCIAL AT}"),
)
#: Where a cell may begin with it: at the beginning of a text, or behind a semicolon, where the spreadsheet of a country
#: with a decimal comma separates.
_BEGINS = re.compile(rf'(^|;)([\s"]*)(?=[{re.escape("".join(FORMULA))}])')

#: Columns of the CSV: members of a payment.
COLUMNS = (
    *("at", "at_by", "client_transaction_id", "terminal", "type", "kind", "section", "result", "counted", "amount"),
    *("amount_by", "requested", "authorized", "currency", "brand", "transaction_reference", "ticket_number"),
    *("authorization_code", "sale", "original", "created_at", "decided_at", "seconds", "in_question", "attention"),
    *("clock_unsure", "standing"),
)
#: Columns that are moments, and that are amounts.
_TIMES = frozenset({"at", "created_at", "decided_at"})
_AMOUNTS = frozenset({"counted", "amount", "requested", "authorized"})


def write_csv(report: ReportView) -> str:
    """Return the CSV. Times are those of the merchant's clock."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    extra = [] if report.metadata is None else [f"metadata.{report.metadata}"]
    writer.writerow(map(_cell, (*COLUMNS, *extra)))
    for payment in report["payments"]:
        row = payment | {
            "result": payment["result"] or "open",
            "in_question": "yes" if payment["in_question"] else "no",
            "attention": " ".join(item["code"] for item in payment["attention"]),
            "clock_unsure": "yes" if report["clock_unsure"] else "no",
        }
        row |= {name: report.local(row[name]).isoformat(timespec="milliseconds") for name in _TIMES if row[name]}
        row |= {name: Decimal(money(row[name])) for name in _AMOUNTS if row[name] is not None}
        last = [] if report.metadata is None else [payment.get("metadata")]
        writer.writerow(map(_cell, [*(row[column] for column in COLUMNS), *last]))
    return text.getvalue()


def write_json(report: ReportView) -> bytes:
    """Return the document as posd gave it, with the comparison where there is one."""
    if (found := report.expected) is None:
        return encode(report.document)
    named = {"expected": found.expected, "counted": found.counted, "difference": found.difference}
    return encode({**report.document, "comparison": {**named, "currency": found.currency or None}})


def _cell(value: str | Decimal | int | None) -> str:
    """Write a number as it is, its sign too; a text in one line, and so that no spreadsheet takes it for a formula."""
    if value is None or isinstance(value, Decimal | int):
        return "" if value is None else f"{value:f}"
    return _BEGINS.sub(r"\1\2'", shown(value))
