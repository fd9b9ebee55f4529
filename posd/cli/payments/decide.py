"""Decisions of an operator on a payment or print job: `posd reconcile`, `release`, `resolve`, `acknowledge`, `abort`.

A decision has the operator's name and a note, and posd records the user id of the caller. On a terminal the command
first shows the payment or print job, and asks for a confirmation. A script needs no confirmation.
"""

import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple, TypedDict, TypeVar, Unpack
from urllib.parse import quote

import click

from posd.base.operations import OperationType
from posd.cli.app import parameters
from posd.cli.app.completion_words import attention_codes, payments
from posd.cli.app.connection import Api, Problem, Unreachable, connect, id_argument, json_option
from posd.cli.app.context import RESULT_CODES, ExitCode, for_transaction
from posd.cli.app.errors import Failure, interruptible
from posd.cli.app.output import Output, aside
from posd.cli.app.parameters import asks, caller, check_usage, confirm
from posd.cli.app.subject import Document, Subject, find, show_attention, terminal_option
from posd.cli.explain.catalogue import chosen, glossed, named, say
from posd.cli.payments.show import PAYMENT, show_outcome, show_what_is_open
from posd.cli.payments.words import next_step, resolving, words_of
from posd.cli.printing import PRINT_JOB

Command = TypeVar("Command", bound=Callable[..., Any])

#: Time-out of a call in seconds. posd's calls to one terminal run one after the other, and this call may have to wait
#: for others. By default each takes 23 s at most.
RECONCILE_SECONDS = 180.0

#: Operation types, for a payment that a restore lost.
TYPES = [kind.value for kind in OperationType]
#: Results with which an operator can resolve a print job.
PRINT_RESULTS = ("COMPLETED", "FAILED")


class Signature(TypedDict):
    """Values of the options that `signed` adds. `note` is None if the command has to ask for it."""

    operator: str
    note: str | None
    yes: bool


