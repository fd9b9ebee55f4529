"""What is done to an event on its way."""

import json
from random import Random
from typing import Any

import pytest

from tests.chaos.damage import CHANGES, SHOWN, TOLD, UNREADABLE, Change, bad_utf8
from tests.support.events import event

EVENT = event("7f3c1f0e-0000-4000-8000-000000000001", "APPROVAL", "APPROVAL_REQUESTED", "SN-0001")
BODY = json.dumps(EVENT).encode()
#: What every event has.
SPARSE = EVENT | {"terminal": {"serial_number": "SN-0001"}}
for _name in ("reading_type", "previous_status"):
    SPARSE.pop(_name, None)


@pytest.mark.parametrize("whole", [EVENT, SPARSE], ids=["whole", "sparse"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_damaged_event_differs_in_one_place_that_posd_can_do_without(change: Change, whole: dict[str, Any]):
    sent = json.dumps(whole).encode()
    for seed in range(50):
        how, body = change(whole, sent, Random(seed))
        assert body != sent
        if how == UNREADABLE:
            assert sent.startswith(body)
            continue
        damaged = json.loads(body.decode("utf-8", "replace"))
        differing = {name for name in whole if name not in damaged or damaged[name] != whole[name]}
        assert len(differing) == 1
        assert differing <= {*TOLD, *SHOWN, "terminal"}
        assert damaged["terminal"]["serial_number"] == "SN-0001"


def test_a_bad_byte_is_no_utf8():
    _, body = bad_utf8(EVENT, BODY, Random(1))
    with pytest.raises(UnicodeDecodeError):
        body.decode()
