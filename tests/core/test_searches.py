"""Replies to a search. A reply is a found transaction, an explicit none, or no answer.

Only an empty list means none.
"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posd.payments.answers import (
    MAX_ELEMENTS,
    MAX_KEPT_BYTES,
    SearchFailed,
    SearchHit,
    SearchMiss,
    final_element,
    read_reply,
)
from posd.payments.wire import NotAnEvent, TransactionEvent
from posd.terminals.attempt import NotSent, Replied, ReplyLost, cut, size_of
from tests.core.inputs import content
from tests.core.scenarios import CARD, IDENTITY, REQUESTED
from tests.rig.events import body
from tests.rig.tables import every

OURS = f'{{"client_transaction_id": "{IDENTITY}", "status": "CARD_PRESENTED", "amount": 1.10}}'


def read(text: str | bytes, pointer: str = "", status: int = 200) -> SearchHit | SearchMiss | SearchFailed:
    return read_reply(Replied(status, text if isinstance(text, bytes) else text.encode()), pointer, IDENTITY)


@pytest.mark.parametrize("text", ["[]", f"[{OURS}]"])
def test_a_cut_reply_is_not_an_answer(text: str) -> None:
    answer = read_reply(Replied(200, text.encode(), complete=False), "", IDENTITY)
    assert answer == SearchFailed("the reply is too long to be read", 200)


def test_a_missing_answer_keeps_its_reason() -> None:
    assert read_reply(NotSent("refused"), "", IDENTITY) == SearchFailed("refused")
    assert read_reply(ReplyLost("reset"), "", IDENTITY) == SearchFailed("reset")


PAGED = {"client_transaction_id": IDENTITY, "transaction_status": "APPROVAL"}


def test_a_state_outside_the_elements_counts_only_in_a_paged_reply() -> None:
    failed = read(json.dumps([PAGED]))
    assert isinstance(failed, SearchFailed)
    assert (failed.bears_id, failed.unreadable) == (True, True)
    (stated,) = SearchHit((json.dumps(PAGED),), paged=True).events
    assert isinstance(stated, TransactionEvent)
    assert stated.status == "APPROVAL"


@every(
    ("text", "pointer", "kind"),
    [
        ('{"a": [[]]}', "/a/0", SearchMiss),
        ('{"0": []}', "/0", SearchMiss),
        ("[[], []]", "/\u0661", SearchFailed),  # RFC 6901: an index has ASCII digits
        ('{"data": [], "size": [1]}', "/data", SearchFailed),
    ],
)
def test_only_an_empty_list_at_the_pointer_means_nothing_found(text: str, pointer: str, kind: type) -> None:
    assert isinstance(read(text, pointer), kind)
    assert isinstance(read(text, pointer, status=300), SearchFailed)


def test_a_reply_of_an_unknown_form_is_described() -> None:
    answer = read("5")
    assert isinstance(answer, SearchFailed)
    assert "neither a list nor an object" in answer.reason


@given(st.recursive(st.none() | st.integers() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=3)))
def test_of_replies_without_the_payment_only_an_empty_list_means_nothing_found(document: object) -> None:
    answer = read(json.dumps(document))
    assert isinstance(answer, SearchMiss if document == [] else SearchFailed)


@given(st.binary(max_size=60), st.sampled_from(["", "/a", "/a/b", "/0"]))
def test_any_bytes_have_a_result(data: bytes, pointer: str) -> None:
    assert isinstance(read(data, pointer), SearchFailed | SearchMiss)


def test_the_element_of_an_outcome_is_found_again_verbatim() -> None:
    card, final = content(CARD).decode(), content("APPROVAL", REQUESTED, event_id="final").decode()
    answers = [
        SearchFailed("reset"),
        SearchMiss(),
        SearchHit(("{}", OURS, card)),
        SearchHit((final,)),
        SearchHit((body(IDENTITY, CARD).decode(),)),
    ]
    assert final_element(answers, "final") == final
    assert final_element(answers, "another") is None


def test_a_reply_of_too_many_elements_is_not_an_answer() -> None:
    reply = Replied(200, b"[" + b",".join([b"{}"] * (MAX_ELEMENTS + 1)) + b"]")
    answer = read_reply(reply, "", IDENTITY)
    assert isinstance(answer, SearchFailed)
    assert str(MAX_ELEMENTS) in answer.reason
    most = read_reply(Replied(200, b"[" + b",".join([b"{}"] * MAX_ELEMENTS) + b"]"), "", IDENTITY)
    assert isinstance(most, SearchFailed)
    assert str(MAX_ELEMENTS) not in most.reason


def test_only_elements_of_other_terminals_are_removed_from_a_reply() -> None:
    card, final = content(CARD).decode(), content("APPROVAL", REQUESTED).decode()
    answer = SearchHit((card, "{}", final))
    assert [isinstance(event, NotAnEvent) for event in answer.events] == [False, True, False]
    assert answer.kept(lambda _event: True) is answer
    assert answer.kept(lambda event: not isinstance(event, NotAnEvent)) == SearchHit((card, final))


def large(status: str, size: int, letter: str = "x") -> str:
    """Return an element of that size in bytes, whose padding consists of `letter`."""
    element = body(IDENTITY, status).decode()
    padding = letter * ((size - len(element) - 15) // len(letter.encode()))
    return element[:-1] + f', "padding": "{padding}"}}'


@pytest.mark.parametrize("letter", ["x", "語"], ids=["one byte", "three bytes"])
def test_a_very_long_reply_keeps_its_final_element_and_its_first_elements(letter: str) -> None:
    size = MAX_KEPT_BYTES // 3
    before = [large("CARD_PRESENTED", size, letter) for _ in range(5)]
    final = large("APPROVAL", MAX_KEPT_BYTES - 2 * size, letter)
    found = read(f"[{', '.join((*before, final))}]")
    assert isinstance(found, SearchHit)
    assert found.elements == (*before[:2], final)
    assert found.size <= MAX_KEPT_BYTES
    assert found.cut_bytes == len("".join(before[2:]).encode())
    one = read(large("APPROVAL", 2 * MAX_KEPT_BYTES, letter))
    assert isinstance(one, SearchHit)
    assert (len(one.elements), one.cut_bytes) == (1, 0)


def test_a_shortened_reply_is_marked_as_incomplete() -> None:
    reply = cut(Replied(200, b"x" * 11, remark="odd"), 10)
    assert reply == Replied(200, b"x" * 10, complete=False, remark="the reply has 11 bytes; posd keeps 10; odd")
    assert size_of(reply) == 10
    for attempt in (Replied(200, b"x" * 10), NotSent("no"), ReplyLost("no")):
        assert cut(attempt, 10) is attempt
    assert size_of(ReplyLost("no")) == 0
