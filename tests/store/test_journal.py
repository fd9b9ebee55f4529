"""The journal. An entry and its effect are in one commit. Entries and events have one order. No entry is empty."""

from datetime import timedelta
from functools import partial

import msgspec
import pytest

from posd.base.times import iso
from posd.payments import journal, rows
from posd.payments.answers import SearchFailed, SearchHit, SearchMiss
from posd.payments.entries import (
    AbortAnswered,
    AbortRequested,
    Attempted,
    Dismissed,
    Entry,
    Interrupted,
    NothingHeard,
    ProvedNotStarted,
    Quarantined,
    Reapplied,
    Released,
    Resolved,
    Searched,
    TakenOver,
    apply,
)
from posd.payments.model import AttentionCode, Evidence, EvidenceKind, Result, SearchResult, Transaction
from posd.payments.record import ALWAYS, Recorded, begin, move, record
from posd.payments.transitions import RepeatedEvent, advance
from posd.records.model import Phase
from posd.records.service import CallsInFlight
from posd.storage import StaleState, changes
from posd.storage.batch import RecordedChange, WriteTransaction
from posd.storage.store import Store
from posd.terminals.attempt import NotSent, Replied, ReplyLost
from tests.core.inputs import content
from tests.core.scenarios import ACK, CARD, IDENTITY, NOW, read, starting
from tests.rig.tables import there

LATER = NOW + timedelta(seconds=7)


@pytest.fixture
async def begun(store: Store) -> Transaction:
    """Return a transaction whose request is being sent."""
    await store.write(partial(begin, transaction=starting(), word="intent"))
    return starting()


async def write_down(store: Store, before: Transaction, entry: Entry, at: timedelta = timedelta()) -> Transaction:
    return await store.write(partial(record, before=before, entry=entry, now=NOW + at, outstanding=CallsInFlight()))


async def stored(store: Store) -> Transaction:
    return there(await store.read(partial(rows.get, identity=IDENTITY)))


async def entries(store: Store) -> list[journal.Journaled]:
    return await store.read(lambda db: list(journal.entries(db, IDENTITY)))


async def history(store: Store) -> list[RecordedChange]:
    return await store.read(partial(changes.after, seq=0, limit=100))


async def deliver(store: Store, before: Transaction, body: bytes) -> Transaction:
    """Record an event and its effect."""
    event = read(body)
    after, verdict = advance(before, event, seen=RepeatedEvent.NEW, now=NOW)

    def work(unit: WriteTransaction) -> Transaction:
        _, newest, _ = rows.get_with_bodies(unit.db, IDENTITY, event.event_id)
        journal.append_event(unit, IDENTITY, event, verdict, iso(NOW), body, newest)
        return move(unit, before, after, Recorded("event"), CallsInFlight())

    return await store.write(work)


PIECE = Evidence(kind=EvidenceKind.ABORT, at="t", status=409)
EVERY = (
    Attempted(ReplyLost("reset")),
    Attempted(Replied(409, b"\xff\x00", complete=False)),
    Attempted(NotSent("refused")),
    Interrupted(),
    Searched(SearchHit((content(CARD, ACK).decode(), "{ }"))),
    Searched(SearchMiss()),
    Searched(SearchFailed("HTTP 404", 404)),
    AbortRequested(probe=True),
    AbortRequested(probe=False, uid=0),
    AbortAnswered(Replied(200, b"{}")),
    Quarantined("not JSON"),
    NothingHeard(AttentionCode.STALLED, 60.5),
    ProvedNotStarted((PIECE, PIECE)),
    Released("Ana", "note", None),
    Resolved("Ana", "ñandú ✓", 1000, Result.APPROVED, "r-1"),
    Dismissed("Ana", "note", 1000, AttentionCode.GAP),
    TakenOver("torn"),
    Reapplied(),
)


@pytest.mark.quick(8)
@pytest.mark.parametrize("entry", EVERY, ids=lambda entry: type(entry).__name__)
async def test_an_entry_and_its_effect_are_one_commit(store: Store, begun: Transaction, entry: Entry) -> None:
    after = await write_down(store, begun, entry)
    assert msgspec.structs.replace(after, revision=0) == apply(begun, entry, NOW)
    assert after == await stored(store)
    kept = [item.entry for item in await entries(store)]
    told = await history(store)
    if after.revision:
        assert (kept, len(told), after.revision) == ([entry], 2, 1)
        assert (told[-1].phase, told[-1].at) == (after.phase, after.updated_at)
    else:
        assert kept == ([entry] if isinstance(entry, ALWAYS) else [])
        assert len(told) == 1 + len(kept)


