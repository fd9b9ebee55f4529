"""Messages on a lane's subject (local API, Many lanes), and pages of the feed, from which the relay makes the messages.

`following` returns the next message, from the last message on the subject and the next page of the feed.
"""

from collections.abc import Mapping
from typing import Annotated, Any, assert_never

import msgspec
from msgspec import Meta, Raw

#: Version of these message types.
VERSION = 1
#: Health in a `state` while posd does not respond to the relay.
UNREACHABLE = "unreachable"

# Limits of head office's columns. `posd.collect.reading` has further limits.

#: Text of at most 128 characters, for an index. A character can have four bytes. Then five such texts still fit into an
#: index row of PostgreSQL (2,704 bytes).
Name = Annotated[str, Meta(max_length=128)]
#: Any other text, of at most 1,024 characters. posd's texts have at most 256, and a `sale` has 128 before Unicode
#: composition.
Text = Annotated[str, Meta(max_length=1024)]
#: Number of a change: up to the largest bigint of PostgreSQL minus one.
Seq = Annotated[int, Meta(ge=0, le=2**63 - 2)]
#: Integer of PostgreSQL that is not negative.
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """Common members of all messages. `at`: time of the message's creation on the lane's machine."""

    v: Count = VERSION
    merchant: Name
    lane: Name
    database_id: Name
    at: str


class Changes(Message, frozen=True, kw_only=True, tag="changes"):
    """Contiguous changes of the feed. `place`: the feed's `place` of the last change, if known."""

    first_seq: Seq
    last_seq: Seq
    changes: list[Raw]
    place: Text | None = None


class StateMessage(Message, frozen=True, kw_only=True, tag="state"):
    """State of a lane: all changes up to `last_seq` were sent, and there were no others at `as_of`.

    `open`: number of open payments. `attention`: number of attentions by code.
    """

    last_seq: Seq
    as_of: str
    version: Text
    health: Mapping[Text, Text]
    open: Count
    attention: Mapping[Name, Count]
    place: Text | None = None


class Previous(msgspec.Struct, frozen=True):
    """The previous database of a lane, and the number of its last known change."""

    database_id: Name
    last_seq: Seq


class Begin(Message, frozen=True, kw_only=True, tag="begin"):
    """Message before the first change of a database. `first_seq`: number of that change."""

    first_seq: Seq
    previous: Previous | None


class Lost(Message, frozen=True, kw_only=True, tag="lost"):
    """Range of changes that were never sent and are missing in the feed."""

    from_seq: Seq
    to_seq: Seq
    reason: Text


AnyMessage = Changes | StateMessage | Begin | Lost


class Position(msgspec.Struct, frozen=True):
    """Position of a lane's subject: database and number of the last change, and the feed's `place` for that change."""

    database_id: str
    seq: int
    place: str | None = None

    @property
    def after(self) -> str:
        """Value of `after` with which the feed continues at this position."""
        return self.place or str(self.seq)


class Range(msgspec.Struct, frozen=True):
    """Numbers of the changes of one database in the feed. `last_seq` is None if the database has no change."""

    database_id: str
    first_seq: int
    last_seq: int | None

    @property
    def end(self) -> int:
        """The last number, or `first_seq` minus one if the database has no change."""
        return self.first_seq - 1 if self.last_seq is None else self.last_seq


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the feed. Only the last page has `open` (number of open payments) and `attention` (number by code)."""

    changes: list[Raw]
    place: str
    notices: list[Mapping[str, Any]]
    databases: list[Range]
    open: int | None = None
    attention: Mapping[str, int] | None = None


_MESSAGE: msgspec.json.Decoder[AnyMessage] = msgspec.json.Decoder(AnyMessage)
encode = msgspec.json.Encoder().encode


def decode(data: bytes) -> AnyMessage:
    """Decode a message. Raise ValueError if it is invalid."""
    try:
        return _MESSAGE.decode(data)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def kind(message: AnyMessage) -> str:
    """Return the member `kind` of the message."""
    return str(message.__struct_config__.tag)


def number(change: Raw) -> int:
    """Return the number of a change of the feed."""
    return int(msgspec.json.decode(change)["seq"])


def position(message: AnyMessage) -> Position:
    """Return the position of a lane's subject if this message is its last."""
    match message:
        case Changes(last_seq=seq, place=place) | StateMessage(last_seq=seq, place=place):
            return Position(message.database_id, seq, place)
        case Begin(first_seq=first):
            return Position(message.database_id, first - 1)
        case Lost(to_seq=seq):
            return Position(message.database_id, seq)
        case _:
            assert_never(message)


