"""Texts about payments for cashiers and operators: meaning of the API's codes, and advice.

The catalogue has the texts.
"""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from string import Formatter
from typing import Any, NamedTuple

import msgspec

from posd.base.operations import OPERATIONS, RESERVING, OperationType
from posd.base.problems import RemedyStep
from posd.cli.app.output import inline
from posd.cli.app.times import TimeCell, moment, roughly, seconds_since
from posd.cli.explain.catalogue import Advice, advice, chosen, glossed, language, say, translate

#: Types of operations that certainly ask for the card on the terminal (terminal API, Lifecycle).
WITH_CARD = frozenset(str(kind) for kind, row in OPERATIONS.items() if row.asks_for_card)
#: An open payment that is older than this (s) is shown with its age, because no customer waits so long.
LONG_SECONDS = 900.0
#: Documents of the API about the other operations of a transaction's chain.
Chain = Sequence[Mapping[str, Any]]
#: `result` of an outcome -> style of its text.
STYLES: Mapping[str, str] = {"approved": "green", "declined": "red", "rejected": "red"}


class OperationWords(NamedTuple):
    """Words for texts about an operation of one type, because the words for a charge may not fit a void.

    `subject` and `done`: parts of a half sentence, such as "the customer" and "charged". `approved`: sentence after an
    approval. `undone`: half sentence after any other end. `followed_by`: later operations that need the operation's
    reference; empty if there are none. `twice`: advice if the terminal reported two approvals of one payment.
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
        """Half sentence about an open payment: "whether the customer was charged"."""
        return str(chosen("hint")["whether"]).format(subject=self.subject, done=self.done)

    @property
    def lack(self) -> str:
        """Half sentence about later operations that need the reference, if that is missing. Empty if there are none."""
        return str(chosen("hint")["lack"]).format(followed_by=self.followed_by) if self.followed_by else ""

    def fill(self, template: str, **more: str) -> str:
        """Return a template with its braces filled: from the fields, {whether}, {lack} and `more`."""
        return template.format(**self._asdict(), whether=self.whether, lack=self.lack, **more)


def operation(kind: str | None) -> OperationWords:
    """Return the words of an operation type.

    The type is None after the loss of a database, and unknown if posd is newer. Such types have general words.
    """
    rows = chosen("operation")
    return OperationWords(**rows.get(str(kind), rows["unknown"]))


def words_of(transaction: Mapping[str, Any]) -> OperationWords:
    """Return the words for the type of a transaction."""
    return operation(transaction["type"])


def approval(transaction: Mapping[str, Any]) -> str:
    """Return the meaning of an approved transaction, in one or two sentences."""
    if transaction["type"] == "void":
        reversal = transaction["outcome"]["reversal"]
        return str(chosen("reversal").get(reversal or "unknown", translate(f"The original was reversed: {reversal}.")))
    return words_of(transaction).approved


def _of_status(field: str, transaction: Mapping[str, Any], status: str | None) -> str:
    """Return a text about a terminal's state of a transaction, or "" if the catalogue has none."""
    row = chosen("status").get(str(status), {})
    card = row.get(f"card_{field}") if transaction["type"] in WITH_CARD else None
    return str(card or row.get(field, ""))


def status_hint(status: str | None, transaction: Mapping[str, Any]) -> str:
    """Return the meaning of a terminal's state for the cashier, in one line."""
    if status is None:
        return str(chosen("hint")["asking"])
    return _of_status("hint", transaction, status) or translate(f"the terminal says {status}")


def hint(transaction: Mapping[str, Any]) -> str:
    """Return the present step of an open transaction and what the cashier can do, in one line."""
    code = "in_doubt" if transaction["phase"] == "in_doubt" else "endless" if endless(transaction) else None
    if code is None:
        return status_hint(transaction["status"], transaction)
    return words_of(transaction).fill(chosen("hint")[code])


def endless(transaction: Mapping[str, Any]) -> bool:
    """Return whether an operator has to check a payment that the terminal accepted. Then its status may be outdated."""
    return bool(transaction["phase"] == "active" and transaction["next_step"] == "ask_person")


def started(transaction: Mapping[str, Any]) -> str:
    """Return the age of an old open payment, such as "started 7 days ago", or "" for other payments."""
    if transaction["outcome"] is not None:
        return ""
    at = transaction["created_at"]
    seconds = seconds_since(at)
    if seconds < 0:  # this machine's clock was wrong then, or is wrong now
        return say("payment", "started_at", at=moment(at, year=True))
    return say("payment", "started_ago", ago=roughly(seconds)) if seconds >= LONG_SECONDS else ""


