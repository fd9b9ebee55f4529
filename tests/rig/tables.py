"""A table as one test. The test tries every row, and reports all failures together with the names of their rows.

`every` is for cheap rows that share their fixtures. A row that starts a process or changes a fixture must be a test of
its own by `pytest.mark.parametrize`. `every` accepts the arguments of `pytest.mark.parametrize`.
"""

import functools
import inspect
from collections.abc import Callable, Iterable
from enum import Enum
from itertools import product
from typing import Any, TypeVar

import pytest

Value = TypeVar("Value")

Test = Callable[..., Any]
#: The name and the arguments of a row.
Row = tuple[str, dict[str, Any]]

#: Exceptions that make a row fail. Any other exception (a skip, Ctrl-C) ends the whole test.
FAILURES = (Exception, pytest.fail.Exception)
#: Limit of failures shown completely, and limit of further failures named.
SHOWN, NAMED = 5, 40


def every(
    names: str | tuple[str, ...], values: Iterable[Any], ids: Iterable[str] | Callable[[Any], str] | None = None
) -> Callable[[Test], Test]:
    """Make one test of a table. `pytest.mark.parametrize` makes a test of each row. With several tables, the rows are
    the product of the tables.
    """
    columns = names.replace(",", " ").split() if isinstance(names, str) else list(names)
    rows = list(_rows(columns, list(values), ids))
    assert rows, "a table without a row proves nothing"

    def decorate(test: Test) -> Test:
        inner, others = getattr(test, "table", (test, [("", {})]))
        table = [("-".join(filter(None, (one, two))), a | b) for (one, a), (two, b) in product(others, rows)]
        signature = inspect.signature(inner)
        unknown = table[0][1].keys() - signature.parameters.keys()
        assert not unknown, f"{inner.__name__} has no parameter {unknown}"
        whole = (_awaiting if inspect.iscoroutinefunction(inner) else _calling)(inner, table)
        left = [parameter for name, parameter in signature.parameters.items() if name not in table[0][1]]
        whole.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        whole.table = (inner, table)  # type: ignore[attr-defined]
        return whole

    return decorate


def there(value: Value | None) -> Value:
    """Return the value. Raise AssertionError for None."""
    assert value is not None
    return value


def try_each(table: Iterable[Row], check: Test) -> None:
    """Call the check with each row of a table. Report all failures together. The test builds the table itself."""
    failed: list[tuple[str, BaseException]] = []
    rows = list(table)
    assert rows, "a table without a row proves nothing"
    for name, row in rows:
        try:
            check(**row)
        except FAILURES as error:
            failed.append((name, error))
    _tell(failed, len(rows))


def _calling(inner: Test, table: list[Row]) -> Test:
    @functools.wraps(inner)
    def whole(**fixtures: Any) -> None:
        try_each(table, functools.partial(inner, **fixtures))

    return whole


def _awaiting(inner: Test, table: list[Row]) -> Test:
    @functools.wraps(inner)
    async def whole(**fixtures: Any) -> None:
        failed: list[tuple[str, BaseException]] = []
        for name, row in table:
            try:
                await inner(**fixtures, **row)
            except FAILURES as error:
                failed.append((name, error))
        _tell(failed, len(table))

    return whole


def _tell(failed: list[tuple[str, BaseException]], count: int) -> None:
    """Raise the failures. The message shows the first failures completely, and names the others."""
    if not failed:
        return
    for name, error in failed:
        error.add_note(f"in the row [{name}]")
    names = " ".join(f"[{name}]" for name, _ in failed[:NAMED])
    more = f" and {len(failed) - NAMED} more" if len(failed) > NAMED else ""
    raise BaseExceptionGroup(
        f"{len(failed)} of {count} rows failed: {names}{more}", [error for _, error in failed[:SHOWN]]
    )


def _rows(columns: list[str], values: list[Any], ids: Iterable[str] | Callable[[Any], str] | None) -> Iterable[Row]:
    """Yield each row with its name. The name is explicit, from `ids`, or from the row's values."""
    given = list(ids) if ids is not None and not callable(ids) else None
    assert given is None or len(given) == len(values), "the number of names differs from the number of rows"
    for number, value in enumerate(values):
        own, cells = None, value if len(columns) > 1 else (value,)
        if isinstance(value, type(pytest.param())):
            assert not value.marks, "a mark applies to a whole test, not to a row"
            own, cells = value.id, value.values
        assert len(cells) == len(columns), f"row {number} has {len(cells)} values for {columns}"
        naming = ids if callable(ids) else named
        name = own or (str(given[number]) if given is not None else "-".join(str(naming(cell)) for cell in cells))
        yield str(name), dict(zip(columns, cells, strict=True))


def named(value: object) -> str:
    """Return a short name for a value in a table."""
    if isinstance(value, str | Enum):
        text = str(value) or "empty"
    else:
        text = str(getattr(value, "__name__", None) or repr(value))
    return text if len(text) <= 60 else f"{text[:59]}…"
