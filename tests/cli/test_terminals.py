"""`posd terminals`: where each is, why one is not reachable, who else claims to be it; once, or with --watch."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from posd.terminals.identity import todo
from tests.cli.documents import answer
from tests.cli.processes import posd, posd_on_terminal, processes_naming, started_posd
from tests.cli.stub import Answer, Stub

PATIENCE_SECONDS = 60.0


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory with a path short enough for Unix sockets."""
    with TemporaryDirectory(prefix="posd-") as directory:
        yield Path(directory)


def terminal(serial: str = "SN-1", **changes: Any) -> dict[str, Any]:
    return {
        "serial": serial,
        "brand": "B",
        "model": "M",
        "base_url": "https://192.0.2.7:6869",
        "source": "mdns",
        "reachable": True,
        "last_seen": "2026-11-20T10:00:00.000Z",
        "transaction": None,
        "reason": None,
        "checked_at": "2026-11-20T10:00:00.000Z",
        "claims": [],
    } | changes


LOST = terminal(reachable=False, reason="nothing listens there")
NOWHERE = terminal("SN-2", base_url=None, source=None, reachable=None, last_seen=None, reason="it has not announced")
CLAIMED = terminal(
    "SN-3",
    claims=[
        {"base_url": "https://192.0.2.8:1", "same_device": True, "state": "silent", "reason": "off", "last_seen": ""},
        {"base_url": "https://192.0.2.9:1", "same_device": False, "state": "refused", "reason": "x", "last_seen": ""},
    ],
)
STRANGER = terminal("SN-4", in_fleet=False, reachable=None)


def listed(*items: dict[str, Any], before: Callable[[], object] | None = None) -> Answer:
    return Answer(body=json.dumps({"terminals": list(items)}).encode(), before=before)


def rows(text: str) -> list[list[str]]:
    return [line.split("\t") for line in text.splitlines()]


def test_a_line_for_each_in_a_pipe_with_the_reason_at_its_end(home: Path) -> None:
    with Stub(home / "s.sock", [listed(terminal(), LOST, NOWHERE, CLAIMED, STRANGER)]) as stub:
        done = posd("terminals", "--all", socket=stub.socket)
    assert done.returncode == 0, done.stderr
    head, ours, lost, nowhere, claimed, stranger = rows(done.stdout)
    assert head == ["serial", "model", "address", "source", "reachable", "payment", "seen", "why"]
    assert ours[:6] == ["SN-1", "B M", "https://192.0.2.7:6869", "mdns", "yes", "-"]
    assert ours[7] == "-"
    assert (lost[4], lost[7]) == ("no", "nothing listens there")
    assert nowhere[2:5] == ["no address", "-", "not known"]
    assert nowhere[6:] == ["-", "it has not announced"]
    assert claimed[7] == "also announced at https://192.0.2.9:1, which is not trusted: x"
    assert stranger[0] == "SN-4 (not in the fleet)"
    assert [call.path for call in stub.calls] == ["/v1/terminals?all=true&check=true"]


def test_json_is_the_daemons_own(home: Path) -> None:
    answer = listed(LOST)
    with Stub(home / "s.sock", [answer]) as stub:
        done = posd("terminals", "--json", socket=stub.socket)
    assert (done.returncode, json.loads(done.stdout)) == (0, json.loads(answer.body))


def test_on_a_terminal_the_reasons_stand_below_the_table(home: Path) -> None:
    with Stub(home / "s.sock", [listed(LOST, CLAIMED)]) as stub:
        seen = posd_on_terminal("terminals", socket=stub.socket, columns=140)
    assert seen.returncode == 0
    text = " ".join(seen.screen.split())
    assert "SN-1: nothing listens there" in text
    assert "SN-3: also announced at https://192.0.2.9:1, which is not trusted: x" in text
    assert "192.0.2.8" not in text


@pytest.mark.parametrize("arguments", [("terminals", "nonsense"), ("terminals", "--nonsense")], ids=str)
def test_what_is_not_there_is_a_usage_error(arguments: tuple[str, ...]) -> None:
    assert posd(*arguments).returncode == 2


