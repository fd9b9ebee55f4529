"""The table of moves, compared with the terminal API's table of states (Lifecycle), and gaps."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posd.payments import lifecycle
from posd.payments.lifecycle import (
    FINALS,
    MAX_STRANGE_EDGES,
    MOVES,
    TRANSITIONS,
    Move,
    Status,
    Trail,
    Verdict,
    apply_search_state,
    step,
)
from tests.rig.tables import every

STATES = (None, *Status)
EVERY_PAIR = tuple(itertools.product(STATES, Status))
#: Position of a state in the lifecycle. All finals are at the end.
RANK = {None: 0, "TERMINAL_ACKNOWLEDGED": 1, "CARD_PRESENTED": 2, "APPROVAL_REQUESTED": 3} | dict.fromkeys(FINALS, 4)


def reachable(start: Status | None) -> set[Status]:
    """Return every state that follows a state in the lifecycle table."""
    found: set[Status] = set()
    waiting = [start]
    while waiting:
        for following in TRANSITIONS[waiting.pop()]:
            if following not in found:
                found.add(following)
                waiting.append(following)
    return found


def test_both_tables_have_every_state_and_every_event() -> None:
    assert set(TRANSITIONS) == set(MOVES) == set(STATES)
    assert all(set(row) == set(Status) for row in MOVES.values())
    assert {state for state, following in TRANSITIONS.items() if not following} == FINALS


@every(("state", "event"), EVERY_PAIR, ids=str)
def test_each_state_with_each_event_is_decided_as_in_the_terminal_api(state: Status | None, event: Status) -> None:
    move = MOVES[state][event]
    if state in FINALS:
        assert move is Move.AFTER_FINAL
    elif event in TRANSITIONS[state]:
        assert move is Move.NEXT
    elif event in reachable(state):
        assert move is Move.SKIP
    elif event in FINALS:
        assert move is Move.ILLEGAL
    else:
        assert move is Move.LATE


@every(("state", "event"), EVERY_PAIR, ids=str)
def test_a_state_never_goes_back(state: Status | None, event: Status) -> None:
    trail = step(Trail(position=state, last=state), event, state).trail
    after = trail.position
    assert not trail.aborting, "no till has aborted it"
    assert RANK[after] == max(RANK[state], RANK[event])
    assert after in (state, event)
    if state in FINALS:
        assert after is state


def walk(*edges: tuple[str, str | None]) -> list[lifecycle.Step]:
    trail, steps = Trail(), []
    for status, previous in edges:
        steps.append(step(trail, status, previous))
        trail = steps[-1].trail
    return steps


def test_an_event_that_skips_states_marks_a_gap() -> None:
    first, jump = walk(("TERMINAL_ACKNOWLEDGED", None), ("APPROVAL_REQUESTED", None))
    assert (first.gap, jump.gap, jump.illegal) == (False, True, False)


def test_a_jump_from_the_last_state_is_illegal_but_marks_no_gap() -> None:
    jump = walk(("TERMINAL_ACKNOWLEDGED", None), ("APPROVAL", "TERMINAL_ACKNOWLEDGED"))[-1]
    assert (jump.illegal, jump.gap) == (True, False)


def test_a_second_card_shows_that_the_event_of_the_first_card_is_missing() -> None:
    first, second = ("CARD_PRESENTED", None), ("CARD_PRESENTED", "CARD_PRESENTED")
    assert [item.trail.connected for item in walk(second, first)] == [False, True]


def test_an_unknown_state_in_sequence_only_becomes_the_last_state() -> None:
    known, unknown, following = walk(
        ("TERMINAL_ACKNOWLEDGED", None),
        ("TERMINAL_WARMING_UP", "TERMINAL_ACKNOWLEDGED"),
        ("CARD_PRESENTED", "TERMINAL_WARMING_UP"),
    )
    assert (unknown.verdict, unknown.trail.position) == (Verdict.UNKNOWN_STATUS, known.trail.position)
    assert (following.verdict, following.gap) == (Verdict.APPLIED, False)


def test_an_unknown_state_out_of_sequence_marks_no_gap_for_the_next_event() -> None:
    steps = walk(
        ("TERMINAL_ACKNOWLEDGED", None),
        ("CARD_PRESENTED", "TERMINAL_ACKNOWLEDGED"),
        ("TERMINAL_WARMING_UP", "TERMINAL_ACKNOWLEDGED"),
        ("APPROVAL_REQUESTED", "CARD_PRESENTED"),
    )
    assert not steps[-1].gap


def test_invented_states_neither_fill_memory_nor_hide_a_known_state() -> None:
    names = [f"STATE_{number}" for number in range(MAX_STRANGE_EDGES)]
    strange = [*((name, None) for name in names), *(("CARD_PRESENTED", name) for name in names)]
    for order in (strange, strange[::-1]):
        trail = walk(*order, ("APPROVAL_REQUESTED", "CARD_PRESENTED"), ("TERMINAL_ACKNOWLEDGED", None))[-1].trail
        assert len(trail.edges) == MAX_STRANGE_EDGES + 2
        assert trail.approval_requested


A, L, F = Verdict.APPLIED, Verdict.LATE, Verdict.AFTER_FINAL
#: Moves that break the terminal API's table. X: an end after a request to the acquirer. Y: a request to the acquirer
#: after such an end.
X, Y = "applied, illegal", "after_final, illegal"

#: State -> verdict for each state that a search reports. The verdicts are the same as for events, but the present state
#: has no effect.
LEAPS = {
    # reported:           ACKNOWLEDGED  CARD  REQUESTED  CANCELED  REJECTED  DECLINED  APPROVAL
    None:                   (A,         A,    A,         A,        A,        A,        A),
    "TERMINAL_ACKNOWLEDGED": (L,        A,    A,         A,        A,        A,        A),
    "CARD_PRESENTED":       (L,         L,    A,         A,        A,        A,        A),
    "APPROVAL_REQUESTED":   (L,         L,    L,         X,        X,        A,        A),
    "TERMINAL_CANCELED":    (F,         F,    Y,         F,        F,        F,        F),
    "TERMINAL_REJECTED":    (F,         F,    Y,         F,        F,        F,        F),
    "DECLINED":             (F,         F,    F,         F,        F,        F,        F),
    "APPROVAL":             (F,         F,    F,         F,        F,        F,        F),
}  # fmt: skip
STATUSES = [
    *("TERMINAL_ACKNOWLEDGED", "CARD_PRESENTED", "APPROVAL_REQUESTED"),
    *("TERMINAL_CANCELED", "TERMINAL_REJECTED", "DECLINED", "APPROVAL"),
]


@pytest.mark.parametrize("state", LEAPS)
def test_a_search_with_a_state_has_the_effect_of_the_table(state: Status | None) -> None:
    trail = Trail(position=Status(state), last=state, edges=(("BEFORE", state),)) if state else Trail()
    for reported, verdict in zip(STATUSES, LEAPS[state], strict=True):
        leapt = apply_search_state(trail, reported)
        assert leapt.verdict + (", illegal" if leapt.illegal else "") == verdict, reported
        assert not leapt.gap, "a search is not an event and marks no gap"
        moved = verdict in (A, X)
        assert (leapt.trail.position, leapt.trail.last) == ((reported, reported) if moved else (state, state))
        known = trail.edges if reported == state else (*trail.edges, (None, reported))
        assert leapt.trail.edges == known, "the state counts as reached once"
        assert apply_search_state(leapt.trail, reported).trail == leapt.trail


def test_a_search_with_an_unknown_state_changes_nothing() -> None:
    trail = Trail(position=Status.CARD_PRESENTED, last="CARD_PRESENTED", edges=((None, "CARD_PRESENTED"),))
    leapt = apply_search_state(trail, "TERMINAL_WARMING_UP")
    assert (leapt.trail, leapt.verdict, leapt.gap, leapt.illegal) == (trail, Verdict.UNKNOWN_STATUS, False, False)


def test_an_event_after_a_state_found_by_a_search_marks_no_gap() -> None:
    reported = apply_search_state(walk(("TERMINAL_ACKNOWLEDGED", None))[-1].trail, "CARD_PRESENTED").trail
    following = step(reported, "APPROVAL_REQUESTED", "CARD_PRESENTED")
    assert (following.verdict, following.gap, following.trail.connected) == (Verdict.APPLIED, False, True)
    again = step(reported, "CARD_PRESENTED", "CARD_PRESENTED")
    assert (again.verdict, again.gap, again.trail.connected) == (Verdict.APPLIED, False, True)
    first = step(reported, "CARD_PRESENTED", "TERMINAL_ACKNOWLEDGED")
    assert (first.verdict, first.gap, first.trail.position) == (Verdict.LATE, False, "CARD_PRESENTED")


@given(
    st.lists(st.tuples(st.sampled_from([*Status, "STRANGE"]), st.sampled_from([None, *Status, "STRANGE"])), max_size=12)
)
def test_the_first_final_state_stays_whatever_states_follow(edges: list[tuple[str, str | None]]) -> None:
    trail, final = Trail(), None
    for status, previous in edges:
        laid = step(trail, status, previous)
        trail = laid.trail
        if final is None and status in FINALS:
            final = status
        if final is not None:
            assert trail.position == final
        assert (laid.verdict is Verdict.UNKNOWN_STATUS) == (lifecycle.STATUSES.get(status) is None)
