"""What a person sees on a real terminal: tmux runs the command and says what stands on the screen."""

import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

#: seconds: far above what anything here takes.
PATIENCE = 60.0


class Tmux:
    """A terminal of that size with a command in it: its keys, its screen."""

    def __init__(self, socket: str) -> None:
        self._socket = socket

    def call(self, *arguments: str) -> str:
        """Run a command of tmux; return what it writes."""
        done = subprocess.run(
            ["tmux", "-L", self._socket, *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == 0, (arguments, done.stderr)
        return done.stdout

    def lines(self, *, colours: bool = False) -> list[str]:
        """Return what stands on the screen, a line each."""
        return self.call("capture-pane", "-p", *["-e"] * colours).split("\n")[:-1]

    def press(self, *keys: str) -> None:
        """Press keys, by tmux's names: Down, Enter, q."""
        self.call("send-keys", *keys)

    def resize(self, width: int, height: int) -> None:
        """Give the terminal another size."""
        self.call("resize-window", "-x", str(width), "-y", str(height))

    def until(self, holds: Callable[[list[str]], bool], otherwise: str) -> list[str]:
        """Look until that holds of the screen; return it."""
        deadline = time.monotonic() + PATIENCE
        while not holds(lines := self.lines()):
            assert time.monotonic() < deadline, "\n".join([otherwise, *lines])
            time.sleep(0.05)
        return lines

    def shows(self, text: str) -> list[str]:
        """Wait until that text stands on the screen; return the screen."""
        return self.until(lambda lines: any(text in line for line in lines), f"{text!r} never came")


@contextmanager
def terminal(
    command: Sequence[str], environment: Mapping[str, str] | None = None, *, width: int = 80, height: int = 24
) -> Iterator[Tmux]:
    """Run a command on a terminal of its own for the block."""
    tmux = Tmux(f"posd-test-{secrets.token_hex(6)}")
    changed = {"LC_ALL": "C.UTF-8"} | dict(environment or {})
    words = ["env", *(f"{name}={value}" for name, value in changed.items()), *command]
    # The screen stays for a look when the command ends.
    tmux.call("-f", "/dev/null", "new-session", "-d", "-x", str(width), "-y", str(height), *words)
    try:
        tmux.call("set-option", "-g", "remain-on-exit", "on")
        yield tmux
    finally:
        subprocess.run(["tmux", "-L", tmux._socket, "kill-server"], capture_output=True, timeout=PATIENCE, check=False)


def posd(*arguments: str) -> list[str]:
    """Return the command line of `posd`."""
    return [sys.executable, "-m", "posd", *arguments]


def capture(
    command: Sequence[str],
    env: Mapping[str, str] | None = None,
    keys: Iterable[str] = (),
    width: int = 80,
    height: int = 24,
    until: str = "",
    colours: bool = False,
) -> list[str]:
    """Return the screen of a command once it shows `until`, after these keys were pressed."""
    with terminal(command, env, width=width, height=height) as tmux:
        if until:
            tmux.shows(until)
        for key in keys:
            tmux.press(key)
        return tmux.lines(colours=colours)
