"""The table of `posd explain`: every code that posd can show, collected from the tables that say what they mean.

A test holds it against the code: each code that there is has a row, and each row is of a code that there is.
"""

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from posd.base import limits, problems
from posd.base.negotiation import Language
from posd.cli.app.advice import ATTENTION_ADVICE, NEXT_STEPS, Advice
from posd.cli.explain import spanish, texts
from posd.cli.explain.texts import Text
from posd.cli.payments.words import EVIDENCE, OPERATIONS, RESULTS, STATUS_HINTS
from posd.cli.printing.progress import ATTENTION_ADVICE as PRINT_ADVICE
from posd.logs import events
from posd.payments import display, missing_proof
from posd.payments.model import OperationType

#: The codes of one kind stand for one thing: what they are, in words, and where they are seen.
KINDS: Mapping[str, tuple[str, str]] = {
    "problem": ("problem", "posd refuses a call: the answer to a till, and the message of a command."),
    "attention": ("attention of a payment", "What a person should look at: posd list --attention, posd show ID."),
    "print": ("attention of a print job", "What a person should look at: posd print-jobs --attention."),
    "proof": (
        "missing proof",
        "What would have to be seen to know that a payment in doubt never started: posd show ID.",
    ),
    "display": ("display", "What a till may show to its cashier."),
    "next": ("next step", "What the till does now (next_step)."),
    "result": ("result", "How a payment ended."),
    "phase": ("phase", "Where a payment or a print job stands."),
    "status": ("state of the terminal", "What the terminal said last of a payment (status)."),
    "evidence": ("evidence", "What an outcome rests on."),
    "failure": (
        "failure reason",
        "Why a payment did not start, where posd itself says so (failure_reason, type posd).",
    ),
    "simulated": (
        "failure reason of the simulated terminal",
        "Those of a real terminal are its own and the acquirer's: what they mean is in their documents.",
    ),
    "health": ("health", "The first line of posd status."),
    "check": ("health check", "A line of posd status."),
    "doctor": ("check of posd doctor", "A finding of posd doctor."),
    "limit": ("limit", "What one sender can make posd hold: limit_reached, limit.reached, posd_limit_reached_total."),
    "refused": ("refusal of the listener", "What the listener on the LAN refused: the log event listener.refused."),
    "doubt": ("doubt of the clock", "Why the clock of this machine is not believed: posd clock."),
    "event": ("log event", "A line of the log: posd logs."),
}

#: How many codes are named to one who has typed an unknown one.
MOST_NEAR = 5

_OPTIONAL = re.compile(r"\[[^][]*\]")
_FIELD = re.compile(r"{(\w+)}")


class Entry(msgspec.Struct, frozen=True):
    """What is said of one code; `language` is that of its texts. See `texts.Text`."""

    kind: str
    code: str
    means: str
    comes: str
    money: str
    do: str
    commands: tuple[str, ...]
    see: str
    language: str = "en"

    @property
    def title(self) -> str:
        """The code, and what it is a code of."""
        return f"{self.code} ({self.of})"

    @property
    def of(self) -> str:
        """What it is a code of."""
        return spanish.KINDS[self.kind] if self.language == Language.ES else KINDS[self.kind][0]


class Near(NamedTuple):
    """The codes that one may have meant."""

    codes: tuple[str, ...]

    def __str__(self) -> str:
        return f"; did you mean {' or '.join(self.codes)}?" if self.codes else ""


def entries(language: Language = Language.EN) -> Iterator[Entry]:
    """Yield every entry, in the order of the kinds; what is not translated is in English."""
    for kind, rows in _KINDS.items():
        for code, text in rows():
            if language is Language.ES and kind in spanish.TEXTS:
                words = spanish.TEXTS[kind][code]._replace(commands=text.commands, see=text.see)
                if kind == "display":
                    words = words._replace(means=_shown(code, language))
                yield Entry(kind, code, *words, language="es")
            else:
                yield Entry(kind, code, *text)


def find(code: str, language: Language = Language.EN) -> tuple[Entry, ...]:
    """Return what there is of a code, in any case of its letters: one that several kinds have is several entries."""
    return tuple(entry for entry in entries(language) if entry.code.lower() == code.lower())


def near(code: str) -> Near:
    """Return the codes that one who typed an unknown one may have meant."""
    known = {entry.code.lower(): entry.code for entry in entries()}
    typed = code.lower().replace("-", "_").replace(" ", "_")
    found = difflib.get_close_matches(typed, known, n=MOST_NEAR, cutoff=0.6)
    found += [name for name in known if len(typed) > 2 and typed in name and name not in found]
    return Near(tuple(known[name] for name in found[:MOST_NEAR]))


def _problems() -> Iterator[tuple[str, Text]]:
    for code, row in problems.PROBLEMS.items():
        means, comes = _sentence(row.title), _sentence(row.when)
        yield code, texts.PROBLEMS[code]._replace(means=means, comes="" if comes == means else comes)


