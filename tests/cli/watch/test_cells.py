"""Text in cells: nothing that a stranger sends steers the screen, and every line is as wide as it says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posd.cli.watch.screen import ASCII, DRAWN, UNICODE, Glyphs, at_most, clip, clip_line, fit, text_of, width, wrap

GLYPHS = st.sampled_from([UNICODE, ASCII])
#: Control characters, wide ones, combining ones, a joiner, a change of direction, and everything else.
TEXT = st.text(
    st.one_of(st.characters(codec="utf-8"), st.sampled_from("\x1b\x07\x9b\n\t字한😀é\u0301\u200d\u202e\ufe0f ab·─"))
)


@given(TEXT, GLYPHS)
def test_what_is_safe_has_no_control_characters_and_takes_a_cell_or_two_each(text: str, glyphs: Glyphs) -> None:
    safe = glyphs.safe(text)
    assert safe.isprintable()
    assert all(width(char) in (1, 2) for char in safe)
    assert glyphs.unicode or safe.isascii()
    assert glyphs.safe(safe) == safe


@pytest.mark.parametrize(
    ("text", "shown", "plain"),
    [
        ("SN-1\x1b[2J\x07", "SN-1\\u001b[2J\\u0007", "SN-1\\u001b[2J\\u0007"),
        ("Café", "Café", "Caf?"),
        ("Cafe\u0301", "Café", "Caf?"),
        ("字", "字", "?"),
        ("a\nb\tc", "a\\nb\\tc", "a\\nb\\tc"),
        ("\u202edecoy", "\\u202edecoy", "\\u202edecoy"),
        ("".join(DRAWN), "".join(DRAWN), "".join(DRAWN.values())),
    ],
)
def test_what_is_shown_of_it(text: str, shown: str, plain: str) -> None:
    assert (UNICODE.safe(text), ASCII.safe(text)) == (shown, plain)


@given(TEXT, st.integers(0, 30))
def test_no_text_takes_more_cells_than_it_is_given(text: str, room: int) -> None:
    safe = UNICODE.safe(text)
    assert width(clip(safe, room)) <= room
    assert width(fit(safe, room)) == width(fit(safe, room, right=True)) == room
    assert width(text_of(clip_line([(text, "bold"), (text, "")], room, UNICODE))) <= room
    if width(safe) <= room:
        assert clip(safe, room) == safe


@given(TEXT, st.integers(2, 30))
def test_wrapped_lines_fit_and_lose_nothing(text: str, room: int) -> None:
    lines = wrap(text, room)
    assert all(width(line) <= room for line in lines)
    shown = UNICODE.safe(text)
    assert "".join("".join(lines).split()) == "".join(shown.split())


@given(TEXT, st.integers(2, 30), st.integers(0, 5))
def test_what_is_cut_says_so(text: str, room: int, most: int) -> None:
    lines = wrap(text, room)
    cut = at_most(lines, most, room)
    assert len(cut) == min(len(lines), most)
    assert all(width(line) <= room for line in cut)
    if cut and len(lines) > most:
        assert cut[-1].endswith(" …")


def test_words_stay_whole_where_they_can() -> None:
    assert wrap("ask the terminal first", 10) == ["ask the", "terminal", "first"]
    assert wrap("7f3c0000-0000", 5) == ["7f3c0", "000-0", "000"]
    assert wrap("", 5) == [""]
