"""Display of payments: updates during a wait, the end, all data of one (`posd show`), a list (`posd list`).

`posd show` and `posd list` show print jobs too.
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import click

from posd.cli import printing
from posd.cli.app import parameters
from posd.cli.app.completion_words import payments
from posd.cli.app.connection import Api, Problem, connect, json_option
from posd.cli.app.context import RESULT_CODES, for_transaction
from posd.cli.app.outcome import Arrived, CurrentState, Disconnected, Update, follow
from posd.cli.app.output import Output, Pair, asked, inline, money
from posd.cli.app.subject import (
    Progress,
    Subject,
    await_end,
    find,
    list_options,
    show_advice,
    show_attention,
    show_list,
    show_missing_proof,
)
from posd.cli.app.tables import Cells, Id, Layout, Number
from posd.cli.app.times import moment
from posd.cli.explain.catalogue import chosen, glossed, named, say, translate
from posd.cli.payments.words import (
    SETTLED_BY,
    Chain,
    attention_advice,
    evidence_text,
    hint,
    meaning,
    next_step,
    rows,
    settling,
    started,
    state,
    status_hint,
    superseded_text,
    words_of,
)


class PaymentProgress(Progress):
    """Writer of the updates of one transaction. The first document has at least the `type`."""

    def __init__(self, output: Output, transaction: Mapping[str, Any]) -> None:
        super().__init__(output, PAYMENT, transaction)
        self._transaction = transaction
        self._next_step = "wait"

    def show(self, update: Update) -> None:
        """Write the text of one update."""
        match update:
            case Disconnected(reason):
                self.away(reason)
                return
            case Arrived(item):
                self.now(status_hint(item["event"]["status"], self._transaction))
                self.output.line(event_line(item, self.output.moment(item["received_at"])))
            case CurrentState():
                self._snapshot(update.transaction)
        self.back()

    def _snapshot(self, transaction: Mapping[str, Any]) -> None:
        if transaction["phase"] == "final":
            return
        self.show_open(transaction)
        if transaction["next_step"] not in ("wait", self._next_step):
            self.output.line(next_step(transaction).words, "yellow")
        self._next_step = transaction["next_step"]


def event_line(item: Mapping[str, Any], at: str) -> str:
    """Return the line about an item of the API's events: its time, status and details."""
    verdict = "" if item["verdict"] == "applied" else f"({item['verdict']})"
    return "  ".join([at, item["event"]["status"], *filter(None, (event_extra(item["event"]), verdict))])


def event_extra(event: Mapping[str, Any]) -> str:
    """Return how the card was read, or why the payment failed. The text is empty if the event has neither."""
    reason = event.get("failure_reason")
    if isinstance(reason, Mapping):
        return failure_text(reason)
    return str(event.get("reading_type") or "")


def failure_text(reason: Mapping[str, Any]) -> str:
    """Return the text of a `failure_reason`: message, code and source, and the terminal's own error."""
    said = f"{translate(str(reason.get('message')))} ({reason.get('type')} {reason.get('code')})"
    own = reason.get("terminal")
    words = own.get("message") if isinstance(own, Mapping) else None
    return say("payment", "terminal_says", said=said, words=words) if words else said


def outcome_pairs(transaction: Mapping[str, Any], chain: Chain | None = None) -> list[Pair]:
    """Return label and value of each field of a final transaction's outcome that is not empty."""
    outcome = transaction["outcome"]
    following = next_step(transaction, chain)
    receipt = outcome["receipt"] or {}
    reason = outcome["failure_reason"]
    authorized = outcome["authorized_amount"]
    card = " ".join(str(part) for part in (receipt.get("franchise"), receipt.get("card_type")) if part)
    card = ", ".join(filter(None, (card, outcome["reading_type"])))
    fields = {
        "terminal": _ran_on(transaction),
        "authorized": money(authorized) if isinstance(authorized, int | Decimal) else authorized,
        "card": card,
        "authorization": receipt.get("authorization_code"),
        "ticket": outcome["ticket_number"],
        "reference": outcome["transaction_reference"],
        "original": transaction["original"],
        "reason": failure_text(reason) if reason else None,
    }
    pairs = [(label, str(value)) for label, value in fields.items() if value]
    pairs += [("proof", evidence_text(evidence)) for evidence in outcome["evidence"]]
    corrected = outcome["supersedes"]
    while corrected is not None:
        pairs.append(("corrected", superseded_text(corrected)))
        corrected = corrected["supersedes"]
    pairs += [("transaction", transaction["client_transaction_id"]), ("next", following.words)]
    return pairs + [("", command) for command in following.commands]


