"""Printing where something is in its way: a disk that fails at the commit, a full line, a terminal that moves."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs
from structlog.typing import EventDict

from posd.config import load
from posd.core.printing import PrintJob
from posd.core.problems import Problem
from posd.services import printing as printing_module
from posd.services.callback_urls import CallbackUrls
from posd.services.print_turns import Turns
from posd.services.printing import Printing
from posd.store import opening, print_jobs
from posd.store.print_record import derive, difference
from posd.store.store import Store
from posd.terminals.announcements import Announcement
from posd.terminals.fleet import Fleet
from tests.support.daemon import toml
from tests.support.disk import broken_disk
from tests.support.shop import PATIENCE_SECONDS, held
from tests.support.terminal import ScriptedTerminal, scripted_terminal, taking_print

BODY = json.dumps({"document": {"text": "TOTAL 11.20"}}).encode()


@dataclass
class Inside:
    """The parts of a daemon that print, in this process, and a foreign lock on its database."""

    terminal: ScriptedTerminal
    fleet: Fleet
    store: Store
    turns: Turns
    printing: Printing
    foreign: sqlite3.Connection

    async def get(self, identity: str) -> PrintJob | None:
        return await self.store.read(lambda db: print_jobs.get(db, identity))

    def announce(self, port: int) -> None:
        """Let the terminal be at one of its ports alone."""
        number = int(self.terminal.base_urls[port].rsplit(":", 1)[1])
        at = "2026-01-02T03:04:05.000Z"
        self.fleet.announce(Announcement("a", self.terminal.serial, ("127.0.0.1",), number, None, None, at))

    async def behind(self, identity: str) -> "asyncio.Task[tuple[PrintJob, bool]]":
        """Let a till print behind one that is being sent; return its call when its intent is on the disk."""
        with self.store.hub.subscribe(identity) as changed:
            calling = asyncio.create_task(self.printing.start(identity, BODY))
            await asyncio.wait_for(changed.wait(), PATIENCE_SECONDS)
        return calling


@pytest.fixture
async def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Inside]:
    monkeypatch.setattr(printing_module, "RETRY_STORING_SECONDS", 0.01)
    async with composed(tmp_path) as parts:
        yield parts


@asynccontextmanager
async def composed(home: Path) -> AsyncIterator[Inside]:
    def now() -> datetime:
        return datetime.now(UTC)

    async with scripted_terminal(home, ports=2) as terminal:
        without_address = terminal.toml.replace(f'base_url = "{terminal.base_url}"\n', "")
        (home / "config.toml").write_text(toml(home, without_address))
        config = load(home / "config.toml")
        store = await Store.open(home / "posd.db", home / "posd.db.lock")
        await store.write(lambda unit: unit.db.execute("PRAGMA busy_timeout = 20").close())
        fleet, turns = Fleet(config.terminals, config.profile), Turns()
        urls = CallbackUrls((b"k" * 32,), "", 1)
        printing = Printing(store, fleet, urls, turns, "document", now)
        foreign = sqlite3.connect(home / "posd.db", isolation_level=None)
        inside = Inside(terminal, fleet, store, turns, printing, foreign)
        inside.announce(0)
        try:
            yield inside
        finally:
            foreign.close()
            await printing.drain(0)
            await fleet.close()
            await printing.close()
            await store.close()


async def test_what_is_not_committed_for_certain_is_not_sent(inside: Inside, tmp_path: Path) -> None:
    # The log is captured: it would go to a file too.
    with capture_logs(), broken_disk(tmp_path / "posd.db"), pytest.raises(Problem) as refused:
        await inside.printing.start("job-1", BODY)
    assert refused.value.code == "storage_unavailable", "the database was read again: it is not there"
    assert (inside.terminal.prints, inside.turns.waiting) == ([], 0)
    job, created = await inside.printing.start("job-1", BODY)
    assert (job.phase, created, len(inside.terminal.prints)) == ("active", True, 1)


async def test_what_may_have_been_committed_is_neither_confirmed_nor_denied(
    inside: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The COMMIT of the intent fails, and before the database can be read again somebody locks it."""
    monkeypatch.setattr(opening, "BUSY_TIMEOUT_MS", 20)

    def lock_meanwhile(_logger: object, _method: str, line: EventDict) -> EventDict:
        if line["event"] == "print.commit_uncertain":
            inside.foreign.execute("BEGIN IMMEDIATE")
        raise structlog.DropEvent

    processors = structlog.get_config()["processors"]
    processors.insert(0, lock_meanwhile)
    try:
        with broken_disk(tmp_path / "posd.db"), pytest.raises(Problem) as unsure:
            await inside.printing.start("job-1", BODY)
        with pytest.raises(Problem) as repeated:
            await inside.printing.start("job-1", BODY)
    finally:
        processors.remove(lock_meanwhile)
    codes = (unsure.value.code, repeated.value.code)
    assert codes == ("internal_error", "internal_error"), "a 503 would say that nothing is recorded, a 201 that it is"
    assert inside.printing.under_way("job-1"), "nobody can resolve it meanwhile"
    assert inside.terminal.prints == []
    settling = set(inside.printing._running._tasks)
    inside.foreign.execute("ROLLBACK")
    await asyncio.wait(settling, timeout=PATIENCE_SECONDS)
    assert not inside.printing.under_way("job-1")
    job, created = await inside.printing.start("job-1", BODY)
    assert (job.phase, created, len(inside.terminal.prints)) == ("active", True, 1)


async def test_a_line_that_is_full_takes_no_more_and_says_so(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printing_module, "MAX_WAITING", 3)
    inside.terminal.print_start = hung = held(taking_print)
    calls = [await inside.behind(f"job-{number}") for number in range(3)]
    with pytest.raises(Problem) as full:
        await inside.printing.start("job-3", BODY)
    assert (full.value.code, full.value.status) == ("queue_full", 503)
    assert await inside.get("job-3") is None
    hung.release.set()
    assert {(await call)[0].phase for call in calls} == {"active"}
    job, created = await inside.printing.start("job-3", BODY)
    assert (job.phase, created, len(inside.terminal.prints)) == ("active", True, 4)


async def test_who_waits_in_line_is_sent_to_where_the_terminal_is_at_its_turn(inside: Inside) -> None:
    inside.terminal.print_start = hung = held(taking_print)
    first = await inside.behind("job-1")
    await asyncio.wait_for(hung.arrived.wait(), PATIENCE_SECONDS)
    waiting = await inside.behind("job-2")
    inside.announce(1)
    inside.terminal.unplug(0)
    hung.release.set()
    jobs = [(await call)[0] for call in (first, waiting)]
    assert [job.phase for job in jobs] == ["active", "active"]
    assert [job.sent_to for job in jobs] == inside.terminal.base_urls
    for identity in ("job-1", "job-2"):
        stored = await inside.get(identity)
        assert stored is not None
        derived = await inside.store.read(lambda db, stored=stored: derive(db, stored))
        assert difference(stored, derived) == {}
