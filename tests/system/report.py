"""The checks, their results, and the report."""

import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


class Skipped(Exception):
    """Error if this machine cannot run a check. The message gives the reason."""


@dataclass
class Check:
    """The check of one promise. `notes`: observations for the readers of the report."""

    part: str
    name: str
    result: str = PASSED
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)

    def note(self, words: str) -> None:
        """Record an observation."""
        self.notes.extend(words.strip("\n").rstrip().splitlines())


@dataclass
class Report:
    """All checks. Each check is printed when it ends."""

    checks: list[Check] = field(default_factory=list)
    #: The Debian release under test, or "".
    suite: str = ""

    @contextmanager
    def check(self, part: str, name: str) -> Iterator[Check]:
        """Check one promise by the code of the block. The report records a failure, and the next check runs."""
        check, began = Check(f"{part} on {self.suite}" if self.suite else part, name), time.monotonic()
        try:
            yield check
        except Skipped as reason:
            check.result = SKIPPED
            check.note(str(reason))
        except Exception as error:  # noqa: BLE001 - any error is the result
            check.result = FAILED
            check.note(str(error) or type(error).__name__)
            if not isinstance(error, AssertionError):
                check.note(traceback.format_exc(limit=-3))
        check.seconds = round(time.monotonic() - began, 1)
        self.checks.append(check)
        print(f"{check.result:8}{check.part}: {check.name}  ({check.seconds} s)", flush=True)
        for line in check.notes:
            print(f"          {line[:200]}", flush=True)

    def count(self, result: str) -> int:
        """Return the number of checks with this result."""
        return sum(check.result == result for check in self.checks)

    @property
    def summary(self) -> str:
        """The number of checks with each result, as text."""
        return f"{self.count(PASSED)} passed, {self.count(FAILED)} failed, {self.count(SKIPPED)} skipped"
