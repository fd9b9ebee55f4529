"""Which events of a payment are kept past its limit: the first of each state always, final ones for longer."""

from posd.base.limits import EVENTS_OF_TRANSACTION, FINALS_OF_TRANSACTION, Limit
from posd.payments import transitions
from posd.payments.lifecycle import Status, Trail, step
from posd.payments.transitions import New, RepeatedEvent, limit_of_events
from posd.payments.wire import TransactionEvent, read_event
from tests.core.scenarios import IDENTITY, NOW, starting
from tests.support.events import body
from tests.support.tables import every

EVENTS = EVENTS_OF_TRANSACTION.value
ALL = EVENTS + FINALS_OF_TRANSACTION.value
#: Events of a payment that was approved after its card was presented.
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
    # The first of its state.
    ("DECLINED", RepeatedEvent.NEW, ALL, None),
    ("APPROVAL_REQUESTED", RepeatedEvent.NEW, ALL, None),
    ("DECLINED", RepeatedEvent.REUSED, ALL, FINALS_OF_TRANSACTION),
    ("APPROVAL_REQUESTED", RepeatedEvent.REUSED, EVENTS, EVENTS_OF_TRANSACTION),
]


@every("status, seen, recorded, limit", ROWS)
def test_what_is_kept_out_of_a_payment_of_which_so_many_are_recorded(
    status: str, seen: New, recorded: int, limit: Limit | None
) -> None:
    assert limit_of_events(SAID, event(status), seen=seen, recorded=recorded) is limit


def test_of_each_state_one_gets_in_past_every_limit_and_no_more() -> None:
    trail, kept = Trail(), 0
    for _ in range(3):
        for status in Status:
            if limit_of_events(trail, event(status), seen=RepeatedEvent.NEW, recorded=ALL + kept) is None:
                trail = step(trail, status, None).trail
                kept += 1
    assert kept == len(Status)


def test_that_some_were_refused_is_said_once_and_changes_nothing_else() -> None:
    noted = transitions.overrun(starting(), NOW)
    assert [item.code for item in noted.attention] == ["event_limit"]
    assert transitions.overrun(noted, NOW) == noted
