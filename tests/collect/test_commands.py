"""Output of head office's commands, view and dashboard for lanes that may send anything."""

import asyncio
import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Any

import pytest
import pytest_asyncio

from posd.base.times import iso
from posd.collect import collector as metrics
from posd.collect import questions
from posd.collect.reading import LaneMessage
from posd.collect.store import CollectorStore, parsed
from posd.relay.messages import OperatorNeeded
from tests.collect.life import BEGAN, LaneLife, as_messages, life
from tests.collect.postgres import Postgres
from tests.rig.commands import Done, posd
from tests.rig.needs import needs
from tests.rig.strange import assert_lines

pytestmark = [pytest.mark.asyncio(loop_scope="module"), needs("postgres", "initdb")]

#: Text that tries to move the cursor, end a line, begin a cell, or reverse the line.
FORGED = "x\x1b[2J\ny\tz\u202e"


@pytest_asyncio.fixture(loop_scope="module")
async def config(office: Path, store: CollectorStore) -> Path:
    """Return the configuration of a head office with a good lane, and a lane with invalid names."""
    good, bad = life(1), life(2, FORGED)
    assert await store.write(parsed(as_messages([*good.sent, *bad.sent[:-2], *bad.sent[-1:]]))) == 0
    return office


def heard_now(lane: LaneLife) -> list[LaneMessage]:
    """Return the messages of a lane with the present time as arrival."""
    now = datetime.now(UTC)
    return [message._replace(received_at=now) for message in as_messages(lane.sent)]


async def run(config: Path, *arguments: str) -> Done:
    return await asyncio.to_thread(posd, "collect", *arguments, config=config)


async def test_no_lane_can_forge_a_line_or_a_cell_of_the_output(config: Path) -> None:
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


async def test_an_invalid_day_or_time_is_refused(config: Path) -> None:
    for arguments, words in (
        (("totals", "--day", "monday"), "'monday' is not a day"),
        (("totals", "--timezone", "Mars/Olympus"), "Mars/Olympus"),
        (("ids", "--lane", "a", "--since", "noon"), "'noon' is not a time"),
        (("--init", "--once"), "choose one"),
        (("--once",), "collect.servers is empty"),
    ):
        done = await run(config, *arguments)
        assert (done.returncode, words in done.stderr) == (2, True), (arguments, done.stderr)


async def test_without_a_database_the_message_names_the_setting(tmp_path: Path) -> None:
    path = tmp_path / "office.toml"
    path.write_text('[collect]\ndsn = "host=/nowhere"\n')
    done = await run(path, "--check")
    assert done.returncode == 3
    assert "collect.dsn" in done.stderr


def short_life(seed: int = 1) -> LaneLife:
    lane = LaneLife(Random(seed))
    lane.begin()
    lane.live(2)
    return lane


async def test_a_lane_whose_posd_does_not_respond_is_reported(office: Path, store: CollectorStore) -> None:
    """The lane's relay has just reported that posd does not respond. The lane is not silent yet, and its payments are
    unknown.
    """
    lane = short_life()
    lane.sent.append(lane.sent[-1] | {"health": {"status": "unreachable"}})
    sent = heard_now(lane)
    assert await store.write(parsed(sent[:-1])) == 0
    assert (await run(office, "--check")).returncode == 0
    assert await store.write(parsed(sent[-1:])) == 0
    done = await run(office, "--check")
    assert done.returncode == 1
    assert "1 lane: 0 silent, 1 unreachable, 0 gaps." in done.stdout
    assert not json.loads((await run(office, "--check", "--json")).stdout)["ok"]


async def test_a_lane_with_lost_changes_is_reported_until_it_is_compared(office: Path, store: CollectorStore) -> None:
    """No command sends these changes again. Without the report, head office's totals would seem complete."""
    lane = short_life()
    lane.lose(3)
    lane.live(1)
    assert await store.write(parsed(heard_now(lane))) == 0
    for arguments in ((), ("--quick",)):
        done = await run(office, "--check", *arguments)
        assert done.returncode == 1
        assert "Lost: m1.a: 3 changes" in done.stdout
        assert "1 lane: 0 silent, 0 unreachable, 0 gaps, 3 changes lost." in done.stdout
        found = json.loads((await run(office, "--check", *arguments, "--json")).stdout)
        assert (found["ok"], [item["lost"] for item in found["lanes"]]) == (False, [3])
    await store.connection.execute("UPDATE posd.lost SET reason = 'compared'")
    assert (await run(office, "--check")).returncode == 0
    totals = await run(office, "totals", "--timezone", "UTC", "--day", f"{BEGAN:%Y-%m-%d}")
    assert "3 changes of these days lost" in totals.stderr


