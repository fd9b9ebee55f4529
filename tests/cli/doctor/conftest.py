"""A healthy set-up that tests can break, with configuration, certificate, database and a terminal. The module also
reads the doctor's findings.
"""

import asyncio
import re
import shlex
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from posd.tls import issue
from posd.tls.files import files_in
from tests.rig.certificates import Leaf
from tests.rig.command_lines import parse
from tests.rig.commands import Done, posd
from tests.rig.connections import serving
from tests.rig.counter import in_thread
from tests.rig.daemon import Daemon, toml
from tests.rig.home import Home
from tests.rig.ports import reserve
from tests.store.filled import filling

SERIAL = "SN-0001"
#: A time-out that no test reaches, even on a busy machine.
PATIENT = "[terminal_defaults]\nconnect_timeout_seconds = 60\n"

Found = dict[str, Any]
#: Exit code while posd does not run. Other faults do not change this exit code.
STOPPED = 3


@dataclass
class Terminal:
    """A device that replies 404 to every request, and counts the requests. Its clock is `ahead` of this machine's
    clock.
    """

    directory: Path
    secure: bool = True
    ahead: timedelta = timedelta()
    calls: list[str] = field(default_factory=list)
    port: int = 0

    @property
    def ca(self) -> Path:
        return files_in(self.directory).ca_certificate

    @property
    def base_url(self) -> str:
        return f"{'https' if self.secure else 'http'}://127.0.0.1:{self.port}"

    @property
    def leaf(self) -> Leaf:
        made = files_in(self.directory)
        return Leaf(made.certificate, made.private_key)

    @contextmanager
    def on(self, host: str = "127.0.0.1", port: int = 0) -> Iterator["Terminal"]:
        """Listen for the block."""
        tls = self.leaf.context() if self.secure else None
        with in_thread(serving(self._reply, host, port, tls=tls)) as (self.port, _):
            yield self

    async def _reply(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            if head := await reader.read(65536):  # a terminal without TLS also replies to the hello of TLS
                self.calls.append(" ".join(head.decode("latin-1").split(" ")[:2]))
                date = format_datetime(datetime.now(UTC) + self.ahead, usegmt=True)
                reply = ("HTTP/1.1 404 Not Found", f"Date: {date}", "Content-Length: 0", "Connection: close", "\r\n")
                writer.write("\r\n".join(reply).encode())


@dataclass
class SetUp(Home):
    """All files of one stopped posd in a directory. Tests can break these files. `config`: the TOML that `doctor`
    writes.
    """

    directory: Path
    terminal: Terminal
    port: int
    config: str = ""
    metrics: int = 0

    def __post_init__(self) -> None:
        self.state = self.directory / "state"
        self.tls = files_in(self.state / "tls")

    def change(self, old: str, new: str) -> None:
        """Change the configuration."""
        assert self.config.count(old) == 1, old
        self.config = self.config.replace(old, new)

    def findings(self, code: int = STOPPED) -> list[Found]:
        """Write the configuration and run doctor. Check the exit code. Return the findings."""
        self.config_file.write_text(self.config)
        return self.findings_as_written(code)

    def findings_as_written(self, code: int = STOPPED) -> list[Found]:
        """Run doctor with the present configuration file."""
        done = posd("doctor", "--json", config=self.config_file)
        assert (done.returncode, done.stderr) == (code, ""), done.stdout
        return read(done)

    def check(self) -> tuple[int, list[tuple[str, str]]]:
        """Run `posd config check` with the present file. Return the exit code, and file and key of each problem."""
        done = posd("config", "check", "--json", config=self.config_file)
        document = done.document
        assert document["ok"] == (not document["problems"])
        assert all(one["reason"] and one["cure"] for one in document["problems"])
        return done.returncode, [(one["file"], one["key"]) for one in document["problems"]]

    def cure(self, commands: list[str]) -> None:
        """Run the commands of a cure in a shell."""
        for command in commands:
            if command.startswith("posd "):
                done = posd(*shlex.split(command)[1:])
                assert done.returncode == 0 or " verify" in command, done.stderr
            else:
                subprocess.run(command, shell=True, check=True)


def read(done: Done) -> list[Found]:
    """Return the findings of a run. Check that each command of posd in the findings is valid."""
    found: list[Found] = done.document
    for command in (command for one in found for command in one["commands"]):
        typed = re.fullmatch(r"(?:sudo (?:-u \S+ )?|runuser -u \S+ -- )?posd (.*?)(?: > \S+)?", command)
        if typed:
            parse(shlex.split(typed[1]))
    return found


@asynccontextmanager
async def running(setup: SetUp) -> AsyncIterator[Daemon]:
    """Run posd on the set-up for the block. A test may kill posd."""
    daemon = Daemon(setup.directory, setup.config)
    await daemon.start()
    try:
        yield daemon
    finally:
        await daemon.end()


def entry(terminal: Terminal, serial: str = SERIAL) -> str:
    """Return a terminal's section of the configuration."""
    return f'[[terminals]]\nserial = "{serial}"\nbase_url = "{terminal.base_url}"\nca_file = "{terminal.ca}"\n'


def failures(found: list[Found]) -> list[Found]:
    """Return all failures except the failure that reports a stopped posd."""
    return [one for one in found if one["status"] == "failure" and "posd does not run: " not in one["meaning"]]


def warnings(found: list[Found]) -> set[tuple[str, str]]:
    """Return check and subject of each warning."""
    return {(one["check"], one["subject"]) for one in found if one["status"] == "warning"}


#: Findings that depend on the machine of the tests.
OF_THIS_MACHINE = {("clock", "this machine")}


def traces(home: Path) -> dict[str, object]:
    """Return the names, modes, times and contents of all files. A test compares two results to find changes."""
    found = {path: path.lstat() for path in (home, *home.rglob("*"))}
    return {
        str(path): (at.st_mode, at.st_mtime_ns, path.read_bytes() if path.is_file() else None)
        for path, at in found.items()
    }


# Fixtures.


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return certificates of a terminal and of the webhook listener, made once."""
    home = tmp_path_factory.mktemp("certificates")
    for name in ("terminal", "server"):
        issue.init(home / name, names=["localhost"], addresses=["127.0.0.1"])
    return home / "terminal", home / "server"


@pytest.fixture
def setup(certificates: tuple[Path, Path]) -> Iterator[SetUp]:
    """Yield a healthy set-up in a directory that all users may enter, with a path short enough for sockets. The
    certificates are copies, because new certificates take long.
    """
    with TemporaryDirectory(prefix="posd-", dir="/tmp") as name:  # a unit can hide /tmp
        home = Path(name)
        home.chmod(0o755)
        shutil.copytree(certificates[0], home / "terminal")
        with Terminal(home / "terminal").on() as terminal:
            made = SetUp(home, terminal, reserve())
            made.state.mkdir(mode=0o700)
            shutil.copytree(certificates[1], made.state / "tls")
            with filling(made.database) as filled:
                filled.pay(1)
            made.key.write_text(f"{'5a' * 32}\n")
            for private in (made.database, made.key):
                private.chmod(0o600)
            made.config = toml(home, entry(terminal), PATIENT).replace("127.0.0.1:0", f"127.0.0.1:{made.port}")
            yield made
