"""Replies to callbacks with a valid token, by the result of the callback. No I/O.

A wrong token gets 403 before the body is read, and leaves nothing on disk. Terminals send events of payments again
after 408, 429 and 5xx. They send a print webhook once, whatever the reply, so posd polls that job.

Source: terminal API, Delivery, Printing.
"""

from enum import Enum
from typing import Literal

#: `effect`: the raw bytes and their effect, in one commit.
Keeps = Literal["effect", "quarantine", "nothing"]
#: Retry-After, in seconds: if disk or memory refuse a callback, and above a limit, which lasts longer. Terminals wait
#: longer than the first, and at most as long as the second.
SOON, LATER = 2, 60


class CallbackResult(Enum):
    """Result of a callback -> status of the reply, what is stored, whether an operator is informed, Retry-After (s).

    An attention of the record informs the operator, if the record is known.
    """

    APPLIED = ("applied", 200, "effect")
    REPEATED = ("repeated", 200)  # it has nothing new
    REMOVED = ("removed", 200)  # retention has removed its record, and it repeats what was known
    CONTRADICTS_REMOVED = ("contradicts_removed", 200, "quarantine")
    UNREADABLE = ("unreadable", 400, "quarantine", True)  # it is not an event, or not a print webhook
    OTHER_ID = ("other_id", 400, "quarantine", True)  # it names another record than its address
    NO_TERMINAL = ("no_terminal", 400, "quarantine", True)  # it names no terminal, and its payment is unknown
    UNSIGNED = ("unsigned", 403, "quarantine", True)
    OTHER_MERCHANT = ("other_merchant", 403, "quarantine", True)
    OTHER_TERMINAL = ("other_terminal", 403, "quarantine", True)  # its terminal is not in the fleet
    EVENT_LIMIT = ("event_limit", 429, "nothing", True, LATER)
    QUARANTINE_LIMIT = ("quarantine_limit", 429, "nothing", True, LATER)  # its terminal has used its budget of the day
    DISK_NEARLY_FULL = ("disk_nearly_full", 503, "nothing", True, SOON)  # what is left is for what can be applied
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
