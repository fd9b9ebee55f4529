"""The collector's tables for messages in any order, on a real PostgreSQL."""

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from importlib.resources import files
from random import Random
from typing import Any

import psycopg
import pytest

from posd.base.money import from_wire, read_money
from posd.base.times import iso
from posd.collect import questions
from posd.collect.reading import LaneMessage
from posd.collect.store import MOST_DATABASES, CollectorStore, ParsedMessage, in_order, is_of_the_data, parsed
from posd.relay.messages import OperatorNeeded
from tests.collect.life import BEGAN, LaneLife, as_messages, life
from tests.collect.postgres import Postgres
from tests.rig.needs import needs
from tests.rig.tables import every

pytestmark = [pytest.mark.asyncio(loop_scope="module"), needs("postgres", "initdb")]

TABLES = {
    "lanes": "*",
    "databases": "database_id, merchant, lane, ordinal, first_seq, previous_id, previous_last_seq, frontier, state_seq",
    "changes": "*",
    "lost": "*",
    "payments": "*",
    "print_jobs": "*",
    "attention": "*",
    "unreadable": "*",
    "gaps": "*",
}


async def tables(store: CollectorStore) -> dict[str, set[str]]:
    return {
        name: {
            repr(row) for row in await (await store.connection.execute(f"SELECT {columns} FROM posd.{name}")).fetchall()
        }
        for name, columns in TABLES.items()
    }


async def write(store: CollectorStore, messages: list[LaneMessage]) -> int:
    return await store.write(parsed(messages))


async def open_gaps(store: CollectorStore) -> Sequence[questions.Gap]:
    return (await questions.check(store.connection, counted=False)).gaps


async def rows(store: CollectorStore, query: str) -> list[Any]:
    return await (await store.connection.execute(query)).fetchall()


async def lanes(store: CollectorStore) -> Sequence[questions.LaneStatus]:
    return (await questions.check(store.connection, counted=True)).lanes


async def empty(store: CollectorStore) -> None:
    await store.connection.execute(
        "TRUNCATE posd.lanes, posd.databases, posd.changes, posd.lost, posd.payments, posd.print_jobs, posd.attention,"
        " posd.unreadable"
    )


@pytest.mark.quick(2)
@pytest.mark.parametrize("seed", range(1, 8))
async def test_each_payment_has_the_state_of_its_changes(store: CollectorStore, seed: int) -> None:
    lane = life(seed)
    assert await write(store, as_messages(lane.sent)) == 0
    assert await rows(store, "SELECT count(*) FROM posd.changes") == [(len(lane.changes),)]
    found = await rows(
        store,
        "SELECT client_transaction_id, phase, in_doubt, result, corrected, sale, amount, authorized_amount, seq"
        " FROM posd.payments",
    )
    wanted = []
    for (kind, identity), change in lane.newest.items():
        if kind == "transaction":
            _, outcome = lane.standing.get(identity, ("", None))
            told = lane.outcomes.get(identity)
            wanted.append(
                (
                    identity,
                    change["phase"],
                    change["phase"] == "in_doubt",
                    outcome["result"] if outcome else None,
                    bool(outcome and outcome["corrected"]),
                    f"sale of {identity}" if told else None,
                    Decimal("11.25") if told else None,
                    Decimal("11.25") if outcome and outcome["result"] == "approved" else None,
                    change["seq"],
                )
            )
    assert sorted(found) == sorted(wanted)
    jobs = await rows(store, "SELECT print_job_id, phase FROM posd.print_jobs")
    assert sorted(jobs) == sorted(
        (i, change["phase"]) for (kind, i), change in lane.newest.items() if kind == "print_job"
    )
    need = {(k, i, "in_doubt") for (k, i), change in lane.newest.items() if change["attention"]}
    assert set(await rows(store, "SELECT kind, id, code FROM posd.attention")) == need
    assert await open_gaps(store) == []
    ((complete, seq),) = await rows(store, "SELECT complete_to_at, complete_to_seq FROM posd.lanes")
    assert (iso(complete), seq) == (iso(lane.at), lane.seq)


