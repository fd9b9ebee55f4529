"""What is said of each operation type is true of it: every sentence of an outcome, and no other type's words."""

from typing import Any

import pytest

from posd.cli.app.advice import ATTENTION_ADVICE, NEXT_STEPS, attention_advice, next_step
from posd.cli.app.subject import GOES_ON
from posd.cli.payments.show import outcome_pairs
from posd.cli.payments.words import (
    OPERATIONS,
    RESOLVED_AS,
    RESULTS,
    SEARCHES,
    STATUS_HINTS,
    UNKNOWN,
    hint,
    meaning,
    resolving,
    state,
    status_hint,
)
from posd.payments.model import OperationType
from tests.cli.documents import ID, OTHER_ID, outcome, transaction

EVENT = {"kind": "event", "event_id": "e-1"}
KINDS = [*map(str, OperationType), None]

#: What an approval means for each type.
APPROVED = {
    "charge": "The customer was charged.",
    "pre-auth": "The amount was reserved; nothing is charged before it is captured.",
    "re-auth": "The reservation was changed; nothing is charged before it is captured.",
    "capture": "The reservation was captured: the customer was charged.",
    "post-tip": "The tip was charged.",
    "void": (
        "The original was reversed. Whether that is a cancellation (on its own day) or a refund is not known here."
    ),
    "refund": "The money was given back.",
    None: "It was approved. What it was (a charge, a void, ...) is not known here: look at the receipt.",
}


def ended(kind: str | None, result: str, proof: dict[str, Any] = EVENT, **fields: Any) -> dict[str, Any]:
    """A final transaction of that type and result; `fields` replace members of its outcome."""
    done = result == "approved"
    return transaction(
        type=kind,
        outcome=outcome(result, proof, **{"reached_acquirer": done, **fields}),
        next_step="done" if done else "new_id_ok",
    )


def test_every_type_has_its_words() -> None:
    assert set(APPROVED) == set(KINDS)
    assert set(OPERATIONS) == {str(kind) for kind in OperationType}


@pytest.mark.parametrize("kind", KINDS)
def test_an_approval_means_for_each_type_what_happened_and_no_other_end_does(kind: str | None) -> None:
    assert meaning(ended(kind, "approved"))[1] == APPROVED[kind]
    for result in RESULTS:
        words = meaning(ended(kind, result))[1]
        assert (words == APPROVED[kind]) == (result == "approved")
        by_person = ended(kind, result, {"kind": "operator", "operator": "Ana"}, reached_acquirer=None)
        assert meaning(by_person)[1] == f"By a person's word: {words}"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("result", ["canceled", "rejected"])
def test_an_end_after_the_bank_was_asked_leaves_open_what_happened(kind: str | None, result: str) -> None:
    color, words = meaning(transaction(type=kind, outcome=outcome(result, EVENT, reached_acquirer=None)))
    assert (color, "after the bank was asked" in words, "may have been" in words) == ("yellow", True, True)


@pytest.mark.parametrize(
    ("reversal", "words"),
    [
        ("cancellation", "The original was reversed on its own day: a cancellation."),
        ("refund", "The original was reversed after its day had ended: a refund."),
        (None, APPROVED["void"]),
        ("chargeback {0}", "The original was reversed: chargeback {0}."),
    ],
)
def test_an_approved_void_says_whether_it_is_a_cancellation_or_a_refund(reversal: str | None, words: str) -> None:
    assert meaning(ended("void", "approved", reversal=reversal))[1] == words


# what comes next


@pytest.mark.parametrize(
    ("fields", "reference", "commands"),
    [
        ({"type": "pre-auth"}, OTHER_ID, [f"posd capture {ID} AMOUNT", f"posd void {ID}"]),
        ({"type": "pre-auth"}, None, ["posd capture --reference UUID AMOUNT", "posd void --reference UUID"]),
        (
            {"type": "re-auth", "original": OTHER_ID},
            "r",
            [f"posd capture {OTHER_ID} AMOUNT", f"posd void {OTHER_ID}"],
        ),
        ({"type": "re-auth"}, "r", ["posd capture --reference r AMOUNT", "posd void --reference r"]),
        ({"type": "re-auth", "original": OTHER_ID}, None, ["posd capture --reference UUID AMOUNT"]),
    ],
    ids=["pre-auth", "pre-auth without reference", "re-auth", "re-auth by reference", "re-auth without reference"],
)
def test_what_is_reserved_is_captured_or_voided_by_what_names_it(
    fields: dict[str, Any], reference: str | None, commands: list[str]
) -> None:
    done = outcome("approved", EVENT, reached_acquirer=True, transaction_reference=reference)
    reserved = transaction(outcome=done, next_step="done", **fields)
    pairs = outcome_pairs(reserved)
    place = [label for label, _ in pairs].index("next")
    assert pairs[place][1].startswith("Capture it to charge the customer, or void it to give it up")
    assert [value for _, value in pairs[place + 1 :]][: len(commands)] == commands


