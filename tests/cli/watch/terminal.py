"""Runners of `posd watch`: in this process with Textual's pilot, or as a process on a pseudo-terminal."""

import asyncio
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from textual.pilot import Pilot

from posd.cli.app.connection import Api
from posd.cli.watch.app import Rows, Watch
from posd.cli.watch.state import Shop, look
from tests.support import forks
from tests.support.counter import PATIENCE

#: Program that makes the pseudo-terminal the controlling terminal, as a shell does.
OWN_TERMINAL = ("setsid", "--ctty")

Process = forks.Forked | subprocess.Popen[bytes]


class Seen:
    """`posd watch` with a pilot, which presses keys and reads the screen."""

    def __init__(self, app: Watch, pilot: "Pilot[None]") -> None:
        self.app, self.pilot = app, pilot

    def lines(self) -> list[str]:
        """Return the text of the screen."""
        return [strip.text for strip in self.app.screen._compositor.render_strips()]

    async def press(self, *keys: str) -> None:
        """Press keys."""
        await self.pilot.press(*keys)

    async def after(self, key: str, *words: str) -> None:
        """Press a key. Wait until a line has all these words."""
        await self.press(key)
        await self.shows(*words)

    async def until(self, holds: Callable[[list[str]], bool], otherwise: str) -> list[str]:
        """Wait until the lines on the screen meet a condition. Return them."""
        deadline = time.monotonic() + PATIENCE
        while not holds(lines := self.lines()):
            assert time.monotonic() < deadline, "\n".join([otherwise, *lines])
            await asyncio.sleep(0.05)
        return lines

    async def shows(self, *words: str) -> list[str]:
        """Wait until a line has all these words."""
        return await self.until(lambda lines: any(all(word in line for word in words) for line in lines), f"no {words}")

    async def selects(self, *words: str) -> None:
        """Wait until the selected row has all these words."""
        await self.until(lambda _: all(word in self._selected() for word in words), f"not selected: {words}")

    def _selected(self) -> str:
        rows = self.app.focused
        return rows.lines[rows.highlighted].plain if isinstance(rows, Rows) and rows.highlighted is not None else ""


@asynccontextmanager
async def seen(socket: Path, size: tuple[int, int] = (80, 24)) -> AsyncIterator[Seen]:
    """Run the view for the block."""
    with Api(socket) as api:
        app = Watch(socket, look(api, Shop()))
    async with app.run_test(size=size) as pilot:
        yield Seen(app, pilot)
        app.exit(app.return_value)


def pictured(socket: Path, size: tuple[int, int]) -> tuple[list[str], str]:
    """Return the complete screen of `posd watch` as lines and as a picture, for columns and lines of a terminal."""

    async def look() -> tuple[list[str], str]:
        async with seen(socket, size) as view:
            await view.shows("in_doubt")
            await view.shows("% approved")
            lines = await view.shows("q quit")
            picture = view.app.export_screenshot(title="posd watch")
            return [line.rstrip() for line in lines], re.sub(r"\s*@font-face \{.*?\}", "", picture, flags=re.DOTALL)

    return asyncio.run(look())


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
            self.read(0.05)
        return self.process.returncode

    def state(self) -> str:
        """Return the state of the process. T stands for stopped."""
        return Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(") ")[2][0]


def started(arguments: tuple[str, ...], device: int, environment: dict[str, str]) -> Process:
    """Start a command of posd on a terminal of its own."""
    if forks.can_fork(environment):
        return forks.Forked(arguments, stdin=device, stdout=device, stderr=device, env=environment, session=True)
    command = [*OWN_TERMINAL, *forks.command("posd", arguments)]
    return subprocess.Popen(command, stdin=device, stdout=device, stderr=device, env=environment)


@contextmanager
def on_terminal(socket: Path, *command: str, size: tuple[int, int] = (24, 80), **env: str) -> Iterator[OnTerminal]:
    """Run a command of posd on a terminal for the block. Check at the end that the terminal's settings are
    unchanged.
    """
    keys, device = pty.openpty()
    modes = termios.tcgetattr(device)
    fcntl.ioctl(device, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    environment |= {"TERM": "xterm", "PYTHONIOENCODING": "utf-8"} | env
    process = started(("--socket", str(socket), *command), device, environment)
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
