"""The terminal's printer: takes jobs, prints them one after the other, tells their end once (terminal API, Printing).

It runs beside the payments, and shares nothing with them. An end is told by one POST without a retry: a caller that
needs to know asks.
"""

import asyncio
import logging
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from http import HTTPStatus
from random import Random
from typing import Any

from posd.simulator import messages, wire
from posd.simulator.clock import Clock, Tasks
from posd.simulator.delivery import Poster
from posd.simulator.ledger import Ledger
from posd.simulator.messages import Answer, Envelope, Refused, claims, invalid, is_web_address, read_object
from posd.simulator.operations import AccessMode
from posd.simulator.record import Job, PrintRecord, Taken
from posd.simulator.scenario import CHOICE, ENDS, Call, Jam, Memory, PrintStatus, Reply, draw, prints
from posd.simulator.settings import Settings

#: Real seconds that a webhook receiver has to answer (terminal API, Printing, Delivery).
WEBHOOK_SECONDS = 15.0
#: Webhooks that are called at once: a device has few sockets, and a receiver that never answers holds each for 15 s.
MAX_CALLS = 8
#: Terminal seconds until the printer begins with the next job: the shortest and the longest.
PICK_UP = (0.1, 0.5)
#: Jobs that can wait for the paper; further ones are refused.
MAX_WAITING = 10_000
#: Characters of an id; those of the caller are its own business, but a device does not take a novel.
MAX_ID_CHARACTERS = 128
#: The members that are published.
PUBLISHED = ("printJobId", "externalReference", "webhookUrl")
DOCUMENT = "document"
#: The member of a document that is a plain text.
TEXT = "text"
#: The member of a document that is a list of commands.
COMMANDS = "commands"
#: Characters on a line of 58 mm, and the lines that one command can feed.
PAPER_CHARACTERS = 32
MAX_FEED = 20
#: What the ledger has of a request: name in the ledger -> name in the body.
PRINT_IDS = {"print_job_id": "printJobId", "external_reference": "externalReference"}

_log = logging.getLogger(__name__)


