"""Each operation alone: the path, the name, and the required and forbidden members of the request."""

import json
import uuid
from dataclasses import dataclass
from typing import Any

import pytest

from posd.simulator.wire import OPERATIONS
from tests.simulator.conftest import Receiver, Till, request
from tests.support.chains import PATHS

SERIAL = "SN-0001"
CLOUD = {name: path.replace("/async/", f"/{SERIAL}/async/") for name, path in PATHS.items()}
WAYS = [(mode, name, path) for mode, paths in (("local", PATHS), ("cloud", CLOUD)) for name, path in paths.items()]


@dataclass(frozen=True)
class Row:
    """The wire format of an operation. `original`: the type of the operation that must be approved before, or None."""

    event_type: str
    original: str | None
    reports_reference: bool = False


ROWS = {
    "charge": Row("CHARGE", None),
    "pre-auth": Row("PREAUTH", None),
    "re-auth": Row("REAUTHORIZATION", "pre-auth", reports_reference=True),
    "capture": Row("CAPTURE", "pre-auth", reports_reference=True),
    "post-tip": Row("POST_TIP", "charge"),
    "void": Row("VOID", "charge"),
    "refund": Row("REFUND", "charge"),
}
WITH_ORIGINAL = [name for name, row in ROWS.items() if row.original]


def test_every_operation_is_tested() -> None:
    assert set(ROWS) == set(PATHS) == {operation.name for operation in OPERATIONS}


async def original(till: Till, operation: str) -> str | None:
    """Run the original of an operation. Return the reference."""
    name = ROWS[operation].original
    if name is None:
        return None
    reference: str = (await till.run(name))["raw_response"]["transaction_reference"]
    return reference


@pytest.mark.quick(4)
@pytest.mark.parametrize(("mode", "name", "path"), WAYS)
async def test_each_operation_is_acknowledged_run_and_reported_with_its_own_words(
    quick_till: Till, receiver: Receiver, mode: str, name: str, path: str
) -> None:
    till, row = quick_till, ROWS[name]
    reference = await original(till, name)
    sent = request(events_webhook_url=receiver.url, metadata={"reference": "ticket 1042"}, is_deferred=True)
    sent |= {"transaction_reference": reference} if reference else {}
    answer = await till.post(json.dumps(sent).encode(), path)
    assert answer.status_code == 200
    assert answer.json()["operation"] == sent | {"type": name}

    events = [delivery.event for delivery in await receiver.wait_for(4)]
    assert [event["status"] for event in events] == [
        "TERMINAL_ACKNOWLEDGED",
        "CARD_PRESENTED",
        "APPROVAL_REQUESTED",
        "APPROVAL",
    ]
    assert all("operation" not in event for event in events[:-1])
    operation, raw = events[-1]["operation"], events[-1]["raw_response"]
    assert (operation["type"], raw["transaction_type"]) == (row.event_type, row.event_type)
    assert operation["client_transaction_id"] == sent["client_transaction_id"]
    assert operation["metadata"] == sent["metadata"]
    assert operation["is_deferred"] is True
    assert operation.get("transaction_reference") == (reference if row.reports_reference else None)
    assert ("transaction_reference" in operation) == row.reports_reference
    assert str(uuid.UUID(raw["transaction_reference"])) == raw["transaction_reference"] != reference

    ids = {"client_transaction_id": sent["client_transaction_id"], "operation": name}
    (start,) = till.terminal.ledger.of("start", **ids)
    shown = (start["access_mode"], start["transaction_reference"], start["http_status"], start["code"])
    assert shown == (mode, reference, 200, None)
    (final,) = till.terminal.ledger.of("final", **ids)
    assert (final["charged"], final["transaction_reference"]) == (True, raw["transaction_reference"])


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", WITH_ORIGINAL)
@pytest.mark.parametrize("reference", [None, "7f3c"])
async def test_a_derived_operation_requires_a_reference(till: Till, name: str, reference: Any) -> None:
    answer = await till.post(json.dumps(request(transaction_reference=reference)).encode(), PATHS[name])
    assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_REQUEST")
    assert "transaction_reference" in answer.json()["message"]
    (start,) = till.terminal.ledger.of("start")
    assert start["transaction_reference"] == reference
    assert (start["http_status"], start["code"], start["scenario"]) == (422, "INVALID_REQUEST", None)
