"""The record of finals: what the terminal knows of its payments, and what a search tells, over restarts.

Each line is how a payment ended, of every one that did, whether or not its request asked for events. It is the truth
about the money: it is written before anything else is told of a final. The final event (terminal API, Events) stands in
it byte for byte as it is delivered; beside it stands what not every final event tells, the operation and its original.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from posd.simulator import wire
from posd.simulator.amounts import Processed
from posd.simulator.approvals import Approval, Approvals
from posd.simulator.journal import take_up
from posd.simulator.operations import BY_NAME
from posd.simulator.settings import SettingsError


class Final(msgspec.Struct, frozen=True):
    """One line: the operation's name, the reference that its request sent (None where none), the final event."""

    operation: str
    transaction_reference: str | None
    event: msgspec.Raw


class Record:
    """Final events by transaction; an id is the same in upper and lower case."""

    def __init__(self, path: Path) -> None:
        """Open or create the file at `path`, mode 0600. Raises OSError, and SettingsError where it is no record."""
        self._path = path
        self._newest: dict[str, bytes] = {}
        #: What was approved, and can be referred to.
        self.approvals = Approvals()
        path.touch(mode=0o600)
        for final, event in self._read():
            self._note(final, event)
        self._file: BinaryIO = path.open("ab")

    def add(self, final: Final, event: dict[str, Any]) -> None:
        """Record a final, with its event as read; it is in the file when this returns."""
        self._file.write(wire.encode(final) + b"\n")
        self._file.flush()
        self._note(final, event)

    def newest(self, client_transaction_id: str) -> bytes | None:
        """Return the last final event of a transaction; None where there is none."""
        return self._newest.get(client_transaction_id.lower())

    def finals(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Read all final events from the file, oldest first, each with its operation's name."""
        return ((final.operation, event) for final, event in self._read())

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _note(self, final: Final, event: dict[str, Any]) -> None:
        self._newest[event["client_transaction_id"].lower()] = bytes(final.event)
        if "raw_response" in event:
            self.approvals.add(_approval(final, event))

    def _read(self) -> Iterator[tuple[Final, dict[str, Any]]]:
        for number, line in enumerate(take_up(self._path), start=1):
            try:
                final = msgspec.json.decode(line, type=Final)
                yield final, wire.decode(bytes(final.event))
            except (msgspec.DecodeError, wire.NotJson) as error:
                raise SettingsError(
                    f"line {number} of {self._path} cannot be read: {error}; choose another directory with --state"
                ) from error


def _approval(final: Final, event: dict[str, Any]) -> Approval:
    raw = event["raw_response"]
    amount = Processed(event["operation"]["amount"], raw["authorized_amount"])
    return Approval(BY_NAME[final.operation], raw["transaction_reference"], final.transaction_reference, amount)
