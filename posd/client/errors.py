"""What a call can raise.

A call that starts something raises `Problem` (posd refused) or `Unreachable` (posd did not answer). Both have the two
fields that a till goes by. `never_started`: True means that nothing was ever sent under this id, and the customer may
pay otherwise. False means that the till keeps the id and does what `next_step` says.
"""

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Self

if TYPE_CHECKING:
    from posd.client.states import PrintJob, Transaction

#: Members that a problem of any code can have; the others are the code's own.
_COMMON = frozenset({"type", "title", "status", "detail", "code", "next_step", "never_started"})
#: What a till does where posd says nothing, or a word that this client does not know.
ASK_PERSON = "ask_person"
_NEXT_STEPS = frozenset({"fix_call", "same_call", "new_id_ok", ASK_PERSON})

#: The longest step of the clock that posd does not notice ([clock] max_step_seconds).
CLOCK_STEP = timedelta(seconds=300)


#: What a till can catch: all of this is in `posd.client` too.
__all__ = [
    "AlreadyDerived",
    "AlreadyFinal",
    "AmountExceeds",
    "CallOutstanding",
    "ChainConflict",
    "ClockUnsure",
    "Draining",
    "Expired",
    "Forbidden",
    "ForeignAnswer",
    "IdReused",
    "IdentityConflict",
    "InternalError",
    "InvalidRequest",
    "LimitReached",
    "MalformedJson",
    "MethodNotAllowed",
    "NotAbortable",
    "NotConfigured",
    "NotFound",
    "NothingRunning",
    "OutcomeUnknown",
    "PastPointOfNoReturn",
    "PayloadTooLarge",
    "Problem",
    "Pruned",
    "QueueFull",
    "RequestTimeout",
    "RestoreUnseen",
    "SaleConflict",
    "StillOpen",
    "StillPrinting",
    "StorageUnavailable",
    "TerminalBusy",
    "TerminalOffline",
    "UnknownOriginal",
    "UnknownTerminal",
    "Unreachable",
    "UnsupportedMediaType",
]


class Unreachable(Exception):
    """posd did not answer, or could not look: of what was asked for nothing is known. Repeat the call with the same id.

    `sent` is False where this call provably started nothing (an earlier one with the same id may have), `lasting` is
    True where waiting cannot help.
    """

    next_step: ClassVar[str] = "same_call"
    never_started: ClassVar[bool] = False

    def __init__(self, socket: str, reason: str, *, sent: bool, lasting: bool = False, advice: str = "") -> None:
        super().__init__(f"cannot reach posd on {socket}: {reason}" + (f"; {advice}" if advice else ""))
        self.socket = socket
        self.reason = reason
        self.sent = sent
        self.lasting = lasting


class ForeignAnswer(Unreachable):
    """What answered on the socket is not posd, or not one that this client understands."""

    def __init__(self, socket: str, reason: str, *, status: int, raw: bytes) -> None:
        super().__init__(socket, reason, sent=True, lasting=True)
        self.status = status
        self.raw = raw


class StillOpen(Exception):
    """The caller's time has passed, and no outcome was heard: the transaction goes on, or posd is away.

    `state` is how it stood when posd was heard last, None where it never was.
    """

    def __init__(self, id: str, state: "Transaction | None") -> None:  # noqa: A002 - the field's name
        super().__init__(
            f"transaction {id} is not known to have ended: wait for its outcome again, or abort it; "
            "do not pay again under another id"
        )
        self.id = id
        self.state = state


