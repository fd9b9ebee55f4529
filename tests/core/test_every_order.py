"""Every order, duplication and loss of the events, for every path in the terminal API's table (Lifecycle).

The reply to the start, an unusable callback and the results of searches arrive at any position. Each walk completely
covers one of these cases:

- Every event arrives never, once or twice, with the reply and the callback.
- Every event arrives never or once, with the reply and up to two searches. Each search has any reply that a terminal
  could give at that point of the path. Such a reply has no payment, one state of the path (an index is often late) or
  several states. It can also be unusable, or an error.

The test prints the number of states and the number of represented orders.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta

import msgspec
import pytest

from posd.payments.lifecycle import FINALS
from posd.payments.model import RESULTS, AttentionCode, NextStep, Outcome, Result, Transaction, next_step
from posd.payments.outcomes import SETTLED
from posd.records.model import Phase
from tests.core.inputs import CALLBACK, REPLIES, answers, events, poor_answers
from tests.core.scenarios import CANCELED, NOW, REJECTED, SCENARIOS, Path, every_path, name_of, starting
from tests.core.walks import Core, Deck, State, walk

LONGEST = 6
PATHS = {name_of(path): path for path in every_path(LONGEST)}

#: Position of a state in the lifecycle.
RANK = {None: 0, "TERMINAL_ACKNOWLEDGED": 1, "CARD_PRESENTED": 2, "APPROVAL_REQUESTED": 3} | dict.fromkeys(FINALS, 4)
GRACE = timedelta(seconds=10)
REPLY = Deck(REPLIES, kind="reply")


def test_the_paths_are_all_paths_of_the_table_with_up_to_six_events() -> None:
    assert set(SCENARIOS.values()) <= set(PATHS.values())
    assert len(PATHS) == 16


@pytest.mark.quick(3)
@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_the_final_event_is_the_outcome_whatever_comes_before_or_after(path: Path, tell: Callable[[str], None]) -> None:
    run(path, [*events(path, most=2), REPLY, Deck((CALLBACK,))], tell)


@pytest.mark.quick(1)
@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_searches_at_any_place_do_not_change_the_outcome(path: Path, tell: Callable[[str], None]) -> None:
    run(path, [*events(path, most=1), REPLY, Deck((*answers(path), *poor_answers(path)), most=2)], tell)


def run(path: Path, decks: Sequence[Deck], tell: Callable[[str], None]) -> None:
    """Walk through all orders of the decks: events of the path first, then the reply."""
    states = orders = 0
    said: set[Outcome] = set()
    for state in walk(CORE, decks):
        states += 1
        check(state, path)
        if state.told.full:
            said.add(timeless(state.transaction.outcome, path))
        if state.dealt[len(path)]:
            orders += state.orders
    assert len(said) == 1, "the outcome is the same in any order"
    tell(f"{name_of(path)}: {states} states stand for {orders} orders")


def check(state: State, path: Path) -> None:
    """Compare a state with its inputs."""
    transaction, told = state.transaction, state.told
    codes = {item.code for item in transaction.attention}
    assert AttentionCode.CONFLICTING_FINAL not in codes
    assert AttentionCode.ILLEGAL_TRANSITION not in codes
    if all(state.dealt[: len(path)]):
        assert AttentionCode.GAP not in codes, "every event has arrived, so nothing is missing"
    outcome = transaction.outcome
    if told.finals:
        assert outcome is not None
        assert (outcome.status, outcome.result) == (path[-1][0], RESULTS[path[-1][0]])
        inferred = outcome.supersedes and outcome.supersedes.result
        assert inferred == (told.words[-1] if told.words else None)
        if inferred is not Result.CANCELED:
            assert (AttentionCode.OUTCOME_CORRECTED in codes) == bool(told.words)
        elif outcome.result is not Result.CANCELED:
            assert AttentionCode.OUTCOME_CORRECTED in codes, "the terminal's end differs from the inference"
    elif outcome is not None:
        assert outcome.evidence[0].kind in ("refusal", "unsent")
        if outcome.result is Result.CANCELED:
            assert not transaction.trail.approval_requested, "a request to the acquirer contradicts a cancellation"
        else:
            assert (outcome.result, transaction.heard) == (Result.NOT_STARTED, False)


def hold(before: Transaction, after: Transaction) -> None:
    """Check one step of the core against the rules for every step."""
    codes = {item.code for item in after.attention}
    outcome = after.outcome
    assert (after.phase is Phase.FINAL) == (outcome is not None)
    assert RANK[after.status] >= RANK[before.status], "a state never goes back"
    assert after.heard or not (before.heard or after.acknowledged or after.trail.edges)
    assert (after.phase is Phase.IN_DOUBT) == (AttentionCode.IN_DOUBT in codes)
    step = next_step(after, NOW, GRACE)
    if outcome is None:
        assert step in (NextStep.WAIT, NextStep.ASK_PERSON)
    else:
        assert codes.isdisjoint(SETTLED)
        assert step in (NextStep.ASK_PERSON, NextStep.DONE if outcome.result == "approved" else NextStep.NEW_ID_OK)
        if outcome.status in (CANCELED, REJECTED, "DECLINED") and outcome.reached_acquirer is None:
            assert step is NextStep.ASK_PERSON, "the acquirer was asked, and its decision is unknown"
        if after.heard and not outcome.by_operator:
            assert outcome.result is not Result.NOT_STARTED, "a reported payment has started"
        if outcome.result is Result.NOT_STARTED and before.outcome is not None:
            assert after.trail == before.trail, "a report of the payment withdraws not_started"
    if before.outcome is not None and before.outcome.stated_by_terminal:
        assert outcome is not None
        assert outcome.status is before.outcome.status, "the first final of the terminal counts"
        assert before.outcome.transaction_reference in (None, outcome.transaction_reference)


#: All walks share one table, so each step of the core is computed once.
CORE = Core(starting(), hold)


def timeless(outcome: Outcome | None, path: Path) -> Outcome:
    """Return an outcome without its time, its evidence and the outcome that it supersedes.

    The event of a cancellation has no reading type (terminal API, Lifecycle). The reading type is known if an earlier
    event had a reading type.
    """
    assert outcome is not None
    reading = None if path[-1][0] == CANCELED else outcome.reading_type
    return msgspec.structs.replace(outcome, evidence=(), supersedes=None, decided_at="", reading_type=reading)
