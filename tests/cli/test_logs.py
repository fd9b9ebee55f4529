"""`posd logs` shows the daemon's lines as text, with any content and from any source."""

import json
import os
import re
import signal
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from posd.cli.explain import catalogue
from posd.cli.operate.logs import MAX_LINE_BYTES, sentence
from tests.rig import forks
from tests.rig.commands import PATIENCE, posd, posd_on_terminal
from tests.rig.tables import every, there

CASES = tomllib.loads(Path(__file__).with_name("logs.toml").read_text())
#: Events that the daemon can log.
EVENTS = catalogue.events()

ONE = "20b6f0ea-1000-4ec8-94b4-88e4b286e094"
OTHER = "6c1a4b99-620d-4183-8fc5-93a831a37bd8"


def line(event: str, level: str = "info", **fields: object) -> dict[str, object]:
    named = {"timestamp": "2026-11-22T10:42:03.123456Z", "level": level, "event": event, "logger": "posd.test"}
    return named | fields


#: A payment with an open attention.
MARK = "payment.attention"
LINES = [
    line("payment.started", transaction=ONE, terminal="SN-1", type="charge"),
    line(MARK, "warning", transaction=ONE, terminal="SN-1", code="gap", detail="an event is missing"),
    line(MARK, "error", transaction=OTHER, terminal="SN-2", code="conflicting_final", detail="two ends"),
    line("webhook.print", print_job="J-1", verdict="applied", status="COMPLETED", phase="final"),
    line("of.tomorrow", "debug", terminal="SN-1", new=[1, 2]),
]
TEXT = "Traceback of something that is not a line of posd's"


def log_of(directory: Path, *lines: object) -> str:
    """Write a log file. An item that is not a dictionary is a raw line."""
    path = directory / "posd.log"
    raw = [item if isinstance(item, bytes) else json.dumps(item).encode() for item in lines]
    path.write_bytes(b"\n".join(raw) + b"\n")
    return str(path)


