"""What a person decides, of a payment or of a print job: who it is, why, and whether it is meant.

A decision carries a name and a note, and posd records the user id of the caller beside them. Where somebody sits at
a terminal, what it is about is shown and the decision asked for again before it is made; a script's call is one
already.
"""

import sys
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

import click

from posd.cli.app.connection import Api, Reply, Unreachable
from posd.cli.app.errors import Failure
from posd.cli.app.exit_codes import ExitCode
from posd.cli.app.output import Output
from posd.cli.app.parameters import caller

Command = TypeVar("Command", bound=Callable[..., Any])


def asks() -> bool:
    """Whether a person can be asked: what is said around a question goes to stderr, so that --json stays JSON."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def _operator(_ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    if not value.strip():
        raise click.BadParameter("say who decides it", param=parameter)
    return value.strip()


def _note(_ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    note = (value or "").strip()
    if not note and not asks():
        raise click.MissingParameter("Say why: it is kept with the decision.", param=parameter)
    return note or None


def signed(command: Command) -> Command:
    """Add --operator, --note and --yes. `note` is None where it is still to be asked for."""
    for option in (
        click.option("--yes", is_flag=True, help="Do not ask whether it is meant."),
        click.option("--note", callback=_note, metavar="TEXT", help="Why; asked for on a terminal, else required."),
        click.option(
            "--operator",
            default=caller,
            show_default="who calls",
            callback=_operator,
            metavar="NAME",
            help="Who decides it.",
        ),
    ):
        command = option(command)
    return command


def agree(
    look: Callable[[Output], None], note: str | None, question: str, *, yes: bool, kept_with: str = "payment"
) -> str:
    """Return the note once the decision is sure; where nobody can be asked, a call is one.

    On a terminal `look` shows what it is about and what the decision means, and `question` asks for it. Leave the
    program with NOT_DONE where the answer is no.
    """
    if note is not None and (yes or not asks()):
        return note
    aside = Output(as_json=False, stream=sys.stderr)
    look(aside)
    while not note:
        note = click.prompt(f"Why (it is kept with the {kept_with})", err=True).strip()
    if not yes and not click.confirm(question, err=True):
        aside.line("Nothing was changed.")
        sys.exit(ExitCode.NOT_DONE)
    return note


def not_open(code: str, identity: str, document: Mapping[str, Any]) -> str:
    """Say that an attention cannot be acknowledged, and which of the payment or print job can be."""
    others = ", ".join(attention["code"] for attention in document["attention"]) or "none"
    return f"cannot acknowledge {code}: it is not open for {identity} (open: {others})"


def refuse(output: Output, why: str) -> NoReturn:
    """Leave the program with NOT_DONE: what is to be decided is not open any more."""
    raise Failure(why, ExitCode.NOT_DONE, output)


def decide(api: Api, output: Output, path: str, see: str, verb: str, body: Mapping[str, str | None]) -> Reply:
    """Make the call on `path`. Raise Problem, or Unreachable after saying that it may have been made (`see` shows)."""
    try:
        reply = api.post(f"{path}/{verb}", body)
    except Unreachable as error:
        if error.sent:
            output.note(f"It may have been done all the same; see:  {see}", "yellow")
        raise
    if output.as_json:
        output.json(reply.raw)
    return reply
