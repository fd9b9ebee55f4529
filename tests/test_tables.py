"""A table that is one test says of every row what a test of its own would say."""

import asyncio
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from tests.support.tables import NAMED, every


def failed(whole: Callable[..., Any], **fixtures: Any) -> BaseExceptionGroup[BaseException]:
    with pytest.raises(BaseExceptionGroup) as raised:
        whole(**fixtures)
    return raised.value


def test_every_row_is_tried_and_each_that_failed_is_named() -> None:
    tried = []

    @every("number, word", [(1, "one"), (2, "two"), (3, "three"), (4, "four")])
    def whole(number: int, word: str) -> None:
        tried.append((number, word))
        if word == "three":
            pytest.fail("not three")
        assert number != 2

    group = failed(whole)
    assert tried == [(1, "one"), (2, "two"), (3, "three"), (4, "four")]
    assert str(group).startswith("2 of 4 rows failed: [2-two] [3-three]")
    assert [error.__notes__ for error in group.exceptions] == [["in the row [2-two]"], ["in the row [3-three]"]]


def test_several_make_their_product_and_fixtures_are_given_to_each() -> None:
    tried = []

    @every("one", "ab")
    @every("two", [1, 2, 3])
    def whole(one: str, two: int, tried: list[tuple[str, int]]) -> None:
        tried.append((one, two))

    whole(tried=tried)
    assert sorted(tried) == sorted(product("ab", [1, 2, 3]))


def test_a_row_is_named_by_ids_or_by_its_own_name() -> None:
    @every("number", [1, pytest.param(2, id="its own")], ids=["first", "second"])
    def whole(number: int) -> None:
        assert not number

    assert str(failed(whole)).startswith("2 of 2 rows failed: [first] [its own]")

    @every("number", [1], ids=lambda number: f"n{number}")
    def other(number: int) -> None:
        assert not number

    assert "[n1]" in str(failed(other))


def test_where_all_fail_the_message_stays_readable() -> None:
    @every("number", range(1000))
    def whole(number: int) -> None:
        raise AssertionError

    assert str(failed(whole)).count("[") == NAMED
    assert f"and {1000 - NAMED} more" in str(failed(whole))


def test_a_test_that_is_awaited_is_a_table_too() -> None:
    @every("number", [1, 2])
    async def whole(number: int) -> None:
        await asyncio.sleep(0)
        assert number == 1

    async def run() -> str:
        with pytest.raises(ExceptionGroup) as raised:
            await whole()
        return str(raised.value)

    assert asyncio.run(run()).startswith("1 of 2 rows failed: [2]")


@pytest.mark.parametrize(("names", "values"), [("number", []), ("number, more", [(1,)]), ("other", [1])])
def test_a_table_that_proves_nothing_or_does_not_fit_is_refused(names: str, values: list[Any]) -> None:
    def row(number: int) -> None:
        pass

    with pytest.raises(AssertionError):
        every(names, values)(row)


def test_a_skip_and_ctrl_c_are_of_the_whole_test() -> None:
    @every("stop", [pytest.skip.Exception, KeyboardInterrupt])
    def whole(stop: type[BaseException]) -> None:
        raise stop

    with pytest.raises(pytest.skip.Exception):
        whole()


@every("number", [1, 2])
def test_pytest_gives_it_fixtures(tmp_path_factory: pytest.TempPathFactory, number: int) -> None:
    assert tmp_path_factory.getbasetemp().is_dir()
    assert number
