"""What is written makes of what stands there what should stand there, and is short."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posd.cli.watch.screen import STYLES, UNICODE, Line, Screen, clip_line, row_of, sequence
from tests.cli.watch.emulator import Emulator

COLUMNS, HEIGHT = 12, 4
STYLE = st.one_of(st.just(""), st.sampled_from(sorted(STYLES)), st.just("bold red"))
SPAN = st.tuples(st.text(st.sampled_from("ab  .─é字😀"), max_size=8), STYLE)
LINES = st.lists(st.lists(SPAN, max_size=4).map(lambda spans: clip_line(spans, COLUMNS, UNICODE)), max_size=HEIGHT + 1)


def shown(lines: list[Line]) -> list[list[tuple[str, str]]]:
    """Return the cells that a terminal shows of these lines, their styles as a terminal is told them."""
    rows = [row_of(line, COLUMNS) for line in (*lines[:HEIGHT], *[()] * (HEIGHT - len(lines)))]
    return [[(char, sequence(style, colour=True)[2:-1] if style else "") for char, style in row] for row in rows]


@given(st.lists(LINES, min_size=1, max_size=5))
def test_after_each_frame_the_terminal_shows_its_lines(frames: list[list[Line]]) -> None:
    screen, terminal = Screen(colour=True), Emulator(COLUMNS, HEIGHT)
    for lines in frames:
        terminal.write(screen.frame(lines, COLUMNS, HEIGHT))
        assert terminal.cells == shown(lines)
        assert terminal.style == ""
        assert screen.frame(lines, COLUMNS, HEIGHT) == ""


@given(LINES, LINES, st.integers(3, COLUMNS), st.integers(1, HEIGHT))
def test_another_size_is_drawn_anew(before: list[Line], after: list[Line], columns: int, height: int) -> None:
    screen, terminal = Screen(colour=True), Emulator(columns, height)
    screen.frame(before, COLUMNS, HEIGHT)
    screen.forget()
    terminal.write(screen.frame([clip_line(line, columns, UNICODE) for line in after], columns, height))
    fresh = Emulator(columns, height)
    fresh.write(Screen(colour=True).frame([clip_line(line, columns, UNICODE) for line in after], columns, height))
    assert terminal.cells == fresh.cells


def test_without_colour_none_is_written_and_the_rest_is() -> None:
    text = Screen(colour=False).frame([(("a", "bold red"), ("b", "green"), ("c", "reverse"))], 10, 1)
    assert text == "\x1b[m\x1b[2J\x1b[1H\x1b[0;1ma\x1b[mb\x1b[0;7mc\x1b[m"


@pytest.mark.parametrize(
    ("before", "after", "written"),
    [
        ((("10:42:03", ""),), (("10:42:04", ""),), "\x1b[1;8H4"),
        ((("10:42:09", ""),), (("10:42:10", ""),), "\x1b[1;7H10"),
        ((("card read", "red"),), (("card", "red"),), "\x1b[1;5H\x1b[K"),
        ((("a", ""), ("b", "bold")), (("a", "bold"), ("b", "bold")), "\x1b[1H\x1b[0;1ma\x1b[m"),
        ((("a.....b", ""),), (("c.....d", ""),), "\x1b[1Hc.....d"),
        ((("a......b", ""),), (("c......d", ""),), "\x1b[1Hc\x1b[1;8Hd"),
        ((("same", "bold"),), (("same", "bold"),), ""),
        # What another terminal may take for wide is written whole.
        ((("é 1", ""),), (("é 2", ""),), "\x1b[1Hé 2\x1b[K"),
    ],
)
def test_only_what_differs_is_written(before: Line, after: Line, written: str) -> None:
    screen = Screen(colour=True)
    screen.frame([before], 20, 1)
    assert screen.frame([after], 20, 1) == written
