"""Checks of the metrics, the alert rules and the dashboards by Prometheus' own promtool (Debian's package prometheus).
Each check gets a working directory. A failed check raises AssertionError with promtool's output.
"""

import asyncio
import json
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from posd.collect import collector as metrics
from posd.collect.questions import FleetSummary
from posd.relay.relay import RelayCounters
from tests.e2e.test_metrics import scrape
from tests.rig.outcomes import every_outcome
from tests.rig.shop import open_shop
from tests.system.machine import need
from tests.system.report import Report

#: Time limit of a run of promtool, in seconds.
SECONDS = 120
MONITORING = Path(__file__).parents[2] / "monitoring"
RULES = [MONITORING / name for name in ("prometheus-rules.yml", "fleet-rules.yml")]
RULE_TESTS = [MONITORING / name for name in ("prometheus-rules.test.yml", "fleet-rules.test.yml")]
DASHBOARDS = [MONITORING / name for name in ("grafana-dashboard.json", "grafana-fleet.json")]


def run(report: Report, scratch: Path) -> None:
    """Run the part."""
    for look in (check_metrics, check_rules, check_dashboard):
        with report.check(str(look.__doc__)):
            need("promtool", "prometheus")
            look(scratch)


def check_metrics(_: Path) -> None:
    """The metrics after every kind of outcome have the right format and conventional names"""
    promtool("check", "metrics", given=asyncio.run(_loaded_metrics()))
    promtool("check", "metrics", given=asyncio.run(_fleet_metrics()))


def check_rules(_: Path) -> None:
    """Every alert rule can be loaded. Every alert fires when its tests expect it, and not earlier."""
    promtool("check", "rules", *map(str, RULES))
    promtool("test", "rules", *map(str, RULE_TESTS))


def check_dashboard(directory: Path) -> None:
    """Prometheus can parse every query of the dashboards."""
    panels = [panel for path in DASHBOARDS for panel in json.loads(path.read_text())["panels"]]
    asked = [target["expr"] for panel in panels for target in panel.get("targets", []) if "expr" in target]
    asked = [each.replace("$__rate_interval", "1m").replace("$instance", ".*") for each in asked]
    rules = [{"record": f"dashboard:question:{number}", "expr": question} for number, question in enumerate(asked)]
    file = directory / "dashboard.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))  # JSON is YAML
    promtool("check", "rules", str(file))


def promtool(*words: str, given: str = "") -> None:
    """Run promtool. Raise AssertionError if promtool finds a fault."""
    run = subprocess.run(["promtool", *words], input=given, capture_output=True, text=True, timeout=SECONDS)
    said = run.stdout + run.stderr
    assert run.returncode == 0, said
    assert given == "" or not said, said  # promtool prints nothing if the metrics are correct


async def _fleet_metrics() -> str:
    relay, fleet = (
        RelayCounters(started=0.0, waiting_changes=1, state_timestamp_seconds=1.0),
        FleetSummary(1, 0, 0, 0, 0, 0, 0, 0, {"ok": 1}, {"stuck": 1}),
    )
    return await relay.text() + metrics.metrics_text(metrics.CollectorCounters(), 1, fleet)


async def _loaded_metrics() -> str:
    with TemporaryDirectory(prefix="posd-", dir="/tmp") as directory:  # the path must be short enough for Unix sockets
        async with open_shop(Path(directory)) as shop:
            await every_outcome(shop)
            return (await scrape(shop.daemon.till_socket)).text
