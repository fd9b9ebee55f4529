"""The report as one HTML page with charts, without scripts, fonts or requests to other servers."""

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from posd.base.text import shown
from posd.base.times import iso
from posd.cli.app.output import counted, money
from posd.cli.explain.catalogue import chosen, language, named
from posd.cli.report import words
from posd.cli.report.view import RESULTS, SECTIONS, ReportView, Row
from posd.cli.report.words import result_name, said, unnamed

WIDTH = 720
LEFT, RIGHT, TOP = 62, 12, 18
#: Approximate width of a character in the charts, in units of the SVG.
CHARACTER = 6.6
#: Approximate number of horizontal lines in a column chart.
LINES = 4

#: Result -> pattern on its colour, so that results also differ in black and white. Approvals have none.
PATTERNS: Mapping[str, Markup] = {
    "declined": Markup('<path d="M-2 2l4-4M0 8l8-8M6 10l4-4"/>'),
    "rejected": Markup('<path d="M0 0l8 8M0 8l8-8"/>'),
    "canceled": Markup('<circle cx="2" cy="2" r="1.1"/><circle cx="6" cy="6" r="1.1"/>'),
    "not_started": Markup('<path d="M0 4h8"/>'),
    "open": Markup('<path d="M2 0v8M6 0v8"/>'),
    "reversed": Markup('<path d="M-2 6l4 4M0 0l8 8M6-2l4 4"/>'),
}


class Chart(NamedTuple):
    """Chart. `title`, `words`: caption. `described`: description for screen readers.

    `results`: results in the legend.
    """

    name: str
    title: str
    words: str
    described: str
    height: int
    shapes: Markup
    results: Sequence[str] = ()


#: Row that is drawn for a day or hour without counted payments.
EMPTY: Row = {"payments": 0, "charged": Decimal(0), "reversals": 0, "reversed": Decimal(0)}


def of(report: ReportView) -> Sequence[Chart]:
    """Return the charts of a report, in the order of the page."""
    charts = [chart for total in report["by_currency"] for chart in _courses(report, total)]
    if ended := report["results"]:
        charts.append(_results(ended))
    found = report["seconds"]
    if found["count"]:
        times_of = {"median": found["median"], "p95": found["p95"], "longest": found["longest"]}
        words = said("chart_times", operations=counted(found["count"], named("operation")), **times_of)
        charts.append(Chart("times", named("Time to outcome"), words, words, 230, times(found)))
    return charts


def _courses(report: ReportView, total: Row) -> Iterator[Chart]:
    """Yield charts of the counted amounts in a currency: by hour, and if there are several days, by day."""
    if report["shift"] is not None:
        return
    currency = total["currency"] or unnamed()
    results = ["approved", "reversed"] if total["reversals"] else ["approved"]
    several = len(report.days) > 1
    beside, suffix = (said("chart_in", currency=currency), f"-{currency}") if report.several else ("", "")
    own = {
        name: [row for row in report[name] if row["currency"] == total["currency"]] for name in ("by_day", "by_hour")
    }
    if several:
        found = {row["day"]: row for row in own["by_day"]}
        days = {day: found.get(f"{day}", EMPTY) for day in report.days}
        best, top = max(days.items(), key=lambda item: item[1]["charged"])
        words = said("chart_days", best=best, most=money(top["charged"]), beside=beside)
        shapes = columns([(f"{day:%d.%m.}", row) for day, row in days.items()])
        yield Chart(f"days{suffix}", f"{named('Approved by day')}{beside}", words, words, 230, shapes, results)
        found = {row["hour"]: row for row in own["by_hour"]}
        hours = [(f"{hour:02}", found.get(f"{hour:02}", EMPTY)) for hour in range(24)]
    else:
        found = {row["starts_at"]: row for row in own["by_hour"]}
        hours = [(f"{report.local(iso(hour)):%H}", found.get(iso(hour), EMPTY)) for hour in report.hours]
    label, top = max(hours, key=lambda item: item[1]["charged"])
    name = "chart_hours_of_days" if several else "chart_hours"
    words = said(name, hour=label, most=money(top["charged"]), beside=beside)
    title = f"{named('Approved by hour')}{beside}"
    yield Chart(f"hours{suffix}", title, words, words, 230, columns(hours), results)


def columns(items: Sequence[tuple[str, Row]]) -> Markup:
    """Draw amounts over time: charged amounts above the zero line, reversed amounts below it."""
    height, bottom = 230, 26
    most = max([float(row["charged"]) for _, row in items], default=0.0)
    least = min([float(row["reversed"]) for _, row in items], default=0.0)
    ticks = scale(least, most)
    low, high = max(ticks[0], least * 1.2), ticks[-1]
    unit = (height - TOP - bottom) / (high - low)

    def y(value: float) -> float:
        return TOP + (high - value) * unit

    step = (WIDTH - LEFT - RIGHT) / max(len(items), 1)
    shapes = [_line(tick, y(tick)) for tick in ticks if tick >= low]
    every = max(1, round(max((len(name) for name, _ in items), default=1) * CHARACTER / step + 0.5))
    for place, (name, row) in enumerate(items):
        charged, back = float(row["charged"]), float(row["reversed"])
        x = LEFT + place * step
        width = max(step * 0.72, 0.6)
        start = x + (step - width) / 2
        tip = f"{name}: {named('charged')} {money(row['charged'])} ({row['payments']})"
        if row["reversals"]:
            tip += f", {named('reversed')} {money(row['reversed'])} ({row['reversals']})"
        bars = []
        if charged > 0:
            bars.append(bar(start, y(charged), width, charged * unit, "approved"))
        if back < 0:
            bars.append(bar(start, y(0), width, -back * unit, "reversed"))
        if bars:
            shapes.append(_group(tip, *bars))
        if place % every == 0:
            shapes.append(_text(name, x + step / 2, height - 8, "middle"))
    return Markup().join([*shapes, _rule(y(0))])


