"""Print jobs in a database, as the daemon would write them."""

import json

from posd.base.times import iso
from posd.printing import rows
from posd.printing.entries import Called, Created, Entry, Interrupted, Polled, Turn
from posd.printing.model import JobReport, PrintJob, rebuild
from posd.printing.wire import NoAnswer, PollAnswered, read_webhook
from posd.records.model import Phase
from posd.storage.batch import WriteTransaction
from posd.terminals.attempt import NotSent, Replied, ReplyLost
from tests.rig.tables import there
from tests.store.filled import Filled, terminal

TAKEN = Replied(202, b"{}")

#: Name of a story -> the job's entries after the intent. `{}` in a webhook stands for the job's id.
STORIES: dict[str, tuple[Entry | str, ...]] = {
    "completed": (Created(TAKEN), "COMPLETED"),
    "failed by poll": (
        Created(TAKEN),
        Polled(PollAnswered(JobReport("IN_PROGRESS"))),
        Polled(PollAnswered(JobReport("FAILED"))),
    ),
    "open": (Created(TAKEN), Polled(PollAnswered(JobReport("IN_PROGRESS")))),
    "in doubt": (Created(ReplyLost("reset")), Polled(NoAnswer("time-out"))),
    "refused": (Created(Replied(422, b"no paper size")),),
    "unsent": (Created(NotSent("connection refused")),),
    "waited": (Turn(), Created(TAKEN), "COMPLETED"),
    "left in the queue": (Interrupted(in_line=True),),
    "interrupted": (Interrupted(in_line=False),),
    "conflict": (Created(TAKEN), "COMPLETED", "FAILED"),
}
QUEUED = ("waited", "left in the queue")


def webhook(identity: str, status: str) -> bytes:
    """Return a webhook of the terminal."""
    document = {"printJobId": identity, "status": status, "externalReference": "ticket 7"}
    if status == "FAILED":
        document |= {"errorCode": "E7", "errorMessage": "out of paper"}
    return json.dumps(document).encode()


def print_intent(filled: Filled, identity: str, number: int = 1, *, queued: bool = False, pad: int = 0) -> PrintJob:
    """Record the intent of a print job."""
    at = iso(filled.now())
    job = PrintJob(
        print_job_id=identity,
        terminal=terminal(number),
        created_at=at,
        updated_at=at,
        phase=Phase.STARTING,
        external_reference="ticket 7",
        document=b'{"text": "%s"}' % (b"x" * pad),
        sent_to="https://127.0.0.1:1",
        queued=queued,
    )
    rows.begin(WriteTransaction(filled.db), job, "intent")
    return job


def happen(filled: Filled, identity: str, *entries: Entry | str) -> PrintJob:
    """Record these entries for a job. A string stands for a webhook with that status."""
    job = there(rows.get(filled.db, identity))
    for item in entries:
        entry = Called(webhook(identity, item)) if isinstance(item, str) else item
        job = rows.record(WriteTransaction(filled.db), job, entry, filled.now())
    return job


def print_out(filled: Filled, identity: str, story: str = "completed", number: int = 1, *, pad: int = 0) -> PrintJob:
    """Record a job with all entries of a story."""
    print_intent(filled, identity, number, queued=story in QUEUED, pad=pad)
    return happen(filled, identity, *STORIES[story])


def orphan(filled: Filled, identity: str) -> PrintJob:
    """Deliver a webhook for an unknown job."""
    body = webhook(identity, "COMPLETED")
    job = rebuild(read_webhook(body), identity, filled.now())
    rows.begin(WriteTransaction(filled.db), job, "orphan")
    return rows.record(WriteTransaction(filled.db), job, Called(body), filled.clock)