async def test_a_check_says_whether_it_counted_the_rows(office: Path, store: CollectorStore) -> None:
    assert await store.write(parsed(heard_now(short_life()))) == 0
    assert (await run(office, "--check")).returncode == 0
    await store.connection.execute("DELETE FROM posd.changes WHERE seq = 2")
    check = await run(office, "--check")
    assert check.returncode == 1
    assert "posd relay --once --from 2" in check.stdout
    quick = await run(office, "--check", "--quick")
    assert quick.returncode == 0
    for arguments, counted in (((), True), (("--quick",), False)):
        found = json.loads((await run(office, "--check", *arguments, "--json")).stdout)
        assert (found["ok"], found["rows_counted"]) == (not counted, counted)
    assert (await run(office, "--quick")).returncode == 2


async def test_totals_say_which_data_may_be_missing(office: Path, store: CollectorStore) -> None:
    """Without this text a reader would mistake the sum of some lanes for the sum of all lanes."""
    lane = short_life(3)
    assert await store.write(parsed(as_messages(lane.sent))) == 0
    payments = [identity for kind, identity in lane.newest if kind == "transaction"]
    (unsettled,) = set(payments) - set(lane.standing)

    async def totals(day: str) -> tuple[str, Any]:
        shown = await run(office, "totals", "--timezone", "UTC", "--day", day)
        found = await run(office, "totals", "--timezone", "UTC", "--day", day, "--json")
        assert (shown.returncode, found.returncode) == (0, 0)
        return shown.stderr, json.loads(found.stdout)

    said, found = await totals(f"{BEGAN - timedelta(days=1):%Y-%m-%d}")
    assert "may be missing" not in said
    assert (found["incomplete"], found["open"], found["lost"], found["unreadable"]) == ([], 0, 0, 0)

    said, found = await totals(f"{BEGAN:%Y-%m-%d}")
    assert "m1.a is complete up to 20 Nov" in said
    assert [(item["merchant"], item["lane"]) for item in found["incomplete"]] == [("m1", "a")]
    assert (found["open"], "1 payment of these days without an outcome" in said) == (1, True), unsettled

    await store.connection.execute("UPDATE posd.lanes SET complete_to_at = %s", (BEGAN + timedelta(days=1),))
    said, found = await totals(f"{BEGAN:%Y-%m-%d}")
    assert "may be missing" not in said
    assert (found["incomplete"], found["lost"]) == ([], 0)


async def test_totals_say_how_many_changes_of_the_requested_days_were_lost(office: Path, store: CollectorStore) -> None:
    lane = short_life()
    lane.lose(3)
    lane.at += timedelta(days=2)
    lane.live(2)
    assert await store.write(parsed(as_messages(lane.sent))) == 0
    for days, lost in ((-1, 0), (0, 3), (1, 3), (2, 3), (3, 0)):
        day = f"{BEGAN + timedelta(days=days):%Y-%m-%d}"
        done = await run(office, "totals", "--timezone", "UTC", "--day", day, "--json")
        assert (day, json.loads(done.stdout)["lost"]) == (day, lost)
    done = await run(office, "totals", "--timezone", "UTC", "--day", f"{BEGAN:%Y-%m-%d}")
    assert "3 changes of these days lost" in done.stderr


async def test_a_closed_lane_is_not_reported_as_silent(config: Path) -> None:
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


async def test_every_query_of_the_dashboard_works(store: CollectorStore, server: Postgres) -> None:
    dashboard = json.loads((Path(__file__).parents[2] / "monitoring" / "grafana-fleet.json").read_text())
    targets = [target for panel in dashboard["panels"] for target in panel.get("targets", [])]
    asked = [target["rawSql"] for target in targets if "rawSql" in target]
    assert len(asked) == 5
    late, gap = life(1, "a"), life(2, "b")
    assert await store.write(parsed(as_messages([*late.sent, *gap.sent[:1], *gap.sent[2:]]))) == 0
    found = [await server.rows(query) for query in asked]
    today = "SELECT count(*) FROM posd.totals WHERE day = current_date"
    empty = [query for query, rows in zip(asked, found, strict=True) if not rows]
    assert [query for query in empty if "posd.totals" not in query] == []
    assert await server.rows(today) == [(0,)], "the panels of today are empty because no payment is of today"


async def test_no_lane_can_add_a_metric_label(store: CollectorStore) -> None:
    sent = life(3).sent
    for message in sent:
        if message["kind"] == "state":
            message["health"] = {"status": "evil"}
        for change in message.get("changes", ()):
            change["attention"] = ["made_up", "in_doubt"]
    assert await store.write(parsed(as_messages(sent))) == 0
    fleet = await questions.fleet(store.connection)
    rows = await (await store.connection.execute("SELECT code FROM posd.attention")).fetchall()
    codes = Counter(code for (code,) in rows)
    assert codes["made_up"] > 1
    assert fleet.lanes_health == {"ok": 0, "degraded": 0, "failing": 0, "unreachable": 0, "other": 1}
    assert fleet.attention["other"] == codes["made_up"]
    assert fleet.attention["in_doubt"] == codes["in_doubt"]
    text = metrics.metrics_text(metrics.CollectorCounters(), None, fleet)
    assert "evil" not in text
    assert "made_up" not in text


VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "vectors" / "counting.json").read_text())


