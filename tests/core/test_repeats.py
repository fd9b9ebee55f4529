"""Repeated events. Equal events agree in all members that posd reads. Only a contradiction raises an attention."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from posd.payments.entries import replay
from posd.payments.lifecycle import Verdict
from posd.payments.transitions import RepeatedEvent, recognise
from posd.payments.wire import read_event
from tests.core.scenarios import IDENTITY, NOW, starting
from tests.rig.events import event

BASE = event(IDENTITY, "APPROVAL", "APPROVAL_REQUESTED", terminal={"serial_number": "20000000100", "model": "M"}) | {
    "raw_response": {"transaction_reference": "r-1", "authorized_amount": 1.5, "ticket_number": "7"},
    "operation": {"type": "CHARGE", "amount": {"tip": 1, "currency": "USD"}, "metadata": {"a": [1, {"b": 2}]}},
}


def written(document: Any) -> bytes:
    return json.dumps(document).encode()


def changed(*path: str, value: Any) -> bytes:
    copy = json.loads(written(BASE))
    inner = copy
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    return written(copy)


def replaced(old: bytes, new: bytes) -> bytes:
    assert written(BASE).count(old) == 1
    return written(BASE).replace(old, new)


#: Equal events in different serializations.
SAME: dict[str, Callable[[], bytes]] = {
    "the same bytes": lambda: written(BASE),
    "spaces around the event": lambda: b"\r\n" + written(BASE) + b"  ",
    "members in another order": lambda: json.dumps(BASE, sort_keys=True).encode(),
    "escaped": lambda: replaced(b'"APPROVAL"', b'"\\u0041PPROVAL"'),
    "a number of the attempt": lambda: changed("attempt", value=2),
    "an unknown nested member": lambda: changed("operation", "sent_at", value="later"),
    "other metadata": lambda: changed("operation", "metadata", value={"a": []}),
    "an amount with more zeros": lambda: replaced(b": 1.5,", b": 1.500,"),
    "an amount as a text": lambda: changed("raw_response", "authorized_amount", value="1.50"),
    "a tip in another notation": lambda: replaced(b'"tip": 1', b'"tip": 0.1E1'),
    "digits as a double": lambda: replaced(b'"20000000100"', b"2.00000001E10"),
    "a name in camel case": lambda: replaced(b"raw_response", b"rawResponse"),
    "null instead of a missing member": lambda: changed("failure_reason", value=None),
    "a byte of the metadata is damaged": lambda: replaced(b'"b": 2', b'"\xff": 2'),
}

#: Events that contradict the first event.
OTHER: dict[str, Callable[[], bytes]] = {
    "state": lambda: changed("status", value="DECLINED"),
    "state before": lambda: changed("previous_status", value="CARD_PRESENTED"),
    "time": lambda: changed("occurred_at", value="2026-11-21T10:42:03.120Z"),
    "merchant": lambda: changed("merchant_id", value="another"),
    "serial": lambda: changed("terminal", "serial_number", value="20000000101"),
    "reference": lambda: changed("raw_response", "transaction_reference", value="r-2"),
    "ticket in capitals or with zeros": lambda: changed("raw_response", "ticket_number", value="007"),
    "amount": lambda: changed("raw_response", "authorized_amount", value=15),
    "currency": lambda: changed("operation", "amount", "currency", value="EUR"),
    "tip": lambda: changed("operation", "amount", "tip", value=2),
    "no answer of the acquirer": lambda: changed("raw_response", value=None),
    "a reason": lambda: changed("failure_reason", value={"type": "t", "code": "c", "message": "m"}),
    "two references": lambda: replaced(b'"r-1"', b'"r-1", "transaction_reference": "r-2"'),
}


@pytest.mark.parametrize("name", SAME)
def test_events_that_agree_in_all_read_members_are_the_same_event(name: str) -> None:
    assert recognise(SAME[name](), [written(BASE)]) is RepeatedEvent.REPEATED
    assert recognise(written(BASE), [SAME[name]()]) is RepeatedEvent.REPEATED


@pytest.mark.parametrize("name", OTHER)
def test_a_contradicting_event_is_another_event(name: str) -> None:
    other = OTHER[name]()
    assert recognise(other, [written(BASE)]) is RepeatedEvent.REUSED
    assert recognise(other, [written(BASE), other]) is RepeatedEvent.REPEATED, (
        "the bytes of the event are already stored"
    )
    assert recognise(other, []) is RepeatedEvent.NEW


def test_an_unreadable_event_is_compared_by_its_bytes() -> None:
    assert recognise(written(BASE), [b"<html>"]) is RepeatedEvent.REUSED


def test_a_repeat_that_an_earlier_version_recorded_changes_nothing_in_reprocessing() -> None:
    first, again = read_event(written(BASE)), read_event(SAME["members in another order"]())
    alone, _ = replay(starting(), [(NOW, (first, RepeatedEvent.NEW))])
    both, verdicts = replay(starting(), [(NOW, (first, RepeatedEvent.NEW)), (NOW, (again, RepeatedEvent.REPEATED))])
    assert (both, verdicts) == (alone, [Verdict.APPLIED, Verdict.DUPLICATE])