def _results(rows: Sequence[Row]) -> Chart:
    """Draw how the payments of each terminal ended: a bar for each terminal, with a part for each result."""
    sentences = []
    left = 12 + max(len(short(row["terminal"])) for row in rows) * CHARACTER
    most = max(sum(row[result] for result in RESULTS) for row in rows)
    right = 16 + len(str(most)) * CHARACTER + 6
    unit = (WIDTH - left - right) / most
    pitch, thick = 30, 20
    shapes = []
    for place, row in enumerate(rows):
        terminal = row["terminal"]
        x, y = left, 6.0 + place * pitch
        shapes.append(_group(terminal, _text(short(terminal), left - 8, y + 14, "end")))
        counts = {result: row[result] for result in RESULTS if row[result]}
        for result, count in counts.items():
            width = count * unit
            drawn = [bar(x, y, width, thick, result)]
            if width > len(str(count)) * CHARACTER + 6:
                drawn.append(_label(str(count), x + width / 2, y + 14, result))
            shapes.append(_group(f"{terminal}: {count} {result_name(result)}", *drawn))
            x += width
        shapes.append(_text(str(sum(counts.values())), x + 8, y + 14, "start", "strong"))
        told = ", ".join(f"{count} {result_name(result)}" for result, count in counts.items())
        sentences.append(f"{terminal}: {told}")
    return Chart(
        name="results",
        title=named("Results by terminal"),
        words=named("all operations, voids and reservations too"),
        described="; ".join(sentences),
        height=12 + len(rows) * pitch,
        shapes=Markup().join(shapes),
        results=[result for result in RESULTS if any(row[result] for row in rows)],
    )


def _label(value: str, x: float, y: float, result: str) -> Markup:
    """Draw a text in a bar. Except on the plain colour of approvals, a rectangle behind the text covers the pattern."""
    if result == "approved":
        return _text(value, x, y, "middle", "on")
    width = len(value) * CHARACTER + 6
    return _rectangle(x - width / 2, y - 11, width, 14, "plate") + _text(value, x, y, "middle")


def times(found: Mapping[str, Any]) -> Markup:
    """Draw how many payments took how long, and the times within which 50 % and 95 % ended."""
    height, bottom, bounds = 230, 40, found["columns"]
    most = max(column["count"] for column in bounds)
    ticks = [tick for tick in scale(0.0, float(most)) if tick == int(tick)]
    unit = (height - TOP - bottom) / (ticks[-1] or 1)
    base = height - bottom
    step = (WIDTH - LEFT - RIGHT) / len(bounds)
    shapes = [_line(tick, base - tick * unit) for tick in ticks]
    for position, column in enumerate(bounds):
        x, tall = LEFT + position * step, column["count"] * unit
        label = f"{column['least']}+" if column["below"] is None else f"{column['least']}-{column['below']}"
        if column["count"]:
            tip = f"{label} s: {column['count']}"
            shapes.append(_group(tip, bar(x + 2, base - tall, step - 4, tall, "approved")))
            shapes.append(_text(str(column["count"]), x + step / 2, base - tall - 4, "middle"))
        shapes.append(_text(label, x + step / 2, base + 15, "middle"))
    shapes.append(_rule(base))
    shapes.append(_text(named("seconds"), WIDTH - RIGHT, height - 6, "end"))
    marks = ((named("median"), found["median"], "end", -4), ("95 %", found["p95"], "start", 4))
    for word, value, anchor, beside in marks:
        x = LEFT + place(value, bounds) * step
        shapes.append(Markup('<path class="mark" d="M{:.1f} {}V{}"/>').format(x, TOP - 6, base))
        shapes.append(_text(f"{word} {value:f} s", x + beside, TOP - 6, anchor, "strong"))
    return Markup().join(shapes)


def place(seconds: Decimal, columns: Sequence[Row]) -> float:
    """Return the position of a duration on the histogram's axis, in columns."""
    value = float(seconds)
    for position, column in enumerate(columns):
        low, high = column["least"], column["below"]
        if high is not None and value < high:
            return position + float((value - low) / (high - low))
    return len(columns) - 0.5


