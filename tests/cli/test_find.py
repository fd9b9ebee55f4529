"""`posd terminals find`: what it says, what it refuses, and how it ends."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from tests.cli.processes import PATIENCE, Done, posd, posd_on_terminal, started_posd
from tests.support.daemon import toml
from tests.support.street import Street, street

SUBNET = "127.78.0.0/28"
TERMINAL, NAMED, STRANGER, WEB, MUTE = "127.78.0.5", "127.78.0.6", "127.78.0.7", "127.78.0.8", "127.78.0.9"
NAME = "sn-0002.terminals.example"


class Fleet:
    """A configuration of terminals, and the street in which they are."""

    def __init__(self, home: Path, here: Street) -> None:
        self.home = home
        self.here = here
        self.config = home / "config.toml"
        self.authority = trustme.CA()
        self.authority.cert_pem.write_to_path(str(home / "ca.pem"))
        self.terminals: list[str] = []

    def add(self, serial: str, *lines: str) -> None:
        """Add a terminal to the configuration, with these lines."""
        self.terminals.append("\n".join(["[[terminals]]", f'serial = "{serial}"', *lines, ""]))
        self.config.write_text(toml(self.home, "".join(self.terminals)))

    def pinned(self, serial: str, address: str, *lines: str) -> str:
        """Add a terminal that is pinned and is at that address; return its fingerprint."""
        fingerprint = self.here.terminal(address, self.authority.issue_cert(address))
        self.add(serial, f'fingerprint_sha256 = "{fingerprint}"', *lines)
        return fingerprint

    def find(self, *arguments: str, subnet: str = SUBNET) -> Done:
        """Look for them."""
        command = ("terminals", "find", "--subnet", subnet, "--port", str(self.here.port), *arguments)
        return posd(*command, config=self.config)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with street() as here:
        yield Fleet(tmp_path, here)


def test_what_is_found_is_told_with_the_line_for_the_configuration(fleet: Fleet) -> None:
    fingerprint = fleet.pinned("SN-0001", TERMINAL)
    fleet.here.terminal(NAMED, fleet.authority.issue_cert(NAME))
    fleet.add("SN-0002", 'ca_file = "ca.pem"', f'server_name = "{NAME}"')
    fleet.add("SN-0003")
    fleet.here.web(WEB)
    done = fleet.find()
    port = fleet.here.port
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("Tried ")
    assert f" of 14 addresses of {SUBNET} on port {port}: " in lines[0]
    assert f"  {TERMINAL}: terminal SN-0001" in lines
    assert f"    fingerprint {fingerprint}" in lines
    assert f"Terminal SN-0001 is found. In its [[terminals]] of {fleet.config} put:" in lines
    assert f'    base_url = "https://{TERMINAL}:{port}"' in lines
    assert f'    base_url = "https://{NAMED}:{port}"' in lines
    assert any(line.startswith("Terminal SN-0003 was not looked for: ") for line in lines)


def test_the_line_that_is_printed_makes_the_configuration_right(fleet: Fleet) -> None:
    fingerprint = fleet.pinned("SN-0001", TERMINAL)
    (line,) = [line.strip() for line in fleet.find().stdout.splitlines() if "base_url =" in line]
    fleet.terminals.clear()
    fleet.add("SN-0001", line, f'fingerprint_sha256 = "{fingerprint}"')
    done = posd("terminals", "find", "--subnet", SUBNET, config=fleet.config)  # with the port that it names now
    assert done.returncode == 0
    assert f"SN-0001 is where the configuration says: https://{TERMINAL}:{fleet.here.port}" in done.stdout
    assert "base_url =" not in done.stdout


def test_what_is_not_found_exits_1_and_all_that_was_seen_is_told(fleet: Fleet) -> None:
    fleet.pinned("SN-0001", TERMINAL)
    fleet.add("SN-0002", f'fingerprint_sha256 = "{"0" * 64}"')
    fleet.here.terminal(STRANGER, fleet.authority.issue_cert(STRANGER))
    fleet.here.web(WEB)
    done = fleet.find()
    assert done.returncode == 1
    assert done.stdout.splitlines()[0] == (
        f"Tried 14 of 14 addresses of {SUBNET} on port {fleet.here.port}: 3 listen, 2 of them with TLS; 11 refuse, "
        "0 are silent."
    )
    assert f"  {STRANGER}: a certificate that is not looked for" in done.stdout
    assert f"  {WEB}: it does not speak TLS" in done.stdout
    assert "Terminal SN-0002 was not found." in done.stdout
    assert "stopped" not in done.stdout


def test_one_terminal_alone_is_looked_for_by_its_serial(fleet: Fleet) -> None:
    fleet.add("SN-0001", f'fingerprint_sha256 = "{"0" * 64}"')
    fleet.pinned("SN-0002", TERMINAL)
    done = fleet.find("--serial", "SN-0002", "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["ok"]) == (0, True)
    assert document["terminals"] == [
        {"serial": "SN-0002", "base_url": f"https://{TERMINAL}:{fleet.here.port}"},
    ]


def test_as_json(fleet: Fleet) -> None:
    fingerprint = fleet.pinned("SN-0001", TERMINAL)
    fleet.add("SN-0002", f'fingerprint_sha256 = "{"0" * 64}"')
    fleet.add("SN-0003")
    done = fleet.find("--json")
    assert (done.returncode, done.stderr) == (1, "")
    document = json.loads(done.stdout)
    reason = document["not_looked_for"][0].pop("reason")
    assert "fingerprint_sha256" in reason
    assert document == {
        "ok": False,
        "subnet": SUBNET,
        "port": fleet.here.port,
        "addresses": 14,
        "tried": 14,
        "answers": {"silent": 0, "refused": 13, "no_tls": 0, "hangs": 0, "tls": 1},
        "listening": [
            {"address": TERMINAL, "answer": "tls", "fingerprint_sha256": fingerprint, "serial": "SN-0001"},
        ],
        "terminals": [
            {"serial": "SN-0001", "base_url": f"https://{TERMINAL}:{fleet.here.port}"},
            {"serial": "SN-0002", "base_url": None},
        ],
        "not_looked_for": [{"serial": "SN-0003"}],
    }


PIN = f'fingerprint_sha256 = "{"0" * 64}"'
CLOUD = ('access_mode = "cloud"', 'base_url = "https://service.example"')


@pytest.mark.parametrize(
    ("terminals", "arguments", "words"),
    [
        ([("SN-1", PIN)], (), "say where to look: "),
        ([("SN-1", PIN)], ("--subnet", "10.0.0.0/16"), "a /22 or smaller"),
        ([("SN-1", PIN)], ("--subnet", "8.8.8.0/24"), "not a private network"),
        ([("SN-1", PIN)], ("--subnet", "fd00::/64"), "a /118 or smaller"),
        ([("SN-1", PIN)], ("--subnet", "shop"), "no subnet"),
        ([("SN-1", PIN)], ("--subnet", SUBNET, "--serial", "SN-2"), "(there: SN-1)"),
        ([("SN-1", PIN), ("SN-2", *CLOUD)], ("--subnet", SUBNET, "--serial", "SN-2"), "through the cloud"),
        ([("SN-1", *CLOUD)], ("--subnet", SUBNET), "names no terminal on the local network"),
        ([], ("--subnet", SUBNET), "names no terminal on the local network"),
        ([("SN-1",)], ("--subnet", SUBNET), "posd terminals pin SN-1"),
        (
            [("SN-1", 'server_name = "pos.example"'), ("SN-2", 'server_name = "pos.example"')],
            ("--subnet", SUBNET, "--serial", "SN-1"),
            "that of another terminal too",
        ),
        (
            [("SN-1", 'server_name = "pos.example"', 'ca_file = "config.toml"')],
            ("--subnet", SUBNET),
            "holds no certificate",
        ),
        (
            [("SN-1", PIN, 'base_url = "https://10.0.0.1:7000"'), ("SN-2", PIN)],
            ("--subnet", SUBNET),
            "different ports in the configuration (6869, 7000)",
        ),
    ],
    ids=[
        "no subnet named",
        "a large subnet",
        "a public subnet",
        "a subnet of IPv6",
        "no subnet",
        "an unknown serial",
        "a serial in the cloud",
        "all in the cloud",
        "no terminals",
        "nothing to recognise it by",
        "a name that two have",
        "a CA that is none",
        "different ports",
    ],
)
def test_what_cannot_be_done_exits_2_and_looks_at_nothing(
    tmp_path: Path, terminals: list[tuple[str, ...]], arguments: tuple[str, ...], words: str
) -> None:
    entries = "".join("\n".join(["[[terminals]]", f'serial = "{serial}"', *lines, ""]) for serial, *lines in terminals)
    config = tmp_path / "config.toml"
    cloud = '[webhooks]\nlisten = "127.0.0.1:0"\npublic_url = "https://pos.example"\n'
    config.write_text(toml(tmp_path, entries).replace('[webhooks]\nlisten = "127.0.0.1:0"\n', cloud))
    done = posd("terminals", "find", *arguments, config=config)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert done.stdout == ""
    as_json = posd("terminals", "find", "--json", *arguments, config=config)
    assert as_json.returncode == 2
    assert words in json.loads(as_json.stdout)["error"]


def test_it_shows_on_a_terminal_how_far_it_is(fleet: Fleet) -> None:
    fleet.pinned("SN-0001", TERMINAL)
    fleet.add("SN-0002", PIN)
    arguments = ("--config", str(fleet.config), "terminals", "find", "--subnet", SUBNET, "--port", str(fleet.here.port))
    seen = posd_on_terminal(*arguments, socket=fleet.home / "s")
    assert seen.returncode == 1
    assert "looking, 1 found" in seen.screen
    assert "14/14" in seen.screen


def test_ctrl_c_ends_it_with_what_was_found(fleet: Fleet) -> None:
    fleet.pinned("SN-0001", "127.78.0.1")
    fleet.add("SN-0002", PIN)
    fleet.here.mute(MUTE)
    arguments = ("terminals", "find", "--subnet", SUBNET, "--port", str(fleet.here.port))
    with started_posd(*arguments, config=fleet.config) as process:
        fleet.here.wait_for_goodbye("127.78.0.1")
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=PATIENCE)
    assert (process.returncode, stderr) == (1, "")
    assert 'base_url = "https://127.78.0.1:' in stdout
    assert "Terminal SN-0002 was not found." in stdout
    assert "It was stopped before the end." in stdout
