"""Printing from the command line, against a real daemon and a simulated terminal."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from posd.sandbox import Sandbox
from tests.cli.processes import PATIENCE, daemon_away, posd, read_until, started_posd

#: A receipt of 1 to 3 s takes some milliseconds.
SPEED = 200.0
RECEIPT = "Coffee  2.50\nThank you"
TIMES = "poll_first_seconds = 3\npoll_max_seconds = 3\nstuck_seconds = 1"


@pytest.fixture(scope="module")
def shop() -> Iterator[Sandbox]:
    with Sandbox(speed=SPEED, patient=True) as machine:
        machine.stop_daemon()
        text = machine.config_path.read_text()
        assert "poll_first_seconds = 10" in text
        machine.config_path.write_text(text.replace("poll_first_seconds = 10", TIMES))
        machine.start_daemon()
        yield machine


@pytest.fixture
def receipt(tmp_path: Path) -> str:
    (tmp_path / "receipt.txt").write_text(RECEIPT)
    return str(tmp_path / "receipt.txt")


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("scenario", "proof"), [("completes", "the terminal reported it"), ("silent", "the terminal was asked")]
)
def test_a_receipt_is_printed_and_confirmed(shop: Sandbox, receipt: str, scenario: str, proof: str) -> None:
    done = posd("print", receipt, "--reference", f"print:{scenario}", config=shop.config_path)
    assert done.returncode == 0, done.stderr
    assert "printed" in done.stdout.splitlines()
    assert done.labels["proof"] == proof
    assert shop.paper(done.labels["print job"]) == RECEIPT


@pytest.mark.slow
def test_a_stuck_job_is_waited_for_over_a_restart_and_resolved_by_a_person(shop: Sandbox, receipt: str) -> None:
    arguments = ("print", receipt, "--id", "stuck", "--reference", "print:stuck")
    with started_posd(*arguments, config=shop.config_path) as waiting:
        read_until(waiting, "attention print_stuck")
        status = posd("status", config=shop.config_path)
        assert status.stdout.startswith("posd: not well: print attention\n")
        assert "posd print-jobs --attention" in status.stdout
        with daemon_away(shop):
            read_until(waiting, "posd is away")
        read_until(waiting, "posd is back")
        listed = posd("print-jobs", "--attention", config=shop.config_path)
        assert "    posd resolve stuck FAILED" in listed.stdout.splitlines()
        decided = posd("resolve", "stuck", "FAILED", "--note", "nothing came out", config=shop.config_path)
        assert decided.returncode == 0, decided.stderr
        stdout, stderr = waiting.communicate(timeout=PATIENCE)
    assert waiting.returncode == 1, stderr
    assert "An operator recorded that it is not printed." in stdout
    shown = posd("print-jobs", "stuck", config=shop.config_path)
    for what in ("recorded, about to be sent", "sent: the terminal accepted it", "decided by a person: FAILED"):
        assert what in shown.stdout
    assert "note: nothing came out" in shown.stdout
    assert posd("print-jobs", "stuck", "--wait", config=shop.config_path).returncode == 1
    assert posd("resolve", "stuck", "FAILED", "--note", "x", config=shop.config_path).returncode == 1


def test_the_record_of_these_jobs_is_sound_and_in_a_backup(shop: Sandbox, receipt: str, tmp_path: Path) -> None:
    assert posd("print", receipt, "--id", "kept", config=shop.config_path).returncode == 0
    count = len(
        json.loads(posd("print-jobs", "--limit", "500", "--json", config=shop.config_path).stdout)["print_jobs"]
    )
    assert posd("backup", str(tmp_path / "backup.db"), config=shop.config_path).returncode == 0
    for file in ((), (str(tmp_path / "backup.db"),)):
        report = json.loads(posd("verify", *file, "--json", config=shop.config_path).stdout)
        assert (report["ok"], report["print_jobs"]) == (True, count), report
    done = posd("reprocess", config=shop.config_path)
    assert done.returncode == 0, done.stdout
    assert f"print jobs: {count}" in done.stdout
