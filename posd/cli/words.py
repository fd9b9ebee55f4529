"""What the API's words mean to the person at the counter: one table for each kind of word."""

from collections.abc import Mapping
from typing import Any

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

#: attention `code` -> what to do about it.
ATTENTION_ADVICE: Mapping[str, str] = {
    "in_doubt": "look at the terminal: did it take the payment? An event of the terminal settles it",
    "gap": "an event of the terminal is missing: it may come late. If it stays, check the network",
    "stalled": "the terminal has been silent for long: look at its screen and its network",
    "no_callback": "the terminal took it but does not call back: check that it can reach posd and trusts its CA",
    "orphan": "posd's database did not know this payment (was it restored?): compare it with the till's records",
    "serial_mismatch": "another terminal answered than the one asked: check the addresses of the terminals",
    "event_id_reused": "the terminal used one event id twice with different content: report it to its vendor",
    "unknown_status": "the terminal sent a status that this version does not know: update posd",
    "illegal_transition": "the terminal broke the order of its own states: check the payment in the acquirer's records",
    "conflicting_final": "the terminal reported two ends: check with the bank what the customer paid",
    "outcome_corrected": "the outcome was corrected by the terminal's word: check what the till booked before",
    "missing_reference": "approved without a reference: it can only be voided with the acquirer's help",
    "amount_differs": "the approved amount is not the one asked for: compare the receipt",
    "quarantined_event": "a message for this payment could not be read and was set aside: tell store IT",
    "address_changed": "this machine's address changed while the payment ran: look at the terminal",
    "released": "a person freed the terminal; the question of this payment is still open",
}

#: advice for an attention code that this version does not know.
UNKNOWN_ATTENTION = "tell store IT"


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


def advice(code: str) -> str:
    """Return what to do about an attention code."""
    return ATTENTION_ADVICE.get(code, UNKNOWN_ATTENTION)
