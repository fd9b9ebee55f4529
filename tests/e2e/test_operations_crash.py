"""SIGKILL in the middle of each operation type: in doubt, never sent again, and every reference is still there."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from tests.e2e.test_backup import posd_command
from tests.e2e.test_crash import quietly
from tests.support.chains import FITS, KINDS, Operation, operation, stored, taking
from tests.support.daemon import Daemon
from tests.support.shop import QUIET, Shop, held, knowing, nothing_to_correct, open_counters

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: Operation -> what it is done to here: its type, and the re-authorization that has changed it before.
DONE_TO = {
    "re-auth": "pre-auth",
    "capture": "re-authorized",
    "post-tip": "charge",
    "void": "capture",
    "refund": "charge",
}
#: Where the process is killed, and how often the terminal has seen the request by then.
POINTS = {"start.replied": 1, "start.intended": 0, "start.concluded": 1}
CASES = [*((kind, "start.replied") for kind in KINDS), ("capture", "start.intended"), ("void", "start.concluded")]


class Killed:
    """What was under way when the process was killed, and what it was done to."""

    def __init__(self, item: Operation, original: Operation | None, sends: str | None) -> None:
        self.item = item
        self.original = original
        self.sends = sends
        self.request = {"original": original.identity} if original else {}


async def prepared(counter: Shop, kind: str) -> Killed:
    """Return an operation that has not begun, with an approved original on its terminal."""
    item = operation(counter, kind)
    match DONE_TO.get(kind):
        case None:
            return Killed(item, None, None)
        case "re-authorized":
            original = await (await operation(counter, "pre-auth").begin()).finish()
            newest = await operation(counter, "re-auth").begin(original=original.identity)
            await newest.finish()
            return Killed(item, original, newest.reference)
        case other:
            original = operation(counter, other)
            await original.begin(**({"transaction_reference": str(uuid4())} if other in FITS else {}))
            await original.finish()
            return Killed(item, original, original.reference)


@pytest_asyncio.fixture(loop_scope="module")
async def counters() -> AsyncIterator[list[Shop]]:
    """A daemon with a terminal for each case, that comes back on the same port."""
    with TemporaryDirectory(prefix="posd-") as directory:
        async with open_counters(Path(directory), len(CASES), QUIET) as counters:
            yield counters
            await nothing_to_correct(counters[0].daemon)


@pytest.mark.slow
@pytest.mark.parametrize("cases", [CASES[-3:], pytest.param(CASES, marks=pytest.mark.slow)], ids=["some", "all"])
async def test_each_type_is_killed_found_restored_and_derived_again(
    counters: list[Shop], cases: list[tuple[str, str]]
) -> None:
    daemon = counters[0].daemon
    everyone = [await prepared(counter, kind) for counter, (kind, _) in zip(counters, cases, strict=False)]
    assert await daemon.stop() == 0
    points = [point for _, point in cases]
    daemon.environment = {"POSD_CRASH": points[0]}
    await daemon.start()
    for killed, point, following in zip(everyone, points, [*points[1:], ""], strict=True):
        killed.item.shop.terminal.start = taking
        assert await quietly(killed.item.put(**killed.request)) is None
        assert daemon.process is not None
        await daemon.process.wait()
        assert await daemon.stop() == -9
        daemon.environment = {"POSD_CRASH": following}
        await after_the_kill(daemon, killed, POINTS[point], known=point == "start.concluded")
    documents = await shown(daemon, everyone)

    await daemon.restart()
    assert await shown(daemon, everyone) == documents
    backup = daemon.directory / "backup.db"
    assert (await daemon.call("POST", "/backup", {"path": str(backup)}, socket=daemon.admin_socket)).status == 200
    assert await daemon.stop() == 0
    for path in daemon.database.parent.glob("posd.db*"):
        path.unlink()
    code, _, said = await posd_command(daemon, "restore", str(backup))
    assert code == 0, said
    await daemon.start()
    assert await shown(daemon, everyone) == documents
    await nothing_to_correct(daemon)
    assert await shown(daemon, everyone) == documents
    for killed, (kind, point) in zip(everyone, cases, strict=True):
        assert (await killed.item.put(**killed.request)).status == 200
        assert len(killed.item.requests) == POINTS[point]
        again = operation(killed.item.shop, kind)
        if killed.original is not None and kind != "re-auth":
            problem = await again.refused("already_derived", original=killed.original.identity)
            assert problem["transactions"] == [killed.item.identity]


async def after_the_kill(daemon: Daemon, killed: Killed, requests: int, *, known: bool) -> None:
    """Start again: it is in doubt with its references, and ends by what a search finds, if it was ever sent."""
    item, terminal = killed.item, killed.item.shop.terminal
    assert len(item.requests) == requests
    found = item.states() if requests else None
    search = held(knowing(*([found] if found else [])))
    terminal.search = search
    await daemon.start()
    await search.arrived.wait()  # the newly started daemon asks by itself
    document = await item.get()
    assert document["phase"] == ("active" if known else "in_doubt")
    await assert_references(killed, document)
    repeated = await item.put(**killed.request)
    assert (repeated.status, repeated.json["phase"]) == (200, document["phase"])
    if killed.original is not None:
        problem = await operation(item.shop, item.kind).refused("already_derived", original=killed.original.identity)
        assert problem["transactions"] == [item.identity]
    search.release.set()
    if found is None:
        return
    outcome = await daemon.outcome(item.identity)
    assert (outcome["result"], outcome["evidence"][0]["kind"]) == ("approved", "search")
    assert outcome["transaction_reference"] == item.reference
    assert outcome["reversal"] == {"void": "cancellation", "refund": "refund"}.get(item.kind)
    assert await item.deliver(json.dumps(found).encode()) == 200  # the event that the terminal has kept
    await assert_references(killed, await item.get())
    assert len(item.requests) == requests


async def assert_references(killed: Killed, document: Any) -> None:
    """What was sent, what it derives from, and what came of it."""
    original = killed.original.identity if killed.original else None
    assert (document["transaction_reference"], document["original"]) == (killed.sends, original)
    row = stored(killed.item)
    assert (row["transaction_reference"], row["derives_from"]) == (killed.sends, original)
    gave = killed.item.reference.upper() if document["outcome"] else None
    assert row["given_reference"] == gave
    assert (row["same_day_until"] is None) == (killed.item.kind != "void")
    if killed.original is not None:
        assert (await killed.original.get())["derived"][-1] == killed.item.identity


async def shown(daemon: Daemon, everyone: list[Killed]) -> list[Any]:
    """Return all of them and their originals as the local API shows them, but for when they were asked for last."""
    identities = [item.identity for killed in everyone for item in (killed.item, killed.original) if item]
    documents = await asyncio.gather(*(daemon.transaction(identity) for identity in identities))
    return [{name: value for name, value in document.items() if name != "last_search"} for document in documents]