def _operator(_ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    if not value.strip():
        raise click.BadParameter("say who decides it", param=parameter)
    return value.strip()


def _note(_ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    note = (value or "").strip()
    if not note and not asks():
        raise click.MissingParameter("Give the reason: it is kept with the decision.", param=parameter)
    return note or None


def signed(command: Command) -> Command:
    """Add the options --operator, --note and --yes to a command."""
    for option in (
        click.option("--yes", is_flag=True, help="Do not ask for confirmation."),
        click.option("--note", callback=_note, metavar="TEXT", help="Reason; if omitted, posd asks."),
        click.option(
            "--operator",
            default=caller,
            show_default="your user",
            callback=_operator,
            metavar="NAME",
            help="Name of the operator who decides.",
        ),
    ):
        command = option(command)
    return command


class Decision(NamedTuple):
    """Decision of an operator. `verb`, `body`: its call. `explain`: function that writes its meaning before `question`.

    `lost`: texts to show if posd has no record of the payment. Empty: a record is required.
    """

    verb: str
    body: Mapping[str, Any]
    question: str
    explain: Callable[[Output, Document], None]
    lost: Sequence[str] = ()


def _decide(
    ctx: click.Context, output: Output, subject: Subject, identity: str, decision: Decision, signature: Signature
) -> Document:
    """Make the call of a decision after a confirmation. Return the changed record.

    Raise Problem or Unreachable. If posd may have read the call although no response arrived, first write that the
    decision may be recorded. Exit with NOT_DONE if the operator does not confirm.
    """
    path = subject.path(identity)
    with connect(ctx) as api:

        def look(beside: Output) -> None:
            if decision.verb != "release":
                api.get("/clock")  # on the till socket, posd refuses this call too: before the question, not after it
            try:
                document = api.get(path).body
            except Problem as problem:
                if problem.status != 404 or not decision.lost:
                    raise
                for text in decision.lost:
                    beside.line(text)
                return
            beside.panel(f"{subject.noun(document)} {identity}", subject.summary(document), "cyan")
            decision.explain(beside, document)

        note = _agreed(look, decision.question, subject.word, signature)
        body = {**decision.body, "operator": signature["operator"], "note": note}
        try:
            reply = api.post(f"{path}/{decision.verb}", body)
        except Unreachable as error:
            if error.sent:
                see = chosen("subject")[subject.word.replace(" ", "_")]["see"].format(id=identity)
                output.note(chosen("decide")["perhaps_done"].format(see=see), "yellow")
            raise
    output.json(reply.raw)
    document: Document = reply.body
    return document


def _agreed(look: Callable[[Output], None], question: str, word: str, signature: Signature) -> str:
    """Ask for the missing note and for the confirmation of a decision, if the user can be asked. Return the note.

    `look`: function that shows the payment or print job, and the meaning of the decision.
    """
    note, yes = signature["note"], signature["yes"]
    if note is not None and (yes or not asks()):
        return note
    beside = aside()
    look(beside)
    while not note:
        note = click.prompt(chosen("decide")["why"].format(word=named(word)), err=True).strip()
    if not yes:
        confirm(beside, question)
    return note


@click.command()
@id_argument
@json_option
@click.pass_context
def reconcile(ctx: click.Context, output: Output, given_id: str) -> None:
    """Ask the terminal now how a payment ended.

    Exit code 0: it is approved. 1: it ended otherwise. 4: it is still open.
    """
    _, transaction_id = find(ctx, output, given_id, PAYMENT)
    with connect(ctx) as api, interruptible(output, chosen("decide")["stopped"].format(id=transaction_id)):
        with output.busy("asking the terminal"):
            reply = api.post(f"/transactions/{transaction_id}/reconcile", seconds=RECONCILE_SECONDS)
        whom = None if output.as_json else _not_the_terminal(api, reply.body)
    transaction = reply.body
    if output.as_json:
        output.json(reply.raw)
        sys.exit(for_transaction(transaction))
    search = transaction["last_search"]
    operation = words_of(transaction)
    came = chosen("search")[whom or search["result"]]["means"] if search else say("payment", "not_asked")
    output.line(operation.fill(came).replace("{terminal}", transaction["terminal"]))
    if transaction["outcome"] is not None:
        show_outcome(output, transaction)
    else:
        output.line(say("payment", "still_open", noun=operation.noun, state=PAYMENT.state(transaction)), "yellow")
        if transaction["next_step"] != "ask_person":  # otherwise the advice below says it
            output.line(say("payment", "next", words=next_step(transaction).words))
    show_what_is_open(output, transaction)
    sys.exit(for_transaction(transaction))


def _not_the_terminal(api: Api, transaction: Document) -> str | None:
    """Return a code if the last search may not have reached the terminal, else None."""
    search = transaction["last_search"]
    if transaction["outcome"] is not None or search is None or search["result"] == "found":
        return None
    try:
        terminal = api.get(f"/terminals/{quote(transaction['terminal'], safe='')}").body
    except Problem as problem:
        return "not_there" if problem.code == "not_found" else None
    except Unreachable:
        return None  # the result of the search is shown all the same
    return "perhaps_another" if search["result"] == "none" and terminal["identity"]["conflict"] else None


@click.command()
@id_argument
@signed
@json_option
@click.pass_context
def release(ctx: click.Context, output: Output, given_id: str, **signature: Unpack[Signature]) -> None:
    """Free the terminal of a payment that will not end.

    This does not decide how the payment ends, or whether the customer was charged: the payment stays open.
    """
    _, transaction_id = find(ctx, output, given_id, PAYMENT)

    def explain(beside: Output, transaction: Document) -> None:
        _check_open(output, PAYMENT, transaction, "release")
        beside.line(words_of(transaction).fill(chosen("decide")["release"]))
        _warn_running(beside, transaction)

    said = chosen("decide")
    decision = Decision("release", {}, said["free"].format(id=transaction_id), explain)
    transaction = _decide(ctx, output, PAYMENT, transaction_id, decision, signature)
    whether = words_of(transaction).whether.capitalize()
    output.line(said["freed"].format(terminal=transaction["terminal"], whether=whether))
    show_attention(output, PAYMENT, transaction)


@click.command()
@click.argument("identity", metavar="ID", shell_complete=payments("open=true", jobs="open=true"))
@click.argument("result", metavar="RESULT", type=click.Choice([*RESULT_CODES, *PRINT_RESULTS]))
@click.option("--reference", type=click.UUID, metavar="UUID", help="The acquirer's reference, if approved.")
@click.option(
    "--amount", type=parameters.amount, metavar="AMOUNT", help="For a payment that a restore lost: its sum, with tax."
)
@terminal_option
@click.option("--type", "kind", type=click.Choice(TYPES), help="For a lost payment: its type; charge if omitted.")
@click.option("--original", type=click.UUID, metavar="UUID", help="For a lost payment: the id of its original.")
@click.option("--sale", metavar="KEY", help="For a lost payment: the till's key of the sale.")
@signed
@json_option
@click.pass_context
def resolve(
    ctx: click.Context,
    output: Output,
    identity: str,
    result: str,
    reference: uuid.UUID | None,
    amount: Decimal | None,
    terminal: str | None,
    kind: str | None,
    original: uuid.UUID | None,
    sale: str | None,
    **signature: Unpack[Signature],
) -> None:
    """Record how an open payment or print job ended, or a payment that a restore lost.

    RESULT of a payment is approved (it was done: the customer was charged, the amount reserved, the original reversed),
    or declined, rejected, canceled or not_started (it was not done). RESULT of a print job is COMPLETED or FAILED.

    With --amount and --terminal it records a payment that a restore lost, as the slip, the terminal or the bank shows
    it. posd then answers the till's call from this record.
    """
    facts = {
        "amount": None if amount is None else {"subtotal_iva0": amount},
        "terminal": terminal,
        "type": kind,
        "original": original and str(original),
        "sale": sale,
    }
    body: dict[str, Any] = {"result": result, **{name: value for name, value in facts.items() if value is not None}}
    check_usage(
        "resolve",
        reference=reference is not None and result != "approved",
        no_yes=result in RESULT_CODES and not signature["yes"] and not asks(),
        of_payments=result in PRINT_RESULTS and len(body) > 1,
    )
    subject, identity = find(ctx, output, identity, PRINT_JOB if result in PRINT_RESULTS else PAYMENT)
    if subject is PAYMENT:
        body["transaction_reference"] = None if reference is None else str(reference)

    said = chosen("decide")

    def explain(beside: Output, document: Document) -> None:
        _check_open(output, subject, document, "resolve")
        if subject is PRINT_JOB:
            beside.line(said["resolve_print"].format(does=said[result]))
            return
        beside.line(said["resolve"].format(does=resolving(result, document)))
        if result == "approved" and reference is None and words_of(document).followed_by:
            beside.line(words_of(document).fill(said["without_reference"]), "yellow")
        _warn_running(beside, document)

    draft = {"client_transaction_id": identity, "type": kind or "charge"}
    does = resolving(result, draft) if result in RESULT_CODES else ""
    lost = () if amount is None else (said["lost"], said["resolve"].format(does=does))
    question = said["book"].format(id=identity, result=glossed(result))
    document = _decide(ctx, output, subject, identity, Decision("resolve", body, question, explain, lost), signature)
    if not output.as_json:
        subject.show_end(output, document)
        show_attention(output, subject, document)


@click.command()
@click.argument("identity", metavar="ID", shell_complete=payments("attention=true", jobs="attention=true"))
@click.argument("code", shell_complete=attention_codes)
@click.option("--print-job", is_flag=True, hidden=True)  # old option: `find` asks posd which kind of id it is
@signed
@json_option
@click.pass_context
def acknowledge(
    ctx: click.Context, output: Output, identity: str, code: str, print_job: bool, **signature: Unpack[Signature]
) -> None:
    """Clear one attention of a payment or print job that an operator has checked.

    CODE is the code of the attention, as posd list --attention shows it, of print jobs with --print-jobs.
    """
    subject, identity = find(ctx, output, identity, *([] if print_job else [PAYMENT]), PRINT_JOB)
    said = chosen("decide")

    def explain(beside: Output, document: Document) -> None:
        found = [attention for attention in document["attention"] if attention["code"] == code]
        if not found:
            others = ", ".join(attention["code"] for attention in document["attention"]) or named("none")
            why = said["not_there"].format(code=code, id=identity, others=others)
            raise Failure(why, ExitCode.NOT_DONE, output)
        show_attention(beside, subject, {**document, "attention": found})
        beside.line(said["acknowledge"].format(code=code, noun=subject.noun(document)))

    decision = Decision("acknowledge", {"code": code}, said["clear"].format(code=code), explain)
    document = _decide(ctx, output, subject, identity, decision, signature)
    output.line(said["cleared"].format(code=code))
    show_attention(output, subject, document)


def _check_open(output: Output, subject: Subject, document: Document, verb: str) -> None:
    """Raise Failure (NOT_DONE) if the payment or print job has ended, because then there is nothing to decide."""
    if document["phase"] == "final":
        why = chosen("decide")["ended"].format(verb=verb, state=named(subject.state(document)))
        raise Failure(why, ExitCode.NOT_DONE, output)


def _warn_running(beside: Output, transaction: Document) -> None:
    if transaction["abortable"]:
        beside.line(words_of(transaction).fill(chosen("decide")["may_run"]), "yellow")
        beside.line(f"posd abort {transaction['client_transaction_id']}", indent=4)


@click.command()
@id_argument
@json_option
@click.pass_context
def abort(ctx: click.Context, output: Output, given_id: str) -> None:
    """Ask the terminal to abort a payment.

    An abort is a request: the customer may have been faster. So wait for the outcome afterwards.
    """
    _, transaction_id = find(ctx, output, given_id, PAYMENT)
    with connect(ctx) as api:
        reply = api.post(f"/transactions/{transaction_id}/abort")
    output.json(reply.raw)
    output.line(chosen("decide")["abort_asked"])
    output.line(chosen("decide")["its_outcome"].format(id=transaction_id))
