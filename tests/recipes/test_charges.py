"""One charge in each language: the cashier is told its end, also after trouble with posd, the till or the network."""

import asyncio
import re
import signal
import socket
import sqlite3
from contextlib import closing
from decimal import Decimal

import pytest

from posd.base.limits import CONNECTIONS_OF_USER
from tests.recipes.counter import Counter
from tests.recipes.running import tried
from tests.recipes.trouble import troubled
from tests.support.senders import crowd

#: The recipes of a charge: all of them say the same.
CHARGES = (
    "charge.sh",
    "charge.py",
    "charge_async.py",
    "charge.mjs",
    "charge.go",
    "charge.php",
    "Charge.java",
    "Charge.cs",
)

APPROVED, DECLINED, LOST_ACKNOWLEDGEMENT, SLOW_ACKNOWLEDGEMENT = "9000.01", "9000.04", "9000.20", "9000.24"
CANCELED_AT_THE_ACQUIRER, A_PART = "9000.97", "9000.98"
PRESENT, DOUBT, ONE_MOMENT, LEFT_OPEN = "Present the card", "Do not charge again", "One moment", "left open"
PAID, NOT_PAID, SUPERVISOR = "PAID ", "NOT PAID: ", "CALL THE SUPERVISOR"

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]

in_each_language = pytest.mark.parametrize("name", tried(CHARGES, quick=["charge.py"]))


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", tried(CHARGES, quick=set(CHARGES) - {"charge.go", "Charge.java", "Charge.cs"}))
async def test_approved(counter: Counter, name: str) -> None:
    async with counter.recipe(name, APPROVED) as recipe:
        await recipe.says(PRESENT)
        await counter.pass_time()
        assert await recipe.ends() == 0
    paid = await counter.one_request()
    assert recipe.said[-1] == f"PAID {APPROVED}, ticket {paid['outcome']['ticket_number']}"


@in_each_language
async def test_declined(counter: Counter, name: str) -> None:
    async with counter.recipe(name, DECLINED) as recipe:
        await recipe.says(PRESENT)
        await counter.pass_time()
        assert await recipe.ends() == 3
    assert recipe.said[-1] == "NOT PAID: declined Insufficient funds"
    await counter.one_request()


@in_each_language
async def test_the_bank_approves_a_part_of_the_amount(counter: Counter, name: str) -> None:
    async with counter.recipe(name, A_PART) as recipe:
        await recipe.says(PRESENT)
        await counter.pass_time()
        assert await recipe.ends() == 6
    outcome = (await counter.one_request())["outcome"]
    said = re.fullmatch(r"PAID (\S+) of (\S+), ticket (\d+)", recipe.said[-1])
    assert said, recipe.said
    assert Decimal(said[1]) == outcome["authorized_amount"] == 5000
    assert said.groups()[1:] == (A_PART, outcome["ticket_number"])
    async with counter.recipe(name) as recipe:
        assert await recipe.ends() == 2  # nothing is open


@pytest.mark.slow
@in_each_language
async def test_trouble_of_posd_while_it_waits_says_nothing_of_the_payment(counter: Counter, name: str) -> None:
    async with (
        troubled(counter.daemon.till_socket, "internal_error", 500, "GET") as socket,
        counter.recipe(name, APPROVED, POSD_SOCKET=socket) as recipe,
    ):
        if name.endswith(".py"):
            assert await recipe.ends() == 4
            assert recipe.said[-1].startswith(SUPERVISOR)
        else:
            await recipe.says("internal_error!")
            await recipe.kill()
    await counter.pass_time()
    async with counter.recipe(name) as recipe:
        assert await recipe.ends() == 0
    assert LEFT_OPEN in recipe.said[0]
    await counter.one_request()


@in_each_language
async def test_a_limit_of_posd_is_waited_for(counter: Counter, name: str) -> None:
    """Before the start, and before what was left open is asked for."""
    path, most = counter.daemon.till_socket, CONNECTIONS_OF_USER.value
    waits = ONE_MOMENT if name.endswith(".py") else CONNECTIONS_OF_USER.name
    with crowd(path, most) as others:
        async with counter.recipe(name, APPROVED) as recipe:
            await recipe.says(waits)
            hang_up(others)
            await recipe.says(PRESENT)
            await recipe.kill()
    await counter.pass_time()
    with crowd(path, most) as others:
        async with counter.recipe(name) as recipe:
            await recipe.says(waits)
            hang_up(others)
            assert await recipe.ends() == 0
    await counter.one_request()


def hang_up(connections: list[socket.socket]) -> None:
    for item in connections:
        item.close()


