"""Judgement of replies to an abort. posd draws a conclusion only from the reply "nothing is running"."""

import json

from posd.base.times import iso
from posd.payments.answers import AbortAnswer, finds_running, judge_abort
from posd.payments.entries import AbortAnswered, AbortRequested, Attempted, Entry, ProvedNotStarted, apply
from posd.payments.lifecycle import Status
from posd.payments.model import Evidence, EvidenceKind
from posd.payments.transitions import RepeatedEvent, advance
from posd.records.model import Phase
from posd.terminals.attempt import Attempt, NotSent, Replied, ReplyLost
from tests.core.scenarios import IDENTITY, NOW, read, starting
from tests.rig.events import body
from tests.rig.tables import every


@every(
    ("attempt", "answer"),
    [
        (NotSent("refused"), AbortAnswer.UNREACHABLE),
        (ReplyLost("reset"), AbortAnswer.UNKNOWN),
        *[(Replied(status, b"{}"), AbortAnswer.TAKEN) for status in (200, 202, 204, 299)],
        (Replied(200, b"", complete=False), AbortAnswer.TAKEN),
        (Replied(409, b"nothing to abort"), AbortAnswer.NOTHING_RUNNING),
        (Replied(409, b'{"message": "', complete=False), AbortAnswer.UNKNOWN),
        *[(Replied(status, b"?", sealed=True), AbortAnswer.UNKNOWN) for status in (200, 302, 404, 409, 500)],
        *[(Replied(status, b"?", sealed=True), AbortAnswer.NOT_TAKEN) for status in (401, 403)],
        *[(Replied(status, b""), AbortAnswer.NOT_TAKEN) for status in (300, 302, 400, 401, 403, 404, 405, 410, 422)],
        *[(Replied(status, b""), AbortAnswer.UNKNOWN) for status in (100, 199, 408, 500, 502, 503, 599, 600)],
    ],
    ids=str,
)
def test_each_reply_to_an_abort_has_its_judgement(attempt: Attempt, answer: AbortAnswer) -> None:
    assert judge_abort(attempt) is answer


BUSY = b'{"type": "TERMINAL", "code": "TER-003"}'


@every(
    ("attempt", "answer"),
    [
        (Replied(200, BUSY), AbortAnswer.TAKEN),
        (Replied(409, BUSY, complete=False), AbortAnswer.NOTHING_RUNNING),
        (ReplyLost("reset"), AbortAnswer.UNKNOWN),
    ],
    ids=str,
)
def test_in_a_2xx_reply_without_errors_only_the_status_counts(attempt: Attempt, answer: AbortAnswer) -> None:
    assert judge_abort(attempt, reads_errors=False) is answer


@every("attempt", [NotSent("refused"), ReplyLost("reset"), Replied(200, b"?"), Replied(409, b"{}")], ids=str)
def test_only_an_explicit_reply_means_that_a_payment_runs(attempt: Attempt) -> None:
    assert finds_running(attempt) is False
    assert finds_running(Replied(500, BUSY)) is True


@every(
    ("status", "document", "heard"),
    [
        (200, {}, True),
        (200, {"type": "TERMINAL", "code": "TER-003"}, True),
        (409, {"type": "TERMINAL", "code": "ter-003"}, True),
        (409, {"type": "TERMINAL", "code": "TER-004", "failure": {"code": "TER-003"}}, True),
        (400, {"failure": {"type": "TERMINAL", "code": "TER-003"}}, True),
        (200, {"type": "TERMINAL", "code": "TER-002"}, False),
        (409, {"type": "TERMINAL", "code": "TER-002"}, False),
    ],
    ids=str,
)
def test_a_payment_that_runs_on_the_terminal_is_never_proved_not_started(
    status: int, document: object, *, heard: bool
) -> None:
    doubtful = apply(starting(), Attempted(ReplyLost("reset")), NOW)
    answered = AbortAnswered(Replied(status, json.dumps(document).encode()), reads_errors=True)
    after = apply(doubtful, answered, NOW)
    assert after.heard is heard
    piece = Evidence(kind=EvidenceKind.SEARCH, at=iso(NOW), result="none")
    proved = apply(after, ProvedNotStarted((piece,)), NOW)
    assert (proved.phase is Phase.IN_DOUBT) is heard


ASKED = AbortRequested(probe=False)
ANSWERS: dict[str, Entry] = {
    "taken": AbortAnswered(Replied(200, b"")),
    "unknown": AbortAnswered(ReplyLost("reset")),
    "nothing_running": AbortAnswered(Replied(409, b"{}")),
    "not_taken": AbortAnswered(Replied(404, b"")),
    "unreachable": AbortAnswered(NotSent("refused")),
}


@every(
    ("inputs", "aborting"),
    [
        ((ASKED,), True),  # the daemon may be killed before the reply is recorded
        ((ASKED, ANSWERS["taken"]), True),
        ((ASKED, ANSWERS["unknown"]), True),
        ((ASKED, ANSWERS["nothing_running"]), True),  # so the customer sees no running payment
        ((ASKED, ANSWERS["not_taken"]), False),
        ((ASKED, ANSWERS["unreachable"]), False),
        ((AbortRequested(probe=True), ANSWERS["taken"]), False),
        ((ASKED, ANSWERS["taken"], Status.CARD_PRESENTED), True),  # the event may have been under way before the abort
        ((ASKED, ANSWERS["taken"], Status.APPROVAL_REQUESTED), False),
        ((ASKED, ANSWERS["taken"], Status.APPROVAL), False),
        ((Status.TERMINAL_CANCELED, ASKED), False),
        ((ASKED, Attempted(NotSent("refused"))), False),
    ],
    ids=str,
)
def test_a_payment_counts_as_aborting_until_the_acquirer_is_asked_or_the_payment_ends(
    inputs: tuple[Entry | Status, ...], *, aborting: bool
) -> None:
    after = starting()
    for item in inputs:
        if isinstance(item, Status):
            after, _ = advance(after, read(body(IDENTITY, item)), seen=RepeatedEvent.NEW, now=NOW)
        else:
            after = apply(after, item, NOW)
    assert after.trail.aborting is aborting
