"""Run the mutants of modules. The tests are collected and run once without a change. Then each mutant runs in a fork of
this process. A daemon that a test starts has the same mutant.
"""

import gc
import importlib
import math
import mmap
import os
import select
import shutil
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from types import FunctionType

import pytest

from tests.mutants import change
from tests.mutants.mutate import Mutant, mutants, watched
from tests.mutants.near import DAEMON, SIMULATED
from tests.rig import forks, leftovers, ports

#: Factor and seconds of the time limit of one test. A mutant is dead if a test exceeds the time limit: the normal time,
#: multiplied by the factor, plus the seconds.
TIMES, MORE_SECONDS = 10, 10.0
#: Tests that take longer are left out: processor time in this process, and duration with a daemon.
LONGEST_SECONDS, LONGEST_WITH_DAEMON = 1.0, 6.0
#: Duration of the tests with a daemon for one mutant. The tests that are left out reach its statement too.
SECONDS_WITH_DAEMON = 15.0
ALIVE, DEAD = 0, 1
UNCHANGED = "nothing"


@dataclass(eq=False)
class Module:
    """A module, its near tests, the tests that reach its functions, and its mutants."""

    name: str
    path: Path
    near: frozenset[str]
    accepted: Mapping[str, str]
    say: Callable[[str], None]
    #: Only functions with one of these lines get mutants.
    changed: set[int] | None = None
    #: Line of a statement -> tests that reach it.
    reaching: dict[int, set[pytest.Item]] = field(default_factory=lambda: defaultdict(set))
    #: Function -> lines of its statements.
    lines: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    died: int = 0
    lived: int = 0
    #: Survivors that are accepted with a reason.
    known: list[str] = field(default_factory=list)
    #: Number of mutants that were not reached in time.
    late: int = 0
    #: Number of mutants that tests with a daemon have killed.
    died_by_daemon: int = 0
    #: Number of mutants that have not ended, the reader of the mutants included.
    pending: int = 1

    def survived(self, mutant: Mutant, reached: str = "") -> None:
        """Count a survivor, and print it unless it is accepted."""
        if mutant.name in self.accepted:
            self.known.append(mutant.name)
        else:
            self.lived += 1
            self.say(f"{self.name}:{mutant.line} {mutant.name}{reached}")

    def count(self) -> None:
        """Count an ended mutant, and print the counts after the last mutant."""
        self.pending -= 1
        if not self.pending:
            total = self.died + self.lived
            rate = f"{100 * self.died / total:5.1f} %" if total else "      -"
            late = f"  {self.late} not reached in time" if self.late else ""
            died = f"{self.died:5} died ({self.died_by_daemon} by tests of a daemon)"
            self.say(f"{self.name:36} {total:5} {died} {self.lived:4} lived {len(self.known):4} accepted {rate}{late}")


@dataclass
class Trial:
    """A mutant in a fork. `begun`: the number of tests that the fork has begun."""

    module: Module
    mutant: Mutant
    items: Sequence[pytest.Item]
    begun: mmap.mmap = field(default_factory=lambda: mmap.mmap(-1, 4))
    pid: int = 0
    seen: int = -1
    end: float = 0.0

    @property
    def number(self) -> int:
        return int.from_bytes(self.begun[:], "little")


