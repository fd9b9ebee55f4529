"""The wire of the print channel (spec 2.3; the replies are not shown and read leniently)."""

import json
from typing import Any

import msgspec
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
from posd.terminals.attempt import NotSent, Replied, ReplyLost, StartRefused
from tests.core.test_printing import starting

JOB = starting()
MAPPED = msgspec.structs.replace(JOB, terminal_job_id="T-9")


def test_a_failure_with_its_error() -> None:
    body = b'{"printJobId":"job-1","status":"FAILED","externalReference":"t7","errorCode":7,"errorMessage":"paper"}'
    assert read_webhook(body) == JobReport("FAILED", "job-1", "t7", "7", "paper")


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
def test_the_status_alone_is_read_as_with_all_the_rest(status: bytes, read: str) -> None:
    body = b'{"more": [{"status": "x"}], "status":' + status + b', "printJobId": "job-1"}'
    assert read_status(body) == read_webhook(body).status == read


def test_what_is_left_out_or_of_another_kind_is_nothing() -> None:
    body = b'{"printJobId": 12, "status": "COMPLETED", "externalReference": null, "errorCode": {}, "more": [1]}'
    assert read_webhook(body) == JobReport("COMPLETED", "12", "", None, None)
    long = json.dumps({"printJobId": "j", "status": "FAILED", "errorMessage": "x" * 9999}).encode()
    assert len(read_webhook(long).error_message or "") == MAX_TEXT


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "it is empty"),
        (b'"\xff"', "it is not"),
        (b"[1]", "it is not a JSON object"),
        (b'{"status": "COMPLETED"}', "printJobId is missing"),
        (b'{"printJobId": "", "status": "COMPLETED"}', "printJobId is missing"),
        (b'{"printJobId": "..", "status": "COMPLETED"}', "printJobId is missing"),
        (b'{"printJobId": "j", "status": true}', "status is missing"),
        (b'{"printJobId": "j", "printJobId": "k", "status": "COMPLETED"}', "printJobId stands more than once"),
        (b'{"printJobId": "j", "status": "COMPLETED", "status": "FAILED"}', "status stands more than once"),
        (json.dumps({"printJobId": "j" * (MAX_JOB_ID + 1), "status": "FAILED"}).encode(), "longer than"),
    ],
    ids=range(10),
)
def test_what_is_no_print_webhook(body: bytes, words: str) -> None:
    with pytest.raises(NotAPrintEvent, match=words):
        read_webhook(body)


@given(st.binary(max_size=200) | st.recursive(st.text() | st.none(), st.lists).map(lambda v: json.dumps(v).encode()))
def test_no_body_is_more_than_refused(body: bytes) -> None:
    with pytest.raises(NotAPrintEvent):
        read_webhook(body)


@pytest.mark.parametrize(
    ("reply", "accepted"),
    [
        (b"", JobAccepted()),
        (b"<html>", JobAccepted()),
        (b"[]", JobAccepted()),
        (b"{}", JobAccepted()),
        (b'{"printJobId": "job-1"}', JobAccepted("job-1")),
        (b'{"print_job_id": "T-9", "id": 4}', JobAccepted("T-9")),
        (b'{"id": 4711}', JobAccepted("4711")),
        (b'{"id": ".."}', JobAccepted()),
        (b'{"id": {}, "status": "PENDING"}', JobAccepted(None, JobReport("PENDING"))),
        (
            b'{"status": "FAILED", "errorCode": "E", "errorMessage": "m"}',
            JobAccepted(None, JobReport("FAILED", None, "", "E", "m")),
        ),
        (json.dumps({"id": "x" * (MAX_JOB_ID + 1)}).encode(), JobAccepted()),
        (b'{"printJobId": "job-1", "printJobId": "other"}', JobAccepted()),
        (b'{"printJobId": "job-1", "printJobId": "other", "id": "T-9"}', JobAccepted("T-9")),
        (b'{"id": "T-9", "status": "FAILED", "status": "COMPLETED"}', JobAccepted("T-9")),
    ],
    ids=range(14),
)
def test_what_a_reply_to_the_creation_says(reply: bytes, accepted: JobAccepted) -> None:
    assert judge(Replied(202, reply)) == accepted
    assert judge(Replied(202, reply, complete=False)) == JobAccepted()
    assert judge(Replied(400, b"no")) == StartRefused(400, "no")


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        ({"printJobId": "job-1", "status": "PENDING"}, "PENDING"),
        ({"printJobId": "T-9", "status": "COMPLETED"}, "COMPLETED"),
        ({"status": "IN_PROGRESS"}, "IN_PROGRESS"),
        ({"status": "JAMMED"}, "JAMMED"),
        ({"id": 5, "printJobId": "job-1", "status": "FAILED"}, "FAILED"),
        ([{"status": "FAILED"}], "FAILED"),
        ([{"id": "other", "status": "FAILED"}, 7, {"id": "T-9", "status": "COMPLETED"}], "COMPLETED"),
        ([{"status": "FAILED"}, {"status": "COMPLETED"}], None),
        ({"printJobId": "other", "status": "COMPLETED"}, None),
        ({"printJobId": "job-1"}, None),
        ({"printJobId": "job-1", "status": ""}, None),
        ([], None),
        ("COMPLETED", None),
    ],
    ids=range(13),
)
def test_what_a_poll_brings(reply: Any, status: str | None) -> None:
    answer = read_poll(Replied(200, json.dumps(reply).encode()), MAPPED)
    assert (answer.report.status if isinstance(answer, PollAnswered) else None) == status


