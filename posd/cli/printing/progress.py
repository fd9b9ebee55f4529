"""Showing a print job: while it runs, how it ended, and what differs from a payment."""

from collections.abc import Iterator, Mapping
from typing import Any

from posd.cli.app.advice import UNKNOWN_ATTENTION, Advice
from posd.cli.app.connection import Api, Reply
from posd.cli.app.exit_codes import for_print_job
from posd.cli.app.outcome import CurrentState, Disconnected, Update, follow_print_job
from posd.cli.app.output import Output, Pair
from posd.cli.app.subject import Progress, Subject
from posd.cli.app.tables import Id
from posd.cli.app.times import moment

# What the API's words mean for a print job: its states, what decided it, and what a person does about it.

#: status of an open print job -> what happens now (terminal API, Printing; what PENDING means is not shown there).
STATUS_HINTS: Mapping[str | None, str] = {
    None: "asking the terminal",
    "PENDING": "the terminal has it and has not begun to print",
    "IN_PROGRESS": "printing",
}

#: phase -> hint, where the phase says more than the status.
PHASE_HINTS: Mapping[str, str] = {
    "in_doubt": "not known whether the terminal took it: posd goes on asking. Do not print it again meanwhile",
}

#: status of an active print job -> its name in lists.
STATES: Mapping[str | None, str] = {"PENDING": "waiting to print", "IN_PROGRESS": "printing"}

#: status and `decided_by` of a final print job -> (style, name in lists, what it means); None stands for any other.
ENDS: Mapping[tuple[str | None, str | None], tuple[str, str, str]] = {
    ("COMPLETED", None): ("green", "printed", "The terminal printed it."),
    ("FAILED", None): ("red", "failed", "The terminal could not print it. A part of it may be on the paper."),
    ("COMPLETED", "operator"): ("green", "printed", "By a person's word: it is printed."),
    ("FAILED", "operator"): ("red", "failed", "By a person's word: it is not printed."),
    (None, "refusal"): ("red", "refused", "The terminal did not take it: nothing of it is printed."),
    (None, "unsent"): ("red", "not sent", "It never reached the terminal: nothing of it is printed."),
}
UNKNOWN_END = ("yellow", "ended", "It ended in a way that this version does not know.")

#: `decided_by` -> what that rests on.
DECIDED_BY: Mapping[str, str] = {
    "webhook": "the terminal reported it",
    "poll": "the terminal was asked",
    "refusal": "the terminal refused the request",
    "unsent": "the request was never sent",
    "operator": "a person's word",
}

#: as what a person can resolve a print job -> what that means.
RESOLVED: Mapping[str, str] = {
    "COMPLETED": "books the print job as printed",
    "FAILED": "books the print job as not printed: it can be printed again, as a new job",
}

PRINTED = Advice("Nothing more to do.")
PRINT_AGAIN = Advice("Mend what it names, then print it again, as a new job:", ("posd print FILE --reprint-of {id}",))
OPEN = Advice("Wait for its end. Do not print it again meanwhile.")

_LOOK = "posd print-jobs {id}"
_ACKNOWLEDGE = "posd acknowledge --print-job {id} "
_SETTLE = ("posd resolve {id} COMPLETED", "posd resolve {id} FAILED")