def _ran_on(transaction: Mapping[str, Any]) -> str:
    """Return the terminal that was asked. If another one ran the payment, return the text about both."""
    meant = str(transaction["terminal"])
    given = (transaction["outcome"]["final_event"] or {}).get("terminal")
    said = str(given.get("serial_number") or meant) if isinstance(given, Mapping) else meant
    return meant if said == meant else translate(f"{said}, though {meant} was asked")


def show_outcome(output: Output, transaction: Mapping[str, Any], chain: Chain | None = None) -> None:
    """Write the end of a transaction: in a frame on a terminal, as lines in a pipe."""
    style, words = meaning(transaction)
    output.panel(transaction["outcome"]["result"], [("result", words), *outcome_pairs(transaction, chain)], style)


def _summary(transaction: Mapping[str, Any]) -> Sequence[Pair]:
    marks = ", ".join(attention["code"] for attention in transaction["attention"])
    pairs = (
        ("terminal", transaction["terminal"]),
        ("original", transaction["original"] or ""),
        ("amount", asked(transaction["amount"])),
        ("created", moment(transaction["created_at"], date=True)),
        ("state", _state(transaction)),
        ("attention", marks),
    )
    return [pair for pair in pairs if pair[1]]


def _state(transaction: Mapping[str, Any]) -> str:
    """Return the state of a transaction, with its age if it should have ended long ago."""
    return ", ".join(filter(None, (named(state(transaction)), started(transaction))))


def show_what_is_open(output: Output, transaction: Mapping[str, Any]) -> None:
    """Write a transaction's attentions, how an operator settles it, and what is missing to settle it.

    The advice on an attention may already say how to settle it.
    """
    show_attention(output, PAYMENT, transaction)
    codes = {attention["code"] for attention in transaction["attention"]}
    if (advice := settling(transaction)) is not None and not codes & SETTLED_BY:
        output.line(say("payment", "to_settle"), "yellow")
        show_advice(output, advice, [PAYMENT.id(transaction)])
    show_missing_proof(output, transaction)


PAYMENT = Subject(
    plural="transactions",
    list="posd list",
    uuids=True,
    key="client_transaction_id",
    word="payment",
    title="transaction",
    noun=lambda transaction: words_of(transaction).noun,
    state=_state,
    hint=hint,
    advice=attention_advice,
    summary=_summary,
    columns={
        "type": lambda transaction: named(transaction["type"] or ""),
        "amount": lambda transaction: Number(asked(transaction["amount"])),
    },
    extra={
        "sale": lambda transaction: transaction["sale"] or "",
        "ticket": lambda transaction: (transaction["outcome"] or {}).get("ticket_number") or "",
        "reference": lambda transaction: (transaction["outcome"] or {}).get("transaction_reference") or "",
        "original": lambda transaction: Id(transaction["original"] or ""),
    },
    show_end=show_outcome,
    exit_code=for_transaction,
    follow=lambda api, reply, deadline: follow(api, reply.body["client_transaction_id"], deadline=deadline),
    progress=PaymentProgress,
)


# Chain of a transaction: the other operations of the same original, as a table.


def read_chain(api: Api, transaction: Mapping[str, Any]) -> tuple[Chain, list[Cells]]:
    """Return the other operations of a transaction's chain, and a row for each. The original is first."""
    found: dict[str, Cells] = {}
    chain: list[Mapping[str, Any]] = []
    waiting = [("original", transaction["original"]), *(("derived", each) for each in transaction["derived"])]
    for relation, identity in waiting:  # the loop appends to `waiting`
        if identity in (None, transaction["client_transaction_id"], *found):
            continue
        try:
            item = api.get(f"/transactions/{identity}").body
        except Problem as problem:
            why = "not known here" if problem.code == "not_found" else problem.detail
            found[identity] = (relation, Id(identity), "-", Number("-"), why, "-")
            continue
        reference, amount = (item["outcome"] or {}).get("transaction_reference") or "-", asked(item["amount"]) or "-"
        found[identity] = relation, Id(identity), item["type"] or "-", Number(amount), named(state(item)), reference
        chain.append(item)
        waiting.append((relation, item["original"]))
        waiting += [("derived" if relation == "derived" else "other", each) for each in item["derived"]]
    return chain, list(found.values())


@click.command()
@click.argument("given_id", metavar="ID", shell_complete=payments("", jobs=""))
@click.option("--history", "only_history", is_flag=True, help="Only the history, in order.")
@json_option
@click.pass_context
def show(ctx: click.Context, output: Output, given_id: str, only_history: bool) -> None:
    """Show everything about a payment or a print job.

    Of a payment, it shows the request and state, the original and the derived payments, the outcome with its evidence,
    the attentions with advice, and the history with the operators. With --json it prints the record alone, or with
    --history its history alone.
    """
    subject, identity = find(ctx, output, given_id, PAYMENT, printing.PRINT_JOB)
    path, show_record = subject.path(identity), show_all if subject is PAYMENT else printing.show_all
    with connect(ctx) as api:
        if output.as_json:
            output.json(api.get(f"{path}/history" if only_history else path).raw)
            return
        show_record(output, api, path, only_history=only_history)


