"""`posd terminals`: addresses, why one is unreachable, other devices that claim to be it."""

import json
from pathlib import Path
from typing import Any

import pytest

from posd.base.problems import remedy
from posd.terminals.identity import steps
from tests.cli.documents import answer
from tests.cli.processes import posd, posd_on_terminal
from tests.cli.stub import Answer, Stub


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


def listed(*items: dict[str, Any]) -> Answer:
    return answer({"terminals": list(items)})


def rows(text: str) -> list[list[str]]:
    return [line.split("\t") for line in text.splitlines()]


def test_a_line_for_each_in_a_pipe_with_the_reason_at_its_end(tmp_path: Path) -> None:
    with Stub(tmp_path / "s.sock", [listed(terminal(), LOST, NOWHERE, CLAIMED, STRANGER)]) as stub:
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


def test_json_is_the_daemons_own(tmp_path: Path) -> None:
    answer = listed(LOST)
    with Stub(tmp_path / "s.sock", [answer]) as stub:
        done = posd("terminals", "--json", socket=stub.socket)
    assert (done.returncode, json.loads(done.stdout)) == (0, json.loads(answer.body))


def test_on_a_terminal_the_reasons_stand_below_the_table(tmp_path: Path) -> None:
    with Stub(tmp_path / "s.sock", [listed(LOST, CLAIMED)]) as stub:
        seen = posd_on_terminal("terminals", socket=stub.socket, columns=140)
    assert seen.returncode == 0
    text = " ".join(seen.screen.split())
    assert "SN-1: nothing listens there" in text
    assert "SN-3: also announced at https://192.0.2.9:1, which is not trusted: x" in text
    assert "192.0.2.8" not in text


@pytest.mark.parametrize("arguments", [("terminals", "nonsense"), ("terminals", "--nonsense")], ids=str)
def test_what_is_not_there_is_a_usage_error(arguments: tuple[str, ...]) -> None:
    assert posd(*arguments).returncode == 2


def test_a_daemon_that_is_not_there_is_told_at_the_start(tmp_path: Path) -> None:
    assert posd("terminals", socket=tmp_path / "nobody.sock").returncode == 3


def test_why_it_is_not_sure_which_device_is_a_terminal_is_said(tmp_path: Path) -> None:
    """The device at the one address may be another terminal, put in its place."""
    claim = {"base_url": "https://192.0.2.7", "source": "config", "since": "2026-11-17T03:00:00.000Z", "proof": "none"}
    swapped = {"serial": "SN-1", "base_url": "https://192.0.2.7"}
    swapped |= {"identity": {"proof": "none", "conflict": True, "claims": [claim]}}
    why = "the device at https://192.0.2.7 says that it is terminal SN-2, not SN-1: no payment is sent there"
    check = {"status": "degraded", "detail": why, "todo": remedy(steps("SN-1", "SN-2"))}
    health = {"status": "degraded", "checks": {"identity": check}}
    with Stub(tmp_path / "s", [answer({"terminals": []}), answer(swapped), answer(health)]) as stub:
        done = posd("terminals", "identity", "SN-1", socket=stub.socket)
    assert (done.returncode, why in done.stdout) == (1, True), done.stdout
    assert "write SN-2 in place of SN-1 into [[terminals]]" in done.stdout