class Printer:
    """Takes print jobs and prints them, each as its scenario says."""

    def __init__(
        self, settings: Settings, ledger: Ledger, clock: Clock, poster: Poster, envelope: Envelope, *, seed: str
    ) -> None:
        """`poster` is this printer's own; it is closed with it. Raises OSError, SettingsError."""
        self._scenario = settings.print_scenario
        #: The scenario that the next job will take, before that of its reference; None where it is free.
        self.armed: str | None = None
        self._ledger = ledger
        self._clock = clock
        self.poster = poster
        self._envelope = envelope
        self._seed = seed
        self._record = PrintRecord(settings.state / "prints.jsonl")
        self._waiting: asyncio.Queue[Job] = asyncio.Queue()
        self._paper = asyncio.Event()
        self._calls = asyncio.Semaphore(MAX_CALLS)
        #: How often each call was made for a job.
        self._asked: Counter[tuple[str, str]] = Counter()
        self._tasks = Tasks()

    def catch_up(self) -> None:
        """Record what came out on paper where an earlier process was killed before it could; once in a process."""
        for job in self._record:
            if job.status in ENDS and self._ledger.lacks(job.taken.slip):
                _add_printed(self._ledger, job)

    def start(self) -> None:
        """Go on with what an earlier run left: a job that was interrupted is printed from its beginning."""
        for job in self._record:
            if job.status not in ENDS:
                self._waiting.put_nowait(job)
        self._tasks.begin(self._print_all())

    async def stop(self) -> None:
        """Switch off: what was not printed stays recorded, a webhook that was not called is not called any more."""
        try:
            await self._tasks.stop()
            await self.poster.close()
        finally:
            self._record.close()

    def create(self, body: bytes, access_mode: AccessMode) -> Answer:
        """Answer the creation of a job: 202, 400, 422 or 429, or as its scenario says.

        An id that was used before is printed again: nothing promises otherwise, and a caller that sends a job twice
        shall see on paper what it has done.
        """
        asked = {**claims(body, PRINT_IDS), "access_mode": access_mode}
        try:
            request = self._admit(body)
        except Refused as refused:
            self._ledger.add("print", **asked, http_status=int(refused.status), code=refused.code, scenario=None)
            return self._envelope.answer(refused)
        scenario = prints()[request.scenario]
        creation = scenario.creation
        taken = replace(request, print_job_id=f"terminal-{request.slip}") if scenario.own_id else request
        answer = self._answer(creation, "create", request.print_job_id, (HTTPStatus.ACCEPTED, Job(taken).told()))
        self._ledger.add(
            "print", **asked, http_status=answer.http_status, code=_code(answer), scenario=request.scenario
        )
        job = self._take(taken)
        if job is not None and creation.after_webhook:
            return replace(answer, awaited=self._tasks.begin(job.called.wait()))
        return answer

    def status(self, print_job_id: str | None) -> Answer:
        """Answer a question for a job: 200 with its state, 404 where the terminal knows none, 422 where none is named.

        Or as the job's scenario says.
        """
        job = None if print_job_id is None else self._record.newest(print_job_id)
        if print_job_id is None:
            answer = self._envelope.answer(invalid("print_job_id", "must be set"))
        elif job is None:
            unknown = Refused(HTTPStatus.NOT_FOUND, "UNKNOWN_PRINT_JOB", f"no print job {print_job_id}")
            answer = self._envelope.answer(unknown)
        else:
            answer = self._answer(job.scenario.poll, "poll", print_job_id, (HTTPStatus.OK, job.told()))
        self._ledger.add(
            "print_poll",
            print_job_id=print_job_id,
            http_status=answer.http_status,
            status=job.status if job else None,
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
            if job.status in ENDS and job.scenario.prints
        ]

    def arm(self, name: str | None) -> None:
        """Choose the scenario of the next job; None leaves it free again. Raises KeyError where there is none."""
        if name is not None and name not in prints():
            raise KeyError(name)
        self.armed = name

    def put_paper_in(self) -> None:
        """Put paper in: a job that waits for it goes on, and with it the printer."""
        self._paper.set()

    def _admit(self, body: bytes) -> Taken:
        request = read_print(body, self._scenario)
        if self._waiting.qsize() >= MAX_WAITING:
            raise Refused(HTTPStatus.TOO_MANY_REQUESTS, "SPOOL_FULL", f"{MAX_WAITING} print jobs wait already")
        armed, self.armed = self.armed, None
        return request if armed is None else replace(request, scenario=armed)

    def _answer(self, reply: Reply, call: str, print_job_id: str, usual: messages.Usual) -> Answer:
        """Return what a job's scenario makes of the usual answer to a call, as often as it does."""
        self._asked[call, print_job_id] += 1
        times = self._asked[call, print_job_id]
        return messages.apply(reply.nth(times), usual, self._random(print_job_id, f"{call}/{times}"), self._envelope)

    def _take(self, taken: Taken) -> Job | None:
        scenario = prints()[taken.scenario]
        if not scenario.creation.taken or scenario.memory is Memory.NONE:
            return None
        job = self._record.take(taken)
        self._waiting.put_nowait(job)
        return job

    def _random(self, print_job_id: str, what: str) -> Random:
        return Random(f"{self._seed}/{print_job_id}/{what}")  # noqa: S311 - reproducible, not secret

    async def _print_all(self) -> None:
        while True:
            job = await self._waiting.get()
            try:
                await self._print(job)
            except Exception:  # noqa: BLE001 - a fault of the simulator: the next job can still be printed
                _log.exception("the simulated print job %s broke off", job.taken.print_job_id)

    async def _print(self, job: Job) -> None:
        scenario = job.scenario
        rng = self._random(job.taken.print_job_id, "print")
        await self._clock.sleep(draw(PICK_UP, rng))
        self._enter(job, PrintStatus.IN_PROGRESS)
        match scenario.jam:
            case Jam.FOR_EVER:
                return
            case Jam.NO_PAPER:
                self._paper.clear()
                await self._paper.wait()
        await self._clock.sleep(draw(scenario.takes, rng))
        self._enter(job, PrintStatus.COMPLETED if scenario.fault is None else PrintStatus.FAILED)
        self._tasks.begin(self._tell(job))

    def _enter(self, job: Job, status: PrintStatus) -> None:
        """Enter a state: written down first, so that what is told of it is also what a question finds."""
        self._record.enter(job, status)
        if status is PrintStatus.IN_PROGRESS:
            self._ledger.add("printing", print_job_id=job.taken.print_job_id)
        else:
            _add_printed(self._ledger, job)

    async def _tell(self, job: Job) -> None:
        """Call the webhook as often as the scenario says; every call is made once, also where it fails.

        Source: terminal API, Printing.
        """
        rng = self._random(job.taken.print_job_id, "webhook")
        url = job.taken.webhook_url
        for number, call in enumerate(job.scenario.webhooks if url else (), start=1):
            await self._clock.sleep(draw(call.after, rng))
            await self._call(job, url or "", number, call)
        job.called.set()

    async def _call(self, job: Job, url: str, number: int, call: Call) -> None:
        said = messages.changed(job.told(), call.set, call.remove)
        body = wire.encode(said) if call.raw is None else call.raw.encode()
        async with self._calls:
            outcome = await self.poster.post(url, body, distrusted=call.distrusted)
        self._ledger.add(
            "print_webhook",
            print_job_id=job.taken.print_job_id,
            named=said.get("printJobId"),
            status=job.status,
            call=number,
            result=outcome,
        )


