"""Rows of transactions. Written data is read back. posd refuses a change from a state that is not stored.

Each change has its history in the same commit. Lists are complete.
"""

from functools import partial
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from posd.daemon.status import stored
from posd.payments import rows
from posd.payments import rows as transactions
from posd.payments.answers import StartAccepted
from posd.payments.model import Transaction
from posd.payments.record import Recorded, begin, move
from posd.payments.transitions import RepeatedEvent, advance, conclude_start
from posd.records import quarantine
from posd.records.model import Phase
from posd.records.quarantine import ReceivedCallback
from posd.records.service import CallsInFlight
from posd.storage import StaleState, changes, marks
from posd.storage.batch import WriteTransaction
from posd.storage.store import Store
from posd.terminals.attempt import StartRefused
from tests.core.scenarios import IDENTITY, NOW, SCENARIOS, event_bodies, read, starting
from tests.rig.tables import there

LAST = "8a1c5e0e-92a4-4c58-8d37-6f6f1d3b0002"


def inserting(transaction: Transaction):  # type: ignore[no-untyped-def]
    return lambda unit: begin(unit, transaction, "intent")


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_transaction_is_read_back_unchanged_at_every_step(store: Store, name: str) -> None:
    transaction = starting(metadata=b'{"a": 1.10}', options=b'{"b": true}', sale="s", repeat=True)
    await store.write(inserting(transaction))
    transaction = conclude_start(transaction, StartRefused(409, "busy"), NOW)
    before = starting(metadata=b'{"a": 1.10}', options=b'{"b": true}', sale="s", repeat=True)
    transaction = await store.write(lambda unit: move(unit, before, transaction, Recorded("refused"), CallsInFlight()))
    for data in event_bodies(SCENARIOS[name]):
        after, _ = advance(transaction, read(data), seen=RepeatedEvent.NEW, now=NOW)
        stored = await store.write(partial(_move, before=transaction, after=after))
        assert await store.read(partial(transactions.get, identity=IDENTITY)) == stored
        transaction = stored
    assert there(transaction.outcome).supersedes is not None


def _move(unit: WriteTransaction, before: Transaction, after: Transaction) -> Transaction:
    return move(unit, before, after, Recorded("event"), CallsInFlight())


async def test_a_change_from_a_state_that_is_not_stored_is_refused(store: Store) -> None:
    first = starting()
    await store.write(inserting(first))
    acknowledged = conclude_start(first, StartAccepted("SN-TEST"), NOW)
    await store.write(partial(_move, before=first, after=acknowledged))
    with pytest.raises(StaleState):
        await store.write(partial(_move, before=first, after=conclude_start(first, StartRefused(409, ""), NOW)))
    kept = there(await store.read(partial(transactions.get, identity=IDENTITY)))
    assert (kept.phase, kept.revision) == (Phase.ACTIVE, 1)


async def test_the_last_payment_of_a_terminal_is_the_last_recorded_whatever_the_clock(store: Store) -> None:
    """A clock that was once ahead must not hide later payments."""
    ahead = starting(created_at="2031-01-01T00:00:00.000Z")
    last = starting(client_transaction_id=LAST)
    await store.write(inserting(ahead))
    await store.write(partial(_move, before=ahead, after=conclude_start(ahead, StartRefused(409, "busy"), NOW)))
    await store.write(inserting(last))
    _, found, _ = await store.read(partial(stored, serials=["SN-TEST", "SN-OTHER"]))
    assert {serial: item.client_transaction_id for serial, item in found.items()} == {"SN-TEST": LAST}


async def test_a_change_and_its_history_are_one_commit(store: Store) -> None:
    first = starting()
    await store.write(inserting(first))
    assert await store.write(partial(_move, before=first, after=first)) == first
    await store.write(partial(_move, before=first, after=conclude_start(first, StartRefused(409, ""), NOW)))
    history = await store.read(partial(changes.after, seq=0, limit=10))
    assert [(change.reason, change.phase, change.result) for change in history] == [
        ("intent", "starting", None),
        ("event", "final", "not_started"),
    ]
    assert [change.seq for change in history] == [1, 2]


