"""Each alert rule has a series in every state of a terminal. A rule never fires on an absent series."""

import asyncio
import re
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from posd.collect import collector
from posd.collect.questions import FleetSummary
from posd.daemon.metrics import FAMILIES
from posd.relay.relay import RelayCounters
from tests.e2e.test_metrics import families
from tests.e2e.test_reload import reloaded
from tests.rig.daemon import running
from tests.rig.exposition import Family, read
from tests.rig.terminal import PATIENCE_SECONDS, scripted_terminal

MONITORING = Path(__file__).parents[2] / "monitoring"
#: A metric of posd in a rule, with label conditions.
SELECTOR = re.compile(r"\b(posd_[a-z_]+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'([a-z_]+)(=~|!~|!=|=)"([^"]*)"')
#: Series that exist only while their condition holds. The rules of these series compare the value, so the first value
#: fires.
APPEARS = {"posd_certificate_refusals", "posd_fleet_lanes_health"}
#: Series that is absent before the first backup. PosdBackupMissing fires if the series is absent.
HAS_A_RULE_OF_ITS_OWN = {"posd_backup_last_success_timestamp_seconds"}


def rules(name: str) -> dict[str, str]:
    """Return the expression of each alert of a file."""
    text = (MONITORING / name).read_text()
    return dict(re.findall(r"- alert: (\w+)\n +expr: (.+)", text))


def without_series(expression: str, found: dict[str, Family]) -> list[str]:
    """Return the selectors of an expression that match no series. Alternatives of a label are tried one at a time."""
    missing = []
    for name, asked in SELECTOR.findall(expression):
        family = re.sub(r"_(bucket|sum|count)$", "", name) if name not in found else name
        series = [dict(pairs) for _, pairs in found[family].samples] if family in found else []
        matchers = [(label, kind, words.split("|")) for label, kind, words in MATCHER.findall(asked)]
        alternatives = [word for _, kind, words in matchers if kind in ("=", "=~") for word in words] or [""]
        missing += [
            f"{name} {alternative}".strip()
            for alternative in alternatives
            if not any(all(answers(item, *matcher, alternative) for matcher in matchers) for item in series)
        ]
    return missing


def answers(series: dict[str, str], label: str, kind: str, words: list[str], alternative: str) -> bool:
    """Return whether a series meets a condition on a label. `alternative`: the only one of the words to try."""
    is_one = any(re.fullmatch(word, series.get(label, "")) for word in words)
    return not is_one if kind.startswith("!") else re.fullmatch(alternative, series.get(label, "")) is not None


@pytest.mark.asyncio(loop_scope="function")
async def test_every_alert_rule_has_its_metric_from_the_first_scrape(tmp_path: Path) -> None:
    async with running(tmp_path, '[[terminals]]\nserial = "SN-1"\n') as posd:
        daemon = await families(posd)
    office = await RelayCounters().text() + collector.metrics_text(
        collector.CollectorCounters(), 0, FleetSummary(0, 0, 0, 0, 0, 0, 0, 0, {}, {})
    )
    missing = {
        f"{alert}: {metric}"
        for file, found in (("prometheus-rules.yml", daemon), ("fleet-rules.yml", read(office)))
        for alert, expression in rules(file).items()
        for metric in without_series(expression, found)
        if metric.split(" ")[0] not in APPEARS | HAS_A_RULE_OF_ITS_OWN
    }
    assert missing == set()


@pytest.mark.parametrize("file", ["prometheus-rules.yml", "fleet-rules.yml"])
def test_no_rule_uses_the_increase_of_a_series_that_appears_with_its_first_value(file: str) -> None:
    for alert, expression in rules(file).items():
        if APPEARS & {name for name, _ in SELECTOR.findall(expression)}:
            assert not re.search(r"increase|rate", expression), alert


@pytest.mark.asyncio(loop_scope="function")
async def test_the_alert_for_an_unreachable_terminal_fires_for_every_cause(tmp_path: Path) -> None:
    alert = rules("prometheus-rules.yml")["PosdTerminalUnreachable"]
    assert alert == "posd_terminal_reachable == 0"
    async with AsyncExitStack() as stack:
        gone, present, refused, removed = [
            await stack.enter_async_context(scripted_terminal(tmp_path, serial))
            for serial in ("SN-GONE", "SN-PRESENT", "SN-REFUSED", "SN-REMOVED")
        ]
        never = '[[terminals]]\nserial = "SN-NEVER"\n'
        stay = never + gone.toml + present.toml + refused.toml.replace("SN-REFUSED.ca", "SN-GONE.ca")
        posd = await stack.enter_async_context(running(tmp_path, stay + removed.toml))

        async def fires(*expected: str) -> None:
            """Probe the terminals until the alert fires for exactly the expected terminals."""
            firing = None
            async with asyncio.timeout(PATIENCE_SECONDS):
                while firing != set(expected):
                    await posd.call("GET", "/terminals?check=true")
                    samples = (await families(posd))["posd_terminal_reachable"].samples
                    firing = {dict(pairs)["terminal"] for (_, pairs), number in samples.items() if number == 0}

        await fires("SN-NEVER", "SN-REFUSED")
        await gone.unplug()
        await removed.unplug()
        off = ("SN-NEVER", "SN-REFUSED", "SN-GONE")
        await fires(*off, "SN-REMOVED")
        await reloaded(posd, stay)
        await fires(*off)
        found = await families(posd)
        for name in FAMILIES:
            if name.startswith("posd_terminal_"):
                assert {dict(pairs)["terminal"] for _, pairs in found[name].samples} == {*off, "SN-PRESENT"}, name
