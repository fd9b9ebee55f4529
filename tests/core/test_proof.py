"""The full proof that a transaction never started. The proof takes two rounds, `settle` seconds apart.

Each round needs a reply to an abort and a reply to a search.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posd.payments.answers import AbortAnswer
from posd.payments.model import SearchResult
from posd.payments.schedule import NotStartedProof, aborted, searched

SETTLE = 60.0
IDLE, NONE = AbortAnswer.NOTHING_RUNNING, SearchResult.NONE

Answers = list[tuple[AbortAnswer | SearchResult, float]]


def rounds(answers: Answers) -> NotStartedProof:
    """Return the counted rounds after these replies. A reply has the time of its request."""
    counted = NotStartedProof(SETTLE)
    for answer, asked in answers:
        if isinstance(answer, AbortAnswer):
            counted = aborted(counted, answer, asked)
        else:
            counted = searched(counted, answer, asked)
    return counted


FIRST: Answers = [(IDLE, 0.0), (NONE, 1.0)]


@pytest.mark.parametrize(
    ("answers", "complete"),
    [
        ([], False),
        (FIRST, False),
        ([*FIRST, (IDLE, 61.0), (NONE, 61.0)], True),
        ([*FIRST, (NONE, 30.0), (IDLE, 61.0), (NONE, 62.0)], True),
        # one of the four required replies is missing
        ([*FIRST, (NONE, 61.0)], False),
        ([*FIRST, (IDLE, 61.0)], False),
        ([(NONE, 0.0), (NONE, 61.0), (NONE, 122.0)], False),
        ([(IDLE, 0.0), (IDLE, 61.0), (IDLE, 122.0)], False),
        # in each round the abort must precede the search, because the payment may end just before the abort
        ([(NONE, 0.0), (IDLE, 1.0), (NONE, 61.0), (IDLE, 61.0)], False),
        ([*FIRST, (NONE, 61.0), (IDLE, 62.0)], False),
        ([(NONE, 0.0), *[(answer, at + 1) for answer, at in FIRST], (IDLE, 62.0), (NONE, 62.0)], True),
        # a search at the instant of its abort counts, and an earlier search does not
        ([(IDLE, 1.0), (NONE, 1.0), (IDLE, 61.0), (NONE, 61.0)], True),
        ([(IDLE, 1.0), (NONE, 0.5), (IDLE, 61.0), (NONE, 61.0)], False),
        ([*FIRST, (IDLE, 62.0), (NONE, 61.5)], False),
        # the second round begins exactly `settle` seconds after the end of the first round
        ([*FIRST, (IDLE, 60.999), (NONE, 61.0)], False),
        ([*FIRST, (IDLE, 60.0), (NONE, 62.0)], False),
        # posd can repeat a request that was too early
        ([*FIRST, (IDLE, 60.0), (NONE, 60.5), (IDLE, 61.0), (NONE, 62.0)], True),
        # the last abort before the search of a round counts
        ([(IDLE, 0.0), (IDLE, 5.0), (NONE, 4.0), (NONE, 6.0), (IDLE, 66.0), (NONE, 66.0)], True),
    ],
)
def test_the_proof_is_complete_after_two_replies_to_abort_and_search(answers: Answers, complete: bool) -> None:
    assert rounds(answers).complete is complete


def test_a_later_search_of_the_first_round_does_not_delay_the_second() -> None:
    assert rounds([*FIRST, (NONE, 30.0)]).second_due == rounds(FIRST).second_due == 1.0 + SETTLE


def test_the_second_round_is_due_after_the_first_is_complete() -> None:
    assert rounds([]).second_due is None
    assert rounds([(NONE, 7.0)]).second_due is None
    assert rounds([(IDLE, 7.0)]).second_due is None
    assert rounds([(NONE, 3.0), (IDLE, 5.0)]).second_due is None
    assert rounds([(IDLE, 5.0), (NONE, 7.0)]).second_due == 67.0


@pytest.mark.parametrize("answer", [AbortAnswer.TAKEN, AbortAnswer.UNKNOWN, SearchResult.FOUND])
def test_a_reply_that_says_that_the_payment_may_run_restarts_the_proof(answer: AbortAnswer | SearchResult) -> None:
    for before in (FIRST, [*FIRST, (IDLE, 61.0)]):
        assert rounds([*before, (answer, 62.0)]) == NotStartedProof(SETTLE)


@pytest.mark.parametrize("answer", [AbortAnswer.UNREACHABLE, AbortAnswer.NOT_TAKEN, SearchResult.NO_ANSWER])
def test_a_missing_reply_counts_neither_for_nor_against(answer: AbortAnswer | SearchResult) -> None:
    for before in ([], FIRST, [*FIRST, (NONE, 61.0)]):
        assert rounds([*before, (answer, 62.0)]) == rounds(before)


@given(st.lists(st.tuples(st.sampled_from([*AbortAnswer, *SearchResult]), st.integers(0, 300))))
def test_a_complete_proof_has_two_separate_rounds_after_any_replies(answers: list[tuple[str, int]]) -> None:
    asked = sorted(((answer, float(at)) for answer, at in answers), key=lambda pair: pair[1])
    if not rounds(asked).complete:
        return
    against = (AbortAnswer.TAKEN, AbortAnswer.UNKNOWN, SearchResult.FOUND)
    begun = max((place + 1 for place, (answer, _) in enumerate(asked) if answer in against), default=0)
    idle = [at for answer, at in asked[begun:] if answer is IDLE]
    none = [at for answer, at in asked[begun:] if answer is NONE]
    assert idle[-1] - idle[0] >= SETTLE
    assert none[-1] - none[0] >= SETTLE
