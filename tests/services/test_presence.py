"""Times without a listener, in one process and across a boot, with a real store. The test moves the clocks."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from posd.base.operations import OperationType
from posd.base.times import iso
from posd.daemon import presence
from posd.daemon.downtime import Absence, DowntimeCause
from posd.daemon.presence import BEAT_SECONDS, Presence
from posd.payments.model import Outcome, Result, Transaction
from posd.payments.record import Recorded, TransactionChanged, begin, move
from posd.records.model import Phase
from posd.records.service import CallsInFlight
from posd.storage.store import Store
from tests.rig.tables import there

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


@dataclass
class Machine:
    """A machine with clocks, the state of the listener, and a database."""

    directory: Path
    wall: datetime = NOON
    awake: float = 100.0
    elapsed: float = 100.0
    accepting: bool = True
    open: list[Transaction] = field(default_factory=list)

    @property
    def alive(self) -> Path:
        return self.directory / "posd.db.alive"

    def pass_by(self, seconds: float, *, suspended: float = 0.0) -> None:
        """Advance the time. `suspended`: whether the machine sleeps in this time."""
        self.awake += seconds
        self.elapsed += seconds + suspended
        self.wall += timedelta(seconds=seconds + suspended)

    @asynccontextmanager
    async def daemon(self) -> AsyncIterator[tuple[Store, Presence]]:
        """Run the needed parts of a daemon."""
        store = await Store.open(self.directory / "posd.db", self.directory / "posd.db.lock")
        clocks = (lambda: self.wall), (lambda: self.elapsed), (lambda: self.awake)
        presence = Presence(store, self.alive, lambda: self.accepting, *clocks)
        store.hub.listen(presence.changed, TransactionChanged)
        try:
            await presence.begin()
            yield store, presence
        finally:
            await store.close()

    async def pay(self, store: Store) -> Transaction:
        """Record an open payment."""
        at = iso(self.wall)
        payment = Transaction(
            client_transaction_id=str(uuid4()),
            terminal="SN-1",
            type=OperationType.CHARGE,
            created_at=at,
            updated_at=at,
            phase=Phase.ACTIVE,
        )
        await store.write(lambda unit: begin(unit, payment, "intent"))
        return payment

    async def end(self, store: Store, payment: Transaction) -> None:
        """Record the end of the payment."""
        nothing = dict.fromkeys(Outcome.__struct_fields__[:11])
        outcome = Outcome(**nothing | {"result": Result.CANCELED, "decided_at": iso(self.wall), "evidence": ()})  # type: ignore[arg-type]
        after = msgspec.structs.replace(payment, phase=Phase.FINAL, outcome=outcome, updated_at=iso(self.wall))
        await store.write(lambda unit: move(unit, payment, after, Recorded("event:TERMINAL_CANCELED"), CallsInFlight()))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


async def found(presence: Presence) -> Absence | None:
    seen = await presence.look()
    return seen[0] if seen is not None else None


@pytest.mark.parametrize(
    ("awake", "suspended", "cause"),
    [
        (BEAT_SECONDS, 0, None),
        (BEAT_SECONDS, 200, None),
        (BEAT_SECONDS, 600, "suspended"),
        (BEAT_SECONDS + 200, 0, None),
        (BEAT_SECONDS + 600, 0, "held_up"),
    ],
)
async def test_a_sleeping_machine_and_a_blocked_loop_count_as_a_downtime(
    machine: Machine, awake: float, suspended: float, cause: DowntimeCause | None
) -> None:
    async with machine.daemon() as (store, presence):
        payment = await machine.pay(store)
        await presence.beat()
        machine.pass_by(awake, suspended=suspended)
        await presence.beat()
        absence = await found(presence)
        assert (absence.cause if absence else None) == cause
        assert presence.absences == (cause is not None)
        if absence is not None:
            assert (absence.seconds, set(absence.payments)) == (600, {payment.client_transaction_id})
            await machine.end(store, payment)
            assert await found(presence) is None


async def test_a_listener_that_cannot_accept_counts_as_down(machine: Machine) -> None:
    async with machine.daemon() as (store, presence):
        await machine.pay(store)
        await presence.beat()
        touched = machine.alive.stat().st_mtime
        machine.accepting = False
        for _ in range(12):
            machine.pass_by(BEAT_SECONDS)
            await presence.beat()
        # after a kill at this point the downtime begins at this time
        assert machine.alive.stat().st_mtime == touched
        assert await found(presence) is None  # health reports a failure
        machine.accepting = True
        machine.pass_by(BEAT_SECONDS)
        await presence.beat()
        absence = there(await found(presence))
        assert (absence.cause, absence.seconds) == ("deaf", 13 * BEAT_SECONDS)


async def test_the_alive_file_is_touched_while_payments_are_open_and_shortens_the_downtime(machine: Machine) -> None:
    async with machine.daemon() as (store, presence):
        await machine.pay(store)
        for _ in range(20):
            machine.pass_by(BEAT_SECONDS)
            await presence.beat()  # at this moment the newest record is ten minutes old, and the file is newer
        assert machine.alive.stat().st_mtime == pytest.approx(machine.wall.timestamp(), abs=0.01)
    machine.pass_by(100)
    async with machine.daemon() as (_, presence):
        assert await found(presence) is None


async def test_a_clock_corrected_after_a_boot_is_used(machine: Machine) -> None:
    async with machine.daemon() as (store, presence):
        await machine.pay(store)
        await presence.beat()
    machine.alive.write_text("another boot\n")
    os.utime(machine.alive, (machine.wall.timestamp(), machine.wall.timestamp()))
    machine.pass_by(20)  # the clock continued from the time of the power cut
    machine.awake = machine.elapsed = 15.0
    async with machine.daemon() as (_, presence):
        assert await found(presence) is None
        machine.pass_by(5)
        machine.wall += timedelta(hours=1)
        absence = there(await found(presence))
        assert (absence.cause, absence.seconds) == ("stopped", 3620)


async def test_an_alive_file_that_cannot_be_written_blocks_nothing(machine: Machine) -> None:
    machine.alive.mkdir()
    async with machine.daemon() as (store, presence):
        await machine.pay(store)
        await presence.beat()
        presence.end()
    machine.pass_by(600)
    async with machine.daemon() as (_, presence):
        assert await found(presence) is not None


@pytest.mark.parametrize("hidden", [False, True])
async def test_a_boot_has_the_same_id_from_the_kernel_and_from_the_unit(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, hidden: bool
) -> None:
    """Some services cannot read the kernel's file with the id. The unit passes the id to them in a variable.

    Without that variable, all boots would have the same id.
    """
    seen = presence.BOOT_ID.read_text("ascii").strip()
    unit = (Path(__file__).parents[2] / "systemd" / "posd.service").read_text()
    assert ("ProcSubset=pid" in unit) <= (f"Environment={presence.BOOT_ID_VARIABLE}=%b" in unit)
    if hidden:
        monkeypatch.setattr(presence, "BOOT_ID", machine.alive.with_name("none"))
        monkeypatch.setenv(presence.BOOT_ID_VARIABLE, seen.replace("-", ""))
    assert presence._boot_id() == seen.replace("-", "") != ""
