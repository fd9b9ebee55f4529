"""Each operation on its own: where it is started, what it is called, what its request must and must not have."""

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from posd.simulator import Settings, Simulator
from posd.simulator.operations import OPERATIONS
from tests.simulator.conftest import LOCAL, QUICK_SPEED, Receiver, Till, request

MakeSettings = Callable[..., Settings]
SERIAL = "SN-0001"
CLOUD = {name: path.replace("/async/", f"/{SERIAL}/async/") for name, path in LOCAL.items()}
CLOUD_ABORT = f"/terminal/v1/{SERIAL}/sync/abort"
CLOUD_SEARCH = f"/terminal/v1/{SERIAL}/sync/transaction_search_online"
WAYS = [(mode, name, path) for mode, paths in (("local", LOCAL), ("cloud", CLOUD)) for name, path in paths.items()]


@dataclass(frozen=True)
class Row:
    """What the wire should show of an operation; `original` is what must be approved before it, None for nothing."""

    event_type: str
    original: str | None
    reports_reference: bool = False
    needs_amount: bool = True


ROWS = {
    "charge": Row("CHARGE", None),
    "pre-auth": Row("PREAUTH", None),
    "re-auth": Row("REAUTHORIZATION", "pre-auth", reports_reference=True),
    "capture": Row("CAPTURE", "pre-auth", reports_reference=True),
    "post-tip": Row("POST_TIP", "charge"),
    "void": Row("VOID", "charge", needs_amount=False),
    "refund": Row("REFUND", "charge", needs_amount=False),
}
WITH_ORIGINAL = [name for name, row in ROWS.items() if row.original]
ON_THEIR_OWN = [name for name, row in ROWS.items() if not row.original]


def test_every_operation_is_tested() -> None:
    assert set(ROWS) == set(LOCAL) == {operation.name for operation in OPERATIONS}


async def original(till: Till, operation: str) -> str | None:
    """Run what the operation refers to; return its reference."""
    name = ROWS[operation].original
    if name is None:
        return None
    reference: str = (await till.run(name))["raw_response"]["transaction_reference"]
    return reference


@pytest.mark.quick(4)
@pytest.mark.parametrize(("mode", "name", "path"), WAYS)
async def test_it_is_acknowledged_run_and_reported_by_its_words(
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


@pytest.mark.parametrize("name", ON_THEIR_OWN)
async def test_a_reference_is_refused_where_none_belongs(till: Till, name: str) -> None:
    reference = str(uuid.uuid4())
    answer = await till.start(name, transaction_reference=reference)
    assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_REQUEST")
    assert "transaction_reference" in answer.json()["message"]
    (start,) = till.terminal.ledger.of("start")
    assert (start["operation"], start["transaction_reference"]) == (name, reference)
    assert (await till.start(name, transaction_reference=None)).status_code == 200


@pytest.mark.quick(8)
@pytest.mark.parametrize("name", WITH_ORIGINAL)
@pytest.mark.parametrize("reference", [..., None, 7, "", "7f3c", ["x"]])
async def test_a_reference_is_required_where_one_belongs(till: Till, name: str, reference: Any) -> None:
    fields = {} if reference is ... else {"transaction_reference": reference}
    answer = await till.post(json.dumps(request(**fields)).encode(), LOCAL[name])
    assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_REQUEST")
    assert "transaction_reference" in answer.json()["message"]
    (start,) = till.terminal.ledger.of("start")
    assert start["transaction_reference"] == (reference if isinstance(reference, str) else None)
    assert (start["http_status"], start["code"], start["scenario"]) == (422, "INVALID_REQUEST", None)


@pytest.mark.quick(7)
@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("amount", [..., None, {}])
async def test_an_amount_is_needed_but_for_a_void(quick_till: Till, name: str, amount: Any) -> None:
    body = request(transaction_reference=await original(quick_till, name), amount=amount)
    if amount is ...:
        del body["amount"]
    answer = await quick_till.post(json.dumps(body).encode(), LOCAL[name])
    taken = amount == {} or not ROWS[name].needs_amount
    assert answer.status_code == (200 if taken else 422)
    assert taken or "amount" in answer.json()["message"]


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", ROWS)
async def test_every_operation_is_the_only_one_and_can_be_aborted(slow_till: Till, name: str) -> None:
    reference = await original(slow_till, name)
    started = await slow_till.start(name, transaction_reference=reference, metadata={"scenario": "wait-for-abort"})
    assert started.status_code == 200
    for other in ROWS:
        fields = {"transaction_reference": reference or str(uuid.uuid4())} if ROWS[other].original else {}
        answer = await slow_till.start(other, **fields)
        assert (answer.status_code, answer.json()["code"]) == (409, "TERMINAL_BUSY")
    assert (await slow_till.abort()).status_code == 200
    final = await slow_till.terminal.ledger.wait_for("final", status="TERMINAL_CANCELED")
    assert (final["operation"], final["charged"]) == (name, False)


@pytest.mark.quick(10)
@pytest.mark.parametrize(
    ("method", "path"),
    [*(("POST", path) for path in CLOUD.values()), ("POST", CLOUD_ABORT), ("POST", CLOUD_SEARCH)],
)
@pytest.mark.parametrize("serial", ["SN-0002", "sn-0001", "SN-0001/x", "async", "%20", ""])
async def test_a_cloud_path_of_another_terminal_leads_nowhere(
    slow_till: Till, client: httpx2.AsyncClient, method: str, path: str, serial: str
) -> None:
    await slow_till.charge(metadata={"scenario": "wait-for-abort"})
    url = slow_till.terminal.base_url + path.replace(SERIAL, serial)
    answer = await client.request(method, url, json=request())
    assert (answer.status_code, answer.json()["code"]) == (404, "UNKNOWN_TERMINAL")
    assert (len(slow_till.terminal.requests), slow_till.terminal.searches) == (1, [])
    kinds = [entry["kind"] for entry in slow_till.terminal.ledger if entry["kind"] != "event"]
    assert kinds == ["start"]  # neither aborted nor searched


@pytest.mark.parametrize("serial", ["a/b", "ñ 1", "100%", "?#", "sync", "a/async"])
async def test_the_serial_in_the_path_can_have_any_character(
    settings: MakeSettings, client: httpx2.AsyncClient, tmp_path: Path, serial: str
) -> None:
    async with Simulator(settings(serial=serial, speed=QUICK_SPEED)) as terminal:
        url = f"{terminal.base_url}/terminal/v1/{quote(serial, safe='')}/async/charge"
        assert (await client.post(url, json=request())).status_code == 200
        final = await terminal.ledger.wait_for("final")
        assert final["charged"]