def show_all(output: Output, api: Api, path: str, *, only_history: bool = False) -> None:
    """Write the transaction at a path of the API, or only its history. Raise Problem or Unreachable."""
    transaction = None if only_history else api.get(path).body
    chain, others = read_chain(api, transaction) if transaction else ([], [])
    happened, events = (api.get(f"{path}/{name}").body[name] for name in ("history", "events"))
    if transaction is not None:
        show_transaction(output, transaction, chain, others)
    extras = {item["seq"]: event_extra(item["event"]) for item in events}
    output.table(("time", "what", "details"), rows(happened, extras))


def show_transaction(output: Output, transaction: Mapping[str, Any], chain: Chain, others: Sequence[Cells]) -> None:
    """Write a transaction's fields, chain, outcome, attentions, and what is missing to settle it."""
    output.panel("transaction", transaction_pairs(transaction, chain), "cyan")
    if others:
        columns = ("chain", "transaction", "type", "amount", "state", "reference")
        cells = [(named(str(relation)), *rest) for relation, *rest in others] if output.rich else others
        output.table(columns, cells, Layout(whole="transaction", under="reference"))
    if transaction["outcome"] is not None:
        show_outcome(output, transaction, chain)
    show_what_is_open(output, transaction)


def transaction_pairs(transaction: Mapping[str, Any], chain: Chain | None = None) -> list[Pair]:
    """Return label and text of each field of a transaction that is not empty.

    Chain, outcome, attention and missing proof are omitted, because other tables show them.
    """
    result: list[Pair] = []
    for name, value in transaction.items():
        match name:
            case "outcome" | "attention" | "original" | "derived" | "missing_proof":
                continue
            case "amount" if value:
                text = f"{asked(value)}  ({inline(value)})"
            case "last_search" if value:
                words = chosen("history_by")["search"].get(value["result"], value["result"])
                text = f"{moment(value['at'], date=True)}  {words}"
            case "display":
                text = f"{value['code']}: {value['text']}"
            case "next_step":
                text = f"{value}: {next_step(transaction, chain).words}"
            case "type" | "phase" if value:
                text = glossed(value)
            case "created_at" | "updated_at":
                text = moment(value, date=True)
                if name == "created_at" and (since := started(transaction)).endswith("ago"):
                    text += f"  ({since.removeprefix('started ')})"
            case _:
                text = inline(value)
        if text:
            result.append((name, text))
    return result


@click.command("list")
@click.option("--phase", type=click.Choice(["starting", "in_doubt", "active", "final"]), help="Only this phase.")
@click.option("--result", type=click.Choice(list(RESULT_CODES)), help="Only those with this result.")
@click.option(
    "--since",
    type=parameters.moment,
    metavar="TIME",
    help="From this time on, like 10:42, today or -1h; days are in the merchant's time zone.",
)
@click.option("--until", type=parameters.moment, metavar="TIME", help="Before this time, or this day.")
@list_options
@click.option("--totals", is_flag=True, help="Add the sums of all matches, by type, result and currency.")
@click.option("--print-jobs", "jobs", is_flag=True, help="List print jobs, not payments.")
@json_option
@click.pass_context
def list_(ctx: click.Context, /, output: Output, everything: bool, jobs: bool, **filters: object) -> None:
    """List payments, or print jobs, the newest first."""
    of_payments = map(filters.get, ("phase", "result", "since", "until", "totals"))
    parameters.check_usage("list", of_payments=jobs and any(of_payments))
    show_list(ctx, output, printing.PRINT_JOB if jobs else PAYMENT, filters, everything=everything)


@click.command("print-jobs", hidden=True)
@click.argument("given_id", required=False)
@list_options
@click.option("--wait", is_flag=True)
@json_option
@click.pass_context
def print_jobs(ctx: click.Context, /, output: Output, given_id: str | None, wait: bool, **filters: Any) -> None:
    """List print jobs. Old name of posd list --print-jobs; with ID, of posd show; with --wait, of posd await."""
    if given_id is None:
        ctx.invoke(list_, output=output, jobs=True, **filters)
    elif wait:
        _, identity = find(ctx, output, given_id, printing.PRINT_JOB)
        await_end(ctx, output, printing.PRINT_JOB, {"print_job_id": identity}, None)
    else:
        ctx.invoke(show, output=output, given_id=given_id, only_history=False)