@dataclass(eq=False)  # pytest keeps its plugins in sets, so they must be hashable
class Mutation:
    """The pytest plugin that replaces pytest's loop over the tests."""

    modules: Sequence[Module]
    say: Callable[[str], None]
    #: Mutants that have not begun by then are left out.
    end: float = math.inf
    jobs: int = 3
    failed: bool = False
    in_fork: bool = False
    functions: Sequence[FunctionType] = ()
    seconds: dict[pytest.Item, float] = field(default_factory=dict)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> None:
        """End a fork at the first failure. A report of the failure would take longer than most tests."""
        if self.in_fork and call.excinfo is not None and not call.excinfo.errisinstance(pytest.skip.Exception):
            os._exit(DEAD)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Name a test that fails without a mutant."""
        if report.failed:
            self.failed = True
            self.say(f"left out, because it fails without a mutant: {report.nodeid}\n{report.longreprtext}")

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        """Draw the same examples in every run, and stop at the first failure."""
        from hypothesis import Phase, settings  # the import must follow pytest's import of the plugin of Hypothesis

        changes = {"phases": (Phase.explicit, Phase.generate), "database": None, "derandomize": True}
        settings.register_profile("mutants", settings.get_profile("quick"), **changes)
        settings.load_profile("mutants")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run all tests without a change, and then the tests of each mutant."""
        session.config.pluginmanager.unregister(name="terminalreporter")
        # All forks would share one small disk, because the disk is a mount.
        self._run_unchanged(
            [
                item
                for item in session.items
                if "small_disks" not in getattr(item, "fixturenames", ()) and not item.get_closest_marker("root")
            ]
        )
        gc.freeze()
        self._run_mutants()
        return True

    def _run_unchanged(self, items: Sequence[pytest.Item]) -> None:
        """Record the time of each test and the functions that it reaches, in this process or in its daemon."""
        statements: list[tuple[Module, int]] = []
        sources, before = {}, {}
        for module in self.modules:
            importlib.import_module(module.name)
            sources[module.name], found = watched(module.path, len(statements))
            before[module.name] = compile(module.path.read_text(), module.path, "exec")
            statements += [(module, line) for _, line in found]
            for name, line in found:
                module.lines[name].append(line)
        flags = Path(os.environ["TMPDIR"], "flags")
        with sys.modules["tests.conftest"].held.allowing():
            flags.write_bytes(bytes(len(statements)))
            change.write(flags.with_name("change"), sources, flags=flags)
            self.functions = change.functions(sources)
            change.make(self.functions, sources, flags=flags)
        for number, item in enumerate(items):
            self.failed, began, processor = False, time.monotonic(), time.process_time()
            _run(item, items[number + 1] if number + 1 < len(items) else None)
            self.seconds[item], used = time.monotonic() - began, time.process_time() - processor
            with flags.open("r+b") as file:
                reached = file.read()
                file.seek(0)
                file.write(bytes(len(reached)))
            limit = self.seconds[item] > LONGEST_WITH_DAEMON if _has_daemon(item) else used > LONGEST_SECONDS
            for (module, line), flag in zip(statements, reached, strict=True):
                if flag and not limit and not self.failed and (_has_daemon(item) or _file(item) in module.near):
                    module.reaching[line].add(item)
        forks.close()
        change.make(self.functions, before)

    def _run_mutants(self) -> None:
        from tests.simulation.machine import remove_homes  # pytest must import plugins before it imports posd

        running: dict[int, Trial] = {}
        waiting = (trial for module in self.modules for trial in self._trials(module))
        while True:
            while len(running) < self.jobs and (trial := next(waiting, None)) is not None:
                trial.pid = self._fork(trial)
                running[os.pidfd_open(trial.pid)] = trial
            if not running:
                return
            ended, _, _ = select.select([*running], [], [], 1.0)
            for descriptor, trial in [*running.items()]:
                if trial.number != trial.seen:
                    trial.seen = trial.number
                    normal = self.seconds[trial.items[max(trial.seen - 1, 0)]]
                    trial.end = time.monotonic() + MORE_SECONDS + TIMES * normal
                if descriptor not in ended and time.monotonic() < trial.end:
                    continue
                if descriptor not in ended:
                    os.kill(trial.pid, signal.SIGKILL)
                self._count(trial, os.waitpid(trial.pid, 0)[1])
                remove_homes(trial.pid)
                shutil.rmtree(_home(trial.pid), ignore_errors=True)
                os.close(descriptor)
                del running[descriptor]

    def _trials(self, module: Module) -> Iterator[Trial]:
        """Yield the mutants that tests reach. The first mutants have no change and must survive."""
        nothing = Mutant("", None, 0, 0, UNCHANGED, compile(module.path.read_text(), module.path, "exec"))
        module.reaching[0] = set().union(*module.reaching.values())
        module.lines[""] = [0]
        at_import: set[int] = set()
        sources, statements = watched(module.path, 0)
        exec(sources, {"__name__": module.name, "__reached__": at_import.add})
        made_at_import = {statements[number][0] for number in at_import}
        for mutant in (*[nothing] * self.jobs, *mutants(module.path, module.changed)):
            if time.monotonic() > self.end:
                module.late += mutant is not nothing
            elif items := self._items(module, mutant):
                module.pending += 1
                yield Trial(module, mutant, items)
            elif mutant is not nothing and mutant.function not in made_at_import:
                module.survived(mutant, "  (no test reaches it)")
        module.count()

    def _items(self, module: Module, mutant: Mutant) -> list[pytest.Item]:
        """Return the tests that reach the statement of a mutant, the quickest first.

        Tests with a daemon follow, by file: first a test of each path through the function, then a second one of each,
        and so on. Runs of the simulation are last.
        """
        reaching = module.reaching[mutant.statement]
        near = sorted((item for item in reaching if not _has_daemon(item)), key=self.seconds.__getitem__)
        lines, paths = module.lines[mutant.function], defaultdict[frozenset[int], list[pytest.Item]](list)
        for item in sorted(filter(_has_daemon, reaching), key=self.seconds.__getitem__):
            paths[frozenset(line for line in lines if item in module.reaching[line])].append(item)
        left, with_daemon = SECONDS_WITH_DAEMON, list[pytest.Item]()
        for items in zip_longest(*sorted(paths.values(), key=len)):
            for item in filter(None, items):
                if self.seconds[item] <= left:
                    left -= self.seconds[item]
                    with_daemon.append(item)
        with_daemon.sort(key=_file)  # a file has one daemon
        return sorted(near + with_daemon, key=lambda item: (_file(item) == SIMULATED, _has_daemon(item)))

    def _count(self, trial: Trial, status: int) -> None:
        alive, module = os.waitstatus_to_exitcode(status) == ALIVE, trial.module
        killer = trial.items[max(trial.number - 1, 0)]
        if trial.mutant.change == UNCHANGED:
            if not alive:
                self.say(f"left out, because it fails beside itself, or a second time: {killer.nodeid}")
                for reaching in module.reaching.values():
                    reaching.discard(killer)
        elif alive:
            module.survived(trial.mutant)
        else:
            module.died += 1
            module.died_by_daemon += _has_daemon(killer)
        module.count()

    def _fork(self, trial: Trial) -> int:
        pid = os.fork()
        if pid:
            return pid
        try:
            self.in_fork = True
            null = os.open(os.devnull, os.O_RDWR)
            for descriptor in (1, 2):
                os.dup2(null, descriptor)
            # The checks for leftovers would find the files and processes of other forks.
            held = sys.modules["tests.conftest"].held
            held.look, held.left = lambda _test: None, list
            leftovers.end_processes = lambda _place: []
            ports._claimed.cache_clear()
            home = _home(os.getpid())
            home.mkdir()
            os.environ["TMPDIR"] = os.environ[leftovers.RUN] = tempfile.tempdir = str(home)
            sources = {trial.module.name: trial.mutant.code}
            change.write(home / "change", sources, trial.mutant.place)
            change.make(self.functions, sources, trial.mutant.place)
            for number, item in enumerate(trial.items):
                trial.begun[:] = (number + 1).to_bytes(4, "little")
                _run(item, trial.items[number + 1] if number + 1 < len(trial.items) else None)
        except BaseException:  # noqa: BLE001
            os._exit(DEAD)
        os._exit(ALIVE)


def _home(pid: int) -> Path:
    return Path(os.environ[leftovers.RUN], f"{pid}")


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _has_daemon(item: pytest.Item) -> bool:
    return _file(item).startswith(DAEMON)


def _run(item: pytest.Item, following: pytest.Item | None) -> None:
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
