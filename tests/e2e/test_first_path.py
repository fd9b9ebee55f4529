"""One charge from the till's socket to the terminal and back."""

import asyncio
import json
from decimal import Decimal
from pathlib import Path

from tests.e2e.conftest import CHARGE
from tests.support.daemon import Daemon
from tests.support.events import APPROVED, body
from tests.support.https import deliver
from tests.support.tables import there
from tests.support.terminal import ScriptedTerminal


async def test_charge_is_approved_with_the_event_as_evidence(
    posd: Daemon, terminal: ScriptedTerminal, identity: str
) -> None:
    started = await posd.call("PUT", f"/transactions/{identity}", CHARGE)
    assert started.status == 201
    assert (started.json["phase"], started.json["status"]) == ("active", "TERMINAL_ACKNOWLEDGED")
    request = terminal.requests[0]
    assert (request.method, request.path) == ("POST", "/terminal/v1/async/charge")
    assert b'"amount":{"iva":1.2,"subtotal_iva":10.0,"subtotal_iva0":0}' in request.body

    for status, previous in APPROVED:
        assert await deliver(request.callback, body(identity, status, previous), posd.ca) == 200

    outcome = await posd.outcome(identity)
    assert (outcome["result"], outcome["status"], outcome["reached_acquirer"]) == ("approved", "APPROVAL", True)
    assert outcome["evidence"][0]["event_id"] == outcome["final_event"]["event_id"]
    assert outcome["authorized_amount"] == Decimal("11.2")
    repeated = await posd.call("PUT", f"/transactions/{identity}", CHARGE)
    assert repeated.status == 200
    assert repeated.json["next_step"] == "done"
    assert terminal.starts_of(identity) == 1
    assert json.loads(repeated.body)["attention"] == []


async def test_a_payment_loads_no_large_part_of_python(posd: Daemon, terminal: ScriptedTerminal, identity: str) -> None:
    async def libraries() -> set[str]:
        maps = await asyncio.to_thread(Path(f"/proc/{there(posd.process).pid}/maps").read_text)
        return {line.split(maxsplit=5)[5] for line in maps.splitlines() if ".so" in line}

    before = await libraries()
    assert (await posd.call("PUT", f"/transactions/{identity}", CHARGE)).status == 201
    for status, previous in APPROVED:
        assert await deliver(terminal.requests[0].callback, body(identity, status, previous), posd.ca) == 200
    assert await libraries() == before
