"""What the API's words mean to the person at the counter: one table for each kind of word."""

from collections.abc import Mapping
from typing import Any, NamedTuple

#: lifecycle state -> what happens now and what the cashier can do (spec 3.1).
STATUS_HINTS: Mapping[str | None, str] = {
    None: "asking the terminal",
    "TERMINAL_ACKNOWLEDGED": "ask the customer to present the card",
    "CARD_PRESENTED": "card read; the customer may have to enter the PIN",
    "APPROVAL_REQUESTED": "asking the bank; it can no longer be aborted",
    "APPROVAL": "the bank approved",
    "DECLINED": "the bank declined",
    "TERMINAL_REJECTED": "the terminal rejected it",
    "TERMINAL_CANCELED": "canceled at the terminal",
}

#: lifecycle state of an open transaction -> its name in lists.
OPEN_STATES: Mapping[str | None, str] = {
    "TERMINAL_ACKNOWLEDGED": "waiting for card",
    "CARD_PRESENTED": "card read",
    "APPROVAL_REQUESTED": "at the bank",
}

#: phase -> hint, where the phase says more than the lifecycle state.
PHASE_HINTS: Mapping[str, str] = {
    "in_doubt": "not known whether the terminal took the payment: look at its screen. Do not charge again",
}

#: outcome's result -> (style, what it means).
RESULTS: Mapping[str, tuple[str, str]] = {
    "approved": ("green", "The customer was charged."),
    "declined": ("red", "The bank declined the payment; the customer was not charged."),
    "rejected": ("red", "The terminal rejected the payment; the customer was not charged."),
    "canceled": ("yellow", "The payment was canceled; the customer was not charged."),
    "not_started": ("yellow", "The payment did not start; the customer was not charged."),
}

#: `next_step` -> what to do.
NEXT_STEPS: Mapping[str, str] = {
    "wait": "Wait for the outcome. Do not take this payment again meanwhile.",
    "done": "Nothing more to do.",
    "new_id_ok": "To try again, start a new payment.",
    "ask_person": "Ask the person in charge. Do not take this payment again before that is settled.",
}

#: result that rests neither on the bank's answer nor on a person's word, though the bank was asked -> what it means.
UNCERTAIN = "The terminal ended the payment after the bank was asked: the customer may have been charged all the same."

#: `last_search.result` -> what it means.
SEARCHES: Mapping[str, str] = {
    "found": "The terminal knows this payment, and its answer was taken over.",
    "none": (
        "The terminal answered that it does not know this payment. That alone proves nothing: a terminal that was "
        "switched off forgets, and one that still waits for the card may not have told anybody yet."
    ),
    "no_answer": (
        "The terminal gave no answer about this payment: it could not be reached, or what it said cannot be used. "
        "That says nothing about whether the customer was charged."
    ),
}

#: entry of the history -> what happened. Braces name fields of the entry.
KINDS: Mapping[str, str] = {
    "intent": "payment recorded, about to be sent",
    "event": "event {status}",
    "interrupted": "posd was stopped while it sent the payment",
    "abort_requested": "abort asked for",
    "abort_answered": "abort answered",
    "quarantined": "a message of the terminal was set aside",
    "reapplied": "messages that were set aside are applied",
    "no_callback": "no message of the terminal for {seconds} s",
    "stalled": "silence of the terminal for {seconds} s",
    "proof": "proved: the payment never started",
    "release": "terminal freed by a person",
    "resolve": "decided by a person: {result}",
    "acknowledge": "attention {code} cleared by a person",
    "taken_over": "taken over from the database that a restore replaced",
}

#: history's `attempt`, by `judgement` -> what came of the one request to the terminal.
JUDGEMENTS: Mapping[str, str] = {
    "acknowledged": "sent: the terminal took it",
    "refused": "sent: the terminal refused it",
    "unsent": "not sent",
    "in_doubt": "sent, but not known whether the terminal took it",
}

#: history's `search`, by `result` -> what came.
SEARCH_ENTRIES: Mapping[str, str] = {
    "found": "terminal asked: it knows the payment",
    "none": "terminal asked: it does not know the payment (no proof)",
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
    "refusal": "the terminal refused the request",
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
    "body": "it said: {}",
    "note": "note: {}",
}

#: field -> its value -> words; for fields whose values are words of the API. Empty: nothing worth telling.
VALUE_DETAILS: Mapping[str, Mapping[Any, str]] = {
    "verdict": VERDICTS,
    "result": {"none": "it does not know the payment", "found": "it knows the payment"},
    "probe": {True: "by posd, to find out whether the terminal runs anything", False: ""},
}


class Advice(NamedTuple):
    """What a person does about an attention: in words, and the commands that the words speak of, in their order.

    `{id}` stands for the payment's id; RESULT is left to the person.
    """

    words: str
    commands: tuple[str, ...] = ()


_ACKNOWLEDGE = "posd acknowledge {id} "

