"""Text that becomes HTML: whatever comes from outside is escaped, once, here."""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from importlib.resources import files

from posd.cli.report import charts, sums
from posd.cli.report.facts import money
from posd.cli.report.markup import Safe, amount, cell, join, table, tag
from posd.cli.report.sums import Payment, Report, Section, Sum, summed
from posd.cli.report.words import (
    PART_NAMES,
    RULES,
    advice,
    days,
    in_totals,
    kind_name,
    notes,
    number,
    open_line,
    question,
    result_name,
    wrong_clocks,
)

# Each payment, in tables by what it counts as.

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


# What needs a person, at the head of the page: nothing is shown where nothing does.

#: Payments in question that are named at the head of the page.
QUESTIONS = 40
#: Payments that are named under one attention.
NAMED = 20


def alert(report: Report) -> Safe:
    """Return what needs a person."""
    content = [*_questions(report), *_differing(report), *_unsure(report), *_attention(report), *_others(report)]
    if not content:
        return tag("p", "Nothing needs attention.", class_="well")
    return tag("section", tag("h2", "Needs attention"), *content, class_="alert")


def _questions(report: Report) -> list[Safe]:
    items = report.in_question
    if not items:
        return []
    rows = [
        (
            clock(report, item),
            cell(item.facts.terminal),
            kind_name(item.kind),
            amount(item.amount),
            in_totals(item),
            question(item),
            tag("span", item.facts.id, class_="id"),
        )
        for item in items[:QUESTIONS]
    ]
    columns = ("time", "terminal", "type", "amount", "counted", "what is not settled", "transaction")
    lead = [tag("p", line, class_="lead")] if (line := open_line(report)) else []
    found = table("In question: did money move?", columns, rows, numbers=("amount",), class_="rows")
    more = len(items) - QUESTIONS
    rest = [tag("p", f"And {more} more, marked below as in question.")] if more > 0 else []
    return [*lead, tag("div", found, class_="scroll"), *rest]


def _differing(report: Report) -> list[Safe]:
    if not report.differing:
        return []
    rows = [
        (*_named(report, item), amount(item.facts.requested), amount(item.facts.authorized), in_totals(item))
        for item in report.differing
    ]
    columns = ("time", "terminal", "type", "ticket", "asked for", "authorized", "authorized amount is")
    return [table("Authorized with another amount", columns, rows, numbers=("asked for", "authorized"), class_="rows")]


def _unsure(report: Report) -> list[Safe]:
    items = report.unsure
    if not items:
        return []
    rows = [(*_named(report, item), amount(item.amount), in_totals(item), "; ".join(notes(item))) for item in items]
    columns = ("time", "terminal", "type", "ticket", "amount", "counted", "why it is named here")
    return [table("By a person's word, or corrected since", columns, rows, numbers=("amount",), class_="rows")]


def _named(report: Report, item: Payment) -> tuple[str, Safe, str, Safe]:
    facts = item.facts
    return clock(report, item), cell(facts.terminal), kind_name(item.kind), cell(facts.ticket or facts.id)


def _attention(report: Report) -> list[Safe]:
    concerned: dict[tuple[str, str], list[Payment]] = {}
    for item in report.attention:
        for code, _ in item.facts.attention:
            words = advice(code, item).words.rstrip()
            concerned.setdefault((code, _ended(words)), []).append(item)
    found = []
    for (code, words), items in concerned.items():
        found += [tag("h3", f"{code.replace('_', ' ')} ({len(items)})"), tag("p", words), _list(items, code)]
    return found


def _ended(words: str) -> str:
    """End advice that leads on to commands as a sentence: a page has no prompt to type them at."""
    for tail in ("; then:", ":"):
        if words.endswith(tail):
            return words.removesuffix(tail) + "."
    return words


def _list(items: Sequence[Payment], code: str) -> Safe:
    lines = [
        tag(
            "li",
            tag("span", item.facts.id, class_="id"),
            f", {item.facts.terminal}, ",
            amount(item.amount),
            "".join(f": {detail}" for name, detail in item.facts.attention if name == code and detail),
        )
        for item in items[:NAMED]
    ]
    if len(items) > NAMED:
        lines.append(tag("li", f"and {len(items) - NAMED} more"))
    return tag("ul", *lines)


