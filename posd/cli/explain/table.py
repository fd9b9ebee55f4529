"""The table of `posd explain`: every code that posd can show, and what it means, of the catalogue of words.

What a table of the daemon says in English is taken from there. A test holds it against the code: each code that there
is has a row, and each row is of a code that there is. To add a code, add its row to en.toml and es.toml.
"""

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from posd.base import limits
from posd.base.negotiation import Language
from posd.base.problems import PROBLEMS
from posd.cli.explain.catalogue import read
from posd.cli.explain.events import EVENTS
from posd.cli.payments.words import operation
from posd.payments import display, missing_proof
from posd.payments.model import OperationType

#: A text in English and in Spanish.
Words = tuple[str, str]
#: Codes, each with what is said of it.
Rows = Iterator[tuple[str, "CodeText"]]

NONE: Final[Words] = ("", "")
#: The kinds whose English has braces of `OperationWords.fill`.
FILLED = frozenset({"attention", "next", "result"})
_OPTIONAL = re.compile(r"\[[^][]*\]")
_FIELD = re.compile(r"{(\w+)}")

_OF_TERMINALS = (
    limits.EVENTS_OF_TRANSACTION,
    limits.FINALS_OF_TRANSACTION,
    limits.EVENTS_OF_TERMINAL,
    limits.QUARANTINE_OF_TERMINAL,
    limits.QUARANTINE_OF_SUBJECT,
    limits.CALLBACKS_OF_PRINT_JOB,
)
_OF_DISK = (limits.FREE_FOR_EXTRAS, limits.FREE_FOR_PAYMENTS)


class CodeText(NamedTuple):
    """What is said of a code.

    `means`: what it is. `comes`: how it comes about. `money`: whether money is at stake. `do`: what to do, and
    `commands` to type, in their order. `see`: the heading in docs/guides/operations.md, empty where there is none.
    """

    means: Words = NONE
    comes: Words = NONE
    money: Words = NONE
    do: Words = NONE
    commands: tuple[str, ...] = ()
    see: str = ""


def _section(section: str, code: str, language: Language) -> Mapping[str, Any]:
    found: Mapping[str, Any] = read(language).get(section, {}).get(code, {})
    return found


def words(section: str, code: str, field: str) -> Words:
    """Return a text in both languages, empty where a file has none."""
    english, spanish = (_section(section, code, language).get(field, "") for language in (Language.EN, Language.ES))
    return english, spanish


class CodeKind(NamedTuple):
    """The codes of one kind stand for one thing: its name, and where they are seen."""

    name: Words
    where: Words


KINDS: Mapping[str, CodeKind] = {
    kind: CodeKind(words("kind", kind, "name"), words("kind", kind, "where")) for kind in read(Language.ES)["kind"]
}


def row(section: str, code: str) -> CodeText:
    """Return what the files say of a code; the English of what they say of all operations is that of a charge."""
    english = _section(section, code, Language.EN)
    do = english.get("do") or english.get("refused", "")
    short = english.get("hint") or english.get("short", "")
    said = (english.get("means") or _sentence(short), english.get("comes", ""), english.get("money", ""), do)
    filled = (operation("charge").fill(text) if section in FILLED else text for text in said)
    spanish = (words(section, code, field)[1] for field in CodeText._fields[:4])
    means, comes, money, what_to_do = zip(filled, spanish, strict=True)
    commands = tuple(line.replace("{id}", "ID") for line in english.get("commands", ()))
    return CodeText(means, comes, money, what_to_do, commands, english.get("see", ""))


def rows(kind: str) -> Rows:
    """Yield each code of a kind and what is said of it."""
    derived = _DERIVED.get(kind)
    if derived is not None:
        yield from derived()
    else:
        for code in read(Language.ES)[kind]:
            yield code, row(kind, code)


def _problems() -> Rows:
    for code, problem in PROBLEMS.items():
        found, means, comes = row("problem", code), _sentence(problem.title), _sentence(problem.when)
        comes = "" if comes == means else comes
        yield code, found._replace(means=(means, found.means[1]), comes=(comes, found.comes[1]))


def _proofs() -> Rows:
    told = missing_proof.ProofContext("ID", "SERIAL", settle=60, probes=False, abortable=True)
    money = row("attention", "in_doubt").money
    for code in missing_proof.ProofCode:
        found = _meaning(row("proof", code), _sentence(missing_proof.detail(code, told)))
        yield code, found._replace(money=money, see="The payment is in doubt")


def _displays() -> Rows:
    for code in display.DisplayCode:
        said = display.text(code, OperationType.CHARGE)
        english, spanish = (_sentence(said.of(language, " 11.20")) for language in (Language.EN, Language.ES))
        yield code, row("display", code)._replace(means=(english, spanish))


def _doubts() -> Rows:
    clock = row("check", "clock")
    for code in read(Language.ES)["doubt"]:
        yield code, clock._replace(means=words("doubt", code, "means"), comes=NONE)