def interrupting(home: Path) -> Callable[[], None]:
    """Press Ctrl-C in the command whose line names this directory."""

    def interrupt() -> None:
        for pid in processes_naming(home):
            os.kill(pid, signal.SIGINT)

    return interrupt


def watch(home: Path, script: list[Answer], *options: str) -> tuple[int, str, str]:
    """Run it until the script presses Ctrl-C: exit code, output, what was said beside it."""
    with Stub(home / "s.sock", script) as stub:
        environment = {"POSD_SOCKET": str(stub.socket)}
        arguments = ("terminals", "--watch", *options)
        with started_posd(*arguments, config=home / "config.toml", environment=environment) as process:
            output, beside = process.communicate(timeout=PATIENCE_SECONDS)
    return process.returncode, output, beside


@pytest.mark.slow
def test_watching_in_a_pipe_is_a_line_for_each_change(home: Path) -> None:
    script = [
        listed(terminal(), NOWHERE),
        listed(terminal(last_seen="2026-11-20T10:00:01.000Z"), NOWHERE),
        Answer(cut=True),
        listed(LOST, NOWHERE),
        listed(LOST, before=interrupting(home)),
    ]
    code, output, beside = watch(home, script)
    assert code == 0
    head, *lines = rows(output)
    assert head[:2] == ["time", "serial"]
    assert [line[1] for line in lines[:3]] == ["SN-1", "SN-2", "SN-1"]
    assert (lines[2][5], lines[2][8]) == ("no", "nothing listens there")
    assert "still watching" in beside
    assert "posd is back" in beside


@pytest.mark.slow
def test_watching_as_json_is_a_document_a_line(home: Path) -> None:
    script = [listed(terminal()), listed(terminal(checked_at="2026-11-20T10:00:01.000Z")), listed(LOST)]
    code, output, _ = watch(home, [*script, listed(LOST, before=interrupting(home))], "--json")
    assert code == 0
    assert [json.loads(line)["terminals"][0]["reachable"] for line in output.splitlines()] == [True, False]


@pytest.mark.slow
def test_watching_on_a_terminal_draws_it_anew(home: Path) -> None:
    script = [listed(terminal()), Answer(cut=True), listed(), listed(LOST), listed(LOST, before=interrupting(home))]
    with Stub(home / "s.sock", script) as stub:
        seen = posd_on_terminal("terminals", "--watch", socket=stub.socket, columns=140)
    assert seen.returncode == 0
    for words in (
        "https://192.0.2.7:6869",
        "still watching",
        "No terminals",
        "nothing listens there",
        "Ctrl-C ends it",
    ):
        assert words in seen.screen
    assert "Traceback" not in seen.screen


def test_a_daemon_that_is_not_there_is_told_at_the_start(home: Path) -> None:
    assert posd("terminals", "--watch", socket=home / "nobody.sock").returncode == 3


def test_why_it_is_not_sure_which_device_is_a_terminal_is_said(home: Path) -> None:
    """The device at the one address may be another terminal, put in its place."""
    claim = {"base_url": "https://192.0.2.7", "source": "config", "since": "2026-11-17T03:00:00.000Z", "proof": "none"}
    swapped = {"serial": "SN-1", "base_url": "https://192.0.2.7"}
    swapped |= {"identity": {"proof": "none", "conflict": True, "claims": [claim]}}
    why = "the device at https://192.0.2.7 says that it is terminal SN-2, not SN-1: no payment is sent there"
    check = {"status": "degraded", "detail": why, "todo": todo("SN-1", "SN-2")}
    health = {"status": "degraded", "checks": {"identity": check}}
    with Stub(home / "s", [answer({"terminals": []}), answer(swapped), answer(health)]) as stub:
        done = posd("terminals", "identity", "SN-1", socket=stub.socket)
    assert (done.returncode, why in done.stdout) == (1, True), done.stdout
    assert "write SN-2 in place of SN-1 into [[terminals]]" in done.stdout
