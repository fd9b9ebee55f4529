"""The feed from a moment on: what was recorded since then, and then whatever is recorded.

The feed is numbered, not dated. Where a moment stands in it is found by looking at some of its lines.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from posd.cli.app.api import Api, decode

#: Lines that are read at once.
PAGE = 500
#: The most past lines that are read: some seconds of work on a small machine.
MOST_PAST = 50_000

#: Names of the messages that are changes; others tell of the stream itself.
KINDS = frozenset({"transaction", "print_job"})

Change = Mapping[str, Any]


def newest(api: Api) -> int:
    """Return the number of the newest line of the feed. Raise Problem or Unreachable."""
    return _first(api, lambda _change: False)


def begin(api: Api, moment: datetime) -> int:
    """Return the number behind which the lines since that moment stand. Raise Problem or Unreachable."""
    return max(_first(api, lambda change: datetime.fromisoformat(change["at"]) >= moment), newest(api) - MOST_PAST)


def holds(api: Api, place: int) -> bool:
    """Whether the feed still has the line of that number: it has not in another database."""
    found = _changes(api, place - 1, 1) if place else []
    return place == 0 or (bool(found) and found[0]["seq"] == place)


def past(api: Api, place: int) -> Iterator[Sequence[Change]]:
    """Yield the lines behind that number, as far as they are there."""
    while page := _changes(api, place, PAGE):
        yield page
        place = page[-1]["seq"]


def live(api: Api, place: int) -> Iterator[tuple[Change, str]]:
    """Yield the lines behind that number as they come, decoded and as they came, until posd ends that.

    Raise Problem or Unreachable.
    """
    for item in api.stream(f"/feed?limit={PAGE}", after=place):
        if item.name in KINDS:
            yield decode(item.data), item.data


def _first(api: Api, is_there: Callable[[Change], bool]) -> int:
    """Return the smallest number behind which the next line is such a one, or there is none."""

    def behind(place: int) -> bool:
        found = _changes(api, place, 1)
        return not found or is_there(found[0])

    low, high = 0, 1
    while not behind(high):
        low, high = high, high * 2
    while low < high:
        middle = (low + high) // 2
        if behind(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _changes(api: Api, place: int, limit: int) -> list[Change]:
    changes: list[Change] = api.get("/feed", {"after": str(place), "limit": str(limit)}).body["changes"]
    return changes
