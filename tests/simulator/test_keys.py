"""The keys of `posd simulate`, pressed on a real pseudo-terminal."""

import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

from posd.cli.simulator_screen import KEYS, SCENARIO_KEY
from posd.simulator.control import DEEDS, HELP
from tests.simulator.conftest import CHARGE, PATIENCE, request

MANUAL = Path(__file__).parents[2] / "docs" / "guides" / "simulator.md"
#: Escape sequences of colours.
STYLE = re.compile(r"\x1b\[[0-9;]*m")
LOCAL_MODES = 3
OPTIONS = ("--http", "--listen", "127.0.0.1:0", "--speed", "1000")
#: Program that makes the pseudo-terminal the controlling terminal, as a shell does.
OWN_TERMINAL = ("setsid", "--ctty")


class Screen:
    """A process on a pseudo-terminal: its keys, its output, and the modes of the terminal."""

    def __init__(self, process: "subprocess.Popen[bytes]", keys: int, device: int, before: list[object]) -> None:
        self.process = process
        self._keys = keys
        self._device = device
        self.before = before
        self.seen = ""

    @property
    def modes(self) -> list[object]:
        return list(termios.tcgetattr(self._device))

    def press(self, keys: str) -> None:
        os.write(self._keys, keys.encode())

    def read_until(self, text: str) -> str:
        """Return the output from the last position to the first line with `text`."""
        deadline = time.monotonic() + PATIENCE
        while text not in self.seen:
            ready, _, _ = select.select([self._keys], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"the output lacks {text!r}: {self.seen!r}"
            self.seen += STYLE.sub("", os.read(self._keys, 65536).decode())
        read, _, self.seen = self.seen.partition(text)
        return read + text

    def base_url(self) -> str:
        found = re.search(r"http://[0-9.]+:[0-9]+", self.read_until("Ctrl-C ends it."))
        assert found is not None
        return found.group()

    def settled(self, cooked: bool) -> None:
        """Wait until the terminal delivers whole lines, or until it delivers single keys."""
        deadline = time.monotonic() + PATIENCE
        while bool(termios.tcgetattr(self._device)[LOCAL_MODES] & termios.ICANON) is not cooked:
            assert time.monotonic() < deadline
            time.sleep(0.01)


@contextmanager
def screen(*options: str, tmp: Path, before: tuple[str, ...] = OWN_TERMINAL) -> Iterator[Screen]:
    keys, device = pty.openpty()
    modes = list(termios.tcgetattr(device))
    process = subprocess.Popen(
        [*before, sys.executable, "-m", "posd", "simulate", *OPTIONS, *options],
        stdin=device,
        stdout=device,
        stderr=device,
        env=os.environ | {"TMPDIR": str(tmp), "TERM": "xterm"},
    )
    try:
        yield Screen(process, keys, device, modes)
    finally:
        process.kill()
        process.wait()
        os.close(keys)
        os.close(device)


def charge(base_url: str) -> None:
    with httpx2.Client(trust_env=False, timeout=PATIENCE) as client:
        assert client.post(base_url + CHARGE, json=request()).status_code == 200


def test_keys_control_payments_and_switches_and_the_screen_is_restored(tmp_path: Path) -> None:
    with screen("--scenario", "by-hand", tmp=tmp_path) as shown:
        base_url = shown.base_url()
        help_text = shown.read_until("Ctrl-C ends\r\n")
        assert all(f"{letter} {words}" in help_text for letter, (words, _) in KEYS.items())
        shown.settled(cooked=False)
        shown.press("p")
        shown.read_until("hand: present-card, not now")
        charge(base_url)
        shown.read_until("answered 200, scenario by-hand")
        shown.press("u")
        shown.read_until("off the network")
        shown.press("s")
        shown.settled(cooked=True)
        shown.press("declime\x7f\x7fne\n")
        shown.read_until("The next payment: decline.")
        shown.settled(cooked=False)
        shown.press("\x03")
        assert shown.process.wait(PATIENCE) == 0
        assert shown.modes == shown.before
    assert list(tmp_path.iterdir()) == []


def test_the_manual_has_every_key_and_every_call_of_the_control_api() -> None:
    rows = re.findall(r"^\| `(.)` \| (.*?) \|", MANUAL.read_text(), re.MULTILINE)
    assert {letter for letter, _ in rows} == {*KEYS, SCENARIO_KEY, "?"}
    deeds = {deed for _, cells in rows for deed in re.findall(r"`([a-z-]+)`", cells)}
    assert deeds == {*re.findall(r"^POST /terminals/SERIAL/([a-z-]+)", HELP, re.MULTILINE)} == {*DEEDS}
