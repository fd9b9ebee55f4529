"""`python -m tests.diagram`: draws docs/pictures/lifecycle.svg from the lifecycle table of the core.

Arrows between states of the terminal come from `TRANSITIONS` alone, the results from `RESULTS`, what the cashier reads
of what is open from the table of `display`. What is written here is where a box stands, the words of the ends, and how
posd's own phases hang together (design 4 to 6).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path

from posd.base.negotiation import Language
from posd.payments.display import DisplayCode, text
from posd.payments.lifecycle import FINALS, STATUSES, TRANSITIONS, Status
from posd.payments.model import RESULTS, OperationType, Result
from posd.records.model import Phase

FILE = Path(__file__).parents[1] / "docs" / "pictures" / "lifecycle.svg"

#: A box is named by the word of the wire that it shows.
STARTING, IN_DOUBT, NOT_STARTED = str(Phase.STARTING), str(Phase.IN_DOUBT), str(Result.NOT_STARTED)
#: Where an arrow ends that means any state of a phase.
ACTIVE, FINAL = str(Phase.ACTIVE), str(Phase.FINAL)

WIDTH, HEIGHT = 1040, 620
_HALF_HEIGHT = 33


@dataclass(frozen=True)
class Box:
    """Where the middle of a box is, how wide it is, what the cashier reads, and how it looks."""

    x: float
    y: float
    width: float
    words: str
    look: str = "open"

    @property
    def top(self) -> float:
        return self.y - _HALF_HEIGHT

    @property
    def bottom(self) -> float:
        return self.y + _HALF_HEIGHT

    @property
    def left(self) -> float:
        return self.x - self.width / 2

    @property
    def right(self) -> float:
        return self.x + self.width / 2


_FIRST, _MIDDLE, _LAST = 150, 328, 488


def _said(code: DisplayCode) -> str:
    """Return what a charge shows, without what stands behind the first comma or stop."""
    return re.split("[,.]", text(code, OperationType.CHARGE).of(Language.EN))[0]


BOXES: Mapping[str, Box] = {
    STARTING: Box(130, _FIRST, 176, _said(DisplayCode.SENDING)),
    IN_DOUBT: Box(189, _MIDDLE, 226, _said(DisplayCode.LOOKING), "doubt"),
    Status.TERMINAL_ACKNOWLEDGED: Box(386, _FIRST, 184, _said(DisplayCode.PRESENT_CARD)),
    Status.CARD_PRESENTED: Box(628, _FIRST, 224, _said(DisplayCode.CARD_READ)),
    Status.APPROVAL_REQUESTED: Box(900, _FIRST, 184, _said(DisplayCode.ASKING_BANK)),
    NOT_STARTED: Box(130, _LAST, 176, "Nothing was started", "unpaid"),
    Status.TERMINAL_CANCELED: Box(386, _LAST, 194, "Canceled", "unpaid"),
    Status.TERMINAL_REJECTED: Box(591, _LAST, 194, "The terminal gave up", "unpaid"),
    Status.DECLINED: Box(777, _LAST, 158, "The bank declined", "unpaid"),
    Status.APPROVAL: Box(936, _LAST, 140, "Paid", "paid"),
}

#: phase -> left, top, right, bottom of its field; what it means, and where that stands: x, y, side.
FIELDS: Mapping[Phase, tuple[int, int, int, int, str, tuple[int, int, str]]] = {
    Phase.STARTING: (24, 76, 236, 204, "phase starting", (38, 97, "start")),
    Phase.ACTIVE: (264, 76, 1016, 204, "phase active: the terminal has it", (278, 97, "start")),
    Phase.IN_DOUBT: (64, 256, 314, 384, "phase in_doubt", (300, 277, "end")),
    Phase.FINAL: (24, 438, 1016, 558, "phase final: the outcome, with its evidence", (38, 545, "start")),
}

#: What a box says of `next_step`, by its look.
NEXT_STEPS: Mapping[str, str] = {
    "unpaid": "new_id_ok",
    "paid": "done",
    "open": "wait",
    "doubt": "wait, later ask_person",
}

#: posd's own ways between phases: from, to, the path, why, and where that stands.
WAYS: tuple[tuple[str, str, str, str, str], ...] = (
    (STARTING, IN_DOUBT, "M150 183 V294", "no clear answer", 'x="159" y="232"'),
    (STARTING, NOT_STARTED, "M52 183 V454", "refused, or never sent", 'transform="translate(44 392) rotate(-90)"'),
    (IN_DOUBT, NOT_STARTED, "M150 361 V454", "full proof", 'x="159" y="415"'),
    (IN_DOUBT, ACTIVE, "M302 328 C346 328 318 262 318 205", "", ""),
    (IN_DOUBT, FINAL, "M250 361 V437", "by evidence", 'x="259" y="415"'),
)

#: Each line: selector, light, dark.
_COLOURS = (
    (".paper", "fill: #ffffff", "fill: #0d1117"),
    ("text", "fill: #3d4450", "fill: #b6bec9"),
    (".words, .title", "fill: #12161c", "fill: #f0f3f7"),
    (".field", "fill: #f3f5f8; stroke: #dfe4ea", "fill: #151b23; stroke: #2a323d"),
    (".open", "fill: #ffffff; stroke: #2f6fb5", "fill: #12263d; stroke: #6aa9e9"),
    (".doubt", "fill: #fff6df; stroke: #b7791f", "fill: #33270c; stroke: #e3b341"),
    (".paid", "fill: #e6f6ea; stroke: #23803d", "fill: #10301a; stroke: #56c271"),
    (".unpaid", "fill: #fbeceb; stroke: #b3403a", "fill: #351716; stroke: #f0857d"),
    (".way", "stroke: #55606e", "stroke: #9aa5b3"),
    (".tip", "fill: #55606e", "fill: #9aa5b3"),
    (".doubtful", "stroke: #b7791f", "stroke: #e3b341"),
    (".doubtful-tip", "fill: #b7791f", "fill: #e3b341"),
    (".return", "stroke: #8a5cc2", "stroke: #c3a1ee"),
    (".returns", "fill: #6d3fa8", "fill: #c3a1ee"),
)

_SHAPES = """
text { font-family: system-ui, "Segoe UI", "DejaVu Sans", sans-serif; font-size: 12px }
.title { font-size: 19px; font-weight: 650 }
.words { font-size: 12.5px; font-weight: 600; text-anchor: middle }
.wire { font-family: ui-monospace, "SF Mono", "DejaVu Sans Mono", monospace; font-size: 10.5px; text-anchor: middle }
.phase { font-size: 11px; font-weight: 700; letter-spacing: .06em }
.why { font-size: 11px; font-style: italic }
.middle { text-anchor: middle }
.field { stroke-width: 1 }
.box { stroke-width: 1.6 }
.way { stroke-width: 1.6; fill: none }
.doubtful { stroke-dasharray: 5 4 }
.return { stroke-width: 1.4; stroke-dasharray: 2 4; stroke-linecap: round }
.returns { font-size: 11px; font-weight: 600 }
"""


def draw() -> str:
    """Return the SVG. A state that the table has and no box stands for raises KeyError."""
    told = ". ".join(f"{before} to {', '.join(after)}" for before, after in _told().items())
    shown = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" aria-labelledby="title told"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {shown}>',
        '<title id="title">The life of a payment</title>',
        f'<desc id="told">{escape(told)}.</desc>',
        f"<style>{_SHAPES}{_colours()}</style>",
        "<defs>",
        _tip("tip", "tip"),
        _tip("doubtful-tip", "doubtful-tip"),
        "</defs>",
        f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}" rx="12"/>',
        _text(24, 38, "The life of a payment", "title"),
        _text(24, 57, "large: what the cashier reads; small: the word on the wire, and next_step"),
        *_fields(),
        *_point_of_no_return(),
        *_transitions(),
        *_ways(),
        *(line for name, box in BOXES.items() for line in _box(name, box)),
        _text(24, 583, "Solid: what the terminal tells; events can be missing or late, and a state never goes back."),
        _text(
            24, 602, "Dashed: doubt. An event, a search that finds the payment, or a person ends it; time never does."
        ),
    ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def edges() -> tuple[tuple[str, str], ...]:
    """Return the arrows of the lifecycle table; before the first state there is the start."""
    return tuple((before or STARTING, after) for before, row in TRANSITIONS.items() for after in Status if after in row)


def _told() -> Mapping[str, list[str]]:
    told: dict[str, list[str]] = {}
    for before, after in (*edges(), *((before, after) for before, after, *_ in WAYS)):
        told.setdefault(before, []).append(after)
    return told


def _colours() -> str:
    light = "\n".join(f"{selector} {{ {colour} }}" for selector, colour, _ in _COLOURS)
    dark = "\n".join(f"{selector} {{ {colour} }}" for selector, _, colour in _COLOURS)
    return f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"


def _tip(name: str, look: str) -> str:
    size = 'viewBox="0 0 10 10" refX="9" refY="5" markerWidth="9" markerHeight="9" markerUnits="userSpaceOnUse"'
    return f'<marker id="{name}" {size} orient="auto"><path class="{look}" d="M0 0.8 L10 5 L0 9.2 Z"/></marker>'


def _text(x: float, y: float, words: str, look: str = "") -> str:
    shape = f' class="{look}"' if look else ""
    return f'<text{shape} x="{x:.0f}" y="{y:.0f}">{escape(words)}</text>'


def _fields() -> Iterator[str]:
    for phase, (left, top, right, bottom, words, (x, y, side)) in FIELDS.items():
        size = f'x="{left}" y="{top}" width="{right - left}" height="{bottom - top}" rx="12"'
        yield f'<rect class="field" data-phase="{phase}" {size}/>'
        yield f'<text class="phase" x="{x}" y="{y}" text-anchor="{side}">{escape(words)}</text>'


def _point_of_no_return() -> Iterator[str]:
    x = (BOXES[Status.CARD_PRESENTED].right + BOXES[Status.APPROVAL_REQUESTED].left) / 2
    yield f'<path class="return" d="M{x:.0f} 68 V212"/>'
    yield f'<text class="returns" x="{x - 10:.0f}" y="97" text-anchor="end">abort is possible</text>'
    yield f'<text class="returns" x="{x + 10:.0f}" y="97">no abort any more</text>'


def _box(name: str, box: Box) -> Iterator[str]:
    size = f'x="{box.left:.0f}" y="{box.top:.0f}" width="{box.width:.0f}" height="{2 * _HALF_HEIGHT}" rx="9"'
    yield f'<rect class="box {box.look}" data-state="{name}" {size}/>'
    yield _text(box.x, box.y - 10, box.words, "words")
    known = STATUSES.get(name)
    wire = [f"{RESULTS[known]} · {known}"] if known in FINALS else [name]
    yield from (_text(box.x, box.y + 8, line, "wire") for line in wire)
    yield _text(box.x, box.y + 23, f"next_step {NEXT_STEPS[box.look]}", "wire")


def _transitions() -> Iterator[str]:
    """The arrows of the table: in one row straight, to itself a loop, downwards a curve."""
    downwards = [(before, after) for before, after in edges() if BOXES[before].y < BOXES[after].y]
    for before, after in edges():
        here, there = BOXES[before], BOXES[after]
        if before == after:
            path = f"M{here.x - 24:.0f} {here.top:.0f} c12 -38 -66 -38 -54 -2"
        elif here.y == there.y:
            path = f"M{here.right:.0f} {here.y:.0f} H{there.left:.0f}"
        else:
            x = _spread(here, [BOXES[to].x for by, to in downwards if by == before], there.x)
            to = _spread(there, [BOXES[by].x for by, to in downwards if to == after], here.x)
            middle = (here.bottom + there.top) / 2
            path = (
                f"M{x:.0f} {here.bottom:.0f} C{x:.0f} {middle:.0f} {to:.0f} {middle:.0f} {to:.0f} {there.top - 1:.0f}"
            )
        yield f'<path class="way" data-from="{before}" data-to="{after}" marker-end="url(#tip)" d="{path}"/>'


def _spread(box: Box, others: list[float], other: float) -> float:
    """Where on the edge of a box an arrow stands, so that the arrows of one box keep the order of their other ends."""
    return box.left + box.width * (sorted(others).index(other) + 1) / (len(others) + 1)


def _ways() -> Iterator[str]:
    for before, after, path, why, place in WAYS:
        look, tip = ("way doubtful", "doubtful-tip") if IN_DOUBT in (before, after) else ("way", "tip")
        yield f'<path class="{look}" data-from="{before}" data-to="{after}" marker-end="url(#{tip})" d="{path}"/>'
        if why:
            yield f'<text class="why" {place}>{escape(why)}</text>'


if __name__ == "__main__":
    FILE.write_text(draw(), "utf-8")
    print(FILE)
