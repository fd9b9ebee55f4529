"""The charts, as SVG that stands in the page: no script, and nothing to fetch.

Lengths are in units of the view box, 720 wide; numbers of money become floats here alone, for they are only drawn.
Each chart has a title and a description for whoever does not see it, and says in numbers what it shows.
"""

from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise

from posd.cli.report.facts import money
from posd.cli.report.markup import Safe, join, tag, text
from posd.cli.report.sums import LIMITS, RESULTS, Results, Sum, Times
from posd.cli.report.words import result_name

WIDTH = 720
LEFT, RIGHT, TOP = 62, 12, 18
#: Units that a character of the charts' text is wide, about.
CHARACTER = 6.6
#: Lines across a chart of columns, about.
LINES = 4

#: What a result is drawn with: a colour of the style and a pattern, so that they differ on paper too.
PATTERNS: Sequence[tuple[str, str]] = (
    ("declined", '<path d="M-2 2l4-4M0 8l8-8M6 10l4-4"/>'),
    ("rejected", '<path d="M0 0l8 8M0 8l8-8"/>'),
    ("canceled", '<circle cx="2" cy="2" r="1.1"/><circle cx="6" cy="6" r="1.1"/>'),
    ("not_started", '<path d="M0 4h8"/>'),
    ("open", '<path d="M2 0v8M6 0v8"/>'),
    ("reversed", '<path d="M-2 6l4 4M0 0l8 8M6-2l4 4"/>'),
)


def patterns() -> Safe:
    """Return the patterns, once for the page."""
    drawn = "".join(
        f'<pattern id="p-{name}" width="8" height="8" patternUnits="userSpaceOnUse">'
        f'<rect class="f-{name}" width="8" height="8"/><g class="ink">{shape}</g></pattern>'
        for name, shape in PATTERNS
    )
    return Safe(f'<svg width="0" height="0" class="defs" aria-hidden="true"><defs>{drawn}</defs></svg>')


def columns(name: str, title: str, sums: Sequence[Sum], described: str) -> Safe:
    """Draw amounts over time: what was charged goes up from the line of zero, what was reversed down."""
    height, bottom = 230, 26
    most = max([float(item.charged) for item in sums], default=0.0)
    least = min([float(item.reversed) for item in sums], default=0.0)
    ticks = scale(least, most)
    low, high = max(ticks[0], least * 1.2), ticks[-1]
    unit = (height - TOP - bottom) / (high - low)

    def y(value: float) -> float:
        return TOP + (high - value) * unit

    step = (WIDTH - LEFT - RIGHT) / max(len(sums), 1)
    parts = [_line(tick, y(tick)) for tick in ticks if tick >= low]
    every = max(1, round(max((len(item.name[0]) for item in sums), default=1) * CHARACTER / step + 0.5))
    for number, item in enumerate(sums):
        x = LEFT + number * step
        width = max(step * 0.72, 0.6)
        start = x + (step - width) / 2
        tip = f"{item.name[0]}: charged {money(item.charged)} ({item.payments})"
        if item.reversals:
            tip += f", reversed {money(item.reversed)} ({item.reversals})"
        bars = []
        if item.charged > 0:
            bars.append(_bar(start, y(float(item.charged)), width, float(item.charged) * unit, "f-approved"))
        if item.reversed < 0:
            bars.append(_bar(start, y(0), width, -float(item.reversed) * unit, "p-reversed"))
        if bars:
            parts.append(tag("g", tag("title", tip), *bars))
        if number % every == 0:
            parts.append(_text(item.name[0], x + step / 2, height - 8, "middle"))
    parts.append(_rule(y(0)))
    return _svg(name, title, described, height, parts)


def results(name: str, title: str, rows: Sequence[Results], described: str) -> Safe:
    """Draw how the payments of each terminal ended: a bar each, of as many as there were."""
    shown = [short(row.terminal) for row in rows]
    left = 12 + max(map(len, shown), default=0) * CHARACTER
    most = max((sum(row.counts) for row in rows), default=0) or 1
    right = 16 + len(str(most)) * CHARACTER + 6
    unit = (WIDTH - left - right) / most
    pitch, thick = 30, 20
    parts: list[str] = []
    for number, row in enumerate(rows):
        x, y = left, 6.0 + number * pitch
        parts.append(tag("g", tag("title", row.terminal), _text(shown[number], left - 8, y + 14, "end")))
        for result, amount in zip(RESULTS, row.counts, strict=True):
            width = amount * unit
            if not amount:
                continue
            drawn: list[str] = [
                tag("title", f"{row.terminal}: {amount} {result_name(result)}"),
                _bar(x, y, width, thick, "f-approved" if result == "approved" else f"p-{result}"),
            ]
            if width > len(str(amount)) * CHARACTER + 6:
                drawn += _label(str(amount), x + width / 2, y + 14, result)
            parts.append(tag("g", *drawn))
            x += width
        parts.append(_text(str(sum(row.counts)), x + 8, y + 14, "start", "strong"))
    return _svg(name, title, described, int(12 + len(rows) * pitch), parts)