def read_print(raw: bytes, default_scenario: str) -> Taken:
    """Read and check the request that creates a job; `document` is what is printed.

    The body is not published beyond its ids and `webhookUrl`; that the document stands under `document` is an
    assumption. Where nothing stands there, the members beside the published ones are the document.

    Raises Refused: 400 where the body is not a JSON object, 422 where a field cannot be, the message naming it.
    """
    body = read_object(raw)
    print_job_id = body.get("printJobId")
    if not (isinstance(print_job_id, str) and 0 < len(print_job_id) <= MAX_ID_CHARACTERS):
        raise invalid("printJobId", f"must be a text of 1 to {MAX_ID_CHARACTERS} characters")
    reference = body.get("externalReference", "")
    if not isinstance(reference, str):
        raise invalid("externalReference", "must be a text")
    url = body.get("webhookUrl")
    if url is not None and not is_web_address(url):
        raise invalid("webhookUrl", "must be an http or https URL")
    beside = {name: value for name, value in body.items() if name not in PUBLISHED}
    document = body.get(DOCUMENT, beside)
    if not document:
        raise invalid(DOCUMENT, "must be there: there is nothing to print")
    scenario = reference.removeprefix(CHOICE) if reference.startswith(CHOICE) else default_scenario
    if scenario not in prints():
        raise invalid("externalReference", f"must name a scenario after {CHOICE} (posd simulate --list shows them)")
    return Taken(str(uuid.uuid4()), print_job_id, reference, url, scenario, document)


def _code(answer: Answer) -> str | None:
    """Return the code of a refusal, for the ledger."""
    if answer.http_status is None or answer.http_status < HTTPStatus.BAD_REQUEST:
        return None
    try:
        code = read_object(answer.body).get("code")
    except Refused:  # a body that is no JSON
        return None
    return code if isinstance(code, str) else None


def _add_printed(ledger: Ledger, job: Job) -> None:
    """Record how a job ended, and what came out on paper."""
    fault = job.scenario.fault
    ledger.add(
        "printed",
        print_job_id=job.taken.print_job_id,
        slip=job.taken.slip,
        status=job.status,
        error_code=None if fault is None else fault.code,
        text=on_paper(job.taken.document) if job.scenario.prints else None,
    )


def on_paper(document: Any) -> str:
    """Lay a document out as text: its text or what its commands print, else each of its values on a line.

    What would steer a screen, a printer's own codes for example, is left out.
    """
    text, commands = (document.get(TEXT), document.get(COMMANDS)) if isinstance(document, dict) else (document, None)
    if not isinstance(text, str) and isinstance(commands, list):
        text = "".join(map(_command, commands))
    lines = text.splitlines() if isinstance(text, str) else _lines(document, "")
    return "\n".join("".join(c for c in line.expandtabs() if c.isprintable()).rstrip() for line in lines)


def _command(command: Any) -> str:
    """Return what one command prints, roughly; the newline of a text is the caller's (terminal API, Printing)."""
    kind = command.get("type") if isinstance(command, dict) else None
    match kind:
        case "text":
            return _word(command.get(TEXT))
        case "columns":
            columns = command.get("columns")
            cells = columns if isinstance(columns, list) else []
            return "  ".join(_word(cell.get(TEXT)) for cell in cells if isinstance(cell, dict)) + "\n"
        case "divider":
            return ("" if command.get("dividerType") == "EMPTY" else "-" * PAPER_CHARACTERS) + "\n"
        case "feed":
            lines = command.get("lines")
            return "\n" * min(lines, MAX_FEED) if isinstance(lines, int) else "\n"
        case "space":
            return "\n"
        case "qr":
            return f"[QR: {_word(command.get('content'))}]\n"
        case "cut":
            return "\n"
        case _:  # it is not known what that prints
            return f"[{_word(kind)}]\n"


def _lines(value: Any, indent: str) -> Iterator[str]:
    """Give the lines of a value that `wire.decode` has read: its depth is limited there."""
    named = value.items() if isinstance(value, dict) else (("", item) for item in value)
    for name, item in named:
        label = f"{name}: " if name else ""
        if isinstance(item, dict | list):
            if name:
                yield f"{indent}{name}:"
            yield from _lines(item, indent + "  " * bool(name))
        else:
            yield from (indent + line for line in f"{label}{_word(item)}".splitlines() or [""])


def _word(value: Any) -> str:
    """Write one value: a text as it is, null as nothing."""
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
