"""Contradicting final events of the terminal, and conclusions before a final event, in every order.

- Two different final states arrive, each by its event and by a search that finds one or both. The first state counts,
  both are shown, and an operator is asked.
- An operator's decision and the proof arrive beside the reply, the events and a search. The terminal's final state
  supersedes the conclusions, which stay recorded. A different final state raises an attention.
"""

from collections.abc import Callable
from itertools import combinations

import pytest

from posd.payments.model import AttentionCode, NextStep, Result, may_be_paid, next_step
from tests.core.inputs import CALLBACK, NO_ANSWER, PEOPLE, PROOF, REPLIES, SILENCES, content, event, events, found
from tests.core.scenarios import ACK, CANCELED, CARD, NOW, REJECTED, REQUESTED, Path, name_of
from tests.core.test_every_order import CORE, GRACE, PATHS
from tests.core.walks import Deck, State, walk
from tests.rig.tables import there

PATH: Path = ((ACK, None), (CARD, ACK), (REQUESTED, CARD))
FINALS = {
    "approval": content("APPROVAL", REQUESTED),
    "another approval": content("APPROVAL", REQUESTED, reference="r-2"),
    "decline": content("DECLINED", REQUESTED),
    "cancellation": content(CANCELED, CARD),
    "rejection": content(REJECTED, CARD),
}
#: Repeated card events have no effect on these checks.
ONE_CARD = {name: path for name, path in PATHS.items() if (CARD, CARD) not in path}


@pytest.mark.quick(1)
@pytest.mark.parametrize(("one", "other"), tuple(combinations(FINALS, 2)))
def test_of_two_final_events_the_first_counts_and_an_operator_is_asked(
    one: str, other: str, tell: Callable[[str], None]
) -> None:
    both = (FINALS[one], FINALS[other])
    states = [found(content(*edge)) for edge in PATH]
    decks = [
        *events(PATH, most=1),
        *(Deck((event(data),)) for data in both),
        Deck(REPLIES),
        Deck((*NO_ANSWER, *states, *map(found, both), found(*both), found(*reversed(both)))),
    ]
    count = orders = 0
    for state in walk(CORE, decks):
        count += 1
        orders += state.orders
        check_conflict(state)
    tell(f"{one} and {other}: {count} states stand for {orders} orders")


def check_conflict(state: State) -> None:
    transaction, finals = state.transaction, state.told.finals
    shown = transaction.attention_of(AttentionCode.CONFLICTING_FINAL)
    assert (shown is not None) == (len(finals) > 1)
    if not finals:
        return
    outcome = there(transaction.outcome)
    assert finals[0] == " ".join(filter(None, (outcome.status, outcome.transaction_reference)))
    if shown is not None:
        assert next_step(transaction, NOW, GRACE) is NextStep.ASK_PERSON
        assert may_be_paid(transaction)


@pytest.mark.quick(1)
@pytest.mark.parametrize("path", ONE_CARD.values(), ids=ONE_CARD)
def test_a_report_of_the_terminal_replaces_an_outcome_without_a_report(path: Path, tell: Callable[[str], None]) -> None:
    states = [found(content(*edge)) for edge in {status: (status, before) for status, before in path}.values()]
    decks = [
        *events(path, most=1),
        Deck(REPLIES, kind="reply"),
        Deck(PEOPLE, most=2, after="reply"),  # posd refuses decisions while the call is under way
        Deck((PROOF,), after="reply"),
        Deck((CALLBACK, *SILENCES, *states)),
    ]
    count = orders = 0
    for state in walk(CORE, decks):
        count += 1
        orders += state.orders
        check_words(state, path)
    tell(f"{name_of(path)}, people and proof: {count} states stand for {orders} orders")


def check_words(state: State, path: Path) -> None:
    transaction, (finals, _, words) = state.transaction, state.told
    outcome = transaction.outcome
    final = path[-1][0] if finals else None
    assert (outcome.status if outcome else None) == final
    concluded = outcome.supersedes if outcome and finals else outcome or transaction.withdrawn
    kept = []
    while concluded is not None:
        kept.append(concluded.result)
        concluded = concluded.supersedes
    assert kept == list(reversed(words)), "no conclusion is lost"
    withdrawn = len(words) > 1 or (bool(words) and outcome is None)
    contradicted = bool(words) and outcome is not None and outcome.result != words[-1]
    corrected = transaction.attention_of(AttentionCode.OUTCOME_CORRECTED)
    old = outcome.supersedes if outcome else None
    if corrected is not None and old is not None and old.result is Result.CANCELED and not old.by_operator:
        return  # the terminal may have withdrawn and then confirmed the cancellation
    assert (corrected is not None) == (withdrawn or contradicted)
