"""A relay's next message in each situation.

In random histories of a feed and a stream, the relay reports every loss.
"""

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from posd.relay import messages
from posd.relay.messages import (
    Begin,
    Changes,
    Lost,
    OperatorNeeded,
    Page,
    Position,
    Previous,
    Range,
    StateMessage,
    waiting,
)
from tests.rig.tables import every

A, B, C = "aaaa", "bbbb", "cccc"
SENDER = {"merchant": "m", "lane": "l", "at": "2026-11-26T10:00:00.000Z"}
Step = Begin | Changes | Lost


def following(position: Position | None, page: Page, *, begin: bool = False) -> Step | None:
    return messages.following(position, page, begin=begin, **SENDER)


def change(seq: int) -> Raw:
    return Raw(msgspec.json.encode({"seq": seq, "id": f"payment {seq}"}))


def page(*databases: Range, seqs: Any = (), notices: tuple[str, ...] = ()) -> Page:
    return Page(
        changes=[change(seq) for seq in seqs],
        place="",
        notices=[{"code": code} for code in notices],
        databases=list(databases),
    )


def sends(database_id: str, first: int, last: int, *, whole: bool = True) -> Changes:
    """Return the message with these changes.

    With `whole`, the changes are the whole page, and the message contains the position at the end of the page.
    """
    run, place = [change(seq) for seq in range(first, last + 1)], "" if whole else None
    return Changes(**SENDER, database_id=database_id, first_seq=first, last_seq=last, changes=run, place=place)


def begins(database: Range, previous: Previous | None) -> Begin:
    return Begin(**SENDER, database_id=database.database_id, first_seq=database.first_seq, previous=previous)


def loses(database_id: str, first: int, last: int) -> Lost:
    return Lost(**SENDER, database_id=database_id, from_seq=first, to_seq=last, reason="not in the feed")


EMPTY, SHORT, FULL = Range(A, 1, None), Range(A, 1, 3), Range(A, 1, 9)
LATER = Range(B, 20, 25)
THINNED = "changes_removed"
OTHER = "place_unknown"

CASES: dict[str, tuple[Position | None, Page, Step | type[OperatorNeeded] | None]] = {
    "no message was sent": (None, page(FULL, seqs=range(1, 4)), begins(FULL, None)),
    "no message was sent, and the file has two database ids": (None, page(FULL, LATER), begins(FULL, None)),
    "only the begin message was sent": (Position(A, 0), page(FULL, seqs=range(1, 4)), sends(A, 1, 3)),
    "only the begin message was sent, and there are no changes": (Position(A, 0), page(EMPTY), None),
    "further changes exist": (Position(A, 3), page(FULL, seqs=range(4, 8)), sends(A, 4, 7)),
    "all changes were sent": (Position(A, 9), page(FULL), None),
    "retention removed the next changes": (
        Position(A, 3),
        page(FULL, seqs=[7, 8, 9], notices=(THINNED,)),
        loses(A, 4, 6),
    ),
    "retention removed all further changes": (Position(A, 3), page(FULL), loses(A, 4, 9)),
    "a gap ends a message": (Position(A, 0), page(FULL, seqs=[1, 2, 5, 6]), sends(A, 1, 2, whole=False)),
    "changes of an earlier database are not sent yet": (
        Position(A, 1),
        page(SHORT, LATER, seqs=[2, 3, 20, 21]),
        sends(A, 2, 3, whole=False),
    ),
    "the next database continues the numbers without a gap": (
        Position(A, 1),
        page(SHORT, Range(B, 4, 6), seqs=range(2, 7)),
        sends(A, 2, 3, whole=False),
    ),
    "an earlier database lost its end": (Position(A, 1), page(SHORT, LATER, seqs=[20, 21]), loses(A, 2, 3)),
    "an earlier database is sent completely": (Position(A, 3), page(SHORT, LATER), begins(LATER, Previous(A, 3))),
    "the first of three is sent": (Position(A, 3), page(SHORT, LATER, Range(C, 30, 31)), begins(LATER, Previous(A, 3))),
    "more changes of an earlier database were sent than exist": (
        Position(A, 12),
        page(SHORT, LATER, notices=(OTHER,)),
        begins(LATER, Previous(A, 12)),
    ),
    "an earlier database has no changes": (Position(A, 4), page(EMPTY, LATER), begins(LATER, Previous(A, 4))),
    "the second database has begun": (Position(B, 19), page(SHORT, LATER, seqs=range(20, 26)), sends(B, 20, 25)),
    "no change has the number before the second database": (
        Position(B, 19),
        page(SHORT, LATER, seqs=range(20, 26), notices=(OTHER,)),
        sends(B, 20, 25),
    ),
    "the second database is sent completely": (Position(B, 25), page(SHORT, LATER), None),
    "a place before the first number of its database": (
        Position(B, 18),
        page(SHORT, LATER, seqs=[20]),
        begins(LATER, Previous(A, 3)),
    ),
    "a place before the first number of the first database": (Position(B, 5), page(LATER), begins(LATER, None)),
    "more changes were sent than the database has": (Position(A, 10), page(FULL), OperatorNeeded),
    "another change has the sent number": (Position(A, 5), page(FULL, notices=(OTHER,)), OperatorNeeded),
    "a database that the feed does not know": (Position(C, 5), page(SHORT, LATER), OperatorNeeded),
}


