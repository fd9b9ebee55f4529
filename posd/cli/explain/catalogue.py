"""The catalogue of words, en.toml and es.toml: section -> code -> field -> text.

A text that begins with = is that of this name in [shared].
"""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from posd.base.negotiation import Language


class Advice(NamedTuple):
    """What a person does: in words, and the commands that the words speak of, in their order.

    `{id}` stands for the id of a payment or print job, SERIAL for a terminal's; what else is in capitals is left to the
    person. The other braces are those of `OperationWords.fill`.
    """

    words: str
    commands: tuple[str, ...] = ()


@cache
def read(language: Language) -> Mapping[str, Any]:
    """Return the file of a language."""
    file = tomllib.loads(files(__package__).joinpath(f"{language}.toml").read_text("utf-8"))
    shared = file.pop("shared")

    def resolved(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: resolved(inner) for name, inner in value.items()}
        return shared[value[1:]] if isinstance(value, str) and value.startswith("=") else value

    return {section: resolved(codes) for section, codes in file.items()}


def english(section: str) -> Mapping[str, Any]:
    """Return a section in English."""
    found: Mapping[str, Any] = read(Language.EN)[section]
    return found


def say(command: str, name: str, /, **words: object) -> str:
    """Return what a command says, with its braces filled."""
    template: str = english("says")[command][name]
    return template.format(**words)


def advice(section: str, code: str, field: str = "do") -> Advice | None:
    """Return what to do about a code, None if the section has no such code, or the code no such field."""
    row = english(section).get(code, {})
    return Advice(row[field], tuple(row.get("commands", ()))) if field in row else None
