"""Replies to callbacks with a valid token: each result with its reply and its reason, and the checks. No I/O.

The reply to a wrong token is 403, before the body is read, and nothing is stored. Terminals send events of payments
again after 408, 429 and 5xx. Terminals send a print webhook once, for any reply, so posd polls that job.

Source: terminal API, Delivery, Printing.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, Literal, Self

from posd.base import limits
from posd.base.limits import Limit
from posd.base.text import Text

#: Stored data of a callback. `effect`: the raw bytes and their effect, in one commit.
Keeps = Literal["effect", "quarantine", "nothing"]
#: Retry-After in seconds: SOON if disk or memory is short, LATER above a limit, because a limit lasts longer. A
#: terminal itself waits longer than SOON and at most LATER.
SOON, LATER = 2, 60


def _unusable(word: str, status: int, en: str = "", es: str = "") -> tuple[str, int, Keeps, bool, None, Text]:
    """Return the row of a body that is kept in quarantine.

    Without texts, the caller that refuses the body gives the reason.
    """
    return (word, status, "quarantine", True, None, Text(en, es))


class CallbackResult(Enum):
    """Result of a callback, with status of the reply, stored data, attention, Retry-After (s), and reason.

    `attention`: whether to inform an operator. If the record is known, it gets the attention. The operator reads the
    reason, also in Spanish. Placeholders for values are in braces.
    """

    APPLIED = ("applied", 200, "effect")
    REPEATED = ("repeated", 200)  # the callback has nothing new
    REMOVED = ("removed", 200)  # retention has removed the record, and the callback agrees with its stored result
    CONTRADICTS_REMOVED = ("contradicts_removed", 200, "quarantine")
    # The body is not an event or print webhook.
    NOT_JSON = _unusable("not_json", 400)  # the parser of JSON provides the reason
    NO_OBJECT = _unusable("no_object", 400, "it is not a JSON object", "no es un objeto JSON")
    TWO_VALUES = _unusable(
        "two_values",
        400,
        "{name} appears more than once, with different values",
        "{name} aparece más de una vez, con valores distintos",
    )
    NO_SUBJECT = _unusable(
        "no_subject",
        400,
        "it has neither a client_transaction_id nor a terminal.serial_number",
        "no tiene client_transaction_id ni terminal.serial_number",
    )
    NO_STATUS = _unusable(
        "no_status",
        400,
        "status is missing or not a string that can be read",
        "status falta, o no es un texto que se pueda leer",
    )
    DAMAGED_STATUS = _unusable("damaged_status", 400, "status cannot be read", "status no se puede leer")
    NO_TEXT = _unusable("no_text", 400, "{name} is missing or not a text", "{name} falta, o no es un texto")
    LONG_TEXT = _unusable(
        "long_text", 400, "{name} is longer than {most} characters", "{name} tiene más de {most} caracteres"
    )
    # The body is for another record, or from another sender.
    OTHER_ID = _unusable(
        "other_id",
        400,
        "the body names another {name} than the callback address",
        "el {name} del cuerpo no es el de la dirección",
    )
    NO_TERMINAL = _unusable(
        "no_terminal",
        400,
        "terminal.serial_number cannot be read, and this payment is not known here",
        "terminal.serial_number no se puede leer, y aquí no se conoce este pago",
    )
    UNSIGNED = _unusable("unsigned", 403)  # the check of the signature provides the reason
    OTHER_MERCHANT = _unusable(
        "other_merchant",
        403,
        "it is of another merchant than the configured one (merchant.id)",
        "es de otro comercio, no del de la configuración (merchant.id)",
    )
    OTHER_TERMINAL = _unusable(
        "other_terminal",
        403,
        "terminal {serial} is not in the fleet; if it is yours, add it to [[terminals]]",
        "el terminal {serial} no está en la configuración; si es suyo, agréguelo a [[terminals]]",
    )
    EVENT_LIMIT = ("event_limit", 429, "nothing", True, LATER)
    QUARANTINE_LIMIT = ("quarantine_limit", 429, "nothing", True, LATER)  # the terminal has used its budget of the day
    DISK_NEARLY_FULL = ("disk_nearly_full", 503, "nothing", True, SOON)  # the remaining space is for usable callbacks
    NOT_STORED = ("not_stored", 503, "nothing", False, SOON)  # the commit failed, or posd is stopping
    NO_ROOM = ("no_room", 503, "nothing", False, SOON)  # the memory for bodies is full
    FAILED = ("failed", 500, "nothing", False, SOON)  # internal fault of posd
    TOO_SLOW = ("too_slow", 408)
    TOO_LARGE = ("too_large", 413, "nothing", True)
    # Refusals of the HTTP parser, by its error.
    MALFORMED_HTTP = ("malformed", 400, "nothing", True)
    LARGE_HEAD = ("large_head", 431, "nothing", True)
    UNSUPPORTED_HTTP = ("unsupported", 501, "nothing", True)

    def __init__(
        self,
        word: str,
        status: int,
        keeps: Keeps = "nothing",
        attention: bool = False,
        retry_after: int | None = None,
        reason: Text = Text("", ""),  # noqa: B008 - it never changes
    ) -> None:
        self.word = word
        self.status = status
        self.keeps = keeps
        self.attention = attention
        self.retry_after = retry_after
        self.reason = reason

    def explain(self, **values: object) -> str:
        """Return the reason in English, as it is stored. A row without texts needs the value `reason`."""
        return self.reason.en.format(**values) or str(values["reason"])


#: Refusals of the HTTP parser, by its status.
UNPARSABLE = {
    result.status: result
    for result in (CallbackResult.MALFORMED_HTTP, CallbackResult.LARGE_HEAD, CallbackResult.UNSUPPORTED_HTTP)
}

#: Limit -> reply to an unusable body that is not kept because of the limit.
UNKEPT: Final[Mapping[Limit, CallbackResult]] = MappingProxyType(
    {
        limits.FREE_FOR_EXTRAS: CallbackResult.DISK_NEARLY_FULL,
        limits.QUARANTINE_OF_TERMINAL: CallbackResult.QUARANTINE_LIMIT,
    }
)


class UnreadableBody(ValueError):
    """Error for a body that is not an event or print webhook. The message is the reason."""

    def __init__(self, result: CallbackResult, **values: str | int) -> None:
        super().__init__(result.explain(**values))
        self.result = result
        self.values = values

    def alone(self) -> Self:
        """Return a copy of this error without its cause and its traceback, which reference the whole body."""
        return type(self)(self.result, **self.values)


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
    value is no reason to refuse the callback, because posd gave the token only to the terminal of this record.
    `own_merchant`: the configured merchant, if any. `is_known`: whether the record is known. `in_fleet`: whether the
    terminal is in the fleet, or has an open record.

    Source: terminal API, Events.
    """
    if signature_fault:
        return _refused(CallbackResult.UNSIGNED, reason=signature_fault)
    if another:
        return _refused(CallbackResult.OTHER_ID, name=another)
    if own_merchant and merchant not in (own_merchant, ""):
        return _refused(CallbackResult.OTHER_MERCHANT)
    if serial == "" and not is_known:
        return _refused(CallbackResult.NO_TERMINAL)
    if serial and not in_fleet:
        return RefusedBody(CallbackResult.OTHER_TERMINAL, CallbackResult.OTHER_TERMINAL.explain(serial=serial), serial)
    return None


def _refused(result: CallbackResult, **values: object) -> RefusedBody:
    return RefusedBody(result, result.explain(**values))
