"""Search for a transaction on a terminal. The result is recorded on the transaction (architecture, Doubt)."""

import sqlite3
from collections import Counter
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

#: Why an element with the searched id is not used.
FOREIGN = "it found a payment of another merchant, or of a terminal not in the fleet"

#: Why the result of a search is not stored.
TOO_MUCH = "its terminal has sent more today than posd keeps (events_of_terminal)"

log = structlog.get_logger("posd.searching")

#: The device that was asked: its base URL, and the fingerprint of its certificate.
AskedDevice = tuple[str, str | None]


class Searching(RecordService):
    """Sender of searches. The reconciler sends one search at a time to each terminal."""

    def __init__(self, parts: ServiceParts, merchant_id: str, approval_checks: ApprovalChecks) -> None:
        super().__init__(parts)
        self._merchant_id = merchant_id
        self._checks = approval_checks
        #: Number of searches since the start of the process, by result.
        self.results = Counter(dict.fromkeys(map(str, SearchResult), 0))

    def confirmed(self, terminal: str) -> bool:
        """Whether an operator vouches for the search and the abort of a terminal, so that their replies are proof."""
        return all(self.confirmed_row(terminal, name) for name in ("search", "abort"))

    def confirmed_row(self, terminal: str, operation: str) -> bool:
        """Whether an operator vouches for an operation of a terminal."""
        known = self._fleet.get(terminal)
        return known is not None and known.vouched(operation)

    def reachable(self, terminal: str) -> bool:
        """Whether a terminal has an address at which the last call or probe did not fail."""
        known = self._fleet.get(terminal)
        return known is not None and known.addresses.may_answer

    def found_another(self, db: sqlite3.Connection, terminal: str, client_transaction_id: str) -> bool:
        """Whether the search on this terminal has ever found a transaction other than `client_transaction_id`."""
        return terminal in self._fleet and rows.search_found_another(
            db, terminal, self._name(terminal), client_transaction_id
        )

    def _name(self, terminal: str) -> str:
        """Return the key of a terminal's search: method, path, pointer, and whether the reply is a page."""
        row = self._fleet.of(terminal).rows["search"]
        return f"{row.method} {row.path} {row.pointer}{' paged' if row.paged else ''}".rstrip()

    def reached(self, transaction: Transaction, asked: AskedDevice | None) -> bool:
        """Whether the device that was asked received the start. Another device may have the address now."""
        if asked is None or transaction.sent_to is None:
            return False
        return self._fleet.of(transaction.terminal).addresses.was_same_device(transaction.sent_to, *asked)

    async def search(
        self, client_transaction_id: str, terminal: str
    ) -> tuple[Transaction | None, Answer, AskedDevice | None]:
        """Search for a transaction, and record the result. Return the changed transaction, the result, and the device.

        Raise StorageUnavailable or CommitUncertain if the result could not be recorded. Then the caller repeats the
        search.
        """
        answer, asked = await self.ask(client_transaction_id, terminal)
        self.results[RESULTS[type(answer)]] += 1
        after = await self._store.write(
            partial(self._record, client_transaction_id=client_transaction_id, answer=answer)
        )
        last = after.last_search if after is not None else None
        if isinstance(answer, SearchHit) and last is not None and last.result is SearchResult.FOUND:
            self._quotas.keep_event(terminal, answer.size)  # the found elements were recorded
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
        """Return whether the search on a terminal has ever found a transaction other than `client_transaction_id`.

        If it has not, try the search on the terminal's newest transaction that the acquirer decided.
        """
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
        """Search without recording the result.

        Return the result and the device that was asked. Another device may have received the start.
        """
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
        """Return the result without elements of another merchant, or of a terminal outside the fleet.

        posd refuses events of these too.
        """
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
            return True  # an operator should see that an element with the searched id is unreadable
        if not self._is_of_merchant(event):
            return False
        serial = event.serial_number  # an unreadable serial or merchant is empty
        return serial in (terminal, "") or serial in self._fleet

    def _shows_terminal(self, answer: Answer, terminal: str) -> bool:
        return isinstance(answer, SearchHit) and any(
            isinstance(event, TransactionEvent) and event.serial_number == terminal for event in answer.events
        )

    def _record(self, unit: WriteTransaction, client_transaction_id: str, answer: Answer) -> Transaction | None:
        before = rows.get(unit.db, client_transaction_id)
        if before is None:
            return None
        before = with_unit(unit, before, self._fleet, before.terminal)
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
        """Whether a result exceeds the terminal's quota of stored data. The end of an open payment is always stored."""
        ends = before.outcome is None and any(
            isinstance(event, TransactionEvent) and event.status in FINAL_WORDS for event in answer.events
        )
        return not ends and self._quotas.limit_of_event(before.terminal, answer.size) is not None

    def _remember(self, unit: WriteTransaction, terminal: str, client_transaction_id: str) -> None:
        rows.remember_search(unit, terminal, self._name(terminal), client_transaction_id, iso(self._now()))
