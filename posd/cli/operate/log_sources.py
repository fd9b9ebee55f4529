"""Where `posd logs` has its lines from: the journal, a file, standard input."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO

from posd.cli.app.users import login_name
from posd.cli.operate.log_lines import MAX_LINE_BYTES

#: What journalctl says where it may not read all of the journal.
DENIED = ("insufficient permissions", "not seeing messages from other users", "Permission denied")
NO_ENTRIES = b"-- No entries --"
STDIN = "-"


class NoLog(Exception):
    """There is no log to read; the message says why and what to do."""


class Lines:
    """Lines of a log, and what is to be said after the last of them."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        """Yield lines as they come; one that is too long comes in pieces."""
        while line := self._stream.readline(MAX_LINE_BYTES):
            if line.rstrip() != NO_ENTRIES:
                yield line


@contextmanager
def of_file(name: str) -> Iterator[Lines]:
    """Read a file, or standard input (`-`). Raise NoLog."""
    if name == STDIN:
        yield Lines(sys.stdin.buffer)
        return
    try:
        with open(name, "rb") as stream:  # noqa: PTH123 - a name as it was typed, /dev/fd/3 among them
            yield Lines(stream)
    except OSError as error:
        if error.filename != name:  # it is of what is written
            raise
        raise NoLog(f"cannot read {name}: {error.strerror}; name a file with posd's log, or - for input") from error


@contextmanager
def of_journal(unit: str, options: Sequence[str]) -> Iterator[Lines]:
    """Read the journal. Raise NoLog where it cannot be read, also after what could be."""
    command = ["journalctl", f"--unit={unit}", "--output=cat", "--no-pager", *options]
    try:
        process = subprocess.Popen(  # noqa: S603 - words of a table and of who calls, no shell
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"LC_ALL": "C", "SYSTEMD_COLORS": "0"},
        )
    except OSError as error:
        raise NoLog(
            f"cannot run journalctl ({error.strerror}); on a machine without systemd name the file that posd's output "
            "goes to, or pipe it: posd logs FILE, … | posd logs -"
        ) from error
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    ended = False
    try:
        yield Lines(process.stdout)
        ended = True
    finally:
        if not ended:
            process.terminate()
        process.stdout.close()
        said = process.stderr.read().decode("utf-8", "replace").strip() if process.stderr else ""
        code = process.wait()
        if process.stderr:
            process.stderr.close()
    _judge(unit, code, said)


def _judge(unit: str, code: int, said: str) -> None:
    """Raise NoLog where journalctl says that it could not do what it was asked for."""
    if any(words in said for words in DENIED):
        name = login_name(os.getuid())
        join = f" (sudo usermod -aG systemd-journal {name}, then log in again)" if name else ""
        raise NoLog(
            f"this user may not read the log of {unit}; ask for the group systemd-journal{join}, or call it with sudo"
        )
    if code:
        raise NoLog(f"journalctl failed: {said or f'exit code {code}'}")
