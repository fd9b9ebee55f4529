"""Printer of the terminal. The printer accepts jobs, prints them in turn, and reports each end once (terminal API,
Printing).

The printer is independent of the payments. The end of a job is reported by one POST without a retry, because the caller
can query the state.
"""

import asyncio
import logging
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from random import Random
from typing import Any

from posd.simulator import messages, wire
from posd.simulator.clock import Clock, Tasks
from posd.simulator.delivery import Poster
from posd.simulator.ledger import Journal, Ledger
from posd.simulator.messages import Answer, claims, invalid, is_web_address, plain, read_object, refusal
from posd.simulator.scenario import CHOICE, ENDS, Call, PrintScenario, PrintStatus, Reply, draw, prints
from posd.simulator.settings import Settings
from posd.simulator.wire import AccessMode, Refused

#: Time-out for the reply of a webhook receiver, in real seconds (terminal API, Printing, Delivery).
WEBHOOK_SECONDS = 15.0
#: Maximum number of concurrent webhook calls. A device has few sockets, and a silent receiver occupies each for 15 s.
MAX_CALLS = 8
#: Terminal seconds until the printer begins the next job: the shortest and the longest.
PICK_UP = (0.1, 0.5)
#: Maximum number of jobs that wait to be printed. Further jobs are refused.
MAX_WAITING = 10_000
#: Maximum number of characters of a caller's id.
MAX_ID_CHARACTERS = 128
#: Published members of a request (terminal API, Printing).
PUBLISHED = ("printJobId", "externalReference", "webhookUrl")
DOCUMENT = "document"
#: Member of a document with plain text.
TEXT = "text"
#: Member of a document with a list of commands.
COMMANDS = "commands"
#: Number of characters on a line of 58 mm paper, and maximum number of lines that one command can feed.
PAPER_CHARACTERS = 32
MAX_FEED = 20
#: Ids of a request: name in the ledger -> name in the body.
PRINT_IDS = {"print_job_id": "printJobId", "external_reference": "externalReference"}

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Job:
    """Accepted job, and its state.

    `print_job_id`: the terminal's id, which a caller can repeat. `slip`: a unique id. `name`: name of the scenario.
    """

    slip: str
    print_job_id: str
    external_reference: str
    webhook_url: str | None
    name: str
    document: Any
    status: PrintStatus = "PENDING"
    #: Time when the job ended, in the ledger's format.
    ended_at: str | None = None
    #: Set after the last call of the webhook.
    called: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def scenario(self) -> PrintScenario:
        """Scenario of the job."""
        return prints()[self.name]

    def told(self) -> dict[str, str]:
        """Return the fields of a webhook or a query (terminal API, Printing)."""
        said = {
            "printJobId": self.print_job_id,
            "status": self.status,
            "externalReference": self.external_reference,
        }
        fault = self.scenario.fault
        if self.status == "FAILED" and fault is not None:
            said |= {"errorCode": fault.code, "errorMessage": fault.message}
        return said


#: Member of a `taken` line in the file -> field of the job.
_REQUEST = {
    **{name: name for name in ("slip", "print_job_id", "external_reference", "webhook_url", "document")},
    "scenario": "name",
}


