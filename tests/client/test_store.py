"""Payments that a till stores on disk before it starts them. The till therefore has the ids of these payments after a
crash.
"""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID, uuid4

import pytest

from posd.client import AsyncPosd, OutcomeUnknown, PaymentStore, Posd, Problem, StoredPayment, Unreachable
from tests.client.conftest import refused
from tests.power.platter import replay
from tests.rig import forks
from tests.rig.documents import ID, OTHER_ID, answer, transaction
from tests.rig.needs import needs
from tests.rig.shim import build
from tests.rig.shop import Payment
from tests.rig.stub import Answer, Stub, problem
from tests.rig.tables import every

RUNS = answer(transaction(phase="active", status="TERMINAL_ACKNOWLEDGED"), 201)
NOT_FOUND = problem(404, "not_found", "there is no such transaction")
TILL = Path(__file__).with_name("stored_till.py")


@pytest.fixture
def store(tmp_path: Path) -> PaymentStore:
    """Yield a store in a folder that the store has created."""
    return PaymentStore(tmp_path / "open-payments")


def test_a_payment_is_stored_before_it_is_sent_to_posd(tmp_path: Path, store: PaymentStore) -> None:
    seen: list[StoredPayment] = []
    heard = Answer(RUNS.status, RUNS.body, before=lambda: seen.extend(PaymentStore(store.folder).open_payments()))
    with Stub(tmp_path / "s", [heard]) as stub, Posd(stub.socket, store=store.save) as client:
        client.charge(UUID(ID), "5.00", sale="s")
    assert seen == [StoredPayment(ID, stub.calls[0].body)]
    assert seen[0].request == {"type": "charge", "amount": {"subtotal_iva0": "5.00"}, "sale": "s"}
    assert [oct(path.stat().st_mode)[-3:] for path in (store.folder, *store.folder.iterdir())] == ["700", "600"]


async def test_an_async_till_can_store_by_a_coroutine_or_a_function(tmp_path: Path, store: PaymentStore) -> None:
    async def save(payment: StoredPayment) -> None:
        await asyncio.to_thread(store.save, payment)

    with Stub(tmp_path / "s", [RUNS, RUNS]) as stub:
        async with AsyncPosd(stub.socket, store=save) as client:
            await client.charge(ID, 5)
        async with AsyncPosd(stub.socket, store=store.save) as client:
            await client.charge(OTHER_ID, 5)
    assert [payment.id for payment in store.open_payments()] == [ID, OTHER_ID]


def test_a_stored_payment_is_repeated_unchanged_and_removed_once_booked(tmp_path: Path, store: PaymentStore) -> None:
    with Stub(tmp_path / "s", [RUNS] * 3) as stub, Posd(stub.socket, store=store.save) as client:
        client.charge(ID, "5.00", metadata={"till": "ñ"})
        client.charge(ID, "5.00", metadata={"till": "ñ"})
        [stored] = PaymentStore(store.folder).open_payments()
        assert client.start(stored).id == ID
    assert len({(call.path, call.body) for call in stub.calls}) == 1
    for _ in range(2):
        store.remove(ID.upper())
        assert store.open_payments() == []


def test_threads_that_store_one_payment_at_once_all_find_a_complete_file(store: PaymentStore) -> None:
    payment = StoredPayment(ID, b'{"amount":{"iva":1}}', datetime.now(UTC))
    begin = threading.Barrier(8)

    def save() -> list[StoredPayment]:
        begin.wait()
        store.save(payment)
        return store.open_payments()

    with ThreadPoolExecutor(begin.parties) as threads:
        for _ in range(50):
            found = [threads.submit(save) for _ in range(begin.parties)]
            assert [item.result() for item in found] == [[payment]] * begin.parties
            store.remove(ID)
    assert list(store.folder.iterdir()) == []


def fails(_: StoredPayment) -> None:
    raise OSError("the disk is full")


class Later:
    """A store with a coroutine that must be awaited before the start."""

    def __call__(self, _: StoredPayment) -> Awaitable[None]:
        return self

    def __await__(self) -> Generator[None, None, None]:
        yield


@pytest.mark.parametrize(("save", "error"), [(fails, OSError), (Later(), TypeError)], ids=["fails", "not awaited"])
def test_a_payment_that_cannot_be_stored_is_not_started(tmp_path: Path, save: Any, error: type[Exception]) -> None:
    with Stub(tmp_path / "s", []) as stub, Posd(stub.socket, store=save) as client:
        starts: list[Callable[[], object]] = [
            lambda: client.charge(ID, 5),
            lambda: client.void(ID, original=OTHER_ID),
            lambda: client.start(StoredPayment(ID, b"{}")),
        ]
        for start in starts:
            with pytest.raises(error):
                start()
    assert stub.calls == []


