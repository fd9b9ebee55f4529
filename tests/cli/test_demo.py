"""The demo as a process: it shows three charges, judges them, and leaves nothing behind."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from posd.cli.demo.machine import MAX_SOCKET_PATH_BYTES, temporary_directory
from tests.cli.processes import PATIENCE, processes_naming, read_until, start_posd

#: the simulated customer's speed: a charge takes well under a second.
FAST = ("--speed", "50")
RESULTS = ["approved", "declined", "canceled"]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """The temporary directory of the demo; empty in the end, and named by no process."""
    yield tmp_path
    assert list(tmp_path.iterdir()) == []
    assert processes_naming(tmp_path) == {}


def start_demo(place: Path, *arguments: str, prefix: tuple[str, ...] = ()) -> "subprocess.Popen[str]":
    return start_posd("demo", *arguments, environment={"TMPDIR": str(place)}, prefix=prefix)


def test_three_charges_end_as_they_should(place: Path) -> None:
    demo = start_demo(place, *FAST)
    stdout, stderr = demo.communicate(timeout=PATIENCE)
    assert demo.returncode == 0, stdout + stderr
    assert stderr == ""
    assert "over mDNS" in stdout
    assert [line.rsplit("outcome: ")[1].split(",")[0] for line in stdout.splitlines() if "outcome: " in line] == RESULTS
    for status in ("TERMINAL_ACKNOWLEDGED", "CARD_PRESENTED  CONTACTLESS", "APPROVAL_REQUESTED", "TERMINAL_CANCELED"):
        assert status in stdout


def test_json_is_one_document_that_says_how_each_charge_went(place: Path) -> None:
    demo = start_demo(place, *FAST, "--json")
    stdout, stderr = demo.communicate(timeout=PATIENCE)
    assert demo.returncode == 0, stdout + stderr
    document = json.loads(stdout, parse_float=str)
    assert document["ok"]
    assert [charge["transaction"]["outcome"]["result"] for charge in document["charges"]] == RESULTS
    assert document["charges"][1]["transaction"]["amount"]["iva"] == "0.1"


def test_without_announcements_it_says_so_and_goes_on_with_the_address(place: Path) -> None:
    demo = start_demo(place, *FAST, "--no-mdns")
    stdout, stderr = demo.communicate(timeout=PATIENCE)
    assert demo.returncode == 0, stdout + stderr
    assert "heard no announcement" in stdout
    assert "All three ended as they should" in stdout


#: a network of its own with loopback up, where no program can join a multicast group.
NO_MULTICAST = 'ip link set lo up && echo 0 > /proc/sys/net/ipv4/igmp_max_memberships && exec "$@"'


def test_where_multicast_does_not_work_it_goes_on_with_the_address(place: Path) -> None:
    prefix = ("unshare", "--user", "--map-root-user", "--net", "sh", "-c", NO_MULTICAST, "sh")
    if shutil.which("unshare") is None or subprocess.run([*prefix, "true"], capture_output=True).returncode != 0:
        pytest.skip("this machine does not allow a network namespace")
    demo = start_demo(place, *FAST, prefix=prefix)
    stdout, stderr = demo.communicate(timeout=PATIENCE)
    assert demo.returncode == 0, stdout + stderr
    assert "heard no announcement" in stdout
    assert "All three ended as they should" in stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_the_middle_leaves_nothing_behind(place: Path, number: signal.Signals) -> None:
    demo = start_demo(place)
    read_until(demo, "CARD_PRESENTED")
    demo.send_signal(number)
    _, stderr = demo.communicate(timeout=PATIENCE)
    assert demo.returncode == 1
    assert "nothing is left behind" in stderr
    assert "Traceback" not in stderr


@pytest.mark.parametrize("name", ["simulate", "run"])
def test_a_process_that_dies_is_told_with_the_end_of_the_logs(place: Path, name: str) -> None:
    demo = start_demo(place)
    read_until(demo, "TERMINAL_ACKNOWLEDGED")
    [victim] = [pid for pid, line in processes_naming(place).items() if f" {name}" in line]
    os.kill(victim, signal.SIGKILL)
    _, stderr = demo.communicate(timeout=PATIENCE)
    assert demo.returncode == 1
    assert "ended by itself" in stderr
    assert "log:" in stderr
    assert "Traceback" not in stderr


def test_keep_leaves_it_running_for_the_commands_that_it_prints(place: Path) -> None:
    demo = start_demo(place, *FAST, "--keep")
    told = read_until(demo, "/proc/sys/kernel/random/uuid")
    [socket] = {word for word in told.split() if word.endswith("till.sock")}
    with httpx2.Client(transport=httpx2.HTTPTransport(uds=socket)) as till:
        assert till.get("http://posd/v1/health").status_code == 200
    demo.send_signal(signal.SIGINT)
    _, stderr = demo.communicate(timeout=PATIENCE)
    assert demo.returncode == 0, stderr


def test_a_long_temporary_directory_still_leaves_room_for_the_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 80)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    directory = temporary_directory()
    try:
        assert len(os.fsencode(directory / "run" / "admin.sock")) <= MAX_SOCKET_PATH_BYTES
    finally:
        directory.rmdir()
    assert list(long.iterdir()) == []
