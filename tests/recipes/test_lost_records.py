"""A payment that posd's database has lost. No recipe shows the payment as NOT PAID, removes it, or starts it again by
itself.
"""

import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.e2e.test_backup import back_up, lose, posd_command
from tests.recipes.counter import Counter
from tests.recipes.running import tried
from tests.recipes.test_charges import APPROVED, CHARGES, DECLINED, LEFT_OPEN, PRESENT, SUPERVISOR

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]

in_each_language = pytest.mark.parametrize("name", tried(CHARGES, quick=["charge.py"]))
#: Amount -> entry in the bank's list, and exit code of the recipe after a person's answer.
ENDED = {APPROVED: ("approved", 0), DECLINED: ("declined", 3)}


@in_each_language
async def test_only_a_person_ends_a_payment_that_a_restore_lost(counter: Counter, name: str) -> None:
    """The tests cover an approved and a declined payment, before and after `posd restore --seen`."""
    backup = counter.till / "backup.db"
    await back_up(counter.daemon, backup)
    tills = [await left_open(counter, name, amount) for amount in ENDED]
    lost = counter.requests
    await lose_records(counter, backup)
    for till in tills:
        await stays_open(counter, name, till)
    await restore(counter, "--seen", "--operator", "ana")
    for till in tills:
        await stays_open(counter, name, till)
    for till, identity, (amount, (result, code)) in zip(tills, lost, ENDED.items(), strict=True):
        asked_for = {"amount": {"subtotal_iva0": amount}, "terminal": counter.serial}
        await counter.decide(identity, "resolve", result=result, **asked_for)
        await ends(counter, name, till, code)
    assert counter.requests == lost


@in_each_language
async def test_a_till_whose_clock_was_ahead_keeps_a_payment_that_a_restore_lost(counter: Counter, name: str) -> None:
    backup = counter.till / "backup.db"
    await back_up(counter.daemon, backup)
    till = await left_open(counter, name, APPROVED)
    store_ahead(till)
    await lose_records(counter, backup)
    await stays_open(counter, name, till)
    lost = {"amount": {"subtotal_iva0": APPROVED}, "terminal": counter.serial}
    await counter.decide(*counter.requests, "resolve", result="approved", **lost)
    await ends(counter, name, till, 0)
    await restore(counter, "--seen", "--operator", "ana")


def store_ahead(till: Path) -> None:
    """Replace the stored time of the till's payment by a time of tomorrow."""
    later = (datetime.now(UTC) + timedelta(days=1)).date().isoformat()
    today = datetime.now(UTC).date().isoformat()
    if (database := till / "till.db").exists():
        with closing(sqlite3.connect(database)) as db, db:
            db.execute("UPDATE payments SET stored_at = replace(stored_at, ?, ?)", (today, later))
    for file in (till / "open-payment", *till.glob("open-payments/*.json")):
        if file.exists():
            file.write_text(file.read_text().replace(today, later))


@in_each_language
async def test_an_old_copy_of_the_database_loses_no_payment(counter: Counter, name: str) -> None:
    """The witness file has the ids of the payments, and the terminal has their ends."""
    await counter.daemon.stop()
    copy = counter.till / "posd.db"
    shutil.copy2(counter.daemon.database, copy)
    await counter.daemon.start()
    tills = [await left_open(counter, name, amount) for amount in ENDED]
    lost = counter.requests
    await counter.daemon.stop()
    shutil.copy2(copy, counter.daemon.database)
    await counter.daemon.start()
    for till, (_, code) in zip(tills, ENDED.values(), strict=True):
        await ends(counter, name, till, code)
    assert counter.requests == lost
    await restore(counter, "--seen", "--operator", "ana")


async def left_open(counter: Counter, name: str, amount: str) -> Path:
    """Kill a till while it waits for a payment. The payment ends afterwards. Return the till's directory."""
    till = counter.till / amount
    till.mkdir()
    async with counter.recipe(name, amount, TILL_DIR=str(till)) as recipe:
        await recipe.says(PRESENT)
        await recipe.kill()
    await counter.pass_time()
    await counter.daemon.outcome(counter.requests[-1])
    return till


async def lose_records(counter: Counter, backup: Path) -> None:
    await counter.daemon.stop()
    lose(counter.daemon.database, "", ".witness")
    await restore(counter, str(backup), "--yes")
    await counter.daemon.start()


async def restore(counter: Counter, *arguments: str) -> None:
    code, said, shown = await posd_command(counter.daemon, "restore", *arguments)
    assert code == 0, said + shown


async def stays_open(counter: Counter, name: str, till: Path) -> None:
    """Run a recipe with an open payment twice. Check that both runs ask for a person."""
    for _ in range(2):
        async with counter.recipe(name, TILL_DIR=str(till)) as recipe:
            assert await recipe.ended() == 4, recipe.said
        assert LEFT_OPEN in recipe.said[0]
        assert recipe.said[-1].startswith(SUPERVISOR)


async def ends(counter: Counter, name: str, till: Path, code: int) -> None:
    """Run a recipe twice. Check that the recipe ends with this code, and that no payment stays open."""
    for expected in (code, 2):
        async with counter.recipe(name, TILL_DIR=str(till)) as recipe:
            assert await recipe.ended() == expected, recipe.said
