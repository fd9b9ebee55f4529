"""Commands without a daemon or without a configuration."""

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.processes import PATIENCE, asked, posd, posd_process
from tests.cli.stub import Answer, Stub
from tests.support.tables import every

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
    ("report", "--timezone", "UTC"),
    ("clock",),
    ("backup", "/tmp/b.db"),
)


@every("arguments", COMMANDS)
def test_a_missing_daemon_exits_3(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = posd(*arguments, socket=tmp_path / "till.sock")
    assert done.returncode == 3
    assert str(tmp_path / "till.sock") in (done.stdout if arguments == ("status",) else done.stderr)
    assert "Traceback" not in done.stderr


@every(
    ("arguments", "code"),
    [(("list",), 3), (("charge", "1"), 3), (("resolve", ID, "approved", "--note", "x"), 2), (("show", "xx"), 2)],
)
def test_an_error_is_json_if_json_was_requested(tmp_path: Path, arguments: tuple[str, ...], code: int) -> None:
    done = posd(*arguments, "--json", socket=tmp_path / "till.sock")
    assert (done.returncode, done.document["exit_code"]) == (code, code)
    assert done.document["detail"] in done.stderr


@pytest.mark.quick(2)
@pytest.mark.parametrize("arguments", [("charge", "1"), ("list",), ("print", __file__), ("status",)])
def test_a_socket_without_a_daemon_is_not_waited_for(tmp_path: Path, arguments: tuple[str, ...]) -> None:
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
    """Return whether the socket has data that the next daemon would read."""
    held.setblocking(False)
    while True:
        try:
            connection, _ = held.accept()
        except BlockingIOError:
            return False
        with connection:
            if connection.recv(1):
                return True


@every(
    ("text", "words"),
    [(None, ()), ('[webhooks]\nlisten = 7\nadvertize_host = "x"\n', ("webhooks.listen", "advertise_host"))],
)
def test_with_an_invalid_configuration_the_daemon_does_not_start_and_all_problems_are_reported(
    tmp_path: Path, text: str | None, words: tuple[str, ...]
) -> None:
    config = tmp_path / "config.toml"
    if text is not None:
        config.write_text(text)
    done = posd_process("run", config=config)
    assert (done.returncode, [word for word in (str(config), *words) if word not in done.stderr]) == (2, [])
    assert "Traceback" not in done.stderr


@every("content", [b"[local_api\n", b"\xff\xfe", b"[local_api]\ndirectory = 7\n", None])
def test_without_a_configuration_every_command_uses_the_usual_socket(tmp_path: Path, content: bytes | None) -> None:
    """The configuration is broken in several ways or missing."""
    config = tmp_path / "config.toml"
    config.unlink(missing_ok=True)
    if content is not None:
        config.write_bytes(content)
    for arguments in COMMANDS:
        done = posd(*arguments, config=config)
        assert done.returncode == 3, arguments
        assert f"posd: {config}: " in done.stderr, arguments
        assert "/run/posd/till.sock is tried (--socket" in done.stderr, arguments


def test_a_named_socket_needs_no_configuration() -> None:
    done = asked([Answer(body=b'{"quarantine":[]}')], "quarantine", "--json", config="[local_api\n")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_fault_elsewhere_in_the_configuration_does_not_hide_the_socket(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f'[local_api]\ndirectory = "{tmp_path}"\n[webhooks]\nlisten = 7\n[nonsense]\n')
    with Stub(tmp_path / "till.sock", [Answer(body=b'{"quarantine":[]}')]):
        done = posd("quarantine", "--json", config=config)
    assert (done.returncode, done.stderr) == (0, "")
