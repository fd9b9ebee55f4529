"""`posd reconcile`, `release`, `resolve` and `acknowledge`: what a person does about a payment that needs one."""

import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from posd.base.ids import canonical_uuid
from posd.cli.app.advice import next_step
from posd.cli.app.completion_words import attention_codes, payments
from posd.cli.app.connection import Api, Reply, connect, id_argument, json_option
from posd.cli.app.decisions import agree, decide, not_open, refuse, signed
from posd.cli.app.exit_codes import ExitCode, for_transaction
from posd.cli.app.output import Output, asked, moment
from posd.cli.payments.progress import show_attention, show_outcome
from posd.cli.payments.words import RESOLVED_AS, SEARCHES, hint, resolving, state, words_of
from posd.cli.printing import deciding
from posd.cli.printing.progress import RESOLVED as PRINT_RESULTS

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
        note = agree(_looking(api, transaction_id, explain), note, f"Free the terminal of {transaction_id}?", yes=yes)
        reply = decide(
            api,
            output,
            f"/transactions/{transaction_id}",
            f"posd show {transaction_id}",
            "release",
            {"operator": operator, "note": note},
        )
    whether = words_of(reply.body).whether.capitalize()
    output.line(f"Terminal {reply.body['terminal']} is free. {whether} is still open.")
    show_attention(output, reply.body)


@click.command()
@click.argument("identity", metavar="ID", shell_complete=payments("open=true", jobs="open=true"))
@click.argument("result", metavar="RESULT", type=click.Choice([*RESOLVED_AS, *PRINT_RESULTS]))
@click.option("--reference", type=click.UUID, metavar="UUID", help="The acquirer's reference (approved only).")
@signed
@json_option
@click.pass_context
def resolve(
    ctx: click.Context,
    output: Output,
    identity: str,
    result: str,
    reference: uuid.UUID | None,
    operator: str,
    note: str | None,
    yes: bool,
) -> None:
    """Say how an open payment or print job ended, when nothing else can.

    RESULT of a payment is approved (it was done: the customer was charged, the amount reserved, the original reversed),
    or declined, rejected, canceled or not_started (it was not); of a print job COMPLETED or FAILED.
    """
    if reference is not None and result != "approved":
        raise click.UsageError("--reference is the reference of an approval: leave it out, or say approved")
    if result in PRINT_RESULTS:
        deciding.resolve(ctx, output, identity, result, operator, note, yes=yes)
        return
    transaction_id: uuid.UUID = click.UUID.convert(identity, None, ctx)

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
        note = agree(_looking(api, transaction_id, explain), note, f"Book {transaction_id} as {result}?", yes=yes)
        reply = decide(
            api,
            output,
            f"/transactions/{transaction_id}",
            f"posd show {transaction_id}",
            "resolve",
            {**body, "note": note},
        )
    if not output.as_json:
        show_outcome(output, reply.body)
        show_attention(output, reply.body)


@click.command()
@click.argument("identity", metavar="ID", shell_complete=payments("attention=true", jobs="attention=true"))
@click.argument("code", shell_complete=attention_codes)
@click.option("--print-job", is_flag=True, help="ID is that of a print job (one that is no UUID always is).")
@signed
@json_option
@click.pass_context
def acknowledge(
    ctx: click.Context,
    output: Output,
    identity: str,
    code: str,
    print_job: bool,
    operator: str,
    note: str | None,
    yes: bool,
) -> None:
    """Clear one attention of a payment or print job that was looked into.

    CODE is the attention's, as posd list --attention or posd print-jobs --attention shows it.
    """
    if print_job or canonical_uuid(identity) is None:
        deciding.acknowledge(ctx, output, identity, code, operator, note, yes=yes)
        return
    transaction_id = uuid.UUID(identity)

    def explain(aside: Output, transaction: Mapping[str, Any]) -> None:
        found = [attention for attention in transaction["attention"] if attention["code"] == code]
        if not found:
            refuse(output, not_open(code, identity, transaction))
        show_attention(aside, {**transaction, "attention": found})
        aside.line(ACKNOWLEDGE_MEANS.format(code=code, noun=words_of(transaction).noun))

    with connect(ctx) as api:
        note = agree(_looking(api, transaction_id, explain), note, f"Clear {code}?", yes=yes)
        reply = decide(
            api,
            output,
            f"/transactions/{transaction_id}",
            f"posd show {transaction_id}",
            "acknowledge",
            {"code": code, "operator": operator, "note": note},
        )
    output.line(f"{code} is cleared.")
    show_attention(output, reply.body)


def _looking(
    api: Api, transaction_id: uuid.UUID, explain: Callable[[Output, Mapping[str, Any]], None]
) -> Callable[[Output], None]:
    """Return what shows the payment, and then by `explain` what the decision means."""

    def look(aside: Output) -> None:
        transaction = api.get(f"/transactions/{transaction_id}").body
        aside.panel(f"{words_of(transaction).noun} {transaction_id}", _summary(transaction), "cyan")
        explain(aside, transaction)

    return look


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
        refuse(output, f"cannot {verb} it: it has already ended ({state(transaction)})")


def _decide(api: Api, output: Output, transaction_id: uuid.UUID, verb: str, body: Mapping[str, str | None]) -> Reply:
    return decide(api, output, f"/transactions/{transaction_id}", f"posd show {transaction_id}", verb, body)


# `posd abort`: asking the terminal to give up what it runs.


@click.command()
@id_argument
@json_option
@click.pass_context
def abort(ctx: click.Context, output: Output, transaction_id: uuid.UUID) -> None:
    """Ask the terminal to abort a payment.

    An abort is a request: the customer may have been faster, so the outcome still has to be awaited.
    """
    with connect(ctx) as api:
        reply = api.post(f"/transactions/{transaction_id}/abort")
    if output.as_json:
        output.json(reply.raw)
    output.line("The terminal was asked to abort. It may still approve: wait for the outcome.")
    output.line(f"its outcome: posd await {transaction_id}")
