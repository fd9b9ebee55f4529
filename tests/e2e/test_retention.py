"""Retention with the real daemon. posd removes old records, never starts their ids again, and reports their results."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from posd.upkeep.verify import verify
from tests.e2e.test_backup import posd_command
from tests.rig.events import body
from tests.rig.shop import Shop, open_shop

SECRET = "ada@example.com"


async def prune(shop: Shop, **fields: Any) -> Any:
    reply = await shop.daemon.call("POST", "/prune", {"older_than_days": 0} | fields, socket=shop.daemon.admin_socket)
    assert reply.status == 200, reply.body
    return reply.json


@pytest.mark.slow
async def test_an_ended_payment_is_removed_and_never_started_again(home: Path) -> None:
    async with open_shop(home) as shop:
        daemon = shop.daemon
        paid, ended = await shop.started(metadata={"mail": SECRET}), await shop.started()
        await paid.approve()
        assert await ended.event("TERMINAL_ACKNOWLEDGED") == 200
        assert await ended.event("TERMINAL_CANCELED", "TERMINAL_ACKNOWLEDGED") == 200
        open_one = await shop.started()
        sent = len(shop.terminal.requests)
        before = (await daemon.call("GET", "/feed?limit=500")).json["changes"]

        told = await prune(shop, dry_run=True)
        assert (told["removed"]["transactions"], told["kept"]) == (2, {"open": 1})
        assert (await paid.get())["outcome"]["result"] == "approved", "a dry run removes nothing"
        done = await prune(shop)
        assert (done["removed"]["transactions"], done["kept"]) == (2, {"open": 1})
        line = await daemon.log_line("store.pruned")
        assert (line["count"], line["kept"]) == (2, {"open": 1})

        for payment, result in ((paid, "approved"), (ended, "canceled")):
            for reply in (
                await payment.put(),
                await daemon.call("PUT", f"/transactions/{payment.identity}", b"no JSON"),
                await daemon.call("GET", f"/transactions/{payment.identity}"),
                await daemon.call("GET", f"/transactions/{payment.identity}/outcome"),
                await daemon.call("GET", f"/transactions/{payment.identity}/events"),
                await daemon.call("POST", f"/transactions/{payment.identity}/abort"),
                await daemon.call("POST", f"/transactions/{payment.identity}/reconcile"),
            ):
                assert (reply.status, reply.json["code"], reply.json["result"]) == (410, "pruned", result)
        void = {"terminal": paid.serial, "type": "void", "original": paid.identity}
        reply = await daemon.call("PUT", f"/transactions/{uuid4()}", void)
        assert (reply.status, reply.json["code"]) == (422, "unknown_original")
        assert "give its `transaction_reference`" in reply.json["detail"]
        assert len(shop.terminal.requests) == sent, "posd sends nothing for a removed payment"

        left = (await daemon.call("GET", "/feed?limit=500")).json["changes"]
        assert left == [change for change in before if change["id"] == open_one.identity]
        await open_one.approve()
        newest = (await daemon.call("GET", f"/feed?after={before[-1]['seq']}")).json["changes"]
        assert {change["id"] for change in newest} == {open_one.identity}, "no number is used twice"

        # Late events. A repeated end has no effect. posd keeps a different end for an operator.
        assert await paid.event("APPROVAL") == 200
        assert await ended.event("CARD_PRESENTED") == 200
        quarantined = await daemon.call("GET", "/quarantine", socket=daemon.admin_socket)
        assert quarantined.json["quarantine"] == []
        late = body(ended.identity, "APPROVAL", None, ended.serial)
        assert [await ended.deliver(late), await ended.deliver(late)] == [200, 200]
        (kept,) = (await daemon.call("GET", "/quarantine", socket=daemon.admin_socket)).json["quarantine"]
        assert (kept["client_transaction_id"], "had ended canceled" in kept["reason"]) == (ended.identity, True)
        again = await daemon.call("POST", "/reprocess", socket=daemon.admin_socket)
        assert (again.json["applied"], again.json["quarantined"]) == ([], 1)
        assert (await daemon.call("GET", f"/transactions/{ended.identity}")).status == 410

        await daemon.stop()
        assert verify(daemon.database, lambda *_: None).findings == []
        assert not [path for path in daemon.database.parent.glob("posd.db*") if SECRET.encode() in path.read_bytes()]


@pytest.mark.parametrize(
    ("content", "path"),
    [
        ({"older_than_days": -1}, "/older_than_days"),
        ({"older_than_days": 1.5}, "/older_than_days"),
        ({"older_than_days": "1"}, "/older_than_days"),
        ({"dry_run": 1}, "/dry_run"),
        ({"days": 1}, "/days"),
        ([], ""),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_invalid_calls_of_prune_are_refused(shop: Shop, content: Any, path: str) -> None:
    daemon = shop.daemon
    reply = await daemon.call("POST", "/prune", content, socket=daemon.admin_socket)
    assert (reply.status, reply.json["code"]) == (422, "invalid_request")
    assert [error["path"] for error in reply.json["errors"]] == [path]
    assert (await daemon.call("POST", "/prune", {})).json["code"] == "forbidden"


async def test_posd_prune_removes_old_records_and_reports_their_number(home: Path) -> None:
    async with open_shop(home) as shop:
        paid = await shop.started()
        await paid.approve()
        code, _, said = await posd_command(shop.daemon, "prune", "--older-than", "0")
        assert (code, "give --yes" in said) == (2, True)
        code, said, _ = await posd_command(shop.daemon, "prune", "--older-than", "0", "--dry-run")
        assert (code, said.startswith("Would be removed: 1 payment, from before")) == (0, True), said
        code, said, _ = await posd_command(shop.daemon, "prune", "--older-than", "0", "--yes")
        assert (code, said.startswith("Removed: 1 payment, from before")) == (0, True), said
        assert "Their ids are kept" in said
        code, _, said = await posd_command(shop.daemon, "show", paid.identity)
        assert (code, "do not charge again" in said) == (1, True), said
        assert (await paid.post("abort")).json["code"] == "pruned"
        with closing(sqlite3.connect(shop.daemon.database)) as db:
            assert db.execute("SELECT client_transaction_id FROM pruned_transactions").fetchall() == [(paid.identity,)]
