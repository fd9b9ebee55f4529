"""The street's own ledger: what really happened with each payment, and what of it posd was told.

And what has to hold between what came and what is stored.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from posd.payments.lifecycle import FINALS
from posd.storage.writer import RecordedChange
from posd.terminals.attempt import Attempt, NotSent, Replied, ReplyLost
from tests.core.scenarios import ACK, CANCELED, CARD, REJECTED, REQUESTED
from tests.core.scenarios import Path as Lifecycle
from tests.store.house import MERCHANT, Records
from tests.support.events import body

LIFECYCLES: tuple[Lifecycle, ...] = (
    ((ACK, None), (CARD, ACK), (REQUESTED, CARD), ("APPROVAL", REQUESTED)),
    ((ACK, None), (CARD, ACK), (CARD, CARD), (REQUESTED, CARD), ("DECLINED", REQUESTED)),
    ((ACK, None), (CARD, ACK), (REJECTED, CARD)),
    ((ACK, None), (CANCELED, ACK)),
)
NO_REPLY: dict[str, Attempt] = {
    "lost": ReplyLost("reset"),
    "error": Replied(500, b"{}"),
    "late": Replied(408, b""),
    "html": Replied(200, b"<html>"),
    "refused": Replied(409, b"busy"),
}
REPLIES = ("acknowledged", "by another device", "unsent", *NO_REPLY)
NONE = Replied(200, b"[]")
NO_ANSWERS: dict[str, Attempt] = {
    "none": NONE,
    "404": Replied(404, b""),
    "html": Replied(200, b"<html>"),
    "others": Replied(200, b'[{"client_transaction_id": "another"}]'),
    "reset": ReplyLost("reset"),
}
ABORTS: dict[str, Attempt] = {
    "taken": Replied(200, b"{}"),
    "nothing running": Replied(409, b""),
    "not taken": Replied(404, b""),
    "unreachable": NotSent("refused"),
    "lost": ReplyLost("reset"),
}


@dataclass
class Payment:
    """What really happened with one payment, and what of it posd was told."""

    identity: str
    terminal: str
    lifecycle: Lifecycle
    runs: bool  # whether the terminal got the request and runs it
    request: bytes = b""
    sale: str | None = None
    held: bool = False  # the reply to its start is not there yet
    claim: bool = True  # it holds its terminal
    events: list[bytes] = field(default_factory=list)  # what posd has taken, in order
    kept: list[bytes] = field(default_factory=list)  # what posd refused, and could use under another configuration
    heard: bool = False
    finals: list[str] = field(default_factory=list)  # the finals that posd was told, in order
    asked: bool = False  # posd was told that the acquirer was asked, or that it has ended
    mismatch: bool = False  # posd was told that another device has it
    nones: int = 0  # answers that count for the proof that it never started, since the last one against it
    idles: int = 0

    def said(self, number: int, **changes: Any) -> bytes:
        """Return an event of its life, the same bytes each time."""
        status, previous = self.lifecycle[number % len(self.lifecycle)]
        if status == "APPROVAL":
            response = {"transaction_reference": f"r-{self.identity}", "authorized_amount": 11.20}
            changes = {"raw_response": response} | changes
        event_id = f"{self.identity} {number % len(self.lifecycle)}"
        at = "2026-11-20T10:42:03.120Z"
        fields = {"event_id": event_id, "merchant_id": MERCHANT, "occurred_at": at} | changes
        return body(self.identity, status, previous, self.terminal, **fields)

    def take(self, data: bytes) -> None:
        """Note that posd has taken an event: under an event_id that was used it is kept, and says nothing more."""
        if data in self.events:
            return
        event = json.loads(data)
        used = any(json.loads(other)["event_id"] == event["event_id"] for other in self.events)
        self.events.append(data)
        self.tell(event, applied=not used)

    def tell(self, event: dict[str, Any], *, applied: bool = True) -> None:
        """Note that posd was told of a state."""
        self.heard = True
        if not applied:
            return
        self.asked |= REQUESTED in (event["status"], event.get("previous_status")) or event["status"] in FINALS
        if event["status"] in FINALS:
            reference = event.get("raw_response", {}).get("transaction_reference")
            self.finals.append(f"{event['status']} {reference}")

    def begin_proof_anew(self) -> None:
        self.nones = self.idles = 0


def attempt(payment: Payment, reply: str) -> Attempt:
    """Return what the network makes of a start."""
    if reply in NO_REPLY:
        return NO_REPLY[reply]
    if reply in ("unsent", "held"):
        return NotSent("connection refused")
    serial = payment.terminal if reply == "acknowledged" else "SN-X"
    return Replied(200, json.dumps({"status": ACK, "terminal": {"serialNumber": serial}}).encode())


def listing(*elements: bytes) -> Attempt:
    """Return the reply of a search that found these."""
    return Replied(200, b"[" + b",".join(elements) + b"]")


def check_leases(records: Records, ledger: Mapping[str, Payment]) -> None:
    """Check that a terminal is held by the payment that claims it, and by no other."""
    claims = [(payment.terminal, identity) for identity, payment in ledger.items() if payment.claim]
    assert sorted(records.leases.items()) == sorted(claims)


def check_replay(records: Records) -> None:
    """What came, in order, gives what is stored, and each change has its row in the feed."""
    for identity, record in records.transactions.items():
        replayed, verdicts, changes, notes = record.replayed()
        row = record.row
        assert msgspec.structs.replace(replayed, revision=row.revision, last_search=row.last_search) == row
        assert verdicts == [item.verdict for item in record.events]
        mine = [change for change in records.feed if change.id == identity]
        assert row.revision == changes
        assert len(mine) == 1 + changes + notes
        assert (mine[-1].phase, mine[-1].status) == (row.phase, row.status)
        assert mine[-1].attention == tuple(item.code for item in row.attention)
        assert mine[-1].result == (row.outcome.result if row.outcome else None)


def check_feed(records: Records, heard: Sequence[RecordedChange], *, since: int) -> None:
    """The feed is in order, and who has listened since a row hears of each further one, once."""
    assert [change.seq for change in records.feed] == list(range(1, len(records.feed) + 1))
    assert records.feed[since:] == [
        RecordedChange(*(getattr(change, name) for name in RecordedChange.__struct_fields__)) for change in heard
    ]