#: Code of the feed's notice that a place is not from this database.
PLACE_UNKNOWN = "place_unknown"


class OperatorNeeded(Exception):
    """Failure that ends the process, because an operator must resolve it. `todo`: what to do.

    `is_setup`: whether the servers or tables are set up wrongly. Then the exit code is that of a wrong configuration.
    """

    def __init__(self, detail: str, todo: str = "", *, is_setup: bool = False) -> None:
        super().__init__(detail)
        self.todo = todo
        self.is_setup = is_setup


_OTHER_LANE = (
    "Find out which machine sends on this subject: no two lanes may have the same relay.lane. If this lane has a "
    "new database and the old one is lost, run: posd relay --begin"
)
_GONE_BACK = (
    "This lane's database went back to an older copy, and posd did not notice: its numbers mean other changes now. "
    "Stop posd and restore a backup by `posd restore`, which gives the database another id; then start the relay again"
)


def following(position: Position | None, page: Page, *, begin: bool, **head: Any) -> Begin | Changes | Lost | None:
    """Return the next message after `position`, from the page of the feed that follows it.

    Return None if all changes were sent. `position`: None if the subject has no message. `head`: merchant, lane and
    time of the message. `begin`: whether an operator has allowed the lane to continue with an unrelated database, after
    the loss of the old one.

    Raise OperatorNeeded if the feed cannot continue from the last message.
    """
    first, *_ = page.databases
    if position is None:
        return _begin(first, None, head)
    at = next((n for n, item in enumerate(page.databases) if item.database_id == position.database_id), None)
    if at is None:
        if begin:
            return _begin(first, Previous(position.database_id, position.seq), head)
        raise OperatorNeeded(
            f"the last message on this lane's subject is of the database {position.database_id}, which this "
            "lane's feed does not know",
            _OTHER_LANE,
        )
    here = page.databases[at]
    newer = page.databases[at + 1] if at + 1 < len(page.databases) else None
    if newer is None and position.seq > here.end:
        raise OperatorNeeded(
            f"the last message on this lane's subject goes up to change {position.seq} of this database, but the "
            f"database has changes only up to {here.end}",
            _GONE_BACK,
        )
    unknown = any(notice["code"] == PLACE_UNKNOWN for notice in page.notices)
    if unknown and here.first_seq <= position.seq <= here.end:
        raise OperatorNeeded(
            f"change {position.seq} of this database is not the change that was sent under this number last time",
            _GONE_BACK,
        )
    if position.seq < here.first_seq - 1:  # not a message of posd
        before = page.databases[at - 1] if at else None
        return _begin(here, Previous(before.database_id, before.end) if before is not None else None, head)
    if position.seq >= here.end:
        return None if newer is None else _begin(newer, Previous(here.database_id, position.seq), head)
    return _onward(position.seq + 1, here, page, head)


def _begin(database: Range, previous: Previous | None, head: Mapping[str, Any]) -> Begin:
    return Begin(**head, database_id=database.database_id, first_seq=database.first_seq, previous=previous)


def _onward(expected: int, here: Range, page: Page, head: Mapping[str, Any]) -> Changes | Lost:
    """Return the contiguous changes from the number `expected` on.

    If that number is missing, return the missing range.
    """
    run: list[Raw] = []
    found = here.end + 1
    for change in page.changes:
        seq = number(change)
        if seq != expected + len(run) or seq > here.end:
            found = min(seq, found)
            break
        run.append(change)
    if not run:
        reason = "not in the feed"
        return Lost(**head, database_id=here.database_id, from_seq=expected, to_seq=found - 1, reason=reason)
    return Changes(
        **head,
        database_id=here.database_id,
        first_seq=expected,
        last_seq=expected + len(run) - 1,
        changes=run,
        place=page.place if len(run) == len(page.changes) else None,
    )


def waiting(position: Position | None, page: Page) -> int:
    """Return how many changes the feed has after a position, from the ranges in a page."""
    seq = position.seq if position is not None else 0
    return sum(max(0, item.end - max(item.first_seq - 1, seq)) for item in page.databases)