@in_each_language
async def test_a_database_that_cannot_be_written_is_waited_for(counter: Counter, name: str) -> None:
    with closing(sqlite3.connect(counter.daemon.database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        async with counter.recipe(name, APPROVED) as recipe:
            if name.endswith(".py"):  # posd knows that it was never started, and the client leaves the rest to the till
                assert await recipe.ends() == 3
                assert counter.requests == []
                return
            await recipe.says("cannot do it now")
            other.execute("ROLLBACK")
            await recipe.says(PRESENT)
            await counter.pass_time()
            assert await recipe.ends() == 0
    await counter.one_request()


@in_each_language
async def test_a_fault_of_the_program_is_neither_paid_nor_not_paid(counter: Counter, name: str) -> None:
    counter.till.rmdir()  # there is nowhere to store anything
    async with counter.recipe(name, APPROVED) as recipe:
        assert await recipe.ends() == 1
    counter.till.mkdir()
    assert counter.requests == []


@in_each_language
async def test_the_acknowledgement_is_lost_and_posd_is_killed_in_doubt(counter: Counter, name: str) -> None:
    async with counter.recipe(name, LOST_ACKNOWLEDGEMENT) as recipe:
        await recipe.says(DOUBT)
        await counter.daemon.kill()
        await recipe.says(ONE_MOMENT)
        await counter.daemon.start()
        await counter.pass_time()
        assert await recipe.ends() == 0
    assert recipe.said[0].startswith("Checking")
    assert recipe.said[-1].startswith(f"PAID {LOST_ACKNOWLEDGEMENT}, ticket ")
    await counter.one_request()


@pytest.mark.quick(1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@in_each_language
async def test_the_payment_ends_while_posd_is_away(counter: Counter, name: str, number: signal.Signals) -> None:
    async with counter.recipe(name, APPROVED) as recipe:
        await recipe.says(PRESENT)
        await counter.daemon.stop(number)
        await recipe.says(ONE_MOMENT)
        await counter.pass_time(30)
        assert counter.terminal.ledger.of("final", client_transaction_id=counter.requests[0])
        await counter.daemon.start()
        await counter.pass_time()
        assert await recipe.ends() == 0
    assert recipe.said[-1].startswith(PAID)
    await counter.one_request()


@in_each_language
async def test_posd_is_killed_in_the_middle_of_the_start(counter: Counter, name: str) -> None:
    terminal_heard = counter.terminal.ledger.next(lambda entry: entry["kind"] == "start")
    async with counter.recipe(name, SLOW_ACKNOWLEDGEMENT) as recipe:
        async with asyncio.timeout(60):
            await terminal_heard  # and has not answered: its time stands still
        await counter.daemon.kill()
        await recipe.says(ONE_MOMENT)
        await counter.daemon.start()
        await recipe.says(DOUBT)
        await counter.pass_time()
        assert await recipe.ends() == 0
    assert recipe.said[-1].startswith(PAID)
    await counter.one_request()


@in_each_language
async def test_posd_is_not_there_yet(counter: Counter, name: str) -> None:
    await counter.daemon.kill()
    async with counter.recipe(name, APPROVED) as recipe:
        await recipe.says(ONE_MOMENT)
        await counter.daemon.start()
        await recipe.says(PRESENT)
        await counter.pass_time()
        assert await recipe.ends() == 0
    await counter.one_request()


@in_each_language
async def test_the_till_is_killed_and_finishes_what_it_left_open(counter: Counter, name: str) -> None:
    async with counter.recipe(name, APPROVED) as recipe:
        await recipe.says(PRESENT)
        await recipe.kill()
    async with counter.recipe(name, "11.11") as recipe:  # it does not charge anything new before the cashier has looked
        await recipe.says(PRESENT)
        await counter.pass_time()
        assert await recipe.ends() == 5
    assert LEFT_OPEN in recipe.said[0]
    assert recipe.said[-2].startswith(f"PAID {APPROVED}, ticket ")
    assert recipe.said[-1].startswith("11.11 WAS NOT CHARGED")
    await counter.one_request()


@in_each_language
async def test_a_busy_terminal_refuses_and_nothing_stays_open(counter: Counter, name: str) -> None:
    other = await counter.hold()
    async with counter.recipe(name, APPROVED) as recipe:
        assert await recipe.ends() == 3
    assert recipe.said[-1].startswith(NOT_PAID)
    assert other in recipe.said[-1]
    await counter.let_go(other)
    assert counter.requests == [other]

    async with counter.recipe(name) as recipe:
        assert await recipe.ends() == 2  # there is nothing to finish


@in_each_language
async def test_a_wrong_amount_is_refused(counter: Counter, name: str) -> None:
    async with counter.recipe(name, "0.001") as recipe:
        assert await recipe.ends() == 3
    assert recipe.said[-1].startswith(NOT_PAID)
    assert counter.requests == []


@in_each_language
async def test_a_final_that_contradicts_itself_needs_a_person_and_stays_open(counter: Counter, name: str) -> None:
    async with counter.recipe(name, CANCELED_AT_THE_ACQUIRER) as recipe:
        await recipe.says(PRESENT)
        await counter.pass_time()
        assert await recipe.ends() == 4
    assert recipe.said[-1].startswith(SUPERVISOR)
    async with counter.recipe(name, "11.11") as recipe:  # nothing else is charged before a person has looked
        assert await recipe.ends() == 4
    assert LEFT_OPEN in recipe.said[0]
    assert recipe.said[-1].startswith(SUPERVISOR)
    looked_at = await counter.one_request()
    assert looked_at["client_transaction_id"] in recipe.said[-1]
    for attention in looked_at["attention"]:
        await counter.acknowledge(looked_at["client_transaction_id"], attention["code"])
    async with counter.recipe(name) as recipe:
        assert await recipe.ends() == 3
    assert recipe.said[-1].startswith("NOT PAID: canceled")


@in_each_language
async def test_a_till_that_has_stored_another_amount_is_told_what_was_paid(counter: Counter, name: str) -> None:
    async with counter.recipe(name, APPROVED) as recipe:
        await recipe.says(PRESENT)
        await recipe.kill()
    falsify(counter, APPROVED, "11.11")
    await counter.pass_time()
    async with counter.recipe(name) as recipe:
        assert await recipe.ends() == 6
    assert recipe.said[-1].startswith(f"PAID {APPROVED}")
    await counter.one_request()


def falsify(counter: Counter, amount: str, other: str) -> None:
    """Change the amount that the till has stored."""
    for kept in (*counter.till.glob("open-payment"), *counter.till.glob("open-payments/*.json")):
        kept.write_text(kept.read_text().replace(amount, other))
        return
    with sqlite3.connect(counter.till / "till.db") as till:
        till.execute("UPDATE payments SET request = CAST(replace(request, ?, ?) AS BLOB)", (amount, other))
    till.close()
