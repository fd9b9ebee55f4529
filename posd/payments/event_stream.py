"""The events of one payment as a stream, which ends with the outcome (local API, Transactions)."""

import sqlite3
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response

from posd.calls import parameters, streams
from posd.calls.context import Context
from posd.calls.stream_documents import Notice
from posd.calls.streams import BATCH_BYTES, NOTICE, OUTCOME, OWN_NAMES, Batch, message
from posd.payments import event_rows, views
from posd.payments.documents import Outcome

#: Reads the outcome of a payment as the API shows it, None while there is none. May raise Problem.
OutcomeOf = Callable[[sqlite3.Connection, str], Outcome | None]


def stream(context: Context, request: Request, identity: str, outcome_of: OutcomeOf) -> Response:
    """Return the stream of a payment that is known. Raise Problem."""
    after = streams.resume_after(request, parameters.LAST_EVENT_ID) or 0
    reader = _Reader(context, identity, outcome_of, after)
    return context.streams.answer(request, "events", identity, reader.read, transaction=identity)


class _Reader:
    """Where one stream is among the events of its payment."""

    def __init__(self, context: Context, identity: str, outcome_of: OutcomeOf, after: int) -> None:
        self._context = context
        self._identity = identity
        self._outcome_of = outcome_of
        self._after = after
        self._looked = not after  # whether the payment has an event of that number

    async def read(self) -> Batch:
        """Return what comes next. Raise Problem."""
        batch, self._after = await self._context.read(self._batch)
        self._looked = True
        return batch

    def _batch(self, db: sqlite3.Connection) -> tuple[Batch, int]:
        data, after = bytearray(), self._after
        if not self._looked and not event_rows.holds(db, self._identity, after):
            data += message(NOTICE, _unknown(after))
            after = 0
        for item in event_rows.each_of_transaction(db, self._identity, after):
            data += message(name(item.status), views.event_document(item), str(item.seq))
            after = item.seq
            if len(data) >= BATCH_BYTES:
                return Batch(bytes(data), more=True), after
        outcome = self._outcome_of(db, self._identity)
        if outcome is not None:
            data += message(OUTCOME, outcome)
        return Batch(bytes(data), last=outcome is not None), after


def name(status: str) -> str:
    """Return the name of an event in the stream: its status, on one line; none that poses as one of posd's own."""
    words = " ".join(status.split())
    return f"unknown:{words}" if words in OWN_NAMES or not words else words


def _unknown(after: int) -> Notice:
    detail = (
        f"the payment has no event {after}: that id is of another payment, or a backup was restored. All of its events "
        "follow"
    )
    return Notice("place_unknown", detail, 0)
