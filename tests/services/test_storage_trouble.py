"""A start while the database refuses: what the till hears is never more, and never less, than what is known."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest
import structlog
from structlog.testing import capture_logs
from structlog.typing import EventDict

from posd.config import load
from posd.core import decisions
from posd.core.decisions import rebuild
from posd.core.events import read_event
from posd.core.problems import Problem
from posd.core.transactions import Phase, Transaction
from posd.services import payments as payments_module
from posd.services.aborts import Aborts
from posd.services.callback_urls import CallbackUrls
from posd.services.intents import Intents
from posd.services.outstanding import Outstanding
from posd.services.payments import Payments
from posd.store import opening, transactions
from posd.store.store import Store
from posd.terminals.fleet import Fleet
from tests.support.daemon import toml
from tests.support.disk import broken_disk
from tests.support.events import body
from tests.support.terminal import Request, ScriptedTerminal, http, scripted_terminal

BODY = json.dumps({"amount": {"iva": 1.20, "subtotal_iva": 10}}).encode()


@dataclass
class Inside:
    """The parts of a daemon that a start needs, in this process, and a foreign lock on its database."""

    terminal: ScriptedTerminal
    store: Store
    payments: Payments
    aborts: Aborts
    foreign: sqlite3.Connection

    def lock(self) -> None:
        """Take the write lock, as a backup tool or an administrator's shell would."""
        self.foreign.execute("BEGIN IMMEDIATE")

    def unlock(self) -> None:
        self.foreign.execute("ROLLBACK")

    async def get(self, identity: str) -> Transaction | None:
        return await self.store.read(lambda db: transactions.get(db, identity))


@pytest.fixture
async def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Inside]:
    monkeypatch.setattr(payments_module, "RETRY_STORING_SECONDS", 0.01)
    async with composed(tmp_path) as parts:
        yield parts


@asynccontextmanager
async def composed(home: Path) -> AsyncIterator[Inside]:
    def now() -> datetime:
        return datetime.now(UTC)

    async with scripted_terminal(home) as terminal:
        (home / "config.toml").write_text(toml(home, terminal.toml))
        config = load(home / "config.toml")
        store = await Store.open(home / "posd.db", home / "posd.db.lock")
        await store.write(lambda unit: unit.db.execute("PRAGMA busy_timeout = 20").close())
        fleet, outstanding = Fleet(config.terminals, config.profile), Outstanding()
        urls = CallbackUrls((b"k" * 32,), "", 1)
        payments = Payments(store, fleet, Intents(fleet, outstanding, UTC), urls, outstanding, now)
        aborts = Aborts(store, fleet, outstanding, now)
        foreign = sqlite3.connect(home / "posd.db", isolation_level=None)
        yield Inside(terminal, store, payments, aborts, foreign)
        foreign.close()
        await payments.drain(0)
        await fleet.close()
        await store.close()


async def test_what_cannot_be_recorded_is_not_sent_and_the_same_call_works_later(inside: Inside) -> None:
    identity = str(uuid4())
    inside.lock()
    with pytest.raises(Problem) as refused:
        await inside.payments.start(identity, BODY)
    assert refused.value.code == "storage_unavailable"
    assert inside.terminal.requests == []
    inside.unlock()
    transaction, created = await inside.payments.start(identity, BODY)
    assert (transaction.phase, created, inside.terminal.starts_of(identity)) == (Phase.ACTIVE, True, 1)


async def test_an_answer_that_cannot_be_recorded_is_recorded_later_and_the_till_hears_what_is_on_disk(
    inside: Inside,
) -> None:
    identity = str(uuid4())

    async def refuse(_request: Request, writer: asyncio.StreamWriter) -> None:
        inside.lock()
        writer.write(http(409, b"busy"))

    inside.terminal.start = refuse
    transaction, created = await inside.payments.start(identity, BODY)
    assert (transaction.phase, transaction.outcome, created) == (Phase.STARTING, None, True)
    with inside.store.hub.subscribe(identity) as changed:
        inside.unlock()
        await asyncio.wait_for(changed.wait(), 10)
    concluded = await inside.get(identity)
    assert concluded is not None
    assert concluded.outcome is not None
    assert (concluded.phase, concluded.outcome.result) == (Phase.FINAL, "not_started")
    assert inside.terminal.starts_of(identity) == 1


