"""The demo as a process. The demo shows three charges and a receipt, checks the results, and leaves no files and no
processes.
"""

import json
import os
import re
import signal
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from posd.client import Posd
from posd.sandbox import MAX_SOCKET_PATH_BYTES, temporary_directory
from tests.rig.commands import PATIENCE, Done, posd_process, read_until, started_posd
from tests.rig.leftovers import processes_naming
from tests.rig.needs import lacking, needs
from tests.rig.slow import first_quick, played_in
from tests.rig.tables import there

#: Speed factor of the simulated customer. A charge takes well under a second.
FAST = ("--speed", "50")
#: Speed factor of a person. With this speed a test can act during a charge.
SLOW = ("--speed", "1")
RESULTS = ["approved", "declined", "canceled"]
#: Page that names the members of `running` in the output of --keep --json.
GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "testing.md").read_text("utf-8")

#: A network namespace with only loopback, in which no program can join a multicast group.
NO_MULTICAST = 'ip link set lo up && echo 0 > /proc/sys/net/ipv4/igmp_max_memberships && exec "$@"'
NAMESPACE = ("unshare", "--user", "--map-root-user", "--net", "sh", "-c", NO_MULTICAST, "sh")

ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "plain": FAST,
    "json": (*FAST, "--json"),
    "no mdns": (*FAST, "--no-mdns"),
    "no multicast": FAST,
    "keep": (*FAST, "--keep"),
    **dict.fromkeys(("SIGINT", "SIGTERM", "SIGHUP", "simulate dies", "run dies"), SLOW),
}


@dataclass
class Demo:
    """A running demo, with a directory for temporary files."""

    process: "subprocess.Popen[str]"
    place: Path
    ended: Done | None = None

    def end(self, code: int = 0) -> Done:
        """Wait for the end of the demo. Check the exit code, and that the demo leaves no files and no processes."""
        if self.ended is None:
            stdout, stderr = self.process.communicate(timeout=PATIENCE)
            self.ended = Done(self.process.returncode, stdout, stderr)
        assert self.ended.returncode == code, self.ended
        assert (list(self.place.iterdir()), processes_naming(self.place)) == ([], {})
        assert "Traceback" not in self.ended.stderr
        return self.ended


@pytest.fixture(scope="module")
def namespaces() -> bool:
    """Return whether this machine permits network namespaces."""
    if lacking("ip", "unshare"):
        return False
    return subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="module")
def demos(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, namespaces: bool
) -> Iterator[Mapping[str, Demo]]:
    """Yield the demos for the tests of this run. All demos start together and must not disturb each other."""
    names = ["plain", "json", "keep", *played_in(request, "demos")]
    with ExitStack() as stack:
        running = {}
        for name in names:
            place = tmp_path_factory.mktemp("demo")
            prefix = NAMESPACE if name == "no multicast" and namespaces else ()
            environment = {"TMPDIR": str(place)}
            started = started_posd("demo", *ARGUMENTS[name], environment=environment, prefix=prefix)
            running[name] = Demo(stack.enter_context(started), place)
        try:
            yield running
        finally:
            for demo in running.values():
                demo.process.terminate()  # the demo ends its processes
            for demo in running.values():
                if demo.ended is None:
                    demo.process.communicate(timeout=PATIENCE)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_during_the_demo_leaves_nothing_behind(demos: Mapping[str, Demo], name: str) -> None:
    demo = demos[name]
    read_until(demo.process, "answered: acknowledged")
    demo.process.send_signal(signal.Signals[name])
    assert "nothing is left behind" in demo.end(1).stderr


@pytest.mark.parametrize("name", first_quick(["run dies", "simulate dies"], 1))
def test_a_process_that_dies_is_reported_with_the_end_of_the_logs(demos: Mapping[str, Demo], name: str) -> None:
    demo = demos[name]
    read_until(demo.process, "answered: acknowledged")
    [victim] = [pid for pid, line in processes_naming(demo.place).items() if f" {name.split()[0]}" in line]
    os.kill(victim, signal.SIGKILL)
    said = demo.end(1).stderr
    assert ("ended by itself" in said, "log:" in said) == (True, True), said


