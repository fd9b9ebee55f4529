"""A disk with little free space. posd first refuses print jobs, then new payments. posd still records approvals."""

import asyncio
import shutil
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from posd.base import limits
from tests.power.street import Street, bodies, make_daemon, names
from tests.rig.events import APPROVED
from tests.rig.terminal import scripted_terminal, taking_print
from tests.rig.tmpfs import small_disk

pytestmark = pytest.mark.slow

#: Size of the disk, and free space just below each of the two limits, in bytes.
SIZE = 100 * limits.MIB
FOR_PAYMENTS = limits.floor(limits.FREE_FOR_EXTRAS, SIZE) - 64 * limits.KIB
FOR_EVENTS = limits.floor(limits.FREE_FOR_PAYMENTS, SIZE) - 16 * limits.KIB


PATIENCE_SECONDS = 30.0


async def test_a_full_disk_refuses_prints_and_payments_but_records_approvals(
    small_disks: None, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scripted_terminal(home, ports=3) as terminal:
        posd = make_daemon(home, terminal, {})
        with small_disk(home, home / "state", str(SIZE)) as disk:
            shutil.copytree(home / "state" / "tls", disk.files / "tls")
            monkeypatch.setattr(sys, "executable", str(disk.python))  # this interpreter runs the daemon
            await posd.start()
            try:
                street = Street(posd, terminal, names(3), lambda *_: None)
                terminal.print_start = taking_print
                first = await street.started("SN-0")
                assert await printed(posd) == (201, None)

                disk.fill(spare=FOR_PAYMENTS)
                async with asyncio.timeout(PATIENCE_SECONDS):
                    while await storage(posd) != "degraded":
                        pass  # posd measures the free space at most once a second
                assert await printed(posd) == (503, "storage_unavailable")
                second = await street.started("SN-1")
                content = b"not an event"
                assert (await street.deliver(first, content)).status == 503  # this body makes the quarantine not empty

                disk.free()
                disk.fill(spare=FOR_EVENTS)
                refused = str(uuid4())
                reply = await street.put(refused, "SN-2")
                assert (reply.status, reply.json["code"]) == (503, "storage_unavailable")
                assert not terminal.starts_of(refused)
                assert await storage(posd) == "failing"
                for identity, serial in ((first, "SN-0"), (second, "SN-1")):
                    for event in bodies(identity, serial, APPROVED):
                        assert (await street.deliver(identity, event)).status == 200
                    assert await street.outcome(identity) == "approved"

                disk.free()
                assert await printed(posd) == (201, None)
                assert (await street.put(refused, "SN-2")).status == 201
                assert not street.posd.faults
            finally:
                await posd.stop()


async def storage(posd: Any) -> str:
    """Return the state of the storage in the health resource."""
    return str((await posd.call("GET", "/health")).json["checks"]["storage"]["status"])


async def printed(posd: Any) -> tuple[int, str | None]:
    """Start a print job. Return the status and the code of the problem."""
    reply = await posd.call("PUT", f"/print-jobs/{uuid4()}", {"terminal": "SN-0", "document": {"x": 1}})
    return reply.status, reply.json.get("code")
