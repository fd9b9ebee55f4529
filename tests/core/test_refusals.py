"""Meaning of a terminal's error for a start, as text and together with later reports (vectors: start-reply)."""

import json

import msgspec
import pytest

from posd.payments.answers import Canceled, judge
from posd.payments.entries import Attempted, apply
from posd.payments.model import AttentionCode, NextStep, Result, TerminalFailure, Transaction, next_step
from posd.payments.transitions import quarantined
from posd.printing.wire import judge as judge_print
from posd.records.model import Phase
from posd.terminals.attempt import (
    MAX_MESSAGE,
    MAX_REFUSAL_TEXT,
    MAX_WORD,
    Doubtful,
    ErrorEnvelope,
    Replied,
    StartRefused,
    read_envelope,
)
from tests.core.inputs import REPLIES, content, event, found, reply
from tests.core.scenarios import ACK, CANCELED, CARD, IDENTITY, NOW, REQUESTED, starting
from tests.core.test_decisions import GRACE
from tests.rig.tables import every, there

CANCELED_BY_ANSWER = {item.name: item.apply for item in REPLIES}["canceled"]


def error(type_: str | None, code: str | None, **more: object) -> dict[str, object]:
    return {"type": type_, "code": code, "message": "no"} | more


def refused(status: int, document: object) -> Transaction:
    return reply(judge(Replied(status, json.dumps(document).encode()), IDENTITY))(starting())


@every(
    ("status", "document", "words"),
    [
        (409, error("TERMINAL", "TER-003"), "(HTTP 409, TERMINAL TER-003): it is busy. posd never"),
        (409, error("TERMINAL", "TER-002"), "(HTTP 409, TERMINAL TER-002); the reason is not known"),
        (409, "busy", "(HTTP 409); the reason is not known"),
        (400, error("TERMINAL", "TER-003"), "(HTTP 400, TERMINAL TER-003)"),
        (404, "nothing here", "(HTTP 404)"),
        (401, error("X", "1"), "(HTTP 401, X 1): it did not accept the authentication. Check auth, business_code"),
        (403, error(None, "1"), "(HTTP 403, 1): it did not accept the authentication"),
        (400, error("AUTH", "1"), "(HTTP 400, AUTH 1): it did not accept the authentication"),
        (400, error("authentication", "1"), "(HTTP 400, authentication 1): it did not accept the authentication"),
        (422, error("X", "AUTH-001"), "(HTTP 422, X AUTH-001): it did not accept the authentication"),
        (422, error("PARAMETER", "PAR-003", param="amount"), "(HTTP 422, PARAMETER PAR-003): the field amount"),
        (422, error(None, "1"), "(HTTP 422, 1)"),
        (422, error("X", None), "(HTTP 422, X)"),
        (422, error("PAR\n", "\u202e1", param="a\x1b"), "(HTTP 422, PAR\\n \\u202e1): the field a\\u001b"),
    ],
    ids=str,
)
def test_a_refusal_gives_its_known_details(status: int, document: object, words: str) -> None:
    outcome = there(refused(status, document).outcome)
    assert outcome.failure_reason is not None
    message = outcome.failure_reason.message or ""
    assert message.startswith(f"the terminal refused the request {words}"), message
    for said in ("the reason is not known", "it is busy"):
        assert (said in message) == (said in words), message
    assert (outcome.failure_reason.type, outcome.failure_reason.code) == ("posd", "refused")


USER = error("TERMINAL-SUNMI", "-1")


@every(
    ("document", "trusted", "kind"),
    [
        (USER, False, Canceled),
        (USER | {"code": -1, "approved": False}, True, Canceled),
        (USER | {"approved": True}, True, Doubtful),
        (USER | {"object": {"transaction_reference": "r-1"}}, True, Doubtful),
        (USER | {"object": {"client_transaction_id": IDENTITY.upper(), "serialNumber": "SN-2"}}, False, Canceled),
        (USER | {"failure": {"object": {"client_transaction_id": "another"}}}, False, Doubtful),
        (USER | {"failure": {"failure": {"failure": {"code": "-1"}}}}, False, Canceled),
        (USER | {"failure": {"failure": {"failure": {"failure": {"code": "-1"}}}}}, False, Doubtful),
        (USER | {"more": None, "others": []}, False, Canceled),
        (USER | {"object": ["more"]}, False, Doubtful),
        (USER | {"object": {"code": "7"}}, False, Doubtful),
        (USER | {"object": {"message": ["more"]}}, False, Doubtful),
        (USER | {"failure": {"object": {"client_transaction_id": 7}}}, False, Doubtful),
        (USER | {"failure": {"serialNumber": "SN-2"}}, False, Doubtful),
        (error("TERMINAL", "TER-004"), False, Doubtful),
        (error("TERMINAL", "TER-004"), True, StartRefused),
        (error("TERMINAL", "00"), True, Doubtful),
        (error("TERMINAL", None), True, Doubtful),
        (error("ACQUIRER", "51"), True, Doubtful),
    ],
    ids=str,
)
def test_an_error_in_a_200_is_judged_as_in_the_vectors(document: dict[str, object], trusted: bool, kind: type) -> None:
    """The vectors (start-reply) are tested at each depth of the reply."""
    judged = judge(Replied(200, json.dumps(document).encode()), IDENTITY, errors_in_2xx=trusted)
    assert type(judged) is kind
    if isinstance(judged, StartRefused | Canceled):
        assert judged.reason == f"{document['type']} {document['code']}"


