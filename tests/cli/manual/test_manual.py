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
from posd.cli.app.context import ExitCode
from posd.cli.app.lazy import examples, groups
from posd.cli.explain.command import entries
from posd.cli.main import COMMANDS, main
from tests.rig.command_lines import parse, words_of
from tests.rig.needs import needs
from tests.rig.tables import every

ROOT = Path(__file__).parents[3]
PACKAGING = ROOT / "packaging"
PAGES = pages()


@every("page", PAGES, ids=lambda page: page.name)
def test_a_page_is_complete_and_its_examples_can_be_typed(page: Page) -> None:
    command = " ".join(page.path[1:])
    assert page.summary, f"{page.command}: give the command a docstring"
    assert page.synopsis.startswith(page.command)
    assert page.examples, f"{page.command} has no example: add a row {command!r} to posd/cli/app/examples.toml"
    assert page.exits[0][0] == 0, f"{page.command}: the first exit code of its row in packaging/manual/notes.py is 0"
    assert [code for code, _ in page.exits] == sorted({code for code, _ in page.exits})
    assert [option.typed for option in page.options if not option.help] == [], "give the option a help="
    if len(page.path) > 1:
        name = page.path[1]
        assert name in EXITS, f"add a row {name!r} to EXITS in packaging/manual/notes.py"
        assert any(name in family for family in FAMILIES), f"add {name!r} to a family of FAMILIES, for SEE ALSO"
    for example in page.examples:
        words = words_of(example.line)
        parse(words)
        assert all(part in words for part in page.path[1:]), f"{example.line} is not an example of {page.command}"
    written = CliRunner().invoke(main, [*page.path[1:], "--help"], prog_name="posd").output
    _, _, shown = written.partition("\nExamples:\n")
    typed = [text for example in page.examples for text in (example.does, example.line)]
    assert [line.strip() for line in shown.splitlines()] == typed


#: Commands for developers of tills and for head office. Their help is English in all languages.
ENGLISH = ("demo", "simulate", "openapi", "relay", "collect")


@every(
    "page", [page for page in PAGES if page.path[1:2] not in [(name,) for name in ENGLISH]], ids=lambda page: page.name
)
def test_the_help_has_no_english_sentence_for_a_person_who_reads_spanish(page: Page) -> None:
    arguments = [*page.path[1:], "--help"]
    help_, english = (
        CliRunner().invoke(main, arguments, prog_name="posd", env={"LC_ALL": locale}).output
        for locale in ("es_EC.UTF-8", "C.UTF-8")
    )
    shown = [line for line in help_.splitlines() if "  posd " not in line]
    words = re.compile(r"(?<!\S)(?:the|of|is|are|and|with|for|from|it)(?!\S)", re.IGNORECASE)
    assert [line for line in shown if words.search(line)] == []
    assert [line for line in english.splitlines() if len(line.split()) > 3 and line in shown] == []


def test_a_wrong_example_is_found() -> None:
    for line in ("posd charge 1 --termnal SN-0001", "posd showw ID", "posd list --limit x", "posd tls bake"):
        with pytest.raises(click.UsageError):
            parse(words_of(line))


def test_every_command_has_a_page_and_one_line_in_the_help() -> None:
    assert examples().keys() <= {" ".join(page.path[1:]) for page in PAGES}
    assert set(COMMANDS) == {page.path[1] for page in PAGES if len(page.path) == 2}
    listed = [(name, does) for commands in groups().values() for name, does in commands.items()]
    assert len(dict(listed)) == len(listed)
    assert dict(listed) == {page.path[1]: page.summary for page in PAGES if len(page.path) == 2}, (
        "posd/cli/app/groups.toml must have each command with the first sentence of its docstring"
    )


def test_every_page_named_under_see_also_exists() -> None:
    names = {f"{page.name}(1)" for page in PAGES} | {"posd.toml(5)", "posd-codes(7)"}
    mentioned = {name for page in PAGES for name in re.findall(r"posd[a-z.-]*\([157]\)", man_page(page))}
    assert {name for page in PAGES for name in page.see_also} | {
        name for name in mentioned if "\\" not in name
    } <= names


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


def run(*command: str, **environment: str) -> str:
    """Run a program that must succeed without a message. Return its output."""
    given = os.environ | environment
    done = subprocess.run(command, env=given, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, ""), command
    return done.stdout


