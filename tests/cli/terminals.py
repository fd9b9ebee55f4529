"""Runner of commands of posd as processes on a pseudo-terminal."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support import forks

#: Limit in seconds of a wait for output or for the end of a process.
PATIENCE = 60.0
#: Program that makes the pseudo-terminal the controlling terminal, as a shell does.
OWN_TERMINAL = ("setsid", "--ctty")

Process = forks.Forked | subprocess.Popen[bytes]


class OnTerminal:
    """A process on a terminal of 80 by 24, with its output."""

    def __init__(self, process: Process, keys: int, device: int) -> None:
        self.process, self.keys, self.device = process, keys, device
        self.raw = b""

    def read(self, seconds: float) -> bool:
        """Read output for this time. Return whether there was output."""
        if not select.select([self.keys], [], [], max(0.0, seconds))[0]:
            return False
        self.raw += os.read(self.keys, 65536)
        return True

    def writes(self, text: str) -> bytes:
        """Read until this text was written. Return and remove the output before the text."""
        deadline = time.monotonic() + PATIENCE
        while text.encode() not in self.raw:
            assert self.read(deadline - time.monotonic()), f"the output lacks {text!r}: {self.raw!r}"
        before, _, self.raw = self.raw.partition(text.encode())
        return before

    def ends(self) -> int:
        """Read until the process has ended. Return the exit code."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None or self.read(0):
            assert time.monotonic() < deadline
            self.read(0.01)
        return self.process.returncode

    def state(self) -> str:
        """Return the state of the process. T stands for stopped."""
        return Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(") ")[2][0]


def started(arguments: tuple[str, ...], device: int, environment: dict[str, str], stdout: int | None = None) -> Process:
    """Start a command of posd on a terminal of its own. `stdout` replaces the terminal as its output."""
    if forks.can_fork(environment):
        out = device if stdout is None else stdout
        return forks.Forked(arguments, stdin=device, stdout=out, stderr=device, env=environment, session=True)
    command = [*OWN_TERMINAL, *forks.command("posd", arguments)]
    return subprocess.Popen(command, stdin=device, stdout=device, stderr=device, env=environment)


@contextmanager
def on_terminal(
    socket: Path,
    *command: str,
    size: tuple[int, int] = (24, 80),
    types: str = "",
    stdout: int | None = None,
    **env: str,
) -> Iterator[OnTerminal]:
    """Run a command of posd on a terminal for the block. The text `types` is typed before the command reads. Check at
    the end that the terminal's settings are unchanged.
    """
    keys, device = pty.openpty()
    os.write(keys, types.encode())
    modes = termios.tcgetattr(device)
    fcntl.ioctl(device, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    environment |= {"TERM": "xterm", "PYTHONIOENCODING": "utf-8"} | env
    process = started(("--socket", str(socket), *command), device, environment, stdout)
    try:
        seen = OnTerminal(process, keys, device)
        yield seen
        if process.poll() is not None:
            assert termios.tcgetattr(device) == modes
            assert b"Traceback" not in seen.raw
    finally:
        process.kill()
        process.wait()
        os.close(keys)
        os.close(device)
