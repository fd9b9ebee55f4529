"""Starts of `python -m posd`, or of a till in Python, as forks of a process that has already imported most modules.

See `tests.rig.fork_server`. `Forked` has the interface of `subprocess.Popen`. The result of `start` has the
interface of `asyncio.subprocess.Process`. A start that needs other settings of the interpreter uses `subprocess`.
`can_fork` tells callers which starts can be forks.
"""

import asyncio
import atexit
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

from tests.rig.fork_server import NUMBER

#: Path of the interpreter.
EXECUTABLE = sys.executable

#: Variables that the interpreter, the loader or the C library read at the start of a process.
AT_START = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "FAKETIME")
#: Variables of AT_START that a fork applies itself when it opens its streams.
SAID_ANYWAY = {"PYTHONIOENCODING", "PYTHONUNBUFFERED"}

#: Name of the audit event of a start.
FORKED = "tests.forked"

#: Limit in seconds for a server to import posd and to fork.
START_SECONDS = 120.0


def can_fork(environment: Mapping[str, str]) -> bool:
    """Return whether a fork can be used with this environment. Variables that take effect before `main` must be the
    same in both processes.
    """
    if sys.executable != EXECUTABLE:  # a test has set another command that enters a namespace
        return False
    names = {name for name in environment.keys() | os.environ.keys() if name.startswith(AT_START)} - SAID_ANYWAY
    return all(environment.get(name) == os.environ.get(name) for name in names)


class Forked:
    """A forked process of `python -m posd ARGUMENT…`, or of another module or file. The streams are descriptors.
    Without `stdin` the process has no input. Without `stdout` the descriptor 1 is closed. With `session` the process
    has its own session. The words of `interpreter` start Python, for example as another user.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        program: str = "posd",
        interpreter: tuple[str, ...] = (sys.executable,),
        stdin: int = subprocess.DEVNULL,
        stdout: int | None,
        stderr: int,
        env: Mapping[str, str],
        session: bool = False,
    ) -> None:
        assert can_fork(env)
        self.args = command(program, arguments)
        self.environment = dict(env)
        self.returncode: int | None = None
        self.status, theirs = socket.socketpair()
        request = {
            "program": program,
            "arguments": list(arguments),
            "environment": self.environment,
            "directory": str(Path.cwd()),
            "session": session,
            "closed": stdout is None,
        }
        with theirs, Path(os.devnull).open("rb") as nothing:
            read = nothing.fileno() if stdin == subprocess.DEVNULL else stdin
            kind = "till" if program.endswith(".py") else _kind(arguments)
            message = json.dumps(request).encode()
            write = stderr if stdout is None else stdout
            socket.send_fds(_control(kind, *interpreter), [message], [read, write, stderr, theirs.fileno()])
        self.status.settimeout(START_SECONDS)
        self.pid = NUMBER.unpack(self.status.recv(NUMBER.size))[0]
        _living.add(self)
        sys.audit(FORKED)

    def poll(self) -> int | None:
        """Return the exit code, or None while the process runs."""
        if self.returncode is None:
            self.status.setblocking(False)
            with suppress(BlockingIOError):
                self.ended(self.status.recv(NUMBER.size))
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process. Raise TimeoutExpired if the process does not end in time."""
        if self.returncode is None:
            self.status.settimeout(timeout)
            try:
                self.ended(self.status.recv(NUMBER.size))
            except TimeoutError:
                raise subprocess.TimeoutExpired(self.args, timeout or 0) from None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def ended(self, told: bytes) -> None:
        """Read the exit code from the server."""
        if self.returncode is None:
            self.returncode = NUMBER.unpack(told)[0] if told else -signal.SIGKILL
            self.status.close()
            _living.discard(self)


class Process:
    """A forked process on an event loop, with the parts of `asyncio.subprocess.Process` that tests use."""

    def __init__(
        self,
        forked: Forked,
        stdin: IO[bytes] | None,
        stdout: asyncio.StreamReader | None,
        stderr: asyncio.StreamReader | None,
    ) -> None:
        self._forked = forked
        self.pid = forked.pid
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr
        self._waiting = asyncio.create_task(self._wait())

    @property
    def returncode(self) -> int | None:
        return self._forked.returncode

    async def _wait(self) -> None:
        self._forked.status.setblocking(False)
        self._forked.ended(await asyncio.get_running_loop().sock_recv(self._forked.status, NUMBER.size))
        if self.stdin is not None:
            self.stdin.close()

    async def wait(self) -> int:
        await asyncio.shield(self._waiting)
        return self.returncode

    async def communicate(self) -> tuple[bytes, bytes]:
        """Read the whole output, and wait for the end of the process."""
        read = [await stream.read() if stream else b"" for stream in (self.stdout, self.stderr)]
        await self.wait()
        return read[0], read[1]

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _kind(arguments: Sequence[str]) -> str:
    """Return the kind of server with the imports of a command of posd."""
    if arguments[-1] == "run":
        return "run"
    return "office" if {"relay", "collect"} & set(arguments) else "command"