@pytest.fixture(scope="module")
def manual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of man pages, made by the command of the package."""
    directory = tmp_path_factory.mktemp("manual")
    files = ("--man", str(directory), "--markdown", str(directory / "commands.md"))
    run(sys.executable, "-m", "manual", *files, PYTHONPATH=str(PACKAGING))
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
        written = run("groff", "-man", "-ww", "-Tutf8", "-rLL=80n", str(file))
        shown = re.sub(r"\x1b\[[0-9;]*m|.\x08", "", written).splitlines()
        assert max(map(len, shown)) <= 80, file.name
        sections = {"NAME", "SYNOPSIS", "DESCRIPTION", "SEE ALSO"}
        if file.suffix == ".1":
            sections |= {"OPTIONS", "EXIT STATUS", "EXAMPLES"}
        assert sections <= set(shown), file.name


# docs/guides/operations.md. The guide has every code. Its commands are valid, and its log lines exist.


#: The text without its blocks of code. `tests.test_examples` parses the commands of the blocks.
GUIDE = re.sub(
    r"^```.*?^```",
    "",
    (ROOT / "docs" / "guides" / "operations.md").read_text(encoding="utf-8"),
    flags=re.MULTILINE | re.DOTALL,
)
SOURCES = "\n".join(
    file.read_text(encoding="utf-8") for pattern in ("*.py", "en.toml") for file in (ROOT / "posd").rglob(pattern)
)

#: Texts in backticks.
CODE = {" ".join(text.split()) for text in re.findall(r"`([^`]+)`", GUIDE)}
#: Name of a log event in the guide. Names of files have the same form.
LOG_EVENT = re.compile(r"`((?:payment|print|posd|webhook|listener|discovery|store|certificate|interfaces)\.[a-z_]+)`")
FILES = frozenset({"posd.db", "posd.socket", "posd.toml"})


#: The source files, each joined into one line.
TEXTS = re.sub(r'"\s*\n\s*f?"', "", SOURCES)
#: Texts in backticks with these beginnings are commands. Other texts of at least three words quote messages of posd.
TYPED = ("posd ", "sudo ", "journalctl ", "systemctl ", "[")
QUOTED = {text for text in CODE if len(text.split()) > 2 and not text.startswith(TYPED)}


def headings() -> dict[str, str]:
    """Return every section, link anchor (as on GitHub) -> text."""
    parts = re.split(r"^#{1,4} (.+)$", GUIDE, flags=re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-"): text
        for title, text in zip(parts[1::2], parts[2::2], strict=True)
    }


def test_the_guide_has_exactly_the_existing_exit_codes() -> None:
    assert set(re.findall(r'<a id="exit-([^"]+)"></a>', GUIDE)) == {str(code.value) for code in ExitCode}


def test_each_code_names_a_heading_of_the_guide() -> None:
    titles = set(re.findall(r"^#+ (.+)$", GUIDE, re.MULTILINE))
    assert {entry.see for entry in entries()} - {""} <= titles


@every("line", sorted(text for text in CODE if text.startswith("posd ")))
def test_every_command_is_valid(line: str) -> None:
    parse(words_of(line))


def test_each_symptom_has_all_its_parts() -> None:
    contents = headings()["what-do-you-see"]  # with links to the tables of codes
    places = [place for place in re.findall(r"^- \[.+\]\(#(.+)\)$", contents, re.MULTILINE) if "every-" not in place]
    parts = ("**You see**", "**The money**", "**Now**")
    assert [(place, part) for place in places for part in parts if part not in headings()[place]] == []


def test_every_named_log_line_exists() -> None:
    named = set(LOG_EVENT.findall(GUIDE)) - FILES
    assert len(named) >= 8
    assert [name for name in named if f'"{name}"' not in SOURCES] == []


@every("text", sorted(QUOTED))
def test_every_quoted_message_exists(text: str) -> None:
    words = text.split()
    run = 3 if len(words) > 5 else 2  # words to find in a row, because a message also has names and numbers
    runs = [" ".join(words[place : place + run]) for place in range(len(words) - run + 1)]
    assert any(each in TEXTS for each in runs), f"posd has no message {text!r}"