def state(transaction: Mapping[str, Any]) -> str:
    """Return the state of a transaction in a few words: its result, or what it waits for."""
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
    """Return the style and the meaning of a final transaction: for the customer, or for its original."""
    outcome = transaction["outcome"]
    named = words_of(transaction)
    style, row = STYLES.get(outcome["result"], "yellow"), chosen("result").get(outcome["result"], {})
    words = named._replace(approved=approval(transaction)).fill(row.get("means", ""))
    if any(evidence["kind"] == "operator" for evidence in outcome["evidence"]):
        return style, chosen("hint")["by_a_person"].format(words=words)
    if outcome["result"] == "approved" or outcome["reached_acquirer"] is not None:
        return style, words
    return "yellow", named.fill(chosen("hint")["uncertain"])


def resolving(result: str, transaction: Mapping[str, Any]) -> str:
    """Return as a half sentence what it means to resolve a transaction with `result`."""
    template = chosen("decide")["approved" if result == "approved" else "undone"]
    return words_of(transaction).fill(template, books=chosen("result")[result]["books"])


#: Kind of a history entry -> field whose value selects the text.
BY_FIELD: Mapping[str, str] = {
    "attempt": "judgement",
    "search": "result",
    "abort_answered": "answer",
    "interrupted": "in_line",
}


#: Fields that are not shown as details: they have a column of their own, or are for programs.
NOT_DETAILS = frozenset({"at", "kind", "seq"})


def rows(history: Iterable[Mapping[str, Any]], events: Mapping[int, str]) -> list[tuple[TimeCell, str, str]]:
    """Return the rows of the history: time, what happened, details. `events`: seq -> text about a terminal's event."""
    table = []
    for entry in history:
        what, told = happened(entry)
        parts = (events.get(entry.get("seq", 0), ""), details(entry, told))
        table.append((TimeCell(entry["at"]), what, ", ".join(filter(None, parts))))
    return table


def happened(entry: Mapping[str, Any]) -> tuple[str, set[str]]:
    """Return the text of a history entry, and the names of the fields in that text."""
    kind = entry["kind"]
    field, words = BY_FIELD.get(kind, ""), chosen("history_by").get(kind, {})
    if (value := entry.get(field)) is not None and str(value).lower() in words:
        return words[str(value).lower()], {field}
    template = chosen("history").get(kind, kind.replace("{", "{{").replace("}", "}}"))
    named = {name for _, name, _, _ in Formatter().parse(template) if name}
    return template.format_map({name: _plain(entry.get(name)) for name in named}), named


def details(fields: Mapping[str, Any], told: Iterable[str] = ()) -> str:
    """Return the text of the fields of a history entry or an evidence, without empty ones and those in `told`."""
    left = {name: value for name, value in fields.items() if name not in NOT_DETAILS and name not in told}
    ordered = dict.fromkeys((*(name for name in chosen("detail") if name in left), *left))
    return ", ".join(filter(None, (_detail(name, left[name]) for name in ordered)))


def evidence_text(evidence: Mapping[str, Any]) -> str:
    """Return the text of an evidence: its kind, its time, and its fields."""
    kind = evidence["kind"]
    head = f"{chosen('evidence').get(kind, {}).get('short', kind)} ({moment(evidence['at'], date=True)})"
    rest = details(evidence)
    return f"{head}: {rest}" if rest else head


def superseded_text(outcome: Mapping[str, Any]) -> str:
    """Return the text of a superseded outcome: its result and its evidence."""
    evidence = "; ".join(map(evidence_text, outcome["evidence"]))
    return say("payment", "superseded", result=glossed(outcome["result"]), evidence=evidence)


def _detail(name: str, value: Any) -> str:
    if name == "evidence":
        return "; ".join(map(evidence_text, value))
    words: Mapping[str, str] = chosen("value").get(name, {})
    if isinstance(value, str | bool) and str(value).lower() in words:
        return words[str(value).lower()]
    text = translate(_plain(value)) if name == "reason" else _plain(value)
    template = chosen("detail").get(name)
    return "" if not text else template.format(text) if template else f"{name} {text}"


def _plain(value: object) -> str:
    return inline(value).removesuffix(".0") if isinstance(value, Decimal) else inline(value)


# Advice on checks, attentions, open payments, reservations and refusals: a text, and commands to type.

#: Attentions whose advice already says how to settle the payment.
SETTLED_BY = frozenset({"in_doubt", "released", "address_changed"})
#: Name of a field in the daemon's sentences -> option that the user types instead.
SPELLINGS: Mapping[str, str] = {'"additional": true': "--additional", "`transaction_reference`": "--reference UUID"}


