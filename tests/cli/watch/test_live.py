"""`posd watch` on a real pseudo-terminal, with a real daemon and simulated terminals."""

import codecs
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from posd.cli.watch.screen import WIPE
from tests.cli.processes import posd, posd_process
from tests.cli.watch.emulator import Emulator
from tests.support.counter import PATIENCE, Counter

#: The new process has the pseudo-terminal as its own, as from a shell.
OWN_TERMINAL = ("setsid", "--ctty")
#: Modes: the cursor is seen, full lines go on in the next one, another screen.
CURSOR, WRAP, OTHER_SCREEN = "?25", "?7", "?1049"


class Shell(Emulator):
    """A terminal on which only the other screen is looked at: what is written beside it is the shell's."""

    def _put(self, char: str) -> None:
        if OTHER_SCREEN in self.modes:
            super()._put(char)


class Watched:
    """`posd watch` on a terminal: its keys, what stands on the screen, the bytes that this took."""

    def __init__(self, process: "subprocess.Popen[bytes]", keys: int, device: int, columns: int, height: int) -> None:
        self.process = process
        self.device = device
        self.bytes = 0
        self.raw = ""
        self._keys = keys
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._size(columns, height)

    def _size(self, columns: int, height: int) -> None:
        fcntl.ioctl(self.device, termios.TIOCSWINSZ, struct.pack("HHHH", height, columns, 0, 0))
        modes = self.screen.modes if hasattr(self, "screen") else {CURSOR, WRAP}
        self.screen = Shell(columns, height)
        self.screen.modes = modes
        self._skipped: str | None = None

    def resize(self, columns: int, height: int) -> None:
        """Give the terminal another size, as a window that is dragged does."""
        self._size(columns, height)
        self._skipped = ""

    def press(self, keys: str) -> None:
        """Type."""
        os.write(self._keys, keys.encode())

    def read(self, seconds: float) -> bool:
        """Take what is written within that time; whether there was anything."""
        ready, _, _ = select.select([self._keys], [], [], max(0.0, seconds))
        if not ready:
            return False
        try:
            raw = os.read(self._keys, 65536)
        except OSError:  # the other end is closed
            return False
        self.bytes += len(raw)
        text = self._decoder.decode(raw)
        self.raw += text
        if self._skipped is not None:  # what was drawn for the old size
            self._skipped += text
            if WIPE not in self._skipped:
                return True
            text, self._skipped = self._skipped[self._skipped.index(WIPE) :], None
        self.screen.write(text)
        return True

    def until(self, holds: Callable[[list[str]], bool], otherwise: str) -> list[str]:
        """Read until that holds of the lines on the screen; return them."""
        deadline = time.monotonic() + PATIENCE
        while not holds(lines := self.screen.lines()):
            assert self.read(deadline - time.monotonic()), "\n".join([otherwise, *lines])
        return lines

    def shows(self, *words: str) -> list[str]:
        """Read until a line has all these words in it."""
        return self.until(lambda lines: any(all(word in line for word in words) for line in lines), f"no {words}")

    def hides(self, words: str) -> list[str]:
        """Read until no line has them."""
        return self.until(lambda lines: not any(words in line for line in lines), f"still {words}")

    def ends(self) -> int:
        """Read until the process has ended; return its exit code."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None or self.read(0):
            assert time.monotonic() < deadline
            self.read(0.05)
        return self.process.returncode

    def state(self) -> str:
        """Return the process's state: T is stopped."""
        return Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(") ")[2][0]