def test_the_terminals_own_id_counts_where_it_is_known() -> None:
    reply = Replied(200, b'{"printJobId": "T-9", "status": "COMPLETED"}')
    assert isinstance(read_poll(reply, MAPPED), PollAnswered)
    assert isinstance(read_poll(reply, JOB), NoAnswer)


def test_the_error_of_a_poll_is_kept() -> None:
    body = b'{"status": "FAILED", "errorCode": "E-7", "errorMessage": "paper"}'
    assert read_poll(Replied(200, body), JOB) == PollAnswered(JobReport("FAILED", None, "", "E-7", "paper"))


@pytest.mark.parametrize(
    ("attempt", "answer"),
    [
        (NotSent("refused"), NoAnswer("refused")),
        (ReplyLost("reset"), NoAnswer("reset")),
        (Replied(404, b'{"status": "FAILED"}'), NoAnswer("the terminal answered HTTP 404", 404)),
        (Replied(503, b""), NoAnswer("the terminal answered HTTP 503", 503)),
        (Replied(200, b"{", complete=False), NoAnswer("the reply is too long to be read", 200)),
        (
            Replied(200, b'{"status": "FAILED", "status": "COMPLETED"}'),
            NoAnswer("the reply has this print job, but not its status", 200),
        ),
        (
            Replied(200, b'{"printJobId": "other", "printJobId": "job-1", "status": "FAILED"}'),
            NoAnswer("the reply does not have this print job", 200),
        ),
        (
            Replied(200, b'[{"id": "job-1", "status": "FAILED"}, {"id": "job-1", "status": "COMPLETED"}]'),
            NoAnswer("the reply has this print job, but not its status", 200),
        ),
    ],
    ids=["not sent", "lost", "404", "503", "cut", "twice", "two ids", "two elements"],
)
def test_what_is_no_answer(attempt: Any, answer: NoAnswer) -> None:
    assert read_poll(attempt, JOB) == answer


@pytest.mark.parametrize("body", [b"", b"<html>", b"{", b"\xff"], ids=["nothing", "html", "half", "bytes"])
def test_what_cannot_be_read_is_no_answer(body: bytes) -> None:
    answer = read_poll(Replied(200, body), JOB)
    assert isinstance(answer, NoAnswer)
    assert answer.status == 200


def test_what_is_damaged_around_the_state_of_a_job_does_not_hide_it() -> None:
    body = b'{"printJobId": "job-1", "status": "COMPLETED", "externalReference": "\xff"}'
    assert read_webhook(body) == JobReport("COMPLETED", "job-1", "\ufffd", None, None)
    assert read_status(body) == "COMPLETED"
    named = b'{"\xff": 1, "printJobId": "job\xff", "status": "COMPLETED"}'
    assert (read_webhook(named).job_id, read_status(named)) == (None, "COMPLETED")
    assert read_poll(Replied(200, body), JOB) == PollAnswered(JobReport("COMPLETED"))


def test_a_damaged_state_is_none() -> None:
    body = b'{"printJobId": "job-1", "status": "COMPL\xffTED"}'
    with pytest.raises(NotAPrintEvent, match="status cannot be read"):
        read_webhook(body)
    assert isinstance(read_poll(Replied(200, body), JOB), NoAnswer)
    assert judge(Replied(202, body)) == JobAccepted("job-1", None)


def test_an_error_in_the_answer_to_a_poll_is_no_state_of_the_job() -> None:
    refused = {"type": "NOT_FOUND", "code": "NF-001", "message": "no", "status": 404}
    answer = read_poll(Replied(200, json.dumps(refused).encode()), JOB)
    assert answer == NoAnswer("the terminal answered HTTP 200 with NOT_FOUND NF-001", 200)
    known = refused | {"status": "COMPLETED"}
    assert isinstance(read_poll(Replied(200, json.dumps(known).encode()), JOB), PollAnswered)
