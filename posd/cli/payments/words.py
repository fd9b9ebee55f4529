"""What the API's words mean to the person at the counter: one table for each kind of word.

The braces of a template are those of `OperationWords.fill`.
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from string import Formatter
from typing import Any, NamedTuple

from posd.cli.app.output import inline
from posd.cli.app.times import TimeCell, moment, roughly, seconds_since

# The operation types in words, one row each: what is true of a charge need not be true of a void.

#: what to do about two approvals of a type that a void can reverse, and of any other.
VOID_IT = "void the second approval if there are two (posd void --reference UUID)"
ASK_ACQUIRER = "have the acquirer put right what was done twice"

#: `outcome.reversal` of an approved void -> what it did (terminal API, Lifecycle).
REVERSALS: Mapping[str | None, str] = {
    "cancellation": "The original was reversed on its own day: a cancellation.",
    "refund": "The original was reversed after its day had ended: a refund.",
    None: "The original was reversed. Whether that is a cancellation (on its own day) or a refund is not known here.",
}


class OperationWords(NamedTuple):
    """The words of one operation type.

    An approval means that `subject` was `done`; `approved` says it in full, and what it does not mean. `undone` is the
    half sentence for every other end. `followed_by`: what has to name its reference; empty where nothing can.
    `twice`: what to do about two approvals. `card`: whether the terminal is known to ask for the card (terminal API,
    Lifecycle).
    """

    noun: str
    subject: str
    done: str
    approved: str
    undone: str
    followed_by: str = ""
    twice: str = ASK_ACQUIRER
    card: bool = False

    @property
    def whether(self) -> str:
        """The question that an open one leaves: "whether the customer was charged"."""
        return f"whether {self.subject} was {self.done}"

    @property
    def lack(self) -> str:
        """What an approval without a reference lacks, as a half sentence to add; empty where it lacks nothing."""
        return f", which {self.followed_by} has to name" if self.followed_by else ""

    def fill(self, template: str) -> str:
        """Fill the braces of a template: fields of this row, {whether} and {lack}."""
        return template.format(**self._asdict(), whether=self.whether, lack=self.lack)


#: The API's `type` -> its words.
OPERATIONS: Mapping[str, OperationWords] = {
    "charge": OperationWords(
        noun="payment",
        subject="the customer",
        done="charged",
        approved="The customer was charged.",
        undone="the customer was not charged",
        followed_by="a tip, a refund or a void",
        twice=VOID_IT,
        card=True,
    ),
    "pre-auth": OperationWords(
        noun="pre-authorization",
        subject="the amount",
        done="reserved",
        approved="The amount was reserved; nothing is charged before it is captured.",
        undone="nothing was reserved",
        followed_by="a capture, a re-authorization or a void",
        twice=VOID_IT,
        card=True,
    ),
    "re-auth": OperationWords(
        noun="re-authorization",
        subject="the reservation",
        done="changed",
        approved="The reservation was changed; nothing is charged before it is captured.",
        undone="the reservation is as it was",
        followed_by="a capture or a void",
    ),
    "capture": OperationWords(
        noun="capture",
        subject="the customer",
        done="charged",
        approved="The reservation was captured: the customer was charged.",
        undone="it charged nothing, and the reservation is as it was",
        followed_by="a tip, a refund or a void",
        twice=VOID_IT,
    ),
    "post-tip": OperationWords(
        noun="tip",
        subject="the tip",
        done="charged",
        approved="The tip was charged.",
        undone="it was not charged, and the payment that it is for is as it was",
    ),
    "void": OperationWords(
        noun="void",
        subject="the original",
        done="reversed",
        approved=REVERSALS[None],
        undone="nothing was reversed, and the original stands as before",
    ),
    "refund": OperationWords(
        noun="refund",
        subject="the money",
        done="given back",
        approved="The money was given back.",
        undone="nothing was given back, and the original stands as before",
    ),
}

#: For a type that is not known: of what another database lost, or of a later version.
UNKNOWN = OperationWords(
    noun="transaction",
    subject="it",
    done="approved",
    approved="It was approved. What it was (a charge, a void, ...) is not known here: look at the receipt.",
    undone="it charged and changed nothing",
    followed_by="a void",
)


def words_of(transaction: Mapping[str, Any]) -> OperationWords:
    """Return the words for the type of a transaction."""
    return OPERATIONS.get(transaction["type"], UNKNOWN)


def approval(transaction: Mapping[str, Any]) -> str:
    """Return what the approval of a transaction means, in one or two sentences."""
    if transaction["type"] == "void":
        reversal = transaction["outcome"]["reversal"]
        return REVERSALS.get(reversal, f"The original was reversed: {reversal}.")
    return words_of(transaction).approved


#: lifecycle state -> what happens now and what the cashier can do (terminal API, Lifecycle).
STATUS_HINTS: Mapping[str | None, str] = {
    None: "asking the terminal",
    "TERMINAL_ACKNOWLEDGED": "the terminal has it: look at its screen, it may ask for the card",
    "CARD_PRESENTED": "card read; the customer may have to enter the PIN",
    "APPROVAL_REQUESTED": "asking the bank; it can no longer be aborted",
    "APPROVAL": "the bank approved",
    "DECLINED": "the bank declined",
    "TERMINAL_REJECTED": "the terminal rejected it",
    "TERMINAL_CANCELED": "canceled at the terminal",
}

#: lifecycle state of an open transaction -> its name in lists.
OPEN_STATES: Mapping[str | None, str] = {
    "TERMINAL_ACKNOWLEDGED": "at the terminal",
    "CARD_PRESENTED": "card read",
    "APPROVAL_REQUESTED": "at the bank",
}

#: lifecycle state of a type that is known to ask for the card -> its hint and its name in lists.
CARD_STATES: Mapping[str | None, tuple[str, str]] = {
    "TERMINAL_ACKNOWLEDGED": ("ask the customer to present the card", "waiting for card"),
}

#: phase -> hint, where the phase says more than the lifecycle state.
PHASE_HINTS: Mapping[str, str] = {
    "in_doubt": "not known whether the terminal took the {noun}: look at its screen. Do not start it again",
}

#: The same, and the name in lists, of one that the terminal took and that a person has to look at: what the terminal
#: said last need not be true any more.
ENDLESS_HINT = "it is not known how the {noun} ended: look at the terminal's screen and journal. Do not start it again"
ENDLESS = "no outcome"

#: From this age on an open one is shown with it: no customer stands at a terminal for so long. Seconds.
LONG_SECONDS = 900.0

#: outcome's result -> (style, what it means).
RESULTS: Mapping[str, tuple[str, str]] = {
    "approved": ("green", "{approved}"),
    "declined": ("red", "The bank declined the {noun}; {undone}."),
    "rejected": ("red", "The terminal rejected the {noun}; {undone}."),
    "canceled": ("yellow", "The {noun} was canceled; {undone}."),
    "not_started": ("yellow", "The {noun} did not start; {undone}."),
}

#: result that rests neither on the bank's answer nor on a person's word, though the bank was asked -> what it means.
UNCERTAIN = "The terminal ended the {noun} after the bank was asked: {subject} may have been {done} all the same."

#: `last_search.result` -> what it means.
SEARCHES: Mapping[str, str] = {
    "found": "The terminal knows this {noun}, and its answer was taken over.",
    "none": (
        "The terminal answered that it does not know this {noun}. That alone proves nothing: a terminal that was "
        "switched off forgets, and one that is still at work on it may not have told anybody yet."
    ),
    "no_answer": (
        "The terminal gave no answer about this {noun}: it could not be reached, or what it said cannot be used. "
        "That says nothing about {whether}."
    ),
}

#: What a search means at the address of a terminal where another device may be. {{terminal}} is filled in later.
PERHAPS_ANOTHER = (
    "The device that was asked does not know this {noun}, and it may be another one than terminal {{terminal}} (posd "
    "terminals identity {{terminal}}). That says nothing about {whether}."
)
#: What a search means for a terminal that is not in the fleet.
NOT_THERE = (
    "Terminal {{terminal}} is not in the configuration any more: it cannot be asked. Its own journal, or the acquirer, "
    "can say {whether}."
)

#: entry of the history -> what happened. Braces name fields of the entry.
KINDS: Mapping[str, str] = {
    "intent": "recorded, about to be sent",
    "event": "event {status}",
    "interrupted": "posd was stopped while it sent it",
    "abort_requested": "abort asked for",
    "abort_answered": "abort answered",
    "quarantined": "a message of the terminal was set aside",
    "reapplied": "messages that were set aside are applied",
    "no_callback": "no message of the terminal for {seconds} s",
    "stalled": "silence of the terminal for {seconds} s",
    "proof": "proved: it never started",
    "release": "terminal freed by a person",
    "resolve": "decided by a person: {result}",
    "acknowledge": "attention {code} cleared by a person",
    "address_changed": "this machine lost its address {host}: events may not arrive",
    "address_back": "this machine has its address {host} again",
    "identity_conflict": "it is not sure which device is the terminal",
    "identity_settled": "it is sure again which device is the terminal",
    "outcome_unread": "no program has read the approval for ten minutes",
    "outcome_read": "a program has read the approval",
    "taken_over": "taken over, in doubt",
    "turn": "its turn to be sent came",
    "webhook": "the terminal reported {status}",
    "poll": "terminal asked: {status}",
    "print_stuck": "no end of it for {seconds} s",
}

#: history's `attempt`, by `judgement` -> what came of the one request to the terminal.
JUDGEMENTS: Mapping[str, str] = {
    "acknowledged": "sent: the terminal took it",
    "accepted": "sent: the terminal took it",
    "canceled": "sent: the terminal answered that it was canceled there",
    "refused": "sent: the terminal refused it",
    "unsent": "not sent",
    "in_doubt": "sent, but not known whether the terminal took it",
}

#: history's `interrupted` of a print job, by `in_line` -> what the stop interrupted.
INTERRUPTIONS: Mapping[str, str] = {
    "True": "posd was stopped before its turn to be sent came",
    "False": "posd was stopped while it sent it",
}

#: history's `search`, by `result` -> what came.
SEARCH_ENTRIES: Mapping[str, str] = {
    "found": "terminal asked: it knows of it",
    "none": "terminal asked: it does not know of it (no proof)",
    "no_answer": "terminal asked: no answer that counts",
}

#: history's `abort_answered`, by `answer` -> what came of the abort; its outcome is another matter.
ABORT_ANSWERS: Mapping[str, str] = {
    "taken": "abort answered: the terminal aborts",
    "nothing_running": "abort answered: the terminal runs nothing",
    "not_taken": "abort answered: the terminal did not take it",
    "unreachable": "abort not sent: the terminal cannot be reached",
    "unknown": "abort sent, but not known whether the terminal took it",
}

#: verdict on an event -> what became of it; nothing to say of one that was applied.
VERDICTS: Mapping[str, str] = {
    "applied": "",
    "late": "came late, moved nothing",
    "after_final": "came after the end",
    "duplicate": "used event id, other content: not applied",
    "unknown_status": "not known to this version",
}

#: evidence's `kind` -> what the outcome rests on.
EVIDENCE: Mapping[str, str] = {
    "event": "the terminal reported it",
    "search": "the terminal was asked",
    "refusal": "the terminal's answer to the request",
    "unsent": "the request was never sent",
    "abort": "the terminal was asked to abort, and ran nothing",
    "operator": "a person's word",
}


#: field of a history entry or an evidence -> its words, in the order in which they are told. Braces hold the value.
DETAILS: Mapping[str, str] = {
    "terminal": "{}",
    "operator": "by {}",
    "uid": "user id {}",
    "http_status": "HTTP {}",
    "status": "HTTP {}",
    "event_id": "event id {}",
    "transaction_reference": "reference {}",
    "reason": "{}",
    "error_message": "{}",
    "error_code": "code {}",
    "body": "it said: {}",
    "note": "note: {}",
}

#: field -> its value -> words; for fields whose values are words of the API. Empty: nothing worth telling.
VALUE_DETAILS: Mapping[str, Mapping[Any, str]] = {
    "verdict": VERDICTS,
    "result": {"none": "it does not know of it", "found": "it knows of it"},
    "probe": {True: "by posd, to find out whether the terminal runs anything", False: ""},
}


#: result -> as what `posd resolve` books it.
RESOLVED_AS: Mapping[str, str] = {
    "approved": "approved",
    "declined": "declined by the bank",
    "rejected": "rejected by the terminal",
    "canceled": "canceled",
    "not_started": "never started",
}
#: what that means, of an approval and of every other result.
RESOLVED_DONE = "books the {noun} as approved: {subject} counts as {done}"
RESOLVED_UNDONE = "books the {noun} as %s: {subject} counts as not {done}, and the till may start it again"


def status_hint(status: str | None, transaction: Mapping[str, Any]) -> str:
    """Return what a lifecycle state of a transaction means for the cashier, in one line."""
    if status in CARD_STATES and words_of(transaction).card:
        return CARD_STATES[status][0]
    return STATUS_HINTS.get(status) or f"the terminal says {status}"


def hint(transaction: Mapping[str, Any]) -> str:
    """Return what happens now in an open transaction and what the cashier can do, in one line."""
    phase = transaction["phase"]
    if phase in PHASE_HINTS:
        return words_of(transaction).fill(PHASE_HINTS[phase])
    if endless(transaction):
        return words_of(transaction).fill(ENDLESS_HINT)
    return status_hint(transaction["status"], transaction)


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
        return f"started {moment(at, year=True)}"
    return f"started {roughly(seconds)} ago" if seconds >= LONG_SECONDS else ""


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
        return ENDLESS
    if status in CARD_STATES and words_of(transaction).card:
        return CARD_STATES[status][1]
    return OPEN_STATES.get(status, str(status or phase))


def meaning(transaction: Mapping[str, Any]) -> tuple[str, str]:
    """Return a final transaction's style and what its outcome means, for the customer or for its original."""
    outcome = transaction["outcome"]
    operation = words_of(transaction)
    style, template = RESULTS.get(outcome["result"], ("yellow", ""))
    words = operation._replace(approved=approval(transaction)).fill(template)
    if any(evidence["kind"] == "operator" for evidence in outcome["evidence"]):
        return style, f"By a person's word: {words}"
    if outcome["result"] == "approved" or outcome["reached_acquirer"] is not None:
        return style, words
    return "yellow", operation.fill(UNCERTAIN)


