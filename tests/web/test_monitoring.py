"""docs/reference/metrics.md and the files in monitoring/ agree with the existing metrics and commands."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from posd.base.exposition import Family
from posd.cli.main import COMMANDS
from posd.collect import collector
from posd.daemon import metrics as daemon
from posd.payments.model import AttentionCode
from posd.relay import relay

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "metrics.md").read_text()
MONITORING = ROOT / "monitoring"


class Watched(NamedTuple):
    """A set of metrics, and the files that use them."""

    families: Mapping[str, Family]
    rules: str
    tests: str
    dashboard: dict[str, Any]


def watched(families: Mapping[str, Family], rules: str, dashboard: str) -> Watched:
    texts = [(MONITORING / f"{rules}{ending}").read_text() for ending in (".yml", ".test.yml")]
    return Watched(families, *texts, json.loads((MONITORING / f"{dashboard}.json").read_text()))


DAEMON = watched(daemon.FAMILIES, "prometheus-rules", "grafana-dashboard")
FLEET = watched({**relay.FAMILIES, **collector.FAMILIES}, "fleet-rules", "grafana-fleet")
BOTH = pytest.mark.parametrize("what", [DAEMON, FLEET], ids=["daemon", "fleet"])

#: Alert -> rule and tests.
ALERTS = {
    block.split("\n")[0]: (block, what.tests)
    for what in (DAEMON, FLEET)
    for block in re.split(r"\n *- alert: ", what.rules)[1:]
}


def table(families: Mapping[str, Family]) -> str:
    """Return a table of the page, as the code generates it."""
    rows = ["| metric | type | labels | meaning |", "| --- | --- | --- | --- |"]
    for family in families.values():
        labels = ", ".join(f"`{name}`" for name in family.labels)
        rows.append(f"| `{family.name}` | {family.kind} | {labels} | {family.help} |")
    return "\n".join(rows)


def expressions(dashboard: dict[str, Any]) -> str:
    """Return all queries of a dashboard."""
    targets = [target for panel in dashboard["panels"] for target in panel.get("targets", [])]
    return "\n".join(target["expr"] for target in targets if "expr" in target)


def used(what: Watched, text: str) -> set[str]:
    """Return the metrics of posd that a text names."""
    names = set(re.findall(r"\bposd_[a-z_]+\b", text))
    return {re.sub(r"_(bucket|sum|count)$", "", name) if name not in what.families else name for name in names}


@pytest.mark.parametrize("families", [daemon.FAMILIES, relay.FAMILIES, collector.FAMILIES])
def test_the_page_shows_every_metric_correctly(families: Mapping[str, Family]) -> None:
    assert f"\n\n{table(families)}\n\n<!-- /metrics -->" in PAGE, table(families)


@BOTH
def test_the_rules_and_the_dashboard_use_only_existing_metrics(what: Watched) -> None:
    for text in (what.rules, what.tests, expressions(what.dashboard)):
        names = used(what, text)
        assert names
        assert names <= set(what.families), names - set(what.families)


@BOTH
def test_the_dashboard_shows_every_metric(what: Watched) -> None:
    hidden = set(what.families) - used(what, expressions(what.dashboard))
    assert hidden == set()


@BOTH
def test_labels_in_rules_and_dashboard_are_those_of_the_metric(what: Watched) -> None:
    always = {"instance", "job", "le"}
    for text in (what.rules, expressions(what.dashboard)):
        for name, inside in re.findall(r"\b(posd_[a-z_]+)\{([^}]*)\}", text):
            family = what.families[re.sub(r"_(bucket|sum|count)$", "", name)]
            labels = set(re.findall(r"([a-z_]+)(?:=~|!~|!=|=)", inside))
            assert labels <= always | set(family.labels), (name, labels)


def test_attention_codes_in_the_rules_exist() -> None:
    for codes in re.findall(r'posd_attention\{code[=!]~"([^"]*)"\}', DAEMON.rules):
        assert set(codes.split("|")) <= set(AttentionCode)


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_names_the_fault_and_a_command(alert: str) -> None:
    block, _ = ALERTS[alert]
    for line in ("expr", "severity", "summary", "description", "runbook"):
        assert re.search(rf"^ +{line}: \S", block, re.MULTILINE), line
    (runbook,) = re.findall(r"runbook: (.*)", block)
    commands = re.findall(r"\bposd ([a-z][a-z-]*)", re.sub(r"(journalctl|systemctl)[^;\"]*", "", runbook))
    assert set(commands) <= set(COMMANDS), commands
    assert commands or "systemctl" in runbook or "journalctl" in runbook


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_has_a_test_with_the_fault_and_a_test_without(alert: str) -> None:
    _, tests = ALERTS[alert]
    cases = re.findall(rf"alertname: {alert}\n +exp_alerts:(.*)", tests)
    assert " []" in cases
    assert "" in cases
