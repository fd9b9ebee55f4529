"""The feed with `with=outcome`, and the access to feed.sock."""

import json
import signal
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from posd.api import routes
from tests.rig.daemon import Daemon, running
from tests.rig.events import APPROVED, event
from tests.rig.shop import Payment, Shop, answering
from tests.rig.streams import stream
from tests.rig.tables import there

pytestmark = pytest.mark.asyncio(loop_scope="module")

OPERATION = {"type": "CHARGE", "amount": {"currency": "USD", "tip": 0}}


async def lines(payment: Payment, adds: str = "&with=outcome") -> list[dict[str, Any]]:
    """Return the changes of a payment."""
    found: list[dict[str, Any]] = []
    after = 0
    while True:
        reply = await payment.shop.daemon.call("GET", f"/feed?after={after}&limit=500{adds}")
        page = json.loads(reply.body, parse_float=Decimal)
        if not page["changes"]:
            return found
        found += [change for change in page["changes"] if change["id"] == payment.identity]
        after = page["next_after"]


async def approve(payment: Payment) -> dict[str, Any]:
    """Deliver the terminal's events up to the approval. Return the last event."""
    await payment.approve(3)
    final = event(payment.identity, *APPROVED[-1], payment.serial, operation=OPERATION)
    assert await payment.deliver(json.dumps(final).encode()) == 200
    return final


async def test_a_change_has_the_outcome_once_the_payment_has_ended(shop: Shop) -> None:
    payment = await shop.started(sale="basket 7", metadata={"ticket": 7})
    final = await approve(payment)
    document = await payment.get()
    *before, last = await lines(payment)
    assert before
    assert not any("outcome" in change for change in before)
    assert last["outcome"] == {
        "result": "approved",
        "status": "APPROVAL",
        "decided_by": "event",
        "corrected": False,
        "type": "charge",
        "sale": "basket 7",
        "original": None,
        "amount": {"iva": Decimal("1.2"), "subtotal_iva": Decimal("10.0"), "subtotal_iva0": 0},
        "authorized_amount": Decimal("11.20"),
        "tip": 0,
        "currency": "USD",
        "of": "payment",
        "counted": Decimal("11.20"),
        "transaction_reference": final["raw_response"]["transaction_reference"],
        "ticket_number": "000123",
        "reversal": None,
        "created_at": document["created_at"],
        "occurred_at": final["occurred_at"],
        "decided_at": document["outcome"]["decided_at"],
    }


async def test_each_change_has_the_outcome_of_its_moment(shop: Shop) -> None:
    payment = shop.payment()
    shop.terminal.start = answering(409, {"message": "busy"})
    assert (await payment.put()).json["outcome"]["result"] == "not_started"
    await approve(payment)
    told = [change["outcome"] for change in await lines(payment) if "outcome" in change]
    assert [(item["result"], item["corrected"], item["decided_by"]) for item in (told[0], told[-1])] == [
        ("not_started", False, "refusal"),
        ("approved", True, "event"),
    ]
    assert (told[0]["authorized_amount"], told[0]["transaction_reference"]) == (None, None)
    assert told[0]["decided_at"] < told[-1]["decided_at"]


async def test_the_stream_of_the_feed_has_the_outcome_too(shop: Shop) -> None:
    payment = await shop.started()
    start = (await shop.daemon.call("GET", "/feed?limit=500")).json["next_after"]
    await approve(payment)
    async with stream(shop.daemon.till_socket, f"/feed?after={start}&with=outcome") as found:
        last = await anext(
            message.json async for message in found if payment.identity in message.data and '"approved"' in message.data
        )
    assert last["outcome"]["transaction_reference"]


async def test_the_last_page_of_the_feed_counts_open_payments_and_attentions(shop: Shop) -> None:
    async def page(limit: int, adds: str = "&with=outcome") -> dict[str, Any]:
        found: dict[str, Any] = (await shop.daemon.call("GET", f"/feed?after={after}&limit={limit}{adds}")).json
        return found

    payment = await shop.started()
    after = (await shop.daemon.call("GET", "/feed?limit=500")).json["next_after"]
    before = await page(500)
    await approve(payment)
    ended = await page(500)
    assert (before["open"] - ended["open"], ended["attention"]) == (1, before["attention"])
    assert await payment.event("SOMETHING_NEW") == 200
    assert (await page(500))["attention"] == before["attention"] | {"unknown_status": 1}
    assert (ended["databases"][-1]["last_seq"], len(ended["databases"])) == (ended["next_after"], 1)
    assert not {"open", "attention"} & (await page(1)).keys(), "more follows"
    assert not {"open", "attention"} & (await page(500, "")).keys()


#: A group that exists on no machine.
NO_GROUP = "posd-none"


@asynccontextmanager
async def daemon(directory: Path, group: str) -> AsyncIterator[Daemon]:
    """Run a daemon with this feed_group. "" stands for the daemon's own group."""
    (directory / "config.d").mkdir()
    (directory / "config.d" / "relay.toml").write_text(f'[local_api]\nfeed_group = "{group}"\n')
    async with running(directory, '[[terminals]]\nserial = "SN-1"\n') as posd:
        yield posd


async def test_the_feed_socket_serves_only_the_feed_and_health_and_version(tmp_path: Path) -> None:
    async with daemon(tmp_path, "") as posd:
        socket = posd.directory / "run" / "feed.sock"
        assert stat.S_IMODE(socket.stat().st_mode) == 0o660
        for path in ("/feed", "/feed?after=0&with=outcome", "/health", "/version"):
            assert (await posd.call("GET", path, socket=socket)).status == 200, path
        async with stream(socket, "/feed"):
            pass
        others = [route for route in routes.ALL if not route.feed]
        assert len(others) > 30
        for route in others:
            path = route.path.removeprefix("/v1").replace("{", "").replace("}", "")
            reply = await posd.call(route.method, path, {} if route.method != "GET" else None, socket=socket)
            assert (reply.status, reply.json["code"]) == (404, "not_found"), route


async def test_the_feed_socket_serves_metadata_only_if_the_configuration_permits_it(tmp_path: Path) -> None:
    """A program of the group posd-feed cannot override the configuration. A changed configuration applies after a
    reload. A till can read its own metadata.
    """
    asked = "/feed?with=outcome,metadata"
    async with daemon(tmp_path, "") as posd:
        socket, settings = posd.directory / "run" / "feed.sock", posd.directory / "config.d" / "relay.toml"
        for allowed, status in (("false", 403), ("true", 200), ("false", 403)):
            settings.write_text(f'[local_api]\nfeed_group = ""\n[relay]\nmetadata = {allowed}\n')
            lines = len(posd.lines)
            there(posd.process).send_signal(signal.SIGHUP)
            await posd.log_line("config.loaded", after=lines)
            reply = await posd.call("GET", asked, socket=socket)
            assert reply.status == status
            assert status == 200 or reply.json["code"] == "forbidden"
            assert (await posd.call("GET", "/feed?with=outcome", socket=socket)).status == 200
            assert (await posd.call("GET", asked)).status == 200


async def test_if_the_group_does_not_exist_posd_starts_without_the_feed_socket(tmp_path: Path) -> None:
    async with daemon(tmp_path, NO_GROUP) as posd:
        assert (await posd.call("GET", "/feed")).status == 200
        assert not (posd.directory / "run" / "feed.sock").exists()
        line = await posd.log_line("feed.no_socket")
        assert line["level"] == "info"
        assert f"groupadd {NO_GROUP}" in line["error"]