class Printer:
    """Printer that runs each job by its scenario, while it has power.

    Each line of its file is one change: an accepted job (`taken`), or a new state of a job (`state`).
    """

    def __init__(self, settings: Settings, ledger: Ledger, clock: Clock, poster: Poster, *, seed: str) -> None:
        self._settings = settings
        #: Bodies of all requests as text before their check, oldest first.
        self.requests: list[str] = []
        #: Scenario of the next job, which overrides the choice by its reference. None: no choice.
        self.armed: str | None = None
        self._ledger = ledger
        self._clock = clock
        self._poster = poster
        self._seed = seed
        #: The accepted jobs by slip, oldest first. While the power is off, they are the jobs from before the power cut.
        self._jobs: dict[str, Job] = {}
        self._journal: Journal | None = None
        self._waiting: asyncio.Queue[Job] = asyncio.Queue()
        self._paper = asyncio.Event()
        self._calls = asyncio.Semaphore(MAX_CALLS)
        #: Number of calls of each kind for a job.
        self._asked: Counter[tuple[str, str]] = Counter()
        self._tasks = Tasks()

    def start(self) -> None:
        """Resume the jobs of the file, unless the printer already runs.

        An interrupted job is printed from its beginning.

        Raise OSError. Raise SettingsError if the file has another content.
        """
        if self._journal is not None:
            return
        self._jobs, self._waiting = {}, asyncio.Queue()
        self._journal = Journal(self._settings.state / "prints.jsonl")
        self._journal.replay(lambda line: self._apply(wire.decode(line)))
        for job in self._jobs.values():
            if job.status not in ENDS:
                self._waiting.put_nowait(job)
        self._tasks.begin(self._print_all())

    async def stop(self) -> None:
        """Stop the printer, if it runs. Unprinted jobs stay in the file, and pending webhooks are dropped."""
        await self._tasks.stop()
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def _apply(self, change: dict[str, Any]) -> None:
        """Apply a line of the file. Raise LookupError if it names no job, or a scenario that no longer exists."""
        if change["op"] == "taken":
            job = Job(**{name: change[member] for member, name in _REQUEST.items()})
            self._jobs[job.slip] = job
        else:
            job = self._jobs[change["slip"]]
            job.status, job.ended_at = change["status"], change["at"]
        assert job.scenario  # noqa: S101 - raises KeyError for an unknown scenario

    def _write(self, job: Job, **change: Any) -> None:
        """Write a change into the file, if the scenario stores the job there."""
        if self._journal is not None and job.scenario.memory == "on-file":
            self._journal.append(change)

    def create(self, body: bytes, access_mode: AccessMode) -> Answer:
        """Create a job and return the reply: 202, 400, 422 or 429, or the reply of its scenario.

        A job with a repeated id is printed again, because no source forbids that. The paper then shows the caller's
        mistake.
        """
        self.requests.append(body.decode("utf-8", "replace"))
        asked = {**claims(body, PRINT_IDS), "access_mode": access_mode}
        try:
            request = self._admit(body)
        except Refused as refused:
            self._ledger.add("print", **asked, http_status=int(refused.status), code=refused.code, scenario=None)
            return plain(refusal(self._settings, refused))
        scenario = request.scenario
        creation = scenario.creation
        job = replace(request, print_job_id=f"terminal-{request.slip}") if scenario.own_id else request
        answer = self._answer(creation, "create", request.print_job_id, (HTTPStatus.ACCEPTED, job.told()))
        self._ledger.add("print", **asked, http_status=answer.http_status, code=_code(answer), scenario=request.name)
        if creation.taken and scenario.memory != "none":
            self._write(job, op="taken", **{member: getattr(job, name) for member, name in _REQUEST.items()})
            self._jobs[job.slip] = job
            self._waiting.put_nowait(job)
            if creation.after_webhook:
                return replace(answer, awaited=self._tasks.begin(job.called.wait()))
        return answer

    def status(self, print_job_id: str | None) -> Answer:
        """Return the state of a job: 200, 404 for an unknown job, 422 without an id.

        The job's scenario can change the reply.
        """
        job = next((job for job in reversed(self._jobs.values()) if job.print_job_id == print_job_id), None)
        if print_job_id is None:
            answer = plain(refusal(self._settings, invalid("print_job_id", "must be set")))
        elif job is None:
            unknown = Refused(HTTPStatus.NOT_FOUND, "UNKNOWN_PRINT_JOB", f"no print job {print_job_id}")
            answer = plain(refusal(self._settings, unknown))
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
        """Return the printed jobs, oldest first. Each has ids, time, and the document as received and as text."""
        return [
            {
                "print_job_id": job.print_job_id,
                "external_reference": job.external_reference,
                "printed_at": job.ended_at,
                "document": job.document,
                "text": on_paper(job.document),
            }
            for job in sorted(self._jobs.values(), key=lambda job: job.ended_at or "")
            if job.status in ENDS and job.scenario.prints
        ]

    def arm(self, name: str | None) -> None:
        """Set the scenario of the next job. None clears it. Raise KeyError if the scenario does not exist."""
        if name is not None and name not in prints():
            raise KeyError(name)
        self.armed = name

    def put_paper_in(self) -> None:
        """Add paper. A job that waits for paper continues, and so does the printer."""
        self._paper.set()

    def _admit(self, body: bytes) -> Job:
        request = read_print(body, self._settings.print_scenario)
        if self._waiting.qsize() >= MAX_WAITING:
            raise Refused(HTTPStatus.TOO_MANY_REQUESTS, "SPOOL_FULL", f"{MAX_WAITING} print jobs wait already")
        armed, self.armed = self.armed, None
        return request if armed is None else replace(request, name=armed)

    def _answer(self, reply: Reply, call: str, print_job_id: str, usual: messages.Usual) -> Answer:
        """Return the reply to a call with the changes of the job's scenario, for the configured number of calls."""
        self._asked[call, print_job_id] += 1
        times = self._asked[call, print_job_id]
        rng = self._random(print_job_id, f"{call}/{times}")
        return messages.apply(self._settings, reply.nth(times), usual, rng)

    def _random(self, print_job_id: str, what: str) -> Random:
        return Random(f"{self._seed}/{print_job_id}/{what}")  # noqa: S311 - reproducible, not secret

    async def _print_all(self) -> None:
        while True:
            job = await self._waiting.get()
            try:
                await self._print(job)
            except Exception:  # noqa: BLE001 - an error of the simulator must not prevent the next job
                _log.exception("the simulated print job %s broke off", job.print_job_id)

    async def _print(self, job: Job) -> None:
        scenario = job.scenario
        rng = self._random(job.print_job_id, "print")
        await self._clock.sleep(draw(PICK_UP, rng))
        self._enter(job, "IN_PROGRESS")
        match scenario.jam:
            case "for-ever":
                return
            case "no-paper":
                self._paper.clear()
                await self._paper.wait()
        await self._clock.sleep(draw(scenario.takes, rng))
        self._enter(job, "COMPLETED" if scenario.fault is None else "FAILED")
        self._tasks.begin(self._tell(job))

    def _enter(self, job: Job, status: PrintStatus) -> None:
        """Enter a state. The state is recorded before the webhook is sent, so that a query finds the reported state."""
        at = wire.timestamp() if status in ENDS else None
        self._write(job, op="state", slip=job.slip, status=status, at=at)
        job.status, job.ended_at = status, at
        if status == "IN_PROGRESS":
            self._ledger.add("printing", print_job_id=job.print_job_id)
        else:
            fault = job.scenario.fault
            self._ledger.add(
                "printed",
                print_job_id=job.print_job_id,
                slip=job.slip,
                status=job.status,
                error_code=None if fault is None else fault.code,
                text=on_paper(job.document) if job.scenario.prints else None,
            )

    async def _tell(self, job: Job) -> None:
        """Call the webhook as often as the scenario requires. A failed call is not repeated.

        Source: terminal API, Printing.
        """
        rng = self._random(job.print_job_id, "webhook")
        url = job.webhook_url
        for number, call in enumerate(job.scenario.webhooks if url else (), start=1):
            await self._clock.sleep(draw(call.after, rng))
            await self._call(job, url or "", number, call)
        job.called.set()

    async def _call(self, job: Job, url: str, number: int, call: Call) -> None:
        said = messages.changed(job.told(), call.set, call.remove)
        body = wire.encode(said) if call.raw is None else call.raw.encode()
        async with self._calls:
            outcome = await self._poster.post(url, body, WEBHOOK_SECONDS, distrusted=call.distrusted)
        self._ledger.add(
            "print_webhook",
            print_job_id=job.print_job_id,
            named=said.get("printJobId"),
            status=job.status,
            call=number,
            result=outcome,
        )


