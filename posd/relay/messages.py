"""Messages on a lane's subject (local API, Many lanes), and the pages of the feed behind them."""

from collections.abc import Mapping
from typing import Annotated, NamedTuple, assert_never

import msgspec
from msgspec import Meta, Raw

#: The version of these shapes.
VERSION = 1
#: Status in a `state` while the relay gets no response of posd.
UNREACHABLE = "unreachable"

# Limits of head office's columns for a lane's data. The rest is in `posd.collect.reading`.

#: Text in an index: five of them, of four bytes a character, fit into a row of PostgreSQL's (2,704 bytes).
Name = Annotated[str, Meta(max_length=128)]
#: Any other text: posd's own have at most 256 characters, a `sale` has 128 before its composition.
Text = Annotated[str, Meta(max_length=1024)]
#: A bigint, with room for the next number.
Seq = Annotated[int, Meta(ge=0, le=2**63 - 2)]
#: An integer.
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """Common members of all messages. `at`: time of its creation on the lane's machine."""

    v: Count = VERSION
    merchant: Name
    lane: Name
    database_id: Name
    at: str


class Changes(Message, frozen=True, kw_only=True, tag="changes"):
    """One contiguous run of changes of the feed; `place`: the feed's check of the last one, if known."""

    first_seq: Seq
    last_seq: Seq
    changes: list[Raw]
    place: Text | None = None


class StateMessage(Message, frozen=True, kw_only=True, tag="state"):
    """Report that all changes up to `last_seq` were sent: at `as_of` there were no others. `attention` counts codes."""

    last_seq: Seq
    as_of: str
    version: Text
    health: Mapping[Text, Text]
    open: Count
    attention: Mapping[Name, Count]
    place: Text | None = None


class Previous(msgspec.Struct, frozen=True):
    """The previous database, and its last known number."""

    database_id: Name
    last_seq: Seq


class Begin(Message, frozen=True, kw_only=True, tag="begin"):
    """A database whose changes begin with `first_seq`."""

    first_seq: Seq
    previous: Previous | None


class Lost(Message, frozen=True, kw_only=True, tag="lost"):
    """Changes that are missing in the feed and were never sent."""

    from_seq: Seq
    to_seq: Seq
    reason: Text


AnyMessage = Changes | StateMessage | Begin | Lost


class Position(NamedTuple):
    """Position of a lane's subject: database and number of its last change, and `place`, the feed's own word for it."""

    database_id: str
    seq: int
    place: str | None = None

    @property
    def after(self) -> str:
        """Position for reading the feed."""
        return self.place or str(self.seq)


class Range(msgspec.Struct, frozen=True):
    """The numbers of one database in the feed; `last_seq` is None if none is known."""

    database_id: str
    first_seq: int
    last_seq: int | None

    @property
    def end(self) -> int:
        """The last number, or the one before the first if there is none."""
        return self.first_seq - 1 if self.last_seq is None else self.last_seq


class FeedNotice(msgspec.Struct, frozen=True):
    """Why a reader may have missed something."""

    code: str


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the feed. `open` and `attention` are present if the feed ends with it."""

    changes: list[Raw]
    place: str
    notices: list[FeedNotice]
    databases: list[Range]
    open: int | None = None
    attention: Mapping[str, int] | None = None


class Numbered(msgspec.Struct, frozen=True):
    """The number of a change; its other members are not read here."""

    seq: int


_MESSAGE: msgspec.json.Decoder[AnyMessage] = msgspec.json.Decoder(AnyMessage)
_NUMBERED = msgspec.json.Decoder(Numbered)
encode = msgspec.json.Encoder().encode


def decode(data: bytes) -> AnyMessage:
    """Decode a message. Raise ValueError if it is none."""
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
    """Return the position of a lane's subject with this message as its last."""
    match message:
        case Changes(last_seq=seq, place=place) | StateMessage(last_seq=seq, place=place):
            return Position(message.database_id, seq, place)
        case Begin(first_seq=first):
            return Position(message.database_id, first - 1)
        case Lost(to_seq=seq):
            return Position(message.database_id, seq)
        case _:
            assert_never(message)
