"""Calls on what was refused though authentic (local API: quarantine, reprocess); for operators."""

import base64
from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from posd.api import operator_documents
from posd.api.operator_documents import Quarantine, Reprocessed
from posd.base.callback_tokens import Channel
from posd.base.problems import Problem
from posd.calls import parameters
from posd.calls.app import json_response
from posd.calls.context import Context
from posd.payments.reprocess import report as payment_report
from posd.printing.reprocess import report as print_report
from posd.records import quarantine
from posd.records.quarantine import QuarantinedBody
from posd.records.reprocess import Reprocessing
from posd.storage.errors import CommitUncertain, StorageUnavailable


class QuarantineCalls:
    """Handlers of /v1/quarantine and /v1/reprocess."""

    def __init__(self, context: Context, reprocessing: Reprocessing) -> None:
        self._context = context
        self._reprocessing = reprocessing

    async def list_quarantine(self, request: Request) -> Response:
        """`GET /quarantine`: what was refused, ascending by id, in pages."""
        after, limit = request.state.query["after"], request.state.query["limit"]
        found = await self._context.read(partial(quarantine.page, after=after, limit=limit))
        items = [quarantine_document(item) for item in found]
        return json_response(Quarantine(items, next_after=found[-1].id if found else after))

    async def get_quarantined(self, request: Request) -> Response:
        """`GET /quarantine/{id}`."""
        identity = parameters.path(request, parameters.QUARANTINE_ID)
        found = await self._context.read(partial(quarantine.one, identity=identity))
        if found is None:
            raise Problem("not_found", f"nothing in quarantine has the id {identity}; posd quarantine lists them")
        return json_response(quarantine_document(found))

    async def reprocess(self, request: Request) -> Response:
        """`POST /reprocess`: apply what can be applied now, derive everything again, report differences."""
        parameters.check_no_body(request)
        try:
            done, quarantined = await self._reprocessing.run()
        except (StorageUnavailable, CommitUncertain) as error:
            detail = f"reprocessing broke off ({error}); what it did is kept. Check the disk, and call again"
            raise Problem("storage_unavailable", detail) from error
        payments = msgspec.structs.asdict(payment_report(done[Channel.TRANSACTION], quarantined))
        return json_response(Reprocessed(**payments, printing=print_report(done[Channel.PRINT])))


def quarantine_document(item: QuarantinedBody) -> operator_documents.QuarantinedBody:
    """Return one refused body, its bytes in base64, and the id of what its callback address was given out for."""
    printed = item.channel == Channel.PRINT
    return operator_documents.QuarantinedBody(
        id=item.id,
        received_at=item.received_at,
        channel=item.channel,
        client_transaction_id=None if printed else item.subject,
        print_job_id=item.subject if printed else None,
        reason=item.reason,
        peer=item.peer,
        body=base64.b64encode(item.body).decode("ascii"),
    )
