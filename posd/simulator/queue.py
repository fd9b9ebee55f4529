"""The persistent queue of events that wait for their delivery: a journal of JSON lines (spec 6.2).

Each line is one change: `put`, `attempt` or `done`. The journal is emptied whenever nothing is left in it. A line is
handed to the operating system at once, which survives the end of this process in any form; it is not synced to the
disk, for a simulator need not survive a power cut of its host.
"""

import fcntl
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from posd.simulator import wire


@dataclass(slots=True)
class Item:
    """One event on its way. `body` is the JSON as it is sent, on every attempt the same."""

    event_id: str
    client_transaction_id: str
    status: str
    url: str
    body: str
    attempts: int = 0
    #: Wall-clock seconds since the epoch, so that it keeps its meaning over a restart; None before the first attempt.
    first_attempt_at: float | None = None


class QueueBusy(RuntimeError):
    """Another simulator holds this queue."""


class Queue:
    """Items by transaction, each in the order in which it was put."""

    def __init__(self, path: Path) -> None:
        """Open or create the journal at `path`, mode 0600. Raises OSError, QueueBusy."""
        self._lanes: dict[str, deque[Item]] = {}
        path.touch(mode=0o600)
        self._file: BinaryIO = path.open("ab")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._file.close()
            raise QueueBusy(f"{path} is in use by another simulator: stop it, or choose another --state") from error
        journal = path.read_bytes()
        whole = journal.rfind(b"\n") + 1  # what follows was cut short when the process was killed
        for line in journal[:whole].splitlines():
            self._apply(wire.decode(line))
        self._file.truncate(whole if self._lanes else 0)

    def transactions(self) -> list[str]:
        """Return the transactions that have something waiting."""
        return list(self._lanes)

    def first(self, client_transaction_id: str) -> Item | None:
        """Return the oldest waiting item of a transaction."""
        lane = self._lanes.get(client_transaction_id)
        return lane[0] if lane else None

    def put(self, item: Item) -> None:
        """Append an item to its transaction's lane."""
        self._record({"op": "put", **asdict(item)})

    def attempted(self, item: Item, *, at: float) -> None:
        """Count an attempt that began at `at` (wall clock)."""
        self._record({"op": "attempt", "client_transaction_id": item.client_transaction_id, "at": at})

    def done(self, item: Item) -> None:
        """Take the first item of its lane out: delivered or given up."""
        self._record({"op": "done", "client_transaction_id": item.client_transaction_id})
        if not self._lanes:
            self._file.truncate(0)

    def close(self) -> None:
        """Close the journal; what waits stays in it."""
        self._file.close()

    def _record(self, change: dict[str, Any]) -> None:
        self._apply(change)
        self._file.write(wire.encode(change) + b"\n")
        self._file.flush()

    def _apply(self, change: dict[str, Any]) -> None:
        transaction = change["client_transaction_id"]
        match change["op"]:
            case "put":
                fields = {name: value for name, value in change.items() if name != "op"}
                self._lanes.setdefault(transaction, deque()).append(Item(**fields))
            case "attempt":
                item = self._lanes[transaction][0]
                item.attempts += 1
                if item.first_attempt_at is None:
                    item.first_attempt_at = float(change["at"])
            case "done":
                lane = self._lanes[transaction]
                lane.popleft()
                if not lane:
                    del self._lanes[transaction]