def test_a_doubt_names_even_an_incomplete_error() -> None:
    judged = judge(Replied(200, b'{"code": "51"}'), IDENTITY)
    assert isinstance(judged, Doubtful)
    assert judged.reason.startswith("the terminal answered HTTP 200 with 51")


def test_a_contradicting_error_leaves_doubt() -> None:
    body = json.dumps(USER)[:-1] + ', "object": {"serialNumber": "SN-1", "serialNumber": "SN-2"}}'
    assert type(judge(Replied(200, body.encode()), IDENTITY)) is Doubtful


def test_a_refusal_without_an_error_has_no_reason() -> None:
    assert StartRefused(404, "").reason is None


def test_the_texts_of_a_terminal_are_bounded() -> None:
    long = "x" * 10_000
    found = read_envelope(json.dumps(error(long, long, message=long, param=long)).encode())
    word = "x" * MAX_WORD
    assert found == ErrorEnvelope(word, word, "x" * MAX_MESSAGE, word, certain=True, whole=True)


@every(
    ("body", "read"),
    [
        (b'{"type":"T","failure":{"type":"F","code":"1"}}', ErrorEnvelope("F", "1", None, whole=True)),
        (b'{"code":"0","failure":{"type":"F","code":"1"}}', ErrorEnvelope("F", "1", None, clear=False)),
        (b'{"type":"T","code":"1","failure":{"code":"1"}}', ErrorEnvelope("T", "1", None, whole=True)),
        (b'{"type":"T","code":"1","failure":{"code":"2"}}', ErrorEnvelope("T", "1", None, clear=False)),
        (b'{"type":"T","code":"1","failure":{"type":"F","code":"1"}}', ErrorEnvelope("T", "1", None, clear=False)),
        (b'{"type":"T","code":"1","code":"2"}', ErrorEnvelope("T", "2", None, clear=False)),
        (b'{"type":"T","type":"F","code":"1"}', ErrorEnvelope("F", "1", None, acquirer=True, clear=False)),
        (b'{"type":"T\xff","code":"1"}', ErrorEnvelope("T\ufffd", "1", None, clear=False)),
    ],
)
def test_an_error_is_clear_only_if_all_places_agree(body: bytes, read: ErrorEnvelope) -> None:
    assert read_envelope(body) == msgspec.structs.replace(read, certain=True)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"null", b'{"failure": 7, "object": []}', b"\xff" * 50])
def test_a_reply_without_an_error_gives_no_error(body: bytes) -> None:
    assert read_envelope(body) is None


def test_a_cancellation_in_the_reply_counts_and_keeps_the_terminals_text() -> None:
    after = CANCELED_BY_ANSWER(starting())
    outcome = there(after.outcome)
    assert (after.phase, outcome.result, outcome.status) == (Phase.FINAL, Result.CANCELED, None)
    assert outcome.reached_acquirer is None
    (evidence,) = outcome.evidence
    assert (evidence.kind, evidence.status, evidence.body) == ("refusal", 200, "canceled")
    assert outcome.failure_reason is not None
    assert (outcome.failure_reason.type, outcome.failure_reason.code) == ("posd", "canceled")
    assert outcome.failure_reason.terminal == TerminalFailure("TERMINAL-SUNMI", "-1", "canceled by the user")
    assert next_step(after, NOW, GRACE) is NextStep.NEW_ID_OK


@pytest.mark.parametrize("before", [(ACK, None), (CARD, ACK)])
def test_earlier_states_do_not_change_a_cancellation(before: tuple[str, str | None]) -> None:
    canceled = CANCELED_BY_ANSWER(starting())
    for item in (event(content(*before)), found(content(*before))):
        after = item.apply(canceled)
        assert (after.phase, after.outcome, after.withdrawn) == (Phase.FINAL, canceled.outcome, None)
    again = event(content(*before)).apply(event(content(*before)).apply(canceled))
    assert again.outcome == canceled.outcome, "late"


