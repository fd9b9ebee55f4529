"""The manual. Every command has a complete page with valid examples. groff accepts all pages."""

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from manual import codes, configuration
from manual.markdown import markdown
from manual.notes import EXITS, FAMILIES
from manual.pages import Page, pages
from manual.roff import escaped, man_page, told
from posd.cli.app.lazy import examples, groups
from posd.cli.main import COMMANDS, main
from tests.cli.manual.parsing import parse, words_of
from tests.support.needs import needs

ROOT = Path(__file__).parents[3]
PACKAGING = ROOT / "packaging"
PAGES = pages()
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@every_page
def test_a_page_is_complete(page: Page) -> None:
    command = " ".join(page.path[1:])
    assert page.summary, f"{page.command}: give the command a docstring"
    assert page.synopsis.startswith(page.command)
    assert page.examples, f"{page.command} has no example: add a row {command!r} to posd/cli/app/examples.toml"
    assert page.exits[0][0] == 0, f"{page.command}: the first exit code of its row in packaging/manual/notes.py is 0"
    assert [code for code, _ in page.exits] == sorted({code for code, _ in page.exits})
    for option in page.options:
        assert option.help, f"{page.command} {option.typed}: give the option a help="
    if len(page.path) > 1:
        assert page.path[1] in EXITS, f"add a row {page.path[1]!r} to EXITS in packaging/manual/notes.py"
        assert any(page.path[1] in family for family in FAMILIES), (
            f"add {page.path[1]!r} to a family of FAMILIES in packaging/manual/notes.py, for SEE ALSO"
        )


@every_page
def test_the_examples_can_be_typed(page: Page) -> None:
    for example in page.examples:
        words = words_of(example.line)
        parse(words)
        assert all(part in words for part in page.path[1:]), f"{example.line} is not an example of {page.command}"


@every_page
def test_the_help_ends_with_the_examples(page: Page) -> None:
    written = CliRunner().invoke(main, [*page.path[1:], "--help"], prog_name="posd").output
    _, _, examples = written.partition("\nExamples:\n")
    assert [line.strip() for line in examples.splitlines()] == [
        text for example in page.examples for text in (example.does, example.line)
    ]


def test_a_wrong_example_is_found() -> None:
    for line in ("posd charge 1 --termnal SN-0001", "posd showw ID", "posd list --limit x", "posd tls bake"):
        with pytest.raises(click.UsageError):
            parse(words_of(line))


def test_every_example_has_an_existing_command() -> None:
    known = {" ".join(page.path[1:]) for page in PAGES}
    assert set(examples()) <= known


def test_every_see_also_of_a_page_exists() -> None:
    names = {f"{page.name}(1)" for page in PAGES} | {"posd.toml(5)", "posd-codes(7)"}
    assert {name for page in PAGES for name in page.see_also} <= names
    mentioned = {name for page in PAGES for name in re.findall(r"posd[a-z.-]*\([157]\)", man_page(page))}
    assert {name for name in mentioned if "\\" not in name} <= names


def test_every_command_has_a_page() -> None:
    assert set(COMMANDS) == {page.path[1] for page in PAGES if len(page.path) == 2}


def test_the_help_has_every_command_in_one_group_with_the_first_sentence_of_its_page() -> None:
    listed = [(name, does) for commands in groups().values() for name, does in commands.items()]
    assert len(dict(listed)) == len(listed)
    assert dict(listed) == {page.path[1]: page.summary for page in PAGES if len(page.path) == 2}, (
        "posd/cli/app/groups.toml must have each command with the first sentence of its docstring"
    )


def test_the_page_of_all_codes_is_generated_from_the_table() -> None:
    assert (ROOT / "docs" / "reference" / "codes.md").read_text(encoding="utf-8") == codes.markdown(), (
        "docs/reference/codes.md differs from posd explain; its head has the command that writes it again"
    )


def test_roff_shows_every_character_unchanged() -> None:
    assert escaped("a\\b -- 'c' …") == r"a\(rsb \-\- \(aqc\(aq \[u2026]"
    assert told(".dotted") == r"\&.dotted"
    assert told("see --note, `posd show` and posd-show(1)") == (
        r"see \fB\-\-note\fR, \fBposd show\fR and \fBposd\-show\fR(1)"
    )


@pytest.fixture(scope="module")
def manual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of man pages, made by the command of the package."""
    directory = tmp_path_factory.mktemp("manual")
    made = subprocess.run(
        [sys.executable, "-m", "manual", "--man", str(directory), "--markdown", str(directory / "commands.md")],
        env=os.environ | {"PYTHONPATH": str(PACKAGING)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (made.returncode, made.stderr) == (0, "")
    return directory


@pytest.mark.slow
def test_the_command_writes_every_page(manual: Path) -> None:
    assert {file.name for file in (manual / "man1").iterdir()} == {f"{page.name}.1" for page in PAGES}
    assert [file.name for file in (manual / "man5").iterdir()] == ["posd.toml.5"]
    assert [file.name for file in (manual / "man7").iterdir()] == ["posd-codes.7"]
    assert (manual / "commands.md").read_text(encoding="utf-8") == markdown(PAGES)


def test_every_key_of_the_configuration_is_on_its_page() -> None:
    example = configuration.EXAMPLE.read_text(encoding="utf-8")
    page = configuration.man_page(example)
    for line in example.splitlines():
        if line and not line.startswith("#"):
            assert escaped(line.strip()) in page
    for word in re.findall(r"[A-Za-z]{5,}", " ".join(line for line in example.splitlines() if line.startswith("#"))):
        assert word in page


@pytest.mark.slow
@needs("groff")
def test_groff_accepts_every_page_without_a_message(manual: Path) -> None:
    for file in sorted(manual.glob("man?/*")):
        done = subprocess.run(
            ["groff", "-man", "-ww", "-Tutf8", "-rLL=80n", str(file)],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, ""), file.name
        shown = re.sub(r"\x1b\[[0-9;]*m|.\x08", "", done.stdout)
        assert max(map(len, shown.splitlines())) <= 80, file.name
        sections = {"NAME", "SYNOPSIS", "DESCRIPTION", "SEE ALSO"}
        if file.suffix == ".1":
            sections |= {"OPTIONS", "EXIT STATUS", "EXAMPLES"}
        assert sections <= set(shown.splitlines()), file.name


@pytest.mark.slow  # groff runs a process for each page
@needs("man")
def test_man_shows_every_page_without_a_warning(manual: Path) -> None:
    environment = os.environ | {"MANWIDTH": "80", "LC_ALL": "C.UTF-8", "MANPAGER": "cat"}
    for file in sorted(manual.glob("man?/*")):
        done = subprocess.run(
            ["man", "--warnings", "-l", str(file)],
            capture_output=True,
            text=True,
            env=environment,
            check=False,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, ""), file.name
