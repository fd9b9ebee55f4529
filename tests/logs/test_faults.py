"""posd logs a fault with its kind and place. posd logs the message of a fault only if the message cannot quote data."""

import errno
import json
import sqlite3

import msgspec
import pytest

from posd.base.clocks import wall
from posd.logs import output

VALUE = "somebody@example.com"


class Own(TypeError):
    """An exception type of other code. Its message can have any text."""


def raised(error: BaseException) -> BaseException:
    try:
        raise error  # noqa: TRY301 - the exception needs a traceback
    except BaseException as caught:  # noqa: BLE001
        return caught


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (TypeError("unsupported operand type(s) for +: 'int' and 'str'"), True),
        (AttributeError("'str' object has no attribute 'x'"), True),
        (sqlite3.OperationalError("database or disk is full"), True),
        (OSError(errno.ENOSPC, "No space left on device", VALUE), True),
        (OSError(VALUE), False),
        (OSError(VALUE, VALUE), False),
        (ValueError(VALUE), False),
        (KeyError(VALUE), False),
        (Own(VALUE), False),
        (msgspec.ValidationError(VALUE), False),
        (UnicodeDecodeError("utf-8", VALUE.encode(), 0, 1, VALUE), False),
        (RuntimeError(VALUE), False),
    ],
    ids=repr,
)
def test_the_message_of_an_exception_is_logged_only_if_constant_in_the_code(error: Exception, message: bool) -> None:
    (item,) = output.exception_words(raised(error))
    assert item["type"] == type(error).__qualname__
    assert ("message" in item) is message
    assert VALUE not in str(item)
    assert item["frames"] == [f"tests/logs/test_faults.py:{raised.__code__.co_firstlineno + 2} raised"]


def test_the_causes_are_logged_and_the_chain_is_limited() -> None:
    first = raised(ValueError(VALUE))
    second = RuntimeError(VALUE)
    second.__cause__ = first
    assert [item["type"] for item in output.exception_words(raised(second))] == ["RuntimeError", "ValueError"]
    first.__context__ = second
    assert len(output.exception_words(second)) == output.MAX_CHAIN


def test_an_exception_group_names_its_exceptions() -> None:
    (item,) = output.exception_words(raised(ExceptionGroup(VALUE, [ValueError(VALUE), TypeError("x")])))
    assert [part["type"] for part in item["of"]] == ["ValueError", "TypeError"]
    assert VALUE not in str(item)


def test_a_deep_fault_fits_into_a_line_of_the_journal() -> None:
    def deep(left: int) -> None:
        if left:
            deep(left - 1)
        raise KeyError(VALUE)

    error: BaseException | None = None
    for _ in range(10):
        try:
            deep(500)
        except KeyError as caught:
            caught.__context__ = error
            error = caught
    fields = {
        "event": "posd.internal_error",
        "exc_info": error,
        "detail": "x" * 1_000_000,
        "fleet": ["S" * 64] * 10_000,
    }
    ((line,), _) = output.renderer({}, wall)(output.LineSink(), "error", fields)
    assert len(line(0.0)) < 48 * 1024


def test_an_e_mail_address_is_removed_from_a_text() -> None:
    fields = {"event": "payment.attention", "detail": f"it says <{VALUE}>, and 5 @ 3", "peer": "10.0.0.1"}
    ((line,), _) = output.renderer({}, wall)(output.LineSink(), "info", fields)
    assert json.loads(line(0.0))["detail"] == "it says <(an e-mail address)>, and 5 @ 3"
