"""Runner of commands of posd as processes on a pseudo-terminal."""

import fcntl
import os
import pty
import select
import struct
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.rig import forks
from tests.rig.program import PATIENCE_SECONDS


class OnTerminal:
    """A process on a terminal of 80 by 24, with its output."""

    def __init__(self, process: forks.Forked, keys: int, device: int) -> None:
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
        deadline = time.monotonic() + PATIENCE_SECONDS
        while text.encode() not in self.raw:
            assert self.read(deadline - time.monotonic()), f"the output lacks {text!r}: {self.raw!r}"
        before, _, self.raw = self.raw.partition(text.encode())
        return before

    def ends(self) -> int:
        """Read until the process has ended. Return the exit code."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.process.poll() is None or self.read(0):
            assert time.monotonic() < deadline
            self.read(0.01)
        return self.process.returncode

    def state(self) -> str:
        """Return the state of the process. T stands for stopped."""
        return Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(") ")[2][0]


@contextmanager
def on_terminal(
    socket: Path,
    *command: str,
    size: tuple[int, int] = (24, 80),
    types: str = "",
    stdout: int | None = None,
    program: str = "posd",
    **env: str,
) -> Iterator[OnTerminal]:
    """Run a command of posd, or a Python file in place of posd, on a terminal for the block. The text `types` is typed
    before the command reads. Check at the end that the terminal's settings are unchanged.
    """
    keys, device = pty.openpty()
    os.write(keys, types.encode())
    modes = termios.tcgetattr(device)
    fcntl.ioctl(device, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    environment |= {"TERM": "xterm", "PYTHONIOENCODING": "utf-8"} | env
    process = forks.Forked(
        ("--socket", str(socket), *command),
        program=program,
        stdin=device,
        stdout=device if stdout is None else stdout,
        stderr=device,
        env=environment,
        session=True,
    )
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