def scale(low: float, high: float) -> list[float]:
    """Return round numbers, including zero, that cover the range from `low` (at most 0) to `high`."""
    span = (high - low) or 1.0
    rough = span / LINES
    power = 10.0 ** (len(str(int(rough))) - 1) if rough >= 1 else 0.01
    while power * 10 <= rough:
        power *= 10
    step = next((power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough), power * 10)
    first = -int(-low / step + 0.999999) if low < 0 else 0
    last = max(int(high / step + 0.999999), first + 1)
    return [round(number * step, 6) for number in range(first, last + 1)]


def short(name: str, most: int = 22) -> str:
    """Return a name of at most `most` characters.

    A long name loses its beginning, because serials differ at the end.
    """
    return name if len(name) <= most else f"\N{HORIZONTAL ELLIPSIS}{name[1 - most :]}"


def bar(x: float, y: float, width: float, height: float, result: str) -> Markup:
    """Draw a bar in the colour and the pattern of a result."""
    return _rectangle(x, y, width, height, "f-approved" if result == "approved" else f"p-{result}")


def _rectangle(x: float, y: float, width: float, height: float, kind: str) -> Markup:
    fill = Markup(' fill="url(#{})"').format(kind) if kind.startswith("p-") else ""
    shape = Markup('<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" class="{}"{}/>')
    return shape.format(x, y, width, max(height, 0.6), kind, fill)


def _group(tip: str, *shapes: Markup) -> Markup:
    return Markup("<g><title>{}</title>{}</g>").format(tip, Markup().join(shapes))


def _line(tick: float, y: float) -> Markup:
    label = f"{tick:g}" if abs(tick) < 1e6 else f"{tick:.3g}"
    grid = Markup('<path class="grid" d="M{} {:.1f}H{}"/>').format(LEFT, y, WIDTH - RIGHT)
    return grid + _text(label.replace("-", "\N{MINUS SIGN}"), LEFT - 8, y + 4, "end")


def _rule(y: float) -> Markup:
    return Markup('<path class="axis" d="M{} {:.1f}H{}"/>').format(LEFT, y, WIDTH - RIGHT)


def _text(value: str, x: float, y: float, anchor: str, kind: str = "") -> Markup:
    name = Markup(' class="{}"').format(kind) if kind else ""
    return Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}"{}>{}</text>').format(x, y, anchor, name, value)


# The page around the charts.

#: Maximum number of payments in question that are listed at the top of the page.
MOST_IN_QUESTION = 40
#: Maximum number of payments that are listed under one attention.
MOST_NAMED = 20


def _written(value: object) -> object:
    """Return a value of the template. A text is escaped to one line. Markup already consists of such texts."""
    return shown(value) if isinstance(value, str) and not isinstance(value, Markup) else value


_TEMPLATES = Environment(
    autoescape=True,
    finalize=_written,
    loader=FileSystemLoader(Path(__file__).parent),
    lstrip_blocks=True,
    trim_blocks=True,
    undefined=StrictUndefined,
)


def write(report: ReportView) -> str:
    """Return the HTML of the page."""
    page = _TEMPLATES.get_template("page.html.j2").render(
        report=report,
        attentions=_attentions(report),
        charts=of(report),
        bar=bar,
        patterns=PATTERNS,
        amount=amount,
        clock=clock,
        counted=counted,
        captions=chosen("report")["section"],
        sections=SECTIONS,
        most_in_question=MOST_IN_QUESTION,
        most_named=MOST_NAMED,
        words=words,
        word=named,
        language=language,
    )
    return "\n".join(map(shown, page.split("\n"))) + "\n"


def amount(value: Decimal | int | None) -> Markup:
    """Return an amount for the page. The gaps for thousands are only visual, so that a copy is a plain number."""
    if value is None:
        return Markup("&ndash;")
    number = Decimal(value)
    whole, point, places = money(number.copy_abs()).partition(".")
    *groups, last = f"{int(whole):,}".split(",")
    sign = "\N{MINUS SIGN}" if number.is_signed() else ""
    spaced = Markup().join(Markup('<i class="k">{}</i>').format(group) for group in groups)
    return Markup("{}{}{}{}{}").format(sign, spaced, last, point, places)


def clock(report: ReportView, row: Row, *, seconds: bool = False) -> str:
    """Return the time at which a payment counts. The date is omitted if it is the report's only day."""
    local = report.local(row["at"])
    return local.strftime(("" if report.only_day(local.date()) else "%Y-%m-%d ") + ("%H:%M:%S" if seconds else "%H:%M"))


def _attentions(report: ReportView) -> Mapping[tuple[str, str], Sequence[tuple[Row, str]]]:
    """Return (code, advice) of attentions -> payments, each with the detail of its attention."""
    found: dict[tuple[str, str], list[tuple[Row, str]]] = {}
    for row in report.marked("attention"):
        for item in row["attention"]:
            advice = _ended(words.advice(item["code"], row).words.rstrip())
            detail = f": {item['detail']}" if item["detail"] else ""
            found.setdefault((item["code"], advice), []).append((row, detail))
    return found


def _ended(advice: str) -> str:
    """Replace the final colon of an advice by a full stop, because the page shows no commands."""
    for tail in ("; then:", "; luego:", ":"):
        if advice.endswith(tail):
            return advice.removesuffix(tail) + "."
    return advice
