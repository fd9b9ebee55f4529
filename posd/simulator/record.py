"""What a terminal knows over restarts: how its payments ended, which approvals can be referred to, its print jobs."""

import asyncio
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec

from posd.simulator import wire
from posd.simulator.journal import Journal
from posd.simulator.messages import Refused
from posd.simulator.operations import BY_NAME, Operation
from posd.simulator.scenario import ENDS, Memory, PrintScenario, PrintStatus, prints
from posd.simulator.wire import Processed


class Final(msgspec.Struct, frozen=True):
    """One line: the operation's name, the reference that its request sent (None where none), the final event."""

    operation: str
    transaction_reference: str | None
    event: msgspec.Raw


class Record:
    """Final events by transaction, and what a search finds; an id is the same in upper and lower case.

    Each line of the file is how a payment ended, of every one that did, whether or not its request asked for events.
    It is the truth about the money: it is written before anything else is told of a final. The final event (terminal
    API, Events) stands in it byte for byte as it is delivered. Beside it stands what not every final event tells: the
    operation and its original.
    """

    def __init__(self, path: Path) -> None:
        """Open or create the file at `path`. Raises OSError, and SettingsError where it is no record."""
        self._newest: dict[str, bytes] = {}
        #: What was approved, and can be referred to.
        self.approvals = Approvals()
        self._journal = Journal(path)
        self._journal.replay(lambda line: self._note(*_read_final(line)))

    def add(self, final: Final, event: dict[str, Any]) -> None:
        """Record a final, with its event as read; it is in the file when this returns."""
        self._journal.append(final)
        self._note(final, event)

    def newest(self, client_transaction_id: str) -> bytes | None:
        """Return the last final event of a transaction; None where there is none."""
        return self._newest.get(client_transaction_id.lower())

    def finals(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Read all final events from the file, oldest first, each with its operation's name."""
        return ((final.operation, event) for final, event in self._journal.read(_read_final))

    def close(self) -> None:
        """Close the file."""
        self._journal.close()

    def _note(self, final: Final, event: dict[str, Any]) -> None:
        self._newest[event["client_transaction_id"].lower()] = bytes(final.event)
        if "raw_response" in event:
            self.approvals.add(_approval(final, event))


def _read_final(line: bytes) -> tuple[Final, dict[str, Any]]:
    final = msgspec.json.decode(line, type=Final)
    return final, wire.decode(bytes(final.event))


@dataclass(frozen=True, slots=True)
class Approval:
    """An operation that the acquirer approved; `original` is the reference that its request sent, if any."""

    operation: Operation
    reference: str
    original: str | None
    amount: Processed


@dataclass(slots=True)
class _Chain:
    """An approval with those that took its place, the newest last, and the names of what was done to any of them."""

    approvals: list[Approval]
    done: set[str] = field(default_factory=set)


class Approvals:
    """Approvals by reference, and what can still be done to them; a reference is the same in upper and lower case.

    Which references a terminal refuses, and with what words, is not published: these rules are the simulator's own.
    They are strict, so that a caller which mixes references up is told here and not by a real acquirer.

    | what is refused                                                           | code                           |
    | ------------------------------------------------------------------------- | ------------------------------ |
    | a reference that no approval of this terminal has                         | UNKNOWN_REFERENCE              |
    | an approval to which the operation is not done (its `originals`)          | REFERENCE_DOES_NOT_FIT         |
    | one to which something was done that rules it out (its `not_after`)       | ALREADY_ and that one's `done` |
    | one that a re-authorization has replaced, but the first one for a further | REFERENCE_SUPERSEDED           |
    | re-authorization                                                          |                                |
    """

    def __init__(self) -> None:
        self._chains: dict[str, _Chain] = {}

    def add(self, approval: Approval) -> None:
        """Note an approval; it was found fit before by `original`."""
        original = None if approval.original is None else self._chains.get(approval.original.lower())
        if original is not None:
            original.done.add(approval.operation.name)
        if original is not None and approval.operation.renews:
            original.approvals.append(approval)
            chain = original
        else:
            chain = _Chain([approval])
        self._chains[approval.reference.lower()] = chain

    def original(self, operation: Operation, reference: str) -> Approval:
        """Return the approval to which the operation can be done. Raises Refused (422), see the table above."""
        chain = self._chains.get(reference.lower())
        if chain is None:
            raise _refused("UNKNOWN_REFERENCE", f"transaction_reference {reference} is of no approval here")
        original = next(item for item in chain.approvals if item.reference.lower() == reference.lower())
        if original.operation.name not in operation.originals:
            raise _refused(
                "REFERENCE_DOES_NOT_FIT",
                f"transaction_reference {reference} is of a {original.operation.name}; "
                f"a {operation.name} is done to: {', '.join(operation.originals)}",
            )
        for name in operation.not_after:
            if name in chain.done:
                done = BY_NAME[name].done
                raise _refused(
                    f"ALREADY_{done.upper()}", f"the {original.operation.name} {reference} was {done} already"
                )
        newest = chain.approvals[-1]
        if original is not newest and not (operation.renews and original is chain.approvals[0]):
            raise _refused(
                "REFERENCE_SUPERSEDED",
                f"transaction_reference {reference} was replaced by that of a newer {newest.operation.name}, "
                f"{newest.reference}",
            )
        return original


def _approval(final: Final, event: dict[str, Any]) -> Approval:
    raw = event["raw_response"]
    amount = Processed(event["operation"]["amount"], raw["authorized_amount"])
    return Approval(BY_NAME[final.operation], raw["transaction_reference"], final.transaction_reference, amount)


def _refused(code: str, message: str) -> Refused:
    return Refused(HTTPStatus.UNPROCESSABLE_ENTITY, code, message)


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
        """What is told of it, by webhook and to a caller that asks (terminal API, Printing)."""
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
    """The jobs that the printer has taken, oldest first, and where they stand.

    Each line of the file is one change: a job that was `taken`, or the `state` that one has reached.
    """

    def __init__(self, path: Path) -> None:
        """Open or create the file at `path`. Raises OSError, and SettingsError where it is no such file."""
        self._jobs: dict[str, Job] = {}
        #: By the terminal's id; the newest, where a caller has used an id twice.
        self._newest: dict[str, Job] = {}
        self._journal = Journal(path)
        self._journal.replay(lambda line: self._apply(wire.decode(line)))

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
        self._journal.close()

    def _write(self, taken: Taken, change: dict[str, Any]) -> None:
        if prints()[taken.scenario].memory is Memory.ON_FILE:
            self._journal.append(change)
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
