"""The texts of `posd explain`: en.toml and es.toml. What another table says in English is taken from there.

Spanish is complete. English has what no other table has, and the commands to type.
"""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

from posd.base import limits
from posd.base.negotiation import Language
from posd.base.problems import PROBLEMS
from posd.cli.app.advice import ATTENTION_ADVICE, NEXT_STEPS, REFUSED_STEPS, Advice
from posd.cli.payments.words import EVIDENCE, OPERATIONS, RESULTS, STATUS_HINTS
from posd.cli.printing.progress import ATTENTION_ADVICE as PRINT_ADVICE
from posd.logs.events import EVENTS
from posd.payments import display, missing_proof
from posd.payments.model import OperationType

#: A text in English and in Spanish.
Words = tuple[str, str]
#: Codes, each with what is said of it.
Rows = Iterator[tuple[str, "CodeText"]]

NONE: Final[Words] = ("", "")
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


@cache
def read(language: Language) -> Mapping[str, Any]:
    """Return the file of a language: section -> code -> field -> text."""
    file = tomllib.loads(files(__package__).joinpath(f"{language}.toml").read_text("utf-8"))
    shared = file.pop("shared")

    def resolved(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: resolved(inner) for name, inner in value.items()}
        return shared[value[1:]] if isinstance(value, str) and value.startswith("=") else value

    return {section: resolved(codes) for section, codes in file.items()}


def _section(section: str, code: str, language: Language) -> Mapping[str, Any]:
    found: Mapping[str, Any] = read(language).get(section, {}).get(code, {})
    return found


def words(section: str, code: str, field: str) -> Words:
    """Return a text in both languages, empty where a file has none."""
    english, spanish = (_section(section, code, language).get(field, "") for language in (Language.EN, Language.ES))
    return english, spanish


def row(section: str, code: str) -> CodeText:
    """Return what the files say of a code."""
    means, comes, money, do = (words(section, code, field) for field in CodeText._fields[:4])
    english = _section(section, code, Language.EN)
    return CodeText(means, comes, money, do, tuple(english.get("commands", ())), english.get("see", ""))


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


def _payments() -> Rows:
    for code, advice in ATTENTION_ADVICE.items():
        filled = Advice(OPERATIONS["charge"].fill(advice.words), advice.commands)
        yield code, _advised(row("attention", code), filled)


def _print_jobs() -> Rows:
    for code, advice in PRINT_ADVICE.items():
        yield code, _advised(row("print", code), advice)


def _advised(found: CodeText, advice: Advice) -> CodeText:
    commands = tuple(line.replace("{id}", "ID") for line in advice.commands)
    return found._replace(do=(advice.words, found.do[1]), commands=commands)


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


def _next_steps() -> Rows:
    for code, said in {**NEXT_STEPS, **REFUSED_STEPS, **NEXT_STEPS}.items():
        found = row("next", code)
        yield code, found._replace(do=(OPERATIONS["charge"].fill(said), found.do[1]))


def _results() -> Rows:
    for code, (_, template) in RESULTS.items():
        yield code, _meaning(row("result", code), OPERATIONS["charge"].fill(template))


def _statuses() -> Rows:
    for code, hint in STATUS_HINTS.items():
        if code is not None:
            yield code, _meaning(row("status", code), _sentence(hint))


def _evidence() -> Rows:
    for code, known in EVIDENCE.items():
        yield code, _meaning(row("evidence", code), _sentence(known))


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
        yield code, CodeText(means, money=(english, spanish), do=(event.do, found.do[1]))


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
    "attention": _payments,
    "print": _print_jobs,
    "proof": _proofs,
    "display": _displays,
    "next": _next_steps,
    "result": _results,
    "status": _statuses,
    "evidence": _evidence,
    "limit": _limits,
    "doubt": _doubts,
    "event": _events,
}