@every(("position", "found", "wanted"), CASES.values(), ids=CASES)
def test_each_situation_has_its_next_message(
    position: Position | None, found: Page, wanted: Step | type[OperatorNeeded] | None
) -> None:
    if isinstance(wanted, type):
        with pytest.raises(wanted, match=r".") as raised:
            following(position, found)
        assert raised.value.todo
    else:
        assert following(position, found) == wanted


def test_a_lane_begins_again_if_an_operator_requests_it() -> None:
    assert following(Position(C, 5), page(FULL), begin=True) == begins(FULL, Previous(C, 5))
    # the stream has more changes of this database than the feed
    with pytest.raises(OperatorNeeded, match="changes only up to 9"):
        following(Position(A, 10), page(FULL), begin=True)


HEAD = SENDER | {"database_id": A}
STATE = {"as_of": "2026-11-26T10:00:00.000Z", "version": "1", "health": {"status": "ok"}, "open": 0, "attention": {}}


@pytest.mark.parametrize(
    ("message", "wanted"),
    [
        (Changes(**HEAD, first_seq=1, last_seq=2, changes=[change(1), change(2)], place="2-x"), Position(A, 2, "2-x")),
        (Changes(**HEAD, first_seq=1, last_seq=1, changes=[change(1)]), Position(A, 1)),
        (StateMessage(**HEAD, last_seq=4, **STATE, place="4-y"), Position(A, 4, "4-y")),
        (Begin(**HEAD, first_seq=20, previous=Previous(B, 3)), Position(A, 19)),
        (Lost(**HEAD, from_seq=2, to_seq=7, reason="not in the feed"), Position(A, 7)),
    ],
)
def test_a_message_gives_the_position_of_the_next_message(message: messages.AnyMessage, wanted: Position) -> None:
    read = messages.decode(messages.encode(message))
    assert messages.position(read) == wanted
    document = msgspec.json.decode(messages.encode(message))
    assert (document["v"], document["kind"]) == (1, messages.kind(message))


