"""What the API's words mean to the person at the counter, and what to do, by the catalogue of words."""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import cache
from string import Formatter
from typing import Any, NamedTuple

import msgspec

from posd.base.problems import RemedyStep
from posd.cli.app.output import inline
from posd.cli.app.times import TimeCell, moment, roughly, seconds_since
from posd.cli.explain.catalogue import Advice, advice, chosen, language, say

#: operation types that are known to ask for the card (terminal API, Lifecycle).
WITH_CARD = frozenset({"charge", "pre-auth"})
#: From this age on an open one is shown with it: no customer stands at a terminal for so long. Seconds.
LONG_SECONDS = 900.0
#: outcome's result -> style.
STYLES: Mapping[str, str] = {"approved": "green", "declined": "red", "rejected": "red"}


class OperationWords(NamedTuple):
    """The words of one operation type: what is true of a charge need not be true of a void.

    An approval means that `subject` was `done`; `approved` says it in full, and what it does not mean. `undone` is the
    half sentence for every other end. `followed_by`: what has to name its reference; empty if nothing can.
    `twice`: what to do about two approvals.
    """

    noun: str
    subject: str
    done: str
    approved: str
    undone: str
    twice: str
    followed_by: str = ""

    @property
    def whether(self) -> str:
        """The question that an open one leaves: "whether the customer was charged"."""
        return f"whether {self.subject} was {self.done}"

    @property
    def lack(self) -> str:
        """What an approval without a reference lacks, as a half sentence to add; empty if it lacks nothing."""
        return f", which {self.followed_by} has to name" if self.followed_by else ""

    def fill(self, template: str, **more: str) -> str:
        """Fill the braces of a template: fields of this row, {whether} and {lack}."""
        return template.format(**self._asdict(), whether=self.whether, lack=self.lack, **more)


@cache
def operation(kind: str | None) -> OperationWords:
    """Return the words of an operation type; None and others: of what another database lost, or of a later version."""
    rows = chosen("operation")
    return OperationWords(**rows.get(str(kind), rows["unknown"]))


def words_of(transaction: Mapping[str, Any]) -> OperationWords:
    """Return the words for the type of a transaction."""
    return operation(transaction["type"])


def approval(transaction: Mapping[str, Any]) -> str:
    """Return what the approval of a transaction means, in one or two sentences."""
    if transaction["type"] == "void":
        reversal = transaction["outcome"]["reversal"]
        return str(chosen("reversal").get(reversal or "unknown", f"The original was reversed: {reversal}."))
    return words_of(transaction).approved


def _of_status(field: str, transaction: Mapping[str, Any], status: str | None) -> str:
    """Return a text about a lifecycle state of a transaction, empty if there is none."""
    row = chosen("status").get(str(status), {})
    card = row.get(f"card_{field}") if transaction["type"] in WITH_CARD else None
    return str(card or row.get(field, ""))


def status_hint(status: str | None, transaction: Mapping[str, Any]) -> str:
    """Return what a lifecycle state of a transaction means for the cashier, in one line."""
    if status is None:
        return str(chosen("hint")["asking"])
    return _of_status("hint", transaction, status) or f"the terminal says {status}"


def hint(transaction: Mapping[str, Any]) -> str:
    """Return what happens now in an open transaction and what the cashier can do, in one line."""
    code = "in_doubt" if transaction["phase"] == "in_doubt" else "endless" if endless(transaction) else None
    if code is None:
        return status_hint(transaction["status"], transaction)
    return words_of(transaction).fill(chosen("hint")[code])


def endless(transaction: Mapping[str, Any]) -> bool:
    """Whether the terminal took it and a person has to look at it, so that what the terminal said last is in doubt."""
    return bool(transaction["phase"] == "active" and transaction["next_step"] == "ask_person")


def started(transaction: Mapping[str, Any]) -> str:
    """Return since when one is open for longer than a customer waits: "started 7 days ago"; empty of any other."""
    if transaction["outcome"] is not None:
        return ""
    at = transaction["created_at"]
    seconds = seconds_since(at)
    if seconds < 0:  # one of the two clocks is wrong
        return say("payment", "started_at", at=moment(at, year=True))
    return say("payment", "started_ago", ago=roughly(seconds)) if seconds >= LONG_SECONDS else ""


