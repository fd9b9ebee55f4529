"""Catalogue of words, en.toml and es.toml: section -> code -> field -> text.

A text of the form `=NAME` stands for the text NAME in [shared]. If the file of the chosen language lacks a text, the
English text is used.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from msgspec import structs

from posd.base.operations import OPERATIONS
from posd.base.replies import CallbackResult
from posd.base.text import Language
from posd.cli.app.lazy import speaks_spanish

if TYPE_CHECKING:
    from posd.config import ConfigProblem

#: Language of the texts, chosen once for a command.
_chosen = Language.EN


class LogEvent(NamedTuple):
    """Texts about one log event.

    `says`: the line as a sentence, with {field}s. A part in [ ] is omitted if its field is missing. `do`: what to do,
    or why there is nothing to do. Each warning and error has this text.
    """

    levels: tuple[str, ...]
    fields: tuple[str, ...]
    says: str
    do: str = ""


class Advice(NamedTuple):
    """Advice: what to do as text, and the commands in order.

    `{id}` stands for the id of a payment or print job, and SERIAL for the serial of a terminal. The operator replaces
    other words in capitals. `OperationWords.fill` fills the other braces.
    """

    words: str
    commands: tuple[str, ...] = ()


@cache
def read(language: Language) -> Mapping[str, dict[str, Any]]:
    """Return the texts of a language, with English texts in place of missing ones."""
    file = tomllib.loads(files(__package__).joinpath(f"{language}.toml").read_text("utf-8"))
    shared = file.pop("shared")

    def resolved(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: resolved(inner) for name, inner in value.items()}
        return shared[value[1:]] if isinstance(value, str) and value.startswith("=") else value

    found = {section: resolved(codes) for section, codes in file.items()}
    return found if language is Language.EN else over(read(Language.EN), found)


def choose(ctx: click.Context) -> Language:
    """Set the language of a command: Spanish if the user's locale is Spanish, else that of the configuration."""
    ctx.find_root().call_on_close(partial(use, Language.EN))  # reset it after the command and its error message
    if speaks_spanish():
        return use(Language.ES)
    from posd.config import examine

    config, _ = examine(Path(ctx.obj.config_path), check_files=False)
    return use(Language.EN if config is None else Language(config.local_api.language))


def use(language: Language) -> Language:
    """Set the language of the texts."""
    global _chosen
    _chosen = language
    return language


def language() -> Language:
    """Return the chosen language."""
    return _chosen


def chosen(section: str) -> Mapping[str, Any]:
    """Return a section of the catalogue in the chosen language."""
    return read(_chosen)[section]


def over(below: Mapping[str, Any], above: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the texts of `below`, replaced by those of `above` where both have a text."""
    new = {name: over(below.get(name, {}), one) if isinstance(one, dict) else one for name, one in above.items()}
    return {**below, **new}


def named(word: str) -> str:
    """Return a label, a code or an operation type in the chosen language, or unchanged without a translation."""
    if _chosen is Language.EN:
        return word
    noun = chosen("operation")[word]["noun"] if word in OPERATIONS else word
    return str(chosen("label").get(word, noun))


def translate(text: str) -> str:
    """Return a sentence of posd in the chosen language. Parts without a translation are unchanged.

    An entry of [sentence] has values in braces. A value whose name begins with `reason` is translated as a sentence.
    """
    if _chosen is Language.EN or text in chosen("label"):
        return named(text)
    for pattern, translation in _sentences(_chosen):
        if found := pattern.fullmatch(text):
            values = {
                name: translate(value) if name.startswith("reason") else value
                for name, value in found.groupdict().items()
            }
            return translation.format(**values)
    for mark in (": ", "; "):
        head, found_mark, rest = text.partition(mark)
        if found_mark:
            return translate(head) + mark + translate(rest)
    return text


@cache
def _sentences(language: Language) -> Sequence[tuple[re.Pattern[str], str]]:
    """Return the entries of [sentence] as patterns, with their translations.

    Entries with more fixed text come first.
    """
    found = []
    replies = {row.reason.en: row.reason.es for row in CallbackResult if row.reason.en}
    for english, translation in (replies | read(language)["sentence"]).items():
        parts = list(Formatter().parse(english))
        pattern = "".join(re.escape(fixed) + (f"(?P<{name}>.+?)" if name else "") for fixed, name, _, _ in parts)
        found.append((sum(len(fixed) for fixed, *_ in parts), re.compile(pattern, re.DOTALL), translation))
    return [(pattern, translation) for _, pattern, translation in sorted(found, key=lambda row: -row[0])]


def translated(problem: "ConfigProblem") -> "ConfigProblem":
    """Return a problem of the configuration with its reason and its cure in the chosen language."""
    return structs.replace(problem, reason=translate(problem.reason), cure=translate(problem.cure))


def say(command: str, name: str, /, **words: object) -> str:
    """Return the text `name` of a command in [says], with its braces filled."""
    return str(chosen("says")[command][name]).format(**words)


def explained(section: str, code: str, detail: str) -> str:
    """Return the text about a code: in English the daemon's own `detail`.

    In another language the meaning in the catalogue comes first. The detail follows, unless the entry has `says_all`:
    then the meaning and the payment's fields already say all that the detail does.
    """
    row = {} if _chosen is Language.EN else chosen(section).get(code, {})
    means = row.get("means", "")
    if not means or not detail or row.get("says_all"):
        return means or detail
    return say("status", "detail", comes=means, detail=translate(detail))


def advice(section: str, code: str, field: str = "do") -> Advice | None:
    """Return the advice for a code, or None without such a code or field."""
    row = chosen(section).get(code, {})
    return Advice(row[field], tuple(row.get("commands", ()))) if field in row else None


def glossed(code: str) -> str:
    """Return a code, followed by its translated name in brackets unless the language is English."""
    name = code if _chosen is Language.EN else named(code.replace("_", " "))
    return code if name == code else f"{code} ({name})"


@cache
def events(language: Language = Language.EN) -> Mapping[str, LogEvent]:
    """Return every log event by name.

    To add a line: log it with a literal name and keywords (`log.warning("payment.attention", transaction=…)`). Add its
    row to en.toml and es.toml, and a new field to `posd.logs.output.FIELDS`. Generate the page again
    (`PYTHONPATH=packaging python -m manual --logs docs/reference/logs.md`). A test compares the code with the files.
    """
    return {
        event: LogEvent(tuple(row["levels"]), tuple(row["fields"].split()), row["means"], row.get("do", ""))
        for event, row in read(language)["event"].items()
    }