def test_three_charges_end_as_planned_and_the_receipt_is_printed(demos: Mapping[str, Demo]) -> None:
    done = demos["plain"].end()
    assert done.stderr == ""
    ends = [line.rsplit("outcome: ")[1].split(",")[0] for line in done.lines if "outcome: " in line]
    events = ("TERMINAL_ACKNOWLEDGED", "CARD_PRESENTED  CONTACTLESS", "APPROVAL_REQUESTED", "TERMINAL_CANCELED")
    words = ("over mDNS", *events, "the receipt is printed")
    assert (ends, [each for each in words if each not in done.stdout]) == (RESULTS, []), done.stdout

    receipt = done.stdout.partition("Receipt of charge 1, on the printer of the terminal\n")[2]
    [ticket] = [line.split("ticket ")[1] for line in done.lines if "outcome: approved" in line]
    assert re.search(
        rf"POSD DEMO(?s:.*)TOTAL +11\.20\b(?s:.*)ticket +{ticket}\b", receipt.partition("Charge 2 of 3")[0]
    )


def test_json_is_one_document_with_the_result_of_each_charge(demos: Mapping[str, Demo]) -> None:
    document = json.loads(demos["json"].end().stdout, parse_float=str)
    assert (document["ok"], document["discovery"]) == (True, "mdns")
    first, second, _ = transactions = [charge["transaction"] for charge in document["charges"]]
    assert [transaction["outcome"]["result"] for transaction in transactions] == RESULTS
    assert second["amount"]["iva"] == "0.1"
    [receipt] = document["receipts"]
    job = receipt["print_job"]
    assert (receipt["charge"], job["status"], job["decided_by"]) == (1, "COMPLETED", "webhook")
    assert job["external_reference"] == first["outcome"]["ticket_number"]
    assert first["outcome"]["receipt"]["authorization_code"] in receipt["paper"]
    assert [step["to"] for step in receipt["timeline"]] == ["posd", "terminal", "posd", "till"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["no mdns", pytest.param("no multicast", marks=[pytest.mark.slow, needs("ip", "unshare")])]
)
def test_without_multicast_the_demo_says_so_and_uses_the_address(
    demos: Mapping[str, Demo], namespaces: bool, name: str
) -> None:
    if name == "no multicast" and not namespaces:
        pytest.skip("needs to make a network namespace")
    said = demos[name].end().stdout
    assert ("got no announcement" in said, "All three ended as expected" in said) == (True, True), said


def test_with_the_option_keep_the_demo_runs_on_for_the_printed_commands(demos: Mapping[str, Demo]) -> None:
    demo = demos["keep"]
    told = read_until(demo.process, "/proc/sys/kernel/random/uuid")
    [socket] = {word for word in told.split() if word.endswith("till.sock")}
    with httpx2.Client(transport=httpx2.HTTPTransport(uds=socket)) as till:
        assert till.get("http://posd/v1/version").status_code == 200
    demo.process.send_signal(signal.SIGINT)
    demo.end()


def test_several_demos_can_run_and_restart_killed_processes(tmp_path: Path) -> None:
    with ExitStack() as stack:
        options = ("--keep", "--no-charges", "--json", *FAST)
        environment = {"TMPDIR": str(tmp_path)}
        demos = [stack.enter_context(started_posd("demo", *options, environment=environment)) for _ in range(2)]
        documents = [json.loads(there(demo.stdout).readline()) for demo in demos]
        assert [(document["ok"], document["charges"]) for document in documents] == [(True, [])] * 2
        first, second = (document["running"] for document in documents)
        assert [name for name in first if f"`{name}`" not in GUIDE] == []
        assert not {*map(str, first.values())} & {*map(str, second.values())} - {"50.0"}
        before = Path(first["pid_file"]).read_text()
        os.kill(int(before), signal.SIGKILL)
        assert "started again" in there(demos[0].stderr).readline()
        with Posd(first["till_socket"]) as till:
            assert till.charge(uuid.uuid4(), "9000.04").outcome().status == "DECLINED"
        assert Path(first["pid_file"]).read_text() != before
        for demo in demos:
            demo.terminate()
            demo.communicate(timeout=PATIENCE)
            assert demo.returncode == 0
    assert list(tmp_path.iterdir()) == []


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


@pytest.mark.slow
def test_the_demo_of_a_fleet_has_the_same_totals_at_head_office() -> None:
    """Without the programs, the demo names the command that installs them."""
    done = posd_process("demo", "--fleet", "2")
    if absent := lacking("nats-server", "initdb", "postgres"):
        assert done.returncode == 1, absent
        assert "sudo apt-get install nats-server postgresql" in done.stderr
        return
    assert done.returncode == 0, done.stderr
    assert "lane-2 loses its network" in done.stdout
    assert "The totals agree to the cent: 52.30." in done.stdout
    assert "lane-2\t24\t12\t" in done.stdout, "head office lacks a charge of the demo"
