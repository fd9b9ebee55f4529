"""`posd reconcile`, `release`, `resolve` and `acknowledge`: what a person does about a payment that needs one.

A decision carries a name and a note, and posd records the user id of the caller beside them. Where somebody sits at
a terminal, the payment is shown and the decision asked for again before it is made; a script's call is one already.
"""

import os
import pwd
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import click

from posd.cli.advice import next_step
from posd.cli.api import Api, Reply, Unreachable
from posd.cli.connection import connect, id_argument, json_option
from posd.cli.errors import Failure
from posd.cli.exit_codes import ExitCode, for_transaction
from posd.cli.operations import words_of
from posd.cli.output import Output, asked, moment
from posd.cli.progress import show_attention, show_outcome
from posd.cli.words import RESOLVED_AS, SEARCHES, hint, resolving, state

#: seconds: calls to one terminal are made one after the other, each 23 s at most by default; some may be before ours.
RECONCILE_SECONDS = 180.0

RELEASE_MEANS = (
    "This frees its terminal for other payments. It does not answer {whether}: this {noun} stays open, posd goes on "
    "asking the terminal, and sends no abort for it any more."
)
RESOLVE_MEANS = (
    "This {does}. It rests on your word alone: look at the terminal's journal and the acquirer's records first. If the "
    "terminal says otherwise later, that wins."
)
ACKNOWLEDGE_MEANS = "This takes the mark {code} off the {noun}, and changes nothing else about it."
WITHOUT_REFERENCE = "Without --reference, {followed_by} has to name the acquirer's reference itself."
MAY_RUN = "The terminal may still be running it. Where the customer gave up, stop it first:"

Command = TypeVar("Command", bound=Callable[..., Any])