async def test_a_fault_of_our_own_after_the_send_is_no_answer_that_says_nothing_was_sent(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = str(uuid4())

    def broken(*_arguments: object) -> None:
        raise LookupError("a fault")

    monkeypatch.setattr(decisions, "conclude_start", broken)
    transaction, created = await inside.payments.start(identity, BODY)
    assert (transaction.phase, created) == (Phase.STARTING, True)
    with inside.store.hub.subscribe(identity) as changed:
        monkeypatch.undo()
        await asyncio.wait_for(changed.wait(), 10)
    concluded = await inside.get(identity)
    assert concluded is not None
    assert concluded.phase is Phase.ACTIVE


async def test_a_known_id_is_answered_whatever_is_wrong_with_the_call(inside: Inside) -> None:
    identity = str(uuid4())
    await inside.payments.start(identity, BODY)
    refusal = Problem("unsupported_media_type", "not JSON")
    again, created = await inside.payments.start(identity, BODY, refusal)
    assert (again.phase, created) == (Phase.ACTIVE, False)
    with pytest.raises(Problem) as unread:
        await inside.payments.start(identity, b"", Problem("request_timeout", "too slow"))
    assert unread.value.code == "id_reused", "it is said that the id is in use, not that nothing was sent"
    with pytest.raises(Problem) as unknown:
        await inside.payments.start(str(uuid4()), BODY, refusal)
    assert unknown.value.code == "unsupported_media_type"


async def test_a_call_that_waited_for_the_first_one_is_not_told_that_posd_is_stopping(inside: Inside) -> None:
    identity = str(uuid4())
    arrived, release = asyncio.Event(), asyncio.Event()

    async def hold(request: Request, writer: asyncio.StreamWriter) -> None:
        arrived.set()
        await release.wait()
        await inside.terminal.acknowledge(request, writer)

    inside.terminal.start = hold
    first = asyncio.create_task(inside.payments.start(identity, BODY))
    await arrived.wait()
    second = asyncio.create_task(inside.payments.start(identity, BODY))
    draining = asyncio.create_task(inside.payments.drain(10))
    with pytest.raises(Problem, match="posd is stopping"):
        await inside.payments.start(str(uuid4()), BODY)
    release.set()
    answers = await asyncio.gather(first, second)
    assert [(transaction.phase, created) for transaction, created in answers] == [
        (Phase.ACTIVE, True),
        (Phase.ACTIVE, False),
    ]
    await draining
    assert inside.terminal.starts_of(identity) == 1


async def test_an_abort_that_was_sent_is_not_taken_back_by_the_disk(inside: Inside) -> None:
    identity = str(uuid4())
    await inside.payments.start(identity, BODY)

    async def take(_request: Request, writer: asyncio.StreamWriter) -> None:
        inside.lock()
        writer.write(http(200, b"{}"))

    inside.terminal.abort = take
    assert (await inside.aborts.abort(identity, None)).phase is Phase.ACTIVE
    inside.unlock()
    inside.terminal.requests.clear()
    inside.lock()
    with pytest.raises(Problem, match="nothing was sent"):
        await inside.aborts.abort(identity, None)
    assert inside.terminal.requests == []
    inside.unlock()


async def test_what_is_not_committed_for_certain_is_not_sent(inside: Inside, tmp_path: Path) -> None:
    identity = str(uuid4())
    # The log is captured: it would go to a file too.
    with capture_logs(), broken_disk(tmp_path / "posd.db"), pytest.raises(Problem) as refused:
        await inside.payments.start(identity, BODY)
    assert refused.value.code == "storage_unavailable", "the database was read again: it is not there"
    assert inside.terminal.requests == []
    transaction, created = await inside.payments.start(identity, BODY)
    assert (transaction.phase, created, inside.terminal.starts_of(identity)) == (Phase.ACTIVE, True, 1)


async def test_what_may_have_been_committed_is_neither_confirmed_nor_denied(
    inside: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The COMMIT of the intent fails, and before the database can be read again somebody locks it."""
    identity = str(uuid4())
    monkeypatch.setattr(opening, "BUSY_TIMEOUT_MS", 20)

    def lock_meanwhile(_logger: object, _method: str, line: EventDict) -> EventDict:
        if line["event"] == "payment.commit_uncertain":
            inside.lock()
        raise structlog.DropEvent

    processors = structlog.get_config()["processors"]
    processors.insert(0, lock_meanwhile)
    try:
        with broken_disk(tmp_path / "posd.db"), pytest.raises(Problem) as unsure:
            await inside.payments.start(identity, BODY)
    finally:
        processors.remove(lock_meanwhile)
    assert unsure.value.code == "internal_error", "a 503 would say that nothing is recorded, a 201 that it is"
    assert inside.terminal.requests == []
    # The call is repeated while posd still tries to settle what the first one left: the repeated one counts.
    settling = set(inside.payments._running._tasks)
    assert settling

    async def answer_when_that_is_over(request: Request, writer: asyncio.StreamWriter) -> None:
        await asyncio.wait(settling)
        await inside.terminal.acknowledge(request, writer)

    inside.terminal.start = answer_when_that_is_over
    repeated = asyncio.create_task(inside.payments.start(identity, BODY))
    await asyncio.sleep(0)  # it looks the id up, and then waits for the lock
    inside.unlock()
    transaction, created = await repeated
    assert (transaction.phase, created, inside.terminal.starts_of(identity)) == (Phase.ACTIVE, True, 1)


async def test_an_id_that_cannot_be_looked_up_is_not_said_to_be_unused(inside: Inside) -> None:
    identity = str(uuid4())
    await inside.payments.start(identity, BODY)
    inside.foreign.execute("ALTER TABLE transactions RENAME TO elsewhere")
    with pytest.raises(Problem) as unread:
        await inside.payments.start(identity, BODY)
    inside.foreign.execute("ALTER TABLE elsewhere RENAME TO transactions")
    assert unread.value.code == "internal_error", "a 503 would say that nothing was sent"
    assert inside.terminal.starts_of(identity) == 1


async def test_a_stop_records_what_is_known_of_a_start_whose_till_has_gone(inside: Inside) -> None:
    identity = str(uuid4())
    arrived, release = asyncio.Event(), asyncio.Event()

    async def silent(_request: Request, _writer: asyncio.StreamWriter) -> None:
        arrived.set()
        await release.wait()

    inside.terminal.start = silent
    till = asyncio.create_task(inside.payments.start(identity, BODY))
    await arrived.wait()
    till.cancel()
    await inside.payments.drain(0)
    stopped = await inside.get(identity)
    release.set()
    assert stopped is not None
    assert stopped.phase is Phase.IN_DOUBT


async def test_a_callback_between_the_look_up_and_the_intent_is_joined_and_nothing_is_sent(inside: Inside) -> None:
    identity = str(uuid4())
    content = body(identity, "TERMINAL_ACKNOWLEDGED")
    orphan = rebuild(read_event(content), identity, datetime.now(UTC))
    inside.foreign.execute("BEGIN IMMEDIATE")  # what the writer waits for
    earlier = asyncio.create_task(inside.store.write(lambda unit: transactions.insert(unit, orphan, "orphan")))
    starting = asyncio.create_task(inside.payments.start(identity, BODY))
    for _ in range(2):  # when the second read is back, the look-up of the start is too
        await inside.store.read(lambda _db: None)
    inside.foreign.execute("ROLLBACK")
    await earlier
    transaction, created = await starting
    assert (transaction.orphan, created, inside.terminal.requests) == (True, False, [])
