"""docs/metrics.md and what lies in monitoring/: true to the metrics and to the commands that there are."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from posd.api.metrics import FAMILIES
from posd.cli.main import COMMANDS
from posd.payments.model import AttentionCode

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "metrics.md"
RULES = (ROOT / "monitoring" / "prometheus-rules.yml").read_text()
TESTS = (ROOT / "monitoring" / "prometheus-rules.test.yml").read_text()
DASHBOARD: dict[str, Any] = json.loads((ROOT / "monitoring" / "grafana-dashboard.json").read_text())

#: alert -> its part of the file.
ALERTS = {block.split("\n")[0]: block for block in re.split(r"\n *- alert: ", RULES)[1:]}
#: Metrics that are not posd's.
OTHERS = {"up", "node_textfile_mtime_seconds"}


def table() -> str:
    """Return the table of the page, as the code has it."""
    rows = ["| metric | type | labels | meaning |", "| --- | --- | --- | --- |"]
    for family in FAMILIES.values():
        labels = ", ".join(f"`{name}`" for name in family.labels)
        rows.append(f"| `{family.name}` | {family.kind} | {labels} | {family.help} |")
    return "\n".join(rows)


def used(text: str) -> set[str]:
    """Return the metrics of posd that a text names."""
    names = set(re.findall(r"\bposd_[a-z_]+\b", text))
    return {re.sub(r"_(bucket|sum|count)$", "", name) if name not in FAMILIES else name for name in names}


def test_the_page_has_every_metric_as_it_is() -> None:
    assert f"\n\n{table()}\n\n<!-- /metrics -->" in PAGE.read_text(), table()


def test_the_rules_and_the_dashboard_ask_for_nothing_that_is_not_there() -> None:
    for text in (RULES, TESTS, json.dumps(DASHBOARD)):
        names = used(text)
        assert names
        assert names <= set(FAMILIES), names - set(FAMILIES)


def test_the_dashboard_shows_every_metric() -> None:
    hidden = set(FAMILIES) - used(json.dumps(DASHBOARD["panels"]))
    assert hidden == set()


def test_labels_in_rules_and_dashboard_are_those_of_the_metric() -> None:
    always = {"instance", "job", "le"}
    for text in (RULES, json.dumps(DASHBOARD["panels"]).replace('\\"', '"')):
        for name, inside in re.findall(r"\b(posd_[a-z_]+)\{([^}]*)\}", text):
            family = FAMILIES[re.sub(r"_(bucket|sum|count)$", "", name)]
            labels = set(re.findall(r"([a-z_]+)(?:=~|!~|!=|=)", inside))
            assert labels <= always | set(family.labels), (name, labels)


def test_attention_codes_in_the_rules_exist() -> None:
    for codes in re.findall(r'posd_attention\{code[=!]~"([^"]*)"\}', RULES):
        assert set(codes.split("|")) <= set(AttentionCode)


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_says_what_is_wrong_and_what_to_type(alert: str) -> None:
    block = ALERTS[alert]
    for line in ("expr", "severity", "summary", "description", "runbook"):
        assert re.search(rf"^ +{line}: \S", block, re.MULTILINE), line
    (runbook,) = re.findall(r"runbook: (.*)", block)
    commands = re.findall(r"\bposd ([a-z][a-z-]*)", re.sub(r"(journalctl|systemctl)[^;\"]*", "", runbook))
    assert set(commands) <= set(COMMANDS), commands
    assert commands or "systemctl" in runbook or "journalctl" in runbook


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not(alert: str) -> None:
    cases = re.findall(rf"alertname: {alert}\n +exp_alerts:(.*)", TESTS)
    assert " []" in cases
    assert "" in cases


def test_panels_stand_side_by_side() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"], panel["title"]
    rows = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    assert {"Payments", "Doubt and attention", "Terminals", "Webhooks", "Storage", "Process"} <= set(rows)
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