async def test_an_async_till_does_not_start_a_payment_that_cannot_be_stored(tmp_path: Path) -> None:
    async def save(payment: StoredPayment) -> None:
        fails(payment)

    with Stub(tmp_path / "s", []) as stub:
        for store in (save, fails):
            async with AsyncPosd(stub.socket, store=store) as client:
                with pytest.raises(OSError, match="full"):
                    await client.charge(ID, 5)
    assert stub.calls == []


def test_an_id_that_is_stored_with_another_request_is_not_started(tmp_path: Path, store: PaymentStore) -> None:
    with Stub(tmp_path / "s", [RUNS]) as stub, Posd(stub.socket, store=store.save) as client:
        client.charge(ID, "5.00")
        with refused("id_reused"):
            client.charge(ID, "6.00")
    assert [payment.request["amount"]["subtotal_iva0"] for payment in store.open_payments()] == ["5.00"]
    assert len(stub.calls) == 1


def test_without_its_folder_a_till_starts_nothing(tmp_path: Path, store: PaymentStore) -> None:
    store.folder.rmdir()
    with Stub(tmp_path / "s", []) as stub, Posd(stub.socket, store=store.save) as client, pytest.raises(OSError):
        client.charge(ID, 5)
    assert stub.calls == []
    with pytest.raises(FileNotFoundError):
        PaymentStore(tmp_path / "missing" / "open-payments")
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        PaymentStore(tmp_path / "file")


def test_the_id_of_a_damaged_file_is_known_and_can_be_awaited(tmp_path: Path, store: PaymentStore) -> None:
    store.save(StoredPayment(ID, b'{"type":"charge"}'))
    (store.folder / f"{ID}.json").write_bytes(b'{"type":')
    (store.folder / "notes.json").write_text("of another program")
    (store.folder / f".{OTHER_ID}").write_text("{")  # a crash before the start left this file
    [stored] = store.open_payments()
    assert (stored.id, stored.body, stored.request) == (ID, None, {})
    done = answer(transaction(outcome=None, phase="active"))
    with Stub(tmp_path / "s", [done]) as stub, Posd(stub.socket, store=store.save) as client:
        with refused("id_reused"):
            client.start(stored)
        with refused("id_reused"):
            client.charge(ID, 5)
        assert client.transaction(stored.id).is_known()
    assert [call.method for call in stub.calls] == ["GET"]


@pytest.mark.parametrize("script", [[RUNS], [NOT_FOUND, RUNS], [problem(410, "pruned", "old")]], ids=len)
def test_a_payment_counts_as_known_once_posd_has_it(tmp_path: Path, script: list[Answer]) -> None:
    with Stub(tmp_path / "s", script) as stub, Posd(stub.socket) as client:
        assert client.transaction(ID).is_known(within=0.2)
    assert stub.script == []


LOST_FROM, LOST_UNTIL = datetime(2025, 11, 20, 9, tzinfo=UTC), datetime(2025, 11, 20, 10, tzinfo=UTC)
RESTORED = (
    f',"never_started":false,"records_missing_from":"{LOST_FROM.isoformat()}"'
    f',"records_missing_until":"{LOST_UNTIL.isoformat()}"'
)
#: Problem of posd for an unknown id, and time when the till stored the payment -> whether the payment was never
#: started.
UNKNOWN: list[tuple[str, datetime | None, bool]] = [
    (',"never_started":true', None, True),
    ("", LOST_UNTIL + timedelta(days=1), False),  # an older posd replies with this problem
    (RESTORED, None, False),
    (RESTORED, LOST_FROM - timedelta(days=1), False),  # the till may have started the payment a day later
    (RESTORED, LOST_UNTIL, False),
    (RESTORED, LOST_UNTIL + timedelta(seconds=1), True),
    (RESTORED, datetime.now(UTC) + timedelta(days=1), False),  # the till's clock was ahead
    (',"never_started":false,"records_missing_until":"soon"', LOST_UNTIL + timedelta(days=9), False),
    (',"never_started":false,"records_missing_until":"2025-11-20T10:00:00"', LOST_UNTIL + timedelta(days=9), False),
]


@every(("said", "stored_at", "never"), UNKNOWN)
async def test_a_payment_counts_as_never_started_if_posd_says_this_or_it_was_stored_after_posds_loss(
    tmp_path: Path, said: str, stored_at: datetime | None, never: bool
) -> None:
    stored = StoredPayment(ID, b"{}", stored_at)
    gone = [problem(404, "not_found", "no", said)] * 4
    with (
        Stub(tmp_path / "s", [*gone, gone[0], problem(409, "restore_unseen", "no", said)]) as stub,
        Posd(stub.socket) as client,
    ):
        with nullcontext() if never else pytest.raises(OutcomeUnknown):
            assert not client.transaction(stored).is_known(within=0)
        async with AsyncPosd(stub.socket) as till:
            with nullcontext() if never else pytest.raises(OutcomeUnknown):
                assert not await till.transaction(stored).is_known(within=0)
            with pytest.raises(OutcomeUnknown) as waited:
                await till.transaction(stored).outcome()
            with pytest.raises(OutcomeUnknown) as watched:
                await anext(till.transaction(stored).watch())
        with pytest.raises(OutcomeUnknown) as also:
            client.transaction(stored).outcome()
        with pytest.raises(Problem) as start:
            client.start(stored)
    assert [caught.value.never_started for caught in (waited, watched, also, start)] == [never] * 4


