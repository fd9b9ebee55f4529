"""`posd explain`. Each code that posd can show has a text, no other code has a text, and `posd explain` finds typed
codes.
"""

import ast
import functools
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any, get_args

import click
import pytest

import posd as package
from posd.api.documents import Checks
from posd.base import limits
from posd.base.problems import PROBLEMS, StartStep
from posd.base.text import Language
from posd.cli.doctor.command import CHECKS
from posd.cli.explain.catalogue import events, read
from posd.cli.explain.command import CodeEntry, entries, explain, find, kinds, near
from posd.clock.rules import Doubt
from posd.httpd.messages import RefusalKind
from posd.payments.display import DisplayCode
from posd.payments.lifecycle import Status
from posd.payments.missing_proof import ProofCode
from posd.payments.model import AttentionCode, EvidenceKind, NextStep, Result
from posd.printing.model import PrintAttentionCode
from posd.records.model import Phase
from tests.cli.manual.parsing import parse, words_of
from tests.cli.processes import posd
from tests.support.tables import every

#: Events that the daemon can log.
EVENTS = events()

PACKAGE = Path(package.__file__).parent
ENTRIES = list(entries())
SPANISH = list(entries(Language.ES))


def called(path: str, method: str) -> set[str]:
    """Return the first string arguments of calls of a method in the files of a folder."""
    return {
        node.args[0].value
        for file in (PACKAGE / path).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method
        if "noise" in ast.unparse(node.func) and node.args and isinstance(node.args[0], ast.Constant)
    }


def failures(path: str) -> set[tuple[str, str]]:
    """Return the first two arguments of each `Failure` with literal ones in the files of a folder."""
    found = set()
    for file in (PACKAGE / path).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Failure":
                given = [*node.args, *(keyword.value for keyword in node.keywords)]
                if isinstance(given[1], ast.Constant):
                    found.add((ast.unparse(given[0]).strip("'"), given[1].value))
    return found


def terminals() -> set[str]:
    """Return the codes and types of errors that docs/design/terminal-api.md names."""
    page = (PACKAGE.parent / "docs" / "design" / "terminal-api.md").read_text("utf-8")
    section = page.partition("### Refusals")[2].partition("\n## ")[0]
    return {word.replace("…", "") for word in re.findall(r"`([-A-Z0-9_…]+)`", section)}


@functools.cache
def codes() -> dict[str, set[Any]]:
    """Return the existing codes, by kind."""
    return {
        "problem": set(PROBLEMS),
        "attention": set(AttentionCode),
        "print": set(PrintAttentionCode),
        "proof": set(ProofCode),
        "display": set(DisplayCode),
        "next": {*NextStep, *StartStep},
        "result": set(Result),
        "phase": set(Phase),
        "status": set(Status),
        "evidence": set(EvidenceKind),
        "failure": {code for kind, code in failures("payments") if kind == "posd"},
        "terminal": terminals(),
        "simulated": {code for code, _ in failures("simulator")},
        "health": {"ok", "degraded", "failing"},
        "check": set(Checks.__struct_fields__),
        "doctor": set(CHECKS),
        "limit": {limit.name for limit in limits.ALL},
        "refused": called("httpd", "note") | called("api", "note") | set(get_args(RefusalKind)),
        "doubt": set(Doubt),
        "event": set(EVENTS),
    }


@pytest.mark.parametrize(
    ("typed", "code"), [("ter-003", "TER-003"), ("PAR-017", "PAR-"), ("conf-1", "CONF-"), ("acq-77", "ACQ")]
)
def test_a_code_of_a_terminal_without_an_entry_is_explained_by_its_family(typed: str, code: str) -> None:
    assert [entry.code for entry in find(typed)] == [code]


