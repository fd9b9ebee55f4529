"""The terminal's printer: takes jobs, prints them one after the other, tells their end once (spec 2.3, 3.2, 6.4).

It runs beside the payments, and shares nothing with them. An end is told by one POST without a retry: whoever needs
to know asks.
"""

import asyncio
import logging
import uuid
from collections.abc import Coroutine
from http import HTTPStatus
from random import Random
from typing import Any

from posd.simulator import wire
from posd.simulator.clock import Clock
from posd.simulator.ledger import Ledger
from posd.simulator.operations import AccessMode
from posd.simulator.posting import Poster
from posd.simulator.print_record import Job, PrintRecord, Taken
from posd.simulator.print_request import PrintRequest, on_paper, print_claims, read_print
from posd.simulator.print_scenarios import ENDS, PRINT_SCENARIOS, Jam, Memory, Pace, PrintStatus, Reply
from posd.simulator.request import Refused
from posd.simulator.terminal import Answer

#: Real seconds that a webhook receiver has to answer (spec 6.4 and 8).
WEBHOOK_SECONDS = 15.0
#: Webhooks that are called at once: a device has few sockets, and a receiver that never answers holds each for 15 s.
MAX_CALLS = 8
#: Jobs that can wait for the paper; further ones are refused.
MAX_WAITING = 10_000

_log = logging.getLogger(__name__)


