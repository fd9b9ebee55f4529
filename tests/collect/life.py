"""Messages of generated lanes, and the tables that head office must have."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from posd.base.times import iso
from posd.collect.reading import LaneMessage

BEGAN = datetime(2026, 11, 20, 12, tzinfo=UTC)
#: Courses of payments, with the phase and result of each change. `again`: whether an outcome was reported before.
PATHS: tuple[tuple[tuple[str, str | None], ...], ...] = (
    (("starting", None), ("active", None), ("final", "approved")),
    (("starting", None), ("final", "declined")),
    (("starting", None), ("in_doubt", None)),
    (("starting", None), ("final", "not_started"), ("final", "approved")),
    (("starting", None), ("final", "not_started"), ("active", None)),
    (("starting", None), ("in_doubt", None), ("final", "canceled"), ("final", "approved")),
)


@dataclass
class LaneLife:
    """One lane, with its databases and its sent messages."""

    random: Random
    merchant: str = "m1"
    lane: str = "a"
    seq: int = 0
    at: datetime = BEGAN
    databases: list[str] = field(default_factory=list)
    sent: list[dict[str, Any]] = field(default_factory=list)
    #: (database_id, seq) -> change.
    changes: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    #: (kind, id) -> newest change, and all outcomes in order.
    newest: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    outcomes: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    #: client_transaction_id -> outcome in force. If a new database lacks the payment, the outcome stays in force.
    standing: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    lost: int = 0

    def begin(self) -> None:
        """Start a new database."""
        previous = {"database_id": self.databases[-1], "last_seq": self.seq} if self.databases else None
        if self.databases:  # after a restore the numbers continue above all earlier numbers, and a new disk starts at 1
            self.seq = self.seq + self.random.randrange(3) if self.random.random() < 0.6 else 0
        self.databases.append(f"{self.lane}-{len(self.databases)}-{self.random.randrange(10**6)}")
        self.send("begin", first_seq=self.seq + 1, previous=previous)

    def send(self, kind: str, **members: Any) -> None:
        head = {"v": 1, "kind": kind, "merchant": self.merchant, "lane": self.lane, "database_id": self.databases[-1]}
        self.sent.append(head | {"at": iso(self.at)} | members)

    def _change(self, kind: str, identity: str, phase: str, result: str | None, begun: datetime) -> dict[str, Any]:
        self.seq += 1
        self.at += timedelta(seconds=self.random.uniform(0.1, 5))
        change: dict[str, Any] = {
            "seq": self.seq,
            "at": iso(self.at),
            "kind": kind,
            "id": identity,
            "reason": "event",
            "phase": phase,
            "status": None,
            "result": result,
            "attention": ["in_doubt"] if phase == "in_doubt" else [],
            "terminal": "SN-1",
        }
        if result is not None and kind == "transaction":
            known = self.outcomes.setdefault(identity, [])
            change["outcome"] = {
                "result": result,
                "corrected": bool(known),
                "type": "charge",
                "amount": {"subtotal_iva": 10, "iva": 1.2, "extra_taxes": {"x": 0.05}},
                "authorized_amount": 11.25 if result == "approved" else None,
                "tip": None,
                "currency": "USD",
                "sale": f"sale of {identity}",
                "original": None,
                "reversal": None,
                "transaction_reference": f"ref {self.seq}" if result == "approved" else None,
                "ticket_number": None,
                "created_at": iso(begun),
                "occurred_at": iso(self.at),
                "decided_at": iso(self.at),
            }
            known.append(change["outcome"])
            self.standing[identity] = self.databases[-1], change["outcome"]
        elif identity in self.standing and self.standing[identity][0] == self.databases[-1]:
            del self.standing[identity]
        self.changes[self.databases[-1], self.seq] = change
        self.newest[kind, identity] = change
        return change

    def live(self, payments: int) -> None:
        """Make some payments and print jobs in mixed order, and send their changes in runs."""
        paths: list[Iterator[dict[str, Any]]] = []
        for number in range(payments):
            identity = f"{self.lane}-{len(self.newest)}-{number}"
            kind = "print_job" if self.random.random() < 0.2 else "transaction"
            paths.append(self._path(kind, identity, self.random.choice(PATHS)))
        run: list[dict[str, Any]] = []
        while paths:
            path = self.random.choice(paths)
            change = next(path, None)
            if change is None:
                paths.remove(path)
                continue
            run.append(change)
            if self.random.random() < 0.3:
                self._send_run(run)
                run = []
        self._send_run(run)
        self.send(
            "state", last_seq=self.seq, as_of=iso(self.at), version="1", health={"status": "ok"}, open=0, attention={}
        )

    def tell_again(self) -> None:
        """Add payments of the earlier database, as a restore does. Final payments are reported again. Other payments
        are in doubt.
        """
        known = [(identity, change) for (kind, identity), change in self.newest.items() if kind == "transaction"]
        run = []
        for identity, change in self.random.sample(known, min(3, len(known))):
            result = change["result"] if self.random.random() < 0.5 else None
            run.append(self._change("transaction", identity, "final" if result else "in_doubt", result, self.at))
        self._send_run(run)

    def _path(self, kind: str, identity: str, path: Iterable[tuple[str, str | None]]) -> Iterator[dict[str, Any]]:
        begun = self.at
        for phase, result in path:
            yield self._change(kind, identity, phase, result, begun)

    def _send_run(self, run: list[dict[str, Any]]) -> None:
        if run:
            self.send("changes", first_seq=run[0]["seq"], last_seq=run[-1]["seq"], changes=run)

    def lose(self, count: int) -> None:
        """Make changes that are never sent."""
        self.send("lost", from_seq=self.seq + 1, to_seq=self.seq + count, reason="not in the feed")
        self.seq += count
        self.lost += count


def life(seed: int, lane: str = "a") -> LaneLife:
    """Return a lane that had two or three databases, and lost some changes."""
    random = Random(seed)
    found = LaneLife(random, lane=lane)
    for _ in range(random.randrange(2, 4)):
        found.begin()
        found.tell_again()
        found.live(random.randrange(2, 6))
        found.lose(random.randrange(1, 4))
        found.live(random.randrange(1, 4))
    return found


def as_messages(sent: Iterable[dict[str, Any]], first: int = 1) -> list[LaneMessage]:
    """Return messages in the form of the stream."""
    return [
        LaneMessage(
            number,
            datetime.fromisoformat(item["at"]),
            f"posd.{item['merchant']}.{item['lane']}",
            json.dumps(item).encode(),
        )
        for number, item in enumerate(sent, first)
    ]
