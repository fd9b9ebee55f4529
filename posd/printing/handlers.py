"""Calls on print jobs (local API, Print jobs)."""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response

from posd.base.problems import Problem
from posd.calls import parameters
from posd.calls import parameters as at
from posd.calls.app import json_response, page_response
from posd.calls.parameters import AnswerSpec, Route
from posd.calls.streams import CallContext, wait_until
from posd.printing import documents, model, rows, start
from posd.printing.documents import AskedPrintJob, PrintHistory, PrintJob, PrintJobPage, PrintJobQuery
from posd.printing.poll import PrintPoller
from posd.printing.request import DECISIONS, PrintAcknowledgement, PrintRequest, PrintResolution
from posd.printing.start import Printing
from posd.printing.wire import NoAnswer, PollAnswered
from posd.records.model import Phase
from posd.records.request import decided
from posd.records.service import storage_problem

T = TypeVar("T")


@dataclass(eq=False)
class PrintJobCalls:
    """Handlers of /v1/print-jobs."""

    context: CallContext
    printing: Printing
    spooler: PrintPoller

    async def start_print_job(self, request: Request) -> Response:
        """`PUT /print-jobs/{id}`: print a document, or return the job that has this id."""
        identity = parameters.path(request, parameters.PRINT_JOB_ID)
        job, created = await self.printing.start(
            identity, request.state.body, request.state.refusal, request.state.sender
        )
        return json_response(await self._document(job), 201 if created else 200)

    async def get_print_job(self, request: Request) -> Response:
        """`GET /print-jobs/{id}`."""
        return json_response(await self._look_up(parameters.path(request, parameters.PRINT_JOB_ID), self._shown))

    async def await_print_job(self, request: Request) -> Response:
        """`GET /print-jobs/{id}/outcome`: wait for the end of the job, or for the caller's time-out."""
        asked = parameters.path(request, parameters.PRINT_JOB_ID)
        identity = (await self._look_up(asked, self._get)).print_job_id
        timeout = request.state.query["timeout"]

        hub, look = self.context.hub, partial(self.context.look_up, partial(self._ended, identity=identity))
        found = await wait_until(request.state.pieces, hub.subscribe(identity), hub, look, timeout)
        if found is not None:
            return json_response(found)
        return json_response(await self.context.look_up(partial(self._shown, identity=identity)), 202)

    async def get_print_history(self, request: Request) -> Response:
        """`GET /print-jobs/{id}/history`: all webhooks, calls and decisions, with their users."""
        job = await self._look_up(parameters.path(request, parameters.PRINT_JOB_ID), self._get)
        return await page_response(await self.context.read(partial(documents.history_document, job=job)))

    async def reconcile_print_job(self, request: Request) -> Response:
        """`POST /print-jobs/{id}/reconcile`: poll the terminal now, even for an ended job."""
        identity = parameters.path(request, parameters.PRINT_JOB_ID)
        parameters.check_no_body(request)
        job = await self._look_up(identity, self._get)
        with storage_problem("the terminal's answer cannot be recorded now ({error}); check the disk, and ask again"):
            answer = await self.spooler.ask(job)
        status = answer.report.status if isinstance(answer, PollAnswered) else None
        reason = answer.reason if isinstance(answer, NoAnswer) else None
        document = await self.context.look_up(partial(self._shown, identity=identity))
        return json_response(AskedPrintJob(status, reason, document))

    async def resolve_print_job(self, request: Request) -> Response:
        """`POST /print-jobs/{id}/resolve`."""
        return await self._decide(request, "resolve")

    async def acknowledge_print_job(self, request: Request) -> Response:
        """`POST /print-jobs/{id}/acknowledge`."""
        return await self._decide(request, "acknowledge")

    async def _decide(self, request: Request, call: str) -> Response:
        """Apply an operator's decision."""
        identity = parameters.path(request, parameters.PRINT_JOB_ID)
        decision = decided(DECISIONS[call], request.state.body, request.state.uid, f"cannot {call}")
        try:
            job = await self.printing.recorded(identity, partial(self.printing.decide, identity, decision))
        except Problem as problem:
            if problem.code == "already_final":
                problem.extra["outcome"] = await self.context.look_up(partial(self._shown, identity=identity))
            raise
        return json_response(await self._document(job))

    async def list_print_jobs(self, request: Request) -> Response:
        """`GET /print-jobs`: newest first, filtered, in pages."""
        page = PrintJobQuery(**request.state.query)
        at.check_alone(page)

        def read(db: sqlite3.Connection) -> PrintJobPage:
            found, cursor = documents.read_page(db, page)
            return PrintJobPage([documents.job_document(db, row) for row in found], cursor)

        return await page_response(await self.context.read(read))

    async def _look_up(self, identity: str, function: Callable[[sqlite3.Connection, str], T]) -> T:
        """Return the result of a read. Raise Problem.

        While a call that starts the job is open, wait until the job is recorded.
        """
        look = partial(self.context.look_up, lambda db: function(db, identity))
        return await self.printing.recorded(identity, look)

    def _get(self, db: sqlite3.Connection, identity: str) -> model.PrintJob:
        """Return the job with that id. Raise Problem."""
        job = rows.find(db, identity)
        if job is None:
            raise self.context.not_here(rows.PRINT_JOB.missing(db, identity))
        return job

    def _shown(self, db: sqlite3.Connection, identity: str) -> documents.PrintJob:
        return documents.job_document(db, self._get(db, identity))

    def _ended(self, db: sqlite3.Connection, identity: str) -> documents.PrintJob | None:
        job = self._get(db, identity)
        return documents.job_document(db, job) if job.phase is Phase.FINAL else None

    async def _document(self, job: model.PrintJob) -> documents.PrintJob:
        """Return a job with its reprints. If they cannot be read now, return the job without them.

        A 503 would mean that nothing was sent, which is wrong after a start.
        """
        try:
            return await self.context.look_up(partial(documents.job_document, job=job))
        except Problem:
            return documents.job_document(None, job)


