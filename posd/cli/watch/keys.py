"""Which key does what, and how keys come from a terminal: a letter, or a sequence of characters."""

from collections.abc import Mapping
from typing import NamedTuple

ESCAPE = "\x1b"
#: seconds: a lone Escape is the key; what follows sooner makes a sequence of it, over a slow line too.
ESCAPE_SECONDS = 0.3
#: What no key sends: whatever it was, it is over.
_LONGEST = 12

#: What a terminal sends -> the key. Both forms of the arrows: a terminal may be in either mode.
SEQUENCES: Mapping[str, str] = {
    "[A": "up",
    "OA": "up",
    "[B": "down",
    "OB": "down",
    "[5~": "page up",
    "[6~": "page down",
    "[H": "home",
    "OH": "home",
    "[1~": "home",
    "[F": "end",
    "OF": "end",
    "[4~": "end",
}
CHARACTERS: Mapping[str, str] = {"\r": "enter", "\n": "enter", "\t": "tab", "\x0c": "redraw", "\x04": "q"}


class Decoder:
    """Makes keys of characters that come one by one."""

    def __init__(self) -> None:
        self._begun = ""

    @property
    def waiting(self) -> bool:
        """Whether an Escape came that may yet become a sequence."""
        return bool(self._begun)

    def feed(self, char: str) -> str | None:
        """Take a character; return the key that it ends, None where none ends by it."""
        if not self._begun:
            if char == ESCAPE:
                self._begun = char
                return None
            return CHARACTERS.get(char, char)
        if char == ESCAPE:
            before, self._begun = self._begun, char
            return "escape" if before == ESCAPE else None
        self._begun += char
        sequence = self._begun[1:]
        if sequence in ("[", "O"):
            return None
        if sequence[0] not in "[O":  # Alt and a letter, or Escape and then one: the letter
            self._begun = ""
            return CHARACTERS.get(char, char)
        if "@" <= char <= "~" or len(sequence) > _LONGEST:
            self._begun = ""
            return SEQUENCES.get(sequence)
        return None

    def flush(self) -> str | None:
        """Nothing followed for a while: a lone Escape is a key, the begin of a sequence is none."""
        begun, self._begun = self._begun, ""
        return "escape" if begun == ESCAPE else None


class Binding(NamedTuple):
    """A key as the help tells it, and a word for the bottom line; without one it stands in the help alone.

    Where there is no room for all, those with the highest ranks go.
    """

    keys: str
    words: str
    short: str = ""
    rank: int = 0


#: In the order of the bottom line.
BINDINGS: tuple[Binding, ...] = (
    Binding("↑ ↓", "select a row (also PgUp, PgDn, Home, End)", "select", 5),
    Binding("Tab", "go to the next list"),
    Binding("s", "show all about the selected row (also Enter)", "show", 2),
    Binding("a", "ask the terminal to abort the selected payment; asks first", "abort", 3),
    Binding("r", "ask the terminal now how the selected payment stands", "reconcile", 4),
    Binding("?", "this help (also h)", "help", 1),
    Binding("q", "quit (also Ctrl-C); on a page: back (also Escape)", "quit"),
    Binding("Ctrl-L", "draw the screen anew"),
)
