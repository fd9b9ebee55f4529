"""`posd explain`: the meaning of every code of posd, its cause, whether money is at stake, and what to do."""

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby
from typing import NamedTuple

import click
import msgspec
from msgspec.structs import replace

from posd.base import limits
from posd.base.operations import OperationType
from posd.base.problems import PROBLEMS
from posd.base.text import Language, shown
from posd.cli.app.completion_words import offer
from posd.cli.app.connection import json_option
from posd.cli.app.output import Output, Pair
from posd.cli.app.tables import Layout
from posd.cli.explain.catalogue import events, read, say
from posd.cli.explain.catalogue import language as chosen_language
from posd.cli.payments.words import OperationWords
from posd.payments import display, missing_proof

#: Iterator of codes, each with its texts.
Rows = Iterator[tuple[str, "CodeEntry"]]

#: Kinds of codes whose texts have braces that `OperationWords.fill` fills.
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


class CodeEntry(msgspec.Struct, frozen=True):
    """Texts about a code, in `language`.

    `kind`: kind of the code. `means`: its meaning. `comes`: its cause. `money`: whether money is at stake. `do`: what
    to do, with `commands` in order. `see`: heading in docs/guides/operations.md, or "".
    """

    kind: str
    code: str
    means: str = ""
    comes: str = ""
    money: str = ""
    do: str = ""
    commands: tuple[str, ...] = ()
    see: str = ""
    language: Language = Language.EN

    @property
    def title(self) -> str:
        """The code and its kind."""
        return f"{self.code} ({self.of})"

    @property
    def of(self) -> str:
        """Name of the code's kind."""
        return kinds(self.language)[self.kind].name


class CodeKind(NamedTuple):
    """Kind of codes: its name, and where such codes appear."""

    name: str
    where: str


@cache
def kinds(language: Language = Language.EN) -> Mapping[str, CodeKind]:
    """Return the kinds of codes, in a language."""
    return {kind: CodeKind(**texts) for kind, texts in read(language)["kind"].items()}


def row(section: str, code: str, language: Language) -> CodeEntry:
    """Return the texts about a code in a language. Braces for an operation are filled with the words for a charge."""
    english, found = (read(each).get(section, {}).get(code, {}) for each in (Language.EN, language))
    short = found.get("hint") or found.get("short", "")
    means = found.get("means") or (sentence(short) if short else "")
    do = found.get("do") or found.get("refused", "")
    said = {"means": means, "comes": found.get("comes", ""), "money": found.get("money", ""), "do": do}
    if section in FILLED:
        charge = OperationWords(**read(language)["operation"]["charge"])
        said = {name: charge.fill(text) for name, text in said.items()}
    commands = tuple(line.replace("{id}", "ID") for line in english.get("commands", ()))
    return CodeEntry(section, code, **said, commands=commands, see=english.get("see", ""), language=language)


def _problems(language: Language) -> Rows:
    for code, problem in PROBLEMS.items():
        found = row("problem", code, language)
        if language is Language.EN:
            means, comes = sentence(problem.title), sentence(problem.when)
            found = replace(found, means=means, comes="" if comes == means else comes)
        yield code, found


def _proofs(language: Language) -> Rows:
    told = missing_proof.ProofContext("ID", "SERIAL", settle=60, probes=False, abortable=True)
    money = row("attention", "in_doubt", language).money
    for code in missing_proof.ProofCode:
        found = replace(row("proof", code, language), money=money, see="The payment is in doubt")
        if language is Language.EN:
            found = replace(found, means=sentence(missing_proof.detail(code, told)))
        yield code, found


def _displays(language: Language) -> Rows:
    for code in display.DisplayCode:
        means = sentence(display.text(code, OperationType.CHARGE).of(language, " 11.20"))
        yield code, replace(row("display", code, language), means=means)


def _doubts(language: Language) -> Rows:
    clock = row("check", "clock", language)
    for code, texts in read(language)["doubt"].items():
        yield code, replace(clock, means=texts["means"], comes="")


def _limits(language: Language) -> Rows:
    texts = read(language)["limits"]
    for limit in limits.ALL:
        words = {"unit": limit.unit, "of": limit.of, **read(language)["limit"][limit.name]}
        words["count"] = f"{limit.value:,}" if language is Language.EN else str(limit.value)
        words["answer"] = words["answer"].replace("`", "")
        megabytes = f"{limit.value // limits.MIB} MiB{words['unit'].removeprefix('bytes')}"
        words["much"] = megabytes if words["unit"].startswith("bytes") else f"{words['count']} {words['unit']}"
        of_disk = limit in _OF_DISK
        section, code = ("limits", "terminal") if limit in _OF_TERMINALS else ("problem", "limit_reached")
        found = row("problem", "storage_unavailable", language) if of_disk else row(section, code, language)
        said = texts["least" if of_disk else "most"]
        means, comes = (said[field].format(**words) for field in ("means", "comes"))
        yield limit.name, replace(found, means=means, comes=comes, money=texts["any"]["money"])


def _events(language: Language) -> Rows:
    stakes, level = read(language)["event_money"], read(language)["event_level"]
    for code, event in events().items():
        found = row("event", code, language)
        severe = {"warning", "error"} & set(event.levels)
        family = code.partition(".")[0] if severe else "none"
        money = stakes.get(code if severe else family) or stakes[family]
        levels = f" {level['or']} ".join(event.levels)
        means = level["means"].format(levels=levels, says=_named(found.means))
        yield code, replace(found, means=means, money=money)


