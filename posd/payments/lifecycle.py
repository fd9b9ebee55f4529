"""Lifecycle of a transaction on the terminal: its states, and the meaning of each event in each state.

`TRANSITIONS` is the table of the terminal API. `MOVES` has posd's decision for each state and each event. `MOVES` is
written out, so that a reader can check it. A test compares it with `TRANSITIONS`. Events can be duplicated, late,
disordered and lost (terminal API, Delivery). So an event moves the transaction forward, or is recorded without moving
it. A state never goes back.

A `Trail` has the content of all events of one transaction so far. Each event is an edge `previous_status -> status`. A
gap is marked when an applied event names another previous state than the last recorded state (terminal API, Events).
The gap is closed when the edges connect again, in any order of arrival. `apply_search_state` adds a state from
a search, which names no previous state.

Source: terminal API, Lifecycle.
"""

from collections.abc import Mapping
from enum import Enum, StrEnum, auto

import msgspec


class Status(StrEnum):
    """Lifecycle state, spelled as in an event."""

    TERMINAL_ACKNOWLEDGED = "TERMINAL_ACKNOWLEDGED"
    CARD_PRESENTED = "CARD_PRESENTED"
    APPROVAL_REQUESTED = "APPROVAL_REQUESTED"
    TERMINAL_CANCELED = "TERMINAL_CANCELED"
    TERMINAL_REJECTED = "TERMINAL_REJECTED"
    DECLINED = "DECLINED"
    APPROVAL = "APPROVAL"


#: Word in an event -> state. The states are also module constants, because access to enum members is slow.
STATUSES: Mapping[str, Status] = {str(status): status for status in Status}

ACKNOWLEDGED = Status.TERMINAL_ACKNOWLEDGED
CARD_PRESENTED = Status.CARD_PRESENTED
APPROVAL_REQUESTED = Status.APPROVAL_REQUESTED
CANCELED = Status.TERMINAL_CANCELED
REJECTED = Status.TERMINAL_REJECTED
DECLINED = Status.DECLINED
APPROVAL = Status.APPROVAL

#: Table of the terminal API: state -> possible next states. A final state has none.
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
    """Meaning of an event in a state."""

    NEXT = auto()  # a transition of the terminal API's table
    SKIP = auto()  # forward; events of the states between are missing
    ILLEGAL = auto()  # forward, although the terminal API's table forbids it: a final event always counts
    LATE = auto()  # an earlier or the same state: recorded without a move
    AFTER_FINAL = auto()  # the terminal has already reported the end


class Verdict(StrEnum):
    """Verdict on a recorded event (local API, events)."""

    APPLIED = "applied"
    LATE = "late"
    AFTER_FINAL = "after_final"
    DUPLICATE = "duplicate"
    UNKNOWN_STATUS = "unknown_status"


def _row(*moves: Move) -> Mapping[Status, Move]:
    return dict(zip(Status, moves, strict=True))


NEXT, SKIP, ILLEGAL, LATE, AFTER = Move.NEXT, Move.SKIP, Move.ILLEGAL, Move.LATE, Move.AFTER_FINAL

#: State of the transaction (None: no event yet) -> status in the event -> meaning of the event.
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

#: Largest number of stored edges with unknown states. It limits the size of a transaction.
MAX_STRANGE_EDGES = 16


class Trail(msgspec.Struct, frozen=True, omit_defaults=True):
    """Content of the events so far. `position`: the reached state. `last`: the state of the last event in sequence.

    `aborting`: the terminal may have accepted a till's abort, and nothing shows that the payment continues.
    """

    position: Status | None = None
    last: str | None = None
    edges: tuple[Edge, ...] = ()
    aborting: bool = False

    @property
    def connected(self) -> bool:
        """Whether an event has arrived for every state that another event names as previous.

        A second event CARD_PRESENTED names CARD_PRESENTED as its previous state. It does not show that the first one
        arrived. The first one names another previous state.
        """
        return all(
            any(status == previous and before != previous for before, status in self.edges)
            for previous, _ in self.edges
            if previous is not None
        )

    @property
    def approval_requested(self) -> bool:
        """Whether any event shows that the acquirer was asked: the point of no return (terminal API, Lifecycle)."""
        return any(APPROVAL_REQUESTED in edge for edge in self.edges)


class Step(msgspec.Struct, frozen=True):
    """Result of adding one event to a trail."""

    trail: Trail
    verdict: Verdict
    gap: bool = False  # an event is missing before this one
    illegal: bool = False  # the terminal API's table does not have this transition


def step(trail: Trail, status: str, previous: str | None) -> Step:
    """Add an event to the trail. `status` and `previous`: the two states in the event (None: no previous state).

    The event must be new. The caller handles repeats of an `event_id`.
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
        move = Move.LATE  # a late event of an earlier presentation of the card
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
    """Add a state from a search to the trail. Such a state marks no gap, and a repeated state has no effect.

    A later event that names this state as its previous state has no gap before it.
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
    """Return the trail after it has reached a state.

    APPROVAL_REQUESTED shows that an abort came too late. CARD_PRESENTED does not: the terminal may have sent that event
    before it accepted the abort.
    """
    aborting = trail.aborting and known is not APPROVAL_REQUESTED
    return Trail(position=known, last=known, edges=edges, aborting=aborting)


def _asked_though_ended(trail: Trail, known: Status) -> bool:
    """Whether APPROVAL_REQUESTED arrives after a cancellation or a rejection by the terminal.

    The terminal API's table forbids this order.
    """
    return trail.position in (CANCELED, REJECTED) and known is APPROVAL_REQUESTED


def _strange(edge: Edge) -> bool:
    before, status = edge
    return STATUSES.get(status) is None or (before is not None and STATUSES.get(before) is None)


def _full(trail: Trail, edge: Edge) -> bool:
    """Whether an edge cannot be added, because the trail has too many edges with unknown states.

    An edge between known states can always be added.
    """
    return _strange(edge) and sum(map(_strange, trail.edges)) >= MAX_STRANGE_EDGES
