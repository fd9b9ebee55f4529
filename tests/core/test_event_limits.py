"""Events of a payment that are stored beyond the payment's limit. The first event of each state is always stored.

Final events have a higher limit.
"""

from posd.base.limits import EVENTS_OF_TRANSACTION, FINALS_OF_TRANSACTION, Limit
from posd.payments import transitions
from posd.payments.lifecycle import Status, Trail, step
from posd.payments.transitions import New, RepeatedEvent, limit_of_events
from posd.payments.wire import TransactionEvent, read_event
from tests.core.scenarios import IDENTITY, NOW, starting
from tests.rig.events import body
from tests.rig.tables import every

EVENTS = EVENTS_OF_TRANSACTION.value
ALL = EVENTS + FINALS_OF_TRANSACTION.value
#: Events of an approved payment.
SAID = step(step(Trail(), "CARD_PRESENTED", None).trail, "APPROVAL", "CARD_PRESENTED").trail


def event(status: str) -> TransactionEvent:
    return read_event(body(IDENTITY, status))


ROWS: list[tuple[str, New, int, Limit | None]] = [
    ("CARD_PRESENTED", RepeatedEvent.NEW, 0, None),
    ("CARD_PRESENTED", RepeatedEvent.NEW, EVENTS - 1, None),
    ("CARD_PRESENTED", RepeatedEvent.NEW, EVENTS, EVENTS_OF_TRANSACTION),
    ("CARD_PRESENTED", RepeatedEvent.REUSED, EVENTS, EVENTS_OF_TRANSACTION),
    ("A_NEW_STATE", RepeatedEvent.NEW, EVENTS, EVENTS_OF_TRANSACTION),
    ("APPROVAL", RepeatedEvent.NEW, EVENTS, None),
    ("APPROVAL", RepeatedEvent.NEW, ALL - 1, None),
    ("APPROVAL", RepeatedEvent.NEW, ALL, FINALS_OF_TRANSACTION),
    # the first event of a state
    ("DECLINED", RepeatedEvent.NEW, ALL, None),
    ("APPROVAL_REQUESTED", RepeatedEvent.NEW, ALL, None),
    ("DECLINED", RepeatedEvent.REUSED, ALL, FINALS_OF_TRANSACTION),
    ("APPROVAL_REQUESTED", RepeatedEvent.REUSED, EVENTS, EVENTS_OF_TRANSACTION),
]


@every("status, seen, recorded, limit", ROWS)
def test_events_beyond_the_limit_of_a_payment_are_refused(
    status: str, seen: New, recorded: int, limit: Limit | None
) -> None:
    assert limit_of_events(SAID, event(status), seen=seen, recorded=recorded) is limit


def test_one_event_of_each_state_is_stored_past_every_limit() -> None:
    trail, kept = Trail(), 0
    for _ in range(3):
        for status in Status:
            if limit_of_events(trail, event(status), seen=RepeatedEvent.NEW, recorded=ALL + kept) is None:
                trail = step(trail, status, None).trail
                kept += 1
    assert kept == len(Status)


def test_refused_events_are_reported_once_and_change_nothing_else() -> None:
    noted = transitions.overrun(starting(), NOW)
    assert [item.code for item in noted.attention] == ["event_limit"]
    assert transitions.overrun(noted, NOW) == noted