def _named(says: str) -> str:
    """Return the sentence of a log event with its field names in capitals and without its optional parts."""
    return _FIELD.sub(lambda field: field[1].upper(), _OPTIONAL.sub("", says))


def sentence(text: str) -> str:
    """Return a text of another table as a whole sentence, without Markdown marks."""
    plain = text.replace("`", "")
    first = plain.partition(" ")[0]
    if first == "posd" or "_" in first:  # a name may begin with a small letter
        return plain + "."
    return plain[:1].upper() + plain[1:] + ("" if plain.endswith((".", ":", "?", "!")) else ".")


#: Kinds of codes whose texts come partly from another table -> function that yields them.
_DERIVED: Mapping[str, Callable[[Language], Rows]] = {
    "problem": _problems,
    "proof": _proofs,
    "display": _displays,
    "limit": _limits,
    "doubt": _doubts,
    "event": _events,
}


#: Maximum number of codes that are suggested for an unknown one.
MOST_NEAR = 5


def entries(language: Language = Language.EN) -> Iterator[CodeEntry]:
    """Yield every entry, in the order of the kinds. The codes come from the Spanish file, which has all of them."""
    for kind in kinds(language):
        derived = _DERIVED.get(kind)
        rows = derived(language) if derived else ((code, row(kind, code, language)) for code in read(Language.ES)[kind])
        for code, found in rows:
            yield replace(found, kind=kind, code=code)


def find(code: str, language: Language = Language.EN) -> tuple[CodeEntry, ...]:
    """Return the entries of a code, in upper or lower case. Several kinds may have the same code.

    For an unknown code of a terminal, such as TER-999, return the entry of its family.
    """
    typed = code.lower()
    family = typed[: typed.rfind("-") + 1]
    wanted = (typed, family, family.removesuffix("-"))
    every = [entry for entry in entries(language) if entry.code.lower() in wanted]
    found = (tuple(entry for entry in every if entry.code.lower() == name) for name in wanted)
    return next(filter(None, found), ())


def near(code: str) -> list[str]:
    """Return known codes that are similar to an unknown one."""
    known = {entry.code.lower(): entry.code for entry in entries()}
    typed = code.lower().replace("-", "_").replace(" ", "_")
    found = difflib.get_close_matches(typed, known, n=MOST_NEAR, cutoff=0.6)
    found += [name for name in known if len(typed) > 2 and typed in name and name not in found]
    return [known[name] for name in found[:MOST_NEAR]]


# `posd explain`: meaning of a code, its cause, whether money is at stake, and what to do.


def _offered(_ctx: click.Context) -> Iterator[tuple[str, str]]:
    for code, rows in groupby(sorted(entries(), key=lambda entry: entry.code), key=lambda entry: entry.code):
        yield code, ", ".join(entry.of for entry in rows)


@click.command()
@click.argument("codes", nargs=-1, metavar="[CODE]...", shell_complete=offer(_offered))
@json_option
def explain(output: Output, codes: tuple[str, ...]) -> None:
    """Explain what a code means, how it happens, whether money is at stake, and what to do.

    CODE is the code of a problem, an attention, a display, a next step, a result, a check, a limit, a line of the log,
    or another word of posd. Without CODE all codes are listed. The command needs no daemon. The texts are in Spanish if
    the locale is Spanish (LANG=es_EC.UTF-8) or the configuration says `language = "es"`.
    """
    language = chosen_language()
    found = [entry for code in codes for entry in _found(code, language)] if codes else [*entries(language)]
    if output.as_json:
        output.json(msgspec.json.encode(found))
    elif codes:
        for place, entry in enumerate(found):
            if place and not output.rich:
                output.line()
            _show(output, entry)
    else:
        _show_list(output, found)


def _found(code: str, language: Language) -> Sequence[CodeEntry]:
    found = find(code, language)
    if not found:
        meant = near(code)
        raise click.UsageError(say("explain", "meant" if meant else "unknown", code=shown(code), near=", ".join(meant)))
    return found


def _show(output: Output, entry: CodeEntry) -> None:
    """Write one entry."""
    means, comes, money, do, more = read(entry.language)["labels"].values()
    pairs: list[Pair] = [(means, entry.means), (comes, entry.comes), (money, entry.money), (do, entry.do)]
    pairs = [(label, text) for label, text in pairs if text]
    pairs += [("", f"  {command}") for command in entry.commands]
    if entry.see:
        pairs.append((more, f"docs/guides/operations.md: {entry.see}"))
    output.panel(entry.title, pairs, "cyan")


def _show_list(output: Output, found: Sequence[CodeEntry]) -> None:
    """Write all entries: on a terminal a table for each kind, else one line each."""
    if not output.rich:
        output.table(("kind", "code", "means"), [(entry.kind, entry.code, entry.means) for entry in found])
        return
    for _, group in groupby(found, key=lambda entry: entry.kind):
        entries = list(group)
        first, means = entries[0], read(entries[0].language)["labels"]["means"]
        output.line(first.of[:1].upper() + first.of[1:], "bold")
        output.line(kinds(first.language)[first.kind].where, "dim")
        output.table(("code", means), [(one.code, one.means) for one in entries], Layout(whole="code"))
        output.line()