@pytest.mark.parametrize(
    ("status", "previous", "phase"),
    [(REQUESTED, CARD, Phase.ACTIVE), (CARD, REQUESTED, Phase.ACTIVE), ("WARMING_UP", None, Phase.IN_DOUBT)],
)
def test_a_contradicting_report_withdraws_a_cancellation(status: str, previous: str | None, phase: Phase) -> None:
    canceled = CANCELED_BY_ANSWER(starting())
    after = event(content(status, previous)).apply(canceled)
    assert (after.phase, after.outcome, after.withdrawn) == (phase, None, canceled.outcome)
    assert after.attention_of(AttentionCode.OUTCOME_CORRECTED) is not None
    approved = event(content("APPROVAL", REQUESTED)).apply(after)
    assert there(approved.outcome).supersedes == canceled.outcome


def test_an_unusable_callback_puts_a_cancellation_in_doubt() -> None:
    after = quarantined(CANCELED_BY_ANSWER(starting()), "not JSON", NOW)
    assert (after.phase, after.outcome) == (Phase.IN_DOUBT, None)


def test_a_final_of_the_terminal_replaces_its_reply() -> None:
    canceled = CANCELED_BY_ANSWER(starting())
    same = event(content(CANCELED, CARD)).apply(canceled)
    assert same.outcome is not None
    assert (same.outcome.status, same.outcome.supersedes) == (CANCELED, canceled.outcome)
    assert {item.code for item in same.attention} == {"gap"}
    other = event(content("APPROVAL", REQUESTED)).apply(canceled)
    assert {item.code for item in other.attention} == {"gap", "outcome_corrected"}


def test_an_event_before_the_reply_counts_more_than_a_cancellation_in_the_reply() -> None:
    running = event(content(ACK)).apply(starting())
    assert CANCELED_BY_ANSWER(running) == running
    strange = event(content("WARMING_UP")).apply(starting())
    assert CANCELED_BY_ANSWER(strange).phase is Phase.IN_DOUBT


def test_an_error_of_the_acquirer_is_named_and_leaves_doubt() -> None:
    body = json.dumps(error("ACQUIRER", "51")).encode()
    asked = ": the acquirer may have been asked"
    assert judge(Replied(422, body), IDENTITY) == Doubtful(f"the terminal answered HTTP 422 with ACQUIRER 51{asked}")
    assert judge(Replied(503, b""), IDENTITY) == Doubtful("the terminal answered HTTP 503")
    assert judge(Replied(200, body), IDENTITY, errors_in_2xx=True) == Doubtful(
        f"the terminal answered HTTP 200 with ACQUIRER 51{asked}"
    )


def test_a_refused_print_job_keeps_the_terminals_text_too() -> None:
    body = json.dumps(error("TERMINAL-PRINTER", "7")).encode()
    assert judge_print(Replied(202, body)) == Doubtful("the terminal answered HTTP 202 with TERMINAL-PRINTER 7")
    judged = judge_print(Replied(409, body))
    assert isinstance(judged, StartRefused)
    assert there(judged.error).name == "TERMINAL-PRINTER 7"


@every(
    ("status", "kind"),
    [(302, Doubtful), (401, StartRefused), (403, StartRefused), (409, Doubtful), (422, Doubtful)],
    ids=str,
)
def test_an_encrypted_refusal_may_come_from_the_acquirer(status: int, kind: type) -> None:
    """An encrypted reply comes from a terminal that has identified the caller, so the acquirer may have refused."""
    sealed = Replied(status, b"ciphertext", remark="its body cannot be opened", sealed=True)
    assert type(judge(sealed, IDENTITY)) is kind
    assert type(judge_print(sealed)) is kind
    after = apply(starting(), Attempted(sealed, errors_in_2xx=True), NOW)
    doubt = after.attention_of(AttentionCode.IN_DOUBT)
    assert (doubt is None) is (kind is StartRefused)
    assert doubt is None or "the acquirer may have been asked; its body cannot be opened" in doubt.detail


def test_a_stored_reply_keeps_whether_it_was_encrypted() -> None:
    for attempt in (Replied(422, b"x", sealed=True), Replied(422, b"x")):
        written = msgspec.json.encode(attempt)
        assert (b"sealed" in written) is attempt.sealed
        assert msgspec.json.decode(written, type=Replied) == attempt


def test_a_refusal_keeps_the_terminals_text_up_to_a_limit() -> None:
    judged = judge(Replied(422, b"\xff" + b"x" * 10_000), IDENTITY)
    assert isinstance(judged, StartRefused)
    assert (judged.status, len(judged.body)) == (422, MAX_REFUSAL_TEXT)


def test_a_cancellation_is_shown_by_the_terminals_type_and_code() -> None:
    body = json.dumps(error("TERMINAL-SUNMI", "-1")).encode()
    judged = judge(Replied(200, body), IDENTITY)
    assert isinstance(judged, Canceled)
    assert judged.reason == "TERMINAL-SUNMI -1"
