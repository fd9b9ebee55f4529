"""What the reply to a search says: found, the explicit none, or no answer. Everything but an empty list is no none."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posd.payments.search_reply import MAX_ELEMENTS, Found, NoAnswer, Nothing, final_element, read_reply, request_body
from posd.payments.wire import NotAnEvent, TransactionEvent
from posd.terminals.attempt import Lost, NotSent, Replied
from tests.core.inputs import content
from tests.core.scenarios import CARD, IDENTITY, REQUESTED
from tests.support.events import body
from tests.support.tables import every

OURS = f'{{"client_transaction_id": "{IDENTITY}", "status": "CARD_PRESENTED", "amount": 1.10}}'
OTHERS = '{"client_transaction_id": "11111111-2222-4333-8444-555555555555"}'


def read(text: str | bytes, pointer: str = "", status: int = 200) -> Found | Nothing | NoAnswer:
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
    assert read(text, pointer) == Found(tuple(elements))


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
    assert read(text, pointer) == Nothing()


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
    assert isinstance(answer, NoAnswer)
    assert (reason in answer.reason, answer.status) == (True, 200)


@pytest.mark.parametrize("status", [100, 199, 300, 302, 400, 404, 408, 409, 429, 500, 503, 599])
def test_a_status_that_is_no_success_is_no_answer_with_any_body(status: int) -> None:
    for text in ("[]", OURS):
        assert read(text, status=status) == NoAnswer(f"the terminal answered HTTP {status}", status)


@pytest.mark.parametrize("status", [200, 201, 202, 206, 299])
def test_every_success_is_read(status: int) -> None:
    assert (read("[]", status=status), read(OURS, status=status)) == (Nothing(), Found((OURS,)))


@pytest.mark.parametrize("text", ["[]", f"[{OURS}]"])
def test_a_reply_that_was_cut_is_no_answer(text: str) -> None:
    answer = read_reply(Replied(200, text.encode(), complete=False), "", IDENTITY)
    assert answer == NoAnswer("the reply is too long to be read", 200)


def test_what_was_not_answered_keeps_its_reason() -> None:
    assert read_reply(NotSent("refused"), "", IDENTITY) == NoAnswer("refused")
    assert read_reply(Lost("reset"), "", IDENTITY) == NoAnswer("reset")


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
    assert isinstance(answer, NoAnswer)
    assert (reason in answer.reason, answer.bears_id, answer.unreadable) == (True, True, True)


PAGED = {"client_transaction_id": IDENTITY, "transaction_status": "APPROVAL"}


@every(
    ("document", "pointer", "kind"),
    [
        ({"data": [PAGED]}, "", Found),
        ({"a": {"b": [PAGED]}}, "/a/b", Found),
        ({"data": [PAGED | {"raw_response": {"transaction_status": "APPROVAL"}}]}, "", Found),
        ({"data": [PAGED | {"raw_response": {"transaction_status": "DECLINED"}}]}, "", NoAnswer),
        ({"data": [PAGED | {"transaction_status": "APPROVED"}]}, "", NoAnswer),
        ({"data": []}, "", Nothing),
        ({"data": [], "total": 0, "page": 1, "size": 50, "next": None, "has_more": False, "count": "0"}, "", Nothing),
        ([[]], "/0", Nothing),
        ({"data": [], "total": 1}, "", NoAnswer),
        ({"data": [], "meta": {"totalCount": 1}}, "", NoAnswer),
        ({"data": [], "next": "/2"}, "", NoAnswer),
        ({"data": [], "code": "TER-004"}, "", NoAnswer),
        ({"data": PAGED}, "", NoAnswer),
        ([PAGED], "", NoAnswer),
    ],
    ids=str,
)
def test_a_page_of_a_list(document: object, pointer: str, kind: type) -> None:
    reply = Replied(200, json.dumps(document).encode())
    assert type(read_reply(reply, pointer, IDENTITY, paged=True)) is kind


def test_a_state_beside_the_members_of_an_element_counts_in_a_page_alone() -> None:
    assert isinstance(read(json.dumps([PAGED])), NoAnswer)
    (stated,) = Found((json.dumps(PAGED),), paged=True).events
    assert isinstance(stated, TransactionEvent)
    assert stated.status == "APPROVAL"


@given(st.recursive(st.none() | st.integers() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=3)))
def test_no_reply_about_nothing_is_ever_a_find_and_only_the_empty_list_is_a_none(document: object) -> None:
    answer = read(json.dumps(document))
    assert isinstance(answer, Nothing if document == [] else NoAnswer)


@given(st.binary(max_size=60), st.sampled_from(["", "/a", "/a/b", "/0"]))
def test_any_bytes_are_read(data: bytes, pointer: str) -> None:
    assert isinstance(read(data, pointer), NoAnswer | Nothing)


def test_the_request_is_the_id() -> None:
    assert json.loads(request_body(IDENTITY)) == {"client_transaction_id": IDENTITY}


def test_the_element_behind_an_outcome_is_found_again_verbatim() -> None:
    card, final = content(CARD).decode(), content("APPROVAL", REQUESTED, event_id="final").decode()
    answers = [
        NoAnswer("reset"),
        Nothing(),
        Found((OURS, card)),
        Found((final,)),
        Found((body(IDENTITY, CARD).decode(),)),
    ]
    assert final_element(answers, "final") == final
    assert final_element(answers, "another") is None


def test_a_reply_of_too_many_elements_is_no_answer() -> None:
    reply = Replied(200, b"[" + b",".join([b"{}"] * (MAX_ELEMENTS + 1)) + b"]")
    answer = read_reply(reply, "", IDENTITY)
    assert isinstance(answer, NoAnswer)
    assert str(MAX_ELEMENTS) in answer.reason


def test_elements_of_other_terminals_are_left_out_and_what_is_all_ours_stays_as_it_is() -> None:
    card, final = content(CARD).decode(), content("APPROVAL", REQUESTED).decode()
    answer = Found((card, "{}", final))
    assert [isinstance(event, NotAnEvent) for event in answer.events] == [False, True, False]
    assert answer.kept(lambda _event: True) is answer
    assert answer.kept(lambda event: not isinstance(event, NotAnEvent)) == Found((card, final))
