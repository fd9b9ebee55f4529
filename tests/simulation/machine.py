"""The machine beside the till, with the disk, the clocks, the configuration, and the lives of the daemon."""

import asyncio
import atexit
import gc
import gzip
import os
import secrets
import signal
import sqlite3
import ssl
import warnings
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache, partial
from pathlib import Path
from random import Random
from shutil import copyfile, copytree, rmtree
from tempfile import gettempdir, mkdtemp
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import aiosqlite
import msgspec
import structlog

from posd.base import limits
from posd.clock.rules import Kernel
from posd.config import Config, load
from posd.daemon import main
from posd.daemon.surroundings import Surroundings
from posd.payments import transitions
from posd.records.callback_urls import make_key
from posd.storage import writer
from posd.terminals.interfaces import Interface
from posd.tls import issue
from posd.tls.files import TlsError
from posd.upkeep.restore import Restore
from tests.rig.manager import Manager, manager
from tests.rig.standing import fill_manager
from tests.simulation.disk import Disk
from tests.simulation.loop import LIFE, OUTSIDE, VirtualLoop, in_life
from tests.simulation.network import Heard
from tests.simulation.still import Log, log_of

if TYPE_CHECKING:
    from tests.simulation.world import World

#: Directory of the machines' files, in memory if the system has such a directory.
MEMORY = SHARED if (SHARED := Path("/dev/shm")).is_dir() else Path(gettempdir())
#: A database of each released schema.
RELEASED = Path(__file__).parent.parent / "store" / "released"
#: Maximum number of events that posd keeps for one payment. The product's own number is larger than the number of
#: events in any run.
MOST_EVENTS = 60
#: Numbers of database functions between two checkpoints. Each run draws one number. The numbers are small, so that a
#: short run has power cuts between checkpoints.
CHECKPOINTS = (6, 40, 350)
#: Suffixes of a database's files, except the file that SQLite can rebuild.
DATABASE_FILES = ("", "-wal")


def _prefix(process: int | None) -> str:
    """Return the prefix of the directories of a process's machines. All prefixes have the same length."""
    return f"posd-simulation-{process:07}-"


def remove_homes(process: int | None) -> None:
    """Remove the files of a process: those of its machines, and the certificates."""
    for path in MEMORY.glob(f"{_prefix(process)}*"):
        rmtree(path, ignore_errors=True)


@dataclass(slots=True)
class Line:
    """A line of the daemon's log: the life of the daemon, the time (virtual monotonic seconds), and the content."""

    life: int
    at: float
    level: str
    event: str
    fields: Mapping[str, Any]


#: The running machine of this process. It receives each log line, as a substitute for the journal.
_running: "list[Machine]" = []


def _sink(_logger: Any, level: str, fields: Any) -> Any:
    for machine in _running:
        machine.take(level, dict(fields))
    raise structlog.DropEvent


#: The daemon freezes long-lived objects for the garbage collector. No object is long-lived in a simulation, so this
#: module replaces the freeze.
_freeze = gc.freeze


@cache
def prepare_process() -> None:
    """Send all log lines of this process to the running machine, and collect garbage often."""
    # A killed daemon leaves coroutines that never ran. Python warns about each coroutine that never ran.
    warnings.filterwarnings("ignore", r"coroutine .* was never awaited", RuntimeWarning)
    structlog.configure(
        processors=[_sink], wrapper_class=structlog.make_filtering_bound_logger(20), cache_logger_on_first_use=True
    )


@cache
def certificate_files(made: datetime) -> Path:
    """Make the certificate of a listener, once for each process, because a key takes longer than a payment."""
    directory = Path(mkdtemp(prefix=_prefix(os.getpid()), dir=MEMORY))
    atexit.register(remove_homes, os.getpid())
    with patch.object(issue, "now", lambda: made):
        issue.init(directory / "tls", names=["localhost"], addresses=["10.0.0.2"])
    return directory / "tls"


