"""The report on a terminal: payments first, then totals, and last, next to the prompt, what is not settled."""

from collections.abc import Callable, Sequence
from textwrap import wrap

from posd.cli.app.output import Output
from posd.cli.app.subject import show_what_to_do
from posd.cli.app.tables import Cells, Layout, Number
from posd.cli.report import sums, words
from posd.cli.report.expect import Comparison
from posd.cli.report.facts import money
from posd.cli.report.standing import Payment, Section
from posd.cli.report.sums import Report, Sum
from posd.cli.report.words import amount, in_totals, kind_name, result_name

#: Characters of an id, as references are; what stands below one is broken to its width.
UUID = 36

Column = tuple[str, Callable[[Payment], str]]


def show(output: Output, report: Report, *, metadata: str | None = None, comparison: Comparison | None = None) -> None:
    """Write the report; `comparison` with the terminal's own total."""
    output.line(f"Card payments of {words.title(report)}", "bold")
    of = f"terminal {report.terminal}" if report.terminal else "all terminals"
    output.line(f"{of[:1].upper()}{of[1:]}. {words.scope(report)}.")
    for line in words.shift_lines(report):
        output.line(line)
    for doubt in report.clock_doubts:
        output.line(doubt, "bold red")
    if not report.payments:
        output.line()
        output.line("No payments.")
    _payments(output, report, metadata)
    if report.payments:
        _totals(output, report)
    _unsettled(output, report)
    if comparison is not None:
        output.line()
        _comparison(output, comparison)


def _comparison(output: Output, found: Comparison) -> None:
    """Write how the terminal's own total compares, and which payments explain a difference."""
    first, *rest = words.comparison(found)
    output.line(first, "bold green" if found.equal else "bold red")
    for line in rest:
        output.line(line)
    for place, items in enumerate(found.sets, 1):
        for item in items:
            output.line(f"{place}. {words.candidate(item)}", indent=2)
            output.line(f"{words.REASONS[item.reason]}.", indent=5)


def _payments(output: Output, report: Report, metadata: str | None) -> None:
    shown: Sequence[tuple[str, Sequence[Section]]] = (
        ("Counted", (Section.COUNTED,)),
        ("Reserved, not charged", (Section.RESERVED,)),
        ("Not charged", (Section.NOT_CHARGED,)),
        ("Not in the totals", (Section.UNCLEAR, Section.OPEN)),
    )
    for title, wanted in shown:
        items = [item for section in wanted for item in report.sections[section]]
        if not items:
            continue
        output.line()
        output.line(title, "bold")
        _table(output, report, items, by_reference=wanted[0] in (Section.COUNTED, Section.RESERVED), metadata=metadata)


def _table(
    output: Output, report: Report, items: Sequence[Payment], *, by_reference: bool, metadata: str | None
) -> None:
    """Write a table of payments; where the terminal is narrow, two columns stand in one, below each other."""
    columns: list[Column] = [
        ("time", lambda item: _time(report, item)),
        ("type", lambda item: kind_name(item.kind)),
        ("terminal", lambda item: item.facts.terminal),
        ("amount", lambda item: amount(item.amount)),
    ]
    if by_reference:
        columns += [("reference", lambda item: item.facts.reference or item.facts.id), ("ticket", _ticket)]
    else:
        columns += [("transaction", lambda item: item.facts.id), ("state", _state)]
    if metadata is not None:
        columns.append((metadata, lambda item: item.facts.note or "-"))
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


def _time(report: Report, item: Payment) -> str:
    local = report.span.local(item.facts.at)
    one = len(report.span.days) == 1 and local.date() == report.span.first
    return f"{local:%H:%M:%S}" if one else f"{local:%d %b %H:%M}"


def _ticket(item: Payment) -> str:
    return "; ".join([item.facts.ticket or "no ticket", *filter(None, (item.became,)), *words.notes(item)])


def _state(item: Payment) -> str:
    return "; ".join([result_name(item.facts.state), *filter(None, (item.facts.failure,)), *words.notes(item)])


