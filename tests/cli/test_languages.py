"""Screens are in one language: each text exists in each language, with the same names in braces."""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Formatter
from typing import Any

import pytest

from posd import cli
from posd.base.negotiation import Language
from posd.cli.explain.catalogue import chosen, read
from tests.cli.processes import posd
from tests.support.tables import every

CLI = Path(str(cli.__file__)).parent
#: Sections of the catalogue that the screens in both languages show, or parts of them.
SCREENS = (("says", "status"), ("says", "payment"), ("says", "doctor"), ("report", "says"), ("report", "standing"))
#: Untranslated texts, and names for English grammar.
SAME, GRAMMAR = {"commands", "status", "refused", "unseen"}, {"whether", "are"}


def flat(tables: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    for name, found in tables.items():
        if isinstance(found, Mapping):
            yield from flat(found, f"{path}{name}.")
        elif name not in SAME:
            yield path + name, found


def fields(text: str) -> set[str]:
    return {name.partition(".")[0] for _, name, _, _ in Formatter().parse(text) if name} - GRAMMAR


def screens(language: Language) -> dict[str, str]:
    words = tomllib.loads((CLI / "explain" / f"{language}.toml").read_text("utf-8"))
    found = {f"{section}.{part}": words[section][part] for section, part in SCREENS} | {"advice": words["advice"]}
    findings = CLI / "doctor" / ("findings.toml" if language is Language.EN else f"findings.{language}.toml")
    return dict(flat(found)) | dict(flat(tomllib.loads(findings.read_text("utf-8"))))


def test_each_text_of_a_screen_is_there_in_each_language_with_the_same_names() -> None:
    english, spanish = screens(Language.EN), screens(Language.ES)
    assert english.keys() == spanish.keys()
    for name, text in english.items():
        if not name.startswith("advice"):  # the Spanish uses "pago" for every operation
            assert fields(text) == fields(spanish[name]), name


@every("locale", ["es_EC.UTF-8", "C.UTF-8"])
def test_the_language_is_that_of_the_locale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locale: str) -> None:
    monkeypatch.setenv("LC_ALL", locale)
    done = posd("status", config=tmp_path / "config.toml", socket=tmp_path / "none")
    assert done.stdout.splitlines()[0] == ("posd: NO ESTÁ EN MARCHA" if locale[:2] == "es" else "posd: DOES NOT RUN")


def test_a_text_that_a_language_lacks_is_english() -> None:
    assert chosen("says")["tls"] == read(Language.EN)["says"]["tls"]
