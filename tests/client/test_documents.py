"""Documents as types. Numbers are exact, and times have a zone. The client keeps unknown data and never treats it as
known data.
"""

import json
from dataclasses import fields
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest

from posd.api.openapi import document as description
from posd.base.operations import OperationType
from posd.client import (
    Approved,
    Display,
    Effect,
    Evidence,
    Failure,
    ForeignAnswer,
    NotStarted,
    Outcome,
    Paid,
    Posd,
    Receipt,
    Reserved,
    Reversed,
    TerminalFailure,
    UnknownResult,
    documents,
    states,
)
from posd.client.operations import EFFECTS, DerivedFields
from posd.client.states import TYPES, read_outcome
from posd.payments.model import Result
from tests.rig.documents import AT, ID, answer, attention, outcome, outcome_of, transaction
from tests.rig.stub import Answer, Stub
from tests.rig.tables import every

MOMENT = datetime(2026, 11, 20, 14, 2, 11, 123000, tzinfo=UTC)
#: The schemas of the description of the API.
SCHEMAS = json.loads(description())["components"]["schemas"]
EVENT = {"kind": "event", "event_id": "e-1"}


def ended(result: str, next_step: str, kind: str | None = "charge", **fields: Any) -> Outcome:
    document = transaction(type=kind, outcome=outcome(result, EVENT, next_step=next_step, **fields))
    found = read_outcome(document)
    assert found is not None
    return found


#: Type of the client -> schema in the description of the API, and fields that are not in the schema.
DESCRIBED: dict[Any, tuple[str, set[str]]] = {
    states.Approved: ("TransactionOutcome", {"next_step"}),
    states.Attention: ("Attention", set()),
    states.Change: ("Event", {"status"}),
    states.Check: ("Check", set()),
    states.Display: ("Display", set()),
    states.Evidence: ("Evidence", set()),
    states.Failure: ("Failure", set()),
    states.FeedChange: ("Change", {"place"}),
    states.Health: ("Health", set()),
    states.Notice: ("Notice", set()),
    states.PrintJob: ("PrintJob", set()),
    states.Receipt: ("Receipt", set()),
    states.State: ("State", set()),
    states.Terminal: ("Terminal", {"in_fleet"}),
    states.TerminalFailure: ("TerminalFailure", set()),
    states.Transaction: ("Transaction", set()),
    states.Version: ("Version", set()),
}


@pytest.mark.parametrize("kind", DESCRIBED, ids=lambda kind: kind.__name__)
def test_each_field_is_a_member_that_the_api_promises(kind: Any) -> None:
    name, elsewhere = DESCRIBED[kind]
    promised = set(SCHEMAS[name]["required"])
    read = {each.metadata.get("member", each.name) for each in fields(kind)} - elsewhere - {"document"}
    assert read <= promised


def test_each_member_of_a_start_has_a_keyword() -> None:
    assert DerivedFields.__optional_keys__ | {"type", "amount"} == set(SCHEMAS["StartRequest"]["properties"])


def test_each_result_of_the_contract_has_its_type() -> None:
    assert set(TYPES) == set(Result)
    assert set(TYPES.values()) == {get_origin(each) for each in get_args(Outcome)}


def test_an_approval_has_all_members_of_the_contract() -> None:
    receipt = {"authorization_code": "A1", "franchise": "VISA", "card_type": "credit", "cvm_type": "PIN"}
    fields = {
        "status": "APPROVAL",
        "transaction_reference": "r",
        "ticket_number": "7",
        "reached_acquirer": True,
        "reading_type": "CONTACTLESS",
        "authorized_amount": Decimal("11.20"),
        "receipt": receipt | {"new": 1},
        "reversal": "refund",
        "final_event": {"x": Decimal("1.10")},
        "supersedes": outcome("not_started", {"kind": "unsent"}),
        "of_a_newer_posd": [1],
    }
    found = ended("approved", "done", **fields)
    assert isinstance(found, Approved)
    assert (found.id, found.type, found.result, found.status) == (ID, "charge", "approved", "APPROVAL")
    assert (found.transaction_reference, found.ticket_number, found.reversal) == ("r", "7", "refund")
    assert (found.reached_acquirer, found.reading_type) == (True, "CONTACTLESS")
    assert str(found.authorized_amount) == "11.20"
    assert found.receipt == Receipt("A1", "VISA", "credit", "PIN")
    assert found.decided_at == MOMENT
    assert found.display == Display("paid", "PAID 11.20")
    assert found.evidence == (Evidence("event", MOMENT, {"at": AT, **EVENT}),)
    assert isinstance(found.supersedes, NotStarted)
    assert found.supersedes.effect is Paid.UNCLEAR
    assert found.final_event == {"x": Decimal("1.10")}
    assert found.document["of_a_newer_posd"] == [1]