def check_words(name: str, check: Mapping[str, Any]) -> tuple[str, list[RemedyStep]]:
    """Return the text and the advice of a health check: the daemon's, or in Spanish the catalogue's for the reason.

    If this version does not know the reason, return the catalogue's text about the check, followed by the daemon's.
    """
    steps = msgspec.convert(check["commands"], list[RemedyStep])
    if language() == "en" or check["status"] == "ok":
        return check["detail"], steps
    row, reason = chosen("check")[name], check.get("reason")
    found = row.get("found", {}) | {code: texts["means"] for code, texts in chosen("doubt").items()}
    known = found.get(reason)
    # The catalogue's commands are used only for an unknown reason, because they may not fit a known one.
    commands = [step.command for step in steps if step.command] or (() if known else row["commands"])
    do = row.get("does", {}).get(reason, row["do"])
    steps = [RemedyStep(do.rstrip(":")), *(RemedyStep("", command) for command in commands)]
    return known or say("status", "detail", comes=row["comes"], detail=check["detail"]), steps


def explained_by(codes: Iterable[str]) -> str:
    """Return the text with the command that explains codes."""
    return say("payment", "more", codes=" ".join(dict.fromkeys(codes)))


def known_advice(code: str) -> Advice:
    """Return the advice of a code in [advice], which must exist."""
    found = advice("advice", code)
    assert found is not None  # noqa: S101 - a test reads all of them
    return found


def is_known(found: Advice) -> bool:
    """Return whether an advice is for a code that this version knows."""
    return found.words != known_advice("unknown").words


def attention_advice(code: str, transaction: Mapping[str, Any]) -> Advice:
    """Return the advice on an attention of a transaction, with the words for its type."""
    found = advice("attention", code) or known_advice("unknown")
    if code == "stalled" and not transaction["abortable"]:
        found = known_advice("not_abortable")
    elif code == "no_callback" and transaction["outcome"] is not None:
        found = known_advice("no_events")
    elif code == "in_doubt" and transaction.get("released"):
        found = known_advice("released")
    # Escape braces in the serial, because the caller fills {id} by `format`.
    serial = str(transaction["terminal"]).replace("{", "{{").replace("}", "}}")
    words = words_of(transaction).fill(found.words)
    return Advice(words, tuple(each.replace("SERIAL", serial) for each in found.commands))


def settling(transaction: Mapping[str, Any]) -> Advice | None:
    """Return how an operator settles an open transaction, or None if it needs no operator."""
    if transaction["outcome"] is not None or transaction["next_step"] != "ask_person":
        return None
    found = known_advice("released" if transaction.get("released") else "settle")
    return found._replace(words=words_of(transaction).fill(found.words))


def next_step(transaction: Mapping[str, Any], chain: Chain | None = None) -> Advice:
    """Return the advice on a transaction in its present state. `chain`: the other operations of its chain, if known."""
    step = transaction["next_step"]
    name = _reservation(transaction)
    if step == "done" and name is not None and not _is_used(transaction, chain or ()):
        if undecided := [item for item in chain or () if item["next_step"] in ("wait", "ask_person")]:
            words, [command] = known_advice("reservation_in_use")
            return Advice(words, (command.format(id=undecided[0]["client_transaction_id"]),))
        sure = chain is not None or (transaction["type"] == "pre-auth" and not transaction["derived"])
        reserved = known_advice("reserved")
        words = reserved.words + ("" if sure else chosen("advice")["reserved"]["unless"]) + "."
        return Advice(words, tuple(command.format(name=name) for command in reserved.commands))
    words = chosen("next").get(step, {}).get("do")
    return Advice(words_of(transaction).fill(words) if words else step)


def refused_step(step: str) -> str:
    """Return the advice after a refused call, if an earlier call may have started the payment.

    `step`: its `next_step`.
    """
    steps = chosen("next")
    return str(steps.get(step, {}).get("refused") or steps["ask_person"]["refused"])


def _is_used(transaction: Mapping[str, Any], chain: Chain) -> bool:
    """Return whether posd refuses a capture and a void of a reservation, because of an approved operation on it."""
    family = [transaction, *chain]
    ids = [item["client_transaction_id"] for item in family if item["type"] in RESERVING]
    done = {item["type"] for item in family if state(item) == "approved" and item["original"] in ids}
    return not done.isdisjoint(OPERATIONS[OperationType.VOID].ended_by)


def _reservation(transaction: Mapping[str, Any]) -> str | None:
    """Return the argument that names a reservation in a command. Return None for other payments.

    If possible it is the pre-authorization's id, because that selects the newest reference.
    """
    originals = {"pre-auth": transaction["client_transaction_id"], "re-auth": transaction["original"]}
    if transaction["outcome"] is None or transaction["type"] not in originals:
        return None
    reference = transaction["outcome"]["transaction_reference"]
    original = originals[transaction["type"]]
    return original if original and reference else f"--reference {reference or 'UUID'}"