def state(transaction: Mapping[str, Any]) -> str:
    """Return in a few words where a transaction stands: its result, or what an open one waits for."""
    outcome = transaction["outcome"]
    if outcome is not None:
        return str(outcome["result"])
    phase: str = transaction["phase"]
    status: str | None = transaction["status"]
    if phase != "active":
        return phase.replace("_", " ")
    if endless(transaction):
        return str(chosen("hint")["no_outcome"])
    return _of_status("short", transaction, status) or str(status or phase)


def meaning(transaction: Mapping[str, Any]) -> tuple[str, str]:
    """Return a final transaction's style and what its outcome means, for the customer or for its original."""
    outcome = transaction["outcome"]
    named = words_of(transaction)
    style, row = STYLES.get(outcome["result"], "yellow"), chosen("result").get(outcome["result"], {})
    words = named._replace(approved=approval(transaction)).fill(row.get("means", ""))
    if any(evidence["kind"] == "operator" for evidence in outcome["evidence"]):
        return style, f"By a person's word: {words}"
    if outcome["result"] == "approved" or outcome["reached_acquirer"] is not None:
        return style, words
    return "yellow", named.fill(chosen("hint")["uncertain"])


def resolving(result: str, transaction: Mapping[str, Any]) -> str:
    """Return what it means to resolve a transaction as that result, as a half sentence."""
    template = chosen("decide")["approved" if result == "approved" else "undone"]
    return words_of(transaction).fill(template, books=chosen("result")[result]["books"])


#: kind of an entry of the history -> the field whose value says what happened.
BY_FIELD: Mapping[str, str] = {
    "attempt": "judgement",
    "search": "result",
    "abort_answered": "answer",
    "interrupted": "in_line",
}


#: fields that have a column of their own, or number the entry for programs.
NOT_DETAILS = frozenset({"at", "kind", "seq"})


def rows(history: Iterable[Mapping[str, Any]], events: Mapping[int, str]) -> list[tuple[TimeCell, str, str]]:
    """Return the history's table: time, what happened, details. `events` adds to an event what it says, by its seq."""
    table = []
    for entry in history:
        what, told = happened(entry)
        parts = (events.get(entry.get("seq", 0), ""), details(entry, told))
        table.append((TimeCell(entry["at"]), what, ", ".join(filter(None, parts))))
    return table


def happened(entry: Mapping[str, Any]) -> tuple[str, set[str]]:
    """Return what an entry of the history says happened, and which of its fields that tells already."""
    kind = entry["kind"]
    field, words = BY_FIELD.get(kind, ""), chosen("history_by").get(kind, {})
    if (value := entry.get(field)) is not None and str(value).lower() in words:
        return words[str(value).lower()], {field}
    template = chosen("history").get(kind, kind.replace("{", "{{").replace("}", "}}"))
    named = {name for _, name, _, _ in Formatter().parse(template) if name}
    return template.format_map({name: _plain(entry.get(name)) for name in named}), named


def details(fields: Mapping[str, Any], told: Iterable[str] = ()) -> str:
    """Write the fields of a history entry or an evidence in words, but those `told` already and empty ones."""
    left = {name: value for name, value in fields.items() if name not in NOT_DETAILS and name not in told}
    ordered = dict.fromkeys((*(name for name in chosen("detail") if name in left), *left))
    parts = [_detail(name, left[name]) for name in ordered]
    return ", ".join(filter(None, parts))


def evidence_text(evidence: Mapping[str, Any]) -> str:
    """Write one proof of an outcome: what it is, when it arrived, and its fields."""
    kind = evidence["kind"]
    head = f"{chosen('evidence').get(kind, {}).get('short', kind)} ({moment(evidence['at'], date=True)})"
    rest = details(evidence)
    return f"{head}: {rest}" if rest else head


def superseded_text(outcome: Mapping[str, Any]) -> str:
    """Write an outcome that was corrected: what it was, and on what it rested."""
    return f"was {outcome['result']}: {'; '.join(map(evidence_text, outcome['evidence']))}"


def _detail(name: str, value: Any) -> str:
    if name == "evidence":
        return "; ".join(map(evidence_text, value))
    words: Mapping[str, str] = chosen("value").get(name, {})
    if isinstance(value, str | bool) and str(value).lower() in words:
        return words[str(value).lower()]
    text = _plain(value)
    template = chosen("detail").get(name)
    return "" if not text else template.format(text) if template else f"{name} {text}"