def test_an_older_posd_gives_no_display_for_a_till() -> None:
    for document in (transaction(), transaction(display=None)):
        assert documents.read(states.Transaction, document).display == (
            document["display"] and Display(**document["display"])
        )
    older = outcome("approved", EVENT)
    del older["display"]
    found = read_outcome(transaction(outcome=older))
    assert found is not None
    assert found.display is None


def test_the_failure_reported_by_the_terminal_is_read() -> None:
    assert ended("not_started", "new_id_ok").failure_reason is None
    own = {"type": "TERMINAL", "code": "TER-003", "message": "busy"}
    reason = {"type": "posd", "code": "refused", "message": "it is busy", "terminal": own}
    found = ended("not_started", "new_id_ok", failure_reason=reason)
    assert found.failure_reason == Failure(
        "posd", "refused", "it is busy", TerminalFailure("TERMINAL", "TER-003", "busy")
    )


@every(
    ("result", "next_step", "answer"),
    [
        ("approved", "done", 0),
        *((result, "new_id_ok", 1) for result in TYPES if result != "approved"),
        *((result, "ask_person", 2) for result in TYPES),
        *((result, "of a newer posd", 2) for result in TYPES),
        ("approved", "new_id_ok", 2),
        ("declined", "done", 2),
        ("declined", "wait", 2),
    ],
)
def test_the_properties_done_and_not_done_are_true_only_if_certain(result: str, next_step: str, answer: int) -> None:
    for operation in OperationType:
        effect = list(EFFECTS[operation])[answer]
        found = ended(result, next_step, operation)
        assert (found.next_step, found.effect) == (next_step, effect)
        older = outcome(result, EVENT)
        older.pop("next_step", None)
        found_there = read_outcome(transaction(type=operation, outcome=older, next_step=next_step))
        assert found_there is not None
        assert (found_there.next_step, found_there.effect) == (next_step, effect)


WORDS = {Paid: "paid", Reserved: "reserved", Reversed: "reversed"}


@every("operation", OperationType)
def test_a_refund_or_a_reservation_is_never_paid(operation: OperationType) -> None:
    """A till that books `paid` would book a refund as income."""
    right = EFFECTS[operation]
    for kind, word in WORDS.items():
        if kind is right:
            assert getattr(ended("approved", "done", operation), word) is next(iter(kind))
            continue
        with pytest.raises(AttributeError, match=f"a {operation} is never called {word}: write `match outcome"):
            getattr(ended("approved", "done", operation), word)


@every("operation", [None, "of_a_newer_posd"])
def test_an_unknown_operation_is_unclear_in_every_property(operation: str | None) -> None:
    found = ended("approved", "done", operation)
    assert found.effect is Paid.UNCLEAR
    assert {kind: getattr(found, word) for kind, word in WORDS.items()} == {kind: kind("unclear") for kind in WORDS}


@every("answer", [each for kind in WORDS for each in kind])
def test_an_outcome_has_no_truth_value(answer: Effect) -> None:
    """`if not outcome.paid:` would charge again if the outcome is unclear."""
    kind, word = type(answer), WORDS[type(answer)]
    with pytest.raises(TypeError, match=rf"neither true nor false.*match outcome\.{word}.*{kind.__name__}\.UNCLEAR"):
        bool(answer)
    for other in (True, False, None, word, word.upper()):
        with pytest.raises(TypeError, match=rf"cannot be compared with .*match outcome\.{word}"):
            _ = answer == other
        with pytest.raises(TypeError, match="cannot be compared"):
            _ = answer != other
    assert [answer == each for other in WORDS for each in other].count(True) == 1
    assert {answer: 1}[kind(answer.value)] == 1


