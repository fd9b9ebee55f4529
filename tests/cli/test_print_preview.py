"""`posd print --preview`: what would stand on the paper, line by line, and what is said of it. Nothing is sent."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posd.base.json_types import decode, encode
from posd.base.text import shown
from posd.cli.app.cells import width
from posd.cli.printing.preview import COLUMNS, DRAWN, Paper
from posd.printing.commands import COMMANDS, examine
from posd.printing.request import MAX_DOCUMENT_BYTES
from tests.cli.documents import answer
from tests.cli.print_documents import COMPLETED, JOB
from tests.cli.processes import Done, posd, posd_on_terminal
from tests.cli.stub import Stub

PREVIEWS = Path(__file__).parent / "previews"
UNKNOWN, AS_IT_IS = "which this version does not know", "it goes to the terminal as it is"
NOT_KNOWN = "what a printer does then is not known"
ABOUT = "58 mm of paper, 384 dots and 32 characters of size 24 in a line"


def preview(tmp_path: Path, content: str | bytes, *arguments: str, config: str = "") -> Done:
    """Draw this file where there is no daemon."""
    file = tmp_path / "receipt"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    (tmp_path / "config.toml").write_text(config)
    return posd("print", str(file), "--preview", *arguments, config=tmp_path / "config.toml", socket=tmp_path / "none")


def drawn(*commands: Any) -> tuple[list[str], list[str]]:
    """Draw these commands; return the lines and the notes."""
    document = decode(encode({"commands": list(commands)}))
    assert examine(document).faults == ()
    paper = Paper()
    paper.draw(document["commands"])
    return ["".join(text for text, _ in line).rstrip() for line in paper.lines], paper.notes


@pytest.mark.parametrize("name", ["receipt", "edges"])
def test_a_receipt_stands_on_the_paper(tmp_path: Path, name: str) -> None:
    done = preview(tmp_path, (PREVIEWS / f"{name}.json").read_bytes())
    assert done.returncode == 0, done.stderr
    assert done.stdout == (PREVIEWS / f"{name}.txt").read_text("utf-8")
    assert done.stderr.splitlines()[-1].startswith(ABOUT)


def test_what_is_not_known_or_not_sure_is_said_beside_it(tmp_path: Path) -> None:
    said = preview(tmp_path, (PREVIEWS / "edges.json").read_bytes()).stderr.splitlines()
    assert said[0] == f'/document/commands/10/type is "image", {UNKNOWN}: {AS_IT_IS}'
    assert said[2:5] == [
        "the text before /document/commands/4 (columns) has no line feed at its end: " + NOT_KNOWN,
        "of size 12 more stands in a line than can be drawn here",
        'the QR code of "0123456789012345678901234567890123456789" is about 740 dots wide: the paper has 384',
    ]
    assert len(preview(tmp_path, (PREVIEWS / "receipt.json").read_bytes()).stderr.splitlines()) == 1
    narrow = {"type": "columns", "columns": [{"text": "lost"}, *[{"text": "x", "weight": 100}] * 10]}
    assert drawn(narrow)[1] == ['a column has no room for "lost": its weight is too small']
    full = {"type": "qr", "content": "x" * 2900, "errorLevel": "H", "dotSize": 1}
    assert drawn(full)[1][0].endswith("does not fit into a QR code with error level H")


def test_a_text_is_drawn_as_it_would_be_sent(tmp_path: Path) -> None:
    for content in ("Thank you\n 1 x Tea\t2.50", '{"text": "Thank you\\n 1 x Tea\\t2.50"}'):
        assert preview(tmp_path, content).stdout == "Thank you\n 1 x Tea        2.50\n"
    assert preview(tmp_path, '{"commands": 1}', "--text").stdout == '{"commands": 1}\n'
    own = '[print]\ntext_member = "content"\n'
    assert preview(tmp_path, '{"content": "x"}', config=own).stdout == "x\n"


REFUSED: dict[str, tuple[str, str]] = {
    "commands": (
        '{"commands": [{"type": "text"}, {"type": "feed", "lines": -1}]}',
        "/document/commands/0/text is required: a text of at most 4096 characters; /document/commands/1/lines must be",
    ),
    "neither": (
        '{"lines": []}',
        "has neither commands nor a text under text: what a terminal makes of it is not known",
    ),
    "text is none": ('{"text": 7}', "has neither commands nor a text under text"),
    "deep": ('{"commands": ' + "[" * 200 + "]" * 200 + "}", "cannot be printed: it is nested too deeply"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_be_refused_is_named(tmp_path: Path, name: str) -> None:
    content, words = REFUSED[name]
    done = preview(tmp_path, content)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr


def test_a_preview_is_for_people(tmp_path: Path) -> None:
    done = preview(tmp_path, "x", "--json")
    assert done.returncode == 2
    assert "--preview draws for people: leave out --json" in done.stderr


def test_on_a_narrow_terminal_the_paper_has_its_sides_and_texts_their_styles() -> None:
    seen = posd_on_terminal(
        "print", "--preview", str(PREVIEWS / "receipt.json"), socket=Path("/none"), columns=COLUMNS + 8
    )
    assert seen.returncode == 0, seen.screen
    paper = [line for line in seen.screen.splitlines() if line.startswith("| ")]
    expected = (PREVIEWS / "receipt.txt").read_text("utf-8").splitlines()
    assert paper == [f"| {line.ljust(COLUMNS)} |" for line in expected]
    assert "\x1b[1mMY SHOP\x1b[0m" in seen.written
    assert "\x1b[4mTOTAL 11.20\x1b[0m" in seen.written
    assert "\x1b[3mThank you, ñandú\x1b[0m" in seen.written


# what is sent without --preview


def sent(tmp_path: Path, content: str, config: str = "") -> tuple[Done, bytes]:
    """Print this file; return what was said, and the body of the call."""
    (tmp_path / "receipt").write_text(content)
    (tmp_path / "config.toml").write_text(config)
    with Stub(tmp_path / "s", [answer(COMPLETED, 201)]) as stub:
        arguments = ("print", str(tmp_path / "receipt"), "--id", JOB)
        done = posd(*arguments, config=tmp_path / "config.toml", socket=tmp_path / "s")
    assert done.returncode == 0, done.stderr
    return done, stub.calls[0].body


def test_commands_that_are_not_known_are_sent_with_a_warning(tmp_path: Path) -> None:
    content = '{"commands": [ {"type":"image", "x":1.50}, {"type":"txet"} ]}'
    done, body = sent(tmp_path, content)
    assert body == f'{{"document":{content}}}'.encode()
    assert done.stderr.splitlines() == [
        f'/document/commands/0/type is "image", {UNKNOWN}: {AS_IT_IS}',
        f'/document/commands/1/type is "txet", {UNKNOWN} (did you mean text?): {AS_IT_IS}',
    ]
    deep = '{"commands": [' + "[" * 200 + "]" * 200 + "]}"
    assert sent(tmp_path, deep)[0].stderr == "", "posd says what is wrong with it"


def test_a_text_becomes_commands_where_the_configuration_says_so(tmp_path: Path) -> None:
    config = '[print]\ndocument_member = ""\ntext_member = "commands"\n'
    assert json.loads(sent(tmp_path, "Thank you", config)[1]) == {
        "document": {"commands": [{"type": "text", "text": "Thank you\n"}]}
    }
    long = "ñ\n" * (MAX_DOCUMENT_BYTES // 5)
    document = decode(sent(tmp_path, long, config)[1])["document"]
    assert examine(document).faults == ()
    assert "".join(command["text"] for command in document["commands"]) == long
    assert preview(tmp_path, "Thank you", config=config).stdout == "Thank you\n"


# properties

TEXT = st.text(st.characters(max_codepoint=0x24F, exclude_categories=["Cs"]), max_size=80)
ALIGN = st.sampled_from(["LEFT", "CENTER", "RIGHT"])
FIELDS: dict[str, dict[str, Any]] = {
    "text": {"align": ALIGN, "size": st.integers(1, 384), "bold": st.booleans(), "underline": st.booleans()},
    "columns": {},
    "divider": {"dividerType": st.sampled_from(["SOLID", "DOTTED", "EMPTY"])},
    "feed": {"lines": st.integers(0, 100)},
    "space": {"pixels": st.integers(0, 2000)},
    "qr": {"dotSize": st.integers(1, 384), "errorLevel": st.sampled_from("LMQH"), "align": ALIGN},
    "cut": {},
    "image": {"text": TEXT},
}
COLUMN = st.fixed_dictionaries({"text": TEXT}, optional={"weight": st.integers(1, 100), "align": ALIGN})
NEEDED: dict[str, dict[str, Any]] = {
    "text": {"text": TEXT},
    "columns": {"columns": st.lists(COLUMN, min_size=1, max_size=16)},
    "qr": {"content": TEXT.filter(bool)},
}
COMMAND = st.sampled_from([*FIELDS]).flatmap(
    lambda kind: st.fixed_dictionaries({"type": st.just(kind)} | NEEDED.get(kind, {}), optional=FIELDS[kind])
)


@given(st.lists(COMMAND, min_size=1, max_size=5))
def test_what_was_checked_is_drawn_and_no_line_is_wider_than_the_paper(commands: list[Any]) -> None:
    lines, notes = drawn(*commands)
    assert all(width(line) <= COLUMNS and line.isprintable() for line in lines)
    assert all(note.isprintable() for note in notes)


@given(TEXT, st.integers(24, 384))
def test_no_character_of_a_text_is_lost(text: str, size: int) -> None:
    lines, _ = drawn({"type": "text", "text": text, "size": size})
    expected = shown(re.sub(r"\r?\n", "", text).replace("\t", " "))
    assert "".join(lines).replace(" ", "") == expected.replace(" ", "")


def test_every_command_is_drawn() -> None:
    assert DRAWN.keys() == COMMANDS.keys()
