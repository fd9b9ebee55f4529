"""Ledger of what really happened at a terminal, and record of the final events of its payments.

Each line of a file is passed to the operating system at once, so it survives a kill of this process. The file is not
synced, because a simulator need not survive a power cut of its host.
"""

import asyncio
import fcntl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, BinaryIO

from posd.simulator import wire
from posd.simulator.wire import BY_NAME, AmountUnit, Processed, Refused, SettingsError, SimulatedOperation


class Journal:
    """File of JSON documents, one on each line, with mode 0600."""

    def __init__(self, path: Path) -> None:
        """Open or create the file. Raise OSError."""
        path.touch(mode=0o600)
        self._path = path
        self._file: BinaryIO = path.open("ab")

    def lock(self) -> None:
        """Lock the file against other processes. Raise BlockingIOError if another process has locked it."""
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def replay(self, apply: Callable[[bytes], object]) -> None:
        """Call `apply` with each line, the oldest first. Remove an incomplete last line, which a kill can leave.

        Raise SettingsError, and close the file, if `apply` raises ValueError, LookupError or TypeError.
        """
        for number, line in enumerate(_whole_lines(self._path), start=1):
            try:
                apply(line)
            except (LookupError, TypeError, ValueError) as error:
                self.close()
                raise SettingsError(
                    f"line {number} of {self._path} cannot be read: {error!r}; choose another directory with --state"
                ) from error

    def append(self, change: Any) -> None:
        """Append a line. The line is in the file on return."""
        self._file.write(wire.encode(change) + b"\n")
        self._file.flush()

    def empty(self) -> None:
        """Remove every line."""
        self._file.truncate(0)

    def close(self) -> None:
        """Close the file. Its lines stay."""
        self._file.close()


def _whole_lines(path: Path) -> Iterator[bytes]:
    with path.open("rb+") as file:
        whole = 0
        for line in file:
            if not line.endswith(b"\n"):
                file.truncate(whole)
                return
            whole += len(line)
            yield line


#: One line of the ledger: `at` (the time), `kind`, and the fields of that kind (see the table in `Ledger`).
Entry = dict[str, Any]
#: Time-out of `wait_for` in real seconds: longer than any payment at the speeds of the tests.
WAIT_SECONDS = 30.0
Listener = Callable[[Entry], None]
#: First bytes of each line of the file.
_HEAD = b'{"at":"'


