"""Runners of `posd` in this process, as a process, and on a terminal, with a daemon or a stub of the daemon."""

import contextlib
import json
import os
import re
import shlex
import signal
import socketserver
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from click.testing import CliRunner
from rich.cells import cell_len

from posd.cli.main import main
from posd.sandbox import Sandbox
from tests.cli.terminals import on_terminal
from tests.support import forks
from tests.support.leftovers import command_line, owning_file, processes

# A small real HTTP server on a Unix socket. It replies by script, for faults that a daemon rarely has.


@dataclass(frozen=True)
class Call:
    """A received request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Answer:
    """Response to send. With `cut` the stub closes the connection without a response."""

    status: int = 200
    body: bytes = b"{}"
    content_type: str = "application/json"
    cut: bool = False
    before: Callable[[], object] | None = None


def problem(status: int, code: str, detail: str, extra: str = "") -> Answer:
    """Return a problem response in posd's form."""
    body = f'{{"type":"urn:posd:problem:{code}","status":{status},"code":"{code}","detail":"{detail}"{extra}}}'
    return Answer(status, body.encode(), "application/problem+json")


@dataclass
class Stub:
    """Server that replies with the items of `script` in order, as a context manager. The server records calls in
    `calls`.
    """

    socket: Path
    script: list[Answer]
    calls: list[Call] = field(default_factory=list)

    def __enter__(self) -> Self:
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {k.lower(): v for k, v in self.headers.items()}
                stub.calls.append(Call(self.command, self.path, headers, body))
                answer = stub.script.pop(0)
                if answer.before is not None:
                    answer.before()
                self.close_connection = True
                if answer.cut:
                    return
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.content_type)
                self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(answer.body)

            do_GET = do_PUT = do_POST = handle_any  # noqa: N815 - the base class defines this name

            def address_string(self) -> str:
                return "till"

            def log_message(self, *args: object) -> None:
                pass

        class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
            daemon_threads = False  # `server_close` would wait for the threads of open connections

            def handle_error(self, request: object, client_address: object) -> None:
                if not isinstance(sys.exc_info()[1], BrokenPipeError):
                    super().handle_error(request, client_address)  # the command did not wait for the response

        self.socket.unlink(missing_ok=True)
        self._server = Server(str(self.socket), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


# Runners.

#: Maximum duration of a command, in seconds. The limit is far above any normal duration. A test that hangs must fail.
PATIENCE = 40.0


@dataclass(frozen=True)
class Done:
    """Result of a command, and the calls that the stub received."""

    returncode: int
    stdout: str
    stderr: str
    calls: list[Call] = field(default_factory=list)

    @property
    def lines(self) -> list[str]:
        """Lines of the output."""
        return self.stdout.splitlines()

    @property
    def rows(self) -> list[list[str]]:
        """Cells of the tables in the output."""
        return [line.split("\t") for line in self.lines]

    @property
    def labels(self) -> dict[str, str]:
        """Labels and values of a panel in a pipe, label -> value."""
        return dict(line.split(": ", 1) for line in self.lines if ": " in line)

    @property
    def document(self) -> Any:
        """The output as JSON."""
        return json.loads(self.stdout)

    @property
    def text(self) -> str:
        """All that a person reads."""
        return self.stdout + self.stderr

    def ends(self, code: int, *words: str, lacks: Sequence[str] = ()) -> Self:
        """Check the exit code, and that the text has and lacks these words. Return the result."""
        wrong = [*(each for each in words if each not in self.text), *(each for each in lacks if each in self.text)]
        assert (self.returncode, wrong, "Traceback" in self.text) == (code, [], False), self.text
        return self

    @property
    def sent(self) -> list[tuple[str, str, Any]]:
        """Method, path after /v1, and body of each call."""
        return [(call.method, call.path.removeprefix("/v1"), json.loads(call.body or b"null")) for call in self.calls]


def posd(*arguments: str, config: Path | None = None, socket: Path | None = None) -> Done:
    """Run a command in this process to its end. A start of Python would take most of a test's time."""
    result = CliRunner().invoke(main, command(arguments, config, socket)[3:])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    for thread in threading.enumerate():
        if "(_read)" in thread.name:  # the reading thread of a wait ends only with the process of a command
            thread.join(PATIENCE)
    return Done(result.exit_code, result.stdout, result.stderr)


class Shop(Sandbox):
    """A daemon with a simulated terminal, and functions that run commands."""

    def run(self, *arguments: str) -> Done:
        """Run a command in this process to its end."""
        return posd(*arguments, config=self.config_path)

    def approved(self, *arguments: str) -> str:
        """Run a command that must be approved. Return the id of the payment."""
        done = self.run(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.split()[1]


def posd_process(*arguments: str, config: Path | None = None) -> Done:
    """Run a command as a process to its end."""
    with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
        process = forks.Forked(
            command(arguments, config, None)[3:], stdout=stdout.fileno(), stderr=stderr.fileno(), env=os.environ
        )
        returncode = process.wait(PATIENCE)
        stdout.seek(0)
        stderr.seek(0)
        return Done(returncode, stdout.read(), stderr.read())


@dataclass(frozen=True)
class Seen(Done):
    """Result of a command on a terminal, with the screen and all written text. `stdout` has the text of a pipe."""

    screen: str = ""
    written: str = ""

    @property
    def words(self) -> str:
        """Text of the screen, without lines and frames."""
        return " ".join(self.screen.replace("│", " ").split())

    @property
    def text(self) -> str:
        """All that a person reads, also as words without line breaks."""
        return f"{self.words}\n{self.screen}"

    def fits(self, columns: int = 80) -> bool:
        """Return whether no line is wider than the screen. A line with a question also contains the answer."""
        return all(cell_len(line) <= columns for line in re.sub(r"(\]|\)): ", r"\1:\n", self.screen).split("\n"))


def asked(script: Sequence[Answer], *arguments: str, config: str = "") -> Done:
    """Run a command in this process to its end. A stub of the daemon follows the script."""
    with _stub(script) as stub:
        (file := stub.socket.with_name("config.toml")).write_text(config)
        done = posd(*arguments, config=file, socket=stub.socket)
    return replace(done, calls=stub.calls)


def asked_on_terminal(
    script: Sequence[Answer], *arguments: str, types: str = "", columns: int = 80, pipe: bool = False
) -> Seen:
    """Run a command on a terminal to its end. A stub of the daemon follows the script."""
    with _stub(script) as stub:
        seen = posd_on_terminal(*arguments, socket=stub.socket, types=types, columns=columns, pipe=pipe)
    return replace(seen, calls=stub.calls)


#: A text file in the form of a shell, because the path of a clone can contain blanks.
FILE_TO_PRINT = shlex.quote(__file__)


def check(
    line: str,
    script: Sequence[Answer],
    code: int,
    *words: str,
    lacks: Sequence[str] = (),
    sent: Sequence[tuple[str, str, Any]] | None = None,
    as_json: bool = False,
    types: str | None = None,
    columns: int = 80,
) -> None:
    """Run a command with a stub of the daemon. Raise AssertionError for another exit code, or if the output lacks
    words. With `as_json` the command also prints the last reply with --json. With `types` it runs on a terminal.
    """
    arguments = shlex.split(line)
    done: Done
    if types is None:
        done = asked(script, *arguments)
    else:
        done = seen = asked_on_terminal(script, *arguments, types=types, columns=columns)
        assert seen.fits(columns), seen.screen
    done.ends(code, *words, lacks=lacks)
    assert len(done.calls) == len(script), "the command has made another number of calls"
    assert sent is None or done.sent == sent
    if as_json:
        program = asked(script, *arguments, "--json")
        assert (program.returncode, program.stdout) == (code, script[-1].body.decode() + "\n")


@contextlib.contextmanager
def _stub(script: Sequence[Answer]) -> Iterator[Stub]:
    with tempfile.TemporaryDirectory(prefix="posd-") as home, Stub(Path(home) / "s", list(script)) as stub:
        yield stub


def posd_on_terminal(*arguments: str, socket: Path, types: str = "", columns: int = 80, pipe: bool = False) -> Seen:
    """Run a command as a process on a terminal of its own to its end. The text `types` is typed before the command
    reads. The screen has the lines of text without colours. Overwritten text is included. With `pipe` stdout is not the
    terminal.
    """
    with tempfile.TemporaryFile() as piped:
        stdout = piped.fileno() if pipe else None
        with on_terminal(socket, *arguments, size=(50, columns), types=types, stdout=stdout) as view:
            returncode = view.ends()
        piped.seek(0)
        written = view.raw.decode()
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written).replace("\r\n", "\n").replace("\r", "\n")
        return Seen(returncode, piped.read().decode(), "", screen=text, written=written)


@contextlib.contextmanager
def started_posd(
    *arguments: str, config: Path | None = None, environment: dict[str, str] | None = None, prefix: tuple[str, ...] = ()
) -> Iterator["subprocess.Popen[str]"]:
    """Run a command for the block with its output in pipes. Kill a command that still runs at the end."""
    with subprocess.Popen(
        [*prefix, *command(arguments, config, None)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | (environment or {}),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def posd_interrupted(*arguments: str, answers: Sequence[Answer] = ()) -> Done:
    """Run a command with a stub of the daemon. Press Ctrl-C while the command waits for the response after these
    responses.
    """
    waits, over = threading.Event(), threading.Event()

    def hold() -> None:
        waits.set()
        over.wait()

    with (
        _stub([*answers, Answer(before=hold, cut=True)]) as stub,
        started_posd(*arguments, environment={"POSD_SOCKET": str(stub.socket)}) as process,
    ):
        try:
            assert waits.wait(PATIENCE), f"the command made no call: {arguments}"
            process.send_signal(signal.SIGINT)
            stdout, stderr = process.communicate(timeout=PATIENCE)
        finally:
            over.set()
    return Done(process.returncode, stdout, stderr)


#: Program that imports posd as root, for any place of Python, and then runs commands as another user.
_AS_NOBODY = """
import json, os, sys
from pathlib import Path
from tests.cli.processes import posd
config, lines = Path(sys.argv[1]), [line.split() for line in sys.argv[2:]]
for line in lines:
    posd(*line, config=config)
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
done = [posd(*line, config=config) for line in lines]
print(json.dumps([(one.returncode, one.stdout, one.stderr) for one in done]))
"""


def posd_as_nobody(config: Path, *lines: str) -> list[Done]:
    """Run commands to their end in a process of a user that owns nothing."""
    done = subprocess.run(
        [sys.executable, "-c", _AS_NOBODY, str(config), *lines],
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [Done(*one) for one in json.loads(done.stdout)]


def command(arguments: tuple[str, ...], config: Path | None, socket: Path | None) -> list[str]:
    """Return the command line of `posd`, with its group options."""
    options = ["--config", str(config)] if config else []
    options += ["--socket", str(socket)] if socket else []
    return [sys.executable, "-m", "posd", *options, *arguments]


@contextlib.contextmanager
def daemon_away(shop: Sandbox) -> Iterator[None]:
    """Stop the daemon of a shop for the block."""
    shop.stop_daemon()
    try:
        yield
    finally:
        with owning_file():
            shop.start_daemon()


def read_until(process: "subprocess.Popen[str]", text: str) -> str:
    """Read the process's output until a line contains `text`. Return all lines."""
    assert process.stdout is not None
    read = ""
    for line in process.stdout:
        read += line
        if text in line:
            return read
    raise AssertionError(f"{text!r} never came:\n{read}\n{process.stderr.read() if process.stderr else ''}")


def processes_naming(directory: Path) -> dict[int, str]:
    """Return the running processes (pid -> command line) whose command line names the directory."""
    named = re.compile(rf"{re.escape(str(directory))}(?!\w)")  # a longer name with the same beginning does not count
    found = {}
    for pid in processes():
        with contextlib.suppress(OSError):  # the process has ended
            if named.search(line := command_line(pid)):
                found[pid] = line
    return found
