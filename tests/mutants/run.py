"""Run one module's mutants. The tests are collected and run once without a change. Then each mutant runs in a fork of
this process.
"""

import faulthandler
import gc
import math
import mmap
import os
import resource
import select
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType

import pytest

from tests.mutants.mutate import Mutant, Place, codes, mutants, watched

#: Factor and seconds of the limit of processor time. A mutant is dead if its tests exceed the limit: the normal time,
#: multiplied by the factor, plus the seconds. A test that waits for ever has the time limit of pytest, and then the
#: limit multiplied by the factor.
TIMES, MORE_SECONDS = 3, 10
#: Largest number of tests near a module.
MOST_TESTS = 1 << 16
#: A test that takes longer than this time is left out, and a test that starts a process, because the process has no
#: mutant.
LONGEST_SECONDS = 2.0
ALIVE, DEAD = 0, 1
UNCHANGED = "nothing"


@dataclass(eq=False)  # pytest keeps its plugins in sets, so they must be hashable
class Mutation:
    """The pytest plugin that replaces pytest's loop over the tests. `lived` and `died` are the results."""

    module: str
    path: Path
    lines: set[int] | None = None
    end: float = math.inf
    jobs: int = 2
    lived: list[Mutant] = field(default_factory=list)
    unreached: list[Mutant] = field(default_factory=list)
    died: int = 0
    late: int = 0
    failed: str = ""
    in_fork: bool = False
    functions: list[FunctionType] = field(default_factory=list)
    seconds: dict[pytest.Item, float] = field(default_factory=dict)
    reaching: dict[str, set[pytest.Item]] = field(default_factory=lambda: defaultdict(set))
    #: Number of mutants that each test killed, in memory that all forks share. The order is that of `seconds`.
    kills: mmap.mmap = field(default_factory=lambda: mmap.mmap(-1, MOST_TESTS))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """End a fork at the first failure. A report of the failure would take longer than most tests."""
        if self.in_fork and call.excinfo is not None and not call.excinfo.errisinstance(pytest.skip.Exception):
            number = [*self.seconds].index(item)
            self.kills[number] = min(self.kills[number] + 1, 255)
            os._exit(DEAD)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the first failure without a mutant."""
        if report.failed:
            self.failed = self.failed or f"{report.nodeid}\n{report.longreprtext}"

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
        # Forks cannot have a small disk of their own: it is a mount.
        self._run_unchanged([item for item in session.items if "small_disks" not in getattr(item, "fixturenames", ())])
        if not self.failed:
            gc.freeze()
            self._run_mutants()
        return True

    def _run_unchanged(self, items: Sequence[pytest.Item]) -> None:
        """Record the processor time of each test and the module's functions that it reaches."""
        gc.unfreeze()
        found = (item for item in gc.get_objects() if type(item) is FunctionType)
        self.functions = [function for function in found if function.__code__.co_filename == str(self.path)]
        before = {function: function.__code__ for function in self.functions}
        item: pytest.Item
        starts = sys.modules["tests.conftest"].starts
        sys.modules[self.module].__dict__["__reached__"] = lambda name: self.reaching[name].add(item)
        _replace(self.functions, watched(self.path))
        for number, item in enumerate(items):
            began, started = time.process_time(), starts.count
            _run(item, items[number + 1] if number + 1 < len(items) else None)
            self.seconds[item] = time.process_time() - began
            if self.seconds[item] > LONGEST_SECONDS or starts.count > started:
                for reaching in self.reaching.values():
                    reaching.discard(item)
            if self.failed:
                break
        for function, code in before.items():
            function.__code__ = code

    def _run_mutants(self) -> None:
        running: dict[int, tuple[int, Mutant]] = {}
        waiting = iter(self._chosen())
        while True:
            while len(running) < self.jobs and (mutant := next(waiting, None)) is not None:
                pid = self._fork(mutant)
                running[os.pidfd_open(pid)] = pid, mutant
            if not running:
                return
            for descriptor in select.select([*running], [], [])[0]:
                pid, mutant = running.pop(descriptor)
                self._count(mutant, os.waitpid(pid, 0)[1])
                os.close(descriptor)

    def _chosen(self) -> Iterator[Mutant]:
        """Yield the mutants that tests reach. The first mutant has no change and must survive."""
        code = compile(self.path.read_text(), self.path, "exec")
        self.reaching[""] = set().union(*self.reaching.values())
        yield from [Mutant("", None, 0, UNCHANGED, code)] * self.jobs  # the unchanged code also runs in parallel
        at_import: set[str] = set()
        exec(watched(self.path), {"__name__": self.module, "__reached__": at_import.add})
        for mutant in mutants(self.path, self.lines):
            if time.monotonic() > self.end:
                self.late += 1
            elif self.reaching[mutant.function]:
                yield mutant
            elif mutant.function not in at_import:
                self.unreached.append(mutant)

    def _count(self, mutant: Mutant, status: int) -> None:
        alive = os.waitstatus_to_exitcode(status) == ALIVE
        if mutant.change == UNCHANGED:
            self.failed = self.failed or ("" if alive else "the tests fail beside themselves, or a second time")
        elif alive:
            self.lived.append(mutant)
        else:
            self.died += 1

    def _fork(self, mutant: Mutant) -> int:
        kills = dict(zip(self.seconds, self.kills[:], strict=False))
        cost = {item: seconds / (1 + kills[item]) for item, seconds in self.seconds.items()}
        items = sorted(self.reaching[mutant.function], key=cost.__getitem__)
        pid = os.fork()
        if pid:
            return pid
        try:
            self.in_fork = True
            null = os.open(os.devnull, os.O_RDWR)
            for descriptor in (1, 2):
                os.dup2(null, descriptor)
            limit = MORE_SECONDS + TIMES * int(sum(map(self.seconds.__getitem__, items)))
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
            faulthandler.dump_traceback_later(TIMES * limit, exit=True, file=null)
            # The checks for leftovers would find files and processes of other forks.
            suite = sys.modules["tests.conftest"]
            suite.held.look, suite.held.left = lambda _test: None, list
            suite.leftovers.end_processes = lambda _place: []
            _replace(self.functions, mutant.code, mutant.place)
            for number, item in enumerate(items):
                _run(item, items[number + 1] if number + 1 < len(items) else None)
        except BaseException:  # noqa: BLE001
            os._exit(DEAD)
        os._exit(ALIVE)


def _run(item: pytest.Item, following: pytest.Item | None) -> None:
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)


def _replace(functions: Sequence[FunctionType], code: CodeType, place: Place | None = None) -> None:
    """Replace the code of all functions, or of functions within one place, by the code at the same place."""
    found = dict(codes(code))
    for function in functions:
        at = function.__code__.co_qualname, function.__code__.co_firstlineno
        inside = place is None or at == place or at[0].startswith(f"{place[0]}.<locals>.")
        if inside and at in found:
            function.__code__ = found[at]
