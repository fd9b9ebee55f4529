"""What the API's words mean at the counter, and advice. The texts are in the catalogue of words."""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from string import Formatter
from typing import Any, NamedTuple

import msgspec

from posd.base.operations import OPERATIONS
from posd.base.problems import RemedyStep
from posd.cli.app.output import inline
from posd.cli.app.times import TimeCell, moment, roughly, seconds_since
from posd.cli.explain.catalogue import Advice, advice, chosen, glossed, language, say, translate

#: Operation types that are known to ask for the card (terminal API, Lifecycle).
WITH_CARD = frozenset(str(kind) for kind, row in OPERATIONS.items() if row.asks_for_card)
#: Age in seconds from which an open payment is shown with its age. No customer waits so long.
LONG_SECONDS = 900.0
#: An outcome's result -> style.
STYLES: Mapping[str, str] = {"approved": "green", "declined": "red", "rejected": "red"}


class OperationWords(NamedTuple):
    """Words of one operation type. The words of a charge need not fit a void.

    An approval means that `subject` was `done`; `approved` is the full sentence. `undone`: half sentence for every
    other end. `followed_by`: later operations that have to name its reference; empty if there are none. `twice`: advice
    on two approvals.
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
        """The question that an open payment leaves: "whether the customer was charged"."""
        return str(chosen("hint")["whether"]).format(subject=self.subject, done=self.done)

    @property
    def lack(self) -> str:
        """Half sentence about later operations that need the missing reference; empty if there are none."""
        return str(chosen("hint")["lack"]).format(followed_by=self.followed_by) if self.followed_by else ""

    def fill(self, template: str, **more: str) -> str:
        """Fill the braces of a template: fields of this row, {whether} and {lack}."""
        return template.format(**self._asdict(), whether=self.whether, lack=self.lack, **more)


def operation(kind: str | None) -> OperationWords:
    """Return the words of an operation type. None and unknown words belong to a payment of a lost database or of
    a later version.
    """
    rows = chosen("operation")
    return OperationWords(**rows.get(str(kind), rows["unknown"]))


def words_of(transaction: Mapping[str, Any]) -> OperationWords:
    """Return the words for the type of a transaction."""
    return operation(transaction["type"])


def approval(transaction: Mapping[str, Any]) -> str:
    """Return the meaning of a transaction's approval, in one or two sentences."""
    if transaction["type"] == "void":
        reversal = transaction["outcome"]["reversal"]
        return str(chosen("reversal").get(reversal or "unknown", translate(f"The original was reversed: {reversal}.")))
    return words_of(transaction).approved


def _of_status(field: str, transaction: Mapping[str, Any], status: str | None) -> str:
    """Return a text about a lifecycle state of a transaction, empty if there is none."""
    row = chosen("status").get(str(status), {})
    card = row.get(f"card_{field}") if transaction["type"] in WITH_CARD else None
    return str(card or row.get(field, ""))


def status_hint(status: str | None, transaction: Mapping[str, Any]) -> str:
    """Return the meaning of a lifecycle state for the cashier, in one line."""
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
    """Whether an operator has to check a payment that the terminal accepted. The last status is then doubtful."""
    return bool(transaction["phase"] == "active" and transaction["next_step"] == "ask_person")


def started(transaction: Mapping[str, Any]) -> str:
    """Return the age of an open payment for which no customer waits: "started 7 days ago"; empty for others."""
    if transaction["outcome"] is not None:
        return ""
    at = transaction["created_at"]
    seconds = seconds_since(at)
    if seconds < 0:  # one of the two clocks is wrong
        return say("payment", "started_at", at=moment(at, year=True))
    return say("payment", "started_ago", ago=roughly(seconds)) if seconds >= LONG_SECONDS else ""


def state(transaction: Mapping[str, Any]) -> str:
    """Return the state of a transaction in a few words: its result, or what an open one waits for."""
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
    """Return a final transaction's style and its meaning for the customer or for its original."""
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
    """Return the meaning of resolving a transaction with that result, as a half sentence."""
    template = chosen("decide")["approved" if result == "approved" else "undone"]
    return words_of(transaction).fill(template, books=chosen("result")[result]["books"])


#: Kind of a history entry -> the field that decides its text.
BY_FIELD: Mapping[str, str] = {
    "attempt": "judgement",
    "search": "result",
    "abort_answered": "answer",
    "interrupted": "in_line",
}


#: Fields with a column of their own, or for programs only.
NOT_DETAILS = frozenset({"at", "kind", "seq"})


def rows(history: Iterable[Mapping[str, Any]], events: Mapping[int, str]) -> list[tuple[TimeCell, str, str]]:
    """Return the history's table: time, event, details. `events`: content of the events, by seq."""
    table = []
    for entry in history:
        what, told = happened(entry)
        parts = (events.get(entry.get("seq", 0), ""), details(entry, told))
        table.append((TimeCell(entry["at"]), what, ", ".join(filter(None, parts))))
    return table


