"""Run one module's mutants. The tests are collected and run once without a change. Then each mutant runs in a fork of
this process.
"""

import gc
import math
import os
import select
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType

import pytest

from tests.mutants.mutate import Mutant, Place, codes, mutants, watched

#: Factor and seconds of the time limit. A mutant is dead if its tests exceed the time limit: the normal time,
#: multiplied by the factor, plus the seconds.
TIMES, MORE_SECONDS = 10, 30.0
#: A test that takes longer than this time is left out.
LONGEST_SECONDS = 1.0
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
    seconds: dict[pytest.Item, float] = field(default_factory=dict)
    reaching: dict[str, set[pytest.Item]] = field(default_factory=lambda: defaultdict(set))

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """End a fork at the first failure."""
        if report.failed:
            if self.in_fork:
                os._exit(DEAD)
            self.failed = f"{report.nodeid}\n{report.longreprtext}"

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
        functions = self._functions()
        before = {function: function.__code__ for function in functions}
        item: pytest.Item
        sys.modules[self.module].__dict__["__reached__"] = lambda name: self.reaching[name].add(item)
        _replace(functions, watched(self.path))
        for number, item in enumerate(items):
            began = time.process_time()
            _run(item, items[number + 1] if number + 1 < len(items) else None)
            self.seconds[item] = time.process_time() - began
            if self.seconds[item] > LONGEST_SECONDS:
                for reaching in self.reaching.values():
                    reaching.discard(item)
            if self.failed:
                break
        for function, code in before.items():
            function.__code__ = code

    def _functions(self) -> list[FunctionType]:
        """Return the module's functions, from every place that refers to a function."""
        gc.unfreeze()
        name = str(self.path)
        return [item for item in gc.get_objects() if type(item) is FunctionType and item.__code__.co_filename == name]

    def _run_mutants(self) -> None:
        running: dict[int, tuple[int, Mutant, float]] = {}
        waiting = iter(self._chosen())
        while True:
            while len(running) < self.jobs and (mutant := next(waiting, None)) is not None:
                items = sorted(self.reaching[mutant.function], key=self.seconds.__getitem__)
                limit = MORE_SECONDS + TIMES * sum(map(self.seconds.__getitem__, items))
                pid = self._fork(mutant, items)
                running[os.pidfd_open(pid)] = pid, mutant, time.monotonic() + limit
            if not running:
                return
            ended, _, _ = select.select([*running], [], [], 1.0)
            for descriptor, (pid, mutant, end) in [*running.items()]:
                if descriptor not in ended and time.monotonic() < end:
                    continue
                if descriptor not in ended:
                    os.kill(pid, signal.SIGKILL)
                self._count(mutant, os.waitpid(pid, 0)[1])
                os.close(descriptor)
                del running[descriptor]

    def _chosen(self) -> Iterator[Mutant]:
        """Yield the mutants that tests reach. The first mutant has no change and must survive."""
        code = compile(self.path.read_text(), self.path, "exec")
        self.reaching[""] = set().union(*self.reaching.values())
        yield from [Mutant("", None, 0, UNCHANGED, code)] * (self.jobs + 1)  # the unchanged code also runs in parallel
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

    def _fork(self, mutant: Mutant, items: Sequence[pytest.Item]) -> int:
        pid = os.fork()
        if pid:
            return pid
        try:
            self.in_fork = True
            null = os.open(os.devnull, os.O_RDWR)
            for descriptor in (1, 2):
                os.dup2(null, descriptor)
            held = sys.modules[
                "tests.conftest"
            ].held  # the check for leftovers would find files that other forks have open
            held.look, held.left = lambda _test: None, list
            _replace(self._functions(), mutant.code, mutant.place)
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
