"""A terminal's behaviour with one payment: its end, events, other messages, and replies to start, search and abort.

A payment has one value of each table. Most values are ordinary.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Final


def weights(text: str) -> dict[str, float]:
    """Return the names and frequencies in a text such as "approve 60, decline 12"."""
    pairs = (item.rsplit(" ", 1) for item in text.split(", "))
    return {name: float(often) for name, often in pairs}


def drawn(random: Random, table: Mapping[str, float]) -> str:
    """Draw a name of a table."""
    return random.choices(list(table), list(table.values()))[0]


#: End of the payment, unless another cause ends the payment first.
ENDS: Final = weights("approve 60, decline 12, reject 8, cancel 8, wait 6, retry-card 6, reject-late 2")

#: Replies to the start. A name that ends in `-runs` means that the payment runs despite the reply.
REPLIES: Final = weights(
    "ack 70, slow 4, late-ack 3, lost-runs 3, lost 2, silent-runs 2, silent 1, cut-runs 2, html-runs 1, "
    "other-id-runs 1, wrong-serial 1, error-in-200 1, refused 4, refused-runs 0.5, failed 2, failed-runs 2"
)

#: How the payment's events arrive. The share MUTE decides how often no event arrives.
EVENTS: Final = weights(
    "plain 70, twice 5, shuffled 4, some-lost 4, final-lost 3, late 3, damaged 2, broken 2, id-reused 1, "
    "unknown-status 1, contradicted 1.5, wrong-serial 1, foreign 1, flood 0.3, other-amount 4, unlikely 1, "
    "no-reference 1, none-comes 0"
)

#: Result of a search. The share MUTE decides how often a search finds a payment late.
SEARCHES: Final = weights(
    "usual 80, none 4, stale 3, another 2, missing 3, failed 3, html 2, cut 1, silent 1, contradicts 0.5, late-index 0"
)

#: Effect of an abort.
ABORTS: Final = weights("cancels 70, ignored 8, raced 6, nothing 4, lost 4, silent 2, failed 3, empty 3, slow 8")

#: Messages that the terminal or another device sends in addition to the payment's events.
EXTRAS: Final = weights(
    "nothing 60, wrong-token 5, other-payment 5, other-merchant 5, other-terminal 5, after-final 10, too-large 1"
)

#: How events may arrive if an operation follows the approval. All other habits omit data that the operation needs.
FOLLOWED: Final = frozenset(EVENTS) - {"other-amount", "unlikely", "no-reference"}

#: Share of bad payments without any event. The two tables after it have the replies to the starts and the searches of
#: these payments.
MUTE: Final = 0.08
#: Share of the payments without events that wait for a card.
WAITS: Final = 0.2
#: The share MUTE if the configuration lets posd conclude `not_started`. posd must never conclude `not_started` for a
#: payment without events that ran.
MUTE_PROVABLE: Final = 0.4
MUTE_REPLIES: Final = ("lost-runs", "silent-runs", "cut-runs", "failed-runs")
MUTE_SEARCHES: Final = ("usual", "none", "failed", "late-index", "late-index")


@dataclass(frozen=True, slots=True)
class Habit:
    """The terminal's behaviour with one payment."""

    end: str = "approve"
    reply: str = "ack"
    events: str = "plain"
    search: str = "usual"
    abort: str = "cancels"
    extra: str = "nothing"

    @property
    def runs(self) -> bool:
        """Whether the payment runs. The reply to its start does not decide this."""
        return self.reply in ("ack", "slow", "late-ack", "wrong-serial") or self.reply.endswith("-runs")


def draw(random: Random, *, bad: float, followed: bool = False, mute: float = MUTE) -> Habit:
    """Draw a habit. `bad`: share of the properties that are not ordinary. `followed`: whether an operation may follow.

    `mute`: share of the bad habits that send no events.
    """

    def of(axis: Mapping[str, float]) -> str:
        if axis is not ENDS and random.random() >= bad:
            return next(iter(axis))
        return drawn(random, axis)

    habit = Habit(of(ENDS), of(REPLIES), of(EVENTS), of(SEARCHES), of(ABORTS), of(EXTRAS))
    if random.random() < bad * mute:
        reply, search = random.choice(MUTE_REPLIES), random.choice(MUTE_SEARCHES)
        habit = replace(habit, reply=reply, events="none-comes", search=search, abort="cancels")
        # the terminal waits for a card, and fails to abort
        return replace(habit, end="wait", search="usual", abort="failed") if random.random() < WAITS else habit
    if habit.reply == "refused-runs" and habit.events == "plain":
        habit = replace(habit, events="some-lost")
    return habit if not followed or habit.events in FOLLOWED else replace(habit, events="plain")
