"""The record of finals: what the terminal knows of its payments, and what a search tells, over restarts.

Each line is a final event (spec 2.1), byte for byte as it is delivered, of every payment that ended, whether or not
its request asked for events. It is the truth about the money: it is written before anything else is told of a final.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from posd.simulator import wire
from posd.simulator.journal import take_up
from posd.simulator.settings import SettingsError


class Record:
    """Final events by transaction; an id is the same in upper and lower case."""

    def __init__(self, path: Path) -> None:
        """Open or create the file at `path`, mode 0600. Raises OSError, and SettingsError where it is no record."""
        self._path = path
        self._newest: dict[str, bytes] = {}
        path.touch(mode=0o600)
        for event, line in self._read():
            self._newest[event["client_transaction_id"].lower()] = line
        self._file: BinaryIO = path.open("ab")

    def add(self, client_transaction_id: str, event: bytes) -> None:
        """Record a final event; it is in the file when this returns."""
        self._file.write(event + b"\n")
        self._file.flush()
        self._newest[client_transaction_id.lower()] = event

    def newest(self, client_transaction_id: str) -> bytes | None:
        """Return the last final event of a transaction; None where there is none."""
        return self._newest.get(client_transaction_id.lower())

    def finals(self) -> Iterator[dict[str, Any]]:
        """Read all final events from the file, oldest first."""
        return (event for event, _ in self._read())

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _read(self) -> Iterator[tuple[dict[str, Any], bytes]]:
        for number, line in enumerate(take_up(self._path), start=1):
            try:
                yield wire.decode(line), line.removesuffix(b"\n")
            except wire.NotJson as error:
                raise SettingsError(
                    f"line {number} of {self._path} cannot be read: {error}; choose another directory with --state"
                ) from error
