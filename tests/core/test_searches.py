"""What the reply to a search says: found, the explicit none, or no answer. Everything but an empty list is no none."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posd.payments.search_reply import (
    MAX_ELEMENTS,
    MAX_KEPT_BYTES,
    SearchFailed,
    SearchHit,
    SearchMiss,
    final_element,
    read_reply,
    request_body,
)
from posd.payments.wire import NotAnEvent, TransactionEvent
from posd.terminals.attempt import NotSent, Replied, ReplyLost, cut, size_of
from tests.core.inputs import content
from tests.core.scenarios import CARD, IDENTITY, REQUESTED
from tests.support.events import body
from tests.support.tables import every

OURS = f'{{"client_transaction_id": "{IDENTITY}", "status": "CARD_PRESENTED", "amount": 1.10}}'
OTHERS = '{"client_transaction_id": "11111111-2222-4333-8444-555555555555"}'


def read(text: str | bytes, pointer: str = "", status: int = 200) -> SearchHit | SearchMiss | SearchFailed:
    return read_reply(Replied(status, text if isinstance(text, bytes) else text.encode()), pointer, IDENTITY)


@pytest.mark.parametrize(
    ("text", "pointer", "elements"),
    [
        (OURS, "", [OURS]),
        (f" \n{OURS}\t", "", [OURS]),
        (f"[{OURS}]", "", [OURS]),
        (f" [ {OURS} , {OURS} ] ", "", [OURS, OURS]),
        (f"[{OTHERS}, {OURS}, {OTHERS}]", "", [OURS]),
        (f'[null, 7, "{IDENTITY}", ["{IDENTITY}"], {OURS}]', "", [OURS]),
        (f'{{"data": {OURS}}}', "/data", [OURS]),
        (f'{{"data": [{OURS}]}}', "/data", [OURS]),
        (f'{{"data": {{"items": [{OTHERS}, {OURS}]}}}}', "/data/items", [OURS]),
        (f'{{"a/b": {{"c~d": {OURS}}}}}', "/a~1b/c~0d", [OURS]),
        (f'{{"~1": {OURS}}}', "/~01", [OURS]),
        (f'{{"": {OURS}}}', "/", [OURS]),
        (f'[[], {{"found": {OURS}}}]', "/1/found", [OURS]),
        (OURS.replace(IDENTITY, IDENTITY.upper()), "", [OURS.replace(IDENTITY, IDENTITY.upper())]),
    ],
)
def test_found(text: str, pointer: str, elements: list[str]) -> None:
    assert read(text, pointer) == SearchHit(tuple(elements))


@pytest.mark.parametrize(
    ("text", "pointer"),
    [
        ("[]", ""),
        (" [ ]\n", ""),
        ('{"data": []}', "/data"),
        ('{"ok": true, "data": []}', "/data"),
        ('{"a/b": {"": []}}', "/a~1b/"),
    ],
)
def test_an_empty_list_at_the_pointer_is_the_explicit_none(text: str, pointer: str) -> None:
    assert read(text, pointer) == SearchMiss()


@every(
    ("text", "pointer", "reason"),
    [
        ("", "", "it is empty"),
        ("<html><body>Not found</body></html>", "", "not JSON"),
        (f"[{OURS}", "", "not JSON"),
        ("[]]", "", "damaged"),
        ("[] []", "", "not JSON"),
        ("[NaN]", "", "other transactions"),
        ("\ufeff[]", "", "damaged"),
        ("[]\0", "", "damaged"),
        (b'["\xff"]', "", "other transactions"),
        ("[" * 100_000 + "]" * 100_000, "", "deeply"),
        (f"[{OURS}, {'[' * 100_000}{']' * 100_000}]", "", "deeply"),
        ("null", "", "neither a list nor an object"),
        ("7", "", "neither a list nor an object"),
        (f'"{IDENTITY}"', "", "neither a list nor an object"),
        ('{"data": null}', "/data", "neither a list nor an object"),
        ('{"data": "[]"}', "/data", "neither a list nor an object"),
        ('{"data": false}', "/data", "neither a list nor an object"),
        ("{}", "/data", "nothing stands at /data"),
        ("[]", "/data", "nothing stands at /data"),
        ("[]", "/0", "nothing stands at /0"),
        ('{"data": 7}', "/data/items", "nothing stands at /data/items"),
        ('{"data": {"item": []}}', "/data/items", "nothing stands at /data/items"),
        ('{"DATA": []}', "/data", "nothing stands at /data"),
        (f'{{"data": [{OURS}], "data": []}}', "/data", "data stands more than once"),
        (f'{{"data": [], "data": [{OURS}]}}', "/data", "data stands more than once"),
        ('{"a": {"data": [1], "data": []}}', "/a/data", "data stands more than once"),
        ("{}", "", "other transactions"),
        ('{"data": []}', "", "other transactions"),
        ('{"code": 404, "message": "not found"}', "", "other transactions"),
        (OTHERS, "", "other transactions"),
        (f"[{OTHERS}]", "", "other transactions"),
        ("[null]", "", "other transactions"),
        ("[[]]", "", "other transactions"),
        (f'[{{"metadata": {OURS}}}]', "", "other transactions"),
        ('[{"client_transaction_id": 7}]', "", "other transactions"),
        ('[{"client_transaction_id": null}]', "", "other transactions"),
        (f'[{{"clientTransactionId": "{IDENTITY}"}}]', "", "other transactions"),
        (f'[{{"client_transaction_id": "{IDENTITY} "}}]', "", "other transactions"),
    ],
)
def test_everything_else_is_no_answer(text: str | bytes, pointer: str, reason: str) -> None:
    answer = read(text, pointer)
    assert isinstance(answer, SearchFailed)
    assert (reason in answer.reason, answer.status) == (True, 200)


@pytest.mark.parametrize("status", [100, 199, 300, 302, 400, 404, 408, 409, 429, 500, 503, 599])
def test_a_status_that_is_no_success_is_no_answer_with_any_body(status: int) -> None:
    for text in ("[]", OURS):
        assert read(text, status=status) == SearchFailed(f"the terminal answered HTTP {status}", status)


@pytest.mark.parametrize("status", [200, 201, 202, 206, 299])
def test_every_success_is_read(status: int) -> None:
    assert (read("[]", status=status), read(OURS, status=status)) == (SearchMiss(), SearchHit((OURS,)))


@pytest.mark.parametrize("text", ["[]", f"[{OURS}]"])
def test_a_reply_that_was_cut_is_no_answer(text: str) -> None:
    answer = read_reply(Replied(200, text.encode(), complete=False), "", IDENTITY)
    assert answer == SearchFailed("the reply is too long to be read", 200)


def test_what_was_not_answered_keeps_its_reason() -> None:
    assert read_reply(NotSent("refused"), "", IDENTITY) == SearchFailed("refused")
    assert read_reply(ReplyLost("reset"), "", IDENTITY) == SearchFailed("reset")


@every(
    ("element", "reason"),
    [
        ({}, "status is missing"),
        ({"status": 7}, "status is missing"),
        ({"status": "x" * 257}, "longer than"),
        ({"approved": True}, "status is missing"),
        ({"raw_response": {"transaction_status": "ERROR"}}, "status is missing"),
        ({"terminal": {"serial_number": "A", "serialNumber": "B"}, "status": "APPROVAL"}, "more than once"),
    ],
    ids=str,
)
def test_our_id_without_a_state_that_can_be_read_is_no_answer(element: dict[str, object], reason: str) -> None:
    """It is found not, and no explicit none either: `transitions.searched` shows it, and takes nothing back for it."""
    answer = read(json.dumps([{"client_transaction_id": IDENTITY} | element]))
    assert isinstance(answer, SearchFailed)
    assert (reason in answer.reason, answer.bears_id, answer.unreadable) == (True, True, True)


PAGED = {"client_transaction_id": IDENTITY, "transaction_status": "APPROVAL"}


@every(
    ("document", "pointer", "kind"),
    [
        ({"data": [PAGED]}, "", SearchHit),
        ({"a": {"b": [PAGED]}}, "/a/b", SearchHit),
        ({"data": [PAGED | {"raw_response": {"transaction_status": "APPROVAL"}}]}, "", SearchHit),
        ({"data": [PAGED | {"raw_response": {"transaction_status": "DECLINED"}}]}, "", SearchFailed),
        ({"data": [PAGED | {"transaction_status": "APPROVED"}]}, "", SearchFailed),
        ({"data": []}, "", SearchMiss),
        (
            {"data": [], "total": 0, "page": 1, "size": 50, "next": None, "has_more": False, "count": "0"},
            "",
            SearchMiss,
        ),
        ([[]], "/0", SearchMiss),
        ({"data": [], "total": 1}, "", SearchFailed),
        ({"data": [], "meta": {"totalCount": 1}}, "", SearchFailed),
        ({"data": [], "next": "/2"}, "", SearchFailed),
        ({"data": [], "code": "TER-004"}, "", SearchFailed),
        ({"data": PAGED}, "", SearchFailed),
        ([PAGED], "", SearchFailed),
    ],
    ids=str,
)
def test_a_page_of_a_list(document: object, pointer: str, kind: type) -> None:
    reply = Replied(200, json.dumps(document).encode())
    assert type(read_reply(reply, pointer, IDENTITY, paged=True)) is kind


def test_a_state_beside_the_members_of_an_element_counts_in_a_page_alone() -> None:
    assert isinstance(read(json.dumps([PAGED])), SearchFailed)
    (stated,) = SearchHit((json.dumps(PAGED),), paged=True).events
    assert isinstance(stated, TransactionEvent)
    assert stated.status == "APPROVAL"


@given(st.recursive(st.none() | st.integers() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=3)))
def test_no_reply_about_nothing_is_ever_a_find_and_only_the_empty_list_is_a_none(document: object) -> None:
    answer = read(json.dumps(document))
    assert isinstance(answer, SearchMiss if document == [] else SearchFailed)


@given(st.binary(max_size=60), st.sampled_from(["", "/a", "/a/b", "/0"]))
def test_any_bytes_are_read(data: bytes, pointer: str) -> None:
    assert isinstance(read(data, pointer), SearchFailed | SearchMiss)


def test_the_request_is_the_id() -> None:
    assert json.loads(request_body(IDENTITY)) == {"client_transaction_id": IDENTITY}


def test_the_element_behind_an_outcome_is_found_again_verbatim() -> None:
    card, final = content(CARD).decode(), content("APPROVAL", REQUESTED, event_id="final").decode()
    answers = [
        SearchFailed("reset"),
        SearchMiss(),
        SearchHit((OURS, card)),
        SearchHit((final,)),
        SearchHit((body(IDENTITY, CARD).decode(),)),
    ]
    assert final_element(answers, "final") == final
    assert final_element(answers, "another") is None


def test_a_reply_of_too_many_elements_is_no_answer() -> None:
    reply = Replied(200, b"[" + b",".join([b"{}"] * (MAX_ELEMENTS + 1)) + b"]")
    answer = read_reply(reply, "", IDENTITY)
    assert isinstance(answer, SearchFailed)
    assert str(MAX_ELEMENTS) in answer.reason


def test_elements_of_other_terminals_are_left_out_and_what_is_all_ours_stays_as_it_is() -> None:
    card, final = content(CARD).decode(), content("APPROVAL", REQUESTED).decode()
    answer = SearchHit((card, "{}", final))
    assert [isinstance(event, NotAnEvent) for event in answer.events] == [False, True, False]
    assert answer.kept(lambda _event: True) is answer
    assert answer.kept(lambda event: not isinstance(event, NotAnEvent)) == SearchHit((card, final))


def large(status: str, size: int) -> str:
    """Return an element of so many bytes."""
    element = body(IDENTITY, status).decode()
    return element[:-1] + f', "padding": "{"x" * (size - len(element) - 15)}"}}'


def test_of_an_answer_without_end_what_ended_it_is_kept_and_then_what_stands_first() -> None:
    size = MAX_KEPT_BYTES // 3
    before = [large("CARD_PRESENTED", size) for _ in range(5)]
    final = large("APPROVAL", size)
    found = read(f"[{', '.join((*before, final))}]")
    assert isinstance(found, SearchHit)
    assert found.elements == (*before[:2], final)
    assert found.size <= MAX_KEPT_BYTES
    assert found.cut_bytes == sum(map(len, before[2:]))
    one = read(large("APPROVAL", 2 * MAX_KEPT_BYTES))
    assert isinstance(one, SearchHit)
    assert (len(one.elements), one.cut_bytes) == (1, 0)


def test_a_reply_that_is_cut_says_so_and_is_not_whole() -> None:
    reply = cut(Replied(200, b"x" * 11, remark="odd"), 10)
    assert reply == Replied(200, b"x" * 10, complete=False, remark="the reply has 11 bytes, of which 10 are kept; odd")
    assert size_of(reply) == 10
    for attempt in (Replied(200, b"x" * 10), NotSent("no"), ReplyLost("no")):
        assert cut(attempt, 10) is attempt
    assert size_of(ReplyLost("no")) == 0
