"""The commands of a document: what is refused with its place, what passes with a warning, and that nothing raises."""

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from posd.base.json_types import decode, encode
from posd.printing.commands import (
    COMMANDS,
    MAX_COLUMNS,
    MAX_COMMANDS,
    MAX_FEED_LINES,
    MAX_QR_BYTES,
    MAX_SPACE_DOTS,
    MAX_TEXT_CHARACTERS,
    MAX_TOLD,
    MAX_WEIGHT,
    Field,
    Findings,
    examine,
)
from posd.printing.request import differing_fields, read_print, unknown_commands
from tests.core.test_printing import starting
from tests.support.tables import every

TEXT = {"type": "text", "text": "x"}


def found(*commands: Any, **beside: Any) -> Findings:
    """Look at these commands as they come from a till."""
    return examine(decode(encode({"commands": list(commands)} | beside)))


def paths(*commands: Any) -> list[str]:
    return [fault.path.removeprefix("/document/commands") for fault in found(*commands).faults]


RIGHT: dict[str, dict[str, Any]] = {
    "text": TEXT,
    "empty text": {"type": "text", "text": ""},
    "all of text": TEXT | {"align": "CENTER", "size": 32, "bold": True, "italic": False, "underline": True},
    "whole by value": TEXT | {"size": 24.0},
    "longest text": TEXT | {"text": "ñ" * MAX_TEXT_CHARACTERS},
    "columns": {"type": "columns", "columns": [{"text": "a", "weight": 3, "align": "LEFT"}, {"text": ""}]},
    "most columns": {"type": "columns", "columns": [{"text": "a", "weight": MAX_WEIGHT}] * MAX_COLUMNS},
    "divider": {"type": "divider"},
    "all of divider": {"type": "divider", "dividerType": "DOTTED", "offset": 0},
    "feed": {"type": "feed", "lines": MAX_FEED_LINES},
    "feed alone": {"type": "feed"},
    "space": {"type": "space", "pixels": MAX_SPACE_DOTS},
    "qr": {"type": "qr", "content": "https://example.org/ñ"},
    "all of qr": {"type": "qr", "content": "x", "dotSize": 6, "errorLevel": "H", "align": "RIGHT"},
    "largest qr": {"type": "qr", "content": "ñ" * (MAX_QR_BYTES // 2)},
    "cut": {"type": "cut"},
}

#: What is wrong with one command -> where, below it.
WRONG: dict[str, tuple[Any, list[str]]] = {
    "no object": ("cut", [""]),
    "no object but a list": ([], [""]),
    "no type": ({"text": "x"}, ["/type"]),
    "type is no text": ({"type": 7}, ["/type"]),
    "text missing": ({"type": "text"}, ["/text"]),
    "text is a number": (TEXT | {"text": 11.20}, ["/text"]),
    "text is null": (TEXT | {"text": None}, ["/text"]),
    "text too long": (TEXT | {"text": "x" * (MAX_TEXT_CHARACTERS + 1)}, ["/text"]),
    "another align": (TEXT | {"align": "MIDDLE"}, ["/align"]),
    "align in small letters": (TEXT | {"align": "center"}, ["/align"]),
    "align null": (TEXT | {"align": None}, ["/align"]),
    "align in a list": (TEXT | {"align": ["LEFT"]}, ["/align"]),
    "size in words": (TEXT | {"size": "big"}, ["/size"]),
    "size as text": (TEXT | {"size": "24"}, ["/size"]),
    "size 0": (TEXT | {"size": 0}, ["/size"]),
    "size with a fraction": (TEXT | {"size": 24.5}, ["/size"]),
    "size beyond the paper": (TEXT | {"size": 385}, ["/size"]),
    "size true": (TEXT | {"size": True}, ["/size"]),
    "bold is no flag": (TEXT | {"bold": "true", "italic": 1, "underline": 0}, ["/bold", "/italic", "/underline"]),
    "columns missing": ({"type": "columns"}, ["/columns"]),
    "columns empty": ({"type": "columns", "columns": []}, ["/columns"]),
    "columns no list": ({"type": "columns", "columns": {"text": "x"}}, ["/columns"]),
    "too many columns": ({"type": "columns", "columns": [{"text": "x"}] * (MAX_COLUMNS + 1)}, ["/columns"]),
    "column no object": ({"type": "columns", "columns": ["x"]}, ["/columns/0"]),
    "weight 0": (
        {"type": "columns", "columns": [{"text": "x"}, {"text": "y", "weight": 0, "align": "MIDDLE"}]},
        ["/columns/1/weight", "/columns/1/align"],
    ),
    "column without text": ({"type": "columns", "columns": [{"weight": 1}]}, ["/columns/0/text"]),
    "another divider": ({"type": "divider", "dividerType": "DASHED"}, ["/dividerType"]),
    "offset below 0": ({"type": "divider", "offset": -1}, ["/offset"]),
    "lines below 0": ({"type": "feed", "lines": -1}, ["/lines"]),
    "lines without end": ({"type": "feed", "lines": MAX_FEED_LINES + 1}, ["/lines"]),
    "pixels in words": ({"type": "space", "pixels": "8px"}, ["/pixels"]),
    "content missing": ({"type": "qr"}, ["/content"]),
    "content empty": ({"type": "qr", "content": ""}, ["/content"]),
    "content too long": ({"type": "qr", "content": "ñ" * (MAX_QR_BYTES // 2 + 1)}, ["/content"]),
    "another level": ({"type": "qr", "content": "x", "errorLevel": "X", "dotSize": 0}, ["/errorLevel", "/dotSize"]),
}


@every("command", RIGHT.values(), ids=RIGHT)
def test_what_is_known_passes(command: dict[str, Any]) -> None:
    assert found(TEXT, command) == Findings()


@every(("command", "places"), WRONG.values(), ids=WRONG)
def test_a_wrong_command_is_refused_with_its_place(command: Any, places: list[str]) -> None:
    assert paths(TEXT, command) == [f"/1{place}" for place in places]
    assert all(fault.message.startswith(("must be ", "is required")) for fault in found(command).faults)


@every("commands", [None, {}, "cut", 7, [], [TEXT] * (MAX_COMMANDS + 1)], ids=lambda value: repr(value)[:9])
def test_the_list_is_one(commands: Any) -> None:
    (fault,) = examine(decode(encode({"commands": commands}))).faults
    assert (fault.path, fault.message) == ("/document/commands", f"must be a list of 1 to {MAX_COMMANDS} commands")


def test_a_document_without_commands_is_the_tills_own() -> None:
    assert examine(decode(b'{"text": "x", "lines": -1, "type": "text"}')) == Findings()
    assert found(*[TEXT] * MAX_COMMANDS, text=7) == Findings()


def test_what_stands_twice_says_two_things() -> None:
    body = b'{"commands": [{"type": "cut"}], "commands": [{"type": "feed"}]}'
    assert [fault.path for fault in examine(decode(body)).faults] == ["/document/commands"]
    twice = '{"type":"text","text":"a","text":"b"},{"type":"cut","type":"feed"},{"type":"qr","content":"a","x":1,"x":2}'
    findings = examine(
        decode(f'{{"commands":[{twice},{{"type":"cut","type":"cut"}},{{"type":"cut","type":"x"}}]}}'.encode())
    )
    assert [fault.path.removeprefix("/document/commands") for fault in findings.faults] == [
        "/0/text",
        "/1/type",
        "/2/x",
        "/4/type",
    ]
    assert findings.unknown == ()


def test_what_is_not_known_passes_and_is_named() -> None:
    findings = found(TEXT, {"type": "image", "align": "MIDDLE"}, {"type": "TEXT"}, TEXT | {"algin": "LEFT", "a/b": 1})
    assert findings.faults == ()
    assert findings.unknown == (
        '/document/commands/1/type is "image", which this version does not know',
        '/document/commands/2/type is "TEXT", which this version does not know',
        '/document/commands/3 has the field "algin", which this version does not know (did you mean align?)',
        '/document/commands/3 has the field "a/b", which this version does not know',
    )
    (of_column,) = found({"type": "columns", "columns": [{"text": "x", "size": 24}]}).unknown
    assert of_column == '/document/commands/0/columns/0 has the field "size", which this version does not know'
    (long,) = found({"type": "x" * 4000}).unknown
    assert f'"{"x" * 40}…"' in long


def test_faults_without_number_are_told_in_part() -> None:
    findings = found(*[{"type": "text"}] * 30, *[{"type": "image"}] * 25)
    assert len(findings.faults) == len(findings.unknown) == MAX_TOLD + 1
    assert findings.faults[-1].path == "/document/commands"
    assert findings.faults[-1].message == "has 10 further faults"
    assert findings.unknown[-1] == "5 further types and fields are not known either"
    assert len(found(*[{"type": "text"}] * MAX_TOLD).faults) == MAX_TOLD


# the request


def body(*commands: Any) -> bytes:
    return json.dumps({"document": {"commands": commands}}).encode()


def test_the_request_is_refused_with_every_fault_of_its_document() -> None:
    _, faults = read_print(body(TEXT, TEXT | {"align": "MIDDLE"}, {"type": "feed", "lines": -1}))
    assert [(fault.path, fault.message) for fault in faults] == [
        ("/document/commands/1/align", "must be LEFT, CENTER or RIGHT; it may be left out"),
        ("/document/commands/2/lines", f"must be a whole number from 0 to {MAX_FEED_LINES}; it may be left out"),
    ]
    request, faults = read_print(body({"type": "image"}))
    assert faults == ()
    assert unknown_commands(request.document) == found({"type": "image"}).unknown
    assert unknown_commands(b'{"text": "x"}') == ()


def test_a_job_of_an_earlier_version_is_known_again_whatever_its_commands_are() -> None:
    request, faults = read_print(body({"type": "text"}))
    assert faults
    assert differing_fields(starting(document=request.document), request, faults) == []
    assert differing_fields(starting(document=b'{"commands": []}'), request, faults) == ["document"]


def test_the_page_has_the_table() -> None:
    rows = ["| type | field | what it is | |", "| --- | --- | --- | --- |"]
    for kind, fields in COMMANDS.items():
        rows += [] if fields else [f"| `{kind}` | | | |"]
        for name, field in fields.items():
            rows.append(_row(f"`{kind}`", f"`{name}`", field))
            members = field.members or {}
            rows += [_row(f"`{kind}`", f"`{name}[].{member}`", each) for member, each in members.items()]
    page = (Path(__file__).parents[2] / "docs/api.md").read_text()
    expected = "\n".join(rows)
    assert page.split("<!-- commands -->\n")[1].split("\n<!-- /commands -->")[0] == expected, expected


def _row(kind: str, name: str, field: Field) -> str:
    return f"| {kind} | {name} | {field.form}{', required' if field.required else ''} | {field.about} |"


# properties

NAMES = sorted({name for fields in COMMANDS.values() for name in fields} | {"weight", "type", "a/b~c", ""})
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 400)
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["LEFT", "SOLID", "H", *COMMANDS])
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=6,
)
ANY = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=6)
COMMAND = st.builds(lambda kind, fields: fields | {"type": kind}, st.sampled_from([*COMMANDS, "image"]), ANY) | VALUES


def at(document: Any, pointer: str) -> Any:
    """Return what stands at a JSON Pointer. Raise LookupError or ValueError where there is nothing."""
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        document = document[int(name)] if isinstance(document, list) else document[name]
    return document


@given(st.lists(COMMAND, max_size=6) | VALUES)
def test_it_never_raises_and_every_fault_has_a_place_that_is_there(commands: Any) -> None:
    document = decode(encode({"document": {"commands": commands}}))
    findings = examine(document["document"])
    for fault in findings.faults:
        missing = fault.message.startswith("is required")
        place, _, name = fault.path.rpartition("/")
        holder = at(document, place if missing else fault.path)
        assert not missing or name not in holder or name == "type"
    for sentence in findings.unknown[:MAX_TOLD]:
        at(document, sentence.partition(" ")[0])


@given(st.lists(COMMAND, min_size=1, max_size=3))
def test_the_fault_of_one_command_is_its_own(commands: list[Any]) -> None:
    together = {path.split("/")[1] for path in paths(*commands)} if paths(*commands) else set()
    alone = {str(number) for number, command in enumerate(commands) if paths(command)}
    assert together == alone or len(found(*commands).faults) > MAX_TOLD
