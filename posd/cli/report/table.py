"""Text form of the report: payments, totals, unsettled payments."""

from collections.abc import Callable, Iterable, Sequence
from textwrap import wrap

from posd.cli.app.output import Output, money
from posd.cli.app.subject import show_what_to_do
from posd.cli.app.tables import Cells, Layout, Number
from posd.cli.explain.catalogue import named
from posd.cli.report import words
from posd.cli.report.view import RESULTS, ReportView, Row
from posd.cli.report.words import amount, in_totals, kind_name, part_name, result_name, said, unnamed

#: Number of characters of an id or a reference. Text below it is broken to this width.
UUID = 36

Column = tuple[str, Callable[[Row], str]]


def show(output: Output, report: ReportView) -> None:
    """Write the report."""
    output.line(said("title", title=words.title(report)), "bold")
    of = said("of_terminal", serial=report["terminal"]) if report["terminal"] else named("All terminals")
    output.line(f"{of}. {words.scope(report)}.")
    for line in words.shift_lines(report):
        output.line(line)
    for doubt in words.clock_doubts(report):
        output.line(doubt, "bold red")
    if not report["payments"]:
        output.line()
        output.line("No payments.")
    _payments(output, report)
    if report["payments"]:
        _totals(output, report)
    _unsettled(output, report)
    if report.expected is not None:
        output.line()
        output.line(words.comparison(report.expected), "bold green" if report.expected.equal else "bold red")


def _payments(output: Output, report: ReportView) -> None:
    shown = {
        "Counted": ("counted",),
        "Reserved, not charged": ("reserved",),
        "Not charged": ("not_charged",),
        "Not in the totals": ("unclear", "open"),
    }
    for title, wanted in shown.items():
        if items := report.section(*wanted):
            output.line()
            output.line(title, "bold")
            _table(output, report, items, by_reference=wanted[0] in ("counted", "reserved"))
    if line := words.unlisted(report):
        output.line(line, "yellow")


def _table(output: Output, report: ReportView, items: Sequence[Row], *, by_reference: bool) -> None:
    """Write a table of payments. On a narrow terminal several columns share one, with their cells below each other."""
    columns: list[Column] = [
        ("time", lambda row: _time(report, row)),
        ("type", lambda row: kind_name(row["kind"])),
        ("terminal", lambda row: row["terminal"]),
        ("amount", lambda row: amount(row["amount"])),
    ]
    if by_reference:
        columns.append(("reference", lambda row: row["transaction_reference"] or "-"))
        columns.append(("ticket", _ticket))
    else:
        columns += [("transaction", lambda row: row["client_transaction_id"]), ("state", _state)]
    if report.several:
        columns.append(("currency", lambda row: row["currency"] or unnamed()))
    if report.metadata is not None:
        columns.append((report.metadata, lambda row: row.get("metadata") or "-"))
    names = [named(name) for name, _ in columns]
    rows = _aligned([[read(item) for _, read in columns] for item in items], 3)
    if not output.narrow:
        output.table(names, rows, Layout(cut=named("terminal")))
        return
    time, kind, terminal, number, *rest = names
    stacked = [_stacked(row) for row in rows]
    names = [time, f"{kind}, {terminal}", number, ", ".join(rest)]
    short = all(len(line) <= UUID for row in stacked for line in row[-1])
    output.table(names, stacked, Layout(whole=names[-1] if short else "", cut=names[1]))


def _stacked(row: Sequence[str]) -> Cells:
    """Return the cells of a row for a narrow terminal: the terminal below the type, later columns below the id."""
    time, kind, terminal, number, identity, *rest = row
    return [time, (kind, terminal), number, [identity, *(line for text in rest for line in wrap(text, UUID))]]


def _time(report: ReportView, row: Row) -> str:
    local = report.local(row["at"])
    return f"{local:%H:%M:%S}" if report.only_day(local.date()) else f"{local:%d} {named(f'{local:%b}')} {local:%H:%M}"


def _ticket(row: Row) -> str:
    ticket = row["ticket_number"] or named("no ticket")
    by_id = "" if row["transaction_reference"] else f"{named('transaction')} {row['client_transaction_id']}"
    return "; ".join(filter(None, (ticket, named(row["became"] or ""), *words.notes(row), by_id)))


def _state(row: Row) -> str:
    return "; ".join([words.state_name(row), *filter(None, (row["failure"],)), *words.notes(row)])


