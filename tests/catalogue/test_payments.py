"""Every payment scenario of the catalogue, played against a real daemon: what it says is what the file says."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import pytest_asyncio

from posd.log_events import EVENTS
from posd.simulator.catalogue import payments
from tests.catalogue.playing import Played, Said
from tests.catalogue.street import Street, street
from tests.support.secrets import Secrets
from tests.support.shop import nothing_to_correct
from tests.support.tables import every
from tests.support.webhooks import disk

#: Attentions that a slow machine can raise where none is expected.
BY_TIME = {"in_doubt", "gap", "stalled", "no_callback"}

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def opened() -> AsyncIterator[Street]:
    with TemporaryDirectory(prefix="posd-", dir="/tmp") as directory:
        async with street(Path(directory)) as opened:
            yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def playing(opened: Street) -> AsyncIterator[dict[str, "asyncio.Task[Played]"]]:
    """Every scenario, being played beside the others."""
    tasks = {name: asyncio.create_task(opened.play(name), name=name) for name in payments()}
    yield tasks
    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)


@pytest.mark.parametrize("name", payments())
async def test_posd_says_what_the_scenario_says(
    opened: Street, playing: dict[str, "asyncio.Task[Played]"], name: str
) -> None:
    scenario = payments()[name]
    played = await playing[name]
    assert (played.start, played.abort) == (scenario.expect.start, scenario.expect.abort)
    assert Said.of(played.document, scenario) == Said.expected(scenario), played.document
    assert len(played.charges) == scenario.expect.charges
    passed, expected = opened.news.passed[played.identity], set(scenario.expect.passed)
    assert passed >= expected
    assert passed - BY_TIME == expected - BY_TIME


@every("name", payments())
async def test_what_it_says_of_money_is_what_the_terminals_ledger_says(
    playing: dict[str, "asyncio.Task[Played]"], name: str
) -> None:
    played = await playing[name]
    outcome = played.document["outcome"]
    if outcome is None:
        return
    reference, amount = outcome["transaction_reference"], outcome["authorized_amount"]
    attention = {item["code"]: item["detail"] for item in played.document["attention"]}
    if outcome["result"] != "approved":
        assert (reference, amount) == (None, None)
        assert not (played.charges and outcome["reached_acquirer"] is False)
    elif "missing_reference" in attention:
        assert reference is None
    else:  # the first one stands
        assert (reference, amount) == (played.charges[0]["transaction_reference"], played.charges[0]["amount"])
    if "conflicting_final" in attention:  # whatever was taken can be voided
        for charge in played.charges:
            assert charge["transaction_reference"] in f"{reference} {attention['conflicting_final']}"


@every("name", payments())
async def test_it_is_sent_once_and_an_abort_where_the_till_says_so(
    playing: dict[str, "asyncio.Task[Played]"], name: str
) -> None:
    scenario = payments()[name]
    played = await playing[name]
    assert played.starts == (0 if scenario.out_of_reach else 1)
    sent = scenario.expect.abort not in (None, "not_abortable", "past_point_of_no_return", "terminal_offline")
    assert played.aborts == sent


async def test_it_is_chosen_by_its_amount_or_else_by_metadata_or_option(
    playing: dict[str, "asyncio.Task[Played]"],
) -> None:
    for name, scenario in payments().items():
        way = "amount" if scenario.amount else "option" if scenario.out_of_reach else "metadata"
        assert (await playing[name]).chosen_by == way, name


async def test_it_stays_so(opened: Street, playing: dict[str, "asyncio.Task[Played]"]) -> None:
    """posd has gone on asking for what is open; nothing has become of it, nor of what has ended."""
    for name, scenario in payments().items():
        document = await opened.daemon.transaction((await playing[name]).identity)
        assert Said.of(document, scenario) == Said.expected(scenario), name


async def test_it_follows_from_what_was_recorded(opened: Street, playing: dict[str, "asyncio.Task[Played]"]) -> None:
    await asyncio.gather(*playing.values())
    await nothing_to_correct(opened.daemon)


async def test_its_log_names_events_of_the_table_and_no_secret(
    opened: Street, playing: dict[str, "asyncio.Task[Played]"]
) -> None:
    await asyncio.gather(*playing.values())
    with disk(opened.daemon) as db:
        bodies = [bytes(row[0]).decode("utf-8", "replace") for row in db.execute("SELECT body FROM events")]
    secrets = Secrets({f"chip {said}": said for text in bodies for said in re.findall("9F2608[0-9A-F]+", text)})
    assert len(secrets.values) > 20
    secrets.add_requests(text for simulator in opened.simulators.values() for text in simulator.requests)
    assert len(secrets.values) > len(payments())
    assert secrets.found_in(opened.daemon.lines) == []
    assert {line["event"] for line in opened.daemon.lines} <= EVENTS.keys()
    assert not [line for line in opened.daemon.lines if "dropped" in line]
