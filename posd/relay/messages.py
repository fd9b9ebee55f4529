"""The messages on a lane's subject (local API, Many lanes), and the pages of the feed that they are made of."""

from collections.abc import Mapping
from typing import NamedTuple, assert_never

import msgspec
from msgspec import Raw

#: The version of these shapes.
VERSION = 1
#: The status of a `state` whose relay gets no answer of its posd.
UNREACHABLE = "unreachable"


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """What all of them have. `at` is when it was made, by the clock of the lane's machine."""

    v: int = VERSION
    merchant: str
    lane: str
    database_id: str
    at: str


class Changes(Message, frozen=True, kw_only=True, tag="changes"):
    """One contiguous run of changes, as the feed gave them; `place` is the feed's check of the last, where known."""

    first_seq: int
    last_seq: int
    changes: list[Raw]
    place: str | None = None


class State(Message, frozen=True, kw_only=True, tag="state"):
    """All changes up to `last_seq` were sent: at `as_of` there were no others. `attention` counts codes."""

    last_seq: int
    as_of: str
    version: str
    health: Mapping[str, str]
    open: int
    attention: Mapping[str, int]
    place: str | None = None


class Previous(msgspec.Struct, frozen=True):
    """The database before, and the last number that is known of it."""

    database_id: str
    last_seq: int


class Begin(Message, frozen=True, kw_only=True, tag="begin"):
    """A database whose changes begin with `first_seq`."""

    first_seq: int
    previous: Previous | None


class Lost(Message, frozen=True, kw_only=True, tag="lost"):
    """Changes that are no longer in the feed and were never sent."""

    from_seq: int
    to_seq: int
    reason: str


AnyMessage = Changes | State | Begin | Lost


class Position(NamedTuple):
    """The last change that a lane's subject has: its database and number, and `place`, the feed's own word for it."""

    database_id: str
    seq: int
    place: str | None = None

    @property
    def after(self) -> str:
        """Where to read the feed from."""
        return self.place or str(self.seq)


class Range(msgspec.Struct, frozen=True):
    """The numbers of one database in the feed; `last_seq` is None where none is known."""

    database_id: str
    first_seq: int
    last_seq: int | None

    @property
    def end(self) -> int:
        """The last number, and the one before the first where there is none."""
        return self.first_seq - 1 if self.last_seq is None else self.last_seq


class Notice(msgspec.Struct, frozen=True):
    """Why a reader may have missed something."""

    code: str


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the feed. `open` and `attention` are there where the feed ends with it."""

    changes: list[Raw]
    place: str
    notices: list[Notice]
    databases: list[Range]
    open: int | None = None
    attention: Mapping[str, int] | None = None


class Numbered(msgspec.Struct, frozen=True):
    """The number of a change; the rest of it is not read here."""

    seq: int


_MESSAGE: msgspec.json.Decoder[AnyMessage] = msgspec.json.Decoder(AnyMessage)
_NUMBERED = msgspec.json.Decoder(Numbered)
encode = msgspec.json.Encoder().encode


def decode(data: bytes) -> AnyMessage:
    """Read a message. Raise ValueError where it is none."""
    try:
        return _MESSAGE.decode(data)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def kind(message: AnyMessage) -> str:
    """Return its member `kind`."""
    return str(message.__struct_config__.tag)


def number(change: Raw) -> int:
    """Return the number of a change of the feed."""
    return _NUMBERED.decode(change).seq


def position(message: AnyMessage) -> Position:
    """Tell up to where a lane's subject goes with this message as its last."""
    match message:
        case Changes(last_seq=seq, place=place) | State(last_seq=seq, place=place):
            return Position(message.database_id, seq, place)
        case Begin(first_seq=first):
            return Position(message.database_id, first - 1)
        case Lost(to_seq=seq):
            return Position(message.database_id, seq)
        case _:
            assert_never(message)
