"""The tests play every payment scenario of the catalogue against a real daemon. Each scenario ends as its file says."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping

import pytest
import pytest_asyncio

from posd.cli.explain.catalogue import events
from posd.simulator.scenario import payments
from tests.catalogue.expected import expect_of
from tests.catalogue.playing import QUICK, Play, expected, said
from tests.catalogue.street import daemons, play_all
from tests.rig.secrets import Secrets
from tests.rig.shop import nothing_to_correct
from tests.rig.slow import named_quick, played_in
from tests.rig.webhooks import disk

#: Events that the daemon can log.
EVENTS = events()

#: Attentions that a slow machine can raise in addition to the expected attentions.
BY_TIME = {"in_doubt", "gap", "stalled", "no_callback"}

pytestmark = pytest.mark.asyncio(loop_scope="module")


CASES = named_quick(payments(), QUICK)

Playing = Mapping[str, "asyncio.Task[Play]"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def playing(request: pytest.FixtureRequest) -> AsyncIterator[Playing]:
    """Play the scenarios of this run's tests in parallel. If the run has no such test, play the quick scenarios."""
    names = played_in(request) or [name for name in payments() if name in QUICK]
    async with play_all({name: payments()[name] for name in names}, Play) as tasks:
        yield tasks


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", CASES)
async def test_posd_reports_the_end_of_the_scenario(playing: Playing, name: str) -> None:
    scenario = payments()[name]
    expect = expect_of(scenario)
    played = await playing[name]
    assert (played.start, played.abort) == (expect.start, expect.abort)
    assert said(played.document, scenario) == expected(scenario), played.document
    assert len(played.charges) == expect.charges
    assert played.passed >= set(expect.passed)
    assert played.passed - BY_TIME == set(expect.passed) - BY_TIME


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", CASES)
async def test_posds_amounts_equal_the_terminals_ledger(playing: Playing, name: str) -> None:
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
    else:  # the first final event counts
        assert (reference, amount) == (played.charges[0]["transaction_reference"], played.charges[0]["amount"])
    if "conflicting_final" in attention:  # each charge can be voided
        for charge in played.charges:
            assert charge["transaction_reference"] in f"{reference} {attention['conflicting_final']}"


@pytest.mark.parametrize("name", CASES)
async def test_a_start_is_sent_once_and_an_abort_only_if_the_till_asks(playing: Playing, name: str) -> None:
    scenario = payments()[name]
    played = await playing[name]
    of = played.simulator.ledger.of
    assert len(of("start")) == (0 if scenario.out_of_reach else 1)
    sent = expect_of(scenario).abort not in (None, "not_abortable", "past_point_of_no_return", "terminal_offline")
    assert len(of("abort")) == sent


async def test_a_scenario_without_an_amount_is_chosen_by_metadata_or_an_option(playing: Playing) -> None:
    for name, task in playing.items():
        scenario = payments()[name]
        way = "amount" if scenario.amount else "option" if scenario.out_of_reach else "metadata"
        assert (await task).chosen_by == way, name


async def test_later_searches_change_no_payment(playing: Playing) -> None:
    """posd has continued to search for open payments. Open and ended payments are unchanged."""
    for name, task in playing.items():
        play = await task
        document = await play.street.daemon.transaction(play.identity)
        assert said(document, play.scenario) == expected(play.scenario), name


async def test_reprocessing_finds_no_difference(playing: Playing) -> None:
    for daemon in daemons(await asyncio.gather(*playing.values())):
        await nothing_to_correct(daemon)


async def test_the_log_has_only_events_of_the_table_and_no_secret(playing: Playing) -> None:
    plays = await asyncio.gather(*playing.values())
    bodies: list[str] = []
    for daemon in daemons(plays):
        with disk(daemon) as db:
            bodies += [bytes(row[0]).decode("utf-8", "replace") for row in db.execute("SELECT body FROM events")]
    chips = {f"chip {said}": said for text in bodies for said in re.findall("9F2608[0-9A-F]+", text)}
    secrets = Secrets(chips)
    assert len(secrets.values) > len(playing) // 7
    secrets.add_requests(text for play in plays for text in play.simulator.terminal.requests)
    assert len(secrets.values) > len(playing)
    for daemon in daemons(plays):
        assert secrets.found_in(daemon.lines) == []
        assert {line["event"] for line in daemon.lines} <= EVENTS.keys()
        assert not [line for line in daemon.lines if "dropped" in line]
