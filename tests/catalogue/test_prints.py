"""The tests play every print scenario of the catalogue against a real daemon. Each scenario ends as its file says."""

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest
import pytest_asyncio

from posd.cli.explain.catalogue import events
from posd.simulator.scenario import DEFAULT_PRINT_SCENARIO, prints
from tests.catalogue.expected import person_of, print_expect_of
from tests.catalogue.printing import PrintPlay, expected, said
from tests.catalogue.street import daemons, play_all
from tests.rig.secrets import Secrets
from tests.rig.slow import named_quick, played_in
from tests.rig.tables import every

#: Scenarios whose end comes by the webhook, by a poll, or by the reply.
QUICK = {"completes", "fails", "refuses", "out-of-paper", "error-but-prints", "calls-twice", "loses-reply", "stuck"}

Playing = Mapping[str, "asyncio.Task[PrintPlay]"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def playing(request: pytest.FixtureRequest) -> AsyncIterator[Playing]:
    """Play the scenarios of this run's tests in parallel. If the run has no such test, play the quick scenarios."""
    names = played_in(request) or QUICK
    scenarios = {name: scenario for name, scenario in prints().items() if name in names}
    async with play_all(scenarios, PrintPlay) as tasks:
        yield tasks


@pytest.mark.quick(2)
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", named_quick(prints(), QUICK))
async def test_posd_reports_the_end_of_the_scenario(playing: Playing, name: str) -> None:
    expect = print_expect_of(prints()[name])
    play = await playing[name]
    assert play.start == expect.start
    job = await play.job()
    assert said(job) == expected(play.scenario), job
    assert play.papers() == expect.papers
    assert play.street.news.passed[name] >= set(expect.passed)


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="module")
async def test_later_polls_change_no_job_and_each_job_was_created_once(playing: Playing) -> None:
    for name, task in playing.items():
        play = await task
        assert said(await play.job()) == expected(play.scenario), name
        created = play.simulator.ledger.of("print", print_job_id=name)
        assert len(created) == (0 if person_of(play.scenario).restarts else 1), name  # a restart begins a new ledger
        assert all(line["scenario"] == name for line in created)


@pytest.mark.asyncio(loop_scope="module")
async def test_reprocessing_finds_no_difference(playing: Playing) -> None:
    done = await asyncio.gather(*playing.values())
    for daemon in daemons(done):
        report = (await daemon.call("POST", "/reprocess", socket=daemon.admin_socket)).json["printing"]
        assert (report["differing"], report["differences"]) == (0, []), report
        assert report["print_jobs"] > 0


@every("name", prints())
def test_each_scenario_file_is_described_and_free_of_contradictions(name: str) -> None:
    scenario = prints()[name]
    for text in (scenario.summary, scenario.when, scenario.advice or "None."):
        assert text[0].isupper()
        assert text[-1] == "."
    expect = print_expect_of(scenario)
    assert expect.phase == "final" or expect.decided_by is None
    if scenario.creation.after_webhook:  # without this step the creation would never get a reply
        assert scenario.creation.taken
        assert scenario.webhooks
        assert scenario.memory != "none"
    comes_out = scenario.prints and scenario.creation.taken and scenario.memory == "on-file"
    assert expect.papers == (comes_out and scenario.jam != "for-ever")


def test_the_ordinary_receipt_is_the_default() -> None:
    assert DEFAULT_PRINT_SCENARIO in prints()
    assert not prints()[DEFAULT_PRINT_SCENARIO].advice


@pytest.mark.asyncio(loop_scope="module")
async def test_the_log_has_only_events_of_the_table_and_no_secret(playing: Playing) -> None:
    done = [await task for task in playing.values()]
    secrets = Secrets({})
    secrets.add_requests(text for play in done for text in play.simulator.printer.requests)
    assert len(secrets.values) >= len(playing) - 5
    lines = [line for daemon in daemons(done) for line in daemon.lines]
    assert secrets.found_in(lines) == []
    assert {line["event"] for line in lines} <= events().keys()
    assert not [line for line in lines if "dropped" in line]