class OutcomeUnknown(Exception):
    """posd answers, and not with the outcome: a person looks before it is paid again.

    `problem` is what posd said, `extra` what it added. NotFound: posd has no record of it. InternalError: it
    fails, and goes on failing. Pruned: the record was removed; `extra["result"]` is how it ended.

    It is no Problem: the customer may have paid, unless `never_started` is True.
    """

    def __init__(self, id: str, problem: "Problem") -> None:  # noqa: A002 - the field's name
        self.id = id
        self.problem = problem
        self.extra = problem.extra
        self.never_started = problem.never_started
        if isinstance(problem, Pruned):
            words = problem.detail
        elif self.never_started:
            words = f"transaction {id} was never started: nothing was sent, and the customer has not paid"
        else:
            words = (
                f"how transaction {id} ended is not known: {problem.detail}; "
                "look at the terminal and ask the acquirer before it is paid again"
            )
        super().__init__(words)


class StillPrinting(Exception):
    """The caller's time has passed and the print job goes on. `state` is how it stood last, where that was heard."""

    def __init__(self, id: str, state: "PrintJob | None") -> None:  # noqa: A002 - the field's name
        super().__init__(f"print job {id} is not done yet and goes on: wait for its outcome again")
        self.id = id
        self.state = state


class Problem(Exception):
    """posd answered with a problem: its stable `code`, HTTP `status`, what to do (`detail`), the code's own `extra`.

    Of a call that starts something this call sent nothing (InternalError apart), and two fields say what the till does.
    `never_started`: True means that nothing was ever sent under this id: it is not paid. False says nothing of an
    earlier call with this id: keep it. `next_step`: `fix_call`, `same_call`, `ask_person`, `new_id_ok`; `ask_person`
    where posd is older, or newer and says another word.

    A code that this client does not know is a plain Problem.
    """

    #: The class of each code.
    BY_CODE: ClassVar[dict[str, type["Problem"]]] = {}

    def __init__(
        self,
        code: str,
        status: int,
        detail: str,
        extra: Mapping[str, Any],
        raw: bytes = b"",
        *,
        next_step: object = None,
        never_started: object = None,
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.status = status
        self.detail = detail
        self.extra = extra
        #: The answer's bytes.
        self.raw = raw
        self.next_step = next_step if isinstance(next_step, str) and next_step in _NEXT_STEPS else ASK_PERSON
        self.never_started = never_started is True
        self._looked_up = never_started is not None

    def __init_subclass__(cls, *, code: str = "", **rest: Any) -> None:
        super().__init_subclass__(**rest)
        if code:
            Problem.BY_CODE[code] = cls

    @property
    def means_nothing_sent(self) -> bool:
        """Whether this call, if it is one that starts something, sent nothing."""
        return self.status < 500 or self.status in (501, 503)

    @property
    def passes(self) -> bool:
        """Whether posd could not look up what was asked for, and can later."""
        return not self._looked_up and (self.status == 429 or (self.status >= 500 and self.status != 501))

    @property
    def retry_after_seconds(self) -> float | None:
        """The seconds after which posd wants the same call, None where it names none."""
        seconds = self.extra.get("retry_after_seconds")
        return float(seconds) if isinstance(seconds, int) else None

    def compare(self, stored_at: datetime | None) -> Self:
        """Set `never_started` where posd lost records, and the payment was first stored after all of them.

        A time before them proves nothing: a payment can be stored, and asked for much later.
        """
        until = self.extra.get("records_missing_until")
        if self._looked_up and stored_at is not None and isinstance(until, str):
            with suppress(ValueError, TypeError):  # it is no aware time
                self.never_started |= stored_at > datetime.fromisoformat(until) + CLOCK_STEP
        return self


def problem_of(status: int, document: Any, raw: bytes) -> Problem | None:
    """Return the problem that an answer states, None where it is none of posd's."""
    if not isinstance(document, Mapping) or not isinstance(code := document.get("code"), str):
        return None
    detail = document.get("detail") or document.get("title") or code
    extra = {name: value for name, value in document.items() if name not in _COMMON}
    kind = Problem.BY_CODE.get(code, Problem)
    said = {name: document.get(name) for name in ("next_step", "never_started")}
    return kind(code, status, str(detail), extra, raw, **said)


class MalformedJson(Problem, code="malformed_json"):
    """The body is not JSON."""


class InvalidRequest(Problem, code="invalid_request"):
    """The request is not as described; `extra["errors"]` lists `{path, message}`."""


class UnknownTerminal(Problem, code="unknown_terminal"):
    """The terminal is not in the fleet, or none was named and there are several; `extra["fleet"]`."""


class TerminalOffline(Problem, code="terminal_offline"):
    """No address of the terminal is known, or it cannot be reached for an abort."""


class IdentityConflict(Problem, code="identity_conflict"):
    """It is not sure which device is the terminal: `extra["claims"]`. Nothing was sent; a person decides."""


class TerminalBusy(Problem, code="terminal_busy"):
    """An open transaction holds the terminal: `extra["blocking_transaction"]`."""


class IdReused(Problem, code="id_reused"):
    """The id belongs to another request, which was started; `extra["fields"]` differ."""


class SaleConflict(Problem, code="sale_conflict"):
    """The sale has another open or approved payment: `extra["transactions"]`."""


class AlreadyDerived(Problem, code="already_derived"):
    """The original has another such operation: `extra["transactions"]`."""


class ChainConflict(Problem, code="chain_conflict"):
    """Another operation of the same chain is open, or has ended it: `extra["transactions"]`."""


class AmountExceeds(Problem, code="amount_exceeds"):
    """It is more than the original, or `max_amount`, allows: `extra["asked"]`, `["allowed"]`, `["transactions"]`."""


class Expired(Problem, code="expired"):
    """Its `not_after` has passed: it was not started. `extra["not_after"]`, `extra["now"]`."""


class UnknownOriginal(Problem, code="unknown_original"):
    """Nothing can be derived from that original."""


class RestoreUnseen(Problem, code="restore_unseen"):
    """posd's database was restored or has gone back: the id may have been sent before, and a person has to look."""


class NotFound(Problem, code="not_found"):
    """posd does not know it."""


class Pruned(Problem, code="pruned"):
    """It is so old that its record was removed; it was started once, and never will be again."""


class PastPointOfNoReturn(Problem, code="past_point_of_no_return"):
    """Too late to abort: the acquirer was already asked."""


class AlreadyFinal(Problem, code="already_final"):
    """It has already ended: `extra["outcome"]`."""


class NothingRunning(Problem, code="nothing_running"):
    """The terminal says that it runs nothing; posd searches for what became of it by itself."""


class NotAbortable(Problem, code="not_abortable"):
    """No abort may be sent for it."""


class CallOutstanding(Problem, code="call_outstanding"):
    """A call to the terminal is under way; decide once it has ended."""


class NotConfigured(Problem, code="not_configured"):
    """The terminal profile has no such operation."""


class QueueFull(Problem, code="queue_full"):
    """Too many print jobs wait."""


class LimitReached(Problem, code="limit_reached"):
    """This program has too many connections or streams, or has started too much today: `extra["limit"]`."""


class StorageUnavailable(Problem, code="storage_unavailable"):
    """The database cannot be read or written now."""


class ClockUnsure(Problem, code="clock_unsure"):
    """The clock of posd's machine cannot be believed, and the call needs the time (`not_after`, a removal)."""


class Draining(Problem, code="draining"):
    """posd is stopping; the client waits until it is back, so this is seldom seen."""


class Forbidden(Problem, code="forbidden"):
    """A call for operators: it is made on the admin socket."""


class MethodNotAllowed(Problem, code="method_not_allowed"):
    """posd has no such call: it is older than this client."""


class RequestTimeout(Problem, code="request_timeout"):
    """The call took too long to arrive."""


class PayloadTooLarge(Problem, code="payload_too_large"):
    """The body is too large: `extra["limit_bytes"]`."""


class UnsupportedMediaType(Problem, code="unsupported_media_type"):
    """The body must be JSON."""


class InternalError(Problem, code="internal_error"):
    """A fault of posd, in its log under `extra["error_id"]`."""
