"""Each payment, in tables by what it counts as."""

from collections.abc import Callable, Mapping, Sequence

from posd.cli.report.html.markup import Safe, amount, cell, join, table, tag
from posd.cli.report.sections import Payment, Section
from posd.cli.report.sums import Report, summed
from posd.cli.report.words import kind_name, notes, result_name

#: Payments that the page shows: beyond it a browser becomes slow; a CSV has them all.
MOST = 10_000

#: Characters of a UUID, as references are.
UUID = 36

#: section -> its caption.
CAPTIONS: Mapping[Section, str] = {
    Section.COUNTED: "Counted in the totals",
    Section.RESERVED: "Reserved, not charged",
    Section.NOT_CHARGED: "Not charged",
    Section.UNCLEAR: "Approved, not counted: type or amount not known",
    Section.OPEN: "Open, not counted",
}


def details(report: Report, metadata: str | None) -> Safe:
    """Return the tables of all payments; `metadata` names a member of their metadata that is shown."""
    if not report.payments:
        return Safe("")
    if len(report.payments) > MOST:
        line = f"{len(report.payments)} payments are too many for a page: posd report --csv lists them all."
        return tag("section", tag("h2", "Payments"), tag("p", line), class_="page")
    tables = [_table(report, section, metadata) for section in Section if report.sections[section]]
    return tag("section", tag("h2", "Payments"), *tables, class_="page")


def _table(report: Report, section: Section, metadata: str | None) -> Safe:
    items = report.sections[section]
    columns: dict[str, Callable[[Payment], str]] = {
        "time": lambda item: clock(report, item, seconds=True),
        "terminal": lambda item: cell(item.facts.terminal),
        "type": lambda item: kind_name(item.kind),
        "amount": lambda item: amount(item.amount),
    }
    if section is Section.NOT_CHARGED:
        columns["result"] = lambda item: cell(result_name(item.facts.result or ""))
        columns["reason"] = lambda item: cell(item.facts.failure)
        columns["transaction"] = lambda item: _identity(item, item.facts.id)
    elif section is Section.OPEN:
        columns["state"] = lambda item: item.facts.state
        columns["transaction"] = lambda item: _identity(item, item.facts.id)
    else:
        columns["card"] = lambda item: cell(item.brand)
        columns["ticket"] = lambda item: cell(item.facts.ticket)
        columns["reference"] = lambda item: _identity(item, item.facts.reference or "\N{EN DASH}")
    if section is Section.RESERVED:
        columns["by now"] = lambda item: cell(item.became)
    if any(item.facts.sale for item in items):
        columns["sale"] = lambda item: cell(item.facts.sale)
    if metadata is not None:
        columns[metadata] = lambda item: cell(item.facts.note)
    rows = [[read(item) for read in columns.values()] for item in items]
    foot: Sequence[str] = ()
    if section is Section.COUNTED:
        sums = summed(("all",), items)
        foot = ["total", "", str(len(items)), amount(sums.total), *[""] * (len(columns) - 4)]
    caption = f"{CAPTIONS[section]} ({len(items)})"
    return tag(
        "div", table(caption, tuple(columns), rows, numbers=("amount",), foot=foot, class_="rows"), class_="scroll"
    )


def _identity(item: Payment, identity: str) -> Safe:
    """Write what a payment is known by, and under it what stands out about it."""
    flags = notes(item)
    flag = tag("span", "; ".join(flags), class_="flag") if flags else Safe("")
    return join((tag("span", identity, class_="id" if len(identity) <= UUID else "id w"), flag))


def clock(report: Report, item: Payment, *, seconds: bool = False) -> str:
    """Write when a payment counts: without the date where that is the report's own."""
    local = report.span.local(item.facts.at)
    one = len(report.span.days) == 1 and local.date() == report.span.first
    return local.strftime(("" if one else "%Y-%m-%d ") + ("%H:%M:%S" if seconds else "%H:%M"))
