"""What head office's commands show of lanes that may send anything."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import psycopg
import pytest

from posd.collect.store import CollectorStore, parsed
from tests.cli.processes import Done, posd
from tests.collect.life import LaneLife, as_messages, life
from tests.collect.postgres import postgres
from tests.support.needs import needs
from tests.support.strange import assert_lines

pytestmark = needs("postgres", "initdb")

#: What would move the cursor, end a line, begin a cell, or turn the line around.
FORGED = "x\x1b[2J\ny\tz\u202e"


@pytest.fixture
async def config(tmp_path: Path) -> AsyncIterator[Path]:
    """The configuration of a head office that has a good lane, and one with names that are none."""
    async with postgres() as server:
        async with await psycopg.AsyncConnection.connect(server.dsn, autocommit=True) as connection:
            store = CollectorStore(connection)
            await store.prepare(init=True)
            good, bad = life(1), life(2, FORGED)
            assert await store.write(parsed(as_messages([*good.sent, *bad.sent[:-2], *bad.sent[-1:]]))) == 0
        path = tmp_path / "office.toml"
        path.write_text(f'[collect]\ndsn = "{server.dsn}"\n')
        yield path


async def run(config: Path, *arguments: str) -> Done:
    return await asyncio.to_thread(posd, "collect", *arguments, config=config)


async def test_no_lane_forges_a_line_or_a_cell(config: Path) -> None:
    check = await run(config, "--check")
    assert check.returncode == 1
    totals = await run(config, "totals", "--day", "2026-01-01", "--to", "2026-12-31")
    ids = await run(config, "ids", "--lane", FORGED, "--since", "2026-01-01")
    for done in (check, totals, ids):
        assert "\u202e" not in done.stdout
        assert_lines(done.stdout, tabs=True)
        assert_lines(done.stderr)
    assert len(check.stdout.splitlines()[0].split("\t")) == len(check.stdout.splitlines()[1].split("\t"))
    assert {len(line.split("\t")) for line in totals.stdout.splitlines()} == {7}
    for arguments in (("--check",), ("totals", "--day", "2026-01-01"), ("ids", "--lane", "a", "--since", "2026-01-01")):
        json.loads((await run(config, *arguments, "--json")).stdout)


async def test_a_day_or_a_time_that_is_none_is_refused(config: Path) -> None:
    for arguments, words in (
        (("totals", "--day", "monday"), "'monday' is not a day"),
        (("totals", "--timezone", "Mars/Olympus"), "Mars/Olympus"),
        (("ids", "--lane", "a", "--since", "noon"), "'noon' is not a time"),
        (("--init", "--once"), "choose one"),
        (("--once",), "collect.servers is empty"),
    ):
        done = await run(config, *arguments)
        assert (done.returncode, words in done.stderr) == (2, True), (arguments, done.stderr)


async def test_without_a_database_it_says_where_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "office.toml"
    path.write_text('[collect]\ndsn = "host=/nowhere"\n')
    done = await run(path, "--check")
    assert done.returncode == 3
    assert "collect.dsn" in done.stderr


async def test_a_lane_whose_posd_does_not_answer_is_not_well(tmp_path: Path) -> None:
    """Its relay has just said so: it is not silent yet, and what happens there is not known."""
    async with postgres() as server:
        lane = LaneLife(Random(1))
        lane.begin()
        lane.live(2)
        lane.sent.append(lane.sent[-1] | {"health": {"status": "unreachable"}})
        async with await psycopg.AsyncConnection.connect(server.dsn, autocommit=True) as connection:
            store = CollectorStore(connection)
            await store.prepare(init=True)
            now = datetime.now(UTC)
            sent = [message._replace(received_at=now) for message in as_messages(lane.sent)]
            assert await store.write(parsed(sent[:-1])) == 0
            path = tmp_path / "office.toml"
            path.write_text(f'[collect]\ndsn = "{server.dsn}"\n')
            assert (await run(path, "--check")).returncode == 0
            assert await store.write(parsed(sent[-1:])) == 0
        done = await run(path, "--check")
        assert done.returncode == 1
        assert "1 lane: 0 silent, 1 unreachable, 0 gaps." in done.stdout
        assert not json.loads((await run(path, "--check", "--json")).stdout)["ok"]


async def test_a_check_counts_the_rows_and_says_so_where_it_does_not(tmp_path: Path) -> None:
    async with postgres() as server:
        lane = LaneLife(Random(1))
        lane.begin()
        lane.live(2)
        async with await psycopg.AsyncConnection.connect(server.dsn, autocommit=True) as connection:
            store = CollectorStore(connection)
            await store.prepare(init=True)
            now = datetime.now(UTC)
            sent = [message._replace(received_at=now) for message in as_messages(lane.sent)]
            assert await store.write(parsed(sent)) == 0
        path = tmp_path / "office.toml"
        path.write_text(f'[collect]\ndsn = "{server.dsn}"\n')
        assert (await run(path, "--check")).returncode == 0
        await server.rows("DELETE FROM posd.changes WHERE seq = 2")
        check = await run(path, "--check")
        assert check.returncode == 1
        assert "posd relay --once --from 2" in check.stdout
        quick = await run(path, "--check", "--quick")
        assert quick.returncode == 0
        assert "not counted" in quick.stdout
        for arguments, counted in (((), True), (("--quick",), False)):
            found = json.loads((await run(path, "--check", *arguments, "--json")).stdout)
            assert (found["ok"], found["rows_counted"]) == (not counted, counted)
        assert (await run(path, "--quick")).returncode == 2


async def test_a_lane_that_is_closed_is_not_missed(config: Path) -> None:
    assert (await run(config, "--check")).returncode == 1
    for lane in ("a", FORGED):
        done = await run(config, "retire", "--lane", lane)
        assert (done.returncode, len(done.stdout.splitlines())) == (0, 1), done.stderr
        assert_lines(done.stdout)
    again = await run(config, "--check")
    assert again.returncode == 0
    assert "closed" in again.stdout
    assert "Missing" not in again.stdout
    known = json.loads((await run(config, "retire", "--lane", "a", "--merchant", "m1", "--json")).stdout)
    assert known == {"ok": True, "merchant": "m1", "lane": "a"}
    for arguments in (("--lane", "none"), ("--lane", "a", "--merchant", "m2")):
        refused = await run(config, "retire", *arguments)
        assert refused.returncode == 1
        assert "head office knows no lane" in refused.stderr