@every("kind", kinds())
def test_exactly_the_existing_codes_are_explained(kind: str) -> None:
    assert codes().keys() == kinds().keys()
    assert codes()[kind], "no code was found"
    found = Counter(entry.code for entry in ENTRIES if entry.kind == kind)
    assert set(found) == {str(code) for code in codes()[kind]}, (
        "add the code to en.toml and es.toml of posd/cli/explain, or remove the code"
    )
    assert max(found.values()) == 1


@every("language", Language)
def test_a_file_of_texts_has_no_code_that_does_not_exist(language: Language) -> None:
    sections = dict(read(language))
    assert set(sections.pop("kind")) == kinds().keys()
    assert set(sections.pop("limits")) == {"any", "terminal", "most", "least"}
    assert set(sections.pop("event_money")) <= {"none", *EVENTS, *(code.partition(".")[0] for code in EVENTS)}
    for kind in codes().keys() & sections.keys():
        assert set(sections[kind]) <= {str(code) for code in codes()[kind]}, kind


@every("entry", (*ENTRIES, *SPANISH), ids=lambda entry: f"{entry.language} {entry.title}")
def test_an_entry_has_its_meaning_the_risk_for_money_and_the_cure(entry: CodeEntry) -> None:
    assert entry.means
    assert entry.money
    for text in (entry.means, entry.comes, entry.money, entry.do):
        assert not re.search(r"[`{}|]", text)
        assert text == text.strip()
        assert not text or text[-1] in ".:?"
    assert entry.do.endswith(":") == bool(entry.commands)
    for command in entry.commands:
        if command.startswith("posd "):
            typed = command.replace("UUID", "ID").replace("RESULT", "approved").replace("AMOUNT", "1")
            parse(words_of(re.sub(r"\bID\b", "7f3c2a10-5b1e-4c6d-9a4f-0d2b8e6c1a55", typed)))


def test_without_a_code_all_codes_are_listed() -> None:
    done = posd("explain")
    assert [line.split("\t")[:2] for line in done.stdout.splitlines()[1:]] == [[e.kind, e.code] for e in ENTRIES]
    assert len(json.loads(posd("explain", "--json").stdout)) == len(ENTRIES)


def test_an_unknown_code_names_the_nearest() -> None:
    done = posd("explain", "in_dubt", "--json")
    assert (done.returncode, json.loads(done.stdout)["exit_code"]) == (2, 2)
    assert "posd has no code in_dubt; did you mean in_doubt?" in done.stderr
    assert near("missing reference")[0] == "missing_reference"
    assert "store.damaged" in near("damaged")
    assert near("zzzz") == []
    assert "\\u001b" in posd("explain", "\x1b[31m").stderr


@pytest.mark.parametrize("language", ["es", "en"])
def test_the_language_comes_from_the_configuration(tmp_path: Path, language: str) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f'[local_api]\nlanguage = "{language}"\n')
    assert posd("explain", "present_card", config=config).stdout.splitlines()[1] == (
        "significa: Presente la tarjeta." if language == "es" else "means: Present the card."
    )


def test_every_english_text_of_a_code_has_a_spanish_text() -> None:
    for english, spanish in zip(ENTRIES, SPANISH, strict=True):
        assert (english.kind, english.code, english.commands) == (spanish.kind, spanish.code, spanish.commands)
        assert spanish.language is Language.ES
        for name in ("means", "comes", "money", "do"):
            there, here = getattr(english, name), getattr(spanish, name)
            assert bool(there) == bool(here), f"{english.title}: {name}"
            assert there != here or not there or there == "No.", f"{english.title}: {name}"
    for name, kind in kinds().items():
        for there, here in zip(kind, kinds(Language.ES)[name], strict=True):
            assert there, name
            assert here not in {"", there}, name


def test_a_shell_is_offered_the_codes() -> None:
    offered = {item.value: item.help for item in explain.params[0].shell_complete(click.Context(explain), "In_d")}
    assert offered == {"in_doubt": "attention of a payment, attention of a print job, phase"}


def test_explain_works_with_a_broken_configuration(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("[local_api\n")
    assert posd("explain", "gap", config=config).returncode == 0
