"""Checks of a lane's message: all types and limits. A message that is refused is kept with the reason."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from posd.base.json_types import MAX_DEPTH, MAX_NUMBER_DIGITS, decode, deeper_than, encode, number_or_nan, within_digits
from posd.base.money import MAX_WIRE_DIGITS
from posd.relay import messages
from posd.relay.messages import AnyMessage, Changes, Lost, Name, Seq, StateMessage, Text

#: Number of bytes of an unusable message that are stored.
KEPT_BYTES = 4096


class LaneMessage(NamedTuple):
    """A message as the stream delivers it: number in the stream, time at the NATS server, subject, content."""

    stream_seq: int
    received_at: datetime
    subject: str
    data: bytes


class ChangeRow(NamedTuple):
    """Row of a change in PostgreSQL. `change`: JSON that PostgreSQL accepts."""

    database_id: str
    seq: int
    merchant: str
    lane: str
    at: datetime
    kind: str
    id: str
    change: str


class RejectedMessage(NamedTuple):
    """Unusable message, or an unusable change in a message, with the reason. `seq`: number of the change, or 0."""

    message: LaneMessage
    seq: int
    reason: str
    data: bytes


# Members of a change that have their own column, with the limits of these columns.

#: Range of valid times. PostgreSQL and Python support them in every time zone.
EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)
_Moment = Annotated[datetime, Meta(tz=True)]
#: Limit of a UTC offset in PostgreSQL. Larger offsets are refused here: a refusal by PostgreSQL takes some 30 ms for
#: each change, and delays all lanes.
MOST_OFFSET = timedelta(hours=16)
#: Maximum number of digits of an amount before and after its point. These digits are enough for every amount that
#: `read_money` accepts from a terminal, even divided by 100. Sums of such amounts are exact (`posd.base.money.EXACT`).
AMOUNT_DIGITS = MAX_WIRE_DIGITS + 1, 3 * MAX_WIRE_DIGITS + 2


class _Outcome(msgspec.Struct, frozen=True):
    result: Text | None = None
    corrected: bool = False
    type: Text | None = None
    sale: Text | None = None
    original: Name | None = None
    amount: dict[str, Decimal | dict[str, Decimal]] | None = None
    authorized_amount: Decimal | None = None
    tip: Decimal | None = None
    currency: Text | None = None
    reversal: Text | None = None
    transaction_reference: Text | None = None
    ticket_number: Text | None = None
    created_at: _Moment | None = None
    decided_at: _Moment | None = None
    occurred_at: Text | None = None

    def __post_init__(self) -> None:
        """Raise ValueError if the value of a field does not fit its column."""
        _check_moment("created_at", self.created_at)
        _check_moment("decided_at", self.decided_at)
        _check_amount("authorized_amount", self.authorized_amount)
        _check_amount("tip", self.tip)
        _check_amount("amount", self.amount)


class _Change(msgspec.Struct, frozen=True):
    seq: Seq
    at: _Moment
    kind: Name
    id: Name
    phase: Name
    attention: Annotated[list[Name], Meta(max_length=64)]
    status: Text | None = None
    terminal: Text | None = None
    outcome: _Outcome | None = None

    def __post_init__(self) -> None:
        """Raise ValueError if the time is out of range."""
        _check_moment("at", self.at)


def _check_moment(name: str, at: datetime | None) -> None:
    if at is not None and not EARLIEST <= at <= LATEST:
        raise ValueError(f"`{name}` is not between {EARLIEST.year} and {LATEST.year}")
    if at is not None and abs(at.utcoffset() or timedelta()) >= MOST_OFFSET:
        raise ValueError(f"`{name}` has an offset of 16 hours or more")


def _check_amount(name: str, amount: Any) -> None:
    if isinstance(amount, dict):
        for number in amount.values():
            _check_amount(name, number)
    elif amount is not None and not within_digits(amount, *AMOUNT_DIGITS):
        before, after = AMOUNT_DIGITS
        raise ValueError(f"`{name}` has no number of at most {before} digits before and {after} after its point")


def _check_number(literal: str) -> None:
    may_be_long = "e" in literal or "E" in literal or len(literal) > MAX_NUMBER_DIGITS
    if may_be_long and not within_digits(number_or_nan(literal)):
        raise ValueError


_CHANGE = msgspec.json.Decoder(_Change)
#: Decoder that raises ValueError for a long number, a lone surrogate, and invalid UTF-8.
_PLAIN = msgspec.json.Decoder(float_hook=_check_number)


def read(message: LaneMessage) -> AnyMessage:
    """Decode and check a message. Raise ValueError."""
    found = messages.decode(message.data)
    if message.subject != f"posd.{found.merchant}.{found.lane}":
        raise ValueError(f"it names the lane {found.merchant}.{found.lane}, but arrived on {message.subject}")
    if found.v != messages.VERSION:
        raise ValueError(f"version {found.v} of the messages is not known here")
    match found:
        case Changes(first_seq=first, last_seq=last, changes=changes):
            if not changes or len(changes) != last - first + 1:
                raise ValueError(f"its changes are not those from {first} to {last}")
        case Lost(from_seq=first, to_seq=last):
            if first > last:
                raise ValueError(f"the range from {first} to {last} is empty")
        case StateMessage(as_of=as_of):
            moment(as_of)
    moment(found.at)
    return found


def rows(message: LaneMessage, found: Changes) -> tuple[list[ChangeRow], list[RejectedMessage]]:
    """Return the changes of a message as rows, and those that cannot be stored."""
    kept, aside = [], []
    for seq, raw in enumerate(found.changes, found.first_seq):
        try:
            kept.append(_row(found, seq, bytes(raw)))
        except (ValueError, RecursionError) as error:
            aside.append(RejectedMessage(message, seq, f"change {seq} cannot be read: {error}", bytes(raw)))
    return kept, aside


def _row(found: Changes, seq: int, data: bytes) -> ChangeRow:
    change = _CHANGE.decode(data)
    if change.seq != seq:
        raise ValueError(f"its number is {change.seq}")
    return ChangeRow(
        found.database_id, seq, found.merchant, found.lane, change.at, change.kind, change.id, storable(data)
    )


def storable(data: bytes) -> str:
    """Return JSON that PostgreSQL accepts: with U+FFFD in place of NUL, and text in place of a number that is too long.

    Raise ValueError if the JSON is nested too deeply.
    """
    if deeper_than(data, MAX_DEPTH):
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
    with suppress(ValueError):
        _PLAIN.decode(data)
        if b"\\u0000" not in data:
            return data.decode()
    return encode(_stored(decode(data))).decode()


def _stored(value: Any) -> Any:
    match value:
        case dict():
            return {_stored(name): _stored(member) for name, member in value.items()}
        case list():
            return [_stored(item) for item in value]
        case str():
            return value.replace("\0", "\ufffd")
        case Decimal() if not within_digits(value):
            return str(value)
        case _:
            return value


def moment(text: str) -> datetime:
    """Parse an ISO 8601 time. Without a zone it is UTC. Raise ValueError."""
    try:
        found = datetime.fromisoformat(text)
        found = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
        _check_moment(text[:60], found)
    except ValueError as error:
        raise ValueError(f"{text!r:.60} is not a time: {error!s:.200}") from error
    return found