def _attentions() -> Iterator[tuple[str, Text]]:
    for code, advice in ATTENTION_ADVICE.items():
        words = OPERATIONS["charge"].fill(advice.words)
        yield code, _advised(texts.ATTENTION[code], Advice(words, advice.commands))


def _print_attentions() -> Iterator[tuple[str, Text]]:
    for code, advice in PRINT_ADVICE.items():
        yield code, _advised(texts.PRINT_ATTENTION[code]._replace(money=texts.PRINTS), advice)


def _proofs() -> Iterator[tuple[str, Text]]:
    told = missing_proof.Told("ID", "SERIAL", settle=60, probes=False, abortable=True)
    for code in missing_proof.ProofCode:
        detail = missing_proof.detail(code, told)
        yield (
            code,
            Text(_sentence(detail), money=texts.ATTENTION["in_doubt"].money, see=texts.ATTENTION["in_doubt"].see),
        )


def _displays() -> Iterator[tuple[str, Text]]:
    for code in display.DisplayCode:
        yield code, texts.DISPLAY[code]._replace(means=_shown(code, Language.EN))


def _next_steps() -> Iterator[tuple[str, Text]]:
    for code, words in NEXT_STEPS.items():
        yield code, texts.NEXT_STEPS[code]._replace(do=OPERATIONS["charge"].fill(words))


def _results() -> Iterator[tuple[str, Text]]:
    for code, (_, template) in RESULTS.items():
        yield code, texts.RESULTS[code]._replace(means=OPERATIONS["charge"].fill(template))


def _statuses() -> Iterator[tuple[str, Text]]:
    for code, words in STATUS_HINTS.items():
        if code is not None:
            yield code, texts.STATUS[code]._replace(means=_sentence(words))


def _evidence() -> Iterator[tuple[str, Text]]:
    for code, words in EVIDENCE.items():
        yield code, texts.EVIDENCE[code]._replace(means=_sentence(words))


def _limits() -> Iterator[tuple[str, Text]]:
    found = texts.PROBLEMS["limit_reached"]
    for limit in limits.ALL:
        much = f"{limit.value:,} {limit.unit}"
        if limit.unit.startswith("bytes"):
            much = f"{limit.value // limits.MIB} MiB{limit.unit.removeprefix('bytes')}"
        least = limit in (limits.FREE_FOR_EXTRAS, limits.FREE_FOR_PAYMENTS)
        means = f"At least {much}." if least else f"At most {much} of {limit.of}."
        answer = f"Past it the answer is {limit.answer.replace('`', '')}."
        money = "What is refused is not sent. How a payment ends gets in past it."
        yield limit.name, Text(means, f"{limit.reason} {answer}", money, found.do, found.commands)


def _refusals() -> Iterator[tuple[str, Text]]:
    for code, text in texts.REFUSED.items():
        yield code, text._replace(money=texts.REFUSED_MONEY)


def _doubts() -> Iterator[tuple[str, Text]]:
    for code, means in texts.DOUBTS.items():
        yield code, texts.CHECKS["clock"]._replace(means=means, comes="")


def _events() -> Iterator[tuple[str, Text]]:
    for code, row in events.EVENTS.items():
        says = _FIELD.sub(lambda field: field[1].upper(), _OPTIONAL.sub("", row.says))
        means = f"Level {' or '.join(row.levels)}: {says}."
        severe = {"warning", "error"} & set(row.levels)
        money = texts.EVENTS.get(code) or texts.EVENTS[code.partition(".")[0]] if severe else texts.NO_MONEY
        yield code, Text(means, money=money, do=row.do)


_KINDS = {
    "problem": _problems,
    "attention": _attentions,
    "print": _print_attentions,
    "proof": _proofs,
    "display": _displays,
    "next": _next_steps,
    "result": _results,
    "phase": texts.PHASES.items,
    "status": _statuses,
    "evidence": _evidence,
    "failure": texts.FAILURES.items,
    "simulated": texts.SIMULATED.items,
    "health": texts.HEALTH.items,
    "check": texts.CHECKS.items,
    "doctor": lambda: ((code, text._replace(money=texts.NO_MONEY)) for code, text in texts.DOCTOR.items()),
    "limit": _limits,
    "refused": _refusals,
    "doubt": _doubts,
    "event": _events,
}


def _shown(code: str, language: Language) -> str:
    """Return what a till shows of a charge."""
    words = display.text(display.DisplayCode(code), OperationType.CHARGE)
    return _sentence(words.of(language, " 11.20"))


def _advised(text: Text, advice: Advice) -> Text:
    return text._replace(do=advice.words, commands=tuple(line.replace("{id}", "ID") for line in advice.commands))


def _sentence(words: str) -> str:
    """Write a half sentence of a table as a sentence, without the marks of Markdown."""
    plain = words.replace("`", "")
    first = plain.partition(" ")[0]
    if first == "posd" or "_" in first:  # names are written as they are
        return plain + "."
    return plain[:1].upper() + plain[1:] + ("" if plain.endswith((".", "?")) else ".")
