"""Reading and closing shifts over the local API (see `shift`)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import click

from posd.cli.app.connection import Api, Problem, Unreachable
from posd.cli.report import closed, shift, standing, sums, words
from posd.cli.report.closed import Closed, Counted, Line, Shift
from posd.cli.report.facts import Facts, Span, read
from posd.cli.report.standing import Payment
from posd.cli.report.sums import Report

#: Changes of the feed that are asked for at a time: the most that the API gives.
PAGE = 500
#: Payments that one shift can hold: the API takes 256 KiB.
MOST = 2_000
#: Shifts that are asked for at a time, where an earlier one may have counted a payment.
SHIFTS = 10
#: The feed's words for the first line of a payment.
BEGINS = ("intent", "orphan")

#: Says when the clock was not believed within some days.
Doubts = Callable[[Api, Span], list[str]]


class Shifts:
    """Reads shifts, and closes one. Each method raises Problem, Unreachable or UsageError."""

    def __init__(
        self,
        api: Api,
        zone: ZoneInfo,
        now: datetime,
        *,
        terminal: str | None,
        metadata: str | None,
        progress: Callable[[int], object],
    ) -> None:
        self._api = api
        self._zone = zone
        self._now = now
        self._terminal = terminal
        self._metadata = metadata
        self._progress = progress

    def open(self) -> Report:
        """Return what has come since the last shift was closed."""
        return self._open(self._last())[0]

    def close(self, operator: str, note: str, notes: list[str]) -> Report:
        """Close the shift, and return its report; `notes` get what a person should be told beside it.

        Where nothing has come since the last one, or another one was closed meanwhile, that one is returned.
        """
        last = self._last()
        body = {"operator": operator, **({"note": note} if note else {}), "after": 0 if last is None else last.up_to}
        document, fresh = self._post(body)
        if not fresh and last is not None and document.number == last.number:
            notes.append(
                f"Nothing has come since shift {last.number} was closed by {last.operator}: it is shown again, and "
                "no other one was closed."
            )
        elif not fresh:
            notes.append(
                f"Shift {document.number} was closed by {document.operator} at the same time: it is shown here, and "
                "no other one was closed."
            )
        return self.closed(document.number)

    def begin(self, operator: str, note: str) -> str:
        """Let the first shift begin now: what was decided before is in none. Return what was done, in words."""
        if (last := self._last()) is not None:
            raise click.UsageError(f"shift {last.number} was closed already: --begin is for the first shift")
        body = {"operator": operator.strip(), "begin": True}
        document, fresh = self._post(body | ({"note": note.strip()} if note.strip() else {}))
        if not fresh:
            raise click.UsageError(f"shift {document.number} was closed at the same time: posd report --since last")
        return (
            f"The first shift begins now; what was decided before is in none. Open, and counted once decided: "
            f"{words.number(len(document.lines), 'payment')}. See posd report --since last."
        )

    def closed(self, number: int | None) -> Report:
        """Return a shift that was closed, as it was counted, whatever has been corrected or removed since."""
        found = self._page(None if number is None else number + 1, 2)
        if not found or number not in (None, found[0].number):
            newest = self._last()
            which = "no shift was closed yet" if newest is None else f"the last one is {newest.number}"
            raise click.UsageError(f"there is no such shift: {which}")
        item, before = found[0], found[1] if len(found) > 1 else None
        facts, left = self._read([line.id for line in item.lines])
        others = self._others(facts.values())
        opened = {} if before is None else before.open
        rows: list[Payment] = []
        removed = 0
        for line in item.lines:
            if line.id in facts:
                payment = replace(standing.count(facts[line.id], others), open_at=opened.get(line.id))
                rows += shift.printed_again(payment, line)
            else:
                removed += 1
                gone = shift.removed(line, item, left.get(line.id, {}))
                rows += shift.printed_again(gone, line) if line.was is not None or line.counted is None else [gone]
        return self._report(rows, Shift(item, before, removed))

    def _open(self, last: Closed | None) -> tuple[Report, Sequence[Line], int]:
        """Return what has come since a shift, what it counts, and up to which change of the feed."""
        after = 0 if last is None else last.up_to
        carried = {} if last is None else last.open
        begun: dict[str, bool] = dict.fromkeys(carried, False)
        up_to, more = after, False
        for change in self._feed(after):
            if change["kind"] != "transaction":
                continue
            if change["id"] not in begun:
                if len(begun) >= MOST and len(begun) > len(carried):
                    more = True
                    break
                begun[change["id"]] = change["reason"] in BEGINS
            up_to = change["seq"]
        facts, _ = self._read(begun)
        others = self._others(facts.values())
        # After a restore the feed tells again of payments that it has told of, as if they began.
        same = last is None or self._api.get("/feed", {"limit": "1"}).body["database_id"] == last.database_id
        sought = {identity for identity, fresh in begun.items() if not (fresh and same) and identity not in carried}
        known, begins_later = self._known(last, sought)
        old = {identity for identity, fresh in begun.items() if not fresh}
        before_first = old - known.keys() if begins_later else set()
        payments = [standing.count(item, others) for item in facts.values() if item.id not in before_first]
        rows, lines = shift.account(payments, known)
        return self._report(rows, Shift(None, last, more=more)), lines, up_to

    def _known(self, last: Closed | None, sought: set[str]) -> tuple[dict[str, Counted], bool]:
        """Return what closed shifts have counted of these payments, and whether the first one began with a later number
        than the first: what began before, and none of them knows, was decided before it.
        """
        shifts = [] if last is None else [last]
        known = closed.earlier(shifts)
        while shifts and shifts[-1].number > 1 and sought - known.keys():
            page = self._page(shifts[-1].number, SHIFTS)
            if not page:
                break
            shifts += page
            known = closed.earlier(shifts)
        return known, bool(shifts) and shifts[-1].number == 1 and shifts[-1].after > 0

    def _report(self, rows: Iterable[Payment], of: Shift) -> Report:
        rows = [row for row in rows if self._terminal in (None, row.facts.terminal)]
        days = [row.facts.at.astimezone(self._zone).date() for row in rows]
        end = of.closed.closed_at if of.closed else self._now
        days.append(end.astimezone(self._zone).date())
        if of.last is not None:
            days.append(of.last.closed_at.astimezone(self._zone).date())
        span = Span(min(days), max(days), self._zone)
        inside = {row.facts.id for row in rows}
        elsewhere = sum(item["client_transaction_id"] not in inside for item in self._attention())
        return sums.sectioned(span, rows, self._now, terminal=self._terminal, elsewhere=elsewhere, shift=of)

    def _read(self, ids: Iterable[str]) -> tuple[dict[str, Facts], dict[str, Mapping[str, Any]]]:
        """Return the payments of these ids, and what is left of those whose record was removed."""
        found: dict[str, Facts] = {}
        left: dict[str, Mapping[str, Any]] = {}
        for identity in ids:
            try:
                found[identity] = read(self._api.get(f"/transactions/{identity}").body, self._metadata)
            except Problem as problem:
                if problem.code not in ("not_found", "pruned"):
                    raise
                left[identity] = problem.extra
            self._progress(len(found))
        return found, left

    def _others(self, facts: Iterable[Facts]) -> Mapping[str, Facts]:
        known = {item.id: item for item in facts}
        return known | self._read(sorted(standing.related(known.values())))[0]

    def _feed(self, after: int) -> Iterable[Mapping[str, Any]]:
        while True:
            page = self._api.get("/feed", {"after": str(after), "limit": str(PAGE)}).body
            yield from page["changes"]
            if len(page["changes"]) < PAGE:
                return
            after = page["next_after"]

    def _attention(self) -> Iterable[Mapping[str, Any]]:
        query = {"attention": "true", "limit": str(PAGE)}
        while True:
            body = self._api.get("/transactions", query).body
            yield from body["transactions"]
            if body["next_cursor"] is None:
                return
            query["cursor"] = body["next_cursor"]

    def _last(self) -> Closed | None:
        return next(iter(self._page(None, 1)), None)

    def _page(self, before: int | None, limit: int) -> list[Closed]:
        query = {"limit": str(limit)} | ({} if before is None else {"before": str(before)})
        try:
            return [closed.read(item) for item in self._api.get("/shifts", query).body["shifts"]]
        except Problem as problem:
            if problem.code != "not_found":
                raise
            raise click.UsageError(
                "the posd that runs here knows no shifts: it is older than this command"
            ) from problem

    def _post(self, body: Mapping[str, Any]) -> tuple[Closed, bool]:
        """Close a shift; return it and True, or the one that was closed meanwhile and False."""
        try:
            reply = self._api.post("/shifts", body)
        except Unreachable as error:
            advice = "whether the shift was closed is not known: posd report --shift last shows it"
            raise Unreachable(error.socket, error.reason, sent=error.sent, advice=advice) from error
        return closed.read(reply.body), reply.status == 201
