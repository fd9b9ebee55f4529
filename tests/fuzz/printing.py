"""Targets of the print channel: webhook, and the replies to a creation and to a poll."""

from collections.abc import Sequence

import msgspec
from hypothesis.strategies import SearchStrategy

from posd.base.damaged_json import readable
from posd.base.json_types import encode
from posd.printing import entries
from posd.printing.entries import Called, Created, Polled, apply, repeats
from posd.printing.model import FINALS, STATED, JobAccepted, JobReport, PrintJob
from posd.printing.wire import NotAPrintEvent, PollAnswered, judge, read_poll, read_status, read_webhook
from posd.records.model import Phase
from posd.terminals.attempt import Doubtful, NeverSent, NotSent, Replied, ReplyLost, StartRefused
from tests.core.scenarios import NOW
from tests.fuzz import reading, seeds
from tests.fuzz.codec import NeverError, attempt_of, attempts
from tests.fuzz.mutation import bodies
from tests.fuzz.seeds import PRINT_JOB, TERMINAL_JOB
from tests.fuzz.target import Case, Target, beside, refused_alone

_PRINTING = "posd/printing/"
ID_NAMES = ("printJobId", "print_job_id", "id")

NEW = PrintJob(
    print_job_id=PRINT_JOB,
    terminal=seeds.SERIAL,
    created_at="",
    updated_at="",
    phase=Phase.STARTING,
    sent_to="https://192.0.2.9",
)


def _jobs() -> tuple[PrintJob, ...]:
    """Jobs in every phase, as a terminal's word may find them."""
    taken = apply(NEW, Created(Replied(202, encode({"id": TERMINAL_JOB, "status": "PENDING"}))), NOW)
    refused = apply(NEW, Created(Replied(422, b"no")), NOW)
    doubtful = apply(NEW, Created(ReplyLost("no reply in time")), NOW)
    ended = [apply(taken, Called(encode(item)), NOW) for item in seeds.PRINT_WEBHOOKS]
    return (NEW, taken, refused, doubtful, *ended)


JOBS = _jobs()


def check_webhook(case: Case) -> None:
    """A print webhook is read the same way always, or refused with a reason; it says once which job and how it ended.

    No webhook takes a job out of an end that the terminal stated; the same one again is known as a repeat.
    """
    report: JobReport | None = refused_alone(NotAPrintEvent, read_webhook, case.body)
    if report is None:
        return
    document = reading.pairs(readable(case.body).body)
    for name in ("printJobId", "status"):
        assert reading.one_thing(document, name), f"{name} says several things"
    assert report.job_id
    assert report.status == read_status(case.body)
    for before in JOBS:
        after = apply(before, Called(case.body), NOW)
        check_step(before, after)
        assert repeats(after, case.body, [case.body], NOW)
        assert apply(after, Called(case.body), NOW) == after, "the same webhook again changes something"


def check_step(before: PrintJob, after: PrintJob) -> None:
    """One step of a job: an end that the terminal stated stands; what it ends by is there exactly when it has ended."""
    assert (after.phase is Phase.FINAL) == (after.decided_by is not None)
    assert after.phase is not Phase.FINAL or after.status in (*FINALS, None)
    if before.decided_by in STATED:
        assert (after.phase, after.status, after.decided_by) == (before.phase, before.status, before.decided_by)
    assert msgspec.json.decode(encode(after.attention)) is not None


def check_creation(case: Case) -> None:
    """The answer to the creation of a job proves what its status proves; a state is read where it says one thing."""
    attempt = attempt_of(case)
    judgement = refused_alone(NeverError, judge, attempt)
    match attempt:
        case NotSent():
            assert isinstance(judgement, NeverSent)
        case ReplyLost():
            assert isinstance(judgement, Doubtful)
        case Replied(status=status) if 200 <= status < 300:
            assert isinstance(judgement, JobAccepted)
        case Replied(status=status):
            assert isinstance(judgement, StartRefused if 300 <= status < 500 and status != 408 else Doubtful)
    if isinstance(judgement, JobAccepted) and (judgement.job_id or judgement.report):
        document = reading.pairs(readable(case.body).body)
        if judgement.report:
            assert reading.one_thing(document, "status"), "the status says several things"
        if judgement.job_id:
            assert any(_said_once(document, name, judgement.job_id) for name in ID_NAMES), "the id says several things"
    entry = msgspec.json.decode(encode(Created(attempt, reads_errors=True)), type=entries.Entry)
    for before in JOBS:
        after = apply(before, Created(attempt, reads_errors=True), NOW)
        check_step(before, after)
        assert apply(before, entry, NOW) == after, "what is recorded of the answer proves something else"


def check_poll(case: Case) -> None:
    """A poll's reply is read the same way always; a state of our job is one thing that is said of our job alone."""
    attempt = attempt_of(case)
    for before in JOBS:
        answer = refused_alone(NeverError, read_poll, attempt, before)
        if isinstance(answer, PollAnswered):
            assert isinstance(attempt, Replied)
            assert attempt.complete
            assert 200 <= attempt.status < 300
            document = reading.pairs(readable(case.body).body)
            elements = document if not isinstance(document, reading.Pairs) else [document]
            assert any(_is_ours(element, before, answer.report.status) for element in elements)
            if len(elements) > 1:
                said = [value for element in elements if _names(element, before) for value in element.all("status")]
                assert {*map(str, said)} == {str(said[0])}, f"the elements of our job say {said}"
        entry = msgspec.json.decode(encode(Polled(answer)), type=entries.Entry)
        after = apply(before, Polled(answer), NOW)
        check_step(before, after)
        assert apply(before, entry, NOW) == after, "what is recorded of the poll says something else"


def _is_ours(element: object, job: PrintJob, word: str) -> bool:
    """Whether an element says this of the job, and nothing else of it; an id that stands there twice is no id."""
    if not isinstance(element, reading.Pairs):
        return False
    named = [value for name in ID_NAMES for value in element.all(name)]
    once = all(reading.one_thing(element, name) for name in (*ID_NAMES, "status"))
    ours = not named or bool({str(value) for value in named} & {job.print_job_id, job.asked_as})
    return once and ours and any(str(value).startswith(word) for value in element.all("status"))


def _names(element: object, job: PrintJob) -> bool:
    """Whether an element names the job, and no other job under the same name."""
    if not isinstance(element, reading.Pairs) or not all(reading.one_thing(element, name) for name in ID_NAMES):
        return False
    return bool({str(value) for name in ID_NAMES for value in element.all(name)} & {job.print_job_id, job.asked_as})


def _said_once(document: object, name: str, text: str) -> bool:
    return reading.one_thing(document, name) and text in map(str, reading.values(document, name))


def _webhooks(corpus: Sequence[bytes]) -> SearchStrategy[Case]:
    return beside(bodies(seeds.PRINT_WEBHOOKS, seeds.PRINT_WORDS, corpus))


def _replies(corpus: Sequence[bytes]) -> SearchStrategy[Case]:
    return attempts(bodies(seeds.PRINT_REPLIES, seeds.PRINT_WORDS, corpus))


_MODULES = tuple(_PRINTING + name for name in ("wire.py", "model.py", "entries.py"))

PRINT_WEBHOOK = Target("print-webhook", _webhooks, check_webhook, _MODULES)
PRINT_CREATION = Target("print-creation", _replies, check_creation, _MODULES)
PRINT_POLL = Target("print-poll", _replies, check_poll, _MODULES)
