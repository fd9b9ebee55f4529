"""What Prometheus itself says of the metrics, the alert rules and the dashboard: promtool, of Debian's prometheus.

Each check is given a directory to work in, returns what it looked at, and raises AssertionError with promtool's words.
"""

import asyncio
import json
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.e2e.test_metrics import scrape
from tests.support.exposition import read
from tests.support.outcomes import every_outcome
from tests.support.shop import open_shop

#: Nothing that promtool is asked here takes longer. Seconds.
SECONDS = 120
MONITORING = Path(__file__).parents[2] / "monitoring"
RULES = MONITORING / "prometheus-rules.yml"
RULE_TESTS = MONITORING / "prometheus-rules.test.yml"
DASHBOARD = MONITORING / "grafana-dashboard.json"

#: What Grafana puts in place of its variables.
VARIABLES = {"$__rate_interval": "1m", "$instance": ".*"}


def check_metrics(directory: Path) -> str:
    """A daemon that was through every kind of outcome: its metrics are well formed, and named by the conventions."""
    text = asyncio.run(_loaded_metrics())
    promtool("check", "metrics", given=text)
    return f"{len(read(text))} metrics"


def check_rules(directory: Path) -> str:
    """Every rule can be loaded."""
    return promtool("check", "rules", str(RULES))


def test_rules(directory: Path) -> str:
    """Every alert fires where its tests say, and not before."""
    return promtool("test", "rules", str(RULE_TESTS))


def check_dashboard(directory: Path) -> str:
    """Every question that the dashboard asks is one that Prometheus can read."""
    lines = ["groups:", "  - name: dashboard", "    rules:"]
    asked = questions()
    for number, question in enumerate(asked):
        for variable, value in VARIABLES.items():
            question = question.replace(variable, value)
        lines += [f"      - record: dashboard:question:{number}", f"        expr: {json.dumps(question)}"]
    rules = directory / "dashboard.yml"
    rules.write_text("\n".join(lines) + "\n")
    promtool("check", "rules", str(rules))
    return f"{len(asked)} questions"


def questions(path: Path = DASHBOARD) -> list[str]:
    """Return every expression of the dashboard."""
    panels = json.loads(path.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", [])]


def promtool(*words: str, given: str = "") -> str:
    """Run promtool; return what it says. Raise AssertionError where it finds anything wrong."""
    run = subprocess.run(["promtool", *words], input=given, capture_output=True, text=True, timeout=SECONDS)
    said = run.stdout + run.stderr
    assert run.returncode == 0, said
    assert given == "" or not said, said  # of metrics it says nothing where all is well
    return " ".join(said.split())


async def _loaded_metrics() -> str:
    with TemporaryDirectory(prefix="posd-", dir="/tmp") as directory:  # short enough for sockets
        async with open_shop(Path(directory)) as shop:
            await every_outcome(shop)
            return (await scrape(shop.daemon.till_socket)).text
