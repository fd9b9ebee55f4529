"""Errors of a call: a `PosdError`, whose `never_started` and `next_step` tell the till what to do."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Self

#: Members of a problem of any code; the others belong to the code.
_COMMON = frozenset({"type", "title", "status", "detail", "code", "next_step", "never_started"})
#: Next steps without a word of posd, or with an unknown one.
ASK_PERSON = "ask_person"
SAME_CALL = "same_call"
#: Code of the response while posd stops.
_STOPPING = "draining"
_NEXT_STEPS = frozenset({"fix_call", SAME_CALL, "new_id_ok", ASK_PERSON})


class PosdError(Exception):
    """A failed call. A till decides by `never_started` and `next_step` only.

    `never_started`: True means that nothing was ever sent under this id. It is not paid, and the till can forget the
    id. False proves nothing: the till stores the id, and follows `next_step`: `same_call` (repeat the call with the
    same id, after `retry_after_seconds`), `fix_call`, `new_id_ok`, or `ask_person`.

    `sent`: False if this call provably started nothing; an earlier one with the same id may have. `passes`: posd could
    not check, and can later. `away`: it is stopped, starting or stopping. `lasting`: waiting seldom helps.
    """

    never_started: bool = False
    next_step: str = ASK_PERSON
    retry_after_seconds: float | None = None
    sent: bool = False
    passes: bool = False
    away: bool = False
    lasting: bool = False


class Unreachable(PosdError):
    """No response of posd, or posd is stopping, or could not check. The till repeats the call with the same id."""

    next_step = SAME_CALL
    passes = away = True

    def __init__(self, socket: str, reason: str, *, sent: bool, lasting: bool = False, advice: str = "") -> None:
        super().__init__(f"cannot reach posd on {socket}: {reason}" + (f"; {advice}" if advice else ""))
        self.socket = socket
        self.reason = reason
        self.sent = sent
        self.lasting = lasting


class ForeignAnswer(Unreachable):
    """Response of another program on the socket, or of an incompatible posd."""

    passes = away = False

    def __init__(self, socket: str, reason: str, *, status: int, raw: bytes) -> None:
        super().__init__(socket, reason, sent=True, lasting=True)
        self.status = status
        self.raw = raw


class Problem(PosdError):
    """Problem in posd's response: its stable `code`, HTTP `status`, the next step (`detail`), the code's own `extra`.

    `next_step` is `ask_person` if posd is older, or newer with another word.
    """

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
        #: Bytes of the response.
        self.raw = raw
        self.next_step = next_step if isinstance(next_step, str) and next_step in _NEXT_STEPS else ASK_PERSON
        self.never_started = never_started is True
        seconds = extra.get("retry_after_seconds")
        self.retry_after_seconds = float(seconds) if isinstance(seconds, int) else None
        self.away = code == _STOPPING
        self.sent = self.lasting = status >= 500 and status not in (501, 503)
        self.passes = never_started is None and (status == 429 or status >= 500)  # otherwise it was looked up

    def compare(self, stored_at: datetime | None) -> Self:
        """Set `never_started` if posd lost records, and the payment was first stored after all of them.

        A time before them proves nothing: a payment can be stored, and requested much later.
        """
        until = self.extra.get("records_missing_until")
        if stored_at is not None and isinstance(until, str):
            with suppress(ValueError, TypeError):  # it is no aware time
                self.never_started |= stored_at > datetime.fromisoformat(until)
        return self


def problem_of(status: int, document: Any, raw: bytes) -> Problem | None:
    """Return the problem in a response, or None if it is none of posd's."""
    if not isinstance(document, Mapping) or not isinstance(code := document.get("code"), str):
        return None
    detail = document.get("detail") or document.get("title") or code
    extra = {name: value for name, value in document.items() if name not in _COMMON}
    said = {name: document.get(name) for name in ("next_step", "never_started")}
    return Problem(code, status, str(detail), extra, raw, **said)


class OutcomeUnknown(PosdError):
    """Response without the outcome: a person checks before it is paid again, unless `never_started` is True.

    `problem`: posd's response. `extra`: its further members; if the record was removed, `extra["result"]` is the
    result.
    """

    def __init__(self, id: str, problem: Problem) -> None:  # noqa: A002 - the field's name
        self.id = id
        self.problem = problem
        self.extra = problem.extra
        self.never_started = problem.never_started
        if self.never_started:
            words = f"transaction {id} was never started: nothing was sent, and the customer has not paid"
        elif "result" in self.extra:
            words = problem.detail
        else:
            words = (
                f"how transaction {id} ended is not known: {problem.detail}; "
                "look at the terminal and ask the acquirer before it is paid again"
            )
        super().__init__(words)
