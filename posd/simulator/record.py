"""State of a terminal over restarts: finals of its payments, approvals for references, print jobs."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec

from posd.simulator import wire
from posd.simulator.ledger import Journal
from posd.simulator.messages import Refused
from posd.simulator.scenario import ENDS, PrintScenario, ScenarioPrintStatus, prints
from posd.simulator.wire import BY_NAME, Processed, SimulatedOperation


class Final(msgspec.Struct, frozen=True):
    """One line: the operation's name, the reference of its request (or None), the final event."""

    operation: str
    transaction_reference: str | None
    event: msgspec.Raw


class Record:
    """Final events by transaction, and the data of a search; ids are compared without case.

    Each line of the file is the end of a payment, whether or not its request asked for events. It is the truth about
    the money: it is written before a final is reported anywhere. It holds the final event (terminal API, Events) byte
    for byte as delivered. It also has the operation and its original, which some final events lack.
    """

    def __init__(self, path: Path) -> None:
        """Open or create the file at `path`. Raise OSError; raise SettingsError if it is no record."""
        self._newest: dict[str, bytes] = {}
        #: Approvals that a request can reference.
        self.approvals = Approvals()
        self._journal = Journal(path)
        self._journal.replay(lambda line: self._note(*_read_final(line)))

    def add(self, final: Final, event: dict[str, Any]) -> None:
        """Record a final, with its decoded event; it is in the file on return."""
        self._journal.append(final)
        self._note(final, event)

    def newest(self, client_transaction_id: str) -> bytes | None:
        """Return the last final event of a transaction, or None."""
        return self._newest.get(client_transaction_id.lower())

    def finals(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield all final events from the file, oldest first, each with its operation's name."""
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
    """Approved operation; `original` is the reference of its request, if any."""

    operation: SimulatedOperation
    reference: str
    original: str | None
    amount: Processed


@dataclass(slots=True)
class _Chain:
    """An approval with its replacements, the newest last, and the names of the operations on any of them."""

    approvals: list[Approval]
    done: set[str] = field(default_factory=set)


class Approvals:
    """Approvals by reference, and the operations that are still possible; references are compared without case.

    The real refusals are not published: these rules are the simulator's own. They are strict, so that a caller with
    mixed-up references fails here, not at a real acquirer.

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
        """Add an approval that `original` has allowed."""
        original = None if approval.original is None else self._chains.get(approval.original.lower())
        if original is not None:
            original.done.add(approval.operation.name)
        if original is not None and approval.operation.renews:
            original.approvals.append(approval)
            chain = original
        else:
            chain = _Chain([approval])
        self._chains[approval.reference.lower()] = chain

    def original(self, operation: SimulatedOperation, reference: str) -> Approval:
        """Return the approval that an operation references. Raise Refused (422), see the table above."""
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
class Job:
    """Accepted job, and its state. `print_job_id` is the terminal's id, `slip` is unique, `name` its scenario's."""

    slip: str
    print_job_id: str
    external_reference: str
    webhook_url: str | None
    name: str
    document: Any
    status: ScenarioPrintStatus = ScenarioPrintStatus.PENDING
    #: Time of its end, in the ledger's format.
    ended_at: str | None = None
    #: Set after the last call of its webhook.
    called: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def scenario(self) -> PrintScenario:
        """The scenario of the job."""
        return prints()[self.name]

    def told(self) -> dict[str, str]:
        """Return the fields of a webhook or a query (terminal API, Printing)."""
        said = {
            "printJobId": self.print_job_id,
            "status": self.status.value,
            "externalReference": self.external_reference,
        }
        fault = self.scenario.fault
        if self.status is ScenarioPrintStatus.FAILED and fault is not None:
            said |= {"errorCode": fault.code, "errorMessage": fault.message}
        return said


#: Member of a line `taken` -> field of the job.
_REQUEST = {
    **{name: name for name in ("slip", "print_job_id", "external_reference", "webhook_url", "document")},
    "scenario": "name",
}


class PrintRecord:
    """The accepted jobs, oldest first, with their states.

    Each line of the file is one change: a job `taken`, or a new `state`.
    """

    def __init__(self, path: Path) -> None:
        """Open or create the file at `path`. Raise OSError; raise SettingsError if it is no such file."""
        self._jobs: dict[str, Job] = {}
        #: By the terminal's id; the newest of a repeated id.
        self._newest: dict[str, Job] = {}
        self._journal = Journal(path)
        self._journal.replay(lambda line: self._apply(wire.decode(line)))

    def __iter__(self) -> Iterator[Job]:
        return iter(list(self._jobs.values()))

    def newest(self, print_job_id: str) -> Job | None:
        """Return the job with this id of the terminal, or None."""
        return self._newest.get(print_job_id)

    def take(self, job: Job) -> None:
        """Record a job; it is in the file on return if its scenario stores it there."""
        request = {member: getattr(job, name) for member, name in _REQUEST.items()}
        self._write(job, {"op": "taken", **request})
        self._add(job)

    def enter(self, job: Job, status: ScenarioPrintStatus) -> None:
        """Set the state of a job."""
        at = wire.timestamp() if status in ENDS else None
        self._write(job, {"op": "state", "slip": job.slip, "status": status, "at": at})
        job.status, job.ended_at = status, at

    def close(self) -> None:
        """Close the file."""
        self._journal.close()

    def _write(self, job: Job, change: dict[str, Any]) -> None:
        if job.scenario.memory == "on-file":
            self._journal.append(change)

    def _add(self, job: Job) -> None:
        self._jobs[job.slip] = self._newest[job.print_job_id] = job

    def _apply(self, change: dict[str, Any]) -> None:
        if change["op"] == "taken":
            job = Job(**{name: change[member] for member, name in _REQUEST.items()})
            job.scenario  # noqa: B018 - raises KeyError if a file names one that is gone
            self._add(job)
        else:
            job = self._jobs[change["slip"]]
            job.status, job.ended_at = ScenarioPrintStatus(change["status"]), change["at"]