def test_a_position_with_a_checksum_is_preferred() -> None:
    assert (Position(A, 4).after, Position(A, 4, "4-5f3a9c01").after) == ("4", "4-5f3a9c01")


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"kind": "other"}', b"\xff", b'{"x": ' + b"[" * 100_000])
def test_an_invalid_message_is_reported_as_such(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        messages.decode(data)


@dataclass
class Lane:
    """A feed that behaves like posd's feed, and the relay's stream. `stored`: the true changes of each database."""

    databases: list[tuple[str, int]] = field(default_factory=lambda: [("db0", 1)])
    rows: dict[int, str] = field(default_factory=dict)  # seq -> change
    newest: int = 0
    removed: int = 0
    stored: dict[tuple[str, int], str] = field(default_factory=dict)
    stream: list[tuple[Step, Position]] = field(default_factory=list)

    def grow(self, count: int) -> None:
        for _ in range(count):
            self.newest += 1
            self.rows[self.newest] = f"{self.databases[-1][0]}/{self.newest}"
            self.stored[self.databases[-1][0], self.newest] = self.rows[self.newest]

    def prune(self, up_to: int, keeps: int) -> None:
        """Remove most changes up to a number, as retention does. Changes of open payments stay."""
        for seq in [seq for seq in self.rows if seq <= up_to and seq % 7 != keeps]:
            del self.rows[seq]
            self.removed = max(self.removed, seq)

    def restore(self, up_to: int, gap: int) -> None:
        """Install a backup with the changes up to a number. New numbers are above all used numbers."""
        for seq in [seq for seq in self.rows if seq > up_to]:
            del self.rows[seq]
        self.newest += gap
        self.databases.append((f"db{len(self.databases)}", self.newest + 1))

    def page(self, after: int, limit: int) -> Page:
        seqs = [seq for seq in sorted(self.rows) if seq > after][:limit]
        ends = [first - 1 for _, first in self.databases[1:]] + [self.newest]
        ranges = []
        for (name, first), end in zip(self.databases, ends, strict=True):
            here = [seq for seq in self.rows if first <= seq <= end]
            last = end if name == self.databases[-1][0] else max(here, default=0)
            ranges.append(Range(name, first, last if last >= first else None))
        return Page(
            changes=[Raw(msgspec.json.encode({"seq": seq, "says": self.rows[seq]})) for seq in seqs],
            place="",
            notices=[] if not after or after in self.rows or after <= self.removed else [{"code": OTHER}],
            databases=ranges,
        )

    def send(self, limit: int) -> bool:
        """Run one step of a relay that has only the last message. Return whether the relay sent a message."""
        position = self.stream[-1][1] if self.stream else None
        page = self.page(position.seq if position else 0, limit)
        step, left = following(position, page), waiting(position, page)
        if step is None:
            assert left == 0
            return False
        if isinstance(step, Lost):
            assert not any(step.from_seq <= seq <= step.to_seq for seq in self.rows), (
                "the stream has a change that the relay reports as lost"
            )
        self.stream.append((step, messages.position(step)))
        now = self.stream[-1][1]
        told = now.seq - position.seq if position is not None and now.database_id == position.database_id else 0
        assert waiting(now, page) == left - told
        return True


EVENTS = st.one_of(
    st.tuples(st.just("grow"), st.integers(1, 6)),
    st.tuples(st.just("send"), st.integers(1, 4)),
    st.tuples(st.just("prune"), st.integers(0, 12), st.integers(0, 6)),
    st.tuples(st.just("restore"), st.integers(0, 12), st.integers(0, 4)),
    st.tuples(st.just("tail"), st.integers(1, 3)),
    st.just(("purge",)),
)


@given(st.lists(EVENTS, max_size=40), st.integers(1, 4))
def test_in_any_history_every_change_is_in_the_stream_or_reported_as_lost(events: list[Any], limit: int) -> None:
    """The messages are true and the content is complete, even if the stream loses its end or is emptied."""
    lane = Lane()
    for kind, *numbers in events:
        match kind:
            case "tail":
                del lane.stream[-numbers[0] :]
            case "purge":
                lane.stream.clear()
            case "send":
                lane.send(*numbers)
            case _:
                getattr(lane, kind)(*numbers)
    for _ in range(10 * (len(lane.stored) + len(lane.databases) + 1)):
        if not lane.send(limit):
            break
    else:
        pytest.fail("it sends without end")
    told: dict[tuple[str, int], str] = {}
    lost: set[tuple[str, int]] = set()
    begun: set[str] = set()
    for step, _ in lane.stream:
        match step:
            case Begin(database_id=database_id):
                begun.add(database_id)
            case Changes(database_id=database_id, changes=changes):
                rows = [msgspec.json.decode(item) for item in changes]
                told |= {(database_id, row["seq"]): row["says"] for row in rows}
            case Lost(database_id=database_id, from_seq=from_seq, to_seq=to_seq):
                lost |= {(database_id, seq) for seq in range(from_seq, to_seq + 1)}
    assert told.items() <= lane.stored.items(), "the stream has no change that differs from the database"
    assert lane.databases[-1][0] in begun or not any(isinstance(step, Begin) for step, _ in lane.stream)
    for found in lane.page(0, 1).databases:
        if found.database_id in begun:
            numbers = {(found.database_id, seq) for seq in range(found.first_seq, found.end + 1)}
            assert numbers <= told.keys() | lost
    present = {key for key in lane.stored if key[1] in lane.rows and lane.stored[key] == lane.rows[key[1]]}
    assert present - {key for key in present if key[0] not in begun} <= told.keys() | lost
