"""Payments and print jobs while the database refuses writes or reads. The till receives only facts that posd knows."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from structlog.testing import capture_logs

from posd.base.problems import Problem
from posd.payments import rows, transitions
from posd.payments.attentions import ApprovalChecks
from posd.payments.entries import Released
from posd.payments.model import Transaction
from posd.payments.record import begin
from posd.payments.transitions import rebuild
from posd.payments.wire import read_event
from posd.printing.model import PrintJob
from posd.records import start as starting
from posd.records.model import Phase
from posd.storage import connection
from tests.rig.disk import broken_disk
from tests.rig.events import body
from tests.rig.tables import there
from tests.rig.terminal import Request, http
from tests.services.inside import CHARGE, RECEIPT, Inside, composed

Start = Callable[[Inside, str], Awaitable[tuple[Transaction | PrintJob, bool]]]


async def pay(inside: Inside, identity: str) -> tuple[Transaction, bool]:
    return await inside.payments.start(identity, CHARGE)


async def print_it(inside: Inside, identity: str) -> tuple[PrintJob, bool]:
    return await inside.printing.start(identity, RECEIPT)


@pytest.fixture
async def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Inside]:
    monkeypatch.setattr(starting, "RETRY_STORING_SECONDS", 0.01)
    async with composed(tmp_path) as parts:
        yield parts


@pytest.mark.slow
async def test_an_unrecorded_start_is_not_sent_and_the_same_call_works_later(inside: Inside) -> None:
    identity = str(uuid4())
    inside.lock()
    with pytest.raises(Problem) as refused:
        await inside.payments.start(identity, CHARGE)
    assert refused.value.code == "storage_unavailable"
    assert inside.terminal.requests == []
    inside.unlock()
    transaction, created = await inside.payments.start(identity, CHARGE)
    assert (transaction.phase, created, inside.terminal.starts_of(identity)) == (Phase.ACTIVE, True, 1)


@pytest.mark.slow
async def test_a_reply_that_cannot_be_recorded_now_is_recorded_later(inside: Inside) -> None:
    identity = str(uuid4())

    async def refuse(_request: Request, writer: asyncio.StreamWriter) -> None:
        inside.lock()
        writer.write(http(409, b"busy"))

    inside.terminal.start = refuse
    with capture_logs() as lines:
        transaction, created = await inside.payments.start(identity, CHARGE)
    assert (transaction.phase, transaction.outcome, created) == (Phase.STARTING, None, True)
    assert "payment.not_recorded" in {line["event"] for line in lines}
    with inside.store.hub.subscribe(identity) as changed:
        inside.unlock()
        await asyncio.wait_for(changed.wait(), 10)
    concluded = there(await inside.get(identity))
    assert (concluded.phase, there(concluded.outcome).result) == (Phase.FINAL, "not_started")
    assert inside.terminal.starts_of(identity) == 1


async def test_a_fault_after_sending_is_not_reported_as_not_sent(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = str(uuid4())

    def broken(*_arguments: object) -> None:
        raise LookupError("a fault")

    monkeypatch.setattr(transitions, "conclude_start", broken)
    with capture_logs() as lines:
        transaction, created = await inside.payments.start(identity, CHARGE)
    assert (transaction.phase, created) == (Phase.STARTING, True)
    told = [line["event"] for line in lines if line.get("transaction") == identity]
    assert told == ["payment.started", "posd.internal_error"]
    with pytest.raises(Problem, match="a call to terminal SN-TEST is under way"):
        await inside.payments.decide(identity, Released("Ana", "the terminal is dark", None))
    with inside.store.hub.subscribe(identity) as changed:
        monkeypatch.undo()
        await asyncio.wait_for(changed.wait(), 10)
    concluded = there(await inside.get(identity))
    assert concluded.phase is Phase.ACTIVE


async def test_a_known_id_is_answered_even_for_an_invalid_call(inside: Inside) -> None:
    identity = str(uuid4())
    await inside.payments.start(identity, CHARGE)
    refusal = Problem("unsupported_media_type", "not JSON")
    again, created = await inside.payments.start(identity, CHARGE, refusal)
    assert (again.phase, created) == (Phase.ACTIVE, False)
    with pytest.raises(Problem) as unread:
        await inside.payments.start(identity, b"", Problem("request_timeout", "too slow"))
    assert unread.value.code == "id_reused", "the problem says that the id is in use, not that nothing was sent"
    with pytest.raises(Problem) as unknown:
        await inside.payments.start(str(uuid4()), CHARGE, refusal)
    assert unknown.value.code == "unsupported_media_type"


async def test_a_stop_does_not_refuse_a_repeated_call_that_waits_for_the_first_call(inside: Inside) -> None:
    identity = str(uuid4())
    arrived, release = asyncio.Event(), asyncio.Event()

    async def hold(request: Request, writer: asyncio.StreamWriter) -> None:
        arrived.set()
        await release.wait()
        await inside.terminal.acknowledge(request, writer)

    inside.terminal.start = hold
    first = asyncio.create_task(inside.payments.start(identity, CHARGE))
    await arrived.wait()
    second = asyncio.create_task(inside.payments.start(identity, CHARGE))
    draining = asyncio.create_task(inside.payments.drain(10))
    with pytest.raises(Problem, match="posd is stopping"):
        await inside.payments.start(str(uuid4()), CHARGE)
    release.set()
    answers = await asyncio.gather(first, second)
    assert [(transaction.phase, created) for transaction, created in answers] == [
        (Phase.ACTIVE, True),
        (Phase.ACTIVE, False),
    ]
    await draining
    assert inside.terminal.starts_of(identity) == 1


async def test_no_start_is_recorded_in_a_file_removed_after_the_look_up(inside: Inside) -> None:
    identity, aside = str(uuid4()), inside.database.with_name("aside.db")

    def move_meanwhile(_db: object, terminal: str) -> tuple[str, ...]:
        if not aside.exists():
            inside.database.rename(aside)
        return ()

    checks = ApprovalChecks("", lambda: True)
    checks.read_currencies = move_meanwhile
    payments = inside.till(checks)
    with pytest.raises(Problem) as refused:
        await payments.start(identity, CHARGE)
    assert (refused.value.code, inside.terminal.requests) == ("storage_unavailable", [])
    aside.rename(inside.database)
    assert await inside.get(identity) is None


@pytest.mark.parametrize(
    ("since_boot", "end"), [([0, 59, 59, 59], ""), ([0, 59, 61], "expired"), ([0, 59, 59, 61], "not_started")]
)
async def test_a_start_is_late_by_the_boot_clock_even_if_the_wall_clock_stops(
    inside: Inside, since_boot: list[float], end: str
) -> None:
    """`since_boot`: seconds at each check. The last check is just before the request is written."""
    now, identity, seconds = datetime.now(UTC), str(uuid4()), iter(since_boot)
    payments = inside.till(now=lambda: now, elapsed=lambda: next(seconds))
    until = (now + timedelta(seconds=60)).isoformat()
    try:
        started, _ = await payments.start(identity, CHARGE[:-1] + f', "not_after": "{until}"}}'.encode())
        found = started.outcome.result if started.outcome else ""
    except Problem as late:
        found = late.code
    assert (found, len(inside.terminal.requests)) == (end, not end)


async def test_a_start_whose_intent_is_on_the_disk_after_a_failed_commit_ends_without_a_request(inside: Inside) -> None:
    aside = inside.database.with_name("aside.db")

    def come_back() -> datetime:
        if aside.exists():
            aside.rename(inside.database)
        return datetime.now(UTC)

    till = inside.till(refuse_unseen=lambda: inside.database.rename(aside), now=come_back)
    transaction, created = await till.start(str(uuid4()), CHARGE)
    assert (there(transaction.outcome).result, created, inside.terminal.requests) == ("not_started", True, [])


@pytest.mark.slow
async def test_a_sent_abort_stays_recorded_despite_a_disk_fault(inside: Inside) -> None:
    identity = str(uuid4())
    await inside.payments.start(identity, CHARGE)

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


@pytest.mark.parametrize("start", [pay, print_it])
async def test_a_start_with_an_uncertain_commit_is_not_sent(inside: Inside, start: Start) -> None:
    identity = str(uuid4())
    # The test captures the log, because the log may go to a file, and no file can grow on this disk.
    with capture_logs(), broken_disk(inside.database), pytest.raises(Problem) as refused:
        await start(inside, identity)
    assert refused.value.code == "storage_unavailable", "posd has read the database again, and the start is not in it"
    assert (inside.terminal.requests, inside.terminal.prints, inside.turns.waiting) == ([], [], 0)
    started, created = await start(inside, identity)
    assert (started.phase, created) == ("active", True)
    assert (inside.terminal.starts_of(identity), len(inside.terminal.prints)) == ((1, 0) if start is pay else (0, 1))


async def test_a_possibly_committed_payment_is_neither_confirmed_nor_denied(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The COMMIT of the intent fails. Another process locks the database before posd can read it again."""
    identity = str(uuid4())
    monkeypatch.setattr(connection, "BUSY_TIMEOUT_MS", 20)
    # The second call must wait for the lock before the first start is settled.
    monkeypatch.setattr(starting, "RETRY_STORING_SECONDS", 0.3)

    with (
        inside.locked_after("payment.commit_uncertain"),
        broken_disk(inside.database),
        pytest.raises(Problem) as unsure,
    ):
        await inside.payments.start(identity, CHARGE)
    assert unsure.value.code == "internal_error", "a 503 would say that nothing is recorded, a 201 that it is"
    assert inside.terminal.requests == []
    # The call is repeated while posd still settles the first call. The repeated call starts the payment.
    settling = set(inside.payments._tasks)
    assert settling
    meanwhile: list[Transaction | None] = []

    async def answer_when_that_is_over(request: Request, writer: asyncio.StreamWriter) -> None:
        await asyncio.wait(settling)
        meanwhile.append(await inside.get(identity))
        await inside.terminal.acknowledge(request, writer)

    inside.terminal.start = answer_when_that_is_over
    repeated = asyncio.create_task(inside.payments.start(identity, CHARGE))
    await asyncio.sleep(0)  # the call looks up the id, and then waits for the lock
    inside.unlock()
    transaction, created = await repeated
    assert [item.phase for item in meanwhile if item] == [Phase.STARTING], "the first call does not end the payment"
    assert (transaction.phase, created, inside.terminal.starts_of(identity)) == (Phase.ACTIVE, True, 1)


