"""Showing a print job: while it runs, how it ended, and what a person should look at."""

from collections.abc import Mapping
from typing import Any

from posd.cli.app.live import LiveLine
from posd.cli.app.output import Output, Pair, moment
from posd.cli.app.waiting import Away, Snapshot
from posd.cli.payments.progress import show_advice
from posd.cli.printing.words import DECIDED_BY, attention_advice, hint, meaning, next_step, state

GOES_ON = "the print job goes on"


class PrintProgress(LiveLine):
    """Writes the updates of one print job. With --json it writes nothing but a daemon that is away (to stderr)."""

    def __init__(self, output: Output) -> None:
        super().__init__(output, GOES_ON)
        self._status: str | None = None
        self._attention: set[str] = set()

    def show(self, update: Snapshot | Away) -> None:
        """Write what one update of `waiting.follow_print_job` says."""
        if isinstance(update, Away):
            self.away(update.reason)
            return
        self.back()
        job = update.print_job
        if job["status"] not in (None, self._status):
            self._status = job["status"]
            self.output.line(f"{moment(job['updated_at'])}  {job['status']}")
        if job["phase"] == "final":
            return
        self.now(hint(job))
        news = [item for item in job["attention"] if item["code"] not in self._attention]
        self._attention |= {item["code"] for item in news}
        show_attention(self.output, {**job, "attention": news})


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


def show_attention(output: Output, job: Mapping[str, Any]) -> None:
    """Write what a person should look at, why, and what to do about it."""
    for item in job["attention"]:
        detail = item.get("detail")
        output.line(f"attention {item['code']}" + (f": {detail}" if detail else ""), "yellow")
        show_advice(output, attention_advice(item["code"]), [job["print_job_id"]])
