"""The wire format of printing. The vendor does not document the replies, so posd reads them leniently."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posd.printing.model import JobAccepted, JobReport
from posd.printing.wire import (
    MAX_JOB_ID,
    MAX_TEXT,
    NoAnswer,
    NotAPrintEvent,
    PollAnswered,
    judge,
    read_poll,
    read_status,
    read_webhook,
)
from posd.terminals.attempt import Attempt, Replied, ReplyLost
from tests.core.test_printing import starting
from tests.rig.tables import every

JOB = starting()


@pytest.mark.parametrize(
    ("status", "read"),
    [
        (b'"COMPLETED"', "COMPLETED"),
        (b' "\\u0043OMPLETED"\t', "COMPLETED"),
        ('"prêt"'.encode(), "prêt"),
        (b"1.50", "1.50"),
        (b"1e3", "1000"),
        (b'"a", "status": "a"', "a"),
        (b'"' + b"x" * MAX_JOB_ID + b'"', "x" * MAX_JOB_ID),
    ],
    ids=["plain", "escaped", "not ASCII", "number", "exponent", "twice", "long"],
)
def test_a_status_alone_is_read_like_a_complete_webhook(status: bytes, read: str) -> None:
    body = b'{"more": [{"status": "x"}], "status":' + status + b', "printJobId": "job-1"}'
    assert read_status(body) == read_webhook(body).status == read


def test_a_member_that_is_missing_or_of_a_wrong_type_has_no_value() -> None:
    body = b'{"printJobId": 12, "status": "COMPLETED", "externalReference": null, "errorCode": {}, "more": [1]}'
    assert read_webhook(body) == JobReport("COMPLETED", "12", "", None, None)
    long = json.dumps({"printJobId": "j", "status": "FAILED", "errorMessage": "x" * 9999}).encode()
    assert len(read_webhook(long).error_message or "") == MAX_TEXT


@given(st.binary(max_size=200) | st.recursive(st.text() | st.none(), st.lists).map(lambda v: json.dumps(v).encode()))
def test_any_body_is_parsed_or_refused(body: bytes) -> None:
    with pytest.raises(NotAPrintEvent):
        read_webhook(body)


def test_damage_around_the_state_of_a_job_does_not_hide_the_state() -> None:
    body = b'{"printJobId": "job-1", "status": "COMPLETED", "externalReference": "\xff"}'
    assert read_webhook(body) == JobReport("COMPLETED", "job-1", "\ufffd", None, None)
    assert read_status(body) == "COMPLETED"
    named = b'{"\xff": 1, "printJobId": "job\xff", "status": "COMPLETED"}'
    assert (read_webhook(named).job_id, read_status(named)) == (None, "COMPLETED")
    assert read_poll(Replied(200, body), JOB) == PollAnswered(JobReport("COMPLETED"))


def test_an_error_in_the_reply_to_a_poll_is_not_a_state_of_the_job() -> None:
    refused = {"type": "NOT_FOUND", "code": "NF-001", "message": "no", "status": 404}
    answer = read_poll(Replied(200, json.dumps(refused).encode()), JOB)
    assert answer == NoAnswer("the terminal answered HTTP 200 with NOT_FOUND NF-001", 200)
    known = refused | {"status": "COMPLETED"}
    assert isinstance(read_poll(Replied(200, json.dumps(known).encode()), JOB), PollAnswered)


def test_a_cut_reply_and_an_unreadable_status_report_nothing() -> None:
    assert isinstance(read_poll(Replied(200, b'{"status": "COMPLETED"}', complete=False), JOB), NoAnswer)
    assert judge(Replied(202, b'{"id": "T-9", "status": "COMPLETED\xff"}')) == JobAccepted("T-9")
    assert judge(Replied(202, b'{"id": "T\xff9"}')) == JobAccepted()


@every(
    ("attempt", "reason"),
    [
        (ReplyLost("reset"), "reset"),
        (Replied(300, b""), "the terminal answered HTTP 300"),
        (Replied(200, b"[]"), "does not have this print job"),
        (Replied(200, b'{"printJobId": "job-1"}'), "but not its status"),
        (Replied(200, b'{"printJobId": "job-2", "status": "COMPLETED"}'), "does not have this print job"),
        (Replied(200, b'{"printJobId": null, "status": "COMPLETED"}'), "does not have this print job"),
        (
            Replied(200, b'{"status": "x", "type": "TERMINAL", "code": "TER-003", "message": "m"}'),
            "with TERMINAL TER-003",
        ),
    ],
)
def test_an_invalid_reply_to_a_poll_has_its_reason(attempt: Attempt, reason: str) -> None:
    answer = read_poll(attempt, JOB)
    assert isinstance(answer, NoAnswer)
    assert reason in answer.reason


def test_a_status_with_only_a_code_counts_as_a_status() -> None:
    assert read_poll(Replied(200, b'{"status": "x", "code": "7"}'), JOB) == PollAnswered(JobReport("x"))


def test_an_id_is_read_up_to_its_limit_and_not_from_a_cut_reply() -> None:
    for other in ("x" * (MAX_JOB_ID + 1), "..", ""):
        assert judge(Replied(202, json.dumps({"id": other}).encode())) == JobAccepted()
    for other in ("x" * (MAX_JOB_ID + 1), "..", ""):
        with pytest.raises(NotAPrintEvent):
            read_webhook(json.dumps({"printJobId": other, "status": "COMPLETED"}).encode())
    longest = json.dumps({"id": "x" * MAX_JOB_ID}).encode()
    assert judge(Replied(202, longest)) == JobAccepted("x" * MAX_JOB_ID)
    assert judge(Replied(202, longest, complete=False)) == JobAccepted()
