"""Lines carry their level for the journal, and are plain JSON everywhere else."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import logging
import structlog
from posd.logs import output as logs
logs.configure("debug")
log = structlog.get_logger("posd.test")
log.debug("a.debug")
log.info("an.info")
log.warning("a.warning")
try:
    int("nothing")
except ValueError:
    log.exception("an.error", error_id="7")
logging.getLogger("library").warning("of %s", "a library")
"""
LEVELS = ["debug", "info", "warning", "error", "warning"]


def stream(descriptor: int) -> str:
    """Return the value of JOURNAL_STREAM for a file, as systemd writes it."""
    found = os.fstat(descriptor)
    return f"{found.st_dev}:{found.st_ino}"


def through_pipe(script: str, journal: str | None) -> list[bytes]:
    """Run a script with a pipe as stdout. `journal`: value of JOURNAL_STREAM.

    "stdout" stands for the value of the pipe.
    """
    read, write = os.pipe()
    environment = {name: value for name, value in os.environ.items() if name != "JOURNAL_STREAM"}
    if journal is not None:
        environment["JOURNAL_STREAM"] = stream(write) if journal == "stdout" else journal
    with os.fdopen(read, "rb") as output:
        with os.fdopen(write, "wb") as given:
            subprocess.run([sys.executable, "-c", script], stdout=given, env=environment, check=True)
        return output.read().splitlines()


def test_the_journal_gets_the_level_of_each_line_and_valid_json() -> None:
    lines = through_pipe(SCRIPT, "stdout")
    assert [line[:3] for line in lines] == [b"<7>", b"<6>", b"<4>", b"<3>", b"<4>"]
    assert [json.loads(line[3:])["level"] for line in lines] == LEVELS


@pytest.mark.quick(1)
@pytest.mark.parametrize("journal", [None, "", "1:2", "nonsense"])
def test_without_the_journal_a_line_is_json_and_nothing_else(journal: str | None) -> None:
    lines = through_pipe(SCRIPT, journal)
    assert [json.loads(line)["level"] for line in lines] == LEVELS


def test_a_fault_of_the_configuration_is_an_error_in_the_journal(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[webhooks]\nlisten = 7\nwrong = "secret"\n')
    with (tmp_path / "journal").open("wb") as given:
        environment = os.environ | {"JOURNAL_STREAM": stream(given.fileno())}
        command = [sys.executable, "-m", "posd", "--config", str(config), "run"]
        ended = subprocess.run(command, stdout=given, stderr=given, env=environment, check=False)
    lines = (tmp_path / "journal").read_text().splitlines()
    assert ended.returncode == 2
    assert len(lines) == 2
    assert all(line.startswith("<3>posd: ") for line in lines)


@pytest.mark.slow
def test_a_crash_at_the_start_is_one_line_with_an_id_and_without_the_faulty_value() -> None:
    script = """
import sys
from posd.daemon import main as daemon
daemon._give_up_root = lambda database: None
class Config:
    class logging:
        level = "info"
    class database:
        path = None
async def serve(config, surroundings, refused):
    raise ValueError("somebody@example.com")
daemon.serve = serve
sys.exit(daemon.run(Config))
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr == b""
    line = json.loads(ended.stdout)
    assert (line["event"], line["level"]) == ("posd.crashed", "error")
    assert len(line["error_id"]) == 16
    assert [(item["type"], "message" in item) for item in line["exception"]] == [("ValueError", False)]
    assert line["exception"][0]["frames"][-1].endswith(" serve")


def test_output_of_python_itself_is_a_line_without_values() -> None:
    script = """
import asyncio, threading, logging
from posd.logs import output as logs
logs.configure("info")
def fails():
    raise KeyError("somebody@example.com")
thread = threading.Thread(target=fails)
thread.start()
thread.join()
class Bad:
    def __del__(self):
        raise KeyError("somebody@example.com")
Bad()
logging.getLogger("library").error("cannot read %r", "somebody@example.com", exc_info=ValueError("ticket-4711"))
logging.getLogger("library").error("cannot read somebody@example.com")
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert ended.stderr == b""
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [line["event"] for line in lines] == ["posd.internal_error"] * 2 + ["posd.library"] * 2
    assert lines[2]["detail"] == "cannot read …"
    assert lines[2]["exception"][0]["type"] == "ValueError"
    assert "somebody" not in ended.stdout.decode()
    assert "4711" not in ended.stdout.decode()
