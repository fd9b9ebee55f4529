"""The jobs that the printer has taken, over restarts, and what came out of it on paper.

Each line of the file is one change: a job that was `taken`, or the `state` that one has reached.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from posd.simulator import wire
from posd.simulator.journal import take_up
from posd.simulator.print_catalogue import prints
from posd.simulator.print_scenario import ENDS, Memory, PrintScenario, PrintStatus
from posd.simulator.settings import SettingsError


@dataclass(slots=True)
class Taken:
    """A job as it was taken. `print_job_id` is what the terminal calls it, `slip` tells it from every other one."""

    slip: str
    print_job_id: str
    external_reference: str
    webhook_url: str | None
    scenario: str
    document: Any


@dataclass(slots=True)
class Job:
    """A job and where it stands."""

    taken: Taken
    status: PrintStatus = PrintStatus.PENDING
    #: When it ended, as the ledger writes times.
    ended_at: str | None = None
    #: Set once its webhook was called as often as it is.
    called: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def scenario(self) -> PrintScenario:
        """What happens to it."""
        return prints()[self.taken.scenario]

    def told(self) -> dict[str, str]:
        """What is told of it, by webhook and to who asks (terminal API, Printing)."""
        said = {
            "printJobId": self.taken.print_job_id,
            "status": self.status.value,
            "externalReference": self.taken.external_reference,
        }
        fault = self.scenario.fault
        if self.status is PrintStatus.FAILED and fault is not None:
            said |= {"errorCode": fault.code, "errorMessage": fault.message}
        return said


class PrintRecord:
    """Jobs in the order in which they were taken."""

    def __init__(self, path: Path) -> None:
        """Open or create the file at `path`, mode 0600. Raises OSError, and SettingsError where it is no such file."""
        self._jobs: dict[str, Job] = {}
        #: By the terminal's id; the newest, where a caller has used an id twice.
        self._newest: dict[str, Job] = {}
        path.touch(mode=0o600)
        for number, line in enumerate(take_up(path), start=1):
            try:
                self._apply(wire.decode(line))
            except (wire.NotJson, LookupError, TypeError, ValueError) as error:
                raise SettingsError(
                    f"line {number} of {path} cannot be read: {error!r}; choose another directory with --state"
                ) from error
        self._file: BinaryIO = path.open("ab")

    def __iter__(self) -> Iterator[Job]:
        return iter(list(self._jobs.values()))

    def newest(self, print_job_id: str) -> Job | None:
        """Return the job that the terminal knows by this id; None where there is none."""
        return self._newest.get(print_job_id)

    def take(self, taken: Taken) -> Job:
        """Take a job; it is in the file when this returns, where its scenario keeps it there."""
        self._write(taken, {"op": "taken", **asdict(taken)})
        return self._jobs[taken.slip]

    def enter(self, job: Job, status: PrintStatus) -> None:
        """Let a job enter a state."""
        at = wire.timestamp() if status in ENDS else None
        self._write(job.taken, {"op": "state", "slip": job.taken.slip, "status": status, "at": at})

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, taken: Taken, change: dict[str, Any]) -> None:
        if prints()[taken.scenario].memory is Memory.ON_FILE:
            self._file.write(wire.encode(change) + b"\n")
            self._file.flush()
        self._apply(change)

    def _apply(self, change: dict[str, Any]) -> None:
        fields = {name: value for name, value in change.items() if name != "op"}
        if change["op"] == "taken":
            job = Job(Taken(**fields))
            job.scenario  # noqa: B018 - raises KeyError where a file names one that is no longer there
            self._jobs[job.taken.slip] = self._newest[job.taken.print_job_id] = job
        else:
            job = self._jobs[fields["slip"]]
            job.status, job.ended_at = PrintStatus(fields["status"]), fields["at"]