def read_print(raw: bytes, default_scenario: str) -> Job:
    """Parse and check the request that creates a job.

    The vendor documents only the ids and `webhookUrl`. The member `document`, which is printed, is an assumption.
    Without it, all undocumented members are printed.

    Raise Refused: 400 for a body that is not a JSON object, 422 for an invalid field. The message names the field.
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
    return Job(str(uuid.uuid4()), print_job_id, reference, url, scenario, document)


def _code(answer: Answer) -> str | None:
    """Return the code of a refusal for the ledger, or None."""
    if answer.http_status is None or answer.http_status < HTTPStatus.BAD_REQUEST:
        return None
    try:
        code = read_object(answer.body).get("code")
    except Refused:  # the body is not JSON
        return None
    return code if isinstance(code, str) else None


def on_paper(document: Any) -> str:
    """Return a document as text: its text, else the output of its commands, else each of its values on a line.

    Control characters, such as codes of a printer, are omitted.
    """
    text, commands = (document.get(TEXT), document.get(COMMANDS)) if isinstance(document, dict) else (document, None)
    if not isinstance(text, str) and isinstance(commands, list):
        text = "".join(map(_command, commands))
    lines = text.splitlines() if isinstance(text, str) else _lines(document, "")
    return "\n".join("".join(c for c in line.expandtabs() if c.isprintable()).rstrip() for line in lines)


def _command(command: Any) -> str:
    """Return the approximate output of one command.

    A text has only the line ends that the caller wrote (terminal API, Printing).
    """
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
        case "space" | "cut":
            return "\n"
        case "qr":
            return f"[QR: {_word(command.get('content'))}]\n"
        case _:  # the output of this command is unknown
            return f"[{_word(kind)}]\n"


def _lines(value: Any, indent: str) -> Iterator[str]:
    """Yield the lines of a value from `wire.decode`, which limits its depth."""
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
    """Return one value as text. A text is unchanged, and null is empty."""
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
