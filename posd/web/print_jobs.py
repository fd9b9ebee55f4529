"""Calls on print jobs (local API, Print jobs)."""

import sqlite3
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from posd.core.print_requests import ID_RULE, is_print_job_id, read_decision
from posd.core.printing import PrintJob
from posd.core.problems import Problem
from posd.core.requests import MalformedJson
from posd.core.transactions import Phase
from posd.services.print_operators import PrintOperators
from posd.services.printing import Printing
from posd.store import paging, print_jobs, print_listing, pruned
from posd.store.print_listing import Page
from posd.web import parameters, print_views, waiting
from posd.web.context import Context
from posd.web.documents import print_jobs as documents
from posd.web.documents.print_jobs import PrintHistory, PrintJobPage
from posd.web.local import Route, json_response


class PrintJobCalls:
    """Handlers of /v1/print-jobs."""

    def __init__(self, context: Context, printing: Printing, operators: PrintOperators) -> None:
        self._context = context
        self._printing = printing
        self._operators = operators

    @property
    def routes(self) -> tuple[Route, ...]:
        """The table of these calls."""
        one = "/v1/print-jobs/{id}"
        filters = frozenset(
            {"phase", "open", "terminal", "external_reference", "attention", "since", "until", "limit", "cursor"}
        )
        return (
            Route("PUT", one, self.start, judges_refusal=True),
            Route("GET", one, self.show),
            Route("GET", f"{one}/outcome", self.outcome, query=frozenset({"timeout"})),
            Route("GET", f"{one}/history", self.history),
            Route("POST", f"{one}/resolve", partial(self.decide, call="resolve"), admin=True),
            Route("POST", f"{one}/acknowledge", partial(self.decide, call="acknowledge"), admin=True),
            Route("GET", "/v1/print-jobs", self.list, query=filters),
        )

    async def start(self, request: Request) -> Response:
        """`PUT /print-jobs/{id}`: print, or answer for what is known."""
        identity = _identity(request)
        job, created = await self._printing.start(identity, request.state.body, request.state.refusal)
        return json_response(await self._document(job), 201 if created else 200)

    async def show(self, request: Request) -> Response:
        """`GET /print-jobs/{id}`."""
        return json_response(await self._context.look_up(partial(_document, identity=_identity(request))))

    async def outcome(self, request: Request) -> Response:
        """`GET /print-jobs/{id}/outcome`: hold until it has ended, or the caller's time-out passes."""
        identity = _identity(request)
        timeout = parameters.query(request, "timeout", parameters.timeout)

        hub, look = self._context.hub, partial(self._context.look_up, partial(_ended, identity=identity))
        found = await waiting.until(request.state.pieces, hub.subscribe(identity), hub, look, timeout)
        if found is not None:
            return json_response(found)
        return json_response(await self._context.look_up(partial(_document, identity=identity)), 202)

    async def history(self, request: Request) -> Response:
        """`GET /print-jobs/{id}/history`: all that happened to it, and who did what."""
        identity = _identity(request)

        def read(db: sqlite3.Connection) -> PrintHistory:
            return print_views.history_document(db, _get(db, identity))

        return json_response(await self._context.read(read))

    async def decide(self, request: Request, call: str) -> Response:
        """`POST /print-jobs/{id}/resolve`, `acknowledge`: what a person decides."""
        identity = _identity(request)
        try:
            decision, faults = read_decision(call, request.state.body, request.state.uid)
        except MalformedJson as error:
            raise Problem("malformed_json", f"the body is not JSON ({error}); nothing was changed") from error
        if faults:
            what = "; ".join(f"{fault.path or 'the body'} {fault.message}" for fault in faults)
            errors = [{"path": fault.path, "message": fault.message} for fault in faults]
            raise Problem("invalid_request", f"cannot {call}: {what}", errors=errors)
        try:
            job = await self._operators.decide(identity, decision)
        except Problem as problem:
            if problem.code == "already_final":
                problem.extra["outcome"] = await self._context.look_up(partial(_document, identity=identity))
            raise
        return json_response(await self._document(job))

    async def list(self, request: Request) -> Response:
        """`GET /print-jobs`: newest first, filtered, in pages."""
        query = parameters.Query(request)
        page = Page(
            limit=query.read("limit", parameters.whole(1, parameters.MAX_LIMIT)) or parameters.DEFAULT_LIMIT,
            phase=query.read("phase", _phase),
            open=bool(query.read("open", parameters.flag)),
            terminal=query.read("terminal", str),
            external_reference=query.read("external_reference", str),
            attention=bool(query.read("attention", parameters.flag)),
            since=query.read("since", parameters.moment),
            until=query.read("until", parameters.moment),
            cursor=query.read("cursor", paging.decode_cursor),
        )
        query.check()

        def read(db: sqlite3.Connection) -> PrintJobPage:
            rows, cursor = print_listing.read_page(db, page)
            return PrintJobPage([print_views.job_document(db, row) for row in rows], cursor)

        return json_response(await self._context.read(read))

    async def _document(self, job: PrintJob) -> documents.PrintJob:
        """Return a job with the jobs that print it again, where they can be read now.

        Never a 503 in their place: after a start it would say that nothing was sent.
        """
        try:
            return await self._context.look_up(partial(print_views.job_document, job=job))
        except Problem:
            return print_views.job_document(None, job)


def _identity(request: Request) -> str:
    """Return the id of the path. Raise Problem."""
    identity: str = request.path_params["id"]
    if not is_print_job_id(identity):
        raise parameters.invalid("print_job_id", ID_RULE)
    return identity


def _get(db: sqlite3.Connection, identity: str) -> PrintJob:
    job = print_jobs.get(db, identity)
    if job is None:
        raise pruned.missing_print_job(db, identity)
    return job


def _document(db: sqlite3.Connection, identity: str) -> documents.PrintJob:
    return print_views.job_document(db, _get(db, identity))


def _ended(db: sqlite3.Connection, identity: str) -> documents.PrintJob | None:
    job = _get(db, identity)
    return print_views.job_document(db, job) if job.phase is Phase.FINAL else None


def _phase(text: str) -> Phase:
    try:
        return Phase(text)
    except ValueError as error:
        raise ValueError(f"must be one of {', '.join(Phase)}") from error
