"""Call to record an operator's decision which device is a terminal (local API, Terminals)."""

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from posd.calls import parameters
from posd.calls.app import json_response
from posd.calls.context import CallContext
from posd.payments import rows
from posd.records.request import DecisionRow, FieldReader, Signed, decided
from posd.records.terminal_addresses import IdentityDecisions
from posd.terminals.fleet import Fleet

#: Longest base URL, in characters.
MAX_URL = 300


class IdentityDecision(Signed, frozen=True):
    """Which of the claims is the terminal."""

    base_url: Annotated[
        str,
        Meta(
            description="the address of the device that is the terminal, as `identity.claims` has it",
            min_length=1,
            max_length=MAX_URL,
            pattern=r"\S",
        ),
    ]


class _Decision(msgspec.Struct, frozen=True):
    operator: str
    note: str
    uid: int | None
    base_url: str


def _read(reader: FieldReader, operator: str, note: str, uid: int | None) -> _Decision:
    return _Decision(operator, note, uid, reader.required_text("base_url", MAX_URL))


ROW: DecisionRow[_Decision] = (_read, IdentityDecision)


class IdentityCalls:
    """Handlers of /v1/terminals/{serial}/identity."""

    def __init__(self, context: CallContext, fleet: Fleet, decisions: IdentityDecisions) -> None:
        self._context = context
        self._fleet = fleet
        self._decisions = decisions

    async def decide_identity(self, request: Request) -> Response:
        """`POST /terminals/{serial}/identity`: trust the device at that address to be the terminal."""
        serial = parameters.path(request, parameters.SERIAL)
        said = decided(ROW, request.state.body, request.state.uid, "nothing was decided")
        await self._decisions.decide(serial, said.operator, said.note, said.uid, said.base_url)
        held = await self._context.read(rows.leases)
        return json_response(self._fleet.document(serial, held))