@contextmanager
def piped(*arguments: str, **environment: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run the command for the block as a process with pipes."""
    pipe, line = subprocess.PIPE, forks.command("posd", ("logs", *arguments))
    with subprocess.Popen(line, stdin=pipe, stdout=pipe, stderr=pipe, env=os.environ | environment) as process:
        try:
            yield process
        finally:
            process.kill()


def test_each_line_is_a_sentence_and_a_repeated_cure_is_shown_once(tmp_path: Path) -> None:
    done = posd("logs", "--utc", log_of(tmp_path, *LINES, TEXT.encode()))
    assert (done.returncode, done.stderr) == (0, "")
    at, attention = "2026-11-22T10:42:03.123Z", "an operator has to check the payment on terminal"
    printed = "the terminal reports the print job as COMPLETED (applied); it is final"
    assert done.lines == [
        f"{at}  info     the request for a charge was sent to terminal SN-1  transaction={ONE}  (payment.started)",
        f"{at}  warning  {attention} SN-1 (gap): an event is missing  transaction={ONE}  ({MARK})",
        f"    → {EVENTS[MARK].do}",
        f"{at}  error    {attention} SN-2 (conflicting_final): two ends  transaction={OTHER}  ({MARK})",
        f"{at}  info     {printed}  print_job=J-1  (webhook.print)",
        f"{at}  debug    of.tomorrow terminal=SN-1 new=1, 2",
        TEXT,
    ]


@every(("wish", "events"), CASES["selected"].items())
def test_only_selected_lines_are_shown_and_with_json_they_are_unchanged(
    tmp_path: Path, wish: str, events: list[str]
) -> None:
    """A line for the journal begins with its level. The command removes this level."""
    first, *rest = LINES
    log = log_of(tmp_path, TEXT.encode(), b"<4>" + json.dumps(first).encode(), *rest)
    done = posd("logs", "--json", *wish.split(), log)
    assert [json.loads(text)["event"] for text in done.lines] == events
    assert set(done.lines) <= set(map(json.dumps, LINES))
    assert (done.returncode, "no line of the log matches" in done.stderr) == (0, not events)


@every("event", EVENTS)
def test_each_event_has_a_sentence_even_without_its_fields(event: str) -> None:
    fields = {name: name.upper() for name in EVENTS[event].fields}
    whole, bare = sentence(line(event, **fields)), sentence(line(event))
    assert whole.endswith(f"  ({event})")
    assert all(value in whole for value in fields.values())
    assert (bool(bare), set("{}[]") & set(whole + bare)) == (True, set())


def test_the_sentences_are_in_the_language_of_the_person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "es_EC.UTF-8")
    line = {"level": "error", "event": "posd.cannot_start", "error": "cannot use /srv (Permission denied)"}
    (file := tmp_path / "posd.log").write_text(json.dumps(line) + "\n")
    shown = posd("logs", str(file)).stdout
    assert "posd no puede arrancar: no se puede usar /srv (sin permiso)" in shown
    assert "→ Haga lo que dice el mensaje" in shown
    assert posd("logs", "--json", str(file)).document == line


def test_a_fault_is_shortened_but_complete_on_request(tmp_path: Path) -> None:
    fault = [
        {"type": "RuntimeError", "frames": ["posd/a.py:1 one", "posd/b.py:2 two"]},
        {"type": "OSError", "message": "No space left on device", "frames": ["posd/c.py:3 three"]},
    ]
    log = log_of(tmp_path, line("posd.internal_error", "error", error_id="7", exception=fault))
    assert posd("logs", log).lines[1:3] == [
        "    RuntimeError, at posd/b.py:2 two (all calls: --traceback)",
        "    because of OSError: No space left on device, at posd/c.py:3 three",
    ]
    assert "      posd/a.py:1 one\n" in posd("logs", "--traceback", log).stdout


def test_an_unusual_line_is_still_shown(tmp_path: Path) -> None:
    faults = (None, "text", 7, [], {}, [7], [{}], [{"type": None, "frames": None}], [{"frames": [None]}], [[["x"]]])
    odd = [
        line("posd.internal_error", "error", error_id="7", exception=fault) | {"timestamp": stamp, "level": stamp}
        for fault in faults
        for stamp in ("x", "", None, 7, "2026-11-22", {})
    ]
    done = posd("logs", log_of(tmp_path, *odd)).ends(0)
    assert done.stdout.count("posd has an internal fault (7)") == len(odd)


HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\n\u202e‮\x00"


@every(
    "raw",
    [
        line(MARK, "warning", terminal="S", code="c", detail=HOSTILE),
        json.dumps(line(f"x{HOSTILE}", HOSTILE, **{HOSTILE: [{HOSTILE: HOSTILE}]}), ensure_ascii=False).encode(),
        line("posd.crashed", error_id="1", exception=[{"type": HOSTILE, "frames": [HOSTILE]}]),
        HOSTILE.replace("\n", "").encode(),
        b"\xff\xfe{\x1b[31m",
        b"{" * 5000 + b"\x1b[31m",
        b'{"event": "\x9b31m"}',
    ],
)
@every("options", [(), ("--json",), ("--traceback",)])
def test_no_text_of_a_stranger_controls_the_screen(tmp_path: Path, raw: object, options: tuple[str, ...]) -> None:
    log = log_of(tmp_path, raw)
    seen = posd_on_terminal("logs", *options, log, socket=tmp_path / "none").ends(0)
    left = re.sub(r"\x1b\[(0|1|2|31|33)m", "", seen.written)  # posd's own colours
    assert not [char for char in left if not char.isprintable() and char not in "\r\n"]
    assert "owned" not in left or "\\u001b]0;owned" in left or "\ufffd]0;owned" in left
    if not options:  # the command writes the same text if its input is a pipe and its output is a terminal
        assert not [char for char in posd("logs", log).stdout if not char.isprintable() and char != "\n"]


def test_an_endless_line_is_cut_and_needs_little_memory() -> None:
    with piped("-") as process:
        given = b"x" * (3 * MAX_LINE_BYTES) + b"\n" + json.dumps(LINES[0]).encode()
        shown, _ = process.communicate(given, timeout=PATIENCE)
    *cut, last = shown.decode().splitlines()
    assert (len(cut) <= 4, max(map(len, cut)) < 5000) == (True, True)
    assert ("more characters" in cut[0], "(payment.started)" in last) == (True, True)


def test_lines_appear_as_they_are_written_and_ctrl_c_ends_the_command(tmp_path: Path) -> None:
    journal = stub(tmp_path, f"echo '{json.dumps(LINES[0])}'\nexec sleep 1000")
    with piped("--follow", **journal) as process:
        assert b"(payment.started)" in there(process.stdout).readline()
        process.send_signal(signal.SIGINT)
        said, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, said, errors) == (0, b"", b"")


def stub(directory: Path, script: str) -> dict[str, str]:
    """Return an environment in which journalctl is a script."""
    path = directory / "bin" / "journalctl"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return {"PATH": f"{path.parent}:{os.environ['PATH']}"}


@every(("options", "asked"), CASES["journalctl"].items())
def test_journalctl_filters_the_lines_where_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str, asked: str
) -> None:
    monkeypatch.setenv("PATH", stub(tmp_path, f'echo "$@" > {tmp_path}/asked')["PATH"])
    posd("logs", *options.split()).ends(0)
    assert (tmp_path / "asked").read_text() == f"{asked}\n"


@every(
    ("script", "code", "said"),
    [
        ("echo 'No journal files were opened due to insufficient permissions.' >&2; exit 1", 1, "systemd-journal"),
        ("echo 'Hint: You are currently not seeing messages from other users.' >&2", 1, "systemd-journal"),
        ("echo 'Failed to parse timestamp: x' >&2; exit 1", 1, "Failed to parse timestamp: x"),
        ("exit 3", 1, "journalctl failed: exit code 3"),
        ("echo '-- No entries --'", 0, "the journal has no line of posd (systemctl status posd)"),
    ],
)
def test_an_unreadable_journal_gives_a_clear_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, code: int, said: str
) -> None:
    monkeypatch.setenv("PATH", stub(tmp_path, script)["PATH"])
    assert posd("logs").ends(code, said).stdout == ""


def test_without_a_journal_the_message_says_how_to_read_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    posd("logs").ends(1, "cannot run journalctl", "posd logs -")


@pytest.mark.slow
def test_a_closed_pipe_ends_the_command_silently(tmp_path: Path) -> None:
    log = log_of(tmp_path, *LINES * 20_000)
    with piped(log) as process:
        stdout, stderr = there(process.stdout), there(process.stderr)
        stdout.readline()
        stdout.close()
        assert stderr.read() == b""
        process.wait(PATIENCE)
