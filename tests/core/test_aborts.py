"""What the answer to an abort says: only "nothing is running" is used further."""

from posd.payments.wire import AbortAnswer, judge_abort
from posd.terminals.attempt import Attempt, Lost, NotSent, Replied
from tests.support.tables import every


@every(
    ("attempt", "answer"),
    [
        (NotSent("refused"), AbortAnswer.UNREACHABLE),
        (Lost("reset"), AbortAnswer.UNKNOWN),
        *[(Replied(status, b"{}"), AbortAnswer.TAKEN) for status in (200, 202, 204, 299)],
        (Replied(200, b"", complete=False), AbortAnswer.TAKEN),
        (Replied(409, b"nothing to abort"), AbortAnswer.NOTHING_RUNNING),
        *[(Replied(status, b""), AbortAnswer.NOT_TAKEN) for status in (300, 302, 400, 401, 403, 404, 405, 410, 422)],
        *[(Replied(status, b""), AbortAnswer.UNKNOWN) for status in (100, 199, 408, 500, 502, 503, 599, 600)],
    ],
    ids=str,
)
def test_judge_abort(attempt: Attempt, answer: AbortAnswer) -> None:
    assert judge_abort(attempt) is answer
