"""How many payments ended, how, and how long they took, counted from the feed."""

from collections import OrderedDict
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

#: How far back is counted; older payments are forgotten.
WINDOW = timedelta(hours=1)
#: What the rate of the moment is counted over.
NOW = timedelta(minutes=1)
#: The most payments that are remembered: far above what a shop runs in an hour, a bound for what it does not.
MOST = 20_000


class Ended(NamedTuple):
    """A payment that ended: when, how, and after how many seconds."""

    at: datetime
    result: str
    seconds: float


class Summary(NamedTuple):
    """The numbers of the bottom line; `median` and `late` (the 95th percentile) in seconds."""

    ended: int
    approved: int
    last_minute: int
    median: float | None
    late: float | None


class Rates:
    """Counts payments (print jobs have no outcome to count). Feed it every change, in order."""

    def __init__(self) -> None:
        self._begun: OrderedDict[str, datetime] = OrderedDict()
        self._ended: OrderedDict[str, Ended] = OrderedDict()

    def take(self, change: Mapping[str, Any]) -> bool:
        """Count a change of the feed. Return whether a payment ended by it."""
        if change["kind"] != "transaction":
            return False
        identity, at = change["id"], datetime.fromisoformat(change["at"])
        result = change["result"]
        if result is None:
            self._begun.setdefault(identity, at)
            _bound(self._begun)
            return False
        begun = self._begun.pop(identity, None)
        if begun is not None:
            self._ended[identity] = Ended(at, result, (at - begun).total_seconds())
            _bound(self._ended)
        elif identity in self._ended:  # corrected: it ended when it ended
            self._ended[identity] = self._ended[identity]._replace(result=result)
        return begun is not None  # else it ended long ago: acknowledged now, or the like

    def summary(self, now: datetime) -> Summary:
        """Return the numbers as of `now`."""
        while self._ended and next(iter(self._ended.values())).at < now - WINDOW:
            self._ended.popitem(last=False)
        ended = list(self._ended.values())
        times = sorted(item.seconds for item in ended)
        return Summary(
            ended=len(ended),
            approved=sum(item.result == "approved" for item in ended),
            last_minute=sum(item.at > now - NOW for item in ended),
            median=_quantile(times, 50),
            late=_quantile(times, 95),
        )


def _quantile(times: list[float], percent: int) -> float | None:
    """Return the smallest of the times that so many percent do not exceed."""
    return times[-(-len(times) * percent // 100) - 1] if times else None


def _bound(items: "OrderedDict[str, Any]") -> None:
    if len(items) > MOST:
        items.popitem(last=False)
