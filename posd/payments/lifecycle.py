"""The terminal's lifecycle: seven states, and what each event means in each of them (terminal API, Lifecycle).

`TRANSITIONS` is the terminal's own table. `MOVES` decides every state x every event; it is written out, so that a
reader can check it with a finger, and a test holds it against `TRANSITIONS`. Events can be duplicated, late, disordered
and lost (terminal API, Delivery), so an event moves the transaction forward or is recorded without moving it; a state
never goes back.

A `Trail` is what the events of one transaction have said so far. Each event is an edge `previous_status -> status`.
A gap is marked when an applied event names another previous state than the last one recorded (terminal API, Events); it
is closed when the edges that were seen connect again. The order of arrival of the missing ones does not count. A search
reports a state without the way to it: `leap`.
"""

from collections.abc import Mapping
from enum import Enum, StrEnum, auto

import msgspec


class Status(StrEnum):
    """The lifecycle states, spelled as on the wire."""

    TERMINAL_ACKNOWLEDGED = "TERMINAL_ACKNOWLEDGED"
    CARD_PRESENTED = "CARD_PRESENTED"
    APPROVAL_REQUESTED = "APPROVAL_REQUESTED"
    TERMINAL_CANCELED = "TERMINAL_CANCELED"
    TERMINAL_REJECTED = "TERMINAL_REJECTED"
    DECLINED = "DECLINED"
    APPROVAL = "APPROVAL"


#: The states by their names. An event asks for its own five times, and what an enumeration has is slow to reach.
STATUSES: Mapping[str, Status] = {str(status): status for status in Status}

ACKNOWLEDGED = Status.TERMINAL_ACKNOWLEDGED
CARD_PRESENTED = Status.CARD_PRESENTED
APPROVAL_REQUESTED = Status.APPROVAL_REQUESTED
CANCELED = Status.TERMINAL_CANCELED
REJECTED = Status.TERMINAL_REJECTED
DECLINED = Status.DECLINED
APPROVAL = Status.APPROVAL

#: Spec 3.1, row by row; the final ones are empty (rule 1: no event follows).
TRANSITIONS: Mapping[Status | None, frozenset[Status]] = {
    None: frozenset({ACKNOWLEDGED}),
    ACKNOWLEDGED: frozenset({CARD_PRESENTED, CANCELED, REJECTED}),
    CARD_PRESENTED: frozenset({CARD_PRESENTED, APPROVAL_REQUESTED, CANCELED, REJECTED}),
    APPROVAL_REQUESTED: frozenset({APPROVAL, DECLINED}),
    CANCELED: frozenset(),
    REJECTED: frozenset(),
    DECLINED: frozenset(),
    APPROVAL: frozenset(),
}

FINALS: frozenset[Status] = frozenset({CANCELED, REJECTED, DECLINED, APPROVAL})


class Move(Enum):
    """What an event of a state means to a transaction in a state."""

    NEXT = auto()  # a transition of the terminal API's table
    SKIP = auto()  # forward, past states whose events are missing
    ILLEGAL = auto()  # forward, against the terminal API's table: a terminal's final counts all the same
    LATE = auto()  # behind, or there already: recorded, moves nothing
    AFTER_FINAL = auto()  # the terminal had already said how it ended


class Verdict(StrEnum):
    """What became of a recorded event (local API, events)."""

    APPLIED = "applied"
    LATE = "late"
    AFTER_FINAL = "after_final"
    DUPLICATE = "duplicate"
    UNKNOWN_STATUS = "unknown_status"


def _row(*moves: Move) -> Mapping[Status, Move]:
    return dict(zip(Status, moves, strict=True))


NEXT, SKIP, ILLEGAL, LATE, AFTER = Move.NEXT, Move.SKIP, Move.ILLEGAL, Move.LATE, Move.AFTER_FINAL

#: state -> the event's status -> what it means; None: no event yet.
MOVES: Mapping[Status | None, Mapping[Status, Move]] = {
    # event:                 ACKNOWLEDGED  CARD   REQUESTED CANCELED REJECTED DECLINED APPROVAL
    None:               _row(NEXT,         SKIP,  SKIP,     SKIP,    SKIP,    SKIP,    SKIP),
    ACKNOWLEDGED:       _row(LATE,         NEXT,  SKIP,     NEXT,    NEXT,    SKIP,    SKIP),
    CARD_PRESENTED:     _row(LATE,         NEXT,  NEXT,     NEXT,    NEXT,    SKIP,    SKIP),
    APPROVAL_REQUESTED: _row(LATE,         LATE,  LATE,     ILLEGAL, ILLEGAL, NEXT,    NEXT),
    CANCELED:           _row(AFTER,        AFTER, AFTER,    AFTER,   AFTER,   AFTER,   AFTER),
    REJECTED:           _row(AFTER,        AFTER, AFTER,    AFTER,   AFTER,   AFTER,   AFTER),
    DECLINED:           _row(AFTER,        AFTER, AFTER,    AFTER,   AFTER,   AFTER,   AFTER),
    APPROVAL:           _row(AFTER,        AFTER, AFTER,    AFTER,   AFTER,   AFTER,   AFTER),
}  # fmt: skip