def _plain(value: object) -> str:
    return inline(value).removesuffix(".0") if isinstance(value, Decimal) else inline(value)


# What a person does about an attention, about a reservation and about a refusal: in words, and commands to type.

#: attentions whose advice ends with how to settle the payment.
SETTLED_BY = frozenset({"in_doubt", "released", "address_changed"})
#: how the daemon writes what a till sends -> what a person types instead.
SPELLINGS: Mapping[str, str] = {
    '"additional": true': "--additional",
    "`transaction_reference`": "--reference UUID",
}


def check_words(name: str, check: Mapping[str, Any]) -> tuple[str, list[RemedyStep]]:
    """Return what a health check says, and what to do: the daemon's words, in Spanish the catalogue's first."""
    # A posd that is older than this command has its commands in the words.
    steps = msgspec.convert(check.get("commands", [{"does": check["todo"]}] if check["todo"] else []), list[RemedyStep])
    if language() == "en" or check["status"] == "ok":
        return check["detail"], steps
    row = chosen("check")[name]
    commands = [step.command for step in steps if step.command] or row["commands"]
    steps = [RemedyStep(row["do"].rstrip(":")), *(RemedyStep("", command) for command in commands)]
    return say("status", "detail", comes=row["comes"], detail=check["detail"]), steps


def explained_by(codes: Iterable[str]) -> str:
    """Return the command that says what codes mean, each of them once."""
    return say("payment", "more", codes=" ".join(dict.fromkeys(codes)))


def known_advice(code: str) -> Advice:
    """Return a row of [advice]."""
    found = advice("advice", code)
    assert found is not None  # noqa: S101 - a test reads them all
    return found


def is_known(found: Advice) -> bool:
    """Whether an advice is of a code that this version knows."""
    return found.words != known_advice("unknown").words


def attention_advice(code: str, transaction: Mapping[str, Any]) -> Advice:
    """Return what to do about an attention of a transaction of that type."""
    found = advice("attention", code) or known_advice("unknown")
    if code == "stalled" and not transaction["abortable"]:
        found = known_advice("not_abortable")
    # The id is left to who knows how much of it has to be written.
    serial = str(transaction["terminal"]).replace("{", "{{").replace("}", "}}")
    words = words_of(transaction).fill(found.words)
    return Advice(words, tuple(each.replace("SERIAL", serial) for each in found.commands))


def settling(transaction: Mapping[str, Any]) -> Advice | None:
    """Return how a person settles an open transaction, None of one that no person has to look at."""
    if transaction["outcome"] is not None or transaction["next_step"] != "ask_person":
        return None
    found = known_advice("settle")
    return found._replace(words=words_of(transaction).fill(found.words))


def next_step(transaction: Mapping[str, Any]) -> Advice:
    """Return what is to be done about a transaction now."""
    step = transaction["next_step"]
    name = _reservation(transaction)
    if step == "done" and name is not None:
        untouched = transaction["type"] == "pre-auth" and not transaction["derived"]
        reserved = known_advice("reserved")
        words = reserved.words + ("" if untouched else chosen("advice")["reserved"]["unless"]) + "."
        return Advice(words, tuple(command.format(name=name) for command in reserved.commands))
    words = chosen("next").get(step, {}).get("do")
    return Advice(words_of(transaction).fill(words) if words else step)


def refused_step(step: str) -> str:
    """Return what to do about a refusal, where the id may have been started before."""
    steps = chosen("next")
    found: str = steps.get(step, {}).get("refused") or steps["ask_person"]["refused"]
    return found


def _reservation(transaction: Mapping[str, Any]) -> str | None:
    """Return how a command names what an approval reserved, None if it reserves nothing.

    The pre-authorization's id is best: it stands for the newest reference.
    """
    originals = {"pre-auth": transaction["client_transaction_id"], "re-auth": transaction["original"]}
    if transaction["outcome"] is None or transaction["type"] not in originals:
        return None
    reference = transaction["outcome"]["transaction_reference"]
    original = originals[transaction["type"]]
    return original if original and reference else f"--reference {reference or 'UUID'}"