@pytest.mark.quick(3)
@pytest.mark.parametrize("seed", range(12))
async def test_neither_order_nor_repeats_nor_several_collectors_change_the_tables(
    store: CollectorStore, server: Postgres, seed: int
) -> None:
    """Several collectors, a rebuilt stream, and relays that send again change the order."""
    random = Random(seed)
    messages = as_messages([*life(seed).sent, *life(seed + 100, "b").sent])
    await write(store, messages)
    wanted = await tables(store)
    assert wanted["gaps"] == wanted["unreadable"] == set()
    await empty(store)
    mixed = [*messages, *random.sample(messages, len(messages) // 3)]
    random.shuffle(mixed)

    async def collect() -> None:
        async with await psycopg.AsyncConnection.connect(server.dsn, autocommit=True) as connection:
            while mixed:
                batch = [mixed.pop() for _ in range(min(len(mixed), random.randrange(1, 6)))]
                await write(CollectorStore(connection), batch)

    await asyncio.gather(*(collect() for _ in range(4)))
    assert await tables(store) == wanted


async def test_missing_changes_are_reported_until_they_arrive(store: CollectorStore) -> None:
    messages = as_messages(life(3).sent)
    for number, message in enumerate(messages):
        await empty(store)
        await write(store, messages[:number] + messages[number + 1 :])
        says = json.loads(message.data)
        gaps = await open_gaps(store)
        match says["kind"]:
            case "changes":
                (gap,) = gaps
                assert (gap.after_seq, gap.before_seq) == (says["first_seq"] - 1, says["last_seq"] + 1)
                assert gap.database_id == says["database_id"]
            case "lost":
                (gap,) = gaps
                assert (gap.after_seq, gap.before_seq) == (says["from_seq"] - 1, says["to_seq"] + 1)
            case "begin":
                assert [(gap.database_id, gap.after_seq) for gap in gaps] == [(says["database_id"], None)]
            case "state":
                assert gaps == []
        await write(store, [message])
        assert await open_gaps(store) == []


async def test_a_deleted_row_is_reported_until_it_arrives_again(store: CollectorStore) -> None:
    sent = as_messages([*life(1).sent, *life(2, "b").sent])
    await write(store, sent)
    before = await tables(store)
    for database_id, seq in await rows(store, "SELECT database_id, seq FROM posd.changes WHERE database_id LIKE 'a-%'"):
        await store.connection.execute(
            "DELETE FROM posd.changes WHERE (database_id, seq) = (%s, %s)", (database_id, seq)
        )
        found = await questions.check(store.connection, counted=True)
        assert [(gap.database_id, gap.after_seq, gap.before_seq) for gap in found.gaps] == [
            (database_id, seq - 1, seq + 1)
        ]
        assert sum(lane.gaps for lane in found.lanes) == 1
        quick = await questions.check(store.connection, counted=False)
        assert (quick.gaps, quick.counted) == ([], False)
        await write(store, sent)
        assert (await questions.check(store.connection, counted=True)).gaps == []
    assert await tables(store) == before


async def test_rows_that_head_office_deletes_are_not_reported_as_missing(store: CollectorStore) -> None:
    lane = life(1)
    await write(store, as_messages(lane.sent))
    lost = (await questions.fleet(store.connection)).lost_changes
    early = BEGAN + (lane.at - BEGAN) / 2
    ((deleted,),) = await rows(store, f"SELECT posd.delete_changes('{iso(early)}')")
    assert 0 < deleted < len(lane.changes)
    assert (await questions.check(store.connection, counted=True)).gaps == []
    assert (await questions.fleet(store.connection)).lost_changes == lost
    await store.connection.execute("DELETE FROM posd.changes WHERE seq = (SELECT max(seq) FROM posd.changes)")
    assert len((await questions.check(store.connection, counted=True)).gaps) == 1


async def test_a_lane_is_complete_only_as_far_as_its_changes_are_known(store: CollectorStore) -> None:
    lane = LaneLife(Random(1))
    lane.begin()
    lane.live(2)
    begin, *changes, state = as_messages(lane.sent)
    await write(store, [begin, *changes[:-1], state])
    assert (await lanes(store))[0].complete_to_at is None
    await write(store, [changes[-1]])
    (known,) = await lanes(store)
    assert (known.complete_to_seq, known.gaps, known.silent) == (lane.seq, 0, True)
    assert known.complete_to_at is not None
    assert iso(known.complete_to_at) == iso(lane.at)


async def test_a_lane_whose_clock_was_ahead_is_complete_only_up_to_its_last_message(store: CollectorStore) -> None:
    """The state from a clock that was ahead does not count. The next state counts again, so a missing change is
    reported.
    """
    lane = LaneLife(Random(1))
    lane.begin()
    lane.live(2)
    ahead = lane.sent[-1] | {"as_of": iso(lane.at + timedelta(days=1500))}
    await write(store, as_messages([*lane.sent[:-1], ahead]))
    assert [iso(known.complete_to_at) for known in await lanes(store) if known.complete_to_at] == [iso(lane.at)]
    known, sent = lane.at, len(lane.sent)
    lane.live(2)
    await write(store, as_messages(lane.sent[-1:], 1000))
    (found,) = await lanes(store)
    assert found.complete_to_at == datetime.fromisoformat(iso(known))
    assert found.gaps
    await write(store, as_messages(lane.sent[sent:], 1000))
    (found,) = await lanes(store)
    assert (found.gaps, found.complete_to_at) == (0, datetime.fromisoformat(iso(lane.at)))


async def test_a_list_of_ids_includes_payments_started_with_a_slow_clock(store: CollectorStore) -> None:
    """A restore takes over these ids, so a till that repeats an id charges no customer twice."""
    lane = life(1)
    since = lane.at + timedelta(hours=1)
    await write(store, as_messages(lane.sent))
    sent, before = len(lane.sent), set(lane.newest)
    lane.at -= timedelta(days=2000)
    lane.live(3)
    behind = [message._replace(received_at=since) for message in as_messages(lane.sent[sent:], 1000)]
    await write(store, behind)
    started = {identity for kind, identity in lane.newest.keys() - before if kind == "transaction"}
    assert started
    assert {row[0] for row in await questions.started(store.connection, None, lane.lane, since)} == started


async def test_changes_sent_before_the_lane_removed_them_are_not_lost(store: CollectorStore) -> None:
    """A relay that sends again from an early number (--from) lacks the changes that retention has removed."""
    lane = LaneLife(Random(1))
    lane.begin()
    lane.live(2)
    await write(store, as_messages(lane.sent))
    again = {"v": 1, "kind": "lost", "merchant": lane.merchant, "lane": lane.lane, "database_id": lane.databases[-1]}
    again |= {"at": iso(lane.at), "from_seq": 1, "to_seq": lane.seq, "reason": "not in the feed"}
    await write(store, as_messages([again], 1000))
    assert (await questions.fleet(store.connection)).lost_changes == 0
    await write(store, as_messages([again | {"to_seq": lane.seq + 1}], 1001))
    assert (await questions.fleet(store.connection)).lost_changes == 1


async def test_a_lane_without_messages_is_silent(store: CollectorStore) -> None:
    lane = LaneLife(Random(1))
    lane.begin()
    lane.live(1)
    *before, last = as_messages(lane.sent)
    ((now,),) = await rows(store, "SELECT now()")
    await write(store, [*before, last._replace(received_at=now - timedelta(minutes=11))])
    assert [item.silent for item in await lanes(store)] == [True]
    await write(store, [last._replace(received_at=now - timedelta(minutes=9))])
    assert [item.silent for item in await lanes(store)] == [False]


HEAD = {"v": 1, "merchant": "m1", "lane": "a", "database_id": "x", "at": iso(BEGAN)}
CHANGE = {
    "seq": 1,
    "at": iso(BEGAN),
    "kind": "transaction",
    "id": "p",
    "phase": "active",
    "attention": [],
    "result": None,
}
RUN = HEAD | {"kind": "changes", "first_seq": 1, "last_seq": 1}
STATE = HEAD | {"kind": "state", "last_seq": 1, "version": "1", "health": {"status": "ok"}, "open": 0, "attention": {}}
#: The text is random. PostgreSQL would compress other text, and the text would fit into the index.
INCOMPRESSIBLE = Random(1).randbytes(1352).hex()
STRANGE: dict[str, tuple[Any, str]] = {
    "nonsense": (b"nonsense", "JSON is malformed"),
    "an empty message": (b"", "truncated"),
    "an unknown kind of message": (HEAD | {"kind": "news"}, "Invalid value 'news'"),
    "a newer version": (HEAD | {"kind": "begin", "v": 2, "first_seq": 1, "previous": None}, "version 2"),
    "a message of another lane": (
        HEAD | {"kind": "begin", "lane": "b", "first_seq": 1, "previous": None},
        "arrived on posd.m1.a",
    ),
    "no changes": (RUN | {"changes": []}, "are not those from 1 to 1"),
    "wrong numbers": (RUN | {"changes": [CHANGE | {"seq": 2}]}, "change 1 cannot be read: its number is 2"),
    "no number": (RUN | {"changes": [{}]}, "missing required field `seq`"),
    "too large a number": (
        RUN | {"first_seq": 2**63, "last_seq": 2**63, "changes": [CHANGE | {"seq": 2**63}]},
        "`int` <= 9223372036854775806",
    ),
    "a change without a phase": (RUN | {"changes": [{"seq": 1}]}, "missing required field"),
    "an invalid time": (RUN | {"changes": [CHANGE | {"at": "noon"}]}, "Invalid RFC3339"),
    "an invalid amount": (
        RUN | {"changes": [CHANGE | {"outcome": {"authorized_amount": "much"}}]},
        "$.outcome.authorized_amount",
    ),
    "half a surrogate pair": (
        json.dumps(RUN | {"changes": [CHANGE | {"terminal": "HALF"}]}).replace("HALF", "\\ud800").encode(),
        "truncated",
    ),
    "a name with a NUL": (RUN | {"changes": [CHANGE | {"id": "a\0b"}]}, "refused by PostgreSQL"),
    "too large a tip": (RUN | {"changes": [CHANGE | {"outcome": {"tip": "1e200000"}}]}, "`tip` has no number"),
    "the amount NaN": (
        RUN | {"changes": [CHANGE | {"outcome": {"authorized_amount": "NaN"}}]},
        "`authorized_amount` has no number",
    ),
    "too large a JSON number": (
        json.dumps(RUN | {"changes": [CHANGE | {"outcome": {"amount": {"iva": 7654321}}}]})
        .replace("7654321", "1e200000")
        .encode(),
        "`amount` has no number",
    ),
    "too long an id": (RUN | {"changes": [CHANGE | {"id": INCOMPRESSIBLE}]}, "$.id"),
    "too long a database_id": (RUN | {"database_id": INCOMPRESSIBLE, "changes": [CHANGE]}, "$.database_id"),
    "too long a code": (RUN | {"changes": [CHANGE | {"attention": [INCOMPRESSIBLE]}]}, "$.attention"),
    "too long an original": (
        RUN | {"changes": [CHANGE | {"outcome": {"original": INCOMPRESSIBLE}}]},
        "$.outcome.original",
    ),
    "a time after the year 9999": (
        RUN | {"changes": [CHANGE | {"at": "9999-12-31T23:59:59-12:00"}]},
        "`at` is not between 1970 and 9999",
    ),
    "a time zone that PostgreSQL refuses": (
        RUN | {"changes": [CHANGE | {"outcome": {"created_at": "2026-11-20T12:00:00+23:59"}}]},
        "`created_at` has an offset of 16 hours or more",
    ),
    "the time infinity": (RUN | {"changes": [CHANGE | {"outcome": {"created_at": "infinity"}}]}, "created_at"),
    "a state message of a time after the year 9999": (STATE | {"as_of": "9999-12-31T23:59:59-12:00"}, "9999-12-31"),
    "a state message with too large a number": (STATE | {"open": 2**31}, "$.open"),
    "too deep nesting": (
        json.dumps(RUN | {"changes": [CHANGE | {"x": "DEEP"}]}).replace('"DEEP"', "[" * 200 + "]" * 200).encode(),
        "deeper than 128",
    ),
    "a reversed loss": (HEAD | {"kind": "lost", "from_seq": 5, "to_seq": 4, "reason": ""}, "from 5 to 4 is empty"),
}


@pytest.mark.parametrize(("strange", "words"), STRANGE.values(), ids=STRANGE)
async def test_an_unusable_change_is_set_aside_with_its_reason(store: CollectorStore, strange: Any, words: str) -> None:
    """The other data of the message is stored."""
    lane = life(1, "b")
    data = strange if isinstance(strange, bytes) else json.dumps(strange).encode()
    message = LaneMessage(9999, BEGAN, "posd.m1.a", data)
    assert await write(store, [*as_messages(lane.sent[:2]), message, *as_messages(lane.sent[2:], 3)]) == 1
    assert await rows(store, "SELECT count(*) FROM posd.changes") == [(len(lane.changes),)]
    ((number, subject, reason, kept),) = await rows(
        store, "SELECT stream_seq, subject, reason, data FROM posd.unreadable"
    )
    assert (number, subject) == (9999, "posd.m1.a")
    assert bytes(kept) in data
    assert words in reason


@pytest.mark.parametrize(
    ("member", "value", "aside"),
    [
        ("id", INCOMPRESSIBLE, True),
        ("id", "a\0b", True),
        ("at", "0001-01-01T00:00:00+14:00", True),
        ("outcome", {"tip": "Infinity"}, True),
        ("terminal", "".join(map(chr, Random(1).choices(range(0x10000, 0x20000), k=1024))), True),
        ("outcome", {"metadata": {"big": 7654321, "a\0": "\0"}}, False),
    ],
    ids=["long id", "NUL", "time", "amount", "too long for an operator's own index", "metadata"],
)
async def test_the_other_changes_of_a_message_with_one_bad_change_are_stored(
    store: CollectorStore, member: str, value: Any, aside: bool
) -> None:
    changes: list[dict[str, Any]] = [CHANGE | {"seq": seq, "id": f"p{seq}"} for seq in range(1, 8)]
    changes[2] |= {member: value}
    changes[4] |= {member: value}
    await store.connection.execute("CREATE INDEX ON posd.payments (terminal)")  # an operator may also create an index
    data = json.dumps(RUN | {"last_seq": 7, "changes": changes}).replace("7654321", "1e200000").encode()
    message = LaneMessage(1, BEGAN, "posd.m1.a", data)
    for _ in range(2):
        assert await write(store, [message, *as_messages(life(1, "b").sent, 2)]) == (2 if aside else 0)
        stored = await rows(store, "SELECT seq FROM posd.changes WHERE lane = 'a' ORDER BY 1")
        wanted = [1, 2, 4, 6, 7] if aside else [*range(1, 8)]
        assert [seq for (seq,) in stored] == wanted
        known = await rows(store, "SELECT stream_seq, seq FROM posd.unreadable ORDER BY 2")
        assert known == ([(1, 3), (1, 5)] if aside else [])


@every(
    ("state", "of_the_data"),
    [
        ("21000", True),
        ("22003", True),
        ("23505", True),
        ("54000", True),
        ("08006", False),
        ("40P01", False),
        ("42501", False),
        ("53100", False),
        ("57014", False),
        ("58030", False),
        ("XX000", False),
    ],
    ids=str,
)
async def test_a_fault_of_the_data_is_distinguished_from_an_unreachable_server(
    store: CollectorStore, state: str, of_the_data: bool
) -> None:
    query = f"DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '{state}'; END $$"
    with pytest.raises(psycopg.Error) as found:
        await store.connection.execute(query)
    assert is_of_the_data(found.value) == of_the_data


async def test_every_amount_that_a_terminal_can_send_is_stored() -> None:
    literals = ["9" * 24 + "." + "9" * 24, "9" * 25 + "." + "9" * 23, "0." + "0" * 23 + "9" * 48, "-1e24", "1e-24", "0"]
    for literal in literals:
        given = read_money(Decimal(literal))
        assert given is not None
        for amount in (given, from_wire(given, "hundredths")):
            outcome = {"authorized_amount": "AMOUNT", "amount": {"iva": "AMOUNT"}}
            data = json.dumps(RUN | {"changes": [CHANGE | {"outcome": outcome}]}).replace('"AMOUNT"', str(amount))
            (found,) = parsed([LaneMessage(1, BEGAN, "posd.m1.a", data.encode())])
            assert isinstance(found, ParsedMessage)


async def test_a_nul_in_a_text_does_not_lose_a_payment(store: CollectorStore) -> None:
    texts = {"one": "a\0b", "two": "a\\u0000b", "three": "a\\\0b"}
    changes = [CHANGE | {"terminal": json.dumps(texts)}]
    assert (
        await write(store, [LaneMessage(1, BEGAN, "posd.m1.a", json.dumps(RUN | {"changes": changes}).encode())]) == 0
    )
    ((terminal,),) = await rows(store, "SELECT terminal FROM posd.payments")
    assert json.loads(terminal) == {"one": "a\0b", "two": "a\\u0000b", "three": "a\\\0b"}
    changes = [CHANGE | {"id": "q", "seq": 2, "reason": "a\0b\\u0000"}]
    run = RUN | {"first_seq": 2, "last_seq": 2, "changes": changes}
    assert await write(store, [LaneMessage(2, BEGAN, "posd.m1.a", json.dumps(run).encode())]) == 0
    assert await rows(store, "SELECT change ->> 'reason' FROM posd.changes WHERE seq = 2") == [("a\ufffdb\\u0000",)]


async def test_a_lane_cannot_write_into_the_database_of_another_lane(store: CollectorStore) -> None:
    lane = life(1)
    await write(store, as_messages(lane.sent))
    before = await tables(store)
    stolen = [item | {"lane": "thief"} for item in lane.sent]
    assert await write(store, as_messages(stolen)) == len(stolen)
    after = await tables(store)
    for table in ("databases", "changes", "lost", "payments", "print_jobs", "attention"):
        assert after[table] == before[table]
    assert {reason for (reason,) in await rows(store, "SELECT reason FROM posd.unreadable")} == {
        f"its database_id is another lane's, or the lane has {MOST_DATABASES} others"
    }


async def test_a_lane_cannot_report_the_end_of_the_database_of_another_lane(store: CollectorStore) -> None:
    lane = life(1)
    await write(store, as_messages(lane.sent))
    before = (await lanes(store))[0]
    liar = LaneLife(Random(2), lane="liar")
    liar.databases.append(lane.databases[-1])
    liar.seq = 10**9
    liar.begin()
    await write(store, as_messages(liar.sent, 500))
    assert await open_gaps(store) == []
    found = next(item for item in await lanes(store) if item.lane == lane.lane)
    assert (found.gaps, found.complete_to_at) == (0, before.complete_to_at)


async def test_the_number_of_databases_of_a_lane_is_limited(store: CollectorStore) -> None:
    """Each new database comes first in the order, so the collector sorts the lane's data again each time."""
    lane = life(1)
    begins = [
        HEAD | {"kind": "begin", "database_id": f"x{number}", "first_seq": 1, "previous": None}
        | {"at": iso(BEGAN - timedelta(seconds=number))}
        for number in range(MOST_DATABASES + 50)
    ]  # fmt: skip
    aside = await write(store, as_messages([*lane.sent, *begins]))
    assert aside == 50 + len(lane.databases)
    assert await write(store, as_messages([*lane.sent, *life(2, "b").sent], 10_000)) == 0
    assert await open_gaps(store) == []


async def test_a_different_change_with_the_same_number_is_set_aside(store: CollectorStore) -> None:
    lane = life(1)
    await write(store, as_messages(lane.sent))
    before = await tables(store)
    (number, run) = next((n, item) for n, item in enumerate(lane.sent) if item["kind"] == "changes")
    other = run | {"changes": [run["changes"][0] | {"reason": "forged"}, *run["changes"][1:]]}
    assert await write(store, as_messages([other], number)) == 1
    ((reason,),) = await rows(store, "SELECT reason FROM posd.unreadable")
    assert f"change {run['first_seq']} of this database is here already" in reason
    assert (await tables(store) | {"unreadable": set()}) == before


async def test_a_later_report_of_an_outcome_is_not_a_different_change(store: CollectorStore) -> None:
    """A repeated report of a corrected outcome can lack its currency, or have metadata."""
    lane = life(1)
    await write(store, as_messages(lane.sent))
    before = await tables(store)
    again = json.loads(json.dumps(lane.sent))
    for item in again:
        for change in item.get("changes", ()):
            if "outcome" in change:
                change["outcome"] |= {"currency": None, "metadata": {"ticket": 7}}
    assert await write(store, as_messages(again)) == 0
    assert await tables(store) == before


async def test_tables_of_another_version_are_not_changed(store: CollectorStore) -> None:
    await store.connection.execute("UPDATE posd.schema_version SET version = 99")
    with pytest.raises(OperatorNeeded, match="of version 99"):
        await store.prepare()


@pytest.mark.parametrize(
    ("known", "wanted"),
    [
        ([], []),
        ([("a", None)], ["a"]),
        ([("b", "a"), ("a", None)], ["a", "b"]),
        ([("c", "b"), ("b", "a"), ("a", "lost")], ["a", "b", "c"]),
        ([("x", None), ("b", "a"), ("a", None)], ["x", "a", "b"]),
        ([("a", "b"), ("b", "a")], ["a", "b"]),
    ],
)
async def test_the_databases_of_a_lane_are_listed_from_the_first_to_the_last(
    known: list[tuple[str, str | None]], wanted: list[str]
) -> None:
    assert in_order(known) == wanted


async def test_tables_of_an_earlier_version_are_migrated(store: CollectorStore) -> None:
    """The migrated data is the same as in new tables."""
    query = (
        "SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = 'posd'"
        " ORDER BY table_name, ordinal_position"
    )
    wanted = await rows(store, query)
    await store.connection.execute("DROP SCHEMA posd CASCADE")
    await store.connection.execute((files("posd.collect") / "tables" / "1.sql").read_bytes())
    await store.connection.execute("INSERT INTO posd.schema_version (version) VALUES (1)")
    await store.connection.execute("INSERT INTO posd.lanes (merchant, lane) VALUES ('m1', 'old')")
    with pytest.raises(OperatorNeeded, match=r"of version 1, this posd needs version 6: .* --init"):
        await store.prepare()
    assert await store.prepare(init=True)
    assert not await store.prepare(init=True), "the migration runs once"
    assert await rows(store, query) == wanted
    await write(store, as_messages(life(1).sent))
    assert {lane.lane for lane in await lanes(store)} == {"old", "a"}


async def test_data_of_an_earlier_version_makes_no_query_fail(store: CollectorStore) -> None:
    """The data has times outside of Python's range, a NaN, and a terminal's clock with an invalid zone."""
    bad = life(2, "bad")
    await write(store, as_messages([*life(1).sent, *bad.sent]))
    await store.connection.execute("DELETE FROM posd.schema_version WHERE version > 2")
    await store.connection.execute("DROP TABLE posd.operations CASCADE")
    await store.connection.execute("DROP INDEX posd.payments_tips")
    await store.connection.execute("DROP FUNCTION posd.missing, posd.delete_changes CASCADE")
    await store.connection.execute("ALTER TABLE posd.payments DROP COLUMN received_at")
    await store.connection.execute("ALTER TABLE posd.unreadable DROP COLUMN seq CASCADE")
    await store.connection.execute("ALTER INDEX posd.databases_by_ordinal RENAME TO databases_of_lane")
    await store.connection.execute(
        "ALTER TABLE posd.unreadable ADD CONSTRAINT unreadable_pkey PRIMARY KEY (stream_seq)"
    )
    for query in (
        "UPDATE posd.lanes SET complete_to_at = '10000-01-01Z' WHERE lane = 'bad'",
        "UPDATE posd.databases SET state_as_of = 'infinity' WHERE lane = 'bad'",
        "UPDATE posd.payments SET authorized_amount = 'NaN' WHERE lane = 'bad'",
    ):
        await store.connection.execute(query)
    await store.prepare(init=True)
    await store.connection.execute(
        "UPDATE posd.payments SET occurred_at = '2026-11-20T12:00:00+99:99' WHERE lane = 'bad'"
    )
    bad.live(1)
    await write(store, as_messages(bad.sent, 1000))
    assert all(lane.complete_to_at is not None for lane in await lanes(store))
    totals = await questions.totals(store.connection, date(2026, 1, 1), date(2026, 12, 31), "UTC")
    assert {total.lane for total in totals} == {"a", "bad"}
    assert all(total.total.is_finite() for total in totals)


async def test_a_closed_lane_is_reported_again_once_it_sends(store: CollectorStore) -> None:
    lane = life(1)
    lane.begin()
    sent = as_messages([*lane.sent[:1], *lane.sent[2:]])  # the lane lacks a change
    await write(store, sent)
    (found,) = await lanes(store)
    assert found.wanting
    assert found.gaps
    await questions.retire(store.connection, "m1", "a")
    (found,) = await lanes(store)
    assert not found.wanting
    fleet = await questions.fleet(store.connection)
    assert (await open_gaps(store), fleet.lanes_incomplete, sum(fleet.lanes_health.values())) == ([], 0, 0)
    await write(store, sent)
    assert not (await lanes(store))[0].wanting, "repeated messages do not reopen the lane"
    lane.live(1)
    again = [message._replace(received_at=datetime.now(UTC)) for message in as_messages(lane.sent[-1:], 1000)]
    await write(store, again)
    (found,) = await lanes(store)
    assert found.retired_at is None
    assert found.wanting
