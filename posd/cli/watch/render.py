"""The frame: what is known, made into exactly as many lines as the screen has. Pure: the same state, the same lines."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from posd.cli.app import times
from posd.cli.app.cells import width
from posd.cli.operate.status import STYLES, check_text
from posd.cli.watch.control import why_not_abortable
from posd.cli.watch.rows import Layout, below, heading, in_full, page_lines
from posd.cli.watch.screen import BINDINGS, Glyphs, Line, Span, at_most, clip, clip_line, lines_of, text_of, wrap
from posd.cli.watch.state import Kind, Page, Row, Section, State, Summary, Ui, marked

#: The least lines of a screen that has room for ...
TITLES_FROM = 9  #: the names of the lists,
RATES_FROM = 12  #: the rates,
BELOW_FROM = 16  #: what to do about the selected row.

#: Lines of the screen -> the most lines of what to do; the first that fits.
BELOW_LINES = ((30, 8), (24, 4), (BELOW_FROM, 3))

#: Cells of a line that is not cut.
UNBOUNDED = 1_000_000

#: What stands in a list that is empty.
NOTHING: Mapping[Section, str] = {
    Section.TERMINALS: "none: name them in the configuration ([[terminals]])",
    Section.OPEN: "no payment is open",
    Section.ATTENTION: "nothing needs a person",
}


class View(NamedTuple):
    """What a frame is made of."""

    state: State
    ui: Ui
    now: datetime
    glyphs: Glyphs


def frame(view: View, columns: int, height: int) -> list[Line]:
    """Return the lines of the screen: `height` at most, each at most `columns` cells."""
    top = [_header(view, columns), *_notice(view, columns, height)]
    bottom = _bottom(view, columns)
    if view.ui.page is None:
        lines = _lists(view, columns, height, top, bottom)
    else:
        lines = _page(view, view.ui.page, columns, height, top, bottom)
    # On the smallest screens the first and the last line are worth most.
    if len(lines) > height:
        lines = [*lines[: height - 1], lines[-1]] if height > 1 else lines[:1]
    return [clip_line(line, columns, view.glyphs) for line in lines]


def once(view: View, columns: int) -> list[Line]:
    """Return everything in lines, as many as it takes: what `posd watch --once` writes."""
    rows = view.state.rows(view.now)
    lines = [_header(view, columns), *_notice(view, columns, UNBOUNDED)]
    for section in Section:
        shown = [row for row in rows if row.section is section]
        lines.append(_title(view, section, shown, (0, len(shown)), columns))
        layout = Layout(section, shown, columns, view.now, view.glyphs)
        for row in shown:
            lines.append(layout.line(row, marked=False))
            if section is Section.ATTENTION:
                lines.append(((f"         {heading(row)}", "dim"),))
                lines += [(("         ", ""), *line) for line in in_full(row, columns - 9)]
        if not shown:
            lines += lines_of([f"  {NOTHING[section]}"], "dim")
    lines.append(_rates(view.state.rates.summary(view.now)))
    return [clip_line(line, UNBOUNDED, view.glyphs) for line in lines]  # nothing cuts a command


def share(room: int, needs: Sequence[int]) -> list[int]:
    """Divide lines among lists: each gets what it needs, or as much as the others that need more."""
    given = [0] * len(needs)
    while room and given != list(needs):
        for place, need in enumerate(needs):
            if room and given[place] < need:
                given[place] += 1
                room -= 1
    return given


def _lists(view: View, columns: int, height: int, top: list[Line], bottom: list[Line]) -> list[Line]:
    rows = view.state.rows(view.now)
    chosen = marked(view.ui, rows)
    titles = height >= TITLES_FROM
    told: list[Line] = []
    if chosen is not None and height >= BELOW_FROM:
        most = next(lines for least, lines in BELOW_LINES if height >= least)
        told = [_rule(heading(chosen), columns), *below(chosen, columns, most)]
    rates = [_rates(view.state.rates.summary(view.now))] if height >= RATES_FROM else []
    sections = {section: [row for row in rows if row.section is section] for section in Section}
    room = max(0, height - len(top) - len(told) - len(rates) - len(bottom) - 3 * titles)
    # The most pressing first, should there be fewer lines than lists.
    order = (Section.ATTENTION, Section.OPEN, Section.TERMINALS)
    given = dict(zip(order, share(room, [max(len(sections[section]), int(titles)) for section in order]), strict=True))
    lines = list(top)
    for section, shown in sections.items():
        lines += _list(view, section, shown, given[section], chosen, columns, titled=titles)
    gap = height - len(lines) - len(told) - len(rates) - len(bottom)
    return [*lines, *[()] * max(0, gap), *told, *rates, *bottom]


def _list(
    view: View, section: Section, rows: Sequence[Row], room: int, chosen: Row | None, columns: int, *, titled: bool
) -> list[Line]:
    key = None if chosen is None else chosen.key
    place = next((place for place, row in enumerate(rows) if row.key == key), 0)
    first = min(max(0, place - room // 2), max(0, len(rows) - room))
    shown = rows[first : first + room]
    layout = Layout(section, rows, columns, view.now, view.glyphs)
    lines = [layout.line(row, marked=row.key == key) for row in shown]
    if not rows and room:
        lines = lines_of([f"  {NOTHING[section]}"], "dim")
    title = _title(view, section, rows, (first, len(rows) - first - len(shown)), columns)
    return [title, *lines] if titled else lines


def _title(view: View, section: Section, rows: Sequence[Row], hidden: tuple[int, int], columns: int) -> Line:
    shop = view.state.shop
    left: list[Span] = [(section.value, "bold")]
    match section:
        case Section.TERMINALS:
            silent = sum(row.document["reachable"] is False for row in rows)
            left.append((f" {len(rows)}", ""))
            left += [(f", {silent} without answer", "bold red")] * bool(silent)
        case Section.OPEN:
            payments = len(shop.open)
            prints = len(shop.open_prints)
            left.append((f" {payments}{'+' if 'open' in shop.cut else ''}", ""))
            left += [(f", and {prints} print job{'s' if prints > 1 else ''}", "")] * bool(prints)
        case Section.ATTENTION:
            more = "+" if shop.cut & {"attention", "print_attention"} else ""
            left.append((f" {len(rows)}{more}", "bold yellow" if rows else ""))
    above, under = hidden
    if view.ui.page is None and hidden != (0, len(rows)):
        words = [f"{above} more above"] * bool(above) + [f"{under} more below"] * bool(under)
        right = f" {', '.join(words)}" if words else ""
    else:
        right = ""
    line = columns - width(text_of(left)) - 1 - width(right)
    if line < 0 and right:
        right = f"{f' ↑{above}' * bool(above)}{f' ↓{under}' * bool(under)}"
        line = columns - width(text_of(left)) - 1 - width(right)
    return (*left, (" " + "─" * max(0, line), "dim"), (right, "yellow"))


def _rule(text: str, columns: int) -> Line:
    text = clip(text, max(0, columns - 4))
    return (("── ", "dim"), (text, "bold"), (" " + "─" * max(0, columns - 4 - width(text)), "dim"))


def _header(view: View, columns: int) -> Line:
    state = view.state
    health = str(state.shop.health.get("status", ""))
    left: list[Span] = [("posd", "bold"), (f" {state.shop.version}  ", "")]
    left.append(("away", "bold red") if state.away else (health, f"bold {STYLES.get(health, 'red')}"))
    right = times.clock(view.now) if columns < 50 else times.moment(view.now, date=True)
    gap = columns - width(text_of(left)) - width(right)
    return (*left, (" " * max(1, gap), ""), (right, "")) if gap > 0 else tuple(left)


def _notice(view: View, columns: int, height: int) -> list[Line]:
    """Return what is wrong with posd itself, in three lines at most, in fewer on a small screen."""
    room = 3 if height >= BELOW_FROM else 2
    away = view.state.away
    if away is not None:
        left = max(0, round((away.again_at - view.now).total_seconds()))
        text = (
            f"posd cannot be reached since {times.moment(away.since)}; trying again in {left} s. Payments go "
            f"on at the terminals; what is shown below is from then. Why: {away.reason}"
        )
        return lines_of(at_most(wrap(text, columns), room, columns), "red")
    checks = view.state.shop.health.get("checks") or {}
    bad = {name: check for name, check in checks.items() if check.get("status") != "ok"}
    style = "red" if any(check.get("status") == "failing" for check in bad.values()) else "yellow"
    told = [wrap(f"{name.replace('_', ' ')} {check_text(check)}", columns) for name, check in bad.items()]
    most = max(1, 2 // len(told)) if told else 0
    return lines_of([line for lines in told for line in at_most(lines, most, columns)][:room], style)


def _rates(summary: Summary) -> Line:
    if not summary.ended or summary.median is None or summary.late is None:
        return (("last hour ", "dim"), ("no payment ended", "dim"))
    percent = 100 * summary.approved // summary.ended
    return (
        ("last hour ", "dim"),
        (f"{summary.ended} ended", ""),
        (" · ", "dim"),
        (f"{percent}% approved", ""),
        (" · half in ", "dim"),
        (_seconds(summary.median), ""),
        (", 95% in ", "dim"),
        (_seconds(summary.late), ""),
        (" · ", "dim"),
        (f"{summary.last_minute}/min", ""),
    )


def _seconds(seconds: float) -> str:
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _bottom(view: View, columns: int) -> list[Line]:
    """Return the question or what became of an action, else the keys."""
    ui = view.ui
    if ui.asking is not None:
        return lines_of(at_most(wrap(ui.asking[0], columns), 3, columns), "bold yellow")
    if ui.status is not None and (ui.status.until is None or view.now < ui.status.until):
        return lines_of(at_most(wrap(ui.status.text, columns), 4, columns), ui.status.style)
    if ui.page is not None:
        return []
    return [keys_line(columns)]


def keys_line(columns: int) -> Line:
    """Return the keys; where there is no room for all, those that the help tells better go first."""
    shown = [binding for binding in BINDINGS if binding.short]
    while True:
        line: list[Span] = []
        for binding in shown:
            line += [("   " if line else "", ""), (binding.keys, "bold"), (f" {binding.short}", "dim")]
        if width(text_of(line)) <= columns or len(shown) == 1:
            return tuple(line)
        shown.remove(max(shown, key=lambda binding: binding.rank))


def furthest(view: View, columns: int, height: int) -> int:
    """Return how far down the page can be scrolled."""
    return (
        0 if view.ui.page is None else max(0, len(page_lines(view.ui.page, columns)) - page_room(view, columns, height))
    )


def page_room(view: View, columns: int, height: int) -> int:
    """Return how many lines of a page are seen at once."""
    return max(1, height - 1 - len(_notice(view, columns, height)) - 2 - len(_bottom(view, columns)))


def _page(view: View, page: Page, columns: int, height: int, top: list[Line], bottom: list[Line]) -> list[Line]:
    lines = page_lines(page, columns)
    room = page_room(view, columns, height)
    first = min(view.ui.scroll, furthest(view, columns, height))
    shown = lines[first : first + room]
    part = ""
    if len(lines) > room:
        part = f"   lines {first + 1} to {first + len(shown)} of {len(lines)}, ↑ ↓ PgUp PgDn"
    acts = ""
    if page.of is not None and page.of.kind is Kind.PAYMENT:
        acts = f"{'   a abort' * (why_not_abortable(page.of) is None)}   r reconcile"
    foot: Line = (("q", "bold"), (f" back{acts}{part}", "dim"))
    fill: list[Line] = [()] * (room - len(shown))
    return [*top, _rule(page.title, columns), *shown, *fill, *bottom, foot]
