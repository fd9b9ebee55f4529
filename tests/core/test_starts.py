"""What the one attempt to send a start proves, row by row (design 4, step 5)."""

import json

from posd.payments.wire import StartAccepted, judge
from posd.terminals.attempt import (
    MAX_REFUSAL_TEXT,
    Attempt,
    Doubtful,
    NeverSent,
    NotSent,
    Replied,
    ReplyLost,
    StartRefused,
)
from tests.core.scenarios import IDENTITY
from tests.support.tables import every

GOOD = {
    "event_id": "e",
    "status": "TERMINAL_ACKNOWLEDGED",
    "previous_status": "",
    "operation": {"type": "charge", "client_transaction_id": IDENTITY.upper()},
    "terminal": {"serialNumber": "SN-1", "terminal_id": "1"},
}


def reply(document: object, status: int = 200) -> Replied:
    return Replied(status, json.dumps(document).encode())


@every(
    ("attempt", "kind"),
    [
        (NotSent("connection refused"), NeverSent),
        (ReplyLost("reset"), Doubtful),
        (reply(GOOD), StartAccepted),
        (reply(GOOD, 202), StartAccepted),
        (reply({"status": "TERMINAL_ACKNOWLEDGED"}), StartAccepted),
        (reply(GOOD | {"client_transaction_id": IDENTITY}), StartAccepted),
        (reply(GOOD | {"status": "CARD_PRESENTED"}), Doubtful),
        (reply(GOOD | {"status": None}), Doubtful),
        (reply(GOOD | {"client_transaction_id": "another"}), Doubtful),
        (reply(GOOD | {"operation": {"client_transaction_id": "another"}}), Doubtful),
        (
            reply(GOOD | {"client_transaction_id": IDENTITY, "operation": {"client_transaction_id": "another"}}),
            Doubtful,
        ),
        (
            reply(GOOD | {"client_transaction_id": "another", "operation": {"client_transaction_id": IDENTITY}}),
            Doubtful,
        ),
        (Replied(200, b'{"status": "DECLINED", "status": "TERMINAL_ACKNOWLEDGED"}'), Doubtful),
        (reply([GOOD]), Doubtful),
        (Replied(200, b"<html>"), Doubtful),
        (Replied(200, b""), Doubtful),
        (Replied(200, json.dumps(GOOD).encode(), complete=False), Doubtful),
        (Replied(204, b""), Doubtful),
        *[
            (Replied(status, b"no"), StartRefused)
            for status in (300, 301, 302, 307, 400, 401, 403, 404, 409, 422, 429, 499)
        ],
        *[(Replied(status, b"no"), Doubtful) for status in (100, 199, 408, 500, 502, 503, 504, 599, 600)],
    ],
    ids=str,
)
def test_judge(attempt: Attempt, kind: type) -> None:
    assert type(judge(attempt, IDENTITY)) is kind


def test_acknowledgement_tells_who_answered() -> None:
    assert judge(reply(GOOD), IDENTITY) == StartAccepted("SN-1")
    assert judge(reply(GOOD | {"terminal": "none"}), IDENTITY) == StartAccepted(None)


def test_refusal_keeps_what_the_terminal_said_within_bounds() -> None:
    judged = judge(Replied(422, b"\xff" + b"x" * 10_000), IDENTITY)
    assert isinstance(judged, StartRefused)
    assert (judged.status, len(judged.body)) == (422, MAX_REFUSAL_TEXT)