def command(program: str, arguments: Sequence[str]) -> list[str]:
    """Return the command line of a Python program. The program is a file or the name of a module."""
    return [sys.executable, *([program] if program.endswith(".py") else ["-m", program]), *arguments]


async def start(
    *arguments: str,
    program: str = "posd",
    env: Mapping[str, str],
    stdin: int = subprocess.DEVNULL,
    stdout: int | IO[bytes] = subprocess.PIPE,
    stderr: int | IO[bytes] = subprocess.PIPE,
    session: bool = False,
    entering: tuple[str, ...] = (),
    passing: tuple[int, ...] = (),
) -> "Process | asyncio.subprocess.Process":
    """Start `python -m posd ARGUMENT…`, or another module or file. Use a fork if a new process would do the same.
    `entering`: prefix of the command line. `passing`: descriptors that the process inherits.
    """
    if entering or passing or not can_fork(env):
        whole, streams = (*entering, *command(program, arguments)), {"stdin": stdin, "stdout": stdout, "stderr": stderr}
        return await asyncio.create_subprocess_exec(
            *whole, **streams, env=env, start_new_session=session, pass_fds=passing
        )
    typed: IO[bytes] | None = None
    readers: list[asyncio.StreamReader | None] = []
    with ExitStack() as stack:
        if stdin == subprocess.PIPE:
            stdin, write = os.pipe()
            stack.callback(os.close, stdin)
            typed = os.fdopen(write, "wb", buffering=0)
        theirs: list[int] = []
        for output in (stdout, stderr):
            reader = None
            if output == subprocess.PIPE:
                reader, descriptor = await _pipe()
                stack.callback(os.close, descriptor)
            elif output == subprocess.STDOUT:
                descriptor = theirs[0]
            else:
                descriptor = output if isinstance(output, int) else output.fileno()
            theirs.append(descriptor)
            readers.append(reader)
        forked = Forked(
            arguments, program=program, stdin=stdin, stdout=theirs[0], stderr=theirs[1], env=env, session=session
        )
    return Process(forked, typed, *readers)


async def _pipe() -> tuple[asyncio.StreamReader, int]:
    """Return a reader, and the descriptor of the other end of the pipe for a process."""
    reader = asyncio.StreamReader()
    read, write = os.pipe()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read, "rb", buffering=0)
    )
    return reader, write


def living() -> list[Forked]:
    """Return the forked processes that still run."""
    return list(_living)


def servers() -> set[int]:
    """Return the pids of the servers that this process has started."""
    return {server.process.pid for server in _servers.values()}


def descriptors() -> set[int]:
    """Return the descriptors of the connections to this process's servers."""
    return {server.control.fileno() for server in _servers.values()}


@atexit.register
def close() -> None:
    """End the servers and all forked processes."""
    while _servers:
        _, server = _servers.popitem()
        server.control.close()
        server.process.wait()


@dataclass(frozen=True)
class _Server:
    process: subprocess.Popen[bytes]
    control: socket.socket

    @classmethod
    def start(cls, kind: str, *interpreter: str) -> Self:
        """Start a server. The server imports the modules of its kind before the first request."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = subprocess.Popen(
                [*interpreter, "-m", "tests.rig.fork_server", kind, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={name: value for name, value in os.environ.items() if name != "TESTS_OWNER"},
                start_new_session=True,  # Ctrl-C ends the tests, and the tests end the server
            )
        return cls(process, ours)


_servers: dict[tuple[str, ...], _Server] = {}
_living: set[Forked] = set()


def _control(*kind: str) -> socket.socket:
    """Return the control socket of the server of this kind and interpreter. Each process starts a server once."""
    if kind not in _servers:
        _servers[kind] = _Server.start(*kind)
    return _servers[kind].control