async def test_an_entry_without_a_change_is_not_stored(store: Store, begun: Transaction) -> None:
    active = await deliver(store, begun, content(ACK))
    for entry in (ProvedNotStarted((PIECE,)), Reapplied()):
        assert await write_down(store, active, entry) == active
    assert (await entries(store), len(await history(store))) == ([], 2)


@pytest.mark.parametrize(
    ("entry", "word"),
    [
        (AbortRequested(probe=True), "probe_requested"),
        (AbortAnswered(Replied(409, b"")), "abort:nothing_running"),
        (Attempted(ReplyLost("reset")), "in_doubt"),
    ],
)
async def test_an_action_without_a_change_is_stored(store: Store, begun: Transaction, entry: Entry, word: str) -> None:
    active = await deliver(store, begun, content(ACK))
    assert await write_down(store, active, entry, timedelta(seconds=7)) == active == await stored(store)
    told = (await history(store))[-1]
    assert (told.reason, told.at, told.phase, told.status) == (word, iso(LATER), Phase.ACTIVE, ACK)
    assert [item.entry for item in await entries(store)] == [entry]


async def test_a_repeated_result_only_updates_the_time_of_the_newest_entry(store: Store, begun: Transaction) -> None:
    doubtful = await write_down(store, begun, Interrupted())
    once = await write_down(store, doubtful, Searched(SearchMiss()))
    again = await write_down(store, once, Searched(SearchMiss()), timedelta(seconds=7))
    assert again == await stored(store)
    assert again.last_search is not None
    assert (again.last_search.at, again.last_search.result) == (iso(LATER), SearchResult.NONE)
    assert (again.revision, again.updated_at) == (once.revision, once.updated_at)
    assert (len(await entries(store)), len(await history(store))) == (2, 3)
    other = await write_down(store, again, Searched(SearchFailed("reset")))
    assert (other.revision, len(await entries(store)), len(await history(store))) == (again.revision + 1, 3, 4)


async def test_a_search_with_a_new_result_is_stored(store: Store, begun: Transaction) -> None:
    first = await write_down(store, begun, Searched(SearchHit((content(ACK).decode(),))))
    second = await write_down(store, first, Searched(SearchHit((content(CARD, ACK).decode(),))))
    assert (second.status, second.revision, len(await entries(store))) == (CARD, 2, 2)


async def test_an_entry_states_how_many_events_came_before(store: Store, begun: Transaction) -> None:
    transaction = await write_down(store, begun, Attempted(ReplyLost("reset")))
    transaction = await deliver(store, transaction, content(ACK))
    transaction = await write_down(store, transaction, AbortRequested(probe=False))
    transaction = await deliver(store, transaction, content(CARD, ACK))
    await write_down(store, transaction, AbortAnswered(Replied(200, b"")))
    other = starting(client_transaction_id=IDENTITY.replace("7", "8"))
    await store.write(partial(begin, transaction=other, word="intent"))
    await write_down(store, other, Interrupted())
    assert [item.events_before for item in await entries(store)] == [0, 1, 2]
    assert [item.seq for item in await entries(store)] == [1, 2, 3]
    foreign = await store.read(lambda db: list(journal.entries(db, other.client_transaction_id)))
    assert [(item.seq, item.events_before) for item in foreign] == [(4, 0)], "the journal counts a payment's own events"


async def test_an_entry_for_an_earlier_state_is_refused_and_not_stored(store: Store, begun: Transaction) -> None:
    await write_down(store, begun, Interrupted())
    with pytest.raises(StaleState):
        await write_down(store, begun, Attempted(NotSent("refused")))
    assert [type(item.entry) for item in await entries(store)] == [Interrupted]
    assert (len(await history(store)), (await stored(store)).phase) == (2, Phase.IN_DOUBT)


async def test_in_a_new_database_every_transaction_can_be_derived_again(store: Store) -> None:
    assert await store.read(journal.last_incomplete_rowid) == 0
