"""Every order, every duplication and every loss of the events of each scenario, with the reply to the start anywhere.

A memoised walk over (core state, what was delivered) covers them: two ways that lead to the same state go on alike.
The number of states and of the orders that they stand for is printed (`pytest -s`, and in the summary by `-rP`).
"""

from collections import Counter

import pytest

from posd.core.decisions import Seen, advance, conclude_start, recognise
from posd.core.starts import Acknowledged, Doubtful, Judgement, Refused, Unsent
from posd.core.transactions import AttentionCode, Phase, Transaction
from tests.core.scenarios import NOW, SCENARIOS, event_bodies, read, starting

#: Deliveries of one event: lost, once, or once and again.
MOST_DELIVERIES = 2

REPLIES: dict[str, Judgement] = {
    "acknowledged": Acknowledged("SN-TEST"),
    "lost": Doubtful("no reply in time"),
    "refused": Refused(409, "busy"),
    "unsent": Unsent("connection refused"),
}

State = tuple[Transaction, tuple[int, ...], bool]


@pytest.mark.parametrize("reply", REPLIES)
@pytest.mark.parametrize("name", SCENARIOS)
def test_outcome_is_the_final_event_whatever_comes_before_or_after_it(
    name: str, reply: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path, result = SCENARIOS[name]
    bodies = event_bodies(path)
    events = [read(body) for body in bodies]
    final = len(path) - 1

    frontier: Counter[State] = Counter({(starting(), (0,) * len(path), False): 1})
    states = orders = 0
    while frontier:
        following: Counter[State] = Counter()
        for (transaction, delivered, replied), ways in frontier.items():
            states += 1
            if delivered[final] and replied:
                orders += ways
                check(transaction, result, complete=all(delivered))
            if not replied:
                answered = conclude_start(transaction, REPLIES[reply], NOW)
                following[(answered, delivered, True)] += ways
            for index, times in enumerate(delivered):
                if times == MOST_DELIVERIES:
                    continue
                recorded = [bodies[index]] if times else []
                seen = recognise(bodies[index], recorded)
                moved = transaction
                if seen is not Seen.REPEATED:
                    moved, _ = advance(transaction, events[index], seen=seen, now=NOW)
                counts = (*delivered[:index], times + 1, *delivered[index + 1 :])
                following[(moved, counts, replied)] += ways
        frontier = following
    with capsys.disabled():
        print(f"\n  {name}, reply {reply}: {states} states stand for {orders} orders", end="")


def check(transaction: Transaction, result: str, *, complete: bool) -> None:
    """Hold a transaction whose final event has come against what that event states."""
    assert transaction.phase is Phase.FINAL
    assert transaction.outcome is not None
    assert transaction.outcome.result == result
    assert transaction.outcome.stated_by_terminal
    assert not transaction.attention_of(AttentionCode.IN_DOUBT)
    assert not transaction.attention_of(AttentionCode.CONFLICTING_FINAL)
    assert not transaction.attention_of(AttentionCode.ILLEGAL_TRANSITION)
    if complete:
        assert not transaction.attention_of(AttentionCode.GAP), "every event has come: nothing is missing"
