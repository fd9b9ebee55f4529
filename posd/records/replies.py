"""Replies to callbacks with a valid token: the reasons of a refusal, and the reply for each result. No I/O.

The reply to a wrong token is 403, before the body is read, and nothing is stored. Terminals send events of payments
again after 408, 429 and 5xx. Terminals send a print webhook once, whatever the reply, so posd polls that job.

Source: terminal API, Delivery, Printing.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, Literal

from posd.base import limits
from posd.base.limits import Limit

#: `effect`: store the raw bytes and their effect in one commit.
Keeps = Literal["effect", "quarantine", "nothing"]
#: Retry-After in seconds: for a callback refused by disk or memory, and for a callback above a limit, which lasts
#: longer. Terminals wait longer than the first time, and at most as long as the second.
SOON, LATER = 2, 60


class CallbackResult(Enum):
    """Result of a callback -> status of the reply, stored data, whether an operator is informed, Retry-After (s).

    An attention of the record informs the operator, if the record is known.
    """

    APPLIED = ("applied", 200, "effect")
    REPEATED = ("repeated", 200)  # the callback has nothing new
    REMOVED = ("removed", 200)  # retention has removed its record, and the callback agrees with the stored result
    CONTRADICTS_REMOVED = ("contradicts_removed", 200, "quarantine")
    UNREADABLE = ("unreadable", 400, "quarantine", True)  # the body is no event or print webhook
    OTHER_ID = ("other_id", 400, "quarantine", True)  # the body has another id than the address
    NO_TERMINAL = ("no_terminal", 400, "quarantine", True)  # the body has no serial, and the payment is unknown
    UNSIGNED = ("unsigned", 403, "quarantine", True)
    OTHER_MERCHANT = ("other_merchant", 403, "quarantine", True)
    OTHER_TERMINAL = ("other_terminal", 403, "quarantine", True)  # the terminal is not in the fleet
    EVENT_LIMIT = ("event_limit", 429, "nothing", True, LATER)
    QUARANTINE_LIMIT = ("quarantine_limit", 429, "nothing", True, LATER)  # the terminal has used its budget of the day
    DISK_NEARLY_FULL = ("disk_nearly_full", 503, "nothing", True, SOON)  # the remaining space is for usable callbacks
    NOT_STORED = ("not_stored", 503, "nothing", False, SOON)  # the commit failed, or posd is stopping
    NO_ROOM = ("no_room", 503, "nothing", False, SOON)  # bodies that are being read use all memory for bodies
    FAILED = ("failed", 500, "nothing", False, SOON)  # internal fault of posd
    TOO_SLOW = ("too_slow", 408)
    TOO_LARGE = ("too_large", 413, "nothing", True)
    # Refusals of the HTTP parser, by its error.
    MALFORMED_HTTP = ("malformed", 400, "nothing", True)
    LARGE_HEAD = ("large_head", 431, "nothing", True)
    UNSUPPORTED_HTTP = ("unsupported", 501, "nothing", True)

    def __init__(
        self, word: str, status: int, keeps: Keeps = "nothing", attention: bool = False, retry_after: int | None = None
    ) -> None:
        self.word = word
        self.status = status
        self.keeps = keeps
        self.attention = attention
        self.retry_after = retry_after


#: Refusals of the HTTP parser, by its status.
UNPARSABLE = {
    result.status: result
    for result in (CallbackResult.MALFORMED_HTTP, CallbackResult.LARGE_HEAD, CallbackResult.UNSUPPORTED_HTTP)
}

#: Replies for a usable body above a limit.
UNKEPT: Final[Mapping[Limit, CallbackResult]] = MappingProxyType(
    {
        limits.FREE_FOR_EXTRAS: CallbackResult.DISK_NEARLY_FULL,
        limits.QUARANTINE_OF_TERMINAL: CallbackResult.QUARANTINE_LIMIT,
    }
)


# Reasons to refuse a readable callback.


class RefusedBody(Exception):
    """Authentic body that is unusable, with the reason.

    `serial`: serial of the sending terminal, if it is not in the fleet.
    """

    def __init__(self, result: CallbackResult, reason: str, serial: str | None = None) -> None:
        super().__init__(reason)
        self.result = result
        self.reason = reason
        self.serial = serial


def refusal(
    *,
    signature_fault: str | None = None,
    another: str | None = None,
    merchant: str = "",
    own_merchant: str = "",
    serial: str | None = None,
    is_known: bool = True,
    in_fleet: bool = True,
) -> RefusedBody | None:
    """Return why a readable callback is refused, or None if it is accepted. The first reason counts.

    An omitted argument is not examined. `signature_fault`: why the signature is invalid. `another`: the name of the id
    that differs from the id in the address. `merchant`, `serial`: from the callback, empty if unreadable. An unreadable
    value is no reason to refuse, because the token was given to one terminal for this record. `own_merchant`: the
    configured merchant, if any. `is_known`: whether the record is known. `in_fleet`: whether the terminal is in the
    fleet, or has an open record.

    Source: terminal API, Events.
    """
    if signature_fault:
        return RefusedBody(CallbackResult.UNSIGNED, signature_fault)
    if another:
        return RefusedBody(CallbackResult.OTHER_ID, f"the body names another {another} than the callback address")
    if own_merchant and merchant not in (own_merchant, ""):
        reason = "it is of another merchant than the configured one (merchant.id)"
        return RefusedBody(CallbackResult.OTHER_MERCHANT, reason)
    if serial == "" and not is_known:
        reason = "terminal.serial_number cannot be read, and this payment is not known here"
        return RefusedBody(CallbackResult.NO_TERMINAL, reason)
    if serial and not in_fleet:
        reason = f"terminal {serial} is not in the fleet; if it is yours, add it to [[terminals]]"
        return RefusedBody(CallbackResult.OTHER_TERMINAL, reason, serial)
    return None
