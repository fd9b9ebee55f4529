"""Amounts in answers: as numbers, or as texts if the call asks for it."""

from collections.abc import Callable
from contextvars import copy_context
from decimal import Decimal

import msgspec

from posd.base.problems import Problem
from posd.calls.app import choose_encoding, json_response, problem_response
from posd.calls.streams import message


def written(write: Callable[[], bytes], *, texts: bool) -> bytes:
    """Return the answer of a call with this choice."""

    def call() -> bytes:
        choose_encoding(texts=texts)
        return write()

    return copy_context().run(call)


def test_sums_of_a_problem_are_written_as_the_call_wants_them() -> None:
    problem = Problem(
        "invalid_request", "more than the original allows", asked=Decimal("12.50"), allowed=Decimal("11.20")
    )
    numbers, texts = (written(lambda: bytes(problem_response(problem).body), texts=texts) for texts in (False, True))
    assert b'"asked":12.50,"allowed":11.20' in numbers
    assert b'"asked":"12.50","allowed":"11.20"' in texts


def test_what_is_verbatim_stays_so_and_each_way_of_answering_does_the_same() -> None:
    document = {"amount": Decimal("0.10"), "metadata": msgspec.Raw(b'{"n": 0.10}')}
    for write in (lambda: bytes(json_response(document).body), lambda: message("outcome", document)):
        assert b'{"amount":0.10,"metadata":{"n": 0.10}}' in written(write, texts=False)
        assert b'{"amount":"0.10","metadata":{"n": 0.10}}' in written(write, texts=True)
    assert b'"amount":0.10' in json_response(document).body  # no call has chosen here