# Calls on print jobs.

ONE = "/v1/print-jobs/{print_job_id}"

#: Problem codes of every call on one print job.
KNOWN = ("not_found", "pruned", "storage_unavailable")

_NOW = AnswerSpec("the print job after the call", PrintJob)

ROUTES = (
    Route(
        "PUT",
        ONE,
        "start_print_job",
        "Print a document, once. Repeat the call as often as you like with the same id and body: it is sent once.",
        {201: AnswerSpec("started now", PrintJob), 200: AnswerSpec("known from an identical request", PrintJob)},
        start.REFUSALS,
        body=PrintRequest,
        starts=True,
    ),
    Route("GET", ONE, "get_print_job", "Show a print job.", {200: AnswerSpec("the print job", PrintJob)}, KNOWN),
    Route(
        "GET",
        f"{ONE}/outcome",
        "await_print_job",
        "Wait for the end of a print job. After a restart of posd ask again.",
        {200: AnswerSpec("the print job, final", PrintJob), 202: AnswerSpec("`timeout` passed: still open", PrintJob)},
        (*KNOWN, "draining"),
        query=(at.TIMEOUT,),
    ),
    Route(
        "GET",
        f"{ONE}/history",
        "get_print_history",
        "Show the history of a print job, with the person or program behind each entry.",
        {200: AnswerSpec("the history", PrintHistory)},
        KNOWN,
    ),
    Route(
        "POST",
        f"{ONE}/reconcile",
        "reconcile_print_job",
        "Ask the terminal now about a print job, even one that has ended. No body.",
        {200: AnswerSpec("the result, and the job after it", AskedPrintJob)},
        KNOWN,
        admin=True,
    ),
    Route(
        "POST",
        f"{ONE}/resolve",
        "resolve_print_job",
        "Record how an open print job ended, by an operator's decision. A later report of the terminal overrides it.",
        {200: _NOW},
        ("malformed_json", "already_final", "call_outstanding", *KNOWN),
        body=PrintResolution,
        admin=True,
    ),
    Route(
        "POST",
        f"{ONE}/acknowledge",
        "acknowledge_print_job",
        "Close one attention that an operator has checked.",
        {200: _NOW},
        ("malformed_json", *KNOWN),
        body=PrintAcknowledgement,
        admin=True,
    ),
    Route(
        "GET",
        "/v1/print-jobs",
        "list_print_jobs",
        "List print jobs, newest first.",
        {200: AnswerSpec("a page", PrintJobPage)},
        ("storage_unavailable",),
        query=(
            at.LIMIT,
            at.JOB_BEGINNING,
            at.PHASE,
            at.OPEN,
            at.TERMINAL,
            at.EXTERNAL_REFERENCE,
            at.ATTENTION,
            at.SINCE,
            at.UNTIL,
            at.NEXT,
        ),
    ),
)
