"""Functions that a person has seen working with a terminal. posd records and shows these functions. These functions
count for the proof of `not_started`.
"""

import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest_asyncio

from tests.e2e.test_proof import NONE, NOTHING_RUNNING, lacking, pay_before, settings
from tests.e2e.test_reload import sent
from tests.rig.daemon import Daemon
from tests.rig.shop import Payment, Shop, answering, hanging_up, knowing, open_counters
from tests.rig.streams import Reply

WORD = {"operator": "Ana", "note": "after it was hung up"}
NOT_CONFIRMED = settings(search=False, abort=False)


@pytest_asyncio.fixture
async def counter() -> AsyncIterator[Shop]:
    async with open_counters(1, NOT_CONFIRMED) as (counter,):
        yield counter


async def commission(posd: Daemon, serial: str, **said: Any) -> Reply:
    return await posd.call("POST", f"/terminals/{serial}/commission", WORD | said, socket=posd.admin_socket)


async def probe(posd: Daemon, serial: str) -> Any:
    reply = await posd.call("POST", f"/terminals/{serial}/probe", socket=posd.admin_socket)
    assert reply.status == 200, reply.body
    return reply.json


async def shown(posd: Daemon, serial: str) -> tuple[Any, Any]:
    one = (await posd.call("GET", f"/terminals/{serial}")).json
    (listed,) = (item for item in (await posd.call("GET", "/terminals")).json["terminals"] if item["serial"] == serial)
    assert (one["commissioned"], one["commission_lapsed"]) == (listed["commissioned"], listed["commission_lapsed"])
    return one["commissioned"], one["commission_lapsed"]


async def in_doubt(counter: Shop, serial: str) -> Payment:
    """Return a payment in doubt on this terminal. The terminal runs nothing and finds nothing."""
    counter.terminal.start = hanging_up
    payment = Payment(counter, str(uuid4()), serial)
    assert (await payment.put()).json["phase"] == "in_doubt"
    return payment


async def test_a_function_seen_working_counts_as_confirmed_until_the_profile_changes(counter: Shop) -> None:
    posd = counter.daemon
    known = await pay_before(counter)
    serial = known["terminal"]["serial_number"]
    counter.terminal.search, counter.terminal.abort = knowing(known, otherwise=NONE), NOTHING_RUNNING
    assert await shown(posd, serial) == (None, None)

    # A probe searches for a payment that never existed. posd records no payment for the probe.
    asked = await probe(posd, serial)
    assert (asked["result"], asked["reason"], asked["found_before"]) == ("none", None, True)
    assert json.loads(counter.terminal.searches[-1].body) == {"client_transaction_id": asked["client_transaction_id"]}
    gone = await posd.call("GET", f"/transactions/{asked['client_transaction_id']}")
    assert (gone.status, len(counter.terminal.requests)) == (404, 1)
    counter.terminal.search = answering(404)
    assert "404" in (await probe(posd, serial))["reason"]
    assert (await posd.call("POST", "/terminals/SN-ELSEWHERE/probe", socket=posd.admin_socket)).status == 404
    counter.terminal.search = knowing(known, otherwise=NONE)

    # A refused call records nothing.
    for said, path in (
        ({}, "/proven"),
        ({"proven": "abort"}, "/proven"),
        ({"proven": ["abort", "abort"] * 9}, "/proven"),
        ({"proven": ["abort", "refund"]}, "/proven/1"),
        ({"proven": [[]]}, "/proven/0"),
        ({"proven": [], "operator": " "}, "/operator"),
    ):
        reply = await commission(posd, serial, **said)
        assert (reply.status, reply.json["errors"][0]["path"]) == (422, path), reply.body
    reply = await commission(posd, "SN-ELSEWHERE", proven=[])
    assert (reply.status, reply.json["code"]) == (404, "not_found")
    till = await posd.call("POST", f"/terminals/{serial}/commission", {**WORD, "proven": ["abort"]})
    assert (till.status, till.json["code"]) == (403, "forbidden")
    assert await shown(posd, serial) == (None, None)

    # With only one of abort and search, posd names the missing function. With abort and search, posd concludes
    # `not_started`.
    assert (await commission(posd, serial, proven=["abort", "print"])).json["commissioned"]["proven"]
    payment = await in_doubt(counter, serial)
    lacks = await lacking(payment)
    assert "search_not_confirmed" in lacks
    assert "abort_not_confirmed" not in lacks
    assert f"posd terminals commission {serial}" in lacks["search_not_confirmed"]
    assert counter.terminal.aborts == 0  # posd sends no abort, because no abort could prove anything
    answered = (await commission(posd, serial, proven=["search", "abort", "search"])).json
    assert answered["commissioned"] == {
        "at": answered["commissioned"]["at"],
        "by": "Ana",
        "proven": ["abort", "search"],
    }
    assert (await posd.outcome(payment.identity))["result"] == "not_started"

    # The commission survives a restart, and does not count for another profile. `confirmed` alone does not change the
    # profile.
    before = await shown(posd, serial)
    assert before == (answered["commissioned"], None)
    await posd.restart()
    assert await shown(posd, serial) == before
    vouched = posd.config.replace("confirmed = false", "confirmed = true")
    await sent(posd, vouched, "config.loaded")
    assert await shown(posd, serial) == before
    lines = len(posd.lines)
    await sent(posd, posd.config.replace("[profile.abort]", '[profile.abort]\npath = "/v2/abort"'), "config.loaded")
    assert await shown(posd, serial) == (None, before[0]["at"])
    assert (await posd.log_line("terminal.commission_lapsed", lines))["terminal"] == serial
    payment = await in_doubt(counter, serial)
    assert {"search_not_confirmed", "abort_not_confirmed"} <= set(await lacking(payment))

    # The commission counts again with the earlier profile. An empty list withdraws everything.
    await sent(posd, posd.config, "config.loaded")
    assert await shown(posd, serial) == before
    assert "search_not_confirmed" not in await lacking(payment)
    assert (await commission(posd, serial, proven=[])).json["commissioned"]["proven"] == []
    assert {"search_not_confirmed", "abort_not_confirmed"} <= set(await lacking(payment))
    await payment.end()
