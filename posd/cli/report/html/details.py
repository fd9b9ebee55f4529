"""Each payment, in tables by what it counts as."""

from collections.abc import Callable, Mapping, Sequence

from posd.cli.report.counting import Payment, Section
from posd.cli.report.html.markup import Safe, amount, join, table, tag
from posd.cli.report.sums import Report, summed
from posd.cli.report.words import kind_name, notes, result_name

#: Payments that the page shows: beyond it a browser becomes slow; a CSV has them all.
MOST = 10_000

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
        "time": lambda item: _time(report, item),
        "terminal": lambda item: item.facts.terminal,
        "type": lambda item: kind_name(item.kind),
        "amount": lambda item: amount(item.amount),
    }
    if section is Section.NOT_CHARGED:
        columns["result"] = lambda item: result_name(item.facts.result or "")
        columns["reason"] = lambda item: item.facts.failure or "\N{EN DASH}"
    elif section is Section.OPEN:
        columns["state"] = lambda item: item.facts.state
    else:
        columns["card"] = lambda item: item.brand or "\N{EN DASH}"
        columns["ticket"] = lambda item: item.facts.ticket or "\N{EN DASH}"
        columns["reference"] = lambda item: tag("span", item.facts.reference or "\N{EN DASH}", class_="id")
    if section is Section.RESERVED:
        columns["by now"] = lambda item: item.became or "\N{EN DASH}"
    if any(item.facts.sale for item in items):
        columns["sale"] = lambda item: item.facts.sale or "\N{EN DASH}"
    if metadata is not None:
        columns[metadata] = lambda item: item.facts.note or "\N{EN DASH}"
    if section in (Section.NOT_CHARGED, Section.OPEN):
        columns["transaction"] = lambda item: tag("span", item.facts.id, class_="id")
    if any(notes(item) for item in items):
        columns["note"] = lambda item: tag("span", "; ".join(notes(item)), class_="flag")
    rows = [[read(item) for read in columns.values()] for item in items]
    foot: Sequence[str] = ()
    if section is Section.COUNTED:
        sums = summed(("all",), items)
        foot = ["total", "", str(len(items)), amount(sums.total), *[""] * (len(columns) - 4)]
    caption = f"{CAPTIONS[section]} ({len(items)})"
    return tag(
        "div", table(caption, tuple(columns), rows, numbers=("amount",), foot=foot, class_="rows"), class_="scroll"
    )


def _time(report: Report, item: Payment) -> Safe:
    local = report.span.local(item.facts.at)
    one = len(report.span.days) == 1 and local.date() == report.span.first
    return join((f"{local:%H:%M:%S}" if one else f"{local:%Y-%m-%d %H:%M:%S}",))
