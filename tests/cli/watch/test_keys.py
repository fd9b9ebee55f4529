"""What a terminal sends for a key, in one piece or in several."""

import pytest

from posd.cli.watch.control import KEYS, STEPS
from posd.cli.watch.screen import BINDINGS, CHARACTERS, SEQUENCES, Decoder


def keys(text: str, *, then_silence: bool = False) -> list[str]:
    decoder = Decoder()
    found = [decoder.feed(char) for char in text]
    if then_silence:
        assert decoder.waiting
        found.append(decoder.flush())
        assert not decoder.waiting
    return [key for key in found if key is not None]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("q", ["q"]),
        ("\x1b[A\x1bOB", ["up", "down"]),
        ("\x1b[5~\x1b[6~j", ["page up", "page down", "j"]),
        ("\r\n\t\x0c", ["enter", "enter", "tab", "redraw"]),
        ("\x1b[1;5Aq", ["q"]),  # Ctrl-Up: a sequence that means nothing here
        ("\x1b[<0;10;10Mq", ["q"]),
        ("\x1bq", ["q"]),  # Alt-q, or Escape and soon a letter
        ("\x1b\x1b[A", ["escape", "up"]),
        ("\x1b[\x1b[A", ["up"]),  # a sequence that broke off
        ("\x1b[0000q", []),
    ],
)
def test_what_is_sent_is_a_key(text: str, expected: list[str]) -> None:
    assert keys(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("\x1b", ["escape"]), ("\x1b[", []), ("\x1b[5", []), ("q\x1b", ["q", "escape"])]
)
def test_what_silence_ends(text: str, expected: list[str]) -> None:
    assert keys(text, then_silence=True) == expected


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_each_sequence_comes_through_and_does_something(sequence: str) -> None:
    (key,) = keys(f"\x1b{sequence}")
    assert key in STEPS


def test_the_help_tells_of_every_key() -> None:
    told = " ".join(f"{binding.keys} {binding.words}" for binding in BINDINGS)
    spelled = {"escape": "Escape", "tab": "Tab", "enter": "Enter", "Q": "q"}
    assert all(spelled.get(key, key) in told for key in KEYS)
    for words in ("PgUp", "PgDn", "Home", "End", "↑ ↓", "Ctrl-C", "Ctrl-L"):
        assert words in told
    assert set(CHARACTERS.values()) - {"redraw"} <= KEYS.keys()
