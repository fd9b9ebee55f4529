"""What a relay sends next: of the last message of its subject, and of the feed that was read from there."""

from dataclasses import dataclass

from msgspec import Raw

from posd.relay.messages import Page, Position, Previous, Range, number

#: The feed's notice that a place is none of its database.
PLACE_UNKNOWN = "place_unknown"


@dataclass(frozen=True, slots=True)
class Begins:
    """Say that a database begins."""

    database: Range
    previous: Previous | None


@dataclass(frozen=True, slots=True)
class Sends:
    """Send changes; `whole` where they are all of the page, so that its place is theirs."""

    database_id: str
    first_seq: int
    changes: list[Raw]
    whole: bool


@dataclass(frozen=True, slots=True)
class Loses:
    """Say that changes are not in the feed any more."""

    database_id: str
    from_seq: int
    to_seq: int


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """Everything was sent."""

    position: Position


@dataclass(frozen=True, slots=True)
class Refused:
    """The last message is none that this feed can go on from: a person decides."""

    detail: str
    todo: str


Step = Begins | Sends | Loses | CaughtUp | Refused

_OTHER_LANE = (
    "Find out which machine sends on this subject: no two lanes may have the same relay.lane. If this lane has a new "
    "database and the old one is lost, run: posd relay --begin"
)
_GONE_BACK = (
    "This lane's database went back to an older copy, and posd did not notice: its numbers mean other changes now. "
    "Stop posd and restore a backup by `posd restore`, which gives the database another id; then start the relay again"
)


def following(position: Position | None, page: Page, *, begin: bool) -> Step:
    """Return what follows `position` (None: there is no message), by the page of the feed that was read after it.

    `begin`: an operator has said that the lane begins anew after a database that is lost.
    """
    first, *_ = page.databases
    if position is None:
        return Begins(first, None)
    at = next((n for n, item in enumerate(page.databases) if item.database_id == position.database_id), None)
    if at is None:
        if begin:
            return Begins(first, Previous(position.database_id, position.seq))
        return Refused(
            f"the last message on this lane's subject is of the database {position.database_id}, of which this lane's "
            "feed knows nothing",
            _OTHER_LANE,
        )
    here = page.databases[at]
    newer = page.databases[at + 1] if at + 1 < len(page.databases) else None
    if newer is None and position.seq > here.end:
        return Refused(
            f"the last message on this lane's subject goes up to change {position.seq} of this database, which itself "
            f"has only {here.end}",
            _GONE_BACK,
        )
    unknown = any(notice.code == PLACE_UNKNOWN for notice in page.notices)
    if unknown and here.first_seq <= position.seq <= here.end:
        return Refused(
            f"change {position.seq} of this database is another one than the last that was sent under that number",
            _GONE_BACK,
        )
    if position.seq < here.first_seq - 1:  # of no message of ours
        before = page.databases[at - 1] if at else None
        return Begins(here, Previous(before.database_id, before.end) if before is not None else None)
    if position.seq >= here.end:
        if newer is not None:
            return Begins(newer, Previous(here.database_id, position.seq))
        return CaughtUp(position)
    return _onward(position.seq + 1, here, page)


def _onward(expected: int, here: Range, page: Page) -> Sends | Loses:
    """Return the changes from a number on, or what is missing there."""
    run: list[Raw] = []
    found = here.end + 1
    for change in page.changes:
        seq = number(change)
        if seq != expected + len(run) or seq > here.end:
            found = min(seq, found)
            break
        run.append(change)
    if run:
        return Sends(here.database_id, expected, run, whole=len(run) == len(page.changes))
    return Loses(here.database_id, expected, found - 1)


def waiting(position: Position | None, page: Page) -> int:
    """Count the numbers of the feed that come after a position; the end of the feed is as of that page."""
    seq = position.seq if position is not None else 0
    return sum(max(0, item.end - max(item.first_seq - 1, seq)) for item in page.databases)
