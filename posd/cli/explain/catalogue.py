"""The catalogue of words, en.toml and es.toml: section -> code -> field -> text.

A text that begins with = is that of this name in [shared]. A screen takes each text from the file of the language that
was chosen, and from the English one where that has none.
"""

import os
import tomllib
from collections.abc import Mapping
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import click

from posd.base.negotiation import Language

#: The language of the screens: of this process, chosen once a command.
_chosen = Language.EN


class LogEvent(NamedTuple):
    """What is known of a line that the daemon can log.

    `says` is the line as a sentence with {field}s; a part in [ ] is left out if a field in it is. `do` is the next
    step, or why there is none; every warning and error has it.
    """

    levels: tuple[str, ...]
    fields: tuple[str, ...]
    says: str
    do: str = ""


class Advice(NamedTuple):
    """What a person does: in words, and the commands that the words speak of, in their order.

    `{id}` stands for the id of a payment or print job, SERIAL for a terminal's; what else is in capitals is left to the
    person. The other braces are those of `OperationWords.fill`.
    """

    words: str
    commands: tuple[str, ...] = ()


@cache
def read(language: Language) -> Mapping[str, Any]:
    """Return the texts of a language, the English ones where its file has none."""
    file = tomllib.loads(files(__package__).joinpath(f"{language}.toml").read_text("utf-8"))
    shared = file.pop("shared")

    def resolved(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: resolved(inner) for name, inner in value.items()}
        return shared[value[1:]] if isinstance(value, str) and value.startswith("=") else value

    found = {section: resolved(codes) for section, codes in file.items()}
    return found if language is Language.EN else over(read(Language.EN), found)


def choose(ctx: click.Context) -> Language:
    """Choose the language of a command: Spanish by the locale of the person, else that of the configuration."""
    ctx.call_on_close(partial(_use, Language.EN))
    locale = os.environ.get("LC_ALL") or os.environ.get("LC_MESSAGES") or os.environ.get("LANG") or ""
    if locale.startswith("es"):
        return _use(Language.ES)
    from posd.config import examine

    config, _ = examine(Path(ctx.obj.config_path), check_files=False)
    return _use(Language.EN if config is None else Language(config.local_api.language))


def _use(language: Language) -> Language:
    global _chosen
    _chosen = language
    return language


def language() -> Language:
    """Return the language that was chosen."""
    return _chosen


def chosen(section: str) -> Mapping[str, Any]:
    """Return a section in the language that was chosen."""
    found: Mapping[str, Any] = read(_chosen)[section]
    return found


def over(below: Mapping[str, Any], above: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return tables of texts, with those of another file above them."""
    new = {name: over(below.get(name, {}), one) if isinstance(one, dict) else one for name, one in above.items()}
    return {**below, **new}


def named(word: str) -> str:
    """Return a label or a code of a screen in the language that was chosen, else as it is written."""
    return str(read(_chosen).get("label", {}).get(word, word))


def say(command: str, name: str, /, **words: object) -> str:
    """Return what a command says, with its braces filled."""
    template: str = chosen("says")[command][name]
    return template.format(**words)


def advice(section: str, code: str, field: str = "do") -> Advice | None:
    """Return what to do about a code, None if the section has no such code, or the code no such field."""
    row = chosen(section).get(code, {})
    return Advice(row[field], tuple(row.get("commands", ()))) if field in row else None


@cache
def events() -> Mapping[str, LogEvent]:
    """Return every line that the daemon can log, by the name of its event.

    To add a line: log it with a literal name and keywords (`log.warning("payment.attention", transaction=…)`). Add its
    row to en.toml and es.toml, and a new field to `posd.logs.output.FIELDS`. Write the page again (`python -m
    tests.logs`). A test compares them.
    """
    return {
        event: LogEvent(tuple(row["levels"]), tuple(row["fields"].split()), row["means"], row.get("do", ""))
        for event, row in read(Language.EN)["event"].items()
    }
