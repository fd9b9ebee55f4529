"""The content that a database must have after any power cut: all acknowledged data, and no incomplete change."""

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from posd.storage.connection import open_database
from tests.rig.events import FINALS, RESULTS
from tests.rig.judge import row_faults

#: The phase of a transaction never goes back. The phases in_doubt and active have no order.
ORDER = {"starting": 0, "in_doubt": 1, "active": 1, "final": 2}


@dataclass
class Promises:
    """The data that posd has acknowledged or shown to terminals and tills."""

    #: (client_transaction_id, raw bytes) of each event that got a 200.
    events: set[tuple[str, bytes]] = field(default_factory=set)
    #: (client_transaction_id, raw bytes) of each body that got 400 or 403. The terminal does not send it
    #: again.
    refused: set[tuple[str, bytes]] = field(default_factory=set)
    #: client_transaction_id -> latest phase that posd has shown.
    phases: dict[str, str] = field(default_factory=dict)
    #: client_transaction_id -> result that a till has received.
    results: dict[str, str] = field(default_factory=dict)
    #: Name of a file beside the database that must also survive -> content.
    files: dict[str, bytes] = field(default_factory=dict)

    def phase(self, identity: str, phase: str) -> None:
        """Record the phase of a transaction that a till or a terminal has seen."""
        if ORDER[phase] >= ORDER[self.phases.get(identity, "starting")]:
            self.phases[identity] = phase

    def result(self, identity: str, result: str) -> None:
        """Record that a till has received the outcome."""
        self.phase(identity, "final")
        self.results[identity] = result


def failures(path: Path, promises: Promises) -> list[str]:
    """Open a database as posd does at its start. Return the faults of the database as sentences."""
    for name, content in promises.files.items():
        file = path.with_name(name)
        if not file.exists() or file.read_bytes() != content:
            return [f"{name} is not there, or another"]
    try:
        with closing(open_database(path)) as db:
            db.row_factory = sqlite3.Row
            return [*row_faults(db), *_broken(db, promises), *_half_done(db)]
    except Exception as error:  # noqa: BLE001 - after any error posd could not use this database
        return [f"it cannot be used: {error!r}"]


def _broken(db: sqlite3.Connection, promises: Promises) -> Iterator[str]:
    events = {(identity, body) for identity, body in db.execute("SELECT client_transaction_id, body FROM events")}
    for identity, body in promises.events - events:
        yield f"event {json.loads(body)['status']} of {identity} was answered 200 and is not there"
    quarantined = {(subject, body) for subject, body in db.execute("SELECT subject, body FROM quarantine")}
    for identity, _ in promises.refused - quarantined:
        yield f"a body for {identity} was refused and is not in quarantine"
    rows = {row["client_transaction_id"]: row for row in db.execute("SELECT * FROM transactions")}
    for identity, phase in promises.phases.items():
        if identity not in rows:
            yield f"{identity} was started and is not there"
        elif ORDER[rows[identity]["phase"]] < ORDER[phase]:
            yield f"{identity} was shown as {phase} and is {rows[identity]['phase']}"
    for identity, result in promises.results.items():
        outcome = identity in rows and rows[identity]["outcome"]
        if not outcome or json.loads(outcome)["result"] != result:
            yield f"{identity} was {result} for the till and is not so here"


def _half_done(db: sqlite3.Connection) -> Iterator[str]:
    events, changes = (defaultdict[str, list[sqlite3.Row]](list) for _ in range(2))
    for row in db.execute("SELECT seq, client_transaction_id, verdict, status FROM events ORDER BY seq"):
        events[row["client_transaction_id"]].append(row)
    for row in db.execute("SELECT id, reason, phase, status, result FROM changes ORDER BY seq"):
        changes[row["id"]].append(row)
    for row in db.execute("SELECT * FROM transactions"):
        identity = row["client_transaction_id"]
        for what in _of_transaction(row, events[identity], changes.pop(identity, [])):
            yield f"{identity}: {what}"
    yield from (f"{identity}: has a history and is not there" for identity in changes)


def _of_transaction(row: Any, events: Iterable[Any], changes: list[Any]) -> Iterator[str]:
    outcome = json.loads(row["outcome"]) if row["outcome"] else None
    if not changes:
        yield "has no history"
        return
    shown = (row["phase"], outcome and outcome["result"])
    if (changes[-1]["phase"], changes[-1]["result"]) != shown:
        yield f"its history ends with {tuple(changes[-1])}, it is {shown}"
    recorded = {item["status"] for item in events}
    for change in changes:
        kind, _, status = change["reason"].partition(":")
        if kind == "event" and status not in recorded:
            yield f"its history has {status}, of which there is no event"
    if sum(item["verdict"] == "applied" for item in events) > sum(c["reason"].startswith("event:") for c in changes):
        yield "has an event without its effect"
    final = next((item for item in events if item["verdict"] == "applied" and item["status"] in FINALS), None)
    if final is not None and (row["final_event"], shown) != (final["seq"], ("final", RESULTS[final["status"]])):
        yield f"its final event {final['status']} is there, it is {shown} by event {row['final_event']}"
    if final is None and row["final_event"] is not None:
        yield "names a final event that is not there"