class Printer:
    """Takes print jobs and prints them, each as its scenario says."""

    def __init__(
        self, ledger: Ledger, record: PrintRecord, poster: Poster, clock: Clock, *, seed: str, scenario: str
    ) -> None:
        """`scenario` is for jobs that choose none. `poster` is this printer's own; it is closed with it."""
        self._ledger = ledger
        self._record = record
        self._poster = poster
        self._clock = clock
        self._seed = seed
        self._scenario = scenario
        self._waiting: asyncio.Queue[Job] = asyncio.Queue()
        self._paper = asyncio.Event()
        self._calls = asyncio.Semaphore(MAX_CALLS)
        self._running: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Go on with what an earlier run left: a job that was interrupted is printed from its beginning.

        What came out on paper is recorded where an earlier process was killed before it could.
        """
        for job in self._record:
            if job.status in ENDS:
                if self._ledger.lacks(job.taken.slip):
                    _add_printed(self._ledger, job)
            else:
                self._waiting.put_nowait(job)
        self._run(self._print_all())

    async def stop(self) -> None:
        """Switch off: what was not printed stays recorded, what was not told is told to nobody."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self._poster.close()

    async def create(self, body: bytes, access_mode: AccessMode) -> Answer | None:
        """Answer the creation of a job: 202, 400, 422 or 429; None: the connection is closed without an answer.

        An id that was used before is printed again: nothing promises otherwise, and a caller that sends a job twice
        shall see on paper what it has done.
        """
        asked = {**print_claims(body), "access_mode": access_mode}
        try:
            request = self._admit(body)
        except Refused as refused:
            self._ledger.add("print", **asked, http_status=int(refused.status), code=refused.code, scenario=None)
            return refused.status, {"code": refused.code, "message": refused.message}
        scenario = PRINT_SCENARIOS[request.scenario]
        lost = scenario.reply is Reply.LOST
        status = None if lost else int(HTTPStatus.ACCEPTED)
        self._ledger.add("print", **asked, http_status=status, code=None, scenario=request.scenario)
        job = self._take(request)
        accepted = job.told()
        if scenario.reply is Reply.AFTER_WEBHOOK:
            await job.called.wait()
        return None if lost else (HTTPStatus.ACCEPTED, accepted)

    def status(self, print_job_id: str | None) -> Answer:
        """Answer who asks for a job: 200 with its state, 404 where the terminal knows none, 422 where none is named."""
        job = None if print_job_id is None else self._record.newest(print_job_id)
        answer: Answer
        if print_job_id is None:
            answer = HTTPStatus.UNPROCESSABLE_ENTITY, {"code": "INVALID_REQUEST", "message": "print_job_id must be set"}
        elif job is None:
            answer = HTTPStatus.NOT_FOUND, {"code": "UNKNOWN_PRINT_JOB", "message": f"no print job {print_job_id}"}
        else:
            answer = HTTPStatus.OK, job.told()
        self._ledger.add(
            "print_poll", print_job_id=print_job_id, http_status=int(answer[0]), status=job.status if job else None
        )
        return answer

    def prints(self) -> list[dict[str, Any]]:
        """Return what came out on paper, oldest first: ids, when, the document as it came and as it reads."""
        return [
            {
                "print_job_id": job.taken.print_job_id,
                "external_reference": job.taken.external_reference,
                "printed_at": job.ended_at,
                "document": job.taken.document,
                "text": on_paper(job.taken.document),
            }
            for job in sorted(self._record, key=lambda job: job.ended_at or "")
            if job.status is PrintStatus.COMPLETED
        ]

    def put_paper_in(self) -> None:
        """Put paper in: a job that waits for it goes on, and with it the printer."""
        self._paper.set()

    def _admit(self, body: bytes) -> PrintRequest:
        request = read_print(body, self._scenario)
        if self._waiting.qsize() >= MAX_WAITING:
            raise Refused(HTTPStatus.TOO_MANY_REQUESTS, "SPOOL_FULL", f"{MAX_WAITING} print jobs wait already")
        if PRINT_SCENARIOS[request.scenario].reply is Reply.REFUSED:
            raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, "PRINT_REFUSED", "this terminal does not print that")
        return request

    def _take(self, request: PrintRequest) -> Job:
        slip = str(uuid.uuid4())
        scenario = PRINT_SCENARIOS[request.scenario]
        taken = Taken(
            slip,
            f"terminal-{slip}" if scenario.own_id else request.print_job_id,
            request.external_reference,
            request.webhook_url,
            request.scenario,
            request.document,
        )
        if scenario.memory is Memory.NONE:
            return Job(taken)
        job = self._record.take(taken)
        self._waiting.put_nowait(job)
        return job

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _print_all(self) -> None:
        while True:
            job = await self._waiting.get()
            try:
                await self._print(job)
            except Exception:  # noqa: BLE001 - a fault of the simulator: the next job can still be printed
                _log.exception("the simulated print job %s broke off", job.taken.print_job_id)

    async def _print(self, job: Job) -> None:
        scenario = job.scenario
        rng = Random(f"{self._seed}/{job.taken.print_job_id}/print")  # noqa: S311 - reproducible, not secret
        await self._clock.sleep(Pace.PICK_UP.seconds(rng))
        self._enter(job, PrintStatus.IN_PROGRESS)
        match scenario.jam:
            case Jam.FOR_EVER:
                return
            case Jam.NO_PAPER:
                self._paper.clear()
                await self._paper.wait()
        await self._clock.sleep(scenario.pace.seconds(rng))
        self._enter(job, PrintStatus.COMPLETED if scenario.fault is None else PrintStatus.FAILED)
        self._run(self._tell(job))

    def _enter(self, job: Job, status: PrintStatus) -> None:
        """Enter a state: written down first, so that what is told of it is also what a question finds."""
        self._record.enter(job, status)
        if status is PrintStatus.IN_PROGRESS:
            self._ledger.add("printing", print_job_id=job.taken.print_job_id)
        else:
            _add_printed(self._ledger, job)

    async def _tell(self, job: Job) -> None:
        """Call the webhook as often as the scenario says; every call is made once, whatever comes of it (spec 6.4)."""
        url = job.taken.webhook_url
        said = job.told()
        if job.scenario.wrong_id:
            said["printJobId"] = f"unknown-{job.taken.slip}"
        async with self._calls:
            for call in range(1, job.scenario.calls + 1 if url else 1):
                outcome = await self._poster.post(url or "", wire.encode(said))
                self._ledger.add(
                    "print_webhook",
                    print_job_id=job.taken.print_job_id,
                    named=said["printJobId"],
                    status=job.status,
                    call=call,
                    result=outcome,
                )
        job.called.set()


def _add_printed(ledger: Ledger, job: Job) -> None:
    """Record how a job ended, and what came out on paper."""
    fault = job.scenario.fault
    done = job.status is PrintStatus.COMPLETED
    ledger.add(
        "printed",
        print_job_id=job.taken.print_job_id,
        slip=job.taken.slip,
        status=job.status,
        error_code=None if done or fault is None else fault.code,
        text=on_paper(job.taken.document) if done else None,
    )
