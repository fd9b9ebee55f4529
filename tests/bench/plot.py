"""Plots as SVG: lines over the same sizes in panels side by side, or bars below each other. They need nothing else."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import floor, log10

#: Of one panel with its words, and of the room in it for the line, in pixels.
_WIDTH, _HEIGHT = 420, 290
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 30, 66, 58
_COLUMNS = 2
_HEAD, _FOOT = 62, 72
#: Height of one bar with its words.
_BAR = 44

_STYLE = """
text { font-family: system-ui, "Segoe UI", "DejaVu Sans", sans-serif; font-size: 12px; fill: #4a4f57 }
.title { font-size: 18px; font-weight: 600; fill: #1c1f24 }
.panel { font-size: 14px; font-weight: 600; fill: #1c1f24 }
.value { font-weight: 600; fill: #12426f; stroke: #ffffff; stroke-width: 4px; paint-order: stroke }
.grid { stroke: #e3e6ea }
.bound { stroke: #a84300; stroke-width: 1.5; stroke-dasharray: 6 4 }
.bounds { fill: #a84300 }
.line { stroke: #1b62a5; stroke-width: 2.5; fill: none }
.dot { fill: #1b62a5; stroke: #ffffff; stroke-width: 1.5 }
.bar { fill: #7fb0d8 }
.poor { fill: #e0a37f }
.range { stroke: #1c1f24; stroke-width: 1.5 }
"""


@dataclass(frozen=True)
class Panel:
    """One figure: its values at the sizes, each in words too, and the bound that holds at the last size.

    `upper`: the line is to stay below the bound; else above.
    """

    name: str
    unit: str
    values: Sequence[float]
    words: Sequence[str]
    bound: float
    bound_words: str
    upper: bool


def draw(title: str, subtitle: str, foot: Sequence[str], sizes: Sequence[str], panels: Sequence[Panel]) -> str:
    """Return the SVG."""
    rows = -(-len(panels) // _COLUMNS)
    width, height = _COLUMNS * _WIDTH, _HEAD + rows * _HEIGHT + _FOOT
    told = " ".join(
        f"{panel.name}: {', '.join(f'{word} at {size}' for size, word in zip(sizes, panel.words, strict=True))}; "
        f"bound: {panel.bound_words}."
        for panel in panels
    )
    parts = list(_head(title, subtitle, told, width, height))
    for place, panel in enumerate(panels):
        left, top = place % _COLUMNS * _WIDTH, _HEAD + place // _COLUMNS * _HEIGHT
        parts += [f'<g transform="translate({left} {top})">', *_panel(panel, sizes), "</g>"]
    parts += [_text(24, height - _FOOT + 18 * line, words) for line, words in enumerate(foot, 1)]
    return "\n".join([*parts, "</svg>"]) + "\n"


@dataclass(frozen=True)
class Bar:
    """One figure: its median, least and most; in words; whether it is as it should be; and a bound of its own."""

    name: str
    middle: float
    least: float
    most: float
    words: str
    good: bool
    bound: float | None = None


def bars(title: str, subtitle: str, foot: str, figures: Sequence[Bar], bound: float | None = None) -> str:
    """Return the SVG of figures of one unit, with the bound that is that of all of them, if there is one."""
    width, height = 2 * _WIDTH, _HEAD + len(figures) * _BAR + _FOOT
    told = " ".join(f"{bar.name}: {bar.words}, {bar.least:.3g} to {bar.most:.3g}." for bar in figures)
    parts = list(_head(title, subtitle, told, width, height))
    left, right = 24, width - _RIGHT
    step = _step(max(bar.most for bar in figures) if bound is None else max(bound, *(bar.most for bar in figures)))
    top = max([0.0, *(bar.most for bar in figures), *(bar.bound or 0.0 for bar in figures), bound or 0.0])
    steps = floor(top / step) + 1

    def x(value: float) -> float:
        return left + max(value, 0.0) / (steps * step) * (right - left)

    bottom = height - _FOOT
    for number in range(steps + 1):
        at = x(number * step)
        parts.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{_HEAD}" y2="{bottom}"/>')
        parts.append(_text(at, bottom + 18, f"{number * step:,.6g}", anchor="middle"))
    for place, bar in enumerate(figures):
        parts += _bar(bar, x, _HEAD + place * _BAR)
    if bound is not None:
        at = x(bound)
        parts.append(f'<line class="bound" x1="{at:.1f}" x2="{at:.1f}" y1="{_HEAD}" y2="{bottom}"/>')
    parts.append(_text(24, height - 20, foot))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _bar(bar: Bar, x: Callable[[float], float], top: float) -> Iterator[str]:
    """Yield one: its words above, the bar to the median, a line from the least to the most."""
    yield _text(24, top + 16, f"{bar.name}: {bar.words}")
    kind = "bar" if bar.good else "poor"
    yield f'<rect class="{kind}" x="24" y="{top + 22:.1f}" width="{x(bar.middle) - 24:.1f}" height="12"/>'
    least, most, middle = x(bar.least), x(bar.most), top + 28
    yield f'<line class="range" x1="{least:.1f}" x2="{most:.1f}" y1="{middle:.1f}" y2="{middle:.1f}"/>'
    for end in (least, most):
        yield f'<line class="range" x1="{end:.1f}" x2="{end:.1f}" y1="{middle - 4:.1f}" y2="{middle + 4:.1f}"/>'
    if bar.bound is not None:
        at = x(bar.bound)
        yield f'<line class="bound" x1="{at:.1f}" x2="{at:.1f}" y1="{top + 18:.1f}" y2="{top + 38:.1f}"/>'


def _head(title: str, subtitle: str, told: str, width: float, height: float) -> Iterator[str]:
    shown = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" aria-labelledby="title told"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {shown}>'
    yield f'<title id="title">{escape(title)}</title>'
    yield f'<desc id="told">{escape(told)}</desc>'
    yield f"<style>{_STYLE}</style>"
    yield f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
    yield _text(24, 32, title, "title")
    yield _text(24, 52, subtitle)


def _panel(panel: Panel, sizes: Sequence[str]) -> Iterator[str]:
    step = _step(max(*panel.values, panel.bound))
    top = step * (floor(max(*panel.values, panel.bound) / step) + 1)
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    inset = 34

    def x(place: int) -> float:
        return _LEFT + inset + place * (right - _LEFT - 2 * inset) / (len(sizes) - 1)

    def y(value: float) -> float:
        return bottom - value / top * (bottom - _TOP)

    yield _text(24, 30, panel.name, "panel")
    yield _text(24, 48, panel.unit)
    yield _text(right, 48, f"- - {panel.bound_words}", "bounds", "end")
    for number in range(round(top / step) + 1):
        at = y(number * step)
        yield f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}"/>'
        yield _text(_LEFT - 8, at + 4, f"{number * step:,.6g}", anchor="end")
    for place, size in enumerate(sizes):
        yield _text(x(place), bottom + 20, size, anchor="middle")
    yield _text((_LEFT + right) / 2, bottom + 38, "stored payments", anchor="middle")
    at = y(panel.bound)
    yield f'<line class="bound" x1="{_LEFT}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}"/>'
    points = [(x(place), y(value)) for place, value in enumerate(panel.values)]
    yield f'<polyline class="line" points="{" ".join(f"{left:.1f},{up:.1f}" for left, up in points)}"/>'
    for (left, up), word in zip(points, panel.words, strict=True):
        yield f'<circle class="dot" cx="{left:.1f}" cy="{up:.1f}" r="5"/>'
        yield _text(left, up + 22 if panel.upper else up - 12, word, "value", "middle")


def _step(largest: float) -> float:
    """Return a round step of the scale: about four of them reach the largest value."""
    rough = largest / 4
    power: float = 10 ** floor(log10(rough))
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough)


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