def test_a_result_that_only_a_newer_posd_knows_is_an_error(tmp_path: Path) -> None:
    partly = transaction(outcome=outcome("partly_approved", EVENT, next_step="ask_person"))
    with (
        Stub(tmp_path / "s", [answer(outcome_of(partly))]) as stub,
        Posd(stub.socket) as client,
        pytest.raises(UnknownResult, match=r"'partly_approved': this client is older .*ask_person") as caught,
    ):
        client.transaction(ID).outcome()
    assert caught.value.document["result"] == "partly_approved"


def test_an_outcome_is_returned_only_once_its_payment_is_known(tmp_path: Path) -> None:
    """An outcome without its transaction has neither the payment nor the payment's type. Without the payment the client
    concludes nothing.
    """
    final = transaction(outcome=outcome("approved", EVENT), next_step="done")
    over = answer(final["outcome"])
    with Stub(tmp_path / "s", [over, answer(transaction()), over]) as stub, Posd(stub.socket) as client:
        payment = client.transaction(ID)
        with pytest.raises(ForeignAnswer):
            payment.outcome()
        assert payment.is_known()
        found = payment.outcome()
    assert (type(found), found.id, found.paid, found.terminal) == (Approved, ID, Paid.PAID, "SN-0001")


def test_a_transaction_has_all_members_of_the_contract(tmp_path: Path) -> None:
    raw = documents.encode(transaction_fields())
    with Stub(tmp_path / "s", [Answer(200, raw)]) as stub, Posd(stub.socket) as client:
        state = client.transaction(ID.upper()).state()
    assert (state.id, state.terminal, state.type, state.sale) == (ID, "SN-0001", "charge", "s-1")
    assert (state.phase, state.status, state.next_step, state.final) == ("active", "CARD_PRESENTED", "wait", False)
    assert (state.abortable, state.released, state.original, state.derived) == (True, False, None, ("d",))
    assert documents.encode(state.amount) == b'{"iva":1.20,"subtotal_iva":10.00}'
    assert (state.created_at, state.outcome) == (MOMENT, None)
    assert [(item.code, item.since, item.detail) for item in state.attention] == [("gap", MOMENT, "why")]
    assert state.document["of_a_newer_posd"] == "kept"


def transaction_fields() -> dict[str, Any]:
    return transaction(
        phase="active",
        status="CARD_PRESENTED",
        next_step="wait",
        sale="s-1",
        derived=["d"],
        amount={"iva": Decimal("1.20"), "subtotal_iva": Decimal("10.00")},
        attention=[attention("gap", "why")],
        of_a_newer_posd="kept",
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Decimal("10.10"), "10.10"),
        (Decimal("0.0000001"), "0.0000001"),
        (Decimal("1E+3"), "1000"),
        (Decimal("-0.10"), "-0.10"),
        (12345678901234567890123, "12345678901234567890123"),
        ({"a": [True, None, "ñ\n"]}, '{"a":[true,null,"ñ\\n"]}'),
        ((1, 2), "[1,2]"),
    ],
    ids=str,
)
def test_written_numbers_are_exact(value: object, text: str) -> None:
    assert documents.encode(value).decode() == text


@pytest.mark.parametrize("value", [1.5, {"a": [0.1]}, b"x", {1: 2}, {1, 2}, Path], ids=repr)
def test_a_value_that_json_cannot_hold_exactly_is_refused(value: object) -> None:
    with pytest.raises(TypeError):
        documents.encode(value)


@pytest.mark.parametrize("value", [Decimal("NaN"), Decimal("Infinity"), "\ud800"], ids=repr)
def test_a_value_that_is_not_json_is_refused(value: object) -> None:
    with pytest.raises(ValueError):
        documents.encode(value)


@pytest.mark.parametrize("text", ["", "{", "NaN", '"\\ud800"', "[" * 100_000, "1 2", "\ufeff1"], ids=lambda x: x[:9])
def test_invalid_json_raises_valueerror(text: str) -> None:
    with pytest.raises(ValueError):
        documents.decode(text)


def test_every_number_can_be_read() -> None:
    found = documents.decode(f"[10.10, 1e400, {'9' * 5000}, 1e99999999999999999999, 7]")
    assert [type(item) for item in found] == [Decimal, Decimal, Decimal, str, int]
    assert str(found[0]) == "10.10"