@contextmanager
def watched(
    shop: Counter,
    *options: str,
    columns: int = 80,
    height: int = 24,
    before: tuple[str, ...] = OWN_TERMINAL,
    **env: str,
) -> Iterator[Watched]:
    keys, device = pty.openpty()
    modes = termios.tcgetattr(device)
    fcntl.ioctl(device, termios.TIOCSWINSZ, struct.pack("HHHH", height, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = subprocess.Popen(
        [*before, sys.executable, "-m", "posd", "--socket", str(shop.socket), "watch", *options],
        stdin=device,
        stdout=device,
        stderr=device,
        env=environment | {"TERM": "xterm", "PYTHONIOENCODING": "utf-8"} | env,
    )
    try:
        seen = Watched(process, keys, device, columns, height)
        yield seen
        if process.poll() is not None:  # however it ended, the terminal is as it was
            assert termios.tcgetattr(device) == modes
            assert seen.screen.modes == {CURSOR, WRAP}
            assert "Traceback" not in seen.raw
    finally:
        process.kill()
        process.wait()
        os.close(keys)
        os.close(device)


@pytest.fixture(scope="module")
def shop_of_all() -> Iterator[Counter]:
    with TemporaryDirectory(prefix="posd-") as home, Counter(Path(home), terminals=2) as counter:
        yield counter


@pytest.fixture
def shop(shop_of_all: Counter) -> Iterator[Counter]:
    """The shop; what a test leaves stopped or open, as one that fails does, is started and ended."""
    yield shop_of_all
    shop_of_all.tidy()


@pytest.mark.slow
def test_a_payment_comes_advances_and_ends_before_the_eyes(shop: Counter) -> None:
    with watched(shop) as seen:
        seen.shows("no payment is open")
        shop.charge(11.2, scenario="by-hand")
        seen.shows("SN-0001", "charge", "11.20", "[ack]·card·bank·end", "waiting for card")
        seen.shows("SN-0001", "reachable", "charge: waiting for card")
        shop.hand("present-card")
        seen.shows("SN-0001", "11.20", "ack·card·[bank]·end", "at the bank")
        shop.hand("approve")
        seen.shows("SN-0001", "11.20", "ack·card·bank·[end]", "approved")
        seen.shows("last hour", " ended · ", "% approved")  # with what other tests have ended in it
        seen.shows("SN-0001", "free")
        seen.press("q")
        assert seen.ends() == 0


@pytest.mark.slow  # it looks again after 10 seconds
def test_a_payment_that_has_ended_leaves_the_screen_a_little_later(shop: Counter) -> None:
    with watched(shop) as seen:
        seen.shows("q quit")
        shop.charge(13)
        seen.shows("13.00", "[end]", "approved")
        seen.hides("[end]")
        seen.press("q")
        assert seen.ends() == 0


@pytest.mark.slow
def test_an_abort_by_a_key_is_asked_about_and_ends_the_payment(shop: Counter) -> None:
    payment = shop.charge(25, scenario="wait-for-abort")
    with watched(shop) as seen:
        seen.shows("▸", "SN-0001", "25.00", "waiting for card")
        seen.press("a")
        seen.shows("abort the payment of 25.00 on SN-0001?")
        seen.press("n")
        seen.shows("not aborted")
        assert not [line for line in shop.ledger() if line["kind"] == "abort"]
        seen.press("a")
        seen.shows("abort the payment of 25.00 on SN-0001?")
        seen.press("y")
        seen.shows("asked to abort the payment of 25.00 on SN-0001")
        seen.shows("▸", "SN-0001", "25.00", "[end]", "canceled")
        seen.press("a")
        seen.shows("cannot abort", "it has ended")
        assert shop.ended(payment)["result"] == "canceled"
        assert [line for line in shop.ledger() if line["kind"] == "abort"]
        seen.press("\x03")
        assert seen.ends() == 0


@pytest.mark.slow
def test_reconcile_by_a_key_tells_what_came(shop: Counter) -> None:
    payment = shop.charge(31, "SN-0002", scenario="wait-for-abort")
    with watched(shop) as seen:
        seen.shows("▸", "SN-0002", "31.00")
        assert shop.transaction(payment)["last_search"] is None
        seen.press("r")
        seen.shows("the payment of 31.00 on SN-0002 is still open (waiting for card)")
        assert shop.transaction(payment)["last_search"] is not None
        shop.hand("present-card", "SN-0002")
        shop.hand("approve", "SN-0002")
        seen.shows("▸", "SN-0002", "31.00", "approved")
        seen.press("r")
        seen.shows("The customer was charged.", "the payment of 31.00 on SN-0002: approved")
        seen.press("q")
        assert seen.ends() == 0


@pytest.mark.slow
def test_show_and_help_open_scroll_follow_and_close(shop: Counter) -> None:
    payment = shop.charge(42, scenario="by-hand")
    with watched(shop) as seen:
        seen.shows("▸", "42.00")
        seen.press("s")
        seen.shows("client_transaction_id", payment)
        seen.press("\x1b[F")
        seen.shows("event TERMINAL_ACKNOWLEDGED")
        shop.hand("present-card")  # it is told anew when something happens
        seen.press("\x1b[F")
        seen.until(
            lambda lines: seen.press("\x1b[F") or any("event APPROVAL_REQUESTED" in line for line in lines), "no"
        )
        seen.press("\x1b[H")
        seen.shows("client_transaction_id", payment)
        seen.press("\x1b")
        seen.shows("ATTENTION")
        seen.press("?")
        seen.shows("select a row")
        seen.press("q")
        seen.shows("ATTENTION")
        seen.press("\x1b[A\x1b[A\x1b[A\x1bOA")
        seen.shows("▸", "SN-0001", "reachable")
        seen.press("\r")
        seen.shows("base_url", "http://127.0.0.1")
        seen.press("qq")
        assert seen.ends() == 0
    shop.hand("approve")
    shop.ended(payment)


def test_a_terminal_of_another_size_is_filled(shop: Counter) -> None:
    with watched(shop) as seen:
        seen.shows("q quit")
        for columns, height in ((120, 40), (40, 10), (3, 2), (1, 1), (80, 24)):
            seen.resize(columns, height)
            seen.until(lambda lines: lines[0].startswith("posd"[: seen.screen.columns]), "nothing drawn")
        seen.shows("q quit")
        assert "q quit" in seen.screen.lines()[-1]
        seen.press("q")
        assert seen.ends() == 0


@pytest.mark.slow
def test_a_daemon_that_goes_and_comes_back_is_told_of_and_followed_again(shop: Counter) -> None:
    with watched(shop) as seen:
        seen.shows("  ok")
        shop.kill_daemon()
        seen.shows("posd cannot be reached since", "trying again in")
        assert "away" in seen.screen.lines()[0]
        seen.press("a")  # keys go on
        shop.start_daemon()
        seen.shows("posd is back")
        assert "ok" in seen.screen.lines()[0]
        shop.until(lambda: shop.get("/terminals")["terminals"][0]["reachable"], "no terminal")
        shop.charge(17, scenario="by-hand")
        seen.shows("17.00", "[ack]")
        shop.hand("present-card")
        shop.hand("approve")
        seen.shows("17.00", "approved")
        seen.press("q")
        assert seen.ends() == 0


@pytest.mark.quick(1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_it_and_leaves_the_terminal_as_it_was(shop: Counter, number: signal.Signals) -> None:
    with watched(shop) as seen:
        seen.shows("q quit")
        assert seen.screen.modes == {OTHER_SCREEN}
        seen.process.send_signal(number)
        assert seen.ends() == 0


def test_a_fault_of_ours_leaves_the_terminal_as_it_was_and_is_one_message(shop: Counter, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import posd.cli.watch.render as render\n"
        "def broken(*_):\n    raise ValueError('broken')\n"
        "import posd.cli.watch.app as app\napp.frame = broken\n"
    )
    with watched(shop, PYTHONPATH=f"{tmp_path}:{Path.cwd()}") as seen:
        assert seen.ends() == 1
        assert "a fault of posd itself: ValueError: broken" in seen.raw


def test_ctrl_z_gives_the_terminal_back_until_it_goes_on(shop: Counter) -> None:
    with watched(shop) as seen:
        seen.shows("q quit")
        os.kill(seen.process.pid, signal.SIGTSTP)
        deadline = time.monotonic() + PATIENCE
        while seen.state() != "T":
            assert time.monotonic() < deadline
            seen.read(0.05)
        while seen.read(0.1):
            pass
        assert seen.screen.modes == {CURSOR, WRAP}
        assert termios.tcgetattr(seen.device)[3] & termios.ICANON
        seen.process.send_signal(signal.SIGCONT)
        seen.until(lambda lines: OTHER_SCREEN in seen.screen.modes and "q quit" in lines[-1], "not drawn anew")
        seen.press("q")
        assert seen.ends() == 0


@pytest.mark.slow  # posd watch waits 5 seconds for it
def test_a_terminal_that_takes_nothing_does_not_hold_the_view(shop: Counter) -> None:
    keys, device = pty.openpty()
    fcntl.ioctl(device, termios.TIOCSWINSZ, struct.pack("HHHH", 200, 300, 0, 0))
    before = termios.tcgetattr(device)
    process = subprocess.Popen(
        [*OWN_TERMINAL, sys.executable, "-m", "posd", "--socket", str(shop.socket), "watch"],
        stdin=device,
        stdout=device,
        stderr=device,
        env=os.environ | {"TERM": "xterm", "PYTHONIOENCODING": "utf-8"},
    )
    try:
        # Frames of 300 columns fill what the kernel keeps; the terminal does not read them.
        deadline = time.monotonic() + PATIENCE
        while select.select([], [device], [], 0)[1]:
            assert time.monotonic() < deadline
            process.send_signal(signal.SIGWINCH)
            time.sleep(0.05)
        os.write(keys, b"q")
        assert process.wait(PATIENCE) == 0
        assert termios.tcgetattr(device) == before
    finally:
        process.kill()
        process.wait()
        os.close(keys)
        os.close(device)


@pytest.mark.slow
def test_what_a_change_takes_on_the_line_is_bounded(shop: Counter) -> None:
    with watched(shop) as seen:
        seen.shows("no payment is open")
        before = seen.bytes
        payment = shop.charge(9, scenario="by-hand")
        seen.shows("[ack]")
        shop.hand("present-card")
        seen.shows("[bank]")
        shop.hand("approve")
        seen.shows("[end]", "approved")
        assert shop.ended(payment)
        # Some frames of a list, of what to do below it and of the numbers; and a byte or two a second.
        assert seen.bytes - before < 4000
        seen.press("q")
        assert seen.ends() == 0


def test_where_the_locale_is_not_utf_8_all_is_ascii_and_no_color_is_heeded(shop: Counter) -> None:
    with watched(shop, PYTHONIOENCODING="ascii", NO_COLOR="1") as seen:
        seen.shows("^ v select")
        assert seen.raw.isascii()
        assert "\x1b[0;1m" in seen.raw
        assert not any(f";3{colour}" in seen.raw for colour in range(8))
        seen.press("q")
        assert seen.ends() == 0


def test_once_is_text_in_a_pipe(shop: Counter) -> None:
    done = posd_process("--socket", str(shop.socket), "watch", "--once")
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert "TERMINALS 2" in done.stdout
    assert "SN-0002  reachable" in done.stdout


@pytest.mark.slow
def test_as_json_it_is_a_line_for_each_change_from_now_on(shop: Counter) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "posd", "--socket", str(shop.socket), "watch", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        # It says nothing of the past: payments are made until one is in it.
        first = shop.until(lambda: shop.charge(3) and select.select([process.stdout], [], [], 0.5)[0], "silent") and ""
        line = json.loads(process.stdout.readline())
        assert line["kind"] == "transaction"
        shop.kill_daemon()
        assert "posd is away" in process.stderr.readline()
        shop.start_daemon()
        assert "posd is back" in process.stderr.readline()
        shop.until(lambda: shop.get("/terminals", {"check": "true"})["terminals"][0]["reachable"], "no terminal")
        payment = shop.charge(4)
        results = []
        while not results or results[-1] is None:
            change = json.loads(process.stdout.readline())
            results += [change["result"]] if change["id"] == payment else []
        assert results[-1] == "approved"
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
        assert "Traceback" not in process.stderr.read() + first
    finally:
        process.kill()
        process.communicate()


@pytest.mark.quick(1)
@pytest.mark.parametrize("options", [(), ("--json",), ("--once",)])
def test_a_daemon_that_is_not_there_is_told_at_the_start(tmp_path: Path, options: tuple[str, ...]) -> None:
    keys, device = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "posd", "--socket", str(tmp_path / "absent.sock"), "watch", *options],
            stdin=device,
            stdout=device,
            stderr=subprocess.PIPE,
            env=os.environ | {"TERM": "xterm"},
            timeout=PATIENCE,
            check=False,
        )
    finally:
        os.close(keys)
        os.close(device)
    assert done.returncode == 3
    assert b"is posd running" in done.stderr


def test_without_a_terminal_it_says_what_to_use_instead(shop: Counter) -> None:
    done = posd("watch", socket=shop.socket)
    assert done.returncode == 2
    assert "posd watch --once" in done.stderr
    both = posd("watch", "--once", "--json", socket=shop.socket)
    assert both.returncode == 2
    assert "posd status --json" in both.stderr
