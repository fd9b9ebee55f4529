"""The commands on the pages of docs/guides/operations.md, and the machines on which a test types these commands."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.system import packages, shop
from tests.system.machine import Machine
from tests.system.report import Report

GUIDE = (packages.CHECKOUT / "docs" / "guides" / "operations.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```bash\n(.*?)^```", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
#: Beginnings of commands. A text in backticks with one of these beginnings is a command.
TYPED = ("posd ", "sudo ", "systemctl ", "journalctl ")
#: User name of the guide's reader. The user is in the group posd-admin and may use sudo.
READER = "ana"
SUDOERS = f"{READER} ALL=(ALL) NOPASSWD: ALL\n"
#: Editor for the reader. The editor runs the sed script in a file.
EDITOR = '#!/bin/sh\nexec sed -i -E -f /root/edit.sed "$1"\n'
#: Packages that the pages need and a bare Debian lacks.
NEEDED = ("python3", "ca-certificates", "sudo", "curl")
#: Environment of the reader's terminal.
TERMINAL = ("SHELL=/bin/bash", "TERM=xterm", "NO_COLOR=1", "COLUMNS=80", "LINES=24")
#: Control sequences of a terminal, and the spinner of a busy command.
PLACE = re.compile(r"\x1b\[[0-9;]*H")
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-B0-2]|[\r\x07]|\^@")
TURNING = re.compile(r"^[\u2800-\u28ff] .*\n", re.MULTILINE)


@contextmanager
def opened(report: Report, scratch: Path) -> Iterator[Machine]:
    """Install the package on a machine, boot the machine, and charge a card. Raise Stopped if a step failed."""
    with Machine(report, scratch) as machine:
        with report.check("a machine is laid out, and charges", needed=True):
            machine.make()
            machine.install(*NEEDED, packages.given(scratch))
            machine.write("/usr/local/bin/editor", EDITOR)
            machine.run("chmod", "+x", "/usr/local/bin/editor")
            machine.write(f"/etc/sudoers.d/{READER}", SUDOERS)
            machine.write("/etc/hosts", f"127.0.0.1 localhost {(machine.root / 'etc/hostname').read_text()}")
            machine.run("useradd", "--create-home", "--groups", "posd-admin", READER)
            machine.boot()
            shop.begin(machine)
        yield machine


def text(heading: str) -> str:
    """Return the text under a heading. Raise AssertionError if the heading does not exist."""
    found = re.search(rf"^##? {re.escape(heading)}\n(.*?)(?=^##? |\Z)", GUIDE, re.MULTILINE | re.DOTALL)
    assert found, f"docs/guides/operations.md has no page {heading!r}"
    return found[1]


def commands(heading: str) -> list[str]:
    """Return each command of a page once. Commands are the lines of code blocks, and texts in backticks."""
    page = text(heading)
    lines = [line for block in BLOCK.findall(page) for line in block.replace("\\\n", " ").splitlines()]
    sentences = [" ".join(words.split()) for words in re.findall(r"`([^`]+)`", FENCED.sub("", page))]
    typed = [words for words in sentences if words.startswith(TYPED)]
    return list(dict.fromkeys(words for words in (*lines, *typed) if words))


@dataclass
class Page:
    """A page that a test follows. The test must type each command, or name the command as not typed. `given` has the
    values of the placeholders, such as ID and SERIAL.
    """

    heading: str
    machine: Machine
    given: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._all = commands(self.heading)
        self._left = set(self._all)

    def type(self, command: str, *codes: int, answer: str = "", **given: str) -> str:
        """Type a command of the page on a terminal of 80 columns, and `answer` at the command's questions. Return the
        output as one line without frames. The exit code must be in `codes`, by default 0.
        """
        assert command in self._all, f"{command!r} is not on the page {self.heading!r}"
        self._left.discard(command)
        words = command
        for name, value in {**self.given, **given}.items():
            words = re.sub(rf"\b{re.escape(name)}\b", lambda _, value=value: value, words)
        home = (f"HOME=/home/{READER}", f"USER={READER}", f"LOGNAME={READER}")
        script = ("script", "-qec", f"cd ~{READER} && {words}", "/dev/null")
        done = self.machine.run("env", *TERMINAL, *home, *script, user=READER, text=answer, check=False, seconds=600)
        screen = TURNING.sub("", CONTROL.sub("", PLACE.sub("\n", done.stdout + done.stderr)))
        shown = re.sub(r"\n\n+", "\n\n", screen).strip()
        self.machine.note(f"{READER}$ {words}\n{shown}\n[exit code {done.returncode}]")
        assert done.returncode in (codes or (0,)), f"{words} ended with exit code {done.returncode}\n{shown}"
        return " ".join(re.sub(r"[│╭╮╰╯─]", " ", shown).split())

    def end(self, untyped: str = "") -> None:
        """Check that every command was typed, except the command `untyped`."""
        assert self._left == {untyped} - {""}, f"the commands {self._left} were not typed, which may {untyped!r} alone"
