"""The examples of the documents run unchanged, in the directory that docs/start/first-payment.md makes.

`tests.system` runs the examples that need a whole system (docs/guides/install.md). tests/recipes runs the recipes.
tests/cli/manual runs the manual and operations.md. tests/e2e runs streams.md. All other command lines are at least
parsed.
"""

import ast
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import posd.client
from posd.client import Posd, Problem
from tests.rig import ports
from tests.rig.command_lines import LINE, parse, words_of
from tests.test_documents import ROOT, each_document

pytestmark = pytest.mark.slow

FENCED = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: Limit of a command in seconds. A simulated payment takes one or two seconds.
PATIENCE = 60.0
#: Pattern of a call of a test tool in a shell block, with the options.
TOOL = re.compile(r"^(?:sudo )?(?:\S*/)?python -m (tests\.\w+)(.*)$", re.MULTILINE)

#: Program that starts a payment, and ends when the payment runs.
BEGINS = """posd charge 11.20 --json | tail -n 1 > /tmp/posd/by-hand.json &
until curl -s http://127.0.0.1:6870/terminals/SIM-1 | grep -q TERMINAL_ACKNOWLEDGED; do :; done"""


def blocks(document: str, *languages: str) -> list[str]:
    """Return the fenced blocks of a document in one of these languages."""
    text = (ROOT / document).read_text("utf-8")
    return [block for language, block in FENCED.findall(text) if language in languages]


@dataclass(frozen=True)
class Place:
    """A directory that replaces /tmp/posd of the pages, with free ports instead of the ports of the pages."""

    directory: Path
    ports: dict[str, int]

    def script(self, text: str) -> str:
        """Return the command, adapted to this directory."""
        for port, own in self.ports.items():
            text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{own}")
        text = text.replace("/run/posd/till.sock", "/tmp/posd/run/till.sock")
        return text.replace("/tmp/posd", str(self.directory))

    @property
    def environment(self) -> dict[str, str]:
        """Environment of the shells of the page."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return os.environ | {"PATH": path, "POSD_CONFIG": str(self.directory / "config.toml")}

    def start(self, text: str) -> "subprocess.Popen[bytes]":
        """Start a shell with a script. Kill the shell and all its processes at the end."""
        log = (self.directory / "shells.log").open("ab")
        with log:
            return subprocess.Popen(
                ["bash", "-ec", self.script(text)],
                cwd=ROOT,
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def run(self, text: str) -> str:
        """Run a script to its end. Return the output."""
        done = subprocess.run(
            ["bash", "-ec", self.script(text)],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Run the set-up of docs/start/first-payment.md, with the controllable terminal of docs/guides/simulator.md."""
    directory = tmp_path_factory.mktemp("p")
    here = Place(directory, {port: ports.reserve() for port in ("8443", "6869", "6870")})
    configure, _terminal, daemon, *_ = blocks("docs/start/first-payment.md", "bash")
    terminal, _, posd_run = blocks("docs/guides/simulator.md", "bash")[0].partition("posd run")
    assert posd_run
    here.run(configure.replace("export POSD_CONFIG=", "# "))
    shells = [here.start(terminal)]
    try:
        here.run("until test -e /tmp/posd/sim/tls/ca.crt; do :; done")
        shells.append(here.start(daemon))
        here.run("""until posd terminals --json 2> /dev/null | grep -q '"reachable": *true'; do :; done""")
        yield here
    finally:
        for shell in shells:
            os.killpg(shell.pid, signal.SIGTERM)
        for shell in shells:
            shell.wait(PATIENCE)


@pytest.mark.parametrize("number", [3, 4])
def test_the_first_payment_and_one_with_a_lost_reply_are_approved(place: Place, number: int) -> None:
    said = place.run(blocks("docs/start/first-payment.md", "bash")[number])
    outcome = list(documents(said))[-1]
    assert outcome.get("result") == "approved", said


def test_a_terminal_is_controlled_by_hand(place: Place) -> None:
    block = next(block for block in blocks("docs/guides/simulator.md", "bash") if "by-hand" in block)
    said = place.run(block.replace("# … the till starts a payment …", BEGINS) + "wait")
    assert '"serial"' in said
    ended = json.loads((place.directory / "by-hand.json").read_text("utf-8"))
    assert ended["outcome"]["result"] == "approved"


def test_a_new_scenario_begins_as_a_copy_of_an_existing_scenario(place: Place) -> None:
    block = next(block for block in blocks("docs/guides/simulator.md", "bash") if "mine.toml" in block)
    place.run(block.splitlines()[0])
    assert "steps" in tomllib.loads((place.directory / "mine.toml").read_text("utf-8"))


def test_both_ways_to_read_metrics_work(place: Place) -> None:
    said = place.run(blocks("docs/reference/metrics.md", "sh")[0])
    assert said.count("# HELP posd_build_info") == 2


def test_the_examples_of_the_client_work(place: Place, tmp_path: Path) -> None:
    whole, *parts = blocks("docs/guides/client.md", "python")
    program = tmp_path / "charge.py"
    program.write_text(whole)
    environment = place.environment | {"POSD_SOCKET": str(place.directory / "run" / "till.sock")}
    command = [sys.executable, str(program)]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert "\nPAID 11.20\n(book it, by the id) 11.20\n" in done.stdout
    with Posd(str(place.directory / "run" / "admin.sock")) as client:
        names = vars(posd.client) | {"posd": client, "id": uuid.uuid4(), "place": None}
        names["payment"] = client.charge(names["id"], "11.20")
        names["outcome"] = names["payment"].outcome()
        for part in parts:
            for statement in ast.parse(part.replace("SN-0001", "SIM-1")).body:
                if not isinstance(statement, ast.AsyncWith):
                    run(statement, names)


def documents(said: str) -> Iterator[Any]:
    """Yield the JSON documents of a text."""
    place, decoder = 0, json.JSONDecoder()
    while place < len(said):
        document, place = decoder.raw_decode(said, place)
        yield document
        place += len(said[place:]) - len(said[place:].lstrip())


def run(statement: ast.stmt, names: dict[str, Any]) -> None:
    """Run one statement of a page. posd may refuse the call, because the payment has ended."""
    with suppress(Problem):
        exec(compile(ast.Module([statement], []), "docs/guides/client.md", "exec"), names)


def typed(document: Path) -> Iterator[str]:
    """Yield the lines with posd in the shell blocks of a document."""
    for language, block in FENCED.findall(document.read_text("utf-8")):
        if language in ("sh", "bash"):
            yield from filter(LINE.fullmatch, block.replace("\\\n", " ").splitlines())


@each_document
def test_each_command_line_is_valid(document: Path) -> None:
    for line in typed(document):
        parse(words_of(line.partition(" #")[0].replace("$id", "ID").removesuffix("…").rstrip()))


@each_document
def test_each_tool_has_the_documented_options(document: Path) -> None:
    for module, rest in TOOL.findall(document.read_text("utf-8").replace("\\\n", " ")):
        options = {word.partition("=")[0] for word in shlex.split(rest, comments=True) if word.startswith("--")}
        if options:
            done = subprocess.run(
                [sys.executable, "-m", module, "--help"], cwd=ROOT, capture_output=True, text=True, check=True
            )
            assert sorted(options - set(re.findall(r"--[\w-]+", done.stdout))) == [], module


@each_document
def test_each_example_of_configuration_or_json_is_valid(document: Path) -> None:
    for language, block in FENCED.findall(document.read_text("utf-8")):
        if language == "toml":
            tomllib.loads(block)
        elif language == "json":
            json.loads(block)