async def test_an_id_that_cannot_be_looked_up_is_not_reported_as_unused(inside: Inside) -> None:
    identity = str(uuid4())
    await inside.payments.start(identity, CHARGE)
    inside.foreign.execute("ALTER TABLE transactions RENAME TO elsewhere")
    with pytest.raises(Problem) as unread:
        await inside.payments.start(identity, CHARGE)
    inside.foreign.execute("ALTER TABLE elsewhere RENAME TO transactions")
    assert unread.value.code == "internal_error", "a 503 would say that nothing was sent"
    assert inside.terminal.starts_of(identity) == 1


async def test_a_stop_records_the_state_of_a_start_whose_till_has_disconnected(inside: Inside) -> None:
    identity = str(uuid4())
    arrived, release = asyncio.Event(), asyncio.Event()

    async def silent(_request: Request, _writer: asyncio.StreamWriter) -> None:
        arrived.set()
        await release.wait()

    inside.terminal.start = silent
    till = asyncio.create_task(inside.payments.start(identity, CHARGE))
    await arrived.wait()
    till.cancel()
    await inside.payments.drain(0)
    stopped = there(rows.get(inside.foreign, identity))
    release.set()
    assert stopped.phase is Phase.IN_DOUBT


async def test_a_callback_recorded_before_the_intent_prevents_the_start(inside: Inside) -> None:
    identity = str(uuid4())
    content = body(identity, "TERMINAL_ACKNOWLEDGED")
    orphan = rebuild(read_event(content), identity, datetime.now(UTC))
    inside.lock()  # the writer waits until the unlock below
    earlier = asyncio.create_task(inside.store.write(lambda unit: begin(unit, orphan, "orphan")))
    starting = asyncio.create_task(inside.payments.start(identity, CHARGE))
    for _ in range(2):  # the look-up of the start has ended when the second read begins
        await inside.store.read(lambda _db: None)
    inside.unlock()
    await earlier
    transaction, created = await starting
    assert (transaction.orphan, created, inside.terminal.requests) == (True, False, [])
    assert inside.fleet.of(inside.terminal.serial).addresses.trusted is None, "nothing was sent to the device"
