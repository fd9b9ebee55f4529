"""What a person sees on a real terminal: tmux runs the command and says what stands on the screen."""

import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.counter import Counter

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


def check_watch(home: Path) -> list[str]:
    """Hold what `posd watch` shows in 80x24 of a shop with payments, attention and a terminal that is off.

    Return the screen. `home` is an empty directory with a short path.
    """
    extra = '[[terminals]]\nserial = "SN-OFF"\nbase_url = "http://127.0.0.1:9"\n'
    with Counter(home, terminals=3, extra=extra) as shop:
        command = posd("--socket", str(shop.socket), "watch")
        with terminal(command) as tmux:
            tmux.shows("no payment is open")
            shop.ended(shop.charge(99, "SN-0001", scenario="approval-without-reference"))
            shop.charge(11.2, "SN-0001", scenario="by-hand")
            shop.charge(25, "SN-0002", scenario="by-hand")
            shop.hand("present-card", "SN-0002")
            shop.charge(7, "SN-0003", scenario="wait-for-abort")
            tmux.shows("[bank]")
            screen = tmux.shows("missing_reference")
            assert len(screen) == 24
            for words in (
                ("TERMINALS 4, 1 without answer",),
                ("SN-OFF", "no answer"),
                ("SN-0001", "reachable", "charge: waiting for card"),
                ("SN-0001", "11.20", "[ack]·card·bank·end", "waiting for card"),
                ("SN-0002", "25.00", "ack·card·[bank]·end", "at the bank"),
                ("▸", "missing_reference", "SN-0001", "99.00"),
                ("posd acknowledge ID missing_reference",),
                ("last hour 1 ended · 100% approved",),
                ("q quit",),
            ):
                assert any(all(word in line for word in words) for line in screen), (words, screen)
            tmux.press("s")
            tmux.shows("client_transaction_id")
            tmux.press("q")
            tmux.shows("ATTENTION")
            _resized(tmux)
            _killed(tmux, shop)
            tmux.press("q")
            tmux.shows("Pane is dead (status 0")
        _stopped_and_continued(command)
    return screen


def _resized(tmux: Tmux) -> None:
    for width, height in ((40, 10), (120, 40), (80, 24)):
        tmux.resize(width, height)
        tmux.until(lambda lines: "q quit" in lines[-1] and len(lines) == height, "not drawn for its size")  # noqa: B023


def _killed(tmux: Tmux, shop: Counter) -> None:
    shop.kill_daemon()
    tmux.shows("posd cannot be reached since")
    shop.start_daemon()
    tmux.shows("posd is back")


def _stopped_and_continued(command: Sequence[str]) -> None:
    """Ctrl-Z in a real shell gives it its screen, its echo and its lines; fg takes the screen again."""
    with terminal(["bash", "--norc"], {"PS1": "ready> "}) as tmux:
        tmux.shows("ready>")
        tmux.press("stty -a | md5sum", "Enter")
        before = tmux.until(lambda lines: any(line.endswith("  -") for line in lines), "no sum")
        tmux.press(" ".join(command), "Enter")
        tmux.shows("q quit")
        tmux.press("C-z")
        tmux.shows("Stopped")
        tmux.press("clear", "Enter", "stty -a | md5sum", "Enter")
        after = tmux.until(lambda lines: any(line.endswith("  -") for line in lines), "no sum")
        assert _sum(before) == _sum(after)
        tmux.press("bg", "Enter", "echo in the $((1+1)). place", "Enter")
        tmux.shows("in the 2. place")
        tmux.press("fg", "Enter")
        tmux.shows("q quit")
        tmux.press("q")
        tmux.shows("in the 2. place")
        tmux.press("clear", "Enter", "stty -a | md5sum", "Enter")
        again = tmux.until(lambda lines: any(line.endswith("  -") for line in lines), "no sum")
        assert _sum(before) == _sum(again)


def _sum(lines: list[str]) -> str:
    return next(line for line in lines if line.endswith("  -"))


if __name__ == "__main__":
    with TemporaryDirectory(prefix="posd-", dir="/tmp") as directory:
        print("\n".join(check_watch(Path(directory))))
