"""Amounts in responses: numbers, or texts if the call asks for them."""

from collections.abc import Callable
from contextvars import copy_context
from decimal import Decimal

import msgspec

from posd.base.problems import Problem
from posd.calls.app import choose_encoding, json_response, problem_response
from posd.calls.streams import message


def written(write: Callable[[], bytes], *, texts: bool) -> bytes:
    """Return what `write` returns in a call that asks for amounts as texts, or as numbers."""

    def call() -> bytes:
        choose_encoding(texts=texts)
        return write()

    return copy_context().run(call)


def test_amounts_in_a_problem_have_the_form_that_the_call_wants() -> None:
    problem = Problem("invalid_request", "more than it allows", asked=Decimal("12.50"), allowed=Decimal("11.20"))
    numbers, texts = (written(lambda: bytes(problem_response(problem).body), texts=texts) for texts in (False, True))
    assert b'"asked":12.50,"allowed":11.20' in numbers
    assert b'"asked":"12.50","allowed":"11.20"' in texts


def test_verbatim_parts_stay_unchanged_in_every_kind_of_response() -> None:
    document = {"amount": Decimal("0.10"), "metadata": msgspec.Raw(b'{"n": 0.10}')}
    for write in (lambda: bytes(json_response(document).body), lambda: message("outcome", document)):
        assert b'{"amount":0.10,"metadata":{"n": 0.10}}' in written(write, texts=False)
        assert b'{"amount":"0.10","metadata":{"n": 0.10}}' in written(write, texts=True)
    assert b'"amount":0.10' in json_response(document).body  # outside a call no choice exists
