"""Memoized walk through every order of the inputs of a transaction.

`Core` is the core as a table, node x input -> node. A node stands for all transactions that the core treats equally. A
node omits the order of the trail's edges and of attentions, the text of an attention, and the result of the newest
search. `test_data_that_the_walks_do_not_compare_changes_no_compared_data` checks the omissions.

`walk` goes through all orders of the inputs. Inputs of a `Deck` occur up to a number of times, or never. Two orders
that lead to the same state continue equally. Few states therefore stand for very many orders.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec

from posd.payments.lifecycle import Trail
from posd.payments.model import Transaction
from posd.payments.transitions import RepeatedEvent, recognise

_set = msgspec.structs.replace

#: Number of inputs taken from each deck.
Dealt = tuple[int, ...]


class Input(NamedTuple):
    """One possible input, with its effect on a transaction and the data that it reports."""

    name: str
    apply: Callable[[Transaction], Transaction]
    finals: tuple[str, ...] = ()  # finals that the input reports, in order
    full: bool = False  # whether the input reports finals with all data of the event
    body: bytes = b""  # bytes of an event, which identify an exact repeat


class Deck(NamedTuple):
    """Alternative inputs. At most `most` of these inputs occur in total. Decks of equal `kind` are alike."""

    inputs: tuple[Input, ...]
    most: int = 1
    kind: str = ""
    after: str = ""  # kind of the deck that must be used before this deck


class Told(NamedTuple):
    """Reports of the inputs so far, in addition to the core's result."""

    finals: tuple[str, ...] = ()  # the terminal's different finals, in order of arrival
    full: bool = False  # whether the first final was reported with all data of the event
    words: tuple[str, ...] = ()  # conclusions that are not from a final event of the terminal, in order


class State(NamedTuple):
    """Result of orders: the core's state, the reports, the inputs used from each deck, and the number of orders."""

    transaction: Transaction
    told: Told
    dealt: Dealt
    orders: int


def essence(transaction: Transaction) -> Transaction:
    """Return a transaction with only the data that the core reads."""
    trail = transaction.trail
    return _set(
        transaction,
        trail=Trail(trail.position, trail.last, tuple(sorted(trail.edges, key=repr))),
        attention=tuple(sorted((_set(item, detail="") for item in transaction.attention), key=lambda item: item.code)),
        last_search=None,
    )


class Core:
    """The core as a table that is filled on demand. `hold` checks every step.

    A place is a node together with the earlier reports, and has a number.
    """

    def __init__(self, start: Transaction, hold: Callable[[Transaction, Transaction], None]) -> None:
        self.places = [(start, Told())]
        self._hold = hold
        self._nodes = {essence(start): start}
        self._numbers = {(id(start), Told()): 0}
        self._table: dict[tuple[int, str], Transaction] = {}

    def go(self, place: int, item: Input) -> int:
        """Return the place after an input."""
        before, told = self.places[place]
        key = (id(before), item.name)
        if key not in self._table:
            after = item.apply(before)
            self._hold(before, after)
            self._table[key] = self._nodes.setdefault(essence(after), after)
        after = self._table[key]
        then = _tell(told, item, before, after)
        number = self._numbers.setdefault((id(after), then), len(self.places))
        if number == len(self.places):
            self.places.append((after, then))
        return number


def _tell(told: Told, item: Input, before: Transaction, after: Transaction) -> Told:
    finals, full, words = told
    if item.finals:
        full = full or (item.full if not finals else bool(item.body))
        finals = tuple(dict.fromkeys((*finals, *item.finals)))
    if after.outcome != before.outcome and after.outcome is not None and not after.outcome.stated_by_terminal:
        words = (*words, after.outcome.result.value)
    return Told(finals, full, words)


def walk(core: Core, decks: Sequence[Deck]) -> Iterator[State]:
    """Yield every state that an order can reach."""
    steps: dict[tuple[int, int], Counter[int]] = {}
    deals: dict[Dealt, list[tuple[int, Dealt]]] = {}
    frontier: Counter[tuple[int, Dealt]] = Counter({(0, (0,) * len(decks)): 1})
    while frontier:
        following: Counter[tuple[int, Dealt]] = Counter()
        for (place, dealt), orders in frontier.items():
            yield State(*core.places[place], dealt, orders)
            if dealt not in deals:
                deals[dealt] = list(_deals(dealt, decks))
            for index, then in deals[dealt]:
                deck = decks[index]
                if dealt[index] and deck.inputs[0].body:  # posd never applies an exact repeat
                    assert recognise(deck.inputs[0].body, [deck.inputs[0].body]) is RepeatedEvent.REPEATED
                    following[place, then] += orders
                    continue
                if (place, index) not in steps:
                    steps[place, index] = Counter(core.go(place, item) for item in deck.inputs)
                for other, ways in steps[place, index].items():
                    following[other, then] += orders * ways
        frontier = following


def _deals(dealt: Dealt, decks: Sequence[Deck]) -> Iterator[tuple[int, Dealt]]:
    """Yield the decks that may be next, with the counts after the next input."""
    for index, deck in enumerate(decks):
        first = deck.after and not any(dealt[at] for at, other in enumerate(decks) if other.kind == deck.after)
        if dealt[index] < deck.most and not first:
            yield index, _in_order((*dealt[:index], dealt[index] + 1, *dealt[index + 1 :]), decks)


def _in_order(dealt: Dealt, decks: Sequence[Deck]) -> Dealt:
    """Sort the counts of decks that are alike, because any of these decks may have been used."""
    kinds = groupby(zip(decks, dealt, strict=True), key=lambda pair: pair[0].kind or id(pair[0]))
    return tuple(count for _, pairs in kinds for count in sorted(count for _, count in pairs))