INSERT = """
INSERT INTO posd.payments (merchant, lane, client_transaction_id, database_id, seq, phase, in_doubt, corrected,
  type, result, amount, authorized_amount, original, reversal, currency, created_at, updated_at, attention)
VALUES ('m', 'l', %(id)s, 'd', 1, 'final', false, false, %(type)s, %(result)s, %(amount)s, %(authorized_amount)s,
  %(of)s, %(reversal)s, 'USD', %(at)s, %(at)s, '{}')
"""


async def insert_vectors(store: CollectorStore) -> None:
    for number, case in enumerate(VECTORS):
        for place, row in enumerate(case["rows"]):
            of = None if row["original"] is None else f"{number}-{row['original']}"
            at = BEGAN + timedelta(seconds=place)
            await store.connection.execute(INSERT, row | {"id": f"{number}-{place}", "of": of, "at": at})


async def check_vectors(store: CollectorStore) -> None:
    query = "SELECT client_transaction_id, kind, amount FROM posd.counted"
    found = await (await store.connection.execute(query)).fetchall()
    counted = {identity: (kind, str(amount)) for identity, kind, amount in found}
    for number, case in enumerate(VECTORS):
        expected = None if case["counted"] is None else (case["kind"], case["counted"])
        assert counted.get(f"{number}-{len(case['rows']) - 1}") == expected, case["about"]


async def test_the_sql_view_counts_as_posd_does(store: CollectorStore) -> None:
    await insert_vectors(store)
    await check_vectors(store)
    found = await store.connection.execute("SELECT client_transaction_id, kind FROM posd.effects")
    kinds = dict(await found.fetchall())
    for number, case in enumerate(VECTORS):
        assert kinds.get(f"{number}-{len(case['rows']) - 1}", case["kind"]) == case["kind"], case["about"]


async def test_after_an_upgrade_an_installed_head_office_counts_as_posd_does(store: CollectorStore) -> None:
    await store.connection.execute("DROP SCHEMA posd CASCADE")
    for version in range(1, 6):
        await store.connection.execute((files("posd.collect") / "tables" / f"{version}.sql").read_bytes())
    await store.connection.execute("INSERT INTO posd.schema_version (version) VALUES (5)")
    await insert_vectors(store)
    assert await store.prepare(init=True)
    await check_vectors(store)


async def test_a_payment_of_an_unknown_type_is_reported_and_in_no_total(office: Path, store: CollectorStore) -> None:
    """A lane can have a newer posd. In silence, the totals would be wrong."""
    row = {"type": "barter", "result": "approved", "amount": 5, "authorized_amount": 5, "reversal": None, "of": None}
    await store.connection.execute(INSERT, row | {"id": "x", "at": BEGAN})
    arguments = ("totals", "--timezone", "UTC", "--day", f"{BEGAN:%Y-%m-%d}")
    assert "1 approved payment of unknown type or amount: not counted" in (await run(office, *arguments)).stderr
    found = json.loads((await run(office, *arguments, "--json")).stdout)
    assert (found["totals"], found["unclear"]) == ([], 1)


async def test_tables_that_count_an_operation_type_wrongly_are_not_used(store: CollectorStore) -> None:
    await insert_vectors(store)
    await store.connection.execute("DELETE FROM posd.operations WHERE type = 'capture'")
    await store.connection.execute("UPDATE posd.operations SET reverses = false WHERE type = 'refund'")
    with pytest.raises(OperatorNeeded, match=r"do not count capture, refund: .* --init"):
        await store.prepare()
    assert await store.prepare(init=True)
    await check_vectors(store)


async def test_thousands_of_tips_of_one_payment_do_not_delay_the_totals(store: CollectorStore) -> None:
    """The totals of all lanes are one query."""
    row = {"type": "charge", "result": "approved", "amount": 1, "authorized_amount": 1, "of": None, "reversal": None}
    async with store.connection.cursor() as cursor:
        tips = [row | {"id": f"t{number}", "type": "post-tip", "of": "p", "at": BEGAN} for number in range(3000)]
        await cursor.executemany(INSERT, [row | {"id": "p", "at": BEGAN}, *tips])
    await store.connection.execute("SET statement_timeout = '10s'")
    found = await questions.totals(store.connection, BEGAN.date(), BEGAN.date(), "UTC")
    assert [(item.kind, item.payments) for item in found] == [("charge", 1), ("post-tip", 3000)]


MOMENTS: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "vectors" / "moments.json").read_text())


async def test_the_view_counts_a_payment_on_the_day_of_the_report(store: CollectorStore) -> None:
    asked = datetime(2026, 11, 20, 4, 59, 50, tzinfo=UTC)  # this time is ten seconds before midnight in Guayaquil
    for case in MOMENTS:
        moments = (case["occurred_at"], asked, asked + timedelta(seconds=30))
        found = await (await store.connection.execute("SELECT posd.counts_at(%s, %s, %s)", moments)).fetchone()
        assert found is not None
        assert iso(found[0].astimezone(UTC)) == (case["counts_at"] or iso(asked)), case
