"""The checks, their results, and the report."""

import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


class Skipped(Exception):
    """Error if this machine cannot run a check. The message gives the reason."""


class Stopped(Exception):
    """End of a part, because a check that the others need did not pass."""


@dataclass
class Report:
    """All checks. Each check is printed when it ends. `part`: the running part, with the release of Debian."""

    part: str = ""
    suite: str = ""
    results: Counter[str] = field(default_factory=Counter)
    _notes: list[str] = field(default_factory=list)

    def note(self, words: object) -> None:
        """Record an observation of the present check for the readers of the report."""
        self._notes.extend(str(words).strip("\n").rstrip().splitlines())

    @contextmanager
    def check(self, name: str, *, needed: bool = False) -> Iterator[None]:
        """Check one promise by the code of the block. The report records a failure, and the next check runs. Raise
        Stopped instead if the next checks need this one.
        """
        began, result = time.monotonic(), "passed"
        try:
            yield
        except Skipped as reason:
            result = "skipped"
            self.note(reason)
        except Exception as error:  # noqa: BLE001 - any error is the result
            result = "failed"
            self.note(str(error) or type(error).__name__)
            if not isinstance(error, AssertionError):
                self.note(traceback.format_exc(limit=-3))
        self.results[result] += 1
        part = f"{self.part} on {self.suite}" if self.suite else self.part
        print(f"{result:8}{part}: {name}  ({time.monotonic() - began:.1f} s)", flush=True)
        for line in self._notes:
            print(f"          {line[:200]}", flush=True)
        self._notes.clear()
        if needed and result != "passed":
            raise Stopped