async def test_waiters_are_notified_only_of_committed_changes(store: Store) -> None:
    with store.hub.subscribe(IDENTITY) as mine, store.hub.subscribe() as any_change, store.hub.subscribe("x") as other:

        def fail(unit: WriteTransaction) -> None:
            begin(unit, starting(), "intent")
            raise KeyError

        with pytest.raises(KeyError):
            await store.write(fail)
        assert not mine.is_set()
        await store.write(inserting(starting()))
        assert (mine.is_set(), any_change.is_set(), other.is_set()) == (True, True, False)
    assert store.hub.waiters == {}


async def test_one_payment_at_a_time_holds_a_terminal(store: Store) -> None:
    other = IDENTITY.replace("7", "8")
    await store.write(inserting(starting()))
    await store.write(inserting(starting(client_transaction_id=other)))
    await store.write(lambda unit: rows.take_lease(unit, "SN-1", IDENTITY))
    await store.write(lambda unit: rows.take_lease(unit, "SN-1", other))
    assert await store.read(rows.leases) == {"SN-1": other}
    await store.write(lambda unit: rows.give_up_leases(unit, IDENTITY))
    assert await store.read(partial(rows.lease_holder, terminal="SN-1")) == other
    await store.write(lambda unit: rows.give_up_leases(unit, other))
    assert await store.read(partial(rows.lease_holder, terminal="SN-1")) is None


async def test_the_quarantine_keeps_the_same_bytes_once_and_is_bounded(store: Store) -> None:
    for number in range(quarantine.MAX_KEPT + 15):
        body = b"%d" % (number // 2 if number < 10 else number)
        await store.write(
            partial(quarantine.put, channel="c", subject=IDENTITY, reason="r", came=ReceivedCallback(body, "p", NOW))
        )
    bodies = await store.read(lambda db: [row[0] for row in db.execute("SELECT body FROM quarantine")])
    assert len(bodies) == len(set(bodies)) == quarantine.MAX_KEPT


async def test_headers_for_a_signature_are_stored_and_removed_with_their_body(store: Store) -> None:
    signed = ((b"signature", b"\xe9t"), (b"x-kushki-id", b"7"))
    for number in range(4):
        came = ReceivedCallback(b"%d" % number, "p", NOW, (*signed, (b"cookie", b"x")) if number < 3 else ())
        for _ in range(2):
            await store.write(partial(quarantine.put, channel="c", subject=IDENTITY, reason="r", came=came))
    kept = await store.read(partial(quarantine.page, after=0, limit=9))
    found = [await store.read(partial(quarantine.again, item=item, at=NOW)) for item in kept]
    assert [(item.body, tuple(item.headers)) for item in found] == [
        (b"0", signed),
        (b"1", signed),
        (b"2", signed),
        (b"3", ()),
    ]
    await store.write(lambda unit: quarantine.take_out(unit, kept[1]))
    await store.write(lambda unit: quarantine.remove(unit, [kept[0].id, kept[3].id, 99]))
    assert await store.read(partial(quarantine.page, after=0, limit=9)) == [kept[2]]
    assert len(await store.read(partial(marks.details, kind=marks.SIGNED))) == 1
    assert tuple((await store.read(partial(quarantine.again, item=kept[2], at=NOW))).headers) == signed


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=3))
async def test_any_metadata_is_read_back_verbatim(tmp_path: Path, metadata: dict[str, str]) -> None:
    stored = starting(metadata=msgspec.json.encode(metadata))
    path = tmp_path / "one.db"
    path.unlink(missing_ok=True)
    store = await Store.open(path, tmp_path / "one.lock")
    try:
        await store.write(inserting(stored))
        back = await store.read(partial(transactions.get, identity=IDENTITY))
    finally:
        await store.close()
    assert back == stored
