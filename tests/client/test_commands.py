"""The commands of a receipt as types: what they make is what posd takes, and what posd refuses they refuse too."""

from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posd.base.json_types import decode, encode
from posd.client import commands
from posd.client.commands import Column, Columns, Cut, Divider, Feed, Qr, Space, Text, document
from posd.printing.commands import COMMANDS, Findings, examine
from tests.support.tables import every

CLASSES: tuple[Any, ...] = (Text, Columns, Divider, Feed, Space, Qr, Cut)


def members(kind: Any) -> list[str]:
    return [commands.MEMBERS.get(each.name, each.name) for each in fields(kind)]


def test_they_have_the_types_and_fields_that_posd_knows() -> None:
    assert {kind.type: members(kind) for kind in CLASSES} == {kind: [*of] for kind, of in COMMANDS.items()}
    assert members(Column) == [*(COMMANDS["columns"]["columns"].members or {})]


def test_they_make_the_document() -> None:
    receipt = document(
        Text("MY SHOP\n", align="CENTER", size=32, bold=True),
        Columns([Column("1 Tea", 3), Column("2.50", 1, "RIGHT")]),
        Divider("DOTTED"),
        Feed(2),
        Space(8),
        Qr("https://example.org", dot_size=6, error_level="M"),
        Cut(),
    )
    assert receipt == {
        "commands": [
            {"type": "text", "text": "MY SHOP\n", "align": "CENTER", "size": 32, "bold": True},
            {
                "type": "columns",
                "columns": [{"text": "1 Tea", "weight": 3}, {"text": "2.50", "weight": 1, "align": "RIGHT"}],
            },
            {"type": "divider", "dividerType": "DOTTED"},
            {"type": "feed", "lines": 2},
            {"type": "space", "pixels": 8},
            {"type": "qr", "content": "https://example.org", "dotSize": 6, "errorLevel": "M"},
            {"type": "cut"},
        ]
    }
    with pytest.raises(FrozenInstanceError):
        Feed(2).lines = 3  # type: ignore[misc]
    assert {Text("x"), Text("x"), Cut(), Columns([Column("x")])} == {Text("x"), Cut(), Columns((Column("x"),))}


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "align": (
        lambda: Text("x", align="MIDDLE"),
        ValueError,
        "Text.align is 'MIDDLE': it is one of LEFT, CENTER, RIGHT",
    ),  # type: ignore[arg-type]
    "size": (lambda: Text("x", size=0), ValueError, "Text.size is 0: it is from 1 to 384"),
    "size as text": (lambda: Text("x", size="24"), TypeError, "Text.size is '24': it is a whole number"),  # type: ignore[arg-type]
    "bold": (lambda: Text("x", bold=1), TypeError, "Text.bold is 1: it is True or False"),  # type: ignore[arg-type]
    "no text": (lambda: Text(7), TypeError, "Text.text is 7: it is a text"),  # type: ignore[arg-type]
    "text None": (lambda: Text(None), TypeError, "Text.text is None: it is a text"),  # type: ignore[arg-type]
    "lines None": (lambda: Feed(None), TypeError, "Feed.lines is None: it is a whole number"),  # type: ignore[arg-type]
    "long text": (lambda: Text("x" * 4097), ValueError, "has 4097 characters: it has at most 4096"),
    "half a character": (lambda: Text("\ud800"), ValueError, "surrogates not allowed"),
    "content": (lambda: Qr(""), ValueError, "Qr.content has 0 bytes: it has 1 to 2953"),
    "content is bytes": (lambda: Qr(b"x"), TypeError, "it is a text"),  # type: ignore[arg-type]
    "weight": (lambda: Column("x", 0), ValueError, "Column.weight is 0: it is from 1 to 100"),
    "no column": (lambda: Columns([]), ValueError, "Columns.columns has 0 columns"),
    "columns of text": (lambda: Columns("ab"), TypeError, "it is a sequence of Column"),  # type: ignore[arg-type]
    "no sequence": (lambda: Columns(7), TypeError, "it is a sequence of Column"),  # type: ignore[arg-type]
    "nothing": (document, ValueError, "a document has 1 to 1000 commands, not 0"),
    "too much": (lambda: document(*[Cut()] * 1001), ValueError, "a document has 1 to 1000 commands, not 1001"),
}


@every(("make", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_what_posd_refuses_is_refused_before_the_call(
    make: Callable[[], Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error) as raised:
        make()
    assert words in str(raised.value)


def made(kind: Any, given: dict[str, Any]) -> Any:
    """Make a command of these members, None where it refuses."""
    try:
        if kind is Columns:
            given = given | {"columns": [Column(**column) for column in given["columns"]]}
        names = {member: name for name, member in commands.MEMBERS.items()}
        return kind(**{names.get(name, name): value for name, value in given.items()})
    except (TypeError, ValueError):
        return None


TEXTS = ["", "x\n", "LEFT", "MIDDLE", "SOLID", "H", "X", "ñ" * 1477, "x" * 4097]
NUMBERS = [-1, 0, 1, 24, 100, 101, 384, 385, 2000, 2001, 1.5]
VALUE = st.sampled_from([*TEXTS, *NUMBERS, True, False, [], {}])
COLUMN = st.fixed_dictionaries({"text": VALUE}, optional={"weight": VALUE, "align": VALUE})


#: The fields without which a class cannot be made, each with a value that is right.
NEEDED = {"text": "x", "columns": [{"text": "x"}], "lines": 1, "pixels": 1, "content": "x"}


def agree(kind: Any, given: dict[str, Any]) -> None:
    """The class takes these members exactly where posd does, and makes what was given."""
    in_document = {"commands": [{"type": kind.type} | given]}
    command = made(kind, given)
    assert (command is not None) == (examine(decode(encode(in_document))) == Findings()), given
    assert command is None or document(command) == in_document


def test_each_value_of_a_field_is_taken_where_posd_takes_it() -> None:
    tried = [*TEXTS, *NUMBERS, True, False, [], {}]
    for kind in CLASSES:
        right = {name: value for name, value in NEEDED.items() if name in COMMANDS[kind.type]}
        for name in COMMANDS[kind.type].keys() - {"columns"}:
            for value in tried:
                agree(kind, right | {name: value})
    for name in ("text", "weight", "align"):
        for value in tried:
            agree(Columns, {"columns": [{"text": "x"} | {name: value}]})


@given(st.data())
def test_it_takes_what_posd_takes_and_nothing_else(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(CLASSES))
    values = {name: st.lists(COLUMN, max_size=17) if name == "columns" else VALUE for name in COMMANDS[kind.type]}
    needed = {name: values.pop(name) for name in NEEDED if name in values}
    agree(kind, data.draw(st.fixed_dictionaries(needed, optional=values)))


def test_the_limits_are_posds() -> None:
    from posd.printing import commands as daemons

    names = [name for name, value in vars(commands).items() if name.isupper() and isinstance(value, int)]
    assert len(names) == 8
    assert {name: getattr(commands, name) for name in names} == {name: getattr(daemons, name) for name in names}
