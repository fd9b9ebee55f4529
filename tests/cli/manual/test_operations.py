"""docs/guides/operations.md. The guide has every code. The guide's commands are valid, and its links and log lines
exist.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from posd.cli.app.context import ExitCode
from posd.cli.explain.command import entries
from tests.cli.manual.parsing import FENCED, commands_of, parse, words_of

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "guides" / "operations.md").read_text(encoding="utf-8")
SOURCES = "\n".join(
    file.read_text(encoding="utf-8") for pattern in ("*.py", "en.toml") for file in (ROOT / "posd").rglob(pattern)
)

#: Name of a log event in the guide. Names of files have the same form.
LOG_EVENT = re.compile(r"`((?:payment|print|posd|webhook|listener|discovery|store|certificate|interfaces)\.[a-z_]+)`")
FILES = frozenset({"posd.db", "posd.socket", "posd.toml"})


#: The source files, each joined into one line.
TEXTS = re.sub(r'"\s*\n\s*f?"', "", SOURCES)
#: Texts in backticks with these beginnings are commands. Other texts of at least three words quote messages of posd.
TYPED = ("posd ", "sudo ", "journalctl ", "systemctl ", "[")


def quoted() -> set[str]:
    """Return the messages of posd that the guide quotes."""
    texts = {" ".join(text.split()) for text in re.findall(r"`([^`]+)`", FENCED.sub("", GUIDE))}
    return {text for text in texts if len(text.split()) > 2 and not text.startswith(TYPED)}


def headings() -> dict[str, str]:
    """Return every section, link anchor (as on GitHub) -> text."""
    parts = re.split(r"^#{1,4} (.+)$", FENCED.sub("", GUIDE), flags=re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-"): text
        for title, text in zip(parts[1::2], parts[2::2], strict=True)
    }


def symptoms() -> Iterator[str]:
    """Yield the targets of the table of contents, without the tables of codes."""
    contents = headings()["what-do-you-see"]
    yield from (place for place in re.findall(r"^- \[.+\]\(#(.+)\)$", contents, re.MULTILINE) if "every-" not in place)


def test_the_guide_has_exactly_the_existing_exit_codes() -> None:
    assert set(re.findall(r'<a id="exit-([^"]+)"></a>', GUIDE)) == {str(code.value) for code in ExitCode}


def test_the_see_entry_of_each_code_is_a_heading_of_the_guide() -> None:
    titles = set(re.findall(r"^#+ (.+)$", FENCED.sub("", GUIDE), re.MULTILINE))
    assert {entry.see for entry in entries()} - {""} <= titles


@pytest.mark.parametrize("line", sorted(set(commands_of(GUIDE))))
def test_every_command_is_valid(line: str) -> None:
    parse(words_of(line))


def test_every_link_has_a_target() -> None:
    places = set(headings()) | set(re.findall(r'<a id="([^"]+)">', GUIDE))
    links = re.findall(r"\]\(([^)]+)\)", GUIDE)
    assert len(links) > 60
    for link in links:
        file, _, place = link.partition("#")
        assert not file or (ROOT / "docs" / "guides" / file).is_file(), link
        assert file or place in places, link


@pytest.mark.parametrize("place", list(symptoms()))
def test_a_symptom_has_its_signs_its_meaning_for_money_and_its_cure(place: str) -> None:
    section = headings()[place]
    for part in ("**You see**", "**The money**", "**Now**"):
        assert part in section, f"{place} lacks {part}"


def test_every_named_log_line_exists() -> None:
    named = set(LOG_EVENT.findall(GUIDE)) - FILES
    assert len(named) >= 8
    for name in named:
        assert f'"{name}"' in SOURCES, f"{name} is not a log event of posd"


@pytest.mark.parametrize("text", sorted(quoted()))
def test_every_quoted_message_exists(text: str) -> None:
    words = text.split()
    run = 3 if len(words) > 5 else 2  # number of consecutive words to find; names and numbers are between such parts
    runs = [" ".join(words[place : place + run]) for place in range(len(words) - run + 1)]
    assert any(each in TEXTS for each in runs), f"posd has no message {text!r}"