def _totals(output: Output, report: ReportView) -> None:
    tables = {"terminal": "terminal", "type": "type", "card": "brand"}
    tables |= {"currency": "currency"} if report.several else {}
    tables |= {"day": "day"} if len(report.days) > 1 else {}
    output.line()
    output.line(named("Totals") + words.clock_mark(report), "bold")
    for column, member in tables.items():
        beside = report.several and column != "currency"
        name = kind_name if column == "type" else str
        rows = [_figures(name(item[member] or unnamed()), item, beside=beside) for item in report[f"by_{member}"]]
        if column == "terminal":
            rows += [_figures(named("total"), item, beside=beside) for item in report.by_currency]
        output.line()
        names = (column, *(("currency",) if beside else ()), "payments", "charged", "reversals", "reversed", "total")
        output.table(
            [*map(named, names)], _aligned(rows, *range(len(names) - 5, len(names))), Layout(cut=named("terminal"))
        )
    output.line()
    parts = [(part_name(one["part"]), money(one["total"]), one["currency"]) for one in report["by_part"]]
    _by_currency(output, report, ("part, as the till sent it", "total"), parts, 1)
    if held := [(kind_name(row["type"]), named(row["became"] or "-"), *_sum(row)) for row in report["reserved"]]:
        output.line()
        _by_currency(output, report, ("reserved, in no total", "by now", "number", "amount"), held, 2, 3)
    output.line()
    ended = {result: sum(item[result] for item in report["results"]) for result in RESULTS}
    took = report["seconds"]
    within = said("within", half=took["median"], most=took["p95"]) if took["count"] else ""
    results = ", ".join(f"{count} {result_name(name)}" for name, count in ended.items() if count)
    output.line(said("results", results=results) + within)
    _sureness(output, report)
    for item in report.totals:
        total = f"{named('Total')}: {money(item['total'])} {words.currency_of(report, item)}".rstrip()
        output.line(total + words.clock_mark(report), "bold green")
    for rule in words.rules(report):
        output.line(rule, "dim")


def _sum(item: Row) -> tuple[str, str, str | None]:
    return str(item["number"]), money(item["amount"]) + words.unknown_amounts(item), item["currency"]


def _by_currency(
    output: Output, report: ReportView, names: Sequence[str], rows: Iterable[tuple[str | None, ...]], *places: int
) -> None:
    """Write a table whose last column is the currency. With only one currency, that column is omitted."""
    heads = [*names, "currency"] if report.several else names
    cells = [[*map(str, row), currency or unnamed()][: len(heads)] for *row, currency in rows]
    output.table([*map(named, heads)], _aligned(cells, *places))


def _sureness(output: Output, report: ReportView) -> None:
    """Write the sums of certain and uncertain amounts, unless all are certain."""
    found = report["sureness"]
    if all(item["standing"] == "certain" for item in found):
        return
    rows = [
        (words.standing_name(item["standing"]), named("yes" if item["in_total"] else "no"), *_sum(item))
        for item in found
    ]
    output.line()
    _by_currency(output, report, ("how sure", "in total", "payments", "amount"), rows, 2, 3)
    output.line()


def _figures(name: str, item: Row, *, beside: bool) -> tuple[str, ...]:
    payments, charged = (str(item["payments"]), money(item["charged"])) if item["payments"] else ("-", "-")
    voids, back = (str(item["reversals"]), money(item["reversed"])) if item["reversals"] else ("-", "-")
    currency = (item["currency"] or unnamed(),) if beside else ()
    return name, *currency, payments, charged, voids, back, money(item["total"])


def _aligned(rows: Sequence[Sequence[str]], *places: int) -> list[list[str]]:
    """Return the rows, with the cells of the columns `places` as right-aligned numbers."""
    return [[Number(cell) if place in places else cell for place, cell in enumerate(row)] for row in rows]


def _unsettled(output: Output, report: ReportView) -> None:
    if line := words.open_line(report):
        output.line()
        output.line(line, "bold yellow")
    for row in report.marked("in_question"):
        output.line(f"{row['client_transaction_id']}  {row['terminal']}  {amount(row['amount'])}, {in_totals(row)}")
        output.line(words.question(row), indent=4)
    for row in report.marked("differs"):
        output.line(f"{row['client_transaction_id']}  {row['terminal']}  {amount(row['amount'])}, {in_totals(row)}")
        output.line(said("differs", is_now=amount(row["authorized"]), asked=amount(row["requested"])), indent=4)
    if report["wrong_clocks"]:
        output.line()
        output.line(words.wrong_clocks(report), "yellow")
    marks = [(row, item["code"]) for row in report.marked("attention") for item in row["attention"]]
    show_what_to_do(output, ((code, words.advice(code, row), row["client_transaction_id"]) for row, code in marks))
    if report["attention_elsewhere"]:
        output.line()
        output.line(words.elsewhere(report), "yellow")