def _others(report: Report) -> list[Safe]:
    found = []
    if len(report.currencies) > 1:
        currencies = ", ".join(report.currencies)
        found.append(f"The totals add up amounts in several currencies ({currencies}): use those by currency.")
    if report.wrong_clocks:
        found.append(wrong_clocks(report))
    if report.elsewhere:
        found.append(f"Payments of other days that need attention too: {report.elsewhere} (posd list --attention).")
    return [tag("p", line) for line in found]


# The report as one HTML page that needs nothing else: no script, no font, no request.
#
# What needs a person stands first; then the totals, the charts, and each payment. On paper each part begins a page.

#: Whatever comes into the page by mistake is not fetched and not run.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_SUM_COLUMNS = ("payments", "charged", "voids", "reversed", "total")


def write(report: Report, *, metadata: str | None = None) -> str:
    """Return the page; `metadata` names the member of the metadata that is shown."""
    title = f"Card payments, {days(report.span)}"
    style = files(__package__).joinpath("style.css").read_text(encoding="utf-8")
    head = join(
        (
            Safe('<meta charset="utf-8">'),
            Safe(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'),
            Safe('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            tag("title", title),
            Safe(f"<style>\n{style}</style>"),
        ),
        "\n",
    )
    body = (
        charts.patterns(),
        _header(report),
        alert(report),
        _tiles(report),
        _totals(report),
        _charts(report),
        details(report, metadata),
        _footer(),
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n{join(body, chr(10))}\n</body>\n</html>\n'
    )


def _header(report: Report) -> Safe:
    span = report.span
    terminals = report.terminal or "all terminals"
    made = f"made {span.local(report.made_at):%Y-%m-%d %H:%M}"
    running = " \N{MIDDLE DOT} not over yet" if report.made_at < span.end else ""
    return tag(
        "header",
        tag("h1", tag("small", "Card payments"), days(span)),
        tag("p", terminals, Safe("<br>"), f"{span.zone.key} \N{MIDDLE DOT} {made}{running}"),
    )


def _tiles(report: Report) -> Safe:
    total = report.total
    count = {section: len(report.sections[section]) for section in Section}
    questions = len(report.in_question)
    tiles = [
        _tile(f"total {currency(report)}".strip(), amount(total.total), "tile main"),
        _tile(f"charged, {number(total.payments, 'payment')}", amount(total.charged)),
        _tile(f"reversed, {number(total.reversals, 'void')}", amount(total.reversed)),
        _tile("not charged", Safe(str(count[Section.NOT_CHARGED]))),
        _tile("in question", Safe(str(questions))),
    ]
    return tag("div", *tiles, class_="tiles")


def _tile(words: str, value: Safe, kind: str = "tile") -> Safe:
    return tag("div", tag("b", value), tag("span", words), class_=kind)


def currency(report: Report) -> str:
    """Return the currency where all that is counted has the same one."""
    return report.currencies[0] if len(report.currencies) == 1 else ""


def _totals(report: Report) -> Safe:
    if not report.counted:
        nothing = tag("p", "Nothing was charged.")
        return tag("section", tag("h2", "Totals"), nothing, _reserved(report) if report.reserved else Safe(""))
    tables = [
        _sums(report, "By terminal", "terminal", report.by(sums.terminal_of), wide=True),
        _kinds(report),
        _sums(report, "By card", "card", report.by(sums.brand_of)),
        _parts(report),
    ]
    if report.reserved:
        tables.append(_reserved(report))
    if len(report.currencies) > 1:
        tables.append(_sums(report, "By currency", "currency", report.by(sums.currency_of), wide=True))
    if len(report.span.days) > 1:
        by_day = [item for _, item in sums.by_day(report) if item.payments or item.reversals]
        tables.append(_sums(report, "By day", "day", by_day, wide=True))
    return tag("section", tag("h2", "Totals"), tag("div", *tables, class_="pair"), class_="totals")


def _sums(report: Report, caption: str, column: str, rows: Sequence[Sum], *, wide: bool = False) -> Safe:
    return tag(
        "div",
        table(
            caption,
            (column, *_SUM_COLUMNS),
            [(cell(item.name[0]), *_figures(item)) for item in rows],
            numbers=_SUM_COLUMNS,
            foot=("total", *_figures(report.total)) if len(rows) > 1 else (),
        ),
        class_="wide" if wide else "half",
    )


def _figures(item: Sum) -> tuple[Safe, ...]:
    none = Safe("&ndash;")
    return (
        Safe(str(item.payments)),
        amount(item.charged),
        Safe(str(item.reversals)) if item.reversals else none,
        amount(item.reversed) if item.reversals else none,
        amount(item.total),
    )


def _kinds(report: Report) -> Safe:
    several = len({item.facts.terminal for item in report.counted}) > 1
    rows: list[tuple[str, ...]] = []
    keys = (sums.terminal_of, sums.kind_of) if several else (sums.kind_of,)
    for item in report.by(*keys):
        *terminal, kind = item.name
        rows.append((*map(cell, terminal), kind_name(kind), str(item.payments + item.reversals), amount(item.total)))
    total = report.total
    names = ("terminal", "type", "number", "total") if several else ("type", "number", "total")
    last = ("total", *("",) * several, str(total.payments + total.reversals), amount(total.total))
    caption = "By terminal and type" if several else "By type"
    return tag("div", table(caption, names, rows, numbers=("number", "total"), foot=last), class_="half")


def _parts(report: Report) -> Safe:
    rows = [(PART_NAMES.get(part.name, part.name), amount(part.total)) for part in report.parts]
    last = ("total", amount(report.total.total))
    return tag("div", table("By part, as the till sent it", ("part", "total"), rows, numbers=("total",), foot=last))


def _reserved(report: Report) -> Safe:
    rows = [
        (kind_name(item.name[0]), cell(item.name[1]), str(item.payments + item.reversals), amount(item.total))
        for item in report.reserved
    ]
    columns = ("type", "by now", "number", "amount")
    return tag("div", table("Reserved, in no total", columns, rows, numbers=("number", "amount")))


def _charts(report: Report) -> Safe:
    if not report.payments:
        return Safe("")
    drawn: list[Safe] = []
    if report.counted:
        drawn += _over_time(report)
    shown = sums.results(report)
    seen = [name for place, name in enumerate(sums.RESULTS) if any(row.counts[place] for row in shown)]
    sentences = "; ".join(
        f"{row.terminal}: "
        + ", ".join(
            f"{count} {result_name(name)}" for name, count in zip(sums.RESULTS, row.counts, strict=True) if count
        )
        for row in shown
    )
    title = "Results by terminal"
    chart = charts.results("results", title, shown, sentences)
    drawn.append(_figure(title, "all operations, voids and reservations too", chart, charts.legend(seen)))
    found = sums.times(report)
    if found.count:
        title = "Time to outcome"
        words = (
            f"from the till's request to the terminal's final word, {number(found.count, 'operation')}: median "
            f"{found.median:f} s, 95 % within {found.p95:f} s, longest {found.longest:f} s"
        )
        drawn.append(_figure(title, words, charts.times("times", title, found, words)))
    return tag("section", tag("h2", "Course"), *drawn, class_="page")


def _over_time(report: Report) -> list[Safe]:
    charged = charts.legend(["approved", "reversed"] if report.total.reversals else ["approved"])
    one = len(report.span.days) == 1
    title = "Approved by hour"
    hours = sums.by_hour(report)
    best = max(hours, key=lambda item: item.charged)
    what = "amount by the hour in which it was approved" if one else "amount by the hour of the day, all days together"
    words = f"{what}; most from {best.name[0]}:00 on, {money(best.charged)}"
    drawn = [_figure(title, words, charts.columns("hours", title, hours, words), charged)]
    if not one:
        title = "Approved by day"
        named = sums.by_day(report)
        best_day, top = max(named, key=lambda item: item[1].charged)
        words = f"amount by the day on which it was approved; most on {best_day}, {money(top.charged)}"
        short = [Sum((day.strftime("%d.%m."),), *_numbers(item)) for day, item in named]
        drawn.insert(0, _figure(title, words, charts.columns("days", title, short, words), charged))
    return drawn


def _numbers(item: Sum) -> tuple[int, Decimal, int, Decimal]:
    return item.payments, item.charged, item.reversals, item.reversed


def _figure(title: str, words: str, *content: Safe) -> Safe:
    return tag("figure", tag("figcaption", tag("b", title), Safe("<br>"), words), *content)


def _footer() -> Safe:
    return tag("footer", *(tag("p", rule) for rule in RULES))
