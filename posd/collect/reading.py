"""What a message of a lane is worth: it is read with every type checked, or it says why it cannot be used."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from posd.relay import messages
from posd.relay.messages import AnyMessage, Begin, Changes, Lost, State

#: PostgreSQL's largest bigint.
MOST = 2**63 - 1
#: How much of a message that cannot be used is kept, in bytes.
KEPT_BYTES = 4096


class Message(NamedTuple):
    """A message as it came: its number in the stream, when the server took it, where, and what it says."""

    stream_seq: int
    received_at: datetime
    subject: str
    data: bytes


class Unreadable(ValueError):
    """The message cannot be used; the text says why."""


class Row(NamedTuple):
    """A change as it is stored; `change` is JSON that PostgreSQL takes."""

    database_id: str
    seq: int
    merchant: str
    lane: str
    at: datetime
    kind: str
    id: str
    change: str


class _Change(msgspec.Struct, frozen=True):
    seq: int
    at: datetime
    kind: str
    id: str
    phase: str
    attention: list[str]


class _Run(msgspec.Struct, frozen=True):
    changes: list[_Change]


_RUN = msgspec.json.Decoder(_Run)
#: The escape of a NUL, behind whole pairs of backslashes.
_NUL = re.compile(rb"((?<!\\)(?:\\\\)*)\\u0000")


def read(message: Message) -> AnyMessage:
    """Read a message. Raise Unreadable."""
    try:
        found = messages.decode(message.data)
    except ValueError as error:
        raise Unreadable(str(error)) from error
    if message.subject != f"posd.{found.merchant}.{found.lane}":
        raise Unreadable(f"it says that it is of {found.merchant}.{found.lane}, and came on {message.subject}")
    if found.v != messages.VERSION:
        raise Unreadable(f"version {found.v} of the messages is not known here")
    numbers: Sequence[int]
    match found:
        case Changes(first_seq=first, last_seq=last):
            numbers = [first, last]
        case Lost(from_seq=first, to_seq=last):
            numbers = [first, last]
            if first > last:
                raise Unreadable(f"nothing is from {first} to {last}")
        case State(last_seq=last):
            numbers = [last]
            moment(found.as_of)
        case Begin(first_seq=first, previous=previous):
            numbers = [first, previous.last_seq if previous else 0]
    if not all(0 <= number < MOST for number in numbers):
        raise Unreadable("a number of it is out of range")
    moment(found.at)
    return found


def rows(message: Message, found: Changes) -> list[Row]:
    """Return the changes of a message as they are stored. Raise Unreadable."""
    try:
        changes = _RUN.decode(message.data).changes
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"a change cannot be read: {error}") from error
    if not changes or [change.seq for change in changes] != list(range(found.first_seq, found.last_seq + 1)):
        raise Unreadable(f"its changes are not those from {found.first_seq} to {found.last_seq}")
    return [
        Row(
            found.database_id,
            change.seq,
            found.merchant,
            found.lane,
            change.at if change.at.tzinfo is not None else change.at.replace(tzinfo=UTC),
            change.kind,
            change.id,
            storable(bytes(raw)),
        )
        for change, raw in zip(changes, found.changes, strict=True)
    ]


def storable(data: bytes) -> str:
    """Return JSON without what PostgreSQL has no place for: a NUL in a text becomes U+FFFD. Raise Unreadable."""
    try:
        if b"\\u0000" not in data:
            return data.decode()
        return _NUL.sub(rb"\1\\ufffd", data).decode()
    except UnicodeDecodeError as error:
        raise Unreadable("a change is not UTF-8") from error


def moment(text: str) -> datetime:
    """Read a time. Raise Unreadable."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise Unreadable(f"{text!r:.60} is no time") from error
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
