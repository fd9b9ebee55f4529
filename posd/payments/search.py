"""Asking a terminal what it knows of a transaction, and recording what it says (architecture, Doubt)."""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeGuard

import structlog

from posd.base.crashpoints import crash_point
from posd.base.times import iso
from posd.payments import rows
from posd.payments.answers import FINAL_WORDS, RESULTS, Answer, SearchFailed, SearchHit, read_reply, request_body
from posd.payments.attentions import ApprovalChecks
from posd.payments.entries import Searched
from posd.payments.model import SearchResult, Transaction
from posd.payments.record import record, with_unit
from posd.payments.wire import NotAnEvent, TransactionEvent
from posd.records.service import RecordService, ServiceParts
from posd.storage.batch import WriteTransaction

#: Why an element with our id does not count.
FOREIGN = "what it found is of another merchant, or of a terminal not in the fleet"

#: Why an answer is not kept.
TOO_MUCH = "its terminal has sent more today than is kept of it (events_of_terminal)"

log = structlog.get_logger("posd.searching")

#: The device that was asked: its base URL, and the fingerprint of its certificate.
AskedDevice = tuple[str, str | None]


class Searching(RecordService):
    """Sends searches. One at a time a terminal: the reconciler sees to that."""

    def __init__(self, parts: ServiceParts, merchant_id: str, approval_checks: ApprovalChecks) -> None:
        super().__init__(parts)
        self._merchant_id = merchant_id
        self._checks = approval_checks
        #: How often a terminal was asked since the start of the process, by result.
        self.results = Counter(dict.fromkeys(map(str, SearchResult), 0))

    def confirmed(self, terminal: str) -> bool:
        """Whether a person has vouched for search and abort of that terminal: else their answers are no proof."""
        return all(self.confirmed_row(terminal, name) for name in ("search", "abort"))

    def confirmed_row(self, terminal: str, operation: str) -> bool:
        """Whether a person has vouched for that operation of that terminal."""
        known = self._fleet.get(terminal)
        return known is not None and known.vouched(operation)

    def reachable(self, terminal: str) -> bool:
        """Whether the last call or look at a terminal got through, or none has been tried."""
        known = self._fleet.get(terminal)
        return known is not None and known.may_answer

    def found_another(self, db: sqlite3.Connection, terminal: str, client_transaction_id: str) -> bool:
        """Whether this search has found another transaction of the terminal than this one."""
        return terminal in self._fleet and rows.search_found_another(
            db, terminal, self._name(terminal), client_transaction_id
        )

    def _name(self, terminal: str) -> str:
        """What identifies this search among others: method, path, pointer, and whether it is a page."""
        row = self._fleet.of(terminal).rows["search"]
        return f"{row.method} {row.path} {row.pointer}{' paged' if row.paged else ''}".rstrip()

    def reached(self, transaction: Transaction, asked: AskedDevice | None) -> bool:
        """Whether the device that was asked is the one that the start was sent to: another may claim its serial."""
        if asked is None or transaction.sent_to is None:
            return False
        return self._fleet.of(transaction.terminal).was_same_device(transaction.sent_to, *asked)

    async def search(
        self, client_transaction_id: str, terminal: str
    ) -> tuple[Transaction | None, Answer, AskedDevice | None]:
        """Ask, and record the result; return the transaction after it, the answer, and who was asked.

        Raise StorageUnavailable or CommitUncertain where it could not be recorded: it is asked again.
        """
        answer, asked = await self.ask(client_transaction_id, terminal)
        self.results[RESULTS[type(answer)]] += 1
        after = await self._store.write(
            partial(self._record, client_transaction_id=client_transaction_id, answer=answer)
        )
        if isinstance(answer, SearchHit) and after is not None and _kept(after):
            self._quotas.keep_event(terminal, answer.size)
        crash_point("search.recorded")
        log.info(
            "payment.search",
            transaction=client_transaction_id,
            terminal=terminal,
            result=RESULTS[type(answer)],
            reason=answer.reason if isinstance(answer, SearchFailed) else None,
        )
        return after, answer, asked

    async def known_to_work(self, terminal: str, client_transaction_id: str) -> bool:
        """Return whether this search has found another transaction of the terminal than this one.

        Where it was never seen to, it is tried once on the newest one that the terminal ended at the acquirer.
        """
        if terminal not in self._fleet:
            return False
        found = partial(self.found_another, terminal=terminal, client_transaction_id=client_transaction_id)
        if await self._store.read(found):
            return True
        control = await self._store.read(partial(rows.search_control, terminal=terminal))
        if control is None:
            return False
        answer, _ = await self.ask(control, terminal)
        if not self._shows_terminal(answer, terminal):
            return False
        await self._store.write(partial(self._remember, terminal=terminal, client_transaction_id=control))
        return True

    async def ask(self, client_transaction_id: str, terminal: str) -> tuple[Answer, AskedDevice | None]:
        """Ask, and record nothing; return who answers, too: what is announced may be another device."""
        if (known := self._fleet.get(terminal)) is None:
            return SearchFailed(f"terminal {terminal} is not in the fleet"), None
        base_url = await known.choose()
        if base_url is None and (dispute := known.conflict) is not None:
            return SearchFailed(f"it was not asked: {dispute.detail}"), None
        if base_url is None:
            return SearchFailed(f"no address of terminal {terminal} is known"), None
        asked: AskedDevice | None = None
        row = known.rows["search"]
        body = request_body(client_transaction_id) if row.method == "POST" else None
        request = known.request("search", base_url, body, client_transaction_id=client_transaction_id)

        def connected(certificate: str | None) -> None:
            nonlocal asked
            asked = (base_url, certificate)
            known.note_certificate(base_url, certificate)

        crash_point("search.before_send")
        attempt = await known.call(request, connected=connected)
        crash_point("search.replied")
        answer = read_reply(attempt, row.pointer, client_transaction_id, paged=row.paged)
        return self._welcome(answer, terminal), asked

    def _welcome(self, answer: Answer, terminal: str) -> Answer:
        """Leave out what is of another merchant or of a terminal that is not ours, as with events."""
        if not isinstance(answer, SearchHit):
            return answer
        ours = answer.kept(partial(self._is_ours, terminal))
        if ours.usable:
            return ours
        others = (item.serial_number for item in answer.events if self._is_of_merchant(item))
        return SearchFailed(FOREIGN, bears_id=True, serial_number=next(others, None))

    def _is_of_merchant(self, event: TransactionEvent | NotAnEvent) -> TypeGuard[TransactionEvent]:
        ours = ("", self._merchant_id)
        return isinstance(event, TransactionEvent) and (not self._merchant_id or event.merchant_id in ours)

    def _is_ours(self, terminal: str, event: TransactionEvent | NotAnEvent) -> bool:
        if isinstance(event, NotAnEvent):
            return True  # it bears our id; that it cannot be read is for a person to see
        if not self._is_of_merchant(event):
            return False
        serial = event.serial_number  # empty, as the merchant, where it cannot be read
        return serial in (terminal, "") or serial in self._fleet

    def _shows_terminal(self, answer: Answer, terminal: str) -> bool:
        return isinstance(answer, SearchHit) and any(
            isinstance(event, TransactionEvent) and event.serial_number == terminal for event in answer.events
        )

    def _record(self, unit: WriteTransaction, client_transaction_id: str, answer: Answer) -> Transaction | None:
        before = rows.get(unit.db, client_transaction_id)
        if before is None:
            return None
        before = with_unit(unit, before, self._fleet.answer_unit(before.terminal))
        if isinstance(answer, SearchHit) and self._is_too_much(before, answer):
            answer = SearchFailed(TOO_MUCH)
        if self._shows_terminal(answer, before.terminal):
            self._remember(unit, before.terminal, client_transaction_id)
        at = self._now()
        after = record(unit, before, Searched(answer), at, self._outstanding)
        for event in answer.events if isinstance(answer, SearchHit) else ():
            if isinstance(event, NotAnEvent):
                continue
            doubt = self._checks.about(unit.db, before, after, event, self._checks.believed(event, at))
            if doubt is not None:
                after = record(unit, after, doubt, at, self._outstanding)
        return after

    def _is_too_much(self, before: Transaction, answer: SearchHit) -> bool:
        """Whether its terminal has used up what is kept of it today. What ends an open payment is always kept."""
        ends = before.outcome is None and any(
            isinstance(event, TransactionEvent) and event.status in FINAL_WORDS for event in answer.events
        )
        return not ends and self._quotas.limit_of_event(before.terminal, answer.size) is not None

    def _remember(self, unit: WriteTransaction, terminal: str, client_transaction_id: str) -> None:
        rows.remember_search(unit, terminal, self._name(terminal), client_transaction_id, iso(self._now()))