#: attention `code` -> what to do about it.
ATTENTION_ADVICE: Mapping[str, Advice] = {
    "in_doubt": Advice(
        "It is not known whether the terminal took this payment. Look at its screen and its journal; do not charge "
        "again. Ask it again; free it if it must serve others; settle the payment once you know how it ended:",
        ("posd reconcile {id}", "posd release {id}", "posd resolve {id} RESULT"),
    ),
    "gap": Advice(
        "An event of the terminal is missing; it may come late. If it does not, check the network, ask the terminal, "
        "and clear this when the payment is settled:",
        ("posd reconcile {id}", _ACKNOWLEDGE + "gap"),
    ),
    "stalled": Advice(
        "The terminal has been silent for long; it may still wait for the customer. Look at its screen and its "
        "network. Ask it; where the customer gave up, stop the payment:",
        ("posd reconcile {id}", "posd abort {id}"),
    ),
    "no_callback": Advice(
        "The terminal took the payment but sends no events: check that it reaches this machine (network, firewall) "
        "and trusts posd's CA certificate. The outcome can be asked for:",
        ("posd reconcile {id}",),
    ),
    "orphan": Advice(
        "posd's database did not know this payment (was it restored from a backup?). Compare it with the till's "
        "records, and correct the till where it booked something else; then:",
        (_ACKNOWLEDGE + "orphan",),
    ),
    "serial_mismatch": Advice(
        "Another terminal answered than the one asked. Find out at which one the customer paid, and correct the "
        "addresses of the terminals; then:",
        ("posd terminals", _ACKNOWLEDGE + "serial_mismatch"),
    ),
    "event_id_reused": Advice(
        "The terminal used one event id for two different messages, and only the first was applied. Compare the "
        "payment with the terminal's journal, and report it to the terminal's vendor; then:",
        ("posd show {id}", _ACKNOWLEDGE + "event_id_reused"),
    ),
    "unknown_status": Advice(
        "The terminal sent a status that this version does not know. Update posd, and have it read the events again; "
        "then:",
        ("posd reprocess", _ACKNOWLEDGE + "unknown_status"),
    ),
    "illegal_transition": Advice(
        "The terminal broke the order of its own states, so its word is not sure. Check in the acquirer's records "
        "whether the customer was charged; then:",
        (_ACKNOWLEDGE + "illegal_transition",),
    ),
    "conflicting_final": Advice(
        "The terminal reported two different results. Check with the acquirer what the customer paid; void the second "
        "approval if it was taken twice; then:",
        ("posd show {id}", _ACKNOWLEDGE + "conflicting_final"),
    ),
    "outcome_corrected": Advice(
        "The outcome stated before was wrong. Check what the till booked and whether the customer paid again "
        "meanwhile, and correct both; then:",
        ("posd show {id}", _ACKNOWLEDGE + "outcome_corrected"),
    ),
    "missing_reference": Advice(
        "Approved, but without the reference that a void needs: it can only be reversed with the acquirer's help. Keep "
        "the receipt; ask the terminal for the reference; then:",
        ("posd reconcile {id}", _ACKNOWLEDGE + "missing_reference"),
    ),
    "amount_differs": Advice(
        "The approved amount is not the one asked for. Compare the receipt with the till, and settle the difference "
        "with the customer; then:",
        (_ACKNOWLEDGE + "amount_differs",),
    ),
    "quarantined_event": Advice(
        "A message of the terminal for this payment could not be used and was set aside. See why, mend what its reason "
        "names, have it applied; clear this if it cannot be:",
        ("posd quarantine", "posd reprocess", _ACKNOWLEDGE + "quarantined_event"),
    ),
    "address_changed": Advice(
        "This machine's address changed while the payment ran: the terminal may send its events to the old one. Ask "
        "it; then:",
        ("posd reconcile {id}", _ACKNOWLEDGE + "address_changed"),
    ),
    "released": Advice(
        "A person freed the terminal; whether the customer was charged is still open. Ask the terminal again, or "
        "settle the payment once you know how it ended:",
        ("posd reconcile {id}", "posd resolve {id} RESULT"),
    ),
}

#: advice for an attention code that this version does not know.
UNKNOWN_ATTENTION = Advice(
    "Tell store IT, and update the posd command: it does not know this yet.", ("posd show {id}",)
)

#: result -> what `posd resolve` does with it.
RESOLVES: Mapping[str, str] = {
    "approved": "books it as charged: the till takes it as paid",
    "declined": "books it as not charged (declined by the bank): the till may take the payment again",
    "rejected": "books it as not charged (rejected by the terminal): the till may take the payment again",
    "canceled": "books it as not charged (canceled): the till may take the payment again",
    "not_started": "books it as not charged (never started): the till may take the payment again",
}


def status_hint(status: str | None) -> str:
    """Return what a lifecycle state means for the cashier, in one line."""
    return STATUS_HINTS.get(status) or f"the terminal says {status}"


def hint(transaction: Mapping[str, Any]) -> str:
    """Return what happens now in an open transaction and what the cashier can do, in one line."""
    return PHASE_HINTS.get(transaction["phase"]) or status_hint(transaction["status"])


def state(transaction: Mapping[str, Any]) -> str:
    """Return in a few words where a transaction stands: its result, or what an open one waits for."""
    outcome = transaction["outcome"]
    if outcome is not None:
        return str(outcome["result"])
    phase: str = transaction["phase"]
    status: str | None = transaction["status"]
    return OPEN_STATES.get(status, str(status or phase)) if phase == "active" else phase.replace("_", " ")


def meaning(outcome: Mapping[str, Any]) -> tuple[str, str]:
    """Return an outcome's style and what it means: whether the customer was charged, in one sentence."""
    style, words = RESULTS.get(outcome["result"], ("yellow", ""))
    if any(evidence["kind"] == "operator" for evidence in outcome["evidence"]):
        return style, f"By a person's word: {words}"
    if outcome["result"] == "approved" or outcome["reached_acquirer"] is not None:
        return style, words
    return "yellow", UNCERTAIN


def advice(code: str) -> Advice:
    """Return what to do about an attention code."""
    return ATTENTION_ADVICE.get(code, UNKNOWN_ATTENTION)