def asks() -> bool:
    """Whether a person can be asked: what is said around a question goes to stderr, so that --json stays JSON."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def caller() -> str:
    """Return the login name of who calls: the one behind sudo, else that of this process."""
    behind_sudo = os.environ.get("SUDO_USER")
    if behind_sudo:
        return behind_sudo
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"


def _operator(_ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    if not value.strip():
        raise click.BadParameter("say who decides it", param=parameter)
    return value.strip()


def _note(_ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    note = (value or "").strip()
    if not note and not asks():
        raise click.MissingParameter("Say why: it is kept with the payment.", param=parameter)
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


@click.command()
@id_argument
@json_option
@click.pass_context
def reconcile(ctx: click.Context, output: Output, transaction_id: uuid.UUID) -> None:
    """Ask the terminal now how a payment ended.

    Exit code 0 where it is approved, 1 where it ended otherwise, 4 where it is still open.
    """
    with connect(ctx) as api:
        try:
            with output.busy("asking the terminal"):
                reply = api.post(f"/transactions/{transaction_id}/reconcile", seconds=RECONCILE_SECONDS)
        except KeyboardInterrupt:
            output.note(f"Stopped waiting; posd goes on. See what came:  posd show {transaction_id}", "yellow")
            sys.exit(ExitCode.OPEN)
    transaction = reply.body
    if output.as_json:
        output.json(reply.raw)
        sys.exit(for_transaction(transaction))
    search = transaction["last_search"]
    operation = words_of(transaction)
    output.line(operation.fill(SEARCHES[search["result"]]) if search else "The terminal was not asked.")
    if transaction["outcome"] is not None:
        show_outcome(output, transaction)
    else:
        output.line(f"The {operation.noun} is still open ({state(transaction)}): {hint(transaction)}.", "yellow")
        output.line(f"next: {next_step(transaction).words}")
    show_attention(output, transaction)
    sys.exit(for_transaction(transaction))


@click.command()
@id_argument
@signed
@json_option
@click.pass_context
def release(
    ctx: click.Context, output: Output, transaction_id: uuid.UUID, operator: str, note: str | None, yes: bool
) -> None:
    """Free the terminal of a payment that will not end.

    It does not answer how it ends, or whether the customer was charged: the payment stays open.
    """

    def explain(aside: Output, transaction: Mapping[str, Any]) -> None:
        _only_open(output, transaction, "release")
        aside.line(words_of(transaction).fill(RELEASE_MEANS))
        _warn_running(aside, transaction)

    with connect(ctx) as api:
        note = agree(api, transaction_id, note, explain, f"Free the terminal of {transaction_id}?", yes=yes)
        reply = _decide(api, output, transaction_id, "release", {"operator": operator, "note": note})
    whether = words_of(reply.body).whether.capitalize()
    output.line(f"Terminal {reply.body['terminal']} is free. {whether} is still open.")
    show_attention(output, reply.body)


@click.command()
@id_argument
@click.argument("result", metavar="RESULT", type=click.Choice(list(RESOLVED_AS)))
@click.option("--reference", type=click.UUID, metavar="UUID", help="The acquirer's reference (approved only).")
@signed
@json_option
@click.pass_context
def resolve(
    ctx: click.Context,
    output: Output,
    transaction_id: uuid.UUID,
    result: str,
    reference: uuid.UUID | None,
    operator: str,
    note: str | None,
    yes: bool,
) -> None:
    """Say how an open payment ended, when nothing else can.

    RESULT is approved (it was done: the customer was charged, the amount reserved, the original reversed), or declined,
    rejected, canceled or not_started (it was not).
    """
    if reference is not None and result != "approved":
        raise click.UsageError("--reference is the reference of an approval: leave it out, or say approved")

    def explain(aside: Output, transaction: Mapping[str, Any]) -> None:
        _only_open(output, transaction, "resolve")
        operation = words_of(transaction)
        aside.line(RESOLVE_MEANS.format(does=resolving(result, transaction)))
        if result == "approved" and reference is None and operation.followed_by:
            aside.line(operation.fill(WITHOUT_REFERENCE), "yellow")
        _warn_running(aside, transaction)

    body = {
        "result": result,
        "operator": operator,
        "transaction_reference": None if reference is None else str(reference),
    }
    with connect(ctx) as api:
        note = agree(api, transaction_id, note, explain, f"Book {transaction_id} as {result}?", yes=yes)
        reply = _decide(api, output, transaction_id, "resolve", {**body, "note": note})
    if not output.as_json:
        show_outcome(output, reply.body)
        show_attention(output, reply.body)


@click.command()
@id_argument
@click.argument("code")
@signed
@json_option
@click.pass_context
def acknowledge(
    ctx: click.Context,
    output: Output,
    transaction_id: uuid.UUID,
    code: str,
    operator: str,
    note: str | None,
    yes: bool,
) -> None:
    """Clear one attention of a payment that was looked into.

    CODE is the attention's, as posd list --attention shows it.
    """

    def explain(aside: Output, transaction: Mapping[str, Any]) -> None:
        found = [attention for attention in transaction["attention"] if attention["code"] == code]
        if not found:
            others = ", ".join(attention["code"] for attention in transaction["attention"]) or "none"
            _refuse(output, f"cannot acknowledge {code}: it is not open for {transaction_id} (open: {others})")
        show_attention(aside, {**transaction, "attention": found})
        aside.line(ACKNOWLEDGE_MEANS.format(code=code, noun=words_of(transaction).noun))

    with connect(ctx) as api:
        note = agree(api, transaction_id, note, explain, f"Clear {code}?", yes=yes)
        reply = _decide(api, output, transaction_id, "acknowledge", {"code": code, "operator": operator, "note": note})
    output.line(f"{code} is cleared.")
    show_attention(output, reply.body)


def agree(
    api: Api,
    transaction_id: uuid.UUID,
    note: str | None,
    explain: Callable[[Output, Mapping[str, Any]], None],
    question: str,
    *,
    yes: bool,
) -> str:
    """Return the note once the decision is sure; where nobody can be asked, a call is one.

    On a terminal the payment is shown, `explain` says what the decision means, and `question` asks for it. Leave the
    program with NOT_DONE where the answer is no.
    """
    if note is not None and (yes or not asks()):
        return note
    aside = Output(as_json=False, stream=sys.stderr)
    transaction = api.get(f"/transactions/{transaction_id}").body
    aside.panel(f"{words_of(transaction).noun} {transaction_id}", _summary(transaction), "cyan")
    explain(aside, transaction)
    while not note:
        note = click.prompt("Why (it is kept with the payment)", err=True).strip()
    if not yes and not click.confirm(question, err=True):
        aside.line("Nothing was changed.")
        sys.exit(ExitCode.NOT_DONE)
    return note


def _summary(transaction: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    marks = ", ".join(attention["code"] for attention in transaction["attention"])
    pairs = (
        ("terminal", transaction["terminal"]),
        ("original", transaction["original"] or ""),
        ("amount", asked(transaction["amount"])),
        ("created", moment(transaction["created_at"], date=True)),
        ("state", state(transaction)),
        ("attention", marks),
    )
    return [pair for pair in pairs if pair[1]]


def _warn_running(aside: Output, transaction: Mapping[str, Any]) -> None:
    if transaction["abortable"]:
        aside.line(MAY_RUN, "yellow")
        aside.line(f"posd abort {transaction['client_transaction_id']}", indent=4)


def _only_open(output: Output, transaction: Mapping[str, Any], verb: str) -> None:
    if transaction["phase"] == "final":
        _refuse(output, f"cannot {verb} it: it has already ended ({state(transaction)})")


def _refuse(output: Output, why: str) -> NoReturn:
    raise Failure(why, ExitCode.NOT_DONE, output)


def _decide(api: Api, output: Output, transaction_id: uuid.UUID, verb: str, body: Mapping[str, str | None]) -> Reply:
    """Make the call. Raise Problem, or Unreachable after saying that it may have been made."""
    try:
        reply = api.post(f"/transactions/{transaction_id}/{verb}", body)
    except Unreachable as error:
        if error.sent:
            output.note(f"It may have been done all the same; see:  posd show {transaction_id}", "yellow")
        raise
    if output.as_json:
        output.json(reply.raw)
    return reply
