"""The table of `posd explain`: every code that posd can show, collected from the tables that say what they mean.

A test holds it against the code: each code that there is has a row, and each row is of a code that there is. To add a
code, add its row to the file of its kind in `texts`.
"""

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from posd.base.negotiation import Language
from posd.cli.explain.texts import (
    attention,
    checks,
    displays,
    events,
    failures,
    limits,
    listener,
    problems,
    states,
    terminal_codes,
)
from posd.cli.explain.texts.rows import Row, Words


class Kind(NamedTuple):
    """The codes of one kind stand for one thing: its name, where they are seen, and the rows of the codes."""

    name: Words
    where: Words
    rows: Callable[[], Iterable[tuple[str, Row]]]


KINDS: Mapping[str, Kind] = {
    "problem": Kind(
        ("problem", "problema"),
        (
            "posd refuses a call: the answer to a till, and the message of a command.",
            "posd rechaza una llamada: la respuesta a una caja, y el mensaje de una orden.",
        ),
        problems.rows,
    ),
    "attention": Kind(
        ("attention of a payment", "aviso de un pago"),
        (
            "What a person should look at: posd list --attention, posd show ID.",
            "Lo que una persona debe mirar: posd list --attention, posd show ID.",
        ),
        attention.payments,
    ),
    "print": Kind(
        ("attention of a print job", "aviso de una impresión"),
        (
            "What a person should look at: posd print-jobs --attention.",
            "Lo que una persona debe mirar: posd print-jobs --attention.",
        ),
        attention.print_jobs,
    ),
    "proof": Kind(
        ("missing proof", "prueba que falta"),
        (
            "What would have to be seen to know that a payment in doubt never started: posd show ID.",
            "Lo que habría que ver para saber que un pago en duda nunca empezó: posd show ID.",
        ),
        attention.proofs,
    ),
    "display": Kind(
        ("display", "texto de la caja"),
        ("What a till may show to its cashier.", "Lo que una caja puede mostrar a su cajero."),
        displays.displays,
    ),
    "next": Kind(
        ("next step", "paso siguiente"),
        ("What the till does now (next_step).", "Lo que la caja hace ahora (next_step)."),
        displays.next_steps,
    ),
    "result": Kind(("result", "resultado"), ("How a payment ended.", "Cómo terminó un pago."), states.results),
    "phase": Kind(
        ("phase", "fase"),
        ("Where a payment or a print job stands.", "Dónde está un pago o una impresión."),
        states.PHASES.items,
    ),
    "status": Kind(
        ("state of the terminal", "estado del terminal"),
        (
            "What the terminal said last of a payment (status).",
            "Lo último que dijo el terminal de un pago (status).",
        ),
        states.statuses,
    ),
    "evidence": Kind(
        ("evidence", "prueba"),
        ("What an outcome rests on.", "En qué se apoya un resultado."),
        states.evidence,
    ),
    "failure": Kind(
        ("failure reason", "razón"),
        (
            "Why a payment did not start, where posd itself says so (failure_reason, type posd).",
            "Por qué no empezó un pago, cuando lo dice posd mismo (failure_reason, type posd).",
        ),
        failures.FAILURES.items,
    ),
    "terminal": Kind(
        ("code of a terminal", "código de un terminal"),
        (
            "What a terminal answers to a call or states in an event (failure_reason). Other codes are the acquirer's.",
            "Lo que un terminal responde a una llamada o dice en un evento (failure_reason). Otros son del adquirente.",
        ),
        terminal_codes.ROWS.items,
    ),
    "simulated": Kind(
        ("failure reason of the simulated terminal", "razón del terminal simulado"),
        (
            "Those of a real terminal are its own and the acquirer's: what they mean is in their documents.",
            "Las de un terminal real son suyas y del adquirente: lo que significan está en sus documentos.",
        ),
        failures.SIMULATED.items,
    ),
    "health": Kind(
        ("health", "salud"),
        ("The first line of posd status.", "La primera línea de posd status."),
        checks.HEALTH.items,
    ),
    "check": Kind(
        ("health check", "comprobación de la salud"),
        ("A line of posd status.", "Una línea de posd status."),
        checks.CHECKS.items,
    ),
    "doctor": Kind(
        ("check of posd doctor", "comprobación de posd doctor"),
        ("A finding of posd doctor.", "Un resultado de posd doctor."),
        checks.DOCTOR.items,
    ),
    "limit": Kind(
        ("limit", "límite"),
        (
            "What one sender can make posd hold: limit_reached, limit.reached, posd_limit_reached_total.",
            "Lo que posd acepta de un programa o terminal: limit_reached, limit.reached, posd_limit_reached_total.",
        ),
        limits.rows,
    ),
    "refused": Kind(
        ("refusal of the listener", "rechazo en la red"),
        (
            "What the listener on the LAN refused: the log event listener.refused.",
            "Lo que posd rechazó en la red: el evento del registro listener.refused.",
        ),
        listener.REFUSED.items,
    ),
    "doubt": Kind(
        ("doubt of the clock", "duda del reloj"),
        (
            "Why the clock of this machine is not believed: posd clock.",
            "Por qué no se confía en el reloj de esta máquina: posd clock.",
        ),
        checks.doubts,
    ),
    "event": Kind(
        ("log event", "evento del registro"),
        ("A line of the log: posd logs.", "Una línea del registro: posd logs."),
        events.rows,
    ),
}

#: How many codes are named to one who has typed an unknown one.
MOST_NEAR = 5


class Entry(msgspec.Struct, frozen=True):
    """What is said of one code; `language` is that of its texts. See `texts.rows.Row`."""

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


class Near(NamedTuple):
    """The codes that one may have meant."""

    codes: tuple[str, ...]

    def __str__(self) -> str:
        return f"; did you mean {' or '.join(self.codes)}?" if self.codes else ""


def said(words: Words, language: Language) -> str:
    """Return a text in one language."""
    english, spanish = words
    return spanish if language is Language.ES else english


def entries(language: Language = Language.EN) -> Iterator[Entry]:
    """Yield every entry, in the order of the kinds."""
    for name, kind in KINDS.items():
        for code, row in kind.rows():
            means, comes, money, do = (said(words, language) for words in row[:4])
            yield Entry(name, code, means, comes, money, do, row.commands, row.see, language)


def find(code: str, language: Language = Language.EN) -> tuple[Entry, ...]:
    """Return what there is of a code, in any case of its letters: one that several kinds have is several entries.

    For a code of a terminal that has no entry it is that of its family.
    """
    typed = code.lower()
    family = typed[: typed.rfind("-") + 1]
    wanted = (typed, family, family.removesuffix("-"))
    every = [entry for entry in entries(language) if entry.code.lower() in wanted]
    found = (tuple(entry for entry in every if entry.code.lower() == name) for name in wanted)
    return next(filter(None, found), ())


def near(code: str) -> Near:
    """Return the codes that one who typed an unknown one may have meant."""
    known = {entry.code.lower(): entry.code for entry in entries()}
    typed = code.lower().replace("-", "_").replace(" ", "_")
    found = difflib.get_close_matches(typed, known, n=MOST_NEAR, cutoff=0.6)
    found += [name for name in known if len(typed) > 2 and typed in name and name not in found]
    return Near(tuple(known[name] for name in found[:MOST_NEAR]))
