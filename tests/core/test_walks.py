"""The walk itself. The walk counts every order, and merges only states that the core treats equally."""

import random
from itertools import product

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from posd.payments.lifecycle import Trail
from posd.payments.model import LastSearch, SearchResult, Transaction
from tests.core.inputs import CALLBACK, PEOPLE, PROOF, REPLIES, answers, content, event, poor_answers
from tests.core.scenarios import ACK, CANCELED, CARD, REJECTED, REQUESTED, Path, starting
from tests.core.walks import Core, Deck, Input, essence, walk

PATH: Path = ((ACK, None), (CARD, ACK), (CARD, CARD), (REQUESTED, CARD), ("APPROVAL", REQUESTED))
OTHERS: Path = (("DECLINED", REQUESTED), (CANCELED, CARD), (REJECTED, CARD))
INPUTS = (
    *(event(content(*edge)) for edge in PATH + OTHERS),
    event(content("APPROVAL", REQUESTED, reference="r-2")),
    event(content("APPROVAL", REQUESTED, event_id="bare", raw_response=None)),
    *answers(PATH),
    *answers(OTHERS),
    *poor_answers(PATH),
    *REPLIES,
    *PEOPLE,
    PROOF,
    CALLBACK,
)


def nothing(*_steps: object) -> None:
    """Check nothing."""


def test_the_walks_count_all_possible_orders() -> None:
    """The count equals the number of listed sequences. Three decks are alike.

    One deck is used twice, one follows another deck, and one has two alternatives.
    """
    same = Input("same", lambda transaction: transaction)
    other = Input("other", lambda transaction: transaction)
    alike = [Deck((same,), kind="alike")] * 3
    decks = [*alike, Deck((same,), most=2, kind="first"), Deck((same, other), after="first")]
    count = 0
    for length in range(7):
        for order in product(range(5), repeat=length):
            possible = all(order.count(index) <= decks[index].most for index in range(5))
            if possible and (4 not in order or 3 in order[: order.index(4)]):
                count += 2 ** order.count(4)
    states = list(walk(Core(starting(), nothing), decks))
    assert sum(state.orders for state in states) == count
    assert len({state.dealt for state in states}) == len(states) == 4 * (1 + 2 * 2)


@given(st.lists(st.sampled_from(INPUTS), max_size=8), st.randoms(use_true_random=False))
def test_data_that_the_walks_do_not_compare_changes_no_compared_data(way: list[Input], chance: random.Random) -> None:
    transaction = starting()
    for item in way:
        transaction = item.apply(transaction)
    other = disguised(transaction, chance)
    assert essence(other) == essence(transaction)
    for item in INPUTS:
        assert essence(item.apply(other)) == essence(item.apply(transaction)), item.name


def disguised(transaction: Transaction, chance: random.Random) -> Transaction:
    """Return a transaction with other values in the data that a node omits."""
    trail = transaction.trail
    attention = [msgspec.structs.replace(item, detail="other words") for item in transaction.attention]
    return msgspec.structs.replace(
        transaction,
        trail=Trail(trail.position, trail.last, tuple(chance.sample(trail.edges, len(trail.edges)))),
        attention=tuple(chance.sample(attention, len(attention))),
        last_search=LastSearch("earlier", chance.choice(list(SearchResult))),
    )
