"""`posd terminals`: addresses, the reason why a terminal is unreachable, and other devices with its serial."""

from typing import Any

from msgspec import to_builtins as encoded

from posd.terminals.identity import steps
from tests.cli.documents import answer
from tests.cli.processes import asked


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


def test_a_pipe_gets_one_line_for_each_terminal_with_the_reason_at_its_end() -> None:
    done = asked([answer({"terminals": [terminal(), LOST, NOWHERE, CLAIMED, STRANGER]})], "terminals", "--all")
    assert (done.returncode, done.calls[0].path) == (0, "/v1/terminals?all=true&check=true"), done.stderr
    head, ours, lost, nowhere, claimed, stranger = done.rows
    assert head == ["serial", "model", "address", "source", "reachable", "payment", "seen", "why"]
    assert ours[:6] == ["SN-1", "B M", "https://192.0.2.7:6869", "mdns", "yes", "-"]
    assert ours[7] == "-"
    assert (lost[4], lost[7]) == ("no", "nothing listens there")
    assert nowhere[2:5] == ["no address", "-", "not known"]
    assert nowhere[6:] == ["-", "it has not announced"]
    assert claimed[7] == "also announced at https://192.0.2.9:1, which is not trusted: x"
    assert stranger[0] == "SN-4 (not in the fleet)"


def test_the_reason_of_an_identity_conflict_is_shown() -> None:
    """The terminal has one address. The device at this address may be another terminal."""
    claim = {"base_url": "https://192.0.2.7", "source": "config", "since": "2026-11-17T03:00:00.000Z", "proof": "none"}
    swapped = {"serial": "SN-1", "base_url": "https://192.0.2.7"}
    swapped |= {"identity": {"proof": "none", "conflict": True, "claims": [claim]}}
    why = "the device at https://192.0.2.7 says that it is terminal SN-2, not SN-1: no payment is sent there"
    check: dict[str, Any] = {"status": "degraded", "detail": why, "commands": encoded(steps("SN-1", "SN-2"))}
    health = {"status": "degraded", "checks": {"identity": check}}
    script = [answer({"terminals": []}), answer(swapped), answer(health)]
    done = asked(script, "terminals", "identity", "SN-1")
    assert (done.returncode, why in done.stdout) == (1, True), done.stdout
    assert "write SN-2 in place of SN-1 into [[terminals]]" in done.stdout
