"""What a person does about an attention, about a reservation and about a refusal: in words, and commands to type."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from posd.cli.payments.words import words_of


class Advice(NamedTuple):
    """What a person does: in words, and the commands that the words speak of, in their order.

    `{id}` stands for the transaction's id, SERIAL for its terminal's serial; what else is in capitals is left to the
    person. The other braces are those of `Operation.fill`.
    """

    words: str
    commands: tuple[str, ...] = ()


_ACKNOWLEDGE = "posd acknowledge {id} "

#: attention `code` -> what to do about it.
ATTENTION_ADVICE: Mapping[str, Advice] = {
    "in_doubt": Advice(
        "The terminal may have taken this {noun}: do not start it again. Look at its screen and its journal. Ask it "
        "again; free it if it must serve others; settle the {noun} once you know how it ended:",
        ("posd reconcile {id}", "posd release {id}", "posd resolve {id} RESULT"),
    ),
    "gap": Advice(
        "An event of the terminal is missing; it may come late. If it does not, check the network, ask the terminal, "
        "and clear this when the {noun} is settled:",
        ("posd reconcile {id}", _ACKNOWLEDGE + "gap"),
    ),
    "stalled": Advice(
        "The terminal has been silent for long; it may still wait for the customer. Look at its screen and its "
        "network. Ask it; where the customer gave up, stop the {noun}. Where the terminal runs nothing, settle the "
        "{noun} once its journal or the acquirer says how it ended:",
        ("posd reconcile {id}", "posd abort {id}", "posd resolve {id} RESULT"),
    ),
    "no_callback": Advice(
        "The terminal took the {noun} but sends no events: check that it reaches this machine (network, firewall) "
        "and trusts posd's CA certificate. The outcome can be asked for:",
        ("posd reconcile {id}",),
    ),
    "orphan": Advice(
        "posd's database did not know this {noun} (was it restored from a backup?). Compare it with the till's "
        "records, and correct the till where it booked something else; then:",
        (_ACKNOWLEDGE + "orphan",),
    ),
    "serial_mismatch": Advice(
        "Another terminal answered than the one asked. Find out on which one this {noun} ran, and correct the "
        "addresses of the terminals; then:",
        ("posd terminals", _ACKNOWLEDGE + "serial_mismatch"),
    ),
    "event_id_reused": Advice(
        "The terminal used one event id for two different messages, and only the first was applied. Compare the "
        "{noun} with the terminal's journal, and report it to the terminal's vendor; then:",
        ("posd show {id}", _ACKNOWLEDGE + "event_id_reused"),
    ),
    "unknown_status": Advice(
        "The terminal sent a status that this version does not know. Update posd, and have it read the events again; "
        "then:",
        ("posd reprocess", _ACKNOWLEDGE + "unknown_status"),
    ),
    "illegal_transition": Advice(
        "The terminal broke the order of its own states, so its word is not sure. Check in the acquirer's records "
        "{whether}; then:",
        (_ACKNOWLEDGE + "illegal_transition",),
    ),
    "conflicting_final": Advice(
        "The terminal reported two different results. Check with the acquirer {whether}, and how often; {twice}; then:",
        ("posd show {id}", _ACKNOWLEDGE + "conflicting_final"),
    ),
    "outcome_corrected": Advice(
        "The outcome stated before was wrong. Check what the till booked and whether this {noun} was started again "
        "meanwhile, and correct both; then:",
        ("posd show {id}", _ACKNOWLEDGE + "outcome_corrected"),
    ),
    "missing_reference": Advice(
        "Approved, but without the acquirer's reference{lack}. Keep the receipt, which may show it; ask the "
        "terminal for it; then:",
        ("posd reconcile {id}", _ACKNOWLEDGE + "missing_reference"),
    ),
    "amount_differs": Advice(
        "The approved amount is not the one asked for. Compare the receipt with the till, and settle the difference; "
        "then:",
        (_ACKNOWLEDGE + "amount_differs",),
    ),
    "approval_unlikely": Advice(
        "The approval contradicts what was asked for; it counts all the same. Compare the terminal's slip with the "
        "till before the customer leaves, and give back or collect the difference. If every approval of this terminal "
        "says so, set its clock, or its currency in the configuration; then:",
        (_ACKNOWLEDGE + "approval_unlikely",),
    ),
    "damaged_event": Advice(
        "A message of the terminal was damaged and was read all the same; the detail names what is missing. Compare "
        "the {noun} with the terminal's slip. If it comes again, report it to the terminal's vendor; then:",
        (_ACKNOWLEDGE + "damaged_event",),
    ),
    "quarantined_event": Advice(
        "A message of the terminal for this {noun} could not be used and was set aside. See why, mend what its reason "
        "names, have it applied; clear this if it cannot be:",
        ("posd quarantine", "posd reprocess", _ACKNOWLEDGE + "quarantined_event"),
    ),
    "event_limit": Advice(
        "The terminal sends events of this {noun} without end, and posd keeps no more of them. How it ends still gets "
        "in. If it does not end, ask the terminal; restart the terminal and report it to its vendor; then:",
        ("posd reconcile {id}", _ACKNOWLEDGE + "event_limit"),
    ),
    "address_changed": Advice(
        "This machine's address changed while the {noun} ran, and the terminal sends its events to the old one. posd "
        "asks the terminal by itself. Ask it this moment; where it does not know the {noun} any more, settle it once "
        "the terminal's journal or the acquirer says how it ended:",
        ("posd reconcile {id}", "posd resolve {id} RESULT"),
    ),
    "identity_conflict": Advice(
        "It is not sure which device is the terminal, so that nothing is sent to it for this {noun}; what the terminal "
        "reports by itself still counts. Look at the terminal and its address, and say which device it is:",
        ("posd terminals", "posd terminals identity SERIAL"),
    ),
    "outcome_unread": Advice(
        "No program has asked how this {noun} ended: the till may have stopped before it could book the approval. Book "
        "it there, or undo it, before the customer is asked to pay again. Showing it clears this:",
        ("posd show {id}",),
    ),
    "released": Advice(
        "A person freed the terminal; {whether} is still open. Ask the terminal again, or settle the {noun} once you "
        "know how it ended:",
        ("posd reconcile {id}", "posd resolve {id} RESULT"),
    ),
}

#: the same where no abort may be sent any more, for an advice that speaks of one.
NOT_ABORTABLE: Mapping[str, Advice] = {
    "stalled": Advice(
        "The terminal has been silent for long, and this {noun} can no longer be aborted. Look at its screen and its "
        "receipt, and ask it. Once the receipt or the acquirer says how it ended, settle the {noun}:",
        ("posd reconcile {id}", "posd resolve {id} RESULT"),
    ),
}

#: attentions whose advice ends with how to settle the payment.
SETTLED_BY = frozenset({"in_doubt", "released", "address_changed"})
#: what to do about an open one that a person has to look at, where no attention says it.
SETTLE = Advice(
    "Look at the terminal's screen and journal, and at the acquirer's records. Ask the terminal again; free it if it "
    "must serve others; settle the {noun} once you know how it ended (RESULT is approved, declined, rejected, canceled "
    "or not_started):",
    ("posd reconcile {id}", "posd release {id}", "posd resolve {id} RESULT"),
)

#: advice for an attention code that this version does not know.
UNKNOWN_ATTENTION = Advice(
    "Tell store IT, and update the posd command: it does not know this yet.", ("posd show {id}",)
)

#: `next_step` -> what to do.
NEXT_STEPS: Mapping[str, str] = {
    "wait": "Wait for the outcome. Do not start this {noun} again meanwhile.",
    "done": "Nothing more to do.",
    "new_id_ok": "To try again, start a new {noun}.",
    "ask_person": "Ask the person in charge. Do not start this {noun} again before that is settled.",
}

#: what comes after an approved pre-authorization or re-authorization; {name} is what names the reservation.
CAPTURE_OR_VOID = Advice(
    "Capture it to charge the customer, or void it to give it up",
    ("posd capture {name} AMOUNT", "posd void {name}"),
)
#: what is added to that unless nothing came after it for certain.
UNLESS_DONE = ", unless one of them was done since"

#: `next_step` of a refusal -> what to do, where the id may have been started before.
REFUSED_STEPS: Mapping[str, str] = {
    "fix_call": "Correct the call, and keep the id.",
    "same_call": "Repeat the same call with the same --id.",
    "ask_person": "Ask the person in charge. Keep the id, and do not start it under another one.",
}

#: how the daemon writes what a till sends -> what a person types instead.
SPELLINGS: Mapping[str, str] = {
    '"additional": true': "--additional",
    "`transaction_reference`": "--reference UUID",
}


#: Where a person reads more of a code.
EXPLAINED = "more of it: posd explain {codes}"


def explained_by(codes: Iterable[str]) -> str:
    """Return the command that says what codes mean, each of them once."""
    return EXPLAINED.format(codes=" ".join(dict.fromkeys(codes)))


def attention_advice(code: str, transaction: Mapping[str, Any]) -> Advice:
    """Return what to do about an attention of a transaction of that type."""
    operation = words_of(transaction)
    advice = ATTENTION_ADVICE.get(code, UNKNOWN_ATTENTION)
    if not transaction["abortable"]:
        advice = NOT_ABORTABLE.get(code, advice)
    # The id is left to who knows how much of it has to be written.
    serial = str(transaction["terminal"]).replace("{", "{{").replace("}", "}}")
    return Advice(operation.fill(advice.words), tuple(each.replace("SERIAL", serial) for each in advice.commands))


def settling(transaction: Mapping[str, Any]) -> Advice | None:
    """Return how a person settles an open transaction, None of one that no person has to look at."""
    if transaction["outcome"] is not None or transaction["next_step"] != "ask_person":
        return None
    return Advice(words_of(transaction).fill(SETTLE.words), SETTLE.commands)


def next_step(transaction: Mapping[str, Any]) -> Advice:
    """Return what is to be done about a transaction now."""
    step = transaction["next_step"]
    name = _reservation(transaction)
    if step == "done" and name is not None:
        untouched = transaction["type"] == "pre-auth" and not transaction["derived"]
        words = CAPTURE_OR_VOID.words + ("" if untouched else UNLESS_DONE) + "."
        return Advice(words, tuple(command.format(name=name) for command in CAPTURE_OR_VOID.commands))
    return Advice(words_of(transaction).fill(NEXT_STEPS[step]) if step in NEXT_STEPS else step)


def _reservation(transaction: Mapping[str, Any]) -> str | None:
    """Return how a command names what an approval reserved, None where it reserves nothing.

    The pre-authorization's id is best: it stands for the newest reference.
    """
    originals = {"pre-auth": transaction["client_transaction_id"], "re-auth": transaction["original"]}
    if transaction["outcome"] is None or transaction["type"] not in originals:
        return None
    reference = transaction["outcome"]["transaction_reference"]
    original = originals[transaction["type"]]
    return original if original and reference else f"--reference {reference or 'UUID'}"
