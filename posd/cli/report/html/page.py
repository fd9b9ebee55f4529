"""The report as one HTML page that needs nothing else: no script, no font, no request.

What needs a person stands first; then the totals, the charts, and each payment. On paper each part begins a page.
"""

from collections.abc import Sequence
from decimal import Decimal
from importlib.resources import files

from posd.cli.report import figures, sums
from posd.cli.report.exact import money
from posd.cli.report.html import charts
from posd.cli.report.html.alert import alert
from posd.cli.report.html.details import details
from posd.cli.report.html.markup import Safe, amount, cell, join, table, tag
from posd.cli.report.sections import Section
from posd.cli.report.sums import Report, Sum
from posd.cli.report.words import PART_NAMES, RULES, days, kind_name, number, result_name

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
        by_day = [item for _, item in figures.by_day(report) if item.payments or item.reversals]
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
    shown = figures.results(report)
    seen = [name for place, name in enumerate(figures.RESULTS) if any(row.counts[place] for row in shown)]
    sentences = "; ".join(
        f"{row.terminal}: "
        + ", ".join(
            f"{count} {result_name(name)}" for name, count in zip(figures.RESULTS, row.counts, strict=True) if count
        )
        for row in shown
    )
    title = "Results by terminal"
    chart = charts.results("results", title, shown, sentences)
    drawn.append(_figure(title, "all operations, voids and reservations too", chart, charts.legend(seen)))
    found = figures.times(report)
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
    hours = figures.by_hour(report)
    best = max(hours, key=lambda item: item.charged)
    what = "amount by the hour in which it was approved" if one else "amount by the hour of the day, all days together"
    words = f"{what}; most from {best.name[0]}:00 on, {money(best.charged)}"
    drawn = [_figure(title, words, charts.columns("hours", title, hours, words), charged)]
    if not one:
        title = "Approved by day"
        named = figures.by_day(report)
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