def _kept(after: Transaction) -> bool:
    """Whether what was found was recorded."""
    return after.last_search is not None and after.last_search.result is SearchResult.FOUND


# Turns of the questions to a terminal about its transactions.
#
# A question that is not answered takes as long as `reply_timeout_seconds`, and old transactions in doubt are asked for
# again and again. So those that a person or a till waits for go first. The others get their turns in the pause that
# follows each question for one transaction.

Urgent = Callable[[], bool]


def always() -> bool:
    """What a person asks for is urgent."""
    return True


class CallTurns:
    """So many turns at a time. Of those that wait the urgent ones come first, and each kind in the order of coming."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: dict[asyncio.Future[None], Urgent] = {}

    @property
    def pressed(self) -> bool:
        """Whether one that waits is urgent."""
        return any(urgent() for urgent in self._waiting.values())

    @asynccontextmanager
    async def turn(self, urgent: Urgent) -> AsyncIterator[None]:
        """Hold a turn for the block. `urgent` is called again whenever a place becomes free."""
        await self._enter(urgent)
        try:
            yield
        finally:
            self._leave()

    async def _enter(self, urgent: Urgent) -> None:
        if self._free:
            self._free -= 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[place] = urgent
        try:
            await place
        except asyncio.CancelledError:
            if self._waiting.pop(place, None) is None:  # it has got its turn, and will not use it
                self._leave()
            raise

    def _leave(self) -> None:
        # One that is cancelled is still here until its task resumes; it takes no turn.
        waiting = {place: urgent for place, urgent in self._waiting.items() if not place.done()}
        if not waiting:
            self._free += 1
            return
        first = next(iter(waiting))
        place = next((place for place, urgent in waiting.items() if urgent()), first)
        del self._waiting[place]
        place.set_result(None)