def _totals(output: Output, report: Report) -> None:
    total = report.total
    tables: list[tuple[str, Sequence[Sum], Callable[[str], str]]] = [
        ("terminal", report.by(sums.terminal_of), str),
        ("type", report.by(sums.kind_of), kind_name),
        ("card", report.by(sums.brand_of), str),
    ]
    if len(report.currencies) > 1:
        tables.append(("currency", report.by(sums.currency_of), str))
    if report.shift is None and len(report.span.days) > 1:
        tables.append(("day", report.busy_days, str))
    output.line()
    output.line("Totals" + words.clock_mark(report), "bold")
    for column, items, named in tables:
        rows = [(named(item.name[0]), *_figures(item)) for item in items]
        if column == "terminal":
            rows.append(("total", *_figures(total)))
        output.line()
        names = (column, "payments", "charged", "voids", "reversed", "total")
        output.table(names, _aligned(rows, 1, 2, 3, 4, 5), Layout(cut="terminal"))
    output.line()
    parts = [(words.PART_NAMES.get(part.name, part.name), money(part.total)) for part in report.parts]
    output.table(("part, as the till sent it", "total"), _aligned(parts, 1))
    if report.reserved:
        held = [
            (kind_name(item.name[0]), item.name[1] or "-", str(item.payments + item.reversals), money(item.total))
            for item in report.reserved
        ]
        output.line()
        output.table(("reserved, in no total", "by now", "number", "amount"), _aligned(held, 2, 3))
    output.line()
    ended = [item.facts.result or "open" for item in report.ended]
    counts = [(result_name(result), ended.count(result)) for result in sums.RESULTS]
    times = sums.times(report)
    took = f"; half of them within {times.median:f} s, 95 % within {times.p95:f} s" if times.count else ""
    output.line("Results: " + ", ".join(f"{count} {name}" for name, count in counts if count) + took)
    _sureness(output, report)
    output.line(f"Total: {money(total.total)} {report.currency}".rstrip() + words.clock_mark(report), "bold green")
    for rule in words.rules(report):
        output.line(rule, "dim")


def _sureness(output: Output, report: Report) -> None:
    """Write what is certain apart from what is not; nothing where all is certain."""
    found = report.sureness
    if len(found) == 1:
        return
    rows = [
        (
            words.STANDING_NAMES[item.standing],
            "yes" if item.in_totals else "no",
            str(item.number),
            money(item.amount) + words.unknown_amounts(item),
        )
        for item in found
    ]
    output.line()
    output.table(("how sure", "in total", "payments", "amount"), _aligned(rows, 2, 3))
    output.line()


def _figures(item: Sum) -> tuple[str, ...]:
    voids = str(item.reversals) if item.reversals else "-"
    payments, charged = (str(item.payments), money(item.charged)) if item.payments else ("-", "-")
    return payments, charged, voids, words.reversed_amount(item.reversed), money(item.total)


def _aligned(rows: Sequence[Sequence[str]], *places: int) -> list[list[str]]:
    """Make the cells of these columns numbers, which stand flush right."""
    return [[Number(cell) if place in places else cell for place, cell in enumerate(row)] for row in rows]


def _unsettled(output: Output, report: Report) -> None:
    if line := words.open_line(report):
        output.line()
        output.line(line, "bold yellow")
    for item in report.in_question:
        output.line(f"{item.facts.id}  {item.facts.terminal}  {amount(item.amount)}, {in_totals(item)}")
        output.line(words.question(item), indent=4)
    for item in report.differing:
        facts = item.facts
        output.line(f"{facts.id}  {facts.terminal}  {amount(item.amount)}, {in_totals(item)}")
        output.line(f"Authorized {amount(facts.authorized)}, asked for {amount(facts.requested)}.", indent=4)
    if len(report.currencies) > 1:
        output.line(f"The totals add up amounts in several currencies: {', '.join(report.currencies)}.", "bold red")
    if report.wrong_clocks:
        output.line()
        output.line(words.wrong_clocks(report), "yellow")
    show_what_to_do(
        output,
        (
            (code, words.advice(code, item), item.facts.id)
            for item in report.attention
            for code, _ in item.facts.attention
        ),
    )
    if report.elsewhere:
        output.line()
        output.line(words.elsewhere(report), "yellow")
