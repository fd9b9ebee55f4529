"""Arguments of commands (amounts, times, ids, KEY=VALUE), parsed exactly or refused, and the calling user."""

import os
import re
import sys
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import click

from posd.base.files import user_name
from posd.base.ids import ID_RULE, is_print_job_id
from posd.base.text import Language
from posd.base.times import iso
from posd.cli.app.connection import decode
from posd.cli.app.context import ExitCode
from posd.cli.app.output import Output
from posd.cli.app.tables import SHORT_ID
from posd.cli.explain.catalogue import chosen, language, named, say, translate

#: Amount that the API accepts: at most 12 digits before the point and 4 after it.
AMOUNT = re.compile(r"[0-9]{1,12}(\.[0-9]{1,4})?")

_DAYS = {"today": timedelta(0), "yesterday": timedelta(days=1)}
_AGO = re.compile(r"-([0-9]{1,5})(min|m|h|d)")
_UNITS = {"min": timedelta(minutes=1), "m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}
#: Answers to a question in Spanish that mean yes.
YES = ("s", "si", "sí", "y", "yes")
_CLOCK = re.compile(r"[0-2]?[0-9]:[0-5][0-9](:[0-5][0-9])?")


def amount(text: str) -> Decimal:
    """Click type: a decimal amount such as 10, 10.5 or 11.20, kept exactly as written. Raise BadParameter."""
    if not AMOUNT.fullmatch(text):
        raise click.BadParameter(say("parameter", "amount", text=text))
    return Decimal(text)


def moment(text: str) -> str | date:
    """Click type: a day, a time, or how long ago.

    Without a zone, the text is in this machine's time zone. Return a time in the API's format, UTC with milliseconds
    and Z. A day is returned as a date, because only the daemon knows when a day begins. Raise BadParameter.
    """
    now = datetime.now().astimezone()
    if text in _DAYS:
        return (now - _DAYS[text]).date()
    if ago := _AGO.fullmatch(text):
        return iso(now - int(ago[1]) * _UNITS[ago[2]])
    if _CLOCK.fullmatch(text):
        text = f"{now.date()} {text}"
    with suppress(ValueError):
        return date.fromisoformat(text)
    try:
        return iso(datetime.fromisoformat(text))
    except ValueError as error:
        raise click.BadParameter(say("parameter", "time", text=text)) from error


def job_id(text: str) -> str:
    """Click type: the id of a print job. Raise BadParameter."""
    if not is_print_job_id(text):
        raise click.BadParameter(say("parameter", "print_job", text=text, rule=translate(ID_RULE)))
    return text


def pairs(_ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Click callback: parse repeated KEY=VALUE into a dict. Raise BadParameter if '=' is missing."""
    result = {}
    for value in values:
        key, separator, text = value.partition("=")
        if not (key and separator):
            raise click.BadParameter(say("parameter", "pair", text=value), param=parameter)
        result[key] = text
    return result


def json_pairs(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, Any]:
    """Click callback: parse repeated KEY=JSON into a dict, with exact numbers. Raise BadParameter for invalid JSON."""
    result = {}
    for key, text in pairs(ctx, parameter, values).items():
        try:
            result[key] = decode(text)
        except ValueError as error:
            raise click.BadParameter(say("parameter", "json", text=text, key=key), param=parameter) from error
    return result


def amounts(without_tax: Decimal | None, parts: Mapping[str, Decimal | None]) -> dict[str, Decimal]:
    """Return the `amount` of a request from the positional argument `without_tax` and the options `parts`.

    `without_tax`: total of a sale without tax, sent as `subtotal_iva0`. Raise UsageError without an amount, or if a
    part is given twice.
    """
    given = {name: value for name, value in parts.items() if value is not None}
    if without_tax is not None:
        if "subtotal_iva0" in given:
            raise click.UsageError(say("parameter", "twice"))
        given["subtotal_iva0"] = without_tax
    if not given:
        raise click.UsageError(say("parameter", "no_amount"))
    return given


def original_and_amount(words: Sequence[str], reference: uuid.UUID | None) -> tuple[str | None, Decimal | None]:
    """Parse the arguments [ORIGINAL] [AMOUNT]. Exactly one of ORIGINAL and --reference is needed.

    ORIGINAL may be the first characters of an id, which are not resolved here. Raise UsageError if ORIGINAL and
    --reference are both given or both missing. Raise BadParameter for a word that is not an amount.
    """
    first = words[0] if words else ""
    # A word that can be an amount is not read as a short id. Otherwise a refund without ORIGINAL could find a payment
    # by chance.
    named = bool(first) and (whole_uuid(first) is not None or (reference is None and not _is_sum(first)))
    if named == (reference is not None):
        raise click.UsageError(say("parameter", "two_originals" if named else "no_original"))
    rest = words[1:] if named else words
    if len(rest) > 1:
        raise click.UsageError(say("parameter", "too_many", text=rest[1]))
    return first if named else None, amount(rest[0]) if rest else None


def _is_sum(text: str) -> bool:
    return AMOUNT.fullmatch(text) is not None and not (text.isdigit() and len(text) >= SHORT_ID)


def whole_uuid(text: str) -> str | None:
    """Return a UUID in the API's form, or None if the text is not a whole UUID."""
    try:
        return str(uuid.UUID(text))
    except ValueError:
        return None


def check_usage(command: str, **faults: object) -> None:
    """Raise UsageError for the first of `faults` that is true, with its text from [usage]."""
    if (fault := next(filter(faults.get, faults), None)) is not None:
        raise click.UsageError(chosen("usage")[command][fault])


def asks() -> bool:
    """Return whether the user can be asked.

    The text around a question goes to stderr, so that stdout with --json is only JSON.
    """
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(output: Output, question: str, refused: str = "Nothing was changed.") -> None:
    """Ask the user. If the answer is no, write `refused` and exit with NOT_DONE."""
    if not agrees(named(question)):
        output.line(refused)
        sys.exit(ExitCode.NOT_DONE)


def agrees(question: str, *, usually: bool | None = False) -> bool:
    """Ask the user, and return whether the answer is yes, in the language of the question or in English.

    `usually`: the meaning of an empty line. None: ask again.
    """
    if language() is Language.EN:
        return click.confirm(question, default=usually, err=True)
    marks = {True: "[S/n]", False: "[s/N]", None: "[s/n]"}[usually]
    while True:
        typed: str = click.prompt(f"{question} {marks}", default="", show_default=False, err=True)
        if typed.strip() or usually is not None:
            return typed.strip().lower() in YES if typed.strip() else bool(usually)


def caller() -> str:
    """Return the name of the calling user: with sudo the user who called it, else the user of this process."""
    return os.environ.get("SUDO_USER") or user_name(os.getuid())
