"""The short run: the same cases each time (derandomised), so that the suite never meets a new one by chance."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.found import Found, kept, save
from tests.fuzz.running import batch
from tests.fuzz.seeds import EVENTS
from tests.fuzz.target import Case, Target
from tests.fuzz.targets import PURE, SERVED
from tests.fuzz.trees import tree, write

CASES = 250
FOUND = tuple(kept())
BY_NAME = {target.name: target for target in PURE}


@pytest.mark.quick(1)
@pytest.mark.parametrize("target", PURE, ids=lambda target: target.name)
def test_invariants_hold(target: Target) -> None:
    failure = batch(target, CASES)
    assert failure is None, failure


@pytest.mark.parametrize("item", [item for item in FOUND if item.target not in SERVED], ids=lambda item: item.name)
def test_what_broke_an_invariant_once_does_not_again(item: Found) -> None:
    BY_NAME[item.target].check(item.case)


def test_a_failure_is_found_shrunk_and_kept(tmp_path: Path) -> None:
    """The search itself, against an invariant that does not hold: no event has a brand."""

    def check(case: Case) -> None:
        assert b"brand" not in case.body, "it has a brand"

    failure = batch(BY_NAME["event"]._replace(check=check), CASES)
    assert failure is not None
    assert b"brand" in failure.case.body
    assert len(failure.case.body) <= len(write(tree(EVENTS[0]))), "it was not shrunk"
    save("event", failure.case, str(failure.error), tmp_path)
    (again,) = kept(tmp_path)
    assert (again.target, again.case) == ("event", failure.case)


#: Configurations for the command: right, wrong in a value, and what a parser does not expect.
TEXTS = {
    "right": (b'[[terminals]]\nserial = "SN-1"\n', 0),
    "wrong value": (b'[[terminals]]\nserial = "SN-1"\nscheme = "ftp"\n', 2),
    "a number of 5000 digits": (b"[database]\nretention_days = " + b"9" * 5000, 2),
    "a hexadecimal one": (b"[database]\nretention_days = 0x" + b"f" * 5000, 2),
    "brackets": (b"terminals = " + b"[" * 5000, 2),
    "NUL in a path": (b'[terminal_defaults.headers]\nX = {file = "a\\u0000b"}\n', 2),
    "NUL in an address": (b'[webhooks]\nlisten = "[fe80::1%a\\u0000b]:80"\n', 2),
    "a key with a line in it": (b'"a\\nb" = 1\n', 2),
    "not UTF-8": (b"\xff\xfe[merchant]", 2),
}


@pytest.mark.slow
def test_the_command_tells_what_is_wrong_and_never_a_traceback(tmp_path: Path) -> None:
    """`posd config check` as a process, all at once."""
    running = {}
    for number, (name, (text, _)) in enumerate(TEXTS.items()):
        file = tmp_path / f"{number}.toml"
        file.write_bytes(text)
        command = [sys.executable, "-m", "posd", "--config", str(file), "config", "check", "--file-only"]
        running[name] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for number, (name, process) in enumerate(running.items()):
        _, said = process.communicate(timeout=120)
        assert process.returncode == TEXTS[name][1], (name, said)
        assert "Traceback" not in said, name
        assert process.returncode == 0 or f"{number}.toml:" in said, (name, said)
