"""The commands of a document to print, as types, and the document that they make.

    from posd.client.commands import Cut, Text, document

    posd.print_job("receipt-1042", document(Text("MY SHOP\n", align="CENTER", size=32), Cut()))

The newer edition of the terminals takes such a list. Types and fields are known from the code of one integrator, after
the documentation of a beta; none was seen to print. What is None is left out, and then the terminal decides. Each
raises ValueError or TypeError for a value that posd refuses. Sizes are in dots: 58 mm of paper have 384 in a line.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Literal, TypeAlias, get_args

Align: TypeAlias = Literal["LEFT", "CENTER", "RIGHT"]
DividerType: TypeAlias = Literal["SOLID", "DOTTED", "EMPTY"]
ErrorLevel: TypeAlias = Literal["L", "M", "Q", "H"]

# The limits are posd's (local API, Commands of a document).
MAX_COMMANDS = 1000
MAX_TEXT_CHARACTERS = 4096
MAX_COLUMNS = 16
MAX_QR_BYTES = 2953
PAPER_DOTS = 384
MAX_FEED_LINES = 100
MAX_SPACE_DOTS = 2000
MAX_WEIGHT = 100

Check: TypeAlias = Callable[[str, object], None]


class _Part:
    """A dataclass that is an object of the document. Its fields are checked by their names."""

    __slots__ = ()
    type: ClassVar[str] = ""

    def __post_init__(self) -> None:
        """Raise TypeError or ValueError."""
        for each in fields(self):  # type: ignore[arg-type]  # those that derive from it are dataclasses
            value = getattr(self, each.name)
            if value is not None or each.default is MISSING:
                CHECKS[each.name](f"{type(self).__name__}.{each.name}", value)

    def to_json(self) -> dict[str, object]:
        """Return the object for the document."""
        made: dict[str, object] = {"type": self.type} if self.type else {}
        for each in fields(self):  # type: ignore[arg-type]
            value = getattr(self, each.name)
            if value is not None:
                made[MEMBERS.get(each.name, each.name)] = value
        return made


def _text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r:.80}: it is a text")
    if len(value) > MAX_TEXT_CHARACTERS:
        raise ValueError(f"{name} has {len(value)} characters: it has at most {MAX_TEXT_CHARACTERS}")
    value.encode()  # half of a character is no text: UnicodeEncodeError, a ValueError


def _content(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r:.80}: it is a text")
    if not 1 <= (size := len(value.encode())) <= MAX_QR_BYTES:
        raise ValueError(f"{name} has {size} bytes: it has 1 to {MAX_QR_BYTES}, as much as the largest QR code")


def _flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{name} is {value!r:.80}: it is True or False")


def _whole(least: int, most: int) -> Check:
    def check(name: str, value: object) -> None:
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"{name} is {value!r:.80}: it is a whole number")
        if not least <= value <= most:
            raise ValueError(f"{name} is {value}: it is from {least} to {most}")

    return check


def _word(of: Any) -> Check:
    words = get_args(of)

    def check(name: str, value: object) -> None:
        if value not in words:
            raise ValueError(f"{name} is {value!r:.80}: it is one of {', '.join(words)}")

    return check


def _columns(name: str, value: object) -> None:
    if not isinstance(value, tuple) or not all(isinstance(each, Column) for each in value):
        raise TypeError(f"{name} is {value!r:.80}: it is a sequence of Column")
    if not 1 <= len(value) <= MAX_COLUMNS:
        raise ValueError(f"{name} has {len(value)} columns: it has 1 to {MAX_COLUMNS}")


#: Field -> what is looked at.
CHECKS: Mapping[str, Check] = {
    "text": _text,
    "align": _word(Align),
    "size": _whole(1, PAPER_DOTS),
    "bold": _flag,
    "italic": _flag,
    "underline": _flag,
    "columns": _columns,
    "weight": _whole(1, MAX_WEIGHT),
    "divider_type": _word(DividerType),
    "offset": _whole(0, PAPER_DOTS),
    "lines": _whole(0, MAX_FEED_LINES),
    "pixels": _whole(0, MAX_SPACE_DOTS),
    "content": _content,
    "dot_size": _whole(1, PAPER_DOTS),
    "error_level": _word(ErrorLevel),
}

#: Field -> its name in the document, where that is another.
MEMBERS: Mapping[str, str] = {"divider_type": "dividerType", "dot_size": "dotSize", "error_level": "errorLevel"}


@dataclass(frozen=True, slots=True)
class Text(_Part):
    """A text; a line feed in it ends the line. `size`: 24 dots is normal, 28 to 32 is large."""

    type: ClassVar[str] = "text"
    text: str
    align: Align | None = None
    size: int | None = None
    bold: bool | None = None
    italic: bool | None = None
    underline: bool | None = None


@dataclass(frozen=True, slots=True)
class Column(_Part):
    """One column of `Columns`. `weight`: its share of the width, beside the weights of the others."""

    text: str
    weight: int | None = None
    align: Align | None = None


@dataclass(frozen=True, slots=True)
class Columns(_Part):
    """Texts beside each other in a line."""

    type: ClassVar[str] = "columns"
    columns: Sequence[Column]

    def __post_init__(self) -> None:
        """Raise TypeError or ValueError."""
        if isinstance(self.columns, Sequence):
            object.__setattr__(self, "columns", tuple(self.columns))
        _Part.__post_init__(self)

    def to_json(self) -> dict[str, object]:
        """Return the object for the document."""
        return {"type": self.type, "columns": [column.to_json() for column in self.columns]}


@dataclass(frozen=True, slots=True)
class Divider(_Part):
    """A line across the paper. What `offset` does is not described."""

    type: ClassVar[str] = "divider"
    divider_type: DividerType | None = None
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Feed(_Part):
    """The paper moves on by so many lines."""

    type: ClassVar[str] = "feed"
    lines: int


@dataclass(frozen=True, slots=True)
class Space(_Part):
    """The paper moves on by so many dots."""

    type: ClassVar[str] = "space"
    pixels: int


@dataclass(frozen=True, slots=True)
class Qr(_Part):
    """A QR code. `dot_size`: the width of one of its modules in dots. `error_level`: how much of it may be damaged."""

    type: ClassVar[str] = "qr"
    content: str
    dot_size: int | None = None
    error_level: ErrorLevel | None = None
    align: Align | None = None


@dataclass(frozen=True, slots=True)
class Cut(_Part):
    """The paper is cut."""

    type: ClassVar[str] = "cut"


Command: TypeAlias = Text | Columns | Divider | Feed | Space | Qr | Cut


def document(*commands: Command) -> dict[str, object]:
    """Return the document of these commands, for `print_job`. Raise ValueError for none, and for more than 1,000."""
    if not 1 <= len(commands) <= MAX_COMMANDS:
        raise ValueError(f"a document has 1 to {MAX_COMMANDS} commands, not {len(commands)}")
    return {"commands": [command.to_json() for command in commands]}
