"""Each authentication and each edition works by configuration alone, on the network and through the cloud."""

import asyncio
import json
from decimal import Decimal
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import pytest

from posd.simulator import Simulator
from tests.rig.commands import posd as command
from tests.rig.daemon import Daemon
from tests.rig.simulated import simulated

CODE = "5f1e0c8a7b3d49e2a6c4d80f9b2e7135"
AMOUNT = {"iva": 1.20, "subtotal_iva": 10.00, "subtotal_iva0": 0}
#: serial -> auth, edition, access mode, whether replies are encrypted
KINDS = {
    f"{auth}-{edition}-{mode}{'-sealed' * sealed}".upper(): (auth, edition, mode, sealed)
    for auth, edition, mode, sealed in product(
        ("none", "hmac", "hash-encrypt"), ("classic", "2026"), ("local", "cloud"), (False, True)
    )
    if auth == "hash-encrypt" or not sealed
}


async def start(posd: Daemon, serial: str, **request: Any) -> Any:
    identity = str(uuid4())
    body = {"terminal": serial, "amount": AMOUNT, **request}
    reply = await posd.call("PUT", f"/transactions/{identity}", body)
    assert reply.status == 201, reply.body
    return reply.json


@pytest.mark.slow
async def test_every_kind_of_call_works_with_each_scheme_and_edition_and_access_mode(tmp_path: Path) -> None:
    with TemporaryDirectory(prefix="posd-") as short:
        home = Path(short)
        (home / "code").write_text(CODE)
        lines, own = {}, {}
        for serial, (auth, edition, mode, sealed) in KINDS.items():
            signs = auth != "none"
            lines[serial] = f'access_mode = "{mode}"\nedition = "{edition}"\nauth = "{auth}"\n' + (
                'business_code = {file = "code"}\n' if signs else ""
            )
            own[serial] = {"edition": edition, "auth": auth} | (
                {"business_code": CODE, "encrypt_replies": sealed} if signs else {}
            )
        async with simulated(home, lines, own=own) as (posd, simulators):
            for serial, simulator in simulators.items():
                await works(posd, serial, simulator)
            assert CODE not in json.dumps(posd.lines)


async def works(posd: Daemon, serial: str, simulator: Simulator) -> None:
    """Run all operations on one terminal, and check the records."""
    charge = await start(posd, serial, metadata={"reference": 'Café "Ñ" 50% a/b — 😀', "n": 1.50})
    assert charge["phase"] in ("active", "final"), charge
    paid = await posd.outcome(charge["client_transaction_id"])
    assert (paid["result"], paid["authorized_amount"]) == ("approved", Decimal("11.2"))
    void = await start(posd, serial, type="void", original=charge["client_transaction_id"], amount=None)
    assert (await posd.outcome(void["client_transaction_id"]))["result"] == "approved"

    waiting = await start(posd, serial, metadata={"scenario": "wait-for-abort"})
    aborted = await posd.call("POST", f"/transactions/{waiting['client_transaction_id']}/abort")
    assert aborted.status == 202, aborted.body
    assert (await posd.outcome(waiting["client_transaction_id"]))["result"] == "canceled"

    probed = await posd.call("POST", f"/terminals/{serial}/probe", socket=posd.admin_socket)
    assert (probed.json["result"], probed.json["reason"]) == ("none", None)
    found = await posd.call("POST", f"/transactions/{charge['client_transaction_id']}/reconcile")
    assert found.json["last_search"]["result"] == "found", found.json["last_search"]

    job = f"job-{serial}"
    printed = await posd.call(
        "PUT",
        f"/print-jobs/{job}",
        {"terminal": serial, "document": {"commands": [{"type": "text", "text": "é 1.20\n"}]}},
    )
    assert printed.status in (200, 201, 202), printed.body
    ended = await posd.call("GET", f"/print-jobs/{job}/outcome?timeout=30")
    assert ended.json["status"] == "COMPLETED", ended.json
    asked = await posd.call("POST", f"/print-jobs/{job}/reconcile", socket=posd.admin_socket)
    assert asked.json["status"] == "COMPLETED", asked.json

    kinds = [entry["kind"] for entry in simulator.ledger]
    assert "unauthorized" not in kinds
    assert [entry["http_status"] for entry in simulator.ledger if entry["kind"] == "start"] == [200, 200, 200]


#: serial -> the option in which the simulator differs from posd's configuration, the outcome, and the text of the
#: failure
OTHERWISE: dict[str, tuple[dict[str, Any], str, str]] = {
    "RIGHT": ({}, "approved", ""),
    "WRONG-CODE": ({"business_code": "another"}, "not_started", "refused the authentication; the clocks differ by"),
    "WRONG-SEPARATOR": ({"key_separator": "_"}, "not_started", "refused the authentication; the clocks differ by"),
    "FOUR-AHEAD": ({"clock_offset": 240}, "approved", ""),
    "FOUR-BEHIND": ({"clock_offset": -240}, "approved", ""),
    "SIX-AHEAD": ({"clock_offset": 360}, "not_started", "behind that of the terminal, which accepts 5 min"),
    "SIX-BEHIND": ({"clock_offset": -360}, "not_started", "ahead of that of the terminal, which accepts 5 min"),
}


@pytest.mark.slow
async def test_a_wrong_configuration_is_reported_to_the_till_and_by_log_and_doctor() -> None:
    with TemporaryDirectory(prefix="posd-") as short:
        home = Path(short)
        (home / "code").write_text(CODE)
        lines = dict.fromkeys(OTHERWISE, 'auth = "hash-encrypt"\nbusiness_code = {file = "code"}')
        usual = {"auth": "hash-encrypt", "business_code": CODE, "encrypt_replies": True}
        own = {serial: usual | given for serial, (given, _, _) in OTHERWISE.items()}
        async with simulated(home, lines, own=own) as (posd, simulators):
            for serial, (_, result, words) in OTHERWISE.items():
                payment = await start(posd, serial)
                ended = await posd.outcome(payment["client_transaction_id"])
                reason = (ended["failure_reason"] or {}).get("message", "")
                assert (ended["result"], words in reason) == (result, True), (serial, reason)
                runs = [entry["runs"] for entry in simulators[serial].ledger if entry["kind"] == "start"]
                assert runs == ([True] if result == "approved" else []), serial
            said = json.loads((await asyncio.to_thread(command, "doctor", "--json", config=posd.config_file)).stdout)
            clocks = {item["subject"]: item for item in said if item["check"] == "clock"}
            for serial in ("SIX-AHEAD", "SIX-BEHIND"):
                assert clocks[serial]["status"] == "failure"
                assert "the terminal refuses every call" in clocks[serial]["meaning"]
            assert CODE not in json.dumps(posd.lines) + json.dumps(said)
