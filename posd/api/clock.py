"""Calls on the clock, for operators: its witnesses, the waiting work, and an operator's confirmation."""

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from posd.base.json_types import Moment, WireFormat
from posd.base.problems import Problem
from posd.base.times import iso
from posd.calls.app import json_response
from posd.calls.context import CallContext
from posd.clock.clock import REMEDY, Confirmation, Stretch, WallClock, last_confirmation
from posd.clock.rules import Doubt, Kernel, TerminalTimes
from posd.records.request import (
    MAX_NOTE_CHARACTERS,
    MAX_OPERATOR_CHARACTERS,
    check,
    read_body,
)
from posd.storage.errors import CommitUncertain, StorageUnavailable

#: Work that waits while the clock is not trusted.
WAITING = (
    "retention and posd prune: nothing is removed",
    "certificates: none is made or renewed",
    "reports: they are marked",
)


class Witnesses(msgspec.Struct, frozen=True):
    """What speaks for the clock, and against it."""

    now: Annotated[Moment, Meta(description="what the clock says")]
    highest: Annotated[Moment | None, Meta(description="the highest trusted time, null before the first")]
    confirmed: Annotated[
        Moment | None, Meta(description="up to here the time is confirmed: retention goes by it; null before any was")
    ]
    built: Annotated[Moment, Meta(description="when this version was made")]
    kernel: Annotated[Kernel, Meta(description="whether a time service keeps the clock, as far as the kernel says")]
    terminals: Annotated[TerminalTimes, Meta(description="what the terminals' events say")]
    max_step_seconds: Annotated[float, Meta(description="the largest step that is usual (`clock.max_step_seconds`)")]


class ClockState(msgspec.Struct, frozen=True):
    """Whether posd trusts the clock, and why not."""

    sure: Annotated[bool, Meta(description="whether posd trusts it")]
    reason: Annotated[Doubt | None, Meta(description="why not, as a word, null if it does")]
    detail: Annotated[str, Meta(description="the same for people, empty if posd trusts it")]
    todo: Annotated[str, Meta(description="what to do, empty if there is nothing")]
    since: Annotated[Moment | None, Meta(description="the last trusted time, null if posd trusts it now")]
    unsure: Annotated[list[Stretch], Meta(description="when posd did not trust it, the newest first")]
    waiting: Annotated[list[str], Meta(description="what waits until posd trusts it")]
    witnesses: Annotated[Witnesses, Meta(description="what speaks for it, and against it")]
    confirmation: Annotated[Confirmation | None, Meta(description="the last word of a person, null without one")]


class ClockRequest(msgspec.Struct, frozen=True):
    """A person says that the clock of this machine is right now."""

    operator: Annotated[str, Meta(description="who", min_length=1, max_length=MAX_OPERATOR_CHARACTERS, pattern="\\S")]
    note: Annotated[
        str | None,
        WireFormat(Annotated[str, Meta(max_length=MAX_NOTE_CHARACTERS)] | None),
        Meta(description="how it was compared, if there is something to say"),
    ] = None


class ClockCalls:
    """Handlers of /v1/clock."""

    def __init__(self, context: CallContext, clock: WallClock) -> None:
        self._context = context
        self._clock = clock

    async def get_clock(self, _request: Request) -> Response:
        """`GET /clock`: the witnesses, and what waits."""
        return json_response(await self._state())

    async def confirm_clock(self, request: Request) -> Response:
        """`POST /clock/confirm`: record an operator's confirmation of the clock."""
        asked = read_confirmation(request.state.body)
        try:
            await self._clock.confirm(asked.operator, asked.note or "", request.state.uid)
        except (StorageUnavailable, CommitUncertain) as error:
            raise Problem("storage_unavailable", f"cannot do it now: {error}; check the disk, and try again") from error
        return json_response(await self._state())

    async def _state(self) -> ClockState:
        said = await self._context.read(last_confirmation)
        clock, detail = self._clock, self._clock.doubt
        known = clock.known
        return ClockState(
            sure=detail is None,
            reason=clock.reason,
            detail=detail or "",
            todo=REMEDY if detail is not None else "",
            since=None if clock.stretch is None else clock.stretch.since,
            unsure=[*filter(None, (clock.stretch,)), *clock.past],
            waiting=list(WAITING) if detail is not None else [],
            witnesses=Witnesses(
                now=iso(clock.reading.wall),
                highest=None if known is None else iso(known.highest),
                confirmed=None if known is None else iso(known.confirmed),
                built=iso(clock.built),
                kernel=clock.kernel,
                terminals=clock.terminals,
                max_step_seconds=clock.limit.total_seconds(),
            ),
            confirmation=said,
        )


def read_confirmation(body: bytes) -> ClockRequest:
    """Read the body of `POST /clock/confirm`. Raise Problem."""
    reader = read_body(ClockRequest, body, "nothing was changed")
    operator = reader.required_text("operator", MAX_OPERATOR_CHARACTERS)
    note = reader.text("note", MAX_NOTE_CHARACTERS, least=0)
    check(reader.faults, "the clock was not confirmed")
    return ClockRequest(operator, (note or "").strip())
