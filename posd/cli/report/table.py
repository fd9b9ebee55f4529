"""The report on a terminal: payments first, then totals, and last, next to the prompt, what is not settled."""

from collections.abc import Callable, Sequence
from textwrap import wrap

from posd.cli.app.output import Output, money
from posd.cli.app.subject import show_what_to_do
from posd.cli.app.tables import Cells, Layout, Number
from posd.cli.report import words
from posd.cli.report.view import RESULTS, ReportView, Row
from posd.cli.report.words import UNNAMED, amount, in_totals, kind_name, result_name

#: Characters of an id, as references are; what stands below one is broken to its width.
UUID = 36

Column = tuple[str, Callable[[Row], str]]


def show(output: Output, report: ReportView) -> None:
    """Write the report."""
    output.line(f"Card payments of {words.title(report)}", "bold")
    of = f"Terminal {report['terminal']}" if report["terminal"] else "All terminals"
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
    """Write a table of payments; where the terminal is narrow, two columns stand in one, below each other."""
    columns: list[Column] = [
        ("time", lambda row: _time(report, row)),
        ("type", lambda row: kind_name(row["kind"])),
        ("terminal", lambda row: row["terminal"]),
        ("amount", lambda row: amount(row["amount"])),
    ]
    if by_reference:
        columns.append(("reference", lambda row: row["transaction_reference"] or row["client_transaction_id"]))
        columns.append(("ticket", _ticket))
    else:
        columns += [("transaction", lambda row: row["client_transaction_id"]), ("state", _state)]
    if report.several:
        columns.append(("currency", lambda row: row["currency"] or UNNAMED))
    if report.metadata is not None:
        columns.append((report.metadata, lambda row: row.get("metadata") or "-"))
    names = [name for name, _ in columns]
    rows = _aligned([[read(item) for _, read in columns] for item in items], 3)
    if not output.narrow:
        output.table(names, rows, Layout(cut="terminal"))
        return
    time, kind, terminal, number, *rest = names
    stacked = [_stacked(row) for row in rows]
    names = [time, f"{kind}, {terminal}", number, ", ".join(rest)]
    short = all(len(line) <= UUID for row in stacked for line in row[-1])
    output.table(names, stacked, Layout(whole=names[-1] if short else "", cut=names[1]))


def _stacked(row: Sequence[str]) -> Cells:
    """Put terminal under type, and all that follows the id under that."""
    time, kind, terminal, number, identity, *rest = row
    return [time, (kind, terminal), number, [identity, *(line for text in rest for line in wrap(text, UUID))]]


def _time(report: ReportView, row: Row) -> str:
    local = report.local(row["at"])
    one = report.one_day and local.date() == report.days[0]
    return f"{local:%H:%M:%S}" if one else f"{local:%d %b %H:%M}"


def _ticket(row: Row) -> str:
    return "; ".join([row["ticket_number"] or "no ticket", *filter(None, (row["became"],)), *words.notes(row)])


def _state(row: Row) -> str:
    return "; ".join([words.state_name(row), *filter(None, (row["failure"],)), *words.notes(row)])


def _totals(output: Output, report: ReportView) -> None:
    tables = {
        "terminal": ("by_terminal", "terminal"),
        "type": ("by_type", "type"),
        "card": ("by_brand", "brand"),
        "currency": ("by_currency", "currency"),
        "day": ("by_day", "day"),
    }
    if not report.several:
        del tables["currency"]
    if len(report.days) < 2:
        del tables["day"]
    output.line()
    output.line("Totals" + words.clock_mark(report), "bold")
    for column, (of, member) in tables.items():
        beside = report.several and column != "currency"
        named = kind_name if column == "type" else str
        rows = [_figures(named(item[member] or UNNAMED), item, beside=beside) for item in report[of]]
        if column == "terminal":
            rows += [_figures("total", item, beside=beside) for item in report.by_currency]
        output.line()
        names = (column, *(("currency",) if beside else ()), "payments", "charged", "reversals", "reversed", "total")
        output.table(names, _aligned(rows, *range(len(names) - 5, len(names))), Layout(cut="terminal"))
    output.line()
    parts = [
        (words.part_name(part["part"]), money(part["total"]), part["currency"] or UNNAMED) for part in report["by_part"]
    ]
    output.table(*_cut(("part, as the till sent it", "total", "currency"), _aligned(parts, 1), report))
    if report["reserved"]:
        held = [
            (
                kind_name(item["type"]),
                item["became"] or "-",
                str(item["number"]),
                money(item["amount"]),
                item["currency"] or UNNAMED,
            )
            for item in report["reserved"]
        ]
        output.line()
        output.table(
            *_cut(("reserved, in no total", "by now", "number", "amount", "currency"), _aligned(held, 2, 3), report)
        )
    output.line()
    ended = {result: sum(item[result] for item in report["results"]) for result in RESULTS}
    took = report["seconds"]
    within = f"; half of them within {took['median']:f} s, 95 % within {took['p95']:f} s" if took["count"] else ""
    output.line(
        "Results: " + ", ".join(f"{count} {result_name(name)}" for name, count in ended.items() if count) + within
    )
    _sureness(output, report)
    for item in report.totals:
        total = f"Total: {money(item['total'])} {item['currency'] or ''}".rstrip()
        output.line(total + words.clock_mark(report), "bold green")
    for rule in words.rules(report):
        output.line(rule, "dim")


def _cut(
    names: Sequence[str], rows: Sequence[Sequence[str]], report: ReportView
) -> tuple[Sequence[str], Sequence[Cells]]:
    """Leave the last column out, the currency, where there is only one."""
    last = len(names) if report.several else -1
    return names[:last], [row[:last] for row in rows]


def _sureness(output: Output, report: ReportView) -> None:
    """Write what is certain apart from what is not; nothing where all is certain."""
    found = report["sureness"]
    if all(item["standing"] == "certain" for item in found):
        return
    rows = [
        (
            words.standing_name(item["standing"]),
            "yes" if item["in_total"] else "no",
            str(item["number"]),
            money(item["amount"]) + words.unknown_amounts(item),
            item["currency"] or UNNAMED,
        )
        for item in found
    ]
    output.line()
    output.table(*_cut(("how sure", "in total", "payments", "amount", "currency"), _aligned(rows, 2, 3), report))
    output.line()


def _figures(name: str, item: Row, *, beside: bool) -> tuple[str, ...]:
    payments, charged = (str(item["payments"]), money(item["charged"])) if item["payments"] else ("-", "-")
    voids, back = (str(item["reversals"]), money(item["reversed"])) if item["reversals"] else ("-", "-")
    currency = (item["currency"] or UNNAMED,) if beside else ()
    return name, *currency, payments, charged, voids, back, money(item["total"])


def _aligned(rows: Sequence[Sequence[str]], *places: int) -> list[list[str]]:
    """Make the cells of these columns numbers, which stand flush right."""
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
        output.line(f"Authorized {amount(row['authorized'])}, asked for {amount(row['requested'])}.", indent=4)
    if report["wrong_clocks"]:
        output.line()
        output.line(words.wrong_clocks(report), "yellow")
    show_what_to_do(
        output,
        (
            (item["code"], words.advice(item["code"], row), row["client_transaction_id"])
            for row in report.marked("attention")
            for item in row["attention"]
        ),
    )
    if report["attention_elsewhere"]:
        output.line()
        output.line(words.elsewhere(report), "yellow")
