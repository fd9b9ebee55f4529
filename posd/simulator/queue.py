"""The persistent queue of events that wait for their delivery: a journal of JSON lines (terminal API, Delivery).

Each line is one change: `put`, `attempt`, `again` or `done`. The journal is emptied whenever nothing is left in it.
"""

import fcntl
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from posd.simulator import wire
from posd.simulator.journal import take_up


@dataclass(slots=True)
class Item:
    """One event on its way. `body` is what is sent, JSON for the most part, on every attempt the same."""

    event_id: str
    client_transaction_id: str
    status: str
    url: str
    body: str
    attempts: int = 0
    #: A moment of the terminal's clock, which keeps its meaning over a restart; None before the first attempt.
    first_attempt_at: float | None = None
    #: It was delivered, or set out before, and waits to be delivered once more.
    again: bool = False
    #: It keeps no order with the others of its transaction.
    alone: bool = False
    #: The moment of the terminal's clock before which it does not set out; `Clock.after` makes one. None: at once.
    due: float | None = None
    #: It goes out by a terminal that trusts nobody: each attempt ends in the TLS handshake. Nothing over plain HTTP.
    distrusted: bool = False
    #: Tells it from every other item that waits; given by `put`.
    number: int = 0


class QueueBusy(RuntimeError):
    """Another simulator holds this queue."""


class Queue:
    """Items by transaction, each in the order in which it was put."""

    def __init__(self, path: Path) -> None:
        """Open or create the journal at `path`, mode 0600. Raises OSError, QueueBusy."""
        self._lanes: dict[str, dict[int, Item]] = {}
        self._next = 0
        path.touch(mode=0o600)
        self._file: BinaryIO = path.open("ab")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._file.close()
            raise QueueBusy(f"{path} is in use by another simulator: stop it, or choose another --state") from error
        for line in take_up(path):
            self._apply(wire.decode(line))
        if not self._lanes:
            self._file.truncate(0)

    def transactions(self) -> list[str]:
        """Return the transactions that have something waiting."""
        return list(self._lanes)

    def items(self) -> Iterator[Item]:
        """Return everything that waits, each transaction's in the order in which it was put."""
        return (item for lane in list(self._lanes.values()) for item in list(lane.values()))

    def first(self, client_transaction_id: str) -> Item | None:
        """Return the oldest waiting item of a transaction, of those that keep its order."""
        lane = self._lanes.get(client_transaction_id, {})
        return next((item for item in lane.values() if not item.alone), None)

    def put(self, item: Item) -> Item:
        """Append an item to its transaction's lane; return it as it waits there, with its number."""
        number = self._next
        self._record({"op": "put", **asdict(item), "number": number})
        return self._lanes[item.client_transaction_id][number]

    def attempted(self, item: Item, *, at: float) -> None:
        """Count an attempt that begins at `at`, a moment of the terminal's clock."""
        self._record(_change("attempt", item) | {"at": at})

    def again(self, item: Item) -> None:
        """Let an item that was delivered wait for one more delivery, its attempts counted anew."""
        self._record(_change("again", item))

    def done(self, item: Item) -> None:
        """Take an item out: delivered or given up."""
        self._record(_change("done", item))
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
        transaction, number = change["client_transaction_id"], change["number"]
        match change["op"]:
            case "put":
                item = Item(**{name: value for name, value in change.items() if name != "op"})
                item.first_attempt_at, item.due = _moment(item.first_attempt_at), _moment(item.due)
                self._lanes.setdefault(transaction, {})[number] = item
                self._next = number + 1
            case "attempt":
                item = self._lanes[transaction][number]
                item.attempts += 1
                if item.first_attempt_at is None:
                    item.first_attempt_at = float(change["at"])
            case "again":
                item = self._lanes[transaction][number]
                item.again, item.attempts, item.first_attempt_at = True, 0, None
            case "done":
                lane = self._lanes[transaction]
                del lane[number]
                if not lane:
                    del self._lanes[transaction]


def _moment(value: Any) -> float | None:
    """Return a moment as the clock has it: from the journal it comes as the digits that stand there."""
    return None if value is None else float(value)


def _change(op: str, item: Item) -> dict[str, Any]:
    return {"op": op, "client_transaction_id": item.client_transaction_id, "number": item.number}