def resolving(result: str, transaction: Mapping[str, Any]) -> str:
    """Return what it means to resolve a transaction as that result, as a half sentence."""
    template = RESOLVED_DONE if result == "approved" else RESOLVED_UNDONE % RESOLVED_AS[result]
    return words_of(transaction).fill(template)


#: kind -> the field whose value says what happened, and its words.
BY_FIELD: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "attempt": ("judgement", JUDGEMENTS),
    "search": ("result", SEARCH_ENTRIES),
    "abort_answered": ("answer", ABORT_ANSWERS),
    "interrupted": ("in_line", INTERRUPTIONS),
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
    field, words = BY_FIELD.get(kind, ("", {}))
    if str(entry.get(field)) in words:
        return words[str(entry[field])], {field}
    if kind not in KINDS:
        return str(kind), set()
    template = KINDS[kind]
    named = {name for _, name, _, _ in Formatter().parse(template) if name}
    return template.format_map({name: _plain(entry.get(name)) for name in named}), named


def details(fields: Mapping[str, Any], told: Iterable[str] = ()) -> str:
    """Write the fields of a history entry or an evidence in words, but those `told` already and empty ones."""
    left = {name: value for name, value in fields.items() if name not in NOT_DETAILS and name not in told}
    known = [name for name in DETAILS if name in left]
    parts = [_detail(name, left[name]) for name in (*known, *(name for name in left if name not in DETAILS))]
    return ", ".join(filter(None, parts))


def evidence_text(evidence: Mapping[str, Any]) -> str:
    """Write one proof of an outcome: what it is, when it came, and its fields."""
    kind = evidence["kind"]
    head = f"{EVIDENCE.get(kind, kind)} ({moment(evidence['at'], date=True)})"
    rest = details(evidence)
    return f"{head}: {rest}" if rest else head


def superseded_text(outcome: Mapping[str, Any]) -> str:
    """Write an outcome that was corrected: what it was, and on what it rested."""
    return f"was {outcome['result']}: {'; '.join(map(evidence_text, outcome['evidence']))}"


def _detail(name: str, value: Any) -> str:
    if name == "evidence":
        return "; ".join(map(evidence_text, value))
    words = VALUE_DETAILS.get(name, {})
    if isinstance(value, str | bool) and value in words:
        return words[value]
    text = _plain(value)
    if not text:
        return ""
    return DETAILS[name].format(text) if name in DETAILS else f"{name} {text}"


def _plain(value: object) -> str:
    return inline(value).removesuffix(".0") if isinstance(value, Decimal) else inline(value)
