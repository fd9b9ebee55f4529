"""One charge in each language. The cashier sees the outcome, also after faults of posd, the till or the network."""

import asyncio
import re
import socket
from decimal import Decimal
from pathlib import Path

import pytest

from tests.recipes.counter import Counter, open_counter
from tests.recipes.running import run, tried

#: The recipes of a charge. All recipes print the same lines.
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
async def test_an_approved_charge_is_shown(counter: Counter, name: str) -> None:
    async with counter.recipe(name, APPROVED) as recipe:
        await recipe.says(PRESENT)
        await counter.pass_time()
        assert await recipe.ended() == 0
    paid = await counter.one_request()
    assert recipe.said[-1] == f"PAID {APPROVED}, ticket {paid['outcome']['ticket_number']}"


@in_each_language
async def test_a_declined_charge_is_shown(counter: Counter, name: str) -> None:
    async with counter.recipe(name, DECLINED) as recipe:
        await recipe.says(PRESENT)
        await counter.pass_time()
        assert await recipe.ended() == 3
    assert recipe.said[-1] == "NOT PAID: declined Insufficient funds"
    await counter.one_request()


@in_each_language
async def test_a_partly_approved_amount_is_shown(counter: Counter, name: str) -> None:
    async with counter.recipe(name, A_PART) as recipe:
        await recipe.says(PRESENT)
        await counter.pass_time()
        assert await recipe.ended() == 6
    outcome = (await counter.one_request())["outcome"]
    said = re.fullmatch(r"PAID (\S+) of (\S+), ticket (\d+)", recipe.said[-1])
    assert said, recipe.said
    assert Decimal(said[1]) == outcome["authorized_amount"] == 5000
    assert said.groups()[1:] == (A_PART, outcome["ticket_number"])
    async with counter.recipe(name) as recipe:
        assert await recipe.ended() == 2  # no payment is open


@in_each_language
async def test_a_tip_added_at_the_terminal_is_not_a_different_amount(programs: Path, name: str) -> None:
    async with open_counter(programs, "SN-1", tip=Decimal("0.30")) as counter:
        counter.fresh()
        async with counter.recipe(name, "0.40") as recipe:
            await recipe.says(PRESENT)
            await counter.pass_time()
            assert await recipe.ended() == 0, recipe.said
        paid = await counter.one_request()
        assert recipe.said[-1] == f"PAID 0.70, ticket {paid['outcome']['ticket_number']}"


@in_each_language
async def test_a_fault_of_the_program_is_shown_neither_as_paid_nor_as_not_paid(counter: Counter, name: str) -> None:
    counter.till.rmdir()  # the till cannot store a payment
    async with counter.recipe(name, APPROVED) as recipe:
        assert await recipe.ended(fault=True) == 1
    counter.till.mkdir()
    assert counter.requests == []


@in_each_language
async def test_a_lost_acknowledgement_and_a_kill_of_posd_end_with_the_outcome(counter: Counter, name: str) -> None:
    async with counter.recipe(name, LOST_ACKNOWLEDGEMENT) as recipe:
        await recipe.says(DOUBT)
        await counter.daemon.kill()
        await recipe.says(ONE_MOMENT)
        await counter.daemon.start()
        await counter.pass_time()
        assert await recipe.ended() == 0
    assert recipe.said[0].startswith("Checking")
    assert recipe.said[-1].startswith(f"PAID {LOST_ACKNOWLEDGEMENT}, ticket ")
    await counter.one_request()


@in_each_language
async def test_a_kill_of_posd_during_the_start_ends_with_the_outcome(counter: Counter, name: str) -> None:
    terminal_heard = counter.terminal.ledger.next(lambda entry: entry["kind"] == "start")
    async with counter.recipe(name, SLOW_ACKNOWLEDGEMENT) as recipe:
        async with asyncio.timeout(60):
            await terminal_heard  # the terminal's time is stopped, so it has not replied
        await counter.daemon.kill()
        await recipe.says(ONE_MOMENT)
        await counter.daemon.start()
        await recipe.says(DOUBT)
        await counter.pass_time()
        assert await recipe.ended() == 0
    assert recipe.said[-1].startswith(PAID)
    await counter.one_request()


@pytest.mark.parametrize("name", tried([name for name in CHARGES if not name.endswith(".py")], quick=()))
async def test_a_posd_that_does_not_respond_leaves_no_till_waiting_without_limit(
    name: str, tmp_path: Path, programs: Path
) -> None:
    """The limit of Python is the client's own."""
    path = tmp_path / "till.sock"
    with socket.socket(socket.AF_UNIX) as stopped:
        stopped.bind(str(path))
        stopped.listen()  # connections and requests arrive, as at a stopped process
        async with run(name, APPROVED, socket=path, till=tmp_path, programs=programs) as recipe:
            await recipe.says(ONE_MOMENT)
            assert (tmp_path / "open-payment").exists()


@in_each_language
async def test_a_killed_till_finishes_its_open_payment(counter: Counter, name: str) -> None:
    async with counter.recipe(name, APPROVED) as recipe:
        await recipe.says(PRESENT)
        await recipe.kill()
    async with counter.recipe(name, "11.11") as recipe:  # the till starts no new charge before the cashier has checked
        await recipe.says(PRESENT)
        await counter.pass_time()
        assert await recipe.ended() == 5
    assert LEFT_OPEN in recipe.said[0]
    assert recipe.said[-2].startswith(f"PAID {APPROVED}, ticket ")
    assert recipe.said[-1].startswith("11.11 WAS NOT CHARGED")
    await counter.one_request()


@in_each_language
async def test_a_second_run_of_one_till_charges_nothing_while_the_first_runs(counter: Counter, name: str) -> None:
    async with counter.recipe(name, APPROVED) as first:
        await first.says(PRESENT)
        async with counter.recipe(name, "11.11") as second:
            assert await second.ended() == 5
        assert second.said == ["11.11 WAS NOT CHARGED: another charge of this till is running"]
        await counter.pass_time()
        assert await first.ended() == 0
    await counter.one_request()


@in_each_language
async def test_a_payment_refused_as_busy_leaves_nothing_open(counter: Counter, name: str) -> None:
    other = await counter.hold()
    async with counter.recipe(name, APPROVED) as recipe:
        assert await recipe.ended() == 3
    assert recipe.said[-1].startswith(NOT_PAID)
    assert other in recipe.said[-1]
    await counter.let_go(other)
    assert counter.requests == [other]

    async with counter.recipe(name) as recipe:
        assert await recipe.ended() == 2  # no open payment is left


@in_each_language
async def test_a_payment_with_a_contradicting_final_needs_a_person_and_stays_open(counter: Counter, name: str) -> None:
    async with counter.recipe(name, CANCELED_AT_THE_ACQUIRER) as recipe:
        await recipe.says(PRESENT)
        await counter.pass_time()
        assert await recipe.ended() == 4
    assert recipe.said[-1].startswith(SUPERVISOR)
    async with counter.recipe(name, "11.11") as recipe:  # the till starts no other charge before a person has checked
        assert await recipe.ended() == 4
    assert LEFT_OPEN in recipe.said[0]
    assert recipe.said[-1].startswith(SUPERVISOR)
    looked_at = await counter.one_request()
    assert looked_at["client_transaction_id"] in recipe.said[-1]
    for attention in looked_at["attention"]:
        await counter.decide(looked_at["client_transaction_id"], "acknowledge", code=attention["code"])
    async with counter.recipe(name) as recipe:
        assert await recipe.ended() == 3
    assert recipe.said[-1].startswith("NOT PAID: canceled")
