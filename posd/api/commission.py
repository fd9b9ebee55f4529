"""Call to record the functions that an operator saw working with a terminal (local API, Terminals)."""

from typing import Annotated
from uuid import uuid4

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from posd.base.json_types import OPEN, Uuid
from posd.base.problems import Problem
from posd.calls import parameters
from posd.calls.app import json_response
from posd.calls.context import CallContext
from posd.payments import rows
from posd.payments.model import SearchResult
from posd.payments.reconcile import Reconciler
from posd.payments.search_reply import RESULTS, SearchFailed
from posd.records.commissions import Commissions
from posd.records.request import DecisionRow, FieldReader, Signed, decided
from posd.terminals.commission import Part
from posd.terminals.fleet import Fleet


class CommissionRequest(Signed, frozen=True):
    """What was seen working with a terminal."""

    proven: Annotated[
        list[Part],
        Meta(
            description="what was seen working; what is left out counts no more, so an empty list takes all back",
            max_length=len(Part),
        ),
    ]


class _Seen(msgspec.Struct, frozen=True):
    operator: str
    note: str
    uid: int | None
    proven: tuple[Part, ...]


def _read(reader: FieldReader, operator: str, note: str, uid: int | None) -> _Seen:
    return _Seen(operator, note, uid, _parts(reader))


def _parts(reader: FieldReader) -> tuple[Part, ...]:
    """Return the named parts, each once, in the order of `Part`."""
    given = reader.value("proven")
    if not isinstance(given, list) or len(given) > len(Part):
        reader.fault("/proven", f"is required: a list of at most {len(Part)} of {', '.join(Part)}")
        return ()
    for place, word in enumerate(given):
        if word not in list(Part):
            reader.fault(f"/proven/{place}", f"must be one of {', '.join(Part)}")
    return tuple(part for part in Part if part in given)


ROW: DecisionRow[_Seen] = (_read, CommissionRequest)


class Probe(msgspec.Struct, frozen=True):
    """What a search brought for a payment that never was."""

    client_transaction_id: Annotated[
        Uuid, Meta(description="the id that was asked for; nothing was ever sent under it")
    ]
    result: Annotated[SearchResult, OPEN, Meta(description="what came; of a search that works `none`")]
    reason: Annotated[str | None, Meta(description="why it is no answer")]
    webhook_signature: Annotated[
        str, Meta(description="the signature that its webhooks must have to be believed, empty where none is expected")
    ]
    found_before: Annotated[
        bool, Meta(description="whether this search (its method, path, pointer) has found a payment of the terminal")
    ]


class CommissionCalls:
    """Handlers of /v1/terminals/{serial}/commission and probe."""

    def __init__(self, context: CallContext, fleet: Fleet, commissions: Commissions, reconciler: Reconciler) -> None:
        self._context = context
        self._fleet = fleet
        self._commissions = commissions
        self._reconciler = reconciler

    async def probe_terminal(self, request: Request) -> Response:
        """`POST /terminals/{serial}/probe`: search it for a payment that never was."""
        serial = parameters.path(request, parameters.SERIAL)
        parameters.check_no_body(request)
        if serial not in self._fleet:
            raise Problem("not_found", f"terminal {serial} is not in the fleet")
        unknown = str(uuid4())
        answer, found_before = await self._reconciler.probe(serial, unknown)
        reason = answer.reason if isinstance(answer, SearchFailed) else None
        signature = self._fleet.webhook_signature(serial)
        return json_response(Probe(unknown, RESULTS[type(answer)], reason, signature, found_before))

    async def commission_terminal(self, request: Request) -> Response:
        """`POST /terminals/{serial}/commission`: record the functions that were seen working."""
        serial = parameters.path(request, parameters.SERIAL)
        said = decided(ROW, request.state.body, request.state.uid, "nothing was recorded")
        await self._commissions.record(serial, said.operator, said.note, said.uid, said.proven)
        held = await self._context.read(rows.leases)
        return json_response(self._fleet.document(serial, held))
