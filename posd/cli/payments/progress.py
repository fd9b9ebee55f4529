"""Showing a transaction while it runs: each event a line, and on a terminal a live last line with what to do."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from posd.cli.app.advice import Advice, attention_advice, next_step
from posd.cli.app.output import LiveLine, Output, Pair, moment, money
from posd.cli.app.waiting import Arrived, Away, Snapshot, Update
from posd.cli.payments.words import evidence_text, hint, meaning, status_hint, superseded_text, words_of

GOES_ON = "the {noun} goes on"


class Progress(LiveLine):
    """Writes the updates of one transaction. With --json it writes nothing but a daemon that is away (to stderr).

    `transaction` is what is known of it: its `type` at least.
    """

    def __init__(self, output: Output, transaction: Mapping[str, Any]) -> None:
        super().__init__(output, words_of(transaction).fill(GOES_ON))
        self._transaction = transaction
        self._attention: set[str] = set()
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
        self.now(hint(transaction))
        news = [attention for attention in transaction["attention"] if attention["code"] not in self._attention]
        self._attention |= {attention["code"] for attention in news}
        show_attention(self.output, {**transaction, "attention": news})
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


def show_attention(output: Output, transaction: Mapping[str, Any]) -> None:
    """Write what a person should look at, why, and what to do about it."""
    for attention in transaction["attention"]:
        detail = attention.get("detail")
        output.line(f"attention {attention['code']}" + (f": {detail}" if detail else ""), "yellow")
        show_advice(output, attention_advice(attention["code"], transaction), [transaction["client_transaction_id"]])


def show_advice(output: Output, advice: Advice, transaction_ids: Sequence[str]) -> None:
    """Write what to do about these transactions, and the commands to type."""
    output.line(advice.words, indent=2)
    typed = dict.fromkeys(command.format(id=each) for each in transaction_ids for command in advice.commands)
    for command in typed:
        output.line(command, indent=4)
