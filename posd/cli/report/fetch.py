"""The payments of some days, read from the daemon page by page."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from posd.base.times import iso
from posd.cli.app.connection import Api, Problem
from posd.cli.report.facts import CLOCKS_DIFFER, LONGEST_PAYMENT, Facts, Span, read
from posd.cli.report.sums import related

#: Payments asked for at a time: the most that the API gives.
PAGE = 500


#: Told how many payments were read so far.
Progress = Callable[[int], object]


@dataclass(frozen=True)
class Found:
    """What was read: payments of the days, and around them; those related to them; ids in attention, of any day."""

    payments: Mapping[str, Facts]
    others: Mapping[str, Facts]
    in_attention: frozenset[str]


def window(span: Span) -> tuple[datetime, datetime]:
    """Return when a payment of these days was asked for: from, and before. The list of the API goes by that time."""
    return span.start - LONGEST_PAYMENT, span.end + CLOCKS_DIFFER


def read_days(api: Api, span: Span, *, metadata: str | None = None, progress: Progress = lambda _: None) -> Found:
    """Read all payments that can be of these days, and what is open since before. Raise Problem or Unreachable."""
    since, until = window(span)
    found: dict[str, Facts] = {}
    # What is open comes first: what ends meanwhile is then read again as what it has become.
    for params in ({"open": "true", "until": iso(until)}, {"since": iso(since), "until": iso(until)}):
        for facts in _pages(api, params, metadata):
            found[facts.id] = facts
            progress(len(found))
    others = {}
    for identity in sorted(related(found.values())):
        try:
            others[identity] = read(api.get(f"/transactions/{identity}").body)
        except Problem as problem:
            if problem.code != "not_found":  # pruned, or of another database: then it is not known
                raise
    attention = frozenset(facts.id for facts in _pages(api, {"attention": "true"}, None))
    return Found(found, others, attention)


def _pages(api: Api, params: Mapping[str, str], metadata: str | None) -> Iterator[Facts]:
    page = {"limit": str(PAGE), **params}
    while True:
        body = api.get("/transactions", page).body
        for document in body["transactions"]:
            yield read(document, metadata)
        if body["next_cursor"] is None:
            return
        page["cursor"] = body["next_cursor"]
