"""Inbox of callbacks with a valid token: the shared part of payments and print jobs.

The reply follows the commit. An unusable body is stored in the quarantine, and posd asks the terminal about the payment
or print job. `base.replies` has the replies.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic

import msgspec
import structlog

from posd.base.limits import Limit
from posd.base.replies import UNKEPT, CallbackResult, RefusedBody
from posd.records import quarantine
from posd.records.model import Phase, Quarantined, Reapplied
from posd.records.quarantine import QuarantineEntry, ReceivedCallback
from posd.records.quotas import sender as sender_of
from posd.records.service import ServiceParts
from posd.records.table import R, RecordKind
from posd.storage import CommitUncertain, StorageUnavailable
from posd.storage.batch import WriteTransaction
from posd.terminals import authentication

log = structlog.get_logger("posd.inbox")


class UnreadableCallback(msgspec.Struct, frozen=True):
    """A callback with a valid token, but without a readable body. The fields have the reply, the reason and the sender.

    `limit_bytes`: the limit that the body exceeds, if that is the reason. `detail`: the error of the HTTP parser.
    """

    result: CallbackResult
    reason: str
    peer: str
    limit_bytes: int | None = None
    detail: str = ""


class CallbackReceipt(msgspec.Struct, frozen=True):
    """Result of one callback, and the facts for the log."""

    result: CallbackResult
    terminal: str | None = None  # the terminal of the record, if known
    verdict: str | None = None
    states: str | None = None  # the status in the callback
    reason: str | None = None  # why the callback is unusable
    phase: Phase | None = None
    limit: Limit | None = None  # limit that the callback exceeds
    kept_of: str | None = None  # sender whose quota the stored body reduces
    updates_terminal: bool = False  # see `RecordState.updates_terminal`
    asks: bool = False  # whether to query the terminal, because a limit was reached for the first time


@dataclass(eq=False)
class CallbackInbox(Generic[R]):
    """Steps that the inboxes of payments and of print jobs share.

    `record` applies and stores an entry. `on_unusable` is called with the id of a record after a callback that was
    unusable or could not be stored. Then posd queries the terminal about the record. `comes_once`: whether the terminal
    sends each callback only once.
    """

    kind: RecordKind[R, Any]
    parts: ServiceParts
    record: Callable[[WriteTransaction, R, Quarantined | Reapplied, datetime], R]
    on_unusable: Callable[[str], None]
    comes_once: bool
    #: Terminals whose headers were logged since the start of the process.
    _known_headers: set[str] = field(default_factory=set, init=False)
    #: Number of repeated callbacks since the start of the process. The terminal had not received the earlier reply.
    repeated: int = field(default=0, init=False)

    def committed(self, identity: str, came: ReceivedCallback, receipt: CallbackReceipt) -> None:
        """Log the result of a callback after its commit, and reduce the quota of the sender."""
        terminal = receipt.terminal
        if receipt.updates_terminal and terminal and terminal not in self._known_headers:
            self._known_headers.add(terminal)
            log.info(
                "webhook.headers",
                terminal=terminal,
                kind=self.kind.channel,
                detail=authentication.header_names(came.headers),
            )
        self.repeated += receipt.result in (CallbackResult.REPEATED, CallbackResult.REMOVED)
        if receipt.reason is not None:
            status = receipt.result.status
            log.warning("webhook.quarantined", **self.kind.named(identity), http_status=status, reason=receipt.reason)
        if receipt.limit is not None:
            self.parts.quotas.reached.count(receipt.limit)
        elif receipt.kept_of is not None:
            keep = self.parts.quotas.keep_body if receipt.verdict is None else self.parts.quotas.keep_event
            keep(receipt.kept_of, len(came.body))
        if receipt.reason is not None or receipt.asks:
            self.on_unusable(identity)

    def refuse(
        self, unit: WriteTransaction, identity: str, refusal: RefusedBody, came: ReceivedCallback
    ) -> CallbackReceipt:
        """Refuse an unusable body. If `refusal.result` says so, store it in the quarantine. Runs inside the commit."""
        known = self.kind.get(unit.db, identity)
        terminal = known.terminal if known is not None else None
        updates = known is not None and known.updates_terminal
        sender: str | None = sender_of(terminal, updates_terminal=updates) if terminal else came.peer
        result, reason = refusal.result, refusal.reason
        if (limit := self.parts.quotas.limit_of_body(sender or came.peer, len(came.body))) is not None:
            result, reason = UNKEPT[limit], quarantine.NOT_KEPT
        elif result.keeps == "nothing":  # the terminal sends it again
            sender = None
        elif not quarantine.put(unit, self.kind.channel, identity, reason, came):
            # All later callbacks get the same reason, because each new reason would be stored as a change.
            what = f"{quarantine.MAX_KEPT} callbacks of this {self.kind.noun}"
            reason = f"{what} are in quarantine already; more are not kept"
            sender = None
        if result.attention and known is not None:
            self.record(unit, known, Quarantined(reason, refusal.serial), came.at)
        return CallbackReceipt(result, terminal, reason=reason, limit=limit, kept_of=sender, updates_terminal=updates)

    async def lose(
        self, identity: str, lost: UnreadableCallback, at: datetime, settled: Callable[[R], bool] = lambda _known: False
    ) -> CallbackResult:
        """Record an unreadable callback, and query the terminal about the payment or print job. Return the reply.

        `settled`: returns whether another unusable callback would only change the reason. Then nothing is recorded.
        """

        def work(unit: WriteTransaction) -> None:
            known = self.kind.get(unit.db, identity)
            if known is not None and not settled(known):
                self.record(unit, known, Quarantined(lost.reason), at)

        subject = self.kind.named(identity)
        if lost.limit_bytes is not None:
            log.warning("webhook.too_large", **subject, limit_bytes=lost.limit_bytes, peer=lost.peer)
        else:
            log.warning("webhook.unreadable", **subject, reason=lost.reason, detail=lost.detail, peer=lost.peer)
        try:
            await self.parts.store.write(work)
        except (StorageUnavailable, CommitUncertain) as error:
            return self.not_stored(identity, error).result
        self.on_unusable(identity)
        return lost.result

    def take_out(self, unit: WriteTransaction, item: QuarantineEntry, at: datetime) -> None:
        """Remove an applied body from the quarantine. If it was the last one of its subject, store `Reapplied`."""
        if not quarantine.take_out(unit, item) and (known := self.kind.get(unit.db, item.subject)) is not None:
            self.record(unit, known, Reapplied(), at)

    def not_stored(self, identity: str, error: Exception) -> CallbackReceipt:
        """Log that the commit of a callback failed. Return the receipt."""
        detail = "the terminal does not send it again; a poll will find it when the disk has room"
        once = self.comes_once
        log.warning(
            "webhook.not_stored", **self.kind.named(identity), error=str(error), detail=detail if once else None
        )
        self.on_unusable(identity)  # a terminal may stop sending before the disk has room
        # Without the commit, posd cannot tell whether the record is open. A fault of posd must not exclude a terminal,
        # so the sender's address counts as known (`httpd.admission`).
        return CallbackReceipt(CallbackResult.NOT_STORED, updates_terminal=True)