def test_an_unreadable_database_does_not_make_an_id_unknown(tmp_path: Path) -> None:
    full = problem(503, "storage_unavailable", "the disk is full")
    with (
        Stub(tmp_path / "s", [NOT_FOUND, *[full] * 9]) as stub,
        Posd(stub.socket, patience=0) as client,
        pytest.raises(Unreachable),
    ):
        client.transaction(ID).is_known(within=5)


async def till(*arguments: str) -> forks.Process | asyncio.subprocess.Process:
    """Start the till that stores its payments."""
    return await forks.start(*arguments, program=str(TILL), env=dict(os.environ), stderr=asyncio.subprocess.STDOUT)


async def killed(payment: Payment, folder: Path, line: int) -> tuple[bool, bool, bool]:
    """Kill a till at a line of the client. Another till settles the payments. Return whether the first till was killed,
    whether the payment was stored, and whether the payment was sent.
    """
    arguments = (str(payment.shop.daemon.till_socket), str(folder), payment.serial)
    first = await till(*arguments, payment.identity, str(line))
    said, _ = await first.communicate()
    assert first.returncode in (0, -signal.SIGKILL), said
    sent = len(payment.requests)
    stored = [item.id for item in PaymentStore(folder).open_payments()]
    assert stored in ([], [payment.identity])
    assert not sent or stored, f"the till killed at line {line} has sent a payment that is not stored"

    second = await till(*arguments)
    assert second.stdout is not None
    if stored:
        assert await second.stdout.readline() == f"{payment.identity} 5.00\n".encode()
        await payment.approve()
    said, _ = await second.communicate()
    assert (second.returncode, said) == (0, b"paid\n" if stored else b"")
    assert len(payment.requests) == len(stored)
    assert PaymentStore(folder).open_payments() == []
    return first.returncode != 0, bool(stored), sent > 0


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow), 13])
async def test_a_till_killed_at_any_line_finds_what_it_may_have_sent(alone: Payment, tmp_path: Path, step: int) -> None:
    ends: list[tuple[bool, bool, bool]] = []
    while not ends or ends[-1][0]:
        payment = Payment(alone.shop, str(uuid4()), alone.serial)
        ends.append(await killed(payment, tmp_path / "open-payments", 1 + step * len(ends)))
    *killings, lived = ends
    assert lived == (False, True, True)
    assert set(killings) == {(True, False, False), (True, True, False), (True, True, True)}, len(killings)


RECORDED = """
import sys
import threading
from pathlib import Path
from posd.client import PaymentStore, StoredPayment
folder, log, *identities = sys.argv[1:]
store, said = PaymentStore(folder), lambda *what: print(*what, Path(log).stat().st_size, flush=True)
for identity in identities:
    store.save(StoredPayment(identity, b'{"sale":"%s"}' % (identity.encode() * 40)))
    said("saved", identity)
store.save(StoredPayment(identities[0], b'{"sale":"%s"}' % (identities[0].encode() * 40)))
for identity in identities[:2]:
    said("removing", identity)
    store.remove(identity)
    said("removed", identity)
"""


@needs("cc")
def test_a_power_cut_at_any_disk_operation_loses_no_stored_payment(tmp_path: Path) -> None:
    folder, disk = tmp_path / "open-payments", tmp_path / "disk"
    folder.mkdir()
    disk.mkdir()
    shim = build(tmp_path, folder)
    identities = sorted(str(uuid4()) for _ in range(4))
    done = subprocess.run(
        [sys.executable, "-c", RECORDED, str(folder), str(shim.log), *identities],
        env=os.environ | shim.environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    said = [(what, identity, int(at)) for what, identity, at in map(str.split, done.stdout.splitlines())]
    operations, random = list(shim.operations()), Random(3)
    for count, operation in enumerate(operations, 1):
        platter, now = replay({}, operations[:count]), operation.end
        saved = {identity for what, identity, at in said if what == "saved" and at <= now}
        removing = {identity for what, identity, at in said if what == "removing" and at < now}
        removed = {identity for what, identity, at in said if what == "removed" and at <= now}
        for image in (platter.cut(), *(platter.torn(random) for _ in range(8))):
            for path in disk.iterdir():
                path.unlink()
            for name, content in image.items():
                (disk / name).write_bytes(content)
            found = {payment.id: payment for payment in PaymentStore(disk).open_payments()}
            assert saved - removing <= found.keys(), (count, operation)
            assert not removed & found.keys(), (count, operation)
            assert all(payment.request["sale"] == payment.id * 40 for payment in found.values())
    assert len(operations) >= 5 * len(identities)
