"""The commands without a daemon, or without a configuration."""

import json
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.processes import PATIENCE, posd, posd_process
from tests.cli.stub import Answer, Stub, problem

ID = "00000000-0000-4000-8000-000000000000"


COMMANDS = (
    ("charge", "1"),
    ("preauth", "1"),
    ("reauth", ID, "1"),
    ("capture", ID, "1"),
    ("tip", ID, "1"),
    ("void", ID),
    ("await", ID),
    ("abort", ID),
    ("show", ID),
    ("list",),
    ("print", __file__),
    ("print-jobs",),
    ("print-jobs", "receipt-1042"),
    ("reconcile", ID),
    ("release", ID, "--note", "x"),
    ("resolve", ID, "declined", "--note", "x", "--yes"),
    ("resolve", ID, "FAILED", "--note", "x"),
    ("acknowledge", ID, "gap", "--note", "x"),
    ("quarantine",),
    ("reprocess",),
    ("terminals",),
    ("metrics",),
    ("status",),
)


@pytest.mark.quick(16)
@pytest.mark.parametrize(
    "arguments", COMMANDS, ids=lambda arguments: " ".join(word for word in arguments if word not in (ID, __file__))
)
def test_a_daemon_that_is_not_there_exits_3(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = posd(*arguments, socket=tmp_path / "till.sock")
    assert done.returncode == 3
    assert str(tmp_path / "till.sock") in (done.stdout if arguments == ("status",) else done.stderr)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(("list",), 3), (("charge", "1"), 3), (("resolve", ID, "approved", "--note", "x"), 2), (("show", "xx"), 2)],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_an_error_is_json_where_json_was_asked_for(tmp_path: Path, arguments: tuple[str, ...], code: int) -> None:
    done = posd(*arguments, "--json", socket=tmp_path / "till.sock")
    document = json.loads(done.stdout)
    assert (done.returncode, document["exit_code"]) == (code, code)
    assert document["detail"] in done.stderr


def test_a_charge_that_did_not_reach_posd_says_that_nothing_was_started(tmp_path: Path) -> None:
    assert "Nothing was started" in posd("charge", "1", socket=tmp_path / "till.sock").stderr


@pytest.mark.parametrize("arguments", [("charge", "1"), ("print", __file__), ("status",), ("list",)])
def test_a_socket_that_outlives_its_daemon_is_not_waited_for(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    with socket.socket(socket.AF_UNIX) as held:
        held.bind(str(tmp_path / "till.sock"))
        listen = "import socket, sys; socket.socket(fileno=int(sys.argv[1])).listen()"
        subprocess.run([sys.executable, "-c", listen, str(held.fileno())], pass_fds=[held.fileno()], check=True)
        began = time.monotonic()
        done = posd(*arguments, socket=tmp_path / "till.sock")
        assert (done.returncode, time.monotonic() - began < PATIENCE) == (3, True)
        assert ("Nothing was s" in done.stderr) == (arguments[0] in ("charge", "print"))
        assert not readable(held)


def readable(held: socket.socket) -> bool:
    """Whether something was sent that the next daemon would read."""
    held.setblocking(False)
    while True:
        try:
            connection, _ = held.accept()
        except BlockingIOError:
            return False
        with connection:
            if connection.recv(1):
                return True


@pytest.mark.parametrize(
    "answer",
    [problem(500, "internal_error", "a fault"), Answer(404, b"<html>", "text/html")],
    ids=["a fault of posd", "not posd"],
)
def test_a_charge_of_which_nothing_is_known_is_left_open(tmp_path: Path, answer: Answer) -> None:
    with Stub(tmp_path / "s", [answer]):
        done = posd("charge", "1", "--id", ID, socket=tmp_path / "s")
    assert done.returncode == 4
    assert "may have started" in done.stderr
    assert f"posd await {ID}" in done.stderr


def test_a_charge_that_was_not_answered_is_not_said_to_go_on(tmp_path: Path) -> None:
    with Stub(tmp_path / "s", [Answer(cut=True), problem(422, "invalid_request", "the request is wrong")]):
        done = posd("charge", "1", socket=tmp_path / "s")
    assert "may have started" in done.stdout
    assert "goes on" not in done.stdout


def test_a_charge_that_is_refused_tells_which_fields_are_wrong(tmp_path: Path) -> None:
    errors = ',"errors":[{"path":"/amount/tip","message":"too many digits"}]'
    with Stub(tmp_path / "s", [problem(422, "invalid_request", "the request is wrong", errors)]):
        done = posd("charge", "1", socket=tmp_path / "s")
    assert done.returncode == 2
    assert "/amount/tip: too many digits" in done.stderr


def test_a_configuration_that_is_not_there_keeps_the_daemon_from_starting(tmp_path: Path) -> None:
    done = posd_process("run", config=tmp_path / "none.toml")
    assert done.returncode == 2
    assert str(tmp_path / "none.toml") in done.stderr
    assert "Traceback" not in done.stderr


def test_every_problem_of_a_configuration_is_told_at_once(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[webhooks]\nlisten = 7\nadvertize_host = "x"\n')
    done = posd_process("run", config=config)
    assert done.returncode == 2
    assert "webhooks.listen" in done.stderr
    assert "advertise_host" in done.stderr


#: Fault of a file -> its content, None for a missing file.
BROKEN = {
    "not TOML": b"[local_api\n",
    "not UTF-8": b"\xff\xfe",
    "no directory": b"[local_api]\ndirectory = 7\n",
    "missing": None,
}


@pytest.mark.quick(1)
@pytest.mark.parametrize("case", BROKEN)
def test_without_a_configuration_every_command_asks_at_the_usual_place(tmp_path: Path, case: str) -> None:
    config = tmp_path / "config.toml"
    if (content := BROKEN[case]) is not None:
        config.write_bytes(content)
    for arguments in (*COMMANDS, *(("report", "--timezone", "UTC"), ("clock",), ("metrics",), ("backup", "/x"))):
        done = posd(*arguments, config=config)
        assert done.returncode == 3, arguments
        assert f"posd: {config}: " in done.stderr, arguments
        assert "/run/posd/till.sock is tried (--socket" in done.stderr, arguments


def test_a_socket_that_is_named_needs_no_configuration(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_bytes(b"[local_api\n")
    with Stub(tmp_path / "s", [Answer(body=b'{"quarantine":[]}')]):
        done = posd("quarantine", "--json", config=config, socket=tmp_path / "s")
    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_wrong_elsewhere_in_the_configuration_hides_no_socket(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f'[local_api]\ndirectory = "{tmp_path}"\n[webhooks]\nlisten = 7\n[nonsense]\n')
    with Stub(tmp_path / "till.sock", [Answer(body=b'{"quarantine":[]}')]):
        done = posd("quarantine", "--json", config=config)
    assert (done.returncode, done.stderr) == (0, "")