def happened(entry: Mapping[str, Any]) -> tuple[str, set[str]]:
    """Return the text of a history entry, and the fields that it already covers."""
    kind = entry["kind"]
    field, words = BY_FIELD.get(kind, ""), chosen("history_by").get(kind, {})
    if (value := entry.get(field)) is not None and str(value).lower() in words:
        return words[str(value).lower()], {field}
    template = chosen("history").get(kind, kind.replace("{", "{{").replace("}", "}}"))
    named = {name for _, name, _, _ in Formatter().parse(template) if name}
    return template.format_map({name: _plain(entry.get(name)) for name in named}), named


def details(fields: Mapping[str, Any], told: Iterable[str] = ()) -> str:
    """Write the other fields of a history entry or an evidence as text. Empty fields are left out."""
    left = {name: value for name, value in fields.items() if name not in NOT_DETAILS and name not in told}
    ordered = dict.fromkeys((*(name for name in chosen("detail") if name in left), *left))
    parts = [_detail(name, left[name]) for name in ordered]
    return ", ".join(filter(None, parts))


def evidence_text(evidence: Mapping[str, Any]) -> str:
    """Write one evidence of an outcome: its kind, its time, and its fields."""
    kind = evidence["kind"]
    head = f"{chosen('evidence').get(kind, {}).get('short', kind)} ({moment(evidence['at'], date=True)})"
    rest = details(evidence)
    return f"{head}: {rest}" if rest else head


def superseded_text(outcome: Mapping[str, Any]) -> str:
    """Write a corrected outcome: its result and its evidence."""
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


# Advice on an attention, a reservation and a refusal: text, and commands to type.

#: Attentions whose advice ends with how to settle the payment.
SETTLED_BY = frozenset({"in_doubt", "released", "address_changed"})
#: Field name in the daemon's sentences -> what a person types instead.
SPELLINGS: Mapping[str, str] = {
    '"additional": true': "--additional",
    "`transaction_reference`": "--reference UUID",
}


def check_words(name: str, check: Mapping[str, Any]) -> tuple[str, list[RemedyStep]]:
    """Return the words of a health check and its advice: the daemon's, or in Spanish the catalogue's by its reason.

    If this version does not know the reason, return the words about the check and then the daemon's.
    """
    steps = msgspec.convert(check["commands"], list[RemedyStep])
    if language() == "en" or check["status"] == "ok":
        return check["detail"], steps
    row, reason = chosen("check")[name], check.get("reason")
    found = row.get("found", {}) | {code: texts["means"] for code, texts in chosen("doubt").items()}
    known = found.get(reason)
    # The commands of the row are for an unknown reason only, since they may not fit a known one.
    commands = [step.command for step in steps if step.command] or (() if known else row["commands"])
    do = row.get("does", {}).get(reason, row["do"])
    steps = [RemedyStep(do.rstrip(":")), *(RemedyStep("", command) for command in commands)]
    return known or say("status", "detail", comes=row["comes"], detail=check["detail"]), steps


def explained_by(codes: Iterable[str]) -> str:
    """Return the command that explains codes, each code once."""
    return say("payment", "more", codes=" ".join(dict.fromkeys(codes)))


def known_advice(code: str) -> Advice:
    """Return a row of [advice]."""
    found = advice("advice", code)
    assert found is not None  # noqa: S101 - a test reads them all
    return found


def is_known(found: Advice) -> bool:
    """Whether the advice is for a code that this version knows."""
    return found.words != known_advice("unknown").words


def attention_advice(code: str, transaction: Mapping[str, Any]) -> Advice:
    """Return the advice on an attention of a transaction of that type."""
    found = advice("attention", code) or known_advice("unknown")
    if code == "stalled" and not transaction["abortable"]:
        found = known_advice("not_abortable")
    # The caller decides how many characters of the id are written.
    serial = str(transaction["terminal"]).replace("{", "{{").replace("}", "}}")
    words = words_of(transaction).fill(found.words)
    return Advice(words, tuple(each.replace("SERIAL", serial) for each in found.commands))


def settling(transaction: Mapping[str, Any]) -> Advice | None:
    """Return how an operator settles an open transaction; None if it needs no operator."""
    if transaction["outcome"] is not None or transaction["next_step"] != "ask_person":
        return None
    found = known_advice("settle")
    return found._replace(words=words_of(transaction).fill(found.words))


def next_step(transaction: Mapping[str, Any]) -> Advice:
    """Return the advice on a transaction now."""
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
    """Return the advice on a refusal for an id that may have been started before."""
    steps = chosen("next")
    found: str = steps.get(step, {}).get("refused") or steps["ask_person"]["refused"]
    return found


def _reservation(transaction: Mapping[str, Any]) -> str | None:
    """Return how a command names an approved reservation, None for other payments.

    The pre-authorization's id is best, because it selects the newest reference.
    """
    originals = {"pre-auth": transaction["client_transaction_id"], "re-auth": transaction["original"]}
    if transaction["outcome"] is None or transaction["type"] not in originals:
        return None
    reference = transaction["outcome"]["transaction_reference"]
    original = originals[transaction["type"]]
    return original if original and reference else f"--reference {reference or 'UUID'}"
