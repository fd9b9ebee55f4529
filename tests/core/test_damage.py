"""An approval with one damaged byte is approved, or quarantined and searched for.

A damaged byte has no other effect.
"""

import json
import re
from collections import Counter
from collections.abc import Callable
from decimal import Decimal

import pytest

from posd.base.json_types import decode
from posd.payments.entries import Quarantined, apply
from posd.payments.lifecycle import STATUSES
from posd.payments.model import AttentionCode, Result
from posd.payments.transitions import RepeatedEvent, advance
from posd.payments.wire import NotAnEvent, read_event
from posd.records.model import Phase
from tests.core.scenarios import IDENTITY, NOW, REQUESTED, starting
from tests.rig.events import body
from tests.rig.slow import examples
from tests.rig.tables import there

REFERENCE = "0b6e9c1c-54a7-4f0e-8a3e-3a1f0c7d9e55"
EVENT = body(
    IDENTITY,
    "APPROVAL",
    REQUESTED,
    event_id="4b35bf63-b5ae-40fd-9792-bd6307cbfd3e",
    operation={
        "type": "CHARGE",
        "amount": {"currency": "USD", "subtotal_iva": 10.00, "iva": 1.20, "tip": 0, "extra_taxes": {"ice": 0}},
        "metadata": {"reference": "ticket 1042", "names": ["Pe\u00f1a", 'a "quoted" one']},
        "is_deferred": False,
    },
    raw_response={
        "transaction_reference": REFERENCE,
        "ticket_number": "000123",
        "authorized_amount": 11.20,
        "card_type": "credit",
        "cvm_type": "NONE",
        "franchise": "VISA",
        "gateway_response": {"code": "000", "message": "Approved"},
        "message_fields": {"F38": "A1B2C3", "F39": "00"},
        "card_data": {"bank": "Bank", "country": "ECU"},
    },
)
#: Replacements of a byte: one bit inverted, a byte with a meaning in JSON, or an invalid byte.
VALUES = sorted(set(b'\x00\x09\x0a\x1f "\\,:{}[]09-+.eEtfnu\x7f\x80\xc3\xed\xff'))


def _damaged() -> list[tuple[int, bytes]]:
    found = []
    for place, byte in enumerate(EVENT):
        values = {*VALUES, *(byte ^ (1 << bit) for bit in range(8))} - {byte}
        found += [(place, EVENT[:place] + bytes([value]) + EVENT[place + 1 :]) for value in sorted(values)]
    return found


#: Each byte has about forty replacements. The quick suite tries a part of the replacements.
DAMAGED = _damaged()[:: examples(7, 1)]
_REFERENCE = range(EVENT.index(REFERENCE.encode()), EVENT.index(REFERENCE.encode()) + len(REFERENCE))


def _was_json(data: bytes) -> bool:
    """Return whether the whole event is readable, with the text of every member that posd needs."""
    try:
        members = decode(data)
        texts = [members[name] for name in ("event_id", "occurred_at", "merchant_id", "client_transaction_id")]
        texts += [members["terminal"]["serial_number"], members["status"]]
    except (ValueError, LookupError, TypeError):
        return False
    return texts[3].lower() == IDENTITY and all(isinstance(text, str) and text for text in texts)


def test_an_approval_with_one_damaged_byte_counts_or_causes_a_search(tell: Callable[[str], None]) -> None:
    """Each byte has about forty replacements. An approval that does not count is quarantined or has an unknown state.

    posd searches at once in both cases (`Reconciler`). The payment never gets another outcome or another reference.
    """
    counts: Counter[str] = Counter()
    started = starting()
    for place, data in DAMAGED:
        counts["read before"] += _was_json(data)
        try:
            event = read_event(data)
            why = "" if event.client_transaction_id in (IDENTITY, "") else "another id"
        except NotAnEvent as error:
            why = str(error)
        if why:
            counts["quarantine"] += 1
            after = apply(started, Quarantined(why), NOW)
            assert (after.phase, after.outcome) == (Phase.STARTING, None)
            continue
        after, _ = advance(started, event, seen=RepeatedEvent.NEW, now=NOW)
        if STATUSES.get(event.status) is None:
            counts["unknown status"] += 1
            assert after.outcome is None
            assert after.attention_of(AttentionCode.UNKNOWN_STATUS)
            continue
        counts["approved"] += 1
        assert after.outcome is not None
        assert after.outcome.result is Result.APPROVED
        _check_reference(place, data, after.outcome.transaction_reference)
        said = after.outcome.authorized_amount
        assert said is None or re.search(rb'"authorized_amount": *' + re.escape(_literal(data)), data)
        if said is not None:
            assert said == Decimal(_literal(data).decode())
    lost = 1 - counts["approved"] / len(DAMAGED)
    before = 1 - counts["read before"] / len(DAMAGED)
    tell(f"one byte of an approval: {len(DAMAGED)} damages, {counts}; not approved: {lost:.0%}, before {before:.0%}")
    assert counts["approved"] > counts["read before"]


def _check_reference(place: int, data: bytes, reference: str | None) -> None:
    if reference is None:  # the damage is in the reference, its name or the name of its object
        return
    if place in _REFERENCE:
        stands = data[_REFERENCE.start - 1 : _REFERENCE.stop + 1]
        assert reference == json.loads(stands)
    else:
        assert reference == REFERENCE


def _literal(data: bytes) -> bytes:
    found = re.search(rb'"authorized_amount": *([^,}\] ]*)', data)
    return found[1].strip(b'"') if found else b""


def test_a_part_of_an_approval_never_counts_as_the_whole() -> None:
    for length in range(len(EVENT)):
        with pytest.raises(NotAnEvent):
            read_event(EVENT[:length])


def test_damage_is_reported_once_and_never_changes_the_outcome() -> None:
    data = EVENT.replace(b"VISA", b"VI\xffA")
    after, _ = advance(starting(), read_event(data), seen=RepeatedEvent.NEW, now=NOW)
    whole, _ = advance(starting(), read_event(EVENT), seen=RepeatedEvent.NEW, now=NOW)
    (attention,) = (item for item in after.attention if item.code is AttentionCode.DAMAGED_EVENT)
    assert "raw_response.franchise" in attention.detail
    assert after.outcome is not None
    assert whole.outcome is not None
    assert whole.attention_of(AttentionCode.DAMAGED_EVENT) is None
    assert (after.outcome.result, after.outcome.transaction_reference) == (Result.APPROVED, REFERENCE)
    assert there(after.outcome.receipt).franchise == "VI\ufffdA"
    assert json.loads(json.dumps(attention.detail)) == attention.detail
