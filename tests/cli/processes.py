"""`posd` as a process, and what it leaves behind."""

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner

from posd.cli.main import main
from posd.sandbox import Sandbox
from tests.cli.stub import Answer, Stub
from tests.support.leftovers import owning_file

#: seconds: far above what any command here takes; a test that hangs should fail, not hang.
PATIENCE = 40.0


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


def posd(*arguments: str, config: Path | None = None, socket: Path | None = None) -> Done:
    """Run a command to its end, inside this process: starting Python would take most of a test's time."""
    result = CliRunner().invoke(main, command(arguments, config, socket)[3:])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return Done(result.exit_code, result.stdout, result.stderr)


def posd_process(*arguments: str, config: Path | None = None) -> Done:
    """Run a command to its end, as a process."""
    done = subprocess.run(
        command(arguments, config, None), capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    return Done(done.returncode, done.stdout, done.stderr)


@dataclass(frozen=True)
class Seen:
    """End of a command on a terminal: its screen, the text written to it, the text of a pipe."""

    returncode: int
    screen: str
    written: str
    piped: str


def posd_on_terminal(*arguments: str, socket: Path, types: str = "", columns: int = 80, pipe: bool = False) -> Seen:
    """Run a command to its end, as a process on its own terminal, with `types` typed beforehand.

    The screen is the text without colours, including overwritten text, by lines. `pipe`: stdout is not the terminal.
    """
    screen, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    with os.fdopen(screen, "r+b", buffering=0) as terminal, tempfile.TemporaryFile() as piped:
        terminal.write(types.encode())
        process = subprocess.Popen(
            command(arguments, None, socket),
            stdin=end,
            stdout=piped if pipe else end,
            stderr=end,
            env=environment | {"TERM": "xterm", "PYTHONIOENCODING": "utf-8"},
            start_new_session=True,
        )
        os.close(end)
        written = b""
        try:
            with contextlib.suppress(OSError):  # EIO: the process has closed its end
                while part := terminal.read(65536):
                    written += part
            process.wait(PATIENCE)
        finally:
            process.kill()
            process.wait()
        piped.seek(0)
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.decode()).replace("\r\n", "\n").replace("\r", "\n")
        return Seen(process.returncode, text, written.decode(), piped.read().decode())


@contextlib.contextmanager
def started_posd(
    *arguments: str, config: Path | None = None, environment: dict[str, str] | None = None, prefix: tuple[str, ...] = ()
) -> Iterator["subprocess.Popen[str]"]:
    """Run a command for the block with its output in pipes. If it has not ended then, it is killed."""
    with subprocess.Popen(
        [*prefix, *command(arguments, config, None)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | (environment or {}),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def posd_interrupted(directory: Path, *arguments: str, answers: Sequence[Answer] = ()) -> Done:
    """Run a command against a socket in the directory and press Ctrl-C while it waits for the answer after these."""
    asked, over = threading.Event(), threading.Event()

    def hold() -> None:
        asked.set()
        over.wait()

    with (
        Stub(directory / "s", [*answers, Answer(before=hold, cut=True)]),
        started_posd(*arguments, environment={"POSD_SOCKET": str(directory / "s")}) as process,
    ):
        try:
            assert asked.wait(PATIENCE), f"posd was not asked: {arguments}"
            process.send_signal(signal.SIGINT)
            stdout, stderr = process.communicate(timeout=PATIENCE)
        finally:
            over.set()
    return Done(process.returncode, stdout, stderr)


def command(arguments: tuple[str, ...], config: Path | None, socket: Path | None) -> list[str]:
    """Return the command line of `posd`, with its group options."""
    options = ["--config", str(config)] if config else []
    options += ["--socket", str(socket)] if socket else []
    return [sys.executable, "-m", "posd", *options, *arguments]


@contextlib.contextmanager
def daemon_away(shop: Sandbox) -> Iterator[None]:
    """Stop the daemon of a shop for the block."""
    shop.stop_daemon()
    try:
        yield
    finally:
        with owning_file():
            shop.start_daemon()


def read_until(process: "subprocess.Popen[str]", text: str) -> str:
    """Read the process's output line by line until one holds `text`; return all that was read."""
    assert process.stdout is not None
    read = ""
    for line in process.stdout:
        read += line
        if text in line:
            return read
    raise AssertionError(f"{text!r} never came:\n{read}\n{process.stderr.read() if process.stderr else ''}")


def processes_naming(directory: Path) -> dict[int, str]:
    """Return the running processes (pid -> command line) whose command line names the directory."""
    named = re.compile(rf"{re.escape(str(directory))}(?!\w)")  # and not a longer name with the same beginning
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            except OSError:
                continue
            if named.search(line):
                found[int(entry.name)] = line
    return found
