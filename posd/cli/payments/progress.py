"""Showing a payment: while it runs each event a line, how it ended, and what differs from a print job."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from posd.cli.app.advice import attention_advice, next_step
from posd.cli.app.exit_codes import for_transaction
from posd.cli.app.output import Output, Pair, asked, moment, money
from posd.cli.app.subject import Progress, Subject
from posd.cli.app.waiting import Arrived, Away, Snapshot, Update, follow
from posd.cli.payments.words import evidence_text, hint, meaning, state, status_hint, superseded_text, words_of


class PaymentProgress(Progress):
    """Writes the updates of one transaction; of its draft the `type` is known at least."""

    def __init__(self, output: Output, transaction: Mapping[str, Any]) -> None:
        super().__init__(output, PAYMENT, transaction)
        self._transaction = transaction
        self._next_step = "wait"

    def show(self, update: Update) -> None:
        """Write what one update of `waiting.follow` says."""
        match update:
            case Away(reason):
                self.away(reason)
                return
            case Arrived(item):
                self.now(status_hint(item["event"]["status"], self._transaction))
                self.output.line(event_line(item))
            case Snapshot():
                self._snapshot(update.transaction)
        self.back()

    def _snapshot(self, transaction: Mapping[str, Any]) -> None:
        if transaction["phase"] == "final":
            return
        self.show_open(transaction)
        if transaction["next_step"] not in ("wait", self._next_step):
            self.output.line(next_step(transaction).words, "yellow")
        self._next_step = transaction["next_step"]


def event_line(item: Mapping[str, Any]) -> str:
    """Write one event of the events resource in a line: time, status, and what else is worth knowing."""
    event = item["event"]
    extras = [event_extra(event)]
    if item["verdict"] != "applied":
        extras.append(f"({item['verdict']})")
    return "  ".join([moment(item["received_at"]), event["status"], *filter(None, extras)])


def event_extra(event: Mapping[str, Any]) -> str:
    """Return how the card was read, or why the payment failed; empty where an event says neither."""
    reason = event.get("failure_reason")
    if isinstance(reason, Mapping):
        return failure_text(reason)
    return str(event.get("reading_type") or "")


def failure_text(reason: Mapping[str, Any]) -> str:
    """Write a `failure_reason`: message, code and where it comes from."""
    return f"{reason.get('message')} ({reason.get('type')} {reason.get('code')})"


def outcome_pairs(transaction: Mapping[str, Any]) -> list[Pair]:
    """Return what to show of a final transaction's outcome, label and value, empty fields left out."""
    outcome = transaction["outcome"]
    following = next_step(transaction)
    receipt = outcome["receipt"] or {}
    reason = outcome["failure_reason"]
    authorized = outcome["authorized_amount"]
    card = " ".join(str(part) for part in (receipt.get("franchise"), receipt.get("card_type")) if part)
    if outcome["reading_type"]:
        card = f"{card}, {outcome['reading_type']}" if card else outcome["reading_type"]
    fields = {
        "terminal": transaction["terminal"],
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


def show_outcome(output: Output, transaction: Mapping[str, Any]) -> None:
    """Write how a transaction ended, in a frame on a terminal and as lines in a pipe."""
    style, words = meaning(transaction)
    output.panel(transaction["outcome"]["result"], [("result", words), *outcome_pairs(transaction)], style)


def _summary(transaction: Mapping[str, Any]) -> Sequence[Pair]:
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


PAYMENT = Subject(
    plural="transactions",
    key="client_transaction_id",
    word="payment",
    title="transaction",
    noun=lambda transaction: words_of(transaction).noun,
    state=state,
    hint=hint,
    advice=attention_advice,
    summary=_summary,
    columns={
        "type": lambda transaction: transaction["type"] or "",
        "amount": lambda transaction: asked(transaction["amount"]),
    },
    show_end=show_outcome,
    exit_code=for_transaction,
    follow=lambda api, reply, deadline: follow(api, reply.body["client_transaction_id"], deadline=deadline),
    progress=PaymentProgress,
    see="posd show {id}",
    started="started on {terminal}: {hint}\nits outcome: posd await {id}",
    may_run="The {noun} may have started, and then it goes on",
    in_doubt="The {noun} may have started, and then it goes on",
    left_open=(
        "  its outcome:  posd await {id}\n"
        "  to stop it:   posd abort {id}\n"
        "Do not start this {noun} again before its outcome is known."
    ),
)