@pytest.mark.parametrize("said", ["SN-0099", "SN-0001", "", None])
def test_an_outcome_names_the_terminal_that_ran_the_payment(said: str | None) -> None:
    terminal = {"serial_number": said} if said is not None else "odd"
    done = {**outcome("approved", EVENT), "final_event": {"terminal": terminal}}
    shown = dict(outcome_pairs(transaction(outcome=done, next_step="done", terminal="SN-0001")))["terminal"]
    assert shown == ("SN-0099, though SN-0001 was asked" if said == "SN-0099" else "SN-0001")


def test_a_reservation_from_which_something_was_derived_may_be_used_up() -> None:
    done = outcome("approved", EVENT, reached_acquirer=True, transaction_reference="r")
    fresh = transaction(type="pre-auth", outcome=done, next_step="done")
    assert "unless" not in next_step(fresh).words
    assert next_step({**fresh, "derived": [OTHER_ID]}).words.endswith("unless one of them was done since.")


@pytest.mark.parametrize("kind", ["charge", "capture", "post-tip", "void", None])
def test_after_every_other_approval_there_is_nothing_to_do(kind: str | None) -> None:
    assert next_step(ended(kind, "approved")) == ("Nothing more to do.", ())


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ("wait", "Wait for the outcome. Do not start this void again meanwhile."),
        ("new_id_ok", "To try again, start a new void."),
        ("ask_person", "Ask the person in charge. Do not start this void again before that is settled."),
        ("dance_{noun}", "dance_{noun}"),
    ],
)
def test_the_next_step_names_what_it_is_about(step: str, words: str) -> None:
    assert next_step(transaction(type="void", next_step=step)) == (words, ())


# while it runs


@pytest.mark.parametrize(
    ("kind", "words", "name"),
    [
        ("charge", "ask the customer to present the card", "waiting for card"),
        ("pre-auth", "ask the customer to present the card", "waiting for card"),
        *(
            (kind, "the terminal has it: look at its screen, it may ask for the card", "at the terminal")
            for kind in ("re-auth", "capture", "post-tip", "void", None)
        ),
    ],
)
def test_only_what_is_known_to_need_the_card_asks_for_it(kind: str | None, words: str, name: str) -> None:
    running = transaction(type=kind, phase="active", status="TERMINAL_ACKNOWLEDGED")
    assert (hint(running), state(running)) == (words, name)


def test_a_status_of_a_terminal_is_told_as_it_is_written() -> None:
    assert status_hint("WAITING_{noun}", transaction()) == "the terminal says WAITING_{noun}"


@pytest.mark.parametrize(
    ("kind", "result", "words"),
    [
        ("pre-auth", "approved", "books the pre-authorization as approved: the amount counts as reserved"),
        (
            "re-auth",
            "declined",
            (
                "books the re-authorization as declined by the bank: the reservation counts as not changed, and the "
                "till may start it again"
            ),
        ),
        ("void", "approved", "books the void as approved: the original counts as reversed"),
        (
            "void",
            "not_started",
            "books the void as never started: the original counts as not reversed, and the till may start it again",
        ),
    ],
)
def test_a_persons_word_means_for_each_type_what_it_books(kind: str, result: str, words: str) -> None:
    assert resolving(result, transaction(type=kind)) == words


def everything_said(kind: str | None) -> list[str]:
    """All that the command line can say of a transaction of that type."""
    operation = OPERATIONS.get(kind or "", UNKNOWN)
    running = transaction(type=kind)
    return [
        *(meaning(ended(kind, result, reversal=reversal))[1] for result in RESULTS for reversal in (None, "refund")),
        *(meaning(transaction(type=kind, outcome=outcome(r, EVENT, reached_acquirer=None)))[1] for r in RESULTS),
        *(attention_advice(code, running).words for code in ATTENTION_ADVICE),
        *(next_step({**running, "next_step": step}).words for step in NEXT_STEPS),
        *(status_hint(status, running) for status in STATUS_HINTS),
        *(resolving(result, running) for result in RESOLVED_AS),
        *(operation.fill(words) for words in (*SEARCHES.values(), GOES_ON)),
        hint(running),
    ]


@pytest.mark.parametrize("kind", ["pre-auth", "re-auth", "post-tip", "void", None])
def test_nothing_that_is_said_of_it_says_that_the_customer_was_or_was_not_charged(kind: str | None) -> None:
    for words in everything_said(kind):
        assert "customer was" not in words
        assert "customer may have been" not in words
        assert "charge again" not in words


@pytest.mark.parametrize("kind", ["pre-auth", "re-auth", "capture", "void", None])
def test_nothing_that_is_said_of_it_calls_it_a_payment(kind: str | None) -> None:
    assert [words for words in everything_said(kind) if "payment" in words] == []


@pytest.mark.parametrize("kind", ["re-auth", "post-tip", "void", None])
def test_no_void_is_advised_where_a_void_cannot_reverse_it(kind: str | None) -> None:
    assert [words for words in everything_said(kind) if "posd void" in words] == []
