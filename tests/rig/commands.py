"""Runners of `posd` in this process, as a process, and on a terminal, with a daemon or a stub of the daemon."""

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from click.testing import CliRunner
from rich.cells import cell_len

from posd.cli.main import main
from tests.rig import forks
from tests.rig.pseudo_terminal import on_terminal
from tests.rig.stub import Answer, Call, Stub
from tests.rig.users import as_user

#: Maximum duration of a command, in seconds. The limit is far above any normal duration. A test that hangs must fail.
PATIENCE = 40.0
NOBODY = 65534
#: A text file in the form of a shell, because the path of a clone can contain blanks.
FILE_TO_PRINT = shlex.quote(__file__)


@dataclass(frozen=True)
class Done:
    """Result of a command, and the calls that the stub received. After a command on a terminal: the screen, all written
    text, and in `stdout` the text of a pipe.
    """

    returncode: int
    stdout: str
    stderr: str
    calls: list[Call] = field(default_factory=list)
    screen: str = ""
    written: str = ""

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
    def words(self) -> str:
        """Text of the screen, without lines and frames."""
        return " ".join(self.screen.replace("│", " ").split())

    @property
    def text(self) -> str:
        """All that a person reads. Text of a screen is also there without its line breaks."""
        return f"{self.words}\n{self.screen}" if self.screen else self.stdout + self.stderr

    def fits(self, columns: int = 80) -> bool:
        """Return whether no line is wider than the screen. The answer to a question counts as its own line."""
        return all(cell_len(line) <= columns for line in re.sub(r"(\]|\)): ", r"\1:\n", self.screen).split("\n"))

    def ends(self, code: int, *words: str, lacks: Sequence[str] = ()) -> Self:
        """Check the exit code and the words in the text. No word of `lacks` and no name in braces may be there."""
        wrong = [*(each for each in words if each not in self.text), *(each for each in lacks if each in self.text)]
        wrong += re.findall(r"(?<![\w$])\{[a-z_]+\}", self.text)
        assert (self.returncode, wrong, "Traceback" in self.text) == (code, [], False), self.text
        return self

    @property
    def sent(self) -> list[tuple[str, str, Any]]:
        """Method, path after /v1, and body of each call."""
        return [(call.method, call.path.removeprefix("/v1"), json.loads(call.body or b"null")) for call in self.calls]


def _words(arguments: Sequence[str], config: Path | None, socket: Path | None = None) -> list[str]:
    given = {"--config": config, "--socket": socket}
    return [*(word for option, path in given.items() if path for word in (option, str(path))), *arguments]


def posd(*arguments: str, config: Path | None = None, socket: Path | None = None) -> Done:
    """Run a command in this process to its end. A start of Python would take most of a test's time."""
    result = CliRunner().invoke(main, _words(arguments, config, socket))
    assert result.exception is None or isinstance(result.exception, SystemExit)
    for thread in threading.enumerate():
        if "(_read)" in thread.name:  # outside of the tests, the end of the command's process ends this thread
            thread.join(PATIENCE)
    return Done(result.exit_code, result.stdout, result.stderr)


def posd_process(*arguments: str, config: Path | None = None, interpreter: tuple[str, ...] = (sys.executable,)) -> Done:
    """Run a command as a process to its end."""
    with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
        process = forks.Forked(
            _words(arguments, config),
            interpreter=interpreter,
            stdout=stdout.fileno(),
            stderr=stderr.fileno(),
            env=os.environ,
        )
        returncode = process.wait(PATIENCE)
        stdout.seek(0)
        stderr.seek(0)
        return Done(returncode, stdout.read(), stderr.read())


def posd_as_nobody(config: Path, line: str) -> Done:
    """Run a command to its end in a process of a user that owns nothing."""
    return posd_process(*line.split(), config=config, interpreter=as_user(NOBODY))


def posd_on_terminal(*arguments: str, socket: Path, types: str = "", columns: int = 80, pipe: bool = False) -> Done:
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
        return Done(returncode, piped.read().decode(), "", screen=text, written=written)


@contextlib.contextmanager
def _stub(script: Sequence[Answer]) -> Iterator[Stub]:
    with tempfile.TemporaryDirectory(prefix="posd-") as home, Stub(Path(home) / "s", list(script)) as stub:
        yield stub


def asked(
    script: Sequence[Answer],
    *arguments: str,
    config: str = "",
    types: str | None = None,
    columns: int = 80,
    pipe: bool = False,
) -> Done:
    """Run a command to its end, with `types` on a terminal, otherwise in this process. A stub of the daemon follows the
    script.
    """
    with _stub(script) as stub:
        if types is not None:
            done = posd_on_terminal(*arguments, socket=stub.socket, types=types, columns=columns, pipe=pipe)
        else:
            (file := stub.socket.with_name("config.toml")).write_text(config)
            done = posd(*arguments, config=file, socket=stub.socket)
    return replace(done, calls=stub.calls)


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
    done = asked(script, *arguments, types=types, columns=columns).ends(code, *words, lacks=lacks)
    assert done.fits(columns), done.screen
    assert len(done.calls) == len(script), "the command has made another number of calls"
    assert sent is None or done.sent == sent
    if as_json:
        program = asked(script, *arguments, "--json")
        assert (program.returncode, program.stdout) == (code, script[-1].body.decode() + "\n")


@contextlib.contextmanager
def started_posd(
    *arguments: str, environment: dict[str, str] | None = None, prefix: tuple[str, ...] = ()
) -> Iterator["subprocess.Popen[str]"]:
    """Run a command for the block with its output in pipes. Kill a command that still runs at the end."""
    with subprocess.Popen(
        [*prefix, *forks.command("posd", arguments)],
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


def read_until(process: "subprocess.Popen[str]", text: str) -> str:
    """Read the process's output until a line contains `text`. Return all lines."""
    read = ""
    for line in process.stdout:
        read += line
        if text in line:
            return read
    raise AssertionError(f"{text!r} never came:\n{read}\n{process.stderr.read() if process.stderr else ''}")
