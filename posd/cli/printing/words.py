"""What the API's words mean for a print job: its states, what decided it, and what a person does about it."""

from collections.abc import Mapping
from typing import Any

from posd.cli.app.advice import UNKNOWN_ATTENTION, Advice

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
        "It is not known whether the terminal took it; posd goes on asking, and never sends it again. Look at what is "
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