VERDICTS: Mapping[Move, Verdict] = {
    Move.NEXT: Verdict.APPLIED,
    Move.SKIP: Verdict.APPLIED,
    Move.ILLEGAL: Verdict.APPLIED,
    Move.LATE: Verdict.LATE,
    Move.AFTER_FINAL: Verdict.AFTER_FINAL,
}

Edge = tuple[str | None, str]

#: Edges of invented states that are remembered: a terminal cannot make a transaction grow without end.
MAX_STRANGE_EDGES = 16


class Trail(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the events have said so far: the state that they reached, the last one in sequence, the edges seen.

    `aborting`: a till asked to abort, the terminal may have taken that, and nothing has shown that the payment goes on.
    """

    position: Status | None = None
    last: str | None = None
    edges: tuple[Edge, ...] = ()
    aborting: bool = False

    @property
    def connected(self) -> bool:
        """Whether every state that an event names as its previous one has been reached by an event of its own.

        A repeated CARD_PRESENTED names CARD_PRESENTED: it needs an edge into it from another state.
        """
        return all(
            any(status == previous and before != previous for before, status in self.edges)
            for previous, _ in self.edges
            if previous is not None
        )

    @property
    def approval_requested(self) -> bool:
        """Whether any event says that the acquirer was asked: the point of no return (terminal API, Lifecycle)."""
        return any(APPROVAL_REQUESTED in edge for edge in self.edges)


class Step(msgspec.Struct, frozen=True):
    """One event laid on a trail."""

    trail: Trail
    verdict: Verdict
    gap: bool = False  # an event is missing before this one
    illegal: bool = False  # the terminal API's table does not have this transition


def step(trail: Trail, status: str, previous: str | None) -> Step:
    """Lay an event (its `status` and `previous_status`, None if absent) on the trail.

    The event is a new one: repeats of an `event_id` never come here.
    """
    edge = (previous, status)
    edges = trail.edges if edge in trail.edges or _full(trail, edge) else (*trail.edges, edge)
    known = STATUSES.get(status)
    if known is None:
        in_sequence = previous in (None, trail.last)
        last = status if in_sequence else trail.last
        return Step(msgspec.structs.replace(trail, edges=edges, last=last), Verdict.UNKNOWN_STATUS)

    move = MOVES[trail.position][known]
    if known is trail.position and move is Move.NEXT and previous not in (None, status, trail.last):
        move = Move.LATE  # an earlier presentation of the card, overtaken by a later one
    verdict = VERDICTS[move]
    if verdict is not Verdict.APPLIED:
        return Step(msgspec.structs.replace(trail, edges=edges), verdict, illegal=_asked_though_ended(trail, known))

    mismatch = previous is not None and previous != trail.last
    skip = move is Move.SKIP
    skipped = skip and not (previous is not None and previous == trail.last)
    return Step(
        _reached(trail, known, edges),
        verdict,
        gap=mismatch or skipped,
        illegal=move is Move.ILLEGAL
        or (skip and not skipped)
        or (known in (CANCELED, REJECTED) and previous == APPROVAL_REQUESTED),
    )


def apply_search_state(trail: Trail, status: str) -> Step:
    """Lay a state that a search reports on the trail. It is no event: it marks no gap, and saying it again is nothing.

    The state counts as reached, so that an event which names it as its previous one finds nothing missing.
    """
    known = STATUSES.get(status)
    if known is None:
        return Step(trail, Verdict.UNKNOWN_STATUS)
    move = Move.LATE if known is trail.position and known not in FINALS else MOVES[trail.position][known]
    edge: Edge = (None, status)
    edges = trail.edges if any(known == seen for _, seen in trail.edges) else (*trail.edges, edge)
    if VERDICTS[move] is not Verdict.APPLIED:
        illegal = _asked_though_ended(trail, known)
        return Step(msgspec.structs.replace(trail, edges=edges), VERDICTS[move], illegal=illegal)
    return Step(_reached(trail, known, edges), Verdict.APPLIED, illegal=move is Move.ILLEGAL)


def _reached(trail: Trail, known: Status, edges: tuple[Edge, ...]) -> Trail:
    """Return the trail at a state. A card that was presented does not end an abort: its event can have been under way
    when the terminal took the abort. A question to the acquirer does.
    """
    aborting = trail.aborting and known is not APPROVAL_REQUESTED
    return Trail(position=known, last=known, edges=edges, aborting=aborting)


def _asked_though_ended(trail: Trail, known: Status) -> bool:
    """Whether a call to the acquirer shows up after a cancellation or a local rejection: that breaks the table too."""
    return trail.position in (CANCELED, REJECTED) and known is APPROVAL_REQUESTED


def _strange(edge: Edge) -> bool:
    before, status = edge
    return STATUSES.get(status) is None or (before is not None and STATUSES.get(before) is None)


def _full(trail: Trail, edge: Edge) -> bool:
    """Whether no more edges like this one are remembered; those between known states always are."""
    return _strange(edge) and sum(map(_strange, trail.edges)) >= MAX_STRANGE_EDGES