class Ledger:
    """Ledger in memory and in a file of JSON lines, oldest first.

    | kind            | when it is written, and its fields                                                             |
    | --------------- | ---------------------------------------------------------------------------------------------- |
    | `unauthorized`  | A call was refused before it was parsed: method, path, http_status, reason.                    |
    | `start`         | A start request was answered: operation, access_mode, client_transaction_id or null,           |
    |                 | transaction_reference (as sent, or null), http_status (null: the caller gets no reply), code   |
    |                 | (of a refusal by the terminal itself, or null), scenario or null, chosen_by (`armed`,          |
    |                 | `metadata`, `amount`, `option` or null), runs (whether the payment runs, even if the reply     |
    |                 | denies it).                                                                                    |
    | `abort`         | An abort was answered: client_transaction_id or null, http_status (null: the caller gets no    |
    |                 | reply), effect (`cancels`, `ignored`, `raced`; null if nothing could be aborted).              |
    | `search`        | A search was answered: client_transaction_id or null, http_status (null: the caller gets no    |
    |                 | reply), found (number of events).                                                              |
    | `hand`          | A manual action: hand (its name), client_transaction_id or null, taken (whether it was         |
    |                 | possible).                                                                                     |
    | `event`         | An event was queued: client_transaction_id, event_id, status.                                  |
    | `final`         | A payment ended: operation, client_transaction_id, event_id, status, charged (whether the      |
    |                 | acquirer approved, for every operation), amount (in the main unit), transaction_reference (the |
    |                 | new one), ticket_number. The last three are null unless charged is true. If its event is sent, |
    |                 | an `event` entry follows, unless the process was killed between the two.                       |
    | `attempt`       | A delivery attempt ended: client_transaction_id, event_id, status, again (whether this is a    |
    |                 | repeated delivery), attempt, result (an HTTP status or a word), retry_in_seconds (null: no     |
    |                 | retry).                                                                                        |
    | `dropped`       | An event will not be sent again: client_transaction_id, event_id, status, again, reason.       |
    | `forgotten`     | A payment ends without a final event, because the terminal was stopped (not killed) or the     |
    |                 | scenario ends so: client_transaction_id, status.                                               |
    | `over`          | A payment has no further steps, or never runs: client_transaction_id.                          |
    | `print`         | The creation of a print job was requested: print_job_id and external_reference (as sent, or    |
    |                 | null), access_mode, http_status (null: the caller gets no reply), code (of a refusal, or       |
    |                 | null), scenario or null.                                                                       |
    | `print_poll`    | The state of a print job was requested: print_job_id or null, http_status (null: the caller    |
    |                 | gets no reply), status (the real one, or null).                                                |
    | `printing`      | A print job became IN_PROGRESS: print_job_id (the terminal's own id, as in the next two        |
    |                 | kinds).                                                                                        |
    | `printed`       | A print job ended: print_job_id, slip (a unique id), status, error_code, text (the printed     |
    |                 | text, or null if nothing was printed).                                                         |
    | `print_webhook` | The end of a print job was sent once: print_job_id, named (the id in the body), status, call,  |
    |                 | result (an HTTP status or a word).                                                             |
    | `unplugged`     | The terminal was disconnected from the network. `plugged`: it was connected again.             |
    | `power_off`     | The terminal lost power. `power_on`: it has power again.                                       |
    | `moved`         | The terminal has another address: base_url.                                                    |
    | `certificate`   | The terminal shows another certificate from its next connection on: which (see `Certificate`). |
    | `mdns`          | The announcement over mDNS: result (`announced` or `failed`), detail.                          |
    """

    def __init__(self, path: Path | None = None, unit: AmountUnit = "main") -> None:
        """Open `path` for appending. None: memory only. `unit`: unit of the amounts in events.

        Lines of an earlier process stay in the file only. Raise OSError, or SettingsError if the file is not a ledger.
        """
        self._entries: list[Entry] = []
        self._listeners: list[Listener] = []
        self._unit = unit
        if path is not None and path.is_file():  # a pipe has no lines of an earlier process
            _check_ledger(path)
        self._journal = Journal(path) if path else None

    def __iter__(self) -> Iterator[Entry]:
        return iter(list(self._entries))

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, kind: str, **fields: Any) -> None:
        """Add an entry. The entry is in the file on return."""
        entry: Entry = {"at": wire.timestamp(), "kind": kind, **fields}
        self._entries.append(entry)
        if self._journal is not None:
            self._journal.append(entry)
        for listener in list(self._listeners):
            listener(entry)

    def add_final(self, operation: str, event: Mapping[str, Any]) -> None:
        """Record the end of a payment from its final event (terminal API, Events)."""
        answer = event.get("raw_response", {})
        amount = answer.get("authorized_amount")
        self.add(
            "final",
            operation=operation,
            client_transaction_id=event["client_transaction_id"],
            event_id=event["event_id"],
            status=event["status"],
            charged="raw_response" in event,
            amount=None if amount is None else wire.to_main(amount, self._unit),
            transaction_reference=answer.get("transaction_reference"),
            ticket_number=answer.get("ticket_number"),
        )

    def listen(self, listener: Listener) -> None:
        """Call `listener` with every later entry."""
        self._listeners.append(listener)

    def of(self, kind: str, **fields: Any) -> list[Entry]:
        """Return the entries of a kind with these field values, oldest first."""
        return [entry for entry in self._entries if _matches(entry, kind, fields)]

    async def wait_for(self, kind: str, **fields: Any) -> Entry:
        """Return the first entry of a kind with these fields. Wait for it if there is none yet.

        Raise TimeoutError after WAIT_SECONDS.
        """
        found = self.of(kind, **fields)
        if found:
            return found[0]
        async with asyncio.timeout(WAIT_SECONDS):
            return await self.next(lambda entry: _matches(entry, kind, fields))

    def next(self, wanted: Callable[[Entry], bool]) -> asyncio.Future[Entry]:
        """Return a future of the next entry for which `wanted` returns true. To stop waiting, cancel the future."""
        arrival: asyncio.Future[Entry] = asyncio.get_running_loop().create_future()

        def look(entry: Entry) -> None:
            if not arrival.done() and wanted(entry):
                arrival.set_result(entry)

        self._listeners.append(look)
        arrival.add_done_callback(lambda _: self._listeners.remove(look))
        return arrival

    def close(self) -> None:
        """Close the file. The entries stay in memory."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None


def _check_ledger(path: Path) -> None:
    """Raise SettingsError if the file is not a ledger. Remove an incomplete last line."""
    with path.open("rb") as file:
        if not _HEAD.startswith(file.read(len(_HEAD))):
            raise SettingsError(f"{path} is not a ledger of a simulated terminal: choose another file with --ledger")
    for _ in _whole_lines(path):
        pass


def _matches(entry: Entry, kind: str, fields: dict[str, Any]) -> bool:
    return entry["kind"] == kind and all(entry.get(name) == value for name, value in fields.items())


# State that survives restarts: final events of payments, and approvals that later operations can reference.


@dataclass(frozen=True, slots=True)
class Approval:
    """Approved operation, its reference and its amount.

    `done`: names of the operations that referenced it. If an approval replaces another one, both have the same set
    `done`.
    """

    operation: SimulatedOperation
    reference: str
    amount: Processed
    done: set[str]


class Record:
    """Final events by transaction, and approvals by reference. Both are found in upper and lower case.

    Each line of the file is the end of a payment, whether or not its request asked for events. The line is written
    before the end is reported anywhere, so the file shows every charge. A line contains the final event as delivered
    (terminal API, Events). A line also contains the operation and its original (`transaction_reference`), which some
    final events lack.
    """

    def __init__(self, path: Path) -> None:
        """Open or create the file at `path`. Raise OSError. Raise SettingsError if the file is not a record."""
        self._newest: dict[str, dict[str, Any]] = {}
        #: Reference -> approvals of its chain, oldest first. Each approval has replaced the one before it.
        self._chains: dict[str, list[Approval]] = {}
        self._journal = Journal(path)
        self._journal.replay(lambda line: self._note(**wire.decode(line)))

    def add(self, operation: str, transaction_reference: str | None, event: dict[str, Any]) -> None:
        """Record the final event of an operation. The event is in the file on return."""
        self._journal.append({"operation": operation, "transaction_reference": transaction_reference, "event": event})
        self._note(operation, transaction_reference, event)

    def newest(self, client_transaction_id: str) -> bytes | None:
        """Return the last final event of a transaction, or None."""
        event = self._newest.get(client_transaction_id.lower())
        return None if event is None else wire.encode(event)

    def close(self) -> None:
        """Close the file."""
        self._journal.close()

    def original(self, operation: SimulatedOperation, reference: str) -> Approval:
        """Return the approval that an operation references. Raise Refused (422).

        The real refusals are not published, so these rules are the simulator's own. The rules are strict, so that a
        caller that confuses references fails here, and not at a real acquirer.

        | refused reference                                                       | code                     |
        | ----------------------------------------------------------------------- | ------------------------ |
        | no approval of this terminal has it                                     | UNKNOWN_REFERENCE        |
        | the operation cannot follow that approval (`originals`)                 | REFERENCE_DOES_NOT_FIT   |
        | an operation on that approval excludes this one (`not_after`)           | ALREADY_ and its `done`  |
        | a re-authorization has replaced that approval (a further re-            | REFERENCE_SUPERSEDED     |
        | authorization may still reference the first approval)                   |                          |
        """
        chain = self._chains.get(reference.lower())
        if chain is None:
            raise _refused("UNKNOWN_REFERENCE", f"transaction_reference {reference} belongs to no approval here")
        original = next(item for item in chain if item.reference.lower() == reference.lower())
        if original.operation.name not in operation.originals:
            raise _refused(
                "REFERENCE_DOES_NOT_FIT",
                f"transaction_reference {reference} belongs to a {original.operation.name}; "
                f"a {operation.name} needs one of: {', '.join(operation.originals)}",
            )
        for name in operation.not_after:
            if name in original.done:
                done = BY_NAME[name].done
                raise _refused(
                    f"ALREADY_{done.upper()}", f"the {original.operation.name} {reference} was {done} already"
                )
        newest = chain[-1]
        if original is not newest and not (operation.renews and original is chain[0]):
            raise _refused(
                "REFERENCE_SUPERSEDED",
                f"transaction_reference {reference} was replaced by that of a newer {newest.operation.name}, "
                f"{newest.reference}",
            )
        return original

    def _note(self, operation: str, transaction_reference: str | None, event: dict[str, Any]) -> None:
        self._newest[event["client_transaction_id"].lower()] = event
        raw = event.get("raw_response")
        if raw is not None:
            amount = Processed(event["operation"]["amount"], raw["authorized_amount"])
            self._approve(BY_NAME[operation], raw["transaction_reference"], amount, transaction_reference)

    def _approve(self, operation: SimulatedOperation, reference: str, amount: Processed, original: str | None) -> None:
        """Add the approval of an operation.

        `original`: the reference in its request, which the method `original` has already checked.
        """
        chain = [] if original is None else self._chains.get(original.lower(), [])
        if chain:
            chain[0].done.add(operation.name)
        if not operation.renews:
            chain = []
        chain.append(Approval(operation, reference, amount, chain[0].done if chain else set()))
        self._chains[reference.lower()] = chain


def _refused(code: str, message: str) -> Refused:
    return Refused(HTTPStatus.UNPROCESSABLE_ENTITY, code, message)
