"""Remains of a test: processes, threads, descriptors and files. This module finds and ends the remains, and reports
them with the test's name.

Each process inherits TESTS_OWNER. The variable names the run, and the test or shared fixture that started the process.
A search for processes follows each test that has started a process. A search for threads, descriptors and files follows
each test file. Each object is reported with the test after which the object first appeared.
"""

import gc
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

import pytest

from tests.rig import forks, ports

OWNER = "TESTS_OWNER"
RUN = "TESTS_RUN"

#: Limit in seconds until a thread ends after Python has collected its owner.
ENDING_SECONDS = 5.0
#: Audit events of the start of a process.
STARTING = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", forks.FORKED})


_DESCRIPTORS = "/proc/self/fd"

#: Owner of processes that this context starts. A task of a shared fixture can start processes during a test. Such
#: processes belong to the fixture, so an environment variable is not enough.
_owner: ContextVar[str] = ContextVar("owner", default="")


def owner() -> str:
    """Return the value of TESTS_OWNER for processes that this context starts."""
    return _owner.get()


@contextmanager
def owning(place: str) -> Iterator[None]:
    """Set the owner of processes that this block starts. The owner is the id of a test or the scope of a fixture."""
    named = f"{os.environ[RUN]} {place}"
    token = _owner.set(named)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(OWNER, named)
            yield
    finally:
        _owner.reset(token)


def owning_file() -> AbstractContextManager[None]:
    """Assign the processes of this block to the fixtures of the file."""
    return owning(os.environ[OWNER].removeprefix(f"{os.environ[RUN]} ").partition("::")[0])


def end_processes(place: str) -> list[str]:
    """Kill the remaining processes of a test, or of the users of a fixture. Return a line for each process."""
    owned = f"{os.environ[RUN]} {place}"
    found = []
    for forked in forks.living():
        if forked.environment.get(OWNER) == owned and forked.poll() is None:
            found.append(f"process {forked.pid}: {' '.join(forked.args)}")
            forked.kill()
            forked.wait()
    return found + list(_kill(f"{OWNER}={owned}\0"))


def end_all_processes() -> list[str]:
    """Kill the remaining processes of this run. Return a line with the owner for each process."""
    return list(_kill(f"{OWNER}={os.environ[RUN]} "))


def _kill(mark: str) -> Iterator[str]:
    """Kill the processes with this text in their environment."""
    marked = f"\0{mark}".encode()
    for pid in processes():
        with suppress(OSError):  # the process has ended, or belongs to another user
            _, found, rest = (b"\0" + _read(pid, "environ")).partition(marked)
            if found and pid != os.getpid():
                owner = rest.partition(b"\0")[0].decode("utf-8", "replace")
                line = command_line(pid)
                os.kill(pid, signal.SIGKILL)
                _wait_for(pid)
                yield f"process {pid}: {line} {owner}".rstrip()


def _wait_for(pid: int) -> None:
    """Wait for the process through the Popen object that started the process. Without this wait another test gets a
    ResourceWarning."""
    for item in gc.get_objects():
        if isinstance(item, subprocess.Popen) and item.pid == pid:
            item.wait()


def _children() -> Iterator[str]:
    """Return the names of child processes, except the servers of `tests.rig.forks`."""
    for pid in processes():
        with suppress(OSError):
            parent = int(_read(pid, "stat").rpartition(b")")[2].split()[1])
            if parent == os.getpid() and pid not in forks.servers():
                yield f"process {pid}: {command_line(pid)}"


def processes() -> list[int]:
    """Return the ids of all running processes."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - quick


def _read(pid: int, name: str) -> bytes:
    """Return a file of a process. Each test reads a file of each process, and a Path takes longer than the read."""
    with open(f"/proc/{pid}/{name}", "rb") as file:  # noqa: PTH123
        return file.read()


def command_line(pid: int) -> str:
    """Return the command line of a process. Raise OSError if the process has ended."""
    return _read(pid, "cmdline").replace(b"\0", b" ").decode("utf-8", "replace").strip() or "(ended)"


def processes_naming(directory: Path) -> dict[int, str]:
    """Return the running processes (pid -> command line) whose command line names the directory."""
    named = re.compile(rf"{re.escape(str(directory))}(?!\w)")  # a longer name with the same beginning does not count
    found = {}
    for pid in processes():
        with suppress(OSError):  # the process has ended
            if named.search(line := command_line(pid)):
                found[pid] = line
    return found


class Starts:
    """Counter of the processes that this process starts. The counter uses audit events of the interpreter."""

    def __init__(self) -> None:
        self.count = 0
        sys.addaudithook(self._hear)

    def _hear(self, event: str, _: object) -> None:
        if event in STARTING:
            self.count += 1


class Held:
    """Threads, descriptors, files and children of this process, compared with the state at the beginning of a test
    file.
    """

    def __init__(self) -> None:
        self._before: set[str] = set()
        self._first_seen: dict[str, str] = {}
        self._numbers: list[object] = []

    def begin(self) -> None:
        """Record the present state. The present objects belong to no test."""
        self._before = _held()

    def look(self, test: str) -> None:
        """Record new remains after this test, with the test's name. If all counts are unchanged, nothing is new."""
        before, self._numbers = self._numbers, _numbers()
        if before == self._numbers:
            return
        for item in _held() - self._before:
            self._first_seen.setdefault(item, test)

    @contextmanager
    def allowing(self) -> Iterator[None]:
        """Permit the remains of this block. The remains belong to the whole run."""
        before = _held()
        yield
        self._before |= _held() - before

    def left(self) -> list[str]:
        """Return a line for each remaining object. Clear the record of objects."""
        new = _held() - self._before
        if new:
            gc.collect()  # Python reports an uncollected object by a ResourceWarning
            for thread in threading.enumerate():
                if _name(thread) in new:  # the thread of a closed database may still run for a moment
                    thread.join(ENDING_SECONDS)
            new = _held() - self._before
        lines = [f"{item}; seen first after {self._first_seen.get(item, 'the last test')}" for item in sorted(new)]
        self._before |= new
        self._before &= _held()
        self._first_seen.clear()
        return [*lines, *_children()]


def _name(thread: threading.Thread) -> str:
    return f"thread {thread.name} ({thread.ident})"


def _numbers() -> list[object]:
    """Return data that changes when threads, files or descriptors are added. `_held` returns their names, which takes
    milliseconds longer."""
    return [{thread.ident for thread in threading.enumerate()}, *map(os.listdir, (tempfile.gettempdir(), _DESCRIPTORS))]


def _held() -> set[str]:
    threads = {_name(thread) for thread in threading.enumerate() if not thread.daemon}
    files = {f"file {path}" for path in Path(tempfile.gettempdir()).iterdir()}
    ours = forks.descriptors() | ports.descriptors()
    descriptors = set()
    for entry in Path(_DESCRIPTORS).iterdir():
        with suppress(OSError):  # the descriptor of the listed directory is closed by then
            target = str(entry.readlink())
            if not target.startswith("/dev/") and int(entry.name) not in ours:
                descriptors.add(f"descriptor {entry.name} -> {target}")
    return threads | files | descriptors
