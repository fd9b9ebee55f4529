"""Showing a print job: while it runs, how it ended, and what differs from a payment."""

from collections.abc import Iterator, Mapping
from typing import Any

from posd.cli.app.advice import known_advice
from posd.cli.app.connection import Api, Reply
from posd.cli.app.exit_codes import for_print_job
from posd.cli.app.outcome import CurrentState, Disconnected, Update, follow_print_job
from posd.cli.app.output import Output, Pair
from posd.cli.app.subject import Progress, Subject
from posd.cli.app.tables import Id
from posd.cli.app.times import moment
from posd.cli.explain.catalogue import Advice, advice, chosen


def hint(job: Mapping[str, Any]) -> str:
    """Return what happens now with an open print job, in one line."""
    hints, status = chosen("hint"), job["status"]
    if job["phase"] == "in_doubt" or status is None:
        return str(hints["print_in_doubt" if job["phase"] == "in_doubt" else "asking"])
    return str(chosen("printing").get(status, {}).get("hint", f"the terminal says {status}"))


def state(job: Mapping[str, Any]) -> str:
    """Return in a few words where a print job stands."""
    if job["phase"] == "final":
        return _end(job)["short"]
    if job["phase"] != "active":
        return str(job["phase"]).replace("_", " ")
    return str(chosen("printing").get(job["status"], {}).get("short", job["status"] or "taken"))


def meaning(job: Mapping[str, Any]) -> tuple[str, str]:
    """Return a final print job's style and what its end means."""
    end = _end(job)
    known = end is not chosen("printed")["unknown"]
    return "green" if job["status"] == "COMPLETED" else "red" if known else "yellow", end["means"]


def next_step(job: Mapping[str, Any]) -> Advice:
    """Return what is to be done about a print job now."""
    if job["phase"] != "final":
        return known_advice("printing")
    return known_advice("printed" if job["status"] == "COMPLETED" else "print_again")


def attention_advice(code: str) -> Advice:
    """Return what to do about an attention of a print job."""
    return advice("print", code) or known_advice("unknown")._replace(commands=("posd print-jobs {id}",))


def _end(job: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the words of how a print job ended, by its status and by what decided it."""
    ends, status, by = chosen("printed"), job["status"], job["decided_by"]
    found: Mapping[str, str] = ends.get(f"{status} {by}") or ends.get(status or by) or ends["unknown"]
    return found


class PrintProgress(Progress):
    """Writes the updates of one print job."""

    def __init__(self, output: Output, job: Mapping[str, Any]) -> None:
        super().__init__(output, PRINT_JOB, job)
        self._status: str | None = None

    def show(self, update: Update) -> None:
        """Write what one update of `waiting.follow_print_job` says."""
        if isinstance(update, Disconnected):
            self.away(update.reason)
        elif isinstance(update, CurrentState):
            self.back()
            self._snapshot(update.transaction)

    def _snapshot(self, job: Mapping[str, Any]) -> None:
        if job["status"] not in (None, self._status):
            self._status = job["status"]
            self.output.line(f"{self.output.moment(job['updated_at'])}  {job['status']}")
        if job["phase"] != "final":
            self.show_open(job)


def job_pairs(job: Mapping[str, Any]) -> list[Pair]:
    """Return what to show of a print job, label and value, empty fields left out."""
    fields = {
        "terminal": job["terminal"] or "not known here",
        "reference": job["external_reference"],
        "reprint of": job["reprint_of"],
        "printed again": ", ".join(job.get("reprints", ())),
        "terminal's id": job.get("terminal_job_id"),
        "created": moment(job["created_at"], date=True),
        "state": f"{state(job)} since {moment(job['updated_at'], date=True)}",
        "error": error_text(job),
        "why": job.get("reason"),
        "proof": chosen("decided_by").get(job["decided_by"], job["decided_by"]),
    }
    return [(label, str(value)) for label, value in fields.items() if value]


def error_text(job: Mapping[str, Any]) -> str:
    """Write why a print job failed: the printer's message and its code; empty if nothing was said."""
    code, message = job["error_code"], job["error_message"]
    return f"{message} ({code})" if message and code else str(message or code or "")


def show_end(output: Output, job: Mapping[str, Any]) -> None:
    """Write how a print job ended, in a frame on a terminal and as lines in a pipe."""
    style, words = meaning(job)
    following = next_step(job)
    identity = job["print_job_id"]
    pairs = [
        ("result", words),
        *(pair for pair in job_pairs(job) if pair[0] not in ("created", "state")),
        ("print job", identity),
        ("next", following.words),
    ]
    output.panel(state(job), pairs + [("", command.format(id=identity)) for command in following.commands], style)


def _updates(api: Api, reply: Reply, deadline: float | None) -> Iterator[Update]:
    """Yield how it stands now, and then each change."""
    yield CurrentState(reply)
    yield from follow_print_job(api, PRINT_JOB.path(reply.body["print_job_id"]), deadline=deadline)


PRINT_JOB = Subject(
    plural="print_jobs",
    list="posd print-jobs",
    uuids=False,
    key="print_job_id",
    word="print job",
    title="print job",
    noun=lambda _: "print job",
    state=state,
    hint=hint,
    advice=lambda code, _: attention_advice(code),
    summary=job_pairs,
    columns={"reference": lambda job: job["external_reference"] or ""},
    extra={"reprint of": lambda job: Id(job["reprint_of"] or ""), "error": lambda job: error_text(job)},
    show_end=show_end,
    exit_code=for_print_job,
    follow=_updates,
    progress=PrintProgress,
)
