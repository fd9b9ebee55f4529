"""What is done to an event on its way."""

import json
from random import Random

import pytest

from tests.chaos.damage import CHANGES, SHOWN, TOLD, UNREADABLE, Change, bad_utf8
from tests.support.events import event

EVENT = event("7f3c1f0e-0000-4000-8000-000000000001", "APPROVAL", "APPROVAL_REQUESTED", "SN-0001")
BODY = json.dumps(EVENT).encode()


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_damaged_event_differs_in_one_place_that_posd_can_do_without(change: Change):
    for seed in range(50):
        how, body = change(EVENT, BODY, Random(seed))
        assert body != BODY
        if how == UNREADABLE:
            assert BODY.startswith(body)
            continue
        damaged = json.loads(body.decode("utf-8", "replace"))
        differing = {name for name in EVENT if name not in damaged or damaged[name] != EVENT[name]}
        assert len(differing) == 1
        assert differing <= {*TOLD, *SHOWN, "terminal"}
        assert damaged["terminal"]["serial_number"] == "SN-0001"


def test_a_bad_byte_is_no_utf8():
    _, body = bad_utf8(EVENT, BODY, Random(1))
    with pytest.raises(UnicodeDecodeError):
        body.decode()
