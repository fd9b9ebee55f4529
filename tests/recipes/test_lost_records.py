"""A payment that posd's database has lost: no recipe calls it NOT PAID, forgets it, or starts it again by itself."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest

from tests.e2e.test_backup import back_up, lose, posd_command
from tests.recipes.counter import Counter
from tests.recipes.running import tried
from tests.recipes.test_charges import APPROVED, CHARGES, DECLINED, LEFT_OPEN, ONE_MOMENT, PRESENT, SUPERVISOR

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]

in_each_language = pytest.mark.parametrize("name", tried(CHARGES, quick=["charge.py"]))
#: Amount -> what a person finds in the bank's list, and the exit code of the recipe once they have said so.
ENDED = {APPROVED: ("approved", 0), DECLINED: ("declined", 3)}


@in_each_language
async def test_only_a_person_ends_what_a_restore_has_lost(counter: Counter, name: str) -> None:
    """Before `posd restore --seen` and after it, a payment that was taken and one that was not."""
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
        await counter.resolve(identity, result, **asked_for)
        await ends(counter, name, till, code)
    assert counter.requests == lost


@pytest.mark.slow
async def test_no_part_of_a_sale_and_no_void_that_a_restore_has_lost_is_started_again(counter: Counter) -> None:
    await counter.pay("12.50")
    backup = counter.till / "backup.db"
    await back_up(counter.daemon, backup)
    lost = [("split_payment.py", f"sale-{uuid4()}", APPROVED, APPROVED), ("void_last.py",)]
    for count, recipe_and_arguments in enumerate(lost, 2):
        async with counter.recipe(*recipe_and_arguments) as recipe:
            await counter.starts(count)
            await recipe.kill()
        await counter.pass_time()
        await counter.daemon.outcome(counter.requests[-1])
    await lose_records(counter, backup)
    await restore(counter, "--seen", "--operator", "ana")
    for recipe_and_arguments in lost:
        async with counter.recipe(*recipe_and_arguments) as recipe:
            assert await recipe.ends() == 4
        assert recipe.said[-1].startswith(SUPERVISOR)
    assert len(counter.requests) == 3


@in_each_language
async def test_an_old_copy_of_the_database_is_put_in_its_place(counter: Counter, name: str) -> None:
    """The witness beside it knows the ids, and the terminal how they ended."""
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


@in_each_language
async def test_the_database_is_of_a_newer_posd(counter: Counter, name: str) -> None:
    till = await left_open(counter, name, APPROVED)
    await counter.daemon.stop()
    schema = set_schema(counter, 999)
    assert "newer" in (await counter.daemon.cannot_start())[1]
    async with counter.recipe(name, TILL_DIR=str(till)) as recipe:
        await recipe.says(ONE_MOMENT)
        set_schema(counter, schema)
        await counter.daemon.start()
        assert await recipe.ends() == 0
    await counter.one_request()


def set_schema(counter: Counter, version: int) -> int:
    """Set the version of the schema, of a daemon that is stopped; return that before."""
    with closing(sqlite3.connect(counter.daemon.database)) as db:
        (before,) = db.execute("PRAGMA user_version").fetchone()
        db.execute(f"PRAGMA user_version = {version}")
    return int(before)


async def left_open(counter: Counter, name: str, amount: str) -> Path:
    """Kill a till while it waits for a payment, which ends then; return the till's directory."""
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
    """Run a recipe that left a payment open twice: it sends for a person each time."""
    for _ in range(2):
        async with counter.recipe(name, TILL_DIR=str(till)) as recipe:
            assert await recipe.ends() == 4, recipe.said
        assert LEFT_OPEN in recipe.said[0]
        assert recipe.said[-1].startswith(SUPERVISOR)


async def ends(counter: Counter, name: str, till: Path, code: int) -> None:
    """Run it twice: it ends with that code, and nothing is open then."""
    for expected in (code, 2):
        async with counter.recipe(name, TILL_DIR=str(till)) as recipe:
            assert await recipe.ends() == expected, recipe.said