@dataclass
class Clocks:
    """The machine's clocks. The wall clock is the true time plus an error. Faults change the error."""

    loop: VirtualLoop
    began: datetime
    error: timedelta = timedelta()
    kernel: Kernel = Kernel.SYNCHRONISED
    slept: float = 0.0

    @property
    def true(self) -> datetime:
        """The true time."""
        return self.began + timedelta(seconds=self.loop.time() + self.slept)

    def now(self) -> datetime:
        """Return the wall clock's time."""
        return self.true + self.error

    def elapsed(self) -> float:
        """Seconds since the boot, with the seconds in which the machine slept."""
        return self.loop.time() + self.slept


class Machine:
    """The machine. `text`: the daemon's configuration, without the paths of files."""

    def __init__(self, world: "World", text: str) -> None:
        self.loop, self.network, self.random, self.text = world.loop, world.network, world.random("disk"), text
        self.home = base = Path(mkdtemp(prefix=_prefix(os.getpid()), dir=MEMORY)).resolve()
        self._on_line, self._air, self.life = world.line, world.air, 0
        self.clocks = Clocks(self.loop, world.plan.began)
        (base / "run").mkdir()
        copytree(certificate_files(world.plan.certified), base / "state" / "tls")
        self.write_configuration()
        self.disk = Disk(base / "state", self.random, lambda: self.clocks.now().timestamp())
        self.task: asyncio.Task[None] | None = None
        self.still_log: Log | None = None
        #: Service manager, if any, whether it reads, and name -> last value that it has read.
        self.manager: Manager | None = None
        self.manager_reads, self.heard = True, dict[str, str]()
        self._opened = ExitStack()
        self._changed, self._boot = asyncio.Event(), 1
        #: Number of disk operations until the kill, if any.
        self._kill_in, self._killing = 0, False
        #: Event that is set after a kill has ended the daemon's life.
        self.killed: asyncio.Event = asyncio.Event()
        self.started: asyncio.Event = asyncio.Event()
        self.power_fails = False
        self._connections: list[sqlite3.Connection] = []
        self._threads: list[aiosqlite.Connection] = []

    def socket(self, name: str) -> str:
        """Return the path of a socket: of the tills, of the operators (admin), or of the feed."""
        return str(self.home / "run" / f"{name}.sock")

    @property
    def database(self) -> Path:
        """The database file."""
        return self.home / "state" / "posd.db"

    def write_configuration(self, before: str = "") -> None:
        """Write the configuration file, with a text before the configuration."""
        (self.home / "config.toml").write_text(before + self.text.replace("@HOME@", str(self.home)))

    def configuration(self) -> Config:
        """Read the configuration as the daemon does."""
        return load(self.home / "config.toml")

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Use this machine's disk and log for the block. Then remove the machine's files."""
        prepare_process()
        gc.collect()  # garbage of the previous run was not collected during that run
        _running.append(self)
        # The daemon freezes long-lived objects. In a simulation other lives follow, so no object is long-lived.
        draw = Random(f"secrets/{self.network.seed}").randbytes
        few_events = msgspec.structs.replace(limits.EVENTS_OF_TRANSACTION, value=MOST_EVENTS)
        with (
            patch.dict(os.environ),
            patch.object(gc, "freeze", lambda: None),
            patch.object(secrets, "token_bytes", lambda size=32: draw(size)),
            patch.object(transitions, "EVENTS_OF_TRANSACTION", few_events),
            patch.object(writer, "DUE_AFTER", Random(f"checkpoints/{self.network.seed}").choice(CHECKPOINTS)),
            patch.object(asyncio, "create_subprocess_exec", self._program),
            patch.object(os, "urandom", draw),  # uuid4 and the serial numbers of certificates use this function
            self._watched(),
        ):
            self._new_boot()
            try:
                with self.disk.active():
                    self.disk.on_operation = self._operation
                    yield
            finally:
                _running.clear()
                self.log_goes_on()
                self._opened.close()
                rmtree(self.home, ignore_errors=True)
                gc.unfreeze()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Record the daemon's connections to its database. `kill` closes these connections, as the kernel does."""
        connect, begin = sqlite3.connect, aiosqlite.Connection.__init__

        def connected(*arguments: Any, **options: Any) -> sqlite3.Connection:
            made: sqlite3.Connection = connect(*arguments, **options)
            if LIFE.get():
                self._connections.append(made)
            return made

        def begun(connection: aiosqlite.Connection, *arguments: Any, **options: Any) -> None:
            begin(connection, *arguments, **options)
            if LIFE.get():
                self._threads.append(connection)

        with patch.object(sqlite3, "connect", connected), patch.object(aiosqlite.Connection, "__init__", begun):
            yield

    def take(self, level: str, fields: dict[str, Any]) -> None:
        """Receive a line of the log."""
        life = LIFE.get()
        if self.network.is_dead(life):
            return
        line = Line(life, self.loop.time(), level, fields.pop("event"), fields)
        if self.still_log is not None:
            self.still_log.put(line.event)
        self.hear()
        if line.event == "posd.started":
            self.started.set()
        self._on_line(line)

    def log_stands_still(self) -> None:
        """Stop reading the log."""
        self.still_log = log_of(os.getpid())

    def log_goes_on(self) -> tuple[int, str | None]:
        """Read the log again. Return the result of `Log.end`."""
        log, self.still_log = self.still_log, None
        return (0, None) if log is None else log.end()

    def manager_stands_still(self) -> None:
        """Stop the service manager from reading, with a full socket."""
        self.manager = self.manager or self._opened.enter_context(manager(self.home / "run"))
        self.manager_reads = False
        os.environ.update(self.manager.environment)
        fill_manager(self.manager.environment["NOTIFY_SOCKET"])

    def hear(self) -> None:
        """Read the messages to the service manager, unless it is stopped."""
        if self.manager is not None and self.manager_reads:
            lines = [line.partition("=") for text in self.manager.waiting() for line in text.splitlines()]
            self.heard |= {name: value for name, _, value in lines}

    def _operation(self, _kind: str, _name: str) -> None:
        self._kill_in -= 1
        if self._kill_in == 0:
            self.kill(power=self.power_fails)

    # Starts and ends of the daemon.

    def start(self) -> None:
        """Start the daemon."""
        self.life += 1
        _freeze()  # after the freeze the garbage collector searches only the objects of this life
        self.started.clear()
        self.killed.clear()
        config = self.configuration()
        around = Surroundings(
            now=self.clocks.now,
            elapsed=self.clocks.elapsed,
            started=partial(float, self.clocks.elapsed()),
            kernel_state=lambda _now: self.clocks.kernel,
            tcp_socket=self.network.tcp_socket,
            unix_socket=self.network.unix_socket,
            snapshot=lambda: frozenset({Interface("eth0", 1, frozenset({self.network.machine}), running=True)}),
            reports=self._reports,
            watch_folder=lambda _folder, _changed: nullcontext(),
            chance=self.random.random,
            descriptors=lambda _wanted: 4096,
            local_addresses=lambda: [self.network.machine],
            facing=self._facing,
            discovery=partial(Heard, self._air),
        )
        self.task = in_life(self.life, lambda: self.loop.create_task(main.serve(config, around), name="posd"))

    def kill_at(self, operations: int, *, power: bool) -> None:
        """Kill the daemon at the n-th disk operation from this moment."""
        self._kill_in, self.power_fails = operations, power

    def kill(self, *, power: bool = False) -> None:
        """Kill the daemon at once, or cut the power of the machine."""
        self.power_fails = power
        if self._killing:
            return
        # The running code continues to its end, but has no effect.
        self._killing, self._kill_in = True, 0
        self.disk.die()
        self.network.mute(self.life)
        # this callback comes before all other callbacks
        self.loop._ready.appendleft(asyncio.Handle(self._end, (), self.loop, OUTSIDE))

    def _let_go(self) -> None:
        """Close the files of an ended process, as the kernel does."""
        for connection in self._connections:
            connection.close()
        self._connections.clear()
        for begun in self._threads:
            begun._connection = None  # Python warns about an unclosed connection
        self._threads.clear()
        if self.disk.open_files():
            gc.collect()
        if left := self.disk.open_files():
            raise AssertionError(f"a daemon that is gone has still open: {left}")
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - the argument is a descriptor, not a path
            with suppress(OSError):
                if os.readlink(f"/proc/self/fd/{name}").startswith(f"{self.home}/"):  # noqa: PTH115
                    os.close(int(name))

    def _end(self) -> None:
        self.end_quietly()
        if self.power_fails:
            self._new_boot()
        self.disk.crash(self.power_fails)
        self._killing = False
        self.killed.set()

    async def stop(self) -> None:
        """Stop the daemon as the service manager does. The daemon must end in time."""
        task = self.task
        if task is None:
            return
        self.loop.signals[signal.SIGTERM]()
        killed = asyncio.create_task(self.killed.wait())
        await asyncio.wait({task, killed}, return_when=asyncio.FIRST_COMPLETED)
        killed.cancel()
        if task.done() and not task.cancelled() and self.task is task:
            self.end_quietly()
            task.result()

    def end_quietly(self) -> None:
        """Close the connections and files of a daemon that has ended by itself."""
        self.task = None
        self.network.mute(self.life)
        self.loop.end_life(self.life)
        self.network.end_life(self.life)
        self._let_go()

    def restore(self, backup: Path) -> None:
        """Restore a backup as `posd restore` does, while no daemon runs. Raise StoreError."""
        database = self.configuration().database
        with Restore(database.path, database.lock, database.callback_key, self.clocks.now()) as restore:
            restore.prepare(backup, lambda _what, _done, _total: None, {})
            restore.commit()

    def move(self, address: str) -> None:
        """Set another address of the machine. All connections end, and listeners move to the new address."""
        self.network.move(address)
        self._changed.set()

    def install(self, schema: int) -> None:
        """Create the database of an older posd, with a callback key."""
        self.database.write_bytes(gzip.decompress((RELEASED / f"schema-{schema}.db.gz").read_bytes()))
        self.database.chmod(0o600)
        make_key(self.configuration().database.callback_key)
        self.disk.settle()

    def snapshot(self, directory: Path) -> None:
        """Copy the present database as a snapshot of the disk."""
        directory.mkdir()
        for rest in DATABASE_FILES:
            if (file := Path(f"{self.database}{rest}")).exists():
                copyfile(file, directory / file.name)

    def put_back(self, directory: Path) -> None:
        """Replace the database by a snapshot while no daemon runs. The database goes back in time."""
        for rest in (*DATABASE_FILES, "-shm"):
            file, found = Path(f"{self.database}{rest}"), directory / f"{self.database.name}{rest}"
            file.unlink(missing_ok=True)
            if rest in DATABASE_FILES and found.exists():
                copyfile(found, file)
                file.chmod(0o600)
        self.disk.settle()

    @property
    def runs(self) -> bool:
        """Whether a daemon runs."""
        return self.task is not None and not self.task.done()

    def serves(self, life: int) -> bool:
        """Whether the daemon of this life is ready and runs."""
        return self.runs and not self._killing and self.life == life and self.started.is_set()

    def reload(self) -> None:
        """Make the daemon read its configuration again."""
        with suppress(KeyError):
            self.loop.signals[signal.SIGHUP]()

    def _new_boot(self) -> None:
        self._boot += 1
        os.environ["POSD_BOOT_ID"] = f"{self._boot:032x}"

    # Surroundings of the daemon.

    async def _reports(self) -> AsyncIterator[None]:
        while True:
            self._changed.clear()
            yield
            await self._changed.wait()

    async def _facing(self, _url: str) -> str:
        return self.network.machine

    async def _program(self, *arguments: str, **_options: Any) -> SimpleNamespace:
        """Renew the certificate as `posd tls renew` does. The daemon runs no other program."""
        assert "renew" in arguments, arguments
        code, said = await self.loop.run_in_executor(None, self._renew)

        async def communicate() -> tuple[bytes, bytes]:
            return b"", said

        return SimpleNamespace(returncode=code, communicate=communicate)

    def _renew(self) -> tuple[int, bytes]:
        with (
            patch.object(issue, "now", self.clocks.now),
            patch.object(issue, "local_addresses", lambda: [self.network.machine]),
        ):
            try:
                issue.renew(self.home / "state" / "tls")
            except (TlsError, OSError, ssl.SSLError) as error:
                return 1, str(error).encode()
        return 0, b""
