"""The next message of a relay, from the last message of its subject and a page of the feed after it."""

from dataclasses import dataclass

from msgspec import Raw

from posd.relay.messages import Page, Position, Previous, Range, number

#: The feed's notice that a place is not of its database.
PLACE_UNKNOWN = "place_unknown"


@dataclass(frozen=True, slots=True)
class SendBegin:
    """Report that a database begins."""

    database: Range
    previous: Previous | None


@dataclass(frozen=True, slots=True)
class SendChanges:
    """Send changes; `whole`: they are all of the page, so that its place is theirs."""

    database_id: str
    first_seq: int
    changes: list[Raw]
    whole: bool


@dataclass(frozen=True, slots=True)
class SendLost:
    """Report changes that the feed has lost."""

    database_id: str
    from_seq: int
    to_seq: int


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """Everything was sent."""

    position: Position


@dataclass(frozen=True, slots=True)
class NotResumable:
    """The feed cannot continue from the last message: the operator decides."""

    detail: str
    todo: str


Step = SendBegin | SendChanges | SendLost | CaughtUp | NotResumable

_OTHER_LANE = (
    "Find out which machine sends on this subject: no two lanes may have the same relay.lane. If this lane has a new "
    "database and the old one is lost, run: posd relay --begin"
)
_GONE_BACK = (
    "This lane's database went back to an older copy, and posd did not notice: its numbers mean other changes now. "
    "Stop posd and restore a backup by `posd restore`, which gives the database another id; then start the relay again"
)


def following(position: Position | None, page: Page, *, begin: bool) -> Step:
    """Return the step after `position` (None: there is no message), from the page after it.

    `begin`: the operator has decided that the lane begins again after the loss of its database.
    """
    first, *_ = page.databases
    if position is None:
        return SendBegin(first, None)
    at = next((n for n, item in enumerate(page.databases) if item.database_id == position.database_id), None)
    if at is None:
        if begin:
            return SendBegin(first, Previous(position.database_id, position.seq))
        return NotResumable(
            f"the last message on this lane's subject is of the database {position.database_id}, which this "
            "lane's feed does not know",
            _OTHER_LANE,
        )
    here = page.databases[at]
    newer = page.databases[at + 1] if at + 1 < len(page.databases) else None
    if newer is None and position.seq > here.end:
        return NotResumable(
            f"the last message on this lane's subject goes up to change {position.seq} of this database, which itself "
            f"has only {here.end}",
            _GONE_BACK,
        )
    unknown = any(notice.code == PLACE_UNKNOWN for notice in page.notices)
    if unknown and here.first_seq <= position.seq <= here.end:
        return NotResumable(
            f"change {position.seq} of this database is another one than the last that was sent under that number",
            _GONE_BACK,
        )
    if position.seq < here.first_seq - 1:  # of no message of ours
        before = page.databases[at - 1] if at else None
        return SendBegin(here, Previous(before.database_id, before.end) if before is not None else None)
    if position.seq >= here.end:
        if newer is not None:
            return SendBegin(newer, Previous(here.database_id, position.seq))
        return CaughtUp(position)
    return _onward(position.seq + 1, here, page)


def _onward(expected: int, here: Range, page: Page) -> SendChanges | SendLost:
    """Return the changes from a number on, or the gap there."""
    run: list[Raw] = []
    found = here.end + 1
    for change in page.changes:
        seq = number(change)
        if seq != expected + len(run) or seq > here.end:
            found = min(seq, found)
            break
        run.append(change)
    if run:
        return SendChanges(here.database_id, expected, run, whole=len(run) == len(page.changes))
    return SendLost(here.database_id, expected, found - 1)


def waiting(position: Position | None, page: Page) -> int:
    """Return the number of the feed's numbers after a position, as of that page."""
    seq = position.seq if position is not None else 0
    return sum(max(0, item.end - max(item.first_seq - 1, seq)) for item in page.databases)
