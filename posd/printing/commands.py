"""The commands of a document to print: what each may have, and what is wrong with a list of them.

One integrator's code names them, after the documentation of a beta; none was seen to print (terminal API, Printing). So
a type or a field that is not in this table passes, and a warning names it. A value that the table rules out is refused
before anything is sent. The ranges of numbers and texts are posd's own.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from posd.base.json_types import Object, pointer_token
from posd.base.text import nearest
from posd.records.request import Fault

#: The member of a document that holds the list.
MEMBER = "commands"

#: Commands of one document: a receipt has some dozens.
MAX_COMMANDS = 1000
#: Characters of one text.
MAX_TEXT_CHARACTERS = 4096
#: Columns beside each other: of 32 characters in a line.
MAX_COLUMNS = 16
#: What the largest QR code holds (ISO/IEC 18004: version 40, level L), in bytes of UTF-8.
MAX_QR_BYTES = 2953
#: Dots in a line of 58 mm paper; nothing that is measured in dots across can be larger.
PAPER_DOTS = 384
#: Bounds against a number that was mistyped: each would feed some 25 cm of paper.
MAX_FEED_LINES = 100
MAX_SPACE_DOTS = 2000
MAX_WEIGHT = 100

#: Faults and warnings of one document that are told one by one.
MAX_TOLD = 20
#: Characters of an unknown word that are shown.
MAX_SHOWN = 40

ALIGNS = ("LEFT", "CENTER", "RIGHT")
DIVIDERS = ("SOLID", "DOTTED", "EMPTY")
ERROR_LEVELS = ("L", "M", "Q", "H")


class Field(NamedTuple):
    """A field of a command: what it has to be, in words and as a check, and what it is for.

    `members`: of a list, the fields of each of its objects.
    """

    form: str
    fits: Callable[[Any], bool]
    about: str
    required: bool = False
    members: "Mapping[str, Field] | None" = None


def _text(about: str, *, required: bool = True) -> Field:
    return Field(
        f"a text of at most {MAX_TEXT_CHARACTERS} characters",
        lambda value: isinstance(value, str) and len(value) <= MAX_TEXT_CHARACTERS,
        about,
        required,
    )


def _word(words: tuple[str, ...], about: str) -> Field:
    return Field(f"{', '.join(words[:-1])} or {words[-1]}", lambda value: value in words, about)


def _whole(least: int, most: int, about: str) -> Field:
    return Field(
        f"a whole number from {least} to {most}",
        lambda value: isinstance(value, Decimal) and least <= value <= most and value == int(value),
        about,
    )


def _flag(about: str) -> Field:
    return Field("true or false", lambda value: isinstance(value, bool), about)


_ALIGN = _word(ALIGNS, "where it stands in its line")

_COLUMN: Mapping[str, Field] = {
    "text": _text("what stands in the column"),
    "weight": _whole(1, MAX_WEIGHT, "its share of the line's width"),
    "align": _word(ALIGNS, "where the text stands in its column"),
}

#: type -> its fields.
COMMANDS: Mapping[str, Mapping[str, Field]] = {
    "text": {
        "text": _text("what is printed; a line feed ends the line"),
        "align": _ALIGN,
        "size": _whole(1, PAPER_DOTS, "24 is normal, 28 to 32 is large"),
        "bold": _flag("bold"),
        "italic": _flag("italic"),
        "underline": _flag("underlined"),
    },
    "columns": {
        "columns": Field(
            f"a list of 1 to {MAX_COLUMNS} columns",
            lambda value: isinstance(value, list) and 1 <= len(value) <= MAX_COLUMNS,
            "what stands beside each other in a line",
            required=True,
            members=_COLUMN,
        ),
    },
    "divider": {
        "dividerType": _word(DIVIDERS, "how the line across the paper is drawn"),
        "offset": _whole(0, PAPER_DOTS, "not described"),
    },
    "feed": {"lines": _whole(0, MAX_FEED_LINES, "lines by which the paper moves on")},
    "space": {"pixels": _whole(0, MAX_SPACE_DOTS, "dots by which the paper moves on")},
    "qr": {
        "content": Field(
            f"a text of 1 to {MAX_QR_BYTES} bytes of UTF-8",
            lambda value: isinstance(value, str) and 1 <= len(value.encode()) <= MAX_QR_BYTES,
            "what is read from the code",
            required=True,
        ),
        "dotSize": _whole(1, PAPER_DOTS, "width of one module of the code"),
        "errorLevel": _word(ERROR_LEVELS, "how much of the code may be damaged"),
        "align": _ALIGN,
    },
    "cut": {},
}


class Unknown(NamedTuple):
    """A type or a field that is not in the table. `before`: what stands between its place and the word itself."""

    path: str
    before: str
    word: str
    known: tuple[str, ...]

    def __str__(self) -> str:
        word = self.word if len(self.word) <= MAX_SHOWN else f"{self.word[:MAX_SHOWN]}…"
        near = nearest(word, self.known)
        meant = f" (did you mean {near}?)" if near else ""
        return (
            f"{self.path} {self.before} {json.dumps(word, ensure_ascii=False)}, which this version does not know{meant}"
        )


class Findings(NamedTuple):
    """What is wrong with the commands of a document, and what passes although this version does not know it.

    `unknown` are sentences without a full stop.
    """

    faults: tuple[Fault, ...] = ()
    unknown: tuple[str, ...] = ()


def examine(document: Object) -> Findings:
    """Look at the commands of a document, as `posd.base.json_types.decode` has read it."""
    if MEMBER not in document:
        return Findings()
    found = [*_list(document)]
    faults = [each for each in found if isinstance(each, Fault)]
    unknown = [each for each in found if isinstance(each, Unknown)]
    sentences = [str(each) for each in unknown[:MAX_TOLD]]  # no more: to look for what was meant takes time
    if (more := len(faults) - MAX_TOLD) > 0:
        faults[MAX_TOLD:] = [Fault(f"/document/{MEMBER}", f"has {more} further faults")]
    if (more := len(unknown) - MAX_TOLD) > 0:
        sentences.append(f"{more} further types and fields are not known either")
    return Findings(tuple(faults), tuple(sentences))


def _list(document: Object) -> Iterator[Fault | Unknown]:
    path, commands = f"/document/{MEMBER}", document[MEMBER]
    if MEMBER in document.repeated:
        yield Fault(path, "stands more than once, with different values")
    elif not isinstance(commands, list) or not 1 <= len(commands) <= MAX_COMMANDS:
        yield Fault(path, f"must be a list of 1 to {MAX_COMMANDS} commands")
    else:
        for number, command in enumerate(commands):
            yield from _command(f"{path}/{number}", command)


def _command(path: str, command: Any) -> Iterator[Fault | Unknown]:
    if not isinstance(command, Object):
        yield Fault(path, 'must be an object with a type, such as {"type": "cut"}')
        return
    kind = command.get("type")
    if not isinstance(kind, str) or "type" in command.repeated:
        yield Fault(f"{path}/type", f"is required, once: {', '.join(COMMANDS)}")
    elif kind not in COMMANDS:
        yield Unknown(f"{path}/type", "is", kind, tuple(COMMANDS))
    else:
        yield from _fields(path, command, COMMANDS[kind], ("type",))


def _fields(
    path: str, given: Object, fields: Mapping[str, Field], but: tuple[str, ...] = ()
) -> Iterator[Fault | Unknown]:
    for name, value in given.items():
        at, field = f"{path}/{pointer_token(name)}", fields.get(name)
        if name in given.repeated:
            yield Fault(at, "stands more than once, with different values")
        elif field is not None:
            yield from _value(at, value, field)
        elif name not in but:
            yield Unknown(path, "has the field", name, tuple(fields))
    for name, field in fields.items():
        if field.required and name not in given:
            yield Fault(f"{path}/{name}", f"is required: {field.form}")


def _value(path: str, value: Any, field: Field) -> Iterator[Fault | Unknown]:
    if not field.fits(value):
        yield Fault(path, f"must be {field.form}" + ("" if field.required else "; it may be left out"))
    elif field.members is not None:
        for number, member in enumerate(value):
            if isinstance(member, Object):
                yield from _fields(f"{path}/{number}", member, field.members)
            else:
                yield Fault(f"{path}/{number}", 'must be an object with a text, such as {"text": "11.20"}')
