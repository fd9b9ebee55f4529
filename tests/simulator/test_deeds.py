"""What a scenario does to the terminal itself, in the middle of a payment: power, network, address, certificate."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from posd.simulator import Settings, Simulator
from posd.simulator.payment import Hand
from tests.simulator.conftest import PATIENCE, Receiver, Stage, Till, request
from tests.simulator.own import APPROVED, OK, A, C, Q, step, steps, write

#: What the switches write into the ledger.
SWITCHES = ("unplugged", "plugged", "power_off", "power_on", "moved", "certificate")


def switched(till: Till) -> list[str]:
    return [line["kind"] for line in till.terminal.ledger if line["kind"] in SWITCHES]


def deed(name: str, **fields: str) -> str:
    return step(do=f'"{name}"', **fields)


async def test_a_payment_goes_on_while_the_network_is_away_and_its_events_come_in_a_burst(
    stage: Stage, receiver: Receiver
) -> None:
    text = step(A) + deed("unplug") + steps(C, Q, OK) + deed("plug", after="60")
    async with stage.plays(text) as till:
        await till.charge(events_webhook_url=receiver.url)
        await till.terminal.ledger.wait_for("final")
        assert switched(till) == ["unplugged"]
        with pytest.raises(httpx2.ConnectError):
            await till.search("7f3c0000-0000-4000-8000-000000000001")
        assert C not in receiver.statuses
        await receiver.wait_for(4)
        assert switched(till) == ["unplugged", "plugged"]
    assert receiver.statuses == [A, C, Q, OK]


@pytest.mark.slow
async def test_the_network_can_be_away_for_a_while(stage: Stage) -> None:
    """The course goes on meanwhile, and is over before the network is there again."""
    async with stage.plays(step(A) + deed("unplug", seconds="500") + steps(C, Q, OK)) as till:
        await till.charge()
        await till.terminal.ledger.wait_for("plugged")
        kinds = [line["kind"] for line in till.terminal.ledger]
        assert kinds.index("unplugged") < kinds.index("final") < kinds.index("over") < kinds.index("plugged")
        assert (await till.charge()).status_code == 200


@pytest.mark.quick(2)
@pytest.mark.parametrize("entered", [(), (A,), (A, C), (A, C, Q)])
async def test_a_terminal_that_loses_power_forgets_where_no_step_follows(
    stage: Stage, entered: tuple[str, ...]
) -> None:
    async with stage.plays(steps(*entered) + deed("power-cycle", seconds="30")) as till:
        transaction = (await till.charge()).json()["operation"]["client_transaction_id"]
        await till.terminal.ledger.wait_for("over")
        assert switched(till) == ["power_off", "power_on"]
        (line,) = till.terminal.ledger.of("forgotten")
        assert line["status"] == (entered[-1] if entered else None)
        assert (await till.search(transaction)).json() == []
        assert (await till.charge()).status_code == 200


@pytest.mark.quick(2)
@pytest.mark.parametrize("entered", [(), (A,), (A, C), (A, C, Q)])
async def test_a_terminal_that_loses_power_remembers_where_steps_follow(
    stage: Stage, receiver: Receiver, entered: tuple[str, ...]
) -> None:
    states = (A, C, Q, OK)
    rest = states[len(entered) :]
    async with stage.plays(steps(*entered) + deed("power-cycle", seconds="30") + steps(*rest)) as till:
        await till.charge(events_webhook_url=receiver.url)
        await receiver.until(lambda: OK in receiver.statuses)
        kinds = [line["kind"] for line in till.terminal.ledger]
        assert kinds.index("power_off") < kinds.index("power_on") < kinds.index("final")
        assert till.terminal.ledger.of("forgotten") == []
    told = {delivery.raw: delivery.event for delivery in receiver.deliveries}  # one may come twice: power went amid it
    assert [event["status"] for event in told.values()] == list(states)
    assert [event.get("previous_status") for event in told.values()] == [None, A, C, Q]


async def test_a_terminal_can_get_another_address(stage: Stage, receiver: Receiver) -> None:
    async with stage.plays(step(A) + deed("move") + steps(C, Q, OK)) as till:
        before = till.terminal.base_url
        await till.charge(events_webhook_url=receiver.url)
        await receiver.wait_for(4)
        (line,) = till.terminal.ledger.of("moved")
        assert line["base_url"] == till.terminal.base_url != before
        assert (await till.charge()).status_code == 200  # at the new one


async def test_a_terminal_can_show_another_certificate_from_a_step_on(stage: Stage, client_tls: Any) -> None:
    """A till that keeps no connection does not come through any more."""
    async with stage.plays(step(A) + deed("certificate", certificate='"self-signed"') + steps(C, Q, OK)) as till:
        await till.charge()
        await till.terminal.ledger.wait_for("over")
        assert [line["which"] for line in till.terminal.ledger.of("certificate")] == ["self-signed"]
        async with httpx2.AsyncClient(verify=client_tls, trust_env=False, timeout=PATIENCE) as client:
            with pytest.raises(httpx2.ConnectError, match="certificate"):
                await client.get(till.terminal.base_url)


async def test_a_deed_that_is_not_possible_is_left_out(
    settings: Callable[..., Settings], client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    """Over plain HTTP there is no certificate: the payment takes its course all the same."""
    file = write(tmp_path, step(A) + deed("certificate", certificate='"expired"') + steps(C, Q, OK))
    async with Simulator(settings(scenario_file=file, certificate=None, private_key=None)) as terminal:
        await Till(terminal, client).charge()
        assert (await terminal.ledger.wait_for("final"))["charged"] is True


async def test_what_a_person_does_during_a_deed_holds_after_it(stage: Stage) -> None:
    text = step(A) + deed("power-cycle", seconds="20") + step(after='"for-ever"')
    async with stage.plays(text, virtual=True) as till:
        await till.charge()
        await till.advance(10)
        await till.terminal.ledger.wait_for("power_off")
        assert till.terminal.terminal.hand(Hand.CANCEL)
        await till.advance(30)
        async with asyncio.timeout(PATIENCE):
            assert (await till.terminal.ledger.wait_for("final"))["status"] == "TERMINAL_CANCELED"


async def test_a_scenario_can_begin_before_the_start(
    settings: Callable[..., Settings], client: httpx2.AsyncClient, tmp_path: Path, client_tls: Any
) -> None:
    """Chosen by option: the certificate is another one, or the terminal away, when the block begins."""
    away = write(tmp_path, "away = true\n" + APPROVED, "away")
    async with Simulator(settings(scenario_file=away)) as terminal:
        with pytest.raises(httpx2.ConnectError):
            await Till(terminal, client).charge()
        assert [line["kind"] for line in terminal.ledger if line["kind"] in SWITCHES] == ["unplugged"]
    changed = write(tmp_path, 'certificate = "wrong-name"\n' + APPROVED, "changed")
    async with Simulator(settings(scenario_file=changed)) as terminal:
        with pytest.raises(httpx2.ConnectError, match=r"certificate|Hostname|IP address"):
            await client.post(terminal.base_url, json=request())
        assert [line["which"] for line in terminal.ledger.of("certificate")] == ["wrong-name"]
