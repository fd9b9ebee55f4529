"""Lifecycles of the terminal API as lists of events. An event is (status, previous_status). The last event is final."""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import groupby

from posd.payments.lifecycle import FINALS, TRANSITIONS, Status
from posd.payments.model import Transaction
from posd.payments.wire import read_event
from posd.records.model import Phase
from tests.rig.events import body

NOW = datetime(2026, 11, 20, 10, 42, 3, tzinfo=UTC)
IDENTITY = "7f3c1f0e-3b0a-4d7c-9d55-0f6b1c2a9e11"

ACK, CARD, REQUESTED = "TERMINAL_ACKNOWLEDGED", "CARD_PRESENTED", "APPROVAL_REQUESTED"
CANCELED, REJECTED = "TERMINAL_CANCELED", "TERMINAL_REJECTED"

read = read_event

Path = tuple[tuple[str, str | None], ...]

WORDS = {
    ACK: "acknowledged",
    CARD: "card",
    REQUESTED: "requested",
    CANCELED: "canceled",
    REJECTED: "rejected",
    "DECLINED": "declined",
    "APPROVAL": "approval",
}


def states(*statuses: str) -> Path:
    """Return a path through these states."""
    return tuple(zip(statuses, (None, *statuses), strict=False))


SCENARIOS: dict[str, Path] = {
    "approve contactless": states(ACK, CARD, REQUESTED, "APPROVAL"),
    "approve after the second presentation": states(ACK, CARD, CARD, REQUESTED, "APPROVAL"),
    "approve after the third presentation": states(ACK, CARD, CARD, CARD, REQUESTED, "APPROVAL"),
    "decline": states(ACK, CARD, REQUESTED, "DECLINED"),
    "reject before the card": states(ACK, REJECTED),
    "reject after the card": states(ACK, CARD, REJECTED),
    "reject after the third presentation": states(ACK, CARD, CARD, CARD, REJECTED),
    "cancel before the card": states(ACK, CANCELED),
    "cancel after the card": states(ACK, CARD, CANCELED),
}


def every_path(longest: int) -> Iterator[Path]:
    """Yield every path of the lifecycle table that ends in a final state, with at most this many events."""

    def further(path: Path, state: Status | None) -> Iterator[Path]:
        for status in sorted(TRANSITIONS[state]):
            longer = (*path, (status.value, state and state.value))
            if status in FINALS:
                yield longer
            elif len(longer) < longest:
                yield from further(longer, status)

    yield from further((), None)


def name_of(path: Path) -> str:
    """Return a path as text: `acknowledged, card x 2, requested, approval`."""
    words = [WORDS[status] for status, _ in path]
    return ", ".join(f"{word} x {len(list(same))}" for word, same in groupby(words)).replace(" x 1", "")


def event_bodies(path: Path, serial: str = "SN-TEST") -> tuple[bytes, ...]:
    """Return the events of a path as bytes."""
    return tuple(body(IDENTITY, status, previous, serial) for status, previous in path)


def starting(**changes: object) -> Transaction:
    """Return a transaction whose request is being sent."""
    fields = {
        "client_transaction_id": IDENTITY,
        "terminal": "SN-TEST",
        "type": "charge",
        "created_at": "2026-11-20T10:42:00.000Z",
        "updated_at": "2026-11-20T10:42:00.000Z",
        "phase": Phase.STARTING,
        "amount": b'{"iva":1.20,"subtotal_iva":10.00,"subtotal_iva0":0}',
        "sent_to": "https://terminal",
    }
    return Transaction(**fields | changes)  # type: ignore[arg-type]