def _label(value: str, x: float, y: float, result: str) -> list[str]:
    """Write into a bar: on the plain colour of approvals, else on a plate that keeps the pattern away."""
    if result == "approved":
        return [_text(value, x, y, "middle", "on")]
    width = len(value) * CHARACTER + 6
    return [_bar(x - width / 2, y - 11, width, 14, "plate"), _text(value, x, y, "middle")]


def times(name: str, title: str, found: Times, described: str) -> Safe:
    """Draw how many payments took how long, and where half and 95 % of them had ended."""
    height, bottom = 230, 40
    most = max((column.count for column in found.columns), default=0)
    ticks = [tick for tick in scale(0.0, float(most)) if tick == int(tick)]
    unit = (height - TOP - bottom) / (ticks[-1] or 1)
    base = height - bottom
    step = (WIDTH - LEFT - RIGHT) / len(found.columns)
    parts = [_line(tick, base - tick * unit) for tick in ticks]
    for number, column in enumerate(found.columns):
        x = LEFT + number * step
        bar = _bar(x + 2, base - column.count * unit, step - 4, column.count * unit, "f-approved")
        if column.count:
            parts.append(tag("g", tag("title", f"{column.label} s: {column.count}"), bar))
            parts.append(_text(str(column.count), x + step / 2, base - column.count * unit - 4, "middle"))
        parts.append(_text(column.label, x + step / 2, base + 15, "middle"))
    parts.append(_rule(base))
    parts.append(_text("seconds", WIDTH - RIGHT, height - 6, "end"))
    for word, value, anchor in (("median", found.median, "end"), ("95 %", found.p95, "start")):
        if value is not None:
            x = LEFT + place(value) * step
            parts.append(Safe(f'<path class="mark" d="M{x:.1f} {TOP - 6}V{base}"/>'))
            parts.append(_text(f"{word} {value:f} s", x + (-4 if anchor == "end" else 4), TOP - 6, anchor, "strong"))
    return _svg(name, title, described, height, parts)


def place(seconds: Decimal) -> float:
    """Return where a number of seconds is on the axis of the histogram, in columns."""
    edges = [0.0, *map(float, LIMITS)]
    value = float(seconds)
    for number, (low, high) in enumerate(pairwise(edges)):
        if value < high:
            return number + (value - low) / (high - low)
    return len(LIMITS) + 0.5


def scale(low: float, high: float) -> list[float]:
    """Return round numbers, zero among them, between which all from `low` (at most 0) to `high` lie."""
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
    """Return a name that fits: of a long one the end, which tells serials apart."""
    return name if len(name) <= most else f"\N{HORIZONTAL ELLIPSIS}{name[1 - most :]}"


def legend(shown: Sequence[str]) -> Safe:
    """Return what the patterns mean, of those results."""
    items = [
        tag("span", Safe(f'<svg width="14" height="14" aria-hidden="true">{_bar(0, 0, 14, 14, kind)}</svg> '), name)
        for kind, name in (
            ("f-approved" if result == "approved" else f"p-{result}", result_name(result)) for result in shown
        )
    ]
    return tag("p", *items, class_="legend")


def _svg(name: str, title: str, described: str, height: int, parts: Sequence[str]) -> Safe:
    return Safe(
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="{name}-t {name}-d" class="chart">'
        f'<title id="{name}-t">{text(title)}</title><desc id="{name}-d">{text(described)}</desc>{join(parts)}</svg>'
    )


def _bar(x: float, y: float, width: float, height: float, kind: str) -> Safe:
    fill = f' fill="url(#{kind})"' if kind.startswith("p-") else ""
    return Safe(
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{max(height, 0.6):.1f}" class="{kind}"{fill}/>'
    )


def _line(tick: float, y: float) -> Safe:
    label = f"{tick:g}" if abs(tick) < 1e6 else f"{tick:.3g}"
    return join(
        (
            Safe(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>'),
            _text(label.replace("-", "\N{MINUS SIGN}"), LEFT - 8, y + 4, "end"),
        )
    )


def _rule(y: float) -> Safe:
    return Safe(f'<path class="axis" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')


def _text(value: str, x: float, y: float, anchor: str, kind: str = "") -> Safe:
    name = f' class="{kind}"' if kind else ""
    return Safe(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{name}>{text(value)}</text>')
