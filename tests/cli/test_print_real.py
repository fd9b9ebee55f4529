"""Printing from the command line, against a real daemon and a simulated terminal."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.processes import PATIENCE, Shop, daemon_away, read_until, started_posd

#: A receipt of 1 to 3 s takes some milliseconds.
RECEIPT = "Coffee  2.50\nThank you"
TIMES = "poll_first_seconds = 3\npoll_max_seconds = 3\nstuck_seconds = 1"


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    with Shop(speed=200.0, patient=True) as machine:
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
def test_a_receipt_is_printed_and_confirmed(shop: Shop, receipt: str, scenario: str, proof: str) -> None:
    done = shop.run("print", receipt, "--reference", f"print:{scenario}")
    assert done.returncode == 0, done.stderr
    assert "printed" in done.lines
    assert done.labels["proof"] == proof
    assert shop.paper(done.labels["print job"]) == RECEIPT


@pytest.mark.slow
def test_a_stuck_job_is_waited_for_over_a_restart_and_resolved_by_a_person(shop: Shop, receipt: str) -> None:
    arguments = ("print", receipt, "--id", "stuck", "--reference", "print:stuck")
    with started_posd(*arguments, config=shop.config_path) as waiting:
        read_until(waiting, "attention print_stuck")
        status = shop.run("status")
        assert status.stdout.startswith("posd: not well: print attention\n")
        assert "posd print-jobs --attention" in status.stdout
        with daemon_away(shop):
            read_until(waiting, "posd is away")
        read_until(waiting, "posd is back")
        listed = shop.run("print-jobs", "--attention")
        assert "    posd resolve stuck FAILED" in listed.lines
        decided = shop.run("resolve", "stuck", "FAILED", "--note", "nothing came out")
        assert decided.returncode == 0, decided.stderr
        stdout, stderr = waiting.communicate(timeout=PATIENCE)
    assert waiting.returncode == 1, stderr
    assert "An operator recorded that the document is not printed." in stdout
    shown = shop.run("print-jobs", "stuck")
    for what in ("recorded, about to be sent", "sent: the terminal accepted it", "decided by a person: FAILED"):
        assert what in shown.stdout
    assert "note: nothing came out" in shown.stdout
    assert shop.run("print-jobs", "stuck", "--wait").returncode == 1
    assert shop.run("resolve", "stuck", "FAILED", "--note", "x").returncode == 1


def test_the_record_of_these_jobs_is_sound_and_in_a_backup(shop: Shop, receipt: str, tmp_path: Path) -> None:
    assert shop.run("print", receipt, "--id", "kept").returncode == 0
    count = len(shop.run("print-jobs", "--limit", "500", "--json").document["print_jobs"])
    assert shop.run("backup", str(tmp_path / "backup.db")).returncode == 0
    for file in ((), (str(tmp_path / "backup.db"),)):
        report = shop.run("verify", *file, "--json").document
        assert (report["ok"], report["print_jobs"]) == (True, count), report
    done = shop.run("reprocess")
    assert done.returncode == 0, done.stdout
    assert f"print jobs: {count}" in done.stdout