#: attention `code` of a print job -> what to do about it. `{id}` stands for its id.
ATTENTION_ADVICE: Mapping[str, Advice] = {
    "print_stuck": Advice(
        "The terminal took it long ago and has not ended it. Look at its printer (paper, cover, a jam) and its screen: "
        "once it goes on, this ends by itself. If it does not, look at what is on the paper and settle it:",
        _SETTLE,
    ),
    "in_doubt": Advice(
        "The terminal may have taken it; posd goes on asking, and never sends it again. Look at what is "
        "on the paper, and settle it:",
        _SETTLE,
    ),
    "quarantined_event": Advice(
        "A message of the terminal for this print job could not be used and was set aside. See why, mend what its "
        "reason names, have it applied; clear this if it cannot be:",
        ("posd quarantine", "posd reprocess", _ACKNOWLEDGE + "quarantined_event"),
    ),
    "unknown_status": Advice(
        "The terminal reports a state that this version does not know. Look at the paper; update posd, or settle it:",
        _SETTLE,
    ),
    "id_mismatch": Advice(
        "The terminal called this print job by two ids of its own, so that what it reported may be of another one. "
        "Look at the paper; then:",
        (_LOOK, _ACKNOWLEDGE + "id_mismatch"),
    ),
    "conflicting_final": Advice(
        "The terminal reported two different ends; the first one stands. Look at the paper; then:",
        (_LOOK, _ACKNOWLEDGE + "conflicting_final"),
    ),
    "outcome_corrected": Advice(
        "The end stated before was wrong. Look whether it was printed again meanwhile; then:",
        (_LOOK, _ACKNOWLEDGE + "outcome_corrected"),
    ),
    "orphan": Advice(
        "posd's database did not know this print job (was it restored from a backup?). Look at the paper; then:",
        (_LOOK, _ACKNOWLEDGE + "orphan"),
    ),
}


def hint(job: Mapping[str, Any]) -> str:
    """Return what happens now with an open print job, in one line."""
    if job["phase"] in PHASE_HINTS:
        return PHASE_HINTS[job["phase"]]
    return STATUS_HINTS.get(job["status"]) or f"the terminal says {job['status']}"


def state(job: Mapping[str, Any]) -> str:
    """Return in a few words where a print job stands."""
    if job["phase"] == "final":
        return _end(job)[1]
    if job["phase"] != "active":
        return str(job["phase"]).replace("_", " ")
    return STATES.get(job["status"], str(job["status"] or "taken"))


def meaning(job: Mapping[str, Any]) -> tuple[str, str]:
    """Return a final print job's style and what its end means."""
    style, _, words = _end(job)
    return style, words


def next_step(job: Mapping[str, Any]) -> Advice:
    """Return what is to be done about a print job now."""
    if job["phase"] != "final":
        return OPEN
    return PRINTED if job["status"] == "COMPLETED" else PRINT_AGAIN


def attention_advice(code: str) -> Advice:
    """Return what to do about an attention of a print job."""
    return ATTENTION_ADVICE.get(code, UNKNOWN_ATTENTION._replace(commands=(_LOOK,)))


def _end(job: Mapping[str, Any]) -> tuple[str, str, str]:
    status = job["status"]
    return ENDS.get((status, job["decided_by"])) or ENDS.get((status, None), UNKNOWN_END)


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
            self._snapshot(update.print_job)

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
        "proof": DECIDED_BY.get(job["decided_by"] or "", job["decided_by"]),
    }
    return [(label, str(value)) for label, value in fields.items() if value]


def error_text(job: Mapping[str, Any]) -> str:
    """Write why a print job failed: the printer's message and its code; empty where nothing was said."""
    code, message = job["error_code"], job["error_message"]
    return f"{message} ({code})" if message and code else str(message or code or "")


def show_end(output: Output, job: Mapping[str, Any]) -> None:
    """Write how a print job ended, in a frame on a terminal and as lines in a pipe."""
    style, words = meaning(job)
    advice = next_step(job)
    identity = job["print_job_id"]
    pairs = [
        ("result", words),
        *(pair for pair in job_pairs(job) if pair[0] not in ("created", "state")),
        ("print job", identity),
        ("next", advice.words),
    ]
    output.panel(state(job), pairs + [("", command.format(id=identity)) for command in advice.commands], style)


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
    see="posd print-jobs {id}",
    started="sent to {terminal}: {hint}\nhow it stands: posd print-jobs {id}",
    may_run="It may have been sent to the printer, and then it goes on",
    in_doubt="It may have been sent to the printer: that is not known",
    never_started="Nothing was sent to the printer.",
    started_before="This call sent nothing to the printer; an earlier one with the same --id may have.",
    left_open=(
        "  how it stands:   posd print-jobs {id}\n"
        "  to wait for it:  posd print-jobs {id} --wait\n"
        "Do not print it again under another id before that is known."
    ),
)