def _limits() -> Rows:
    for limit in limits.ALL:
        spanish = read(Language.ES)["limit"][limit.name]
        much: Words = (_much(limit, limit.unit, f"{limit.value:,}"), _much(limit, spanish["unit"], str(limit.value)))
        if limit in _OF_DISK:
            found = row("problem", "storage_unavailable")
            means, past = (f"At least {much[0]}.", f"Al menos {much[1]}."), ("With less", "Con menos")
        else:
            found = row("limits", "terminal") if limit in _OF_TERMINALS else row("problem", "limit_reached")
            means = (f"At most {much[0]} of {limit.of}.", f"Como máximo {much[1]} de {spanish['of']}.")
            past = ("Past it", "Pasado el límite,")
        comes = (
            f"{limit.reason} {past[0]} the answer is {limit.answer.replace('`', '')}.",
            f"{spanish['reason']} {past[1]} la respuesta es {spanish['answer']}.",
        )
        yield limit.name, found._replace(means=means, comes=comes, money=words("limits", "any", "money"))


def _much(limit: limits.Limit, unit: str, count: str) -> str:
    if unit.startswith("bytes"):
        return f"{limit.value // limits.MIB} MiB{unit.removeprefix('bytes')}"
    return f"{count} {unit}"


def _events() -> Rows:
    stakes = [read(language)["event_money"] for language in (Language.EN, Language.ES)]
    for code, event in EVENTS.items():
        found = row("event", code)
        means = (
            f"Level {' or '.join(event.levels)}: {_named(event.says)}.",
            f"Nivel {' o '.join(event.levels)}: {_named(found.means[1])}.",
        )
        severe = {"warning", "error"} & set(event.levels)
        family = code.partition(".")[0] if severe else "none"
        english, spanish = (texts.get(code if severe else family) or texts[family] for texts in stakes)
        yield code, found._replace(means=means, money=(english, spanish))


def _named(says: str) -> str:
    """Write a line with the names of its fields in capitals, without the parts that can be left out."""
    return _FIELD.sub(lambda field: field[1].upper(), _OPTIONAL.sub("", says))


def _meaning(found: CodeText, english: str) -> CodeText:
    return found._replace(means=(english, found.means[1]))


def _sentence(text: str) -> str:
    """Write a half sentence of another table as a sentence, without the marks of Markdown."""
    plain = text.replace("`", "")
    first = plain.partition(" ")[0]
    if first == "posd" or "_" in first:  # names are written as they are
        return plain + "."
    return plain[:1].upper() + plain[1:] + ("" if plain.endswith((".", "?")) else ".")


#: The kinds of which another table has a part.
_DERIVED: Mapping[str, Callable[[], Rows]] = {
    "problem": _problems,
    "proof": _proofs,
    "display": _displays,
    "limit": _limits,
    "doubt": _doubts,
    "event": _events,
}


#: How many codes are named to one who has typed an unknown one.
MOST_NEAR = 5


class CodeEntry(msgspec.Struct, frozen=True):
    """What is said of one code; `language` is that of its texts. See `CodeText`."""

    kind: str
    code: str
    means: str
    comes: str
    money: str
    do: str
    commands: tuple[str, ...]
    see: str
    language: Language = Language.EN

    @property
    def title(self) -> str:
        """The code, and what it is a code of."""
        return f"{self.code} ({self.of})"

    @property
    def of(self) -> str:
        """What it is a code of."""
        return said(KINDS[self.kind].name, self.language)


def said(words: Words, language: Language) -> str:
    """Return a text in one language."""
    english, spanish = words
    return spanish if language is Language.ES else english


def entries(language: Language = Language.EN) -> Iterator[CodeEntry]:
    """Yield every entry, in the order of the kinds."""
    for name in KINDS:
        for code, row in rows(name):
            means, comes, money, do = (said(words, language) for words in row[:4])
            yield CodeEntry(name, code, means, comes, money, do, row.commands, row.see, language)


def find(code: str, language: Language = Language.EN) -> tuple[CodeEntry, ...]:
    """Return what there is of a code, in any case of its letters: one that several kinds have is several entries.

    For a code of a terminal that has no entry it is that of its family.
    """
    typed = code.lower()
    family = typed[: typed.rfind("-") + 1]
    wanted = (typed, family, family.removesuffix("-"))
    every = [entry for entry in entries(language) if entry.code.lower() in wanted]
    found = (tuple(entry for entry in every if entry.code.lower() == name) for name in wanted)
    return next(filter(None, found), ())


def near(code: str) -> list[str]:
    """Return the codes that one who typed an unknown one may have meant."""
    known = {entry.code.lower(): entry.code for entry in entries()}
    typed = code.lower().replace("-", "_").replace(" ", "_")
    found = difflib.get_close_matches(typed, known, n=MOST_NEAR, cutoff=0.6)
    found += [name for name in known if len(typed) > 2 and typed in name and name not in found]
    return [known[name] for name in found[:MOST_NEAR]]
