"""What a person decides about a print job: `posd resolve ID COMPLETED|FAILED`, and `posd acknowledge`."""

from collections.abc import Callable, Mapping
from typing import Any

import click

from posd.cli.app.connection import Api, connect
from posd.cli.app.decisions import agree, decide, not_open, refuse
from posd.cli.app.output import Output
from posd.cli.printing import progress
from posd.cli.printing.command import job_id
from posd.cli.printing.progress import job_pairs, show_attention, show_end

RESOLVE_MEANS = (
    "This {does}. It rests on your word alone: look at what is on the paper first. If the terminal says otherwise "
    "later, that wins."
)
ACKNOWLEDGE_MEANS = "This takes the mark {code} off the print job, and changes nothing else about it."


def resolve(
    ctx: click.Context, output: Output, identity: str, status: str, operator: str, note: str | None, *, yes: bool
) -> None:
    """Close an open print job as that status; on a terminal it is shown and asked for first."""

    def explain(aside: Output, job: Mapping[str, Any]) -> None:
        if job["phase"] == "final":
            refuse(output, f"cannot resolve it: it has already ended ({progress.state(job)})")
        aside.line(RESOLVE_MEANS.format(does=progress.RESOLVED[status]))

    path = f"/print-jobs/{job_id(identity)}"
    with connect(ctx) as api:
        look = _looking(api, path, explain)
        note = agree(look, note, f"Book {identity} as {status}?", yes=yes, kept_with="print job")
        body = {"result": status, "operator": operator, "note": note}
        reply = decide(api, output, path, f"posd print-jobs {identity}", "resolve", body)
    if not output.as_json:
        show_end(output, reply.body)
        show_attention(output, reply.body)


def acknowledge(
    ctx: click.Context, output: Output, identity: str, code: str, operator: str, note: str | None, *, yes: bool
) -> None:
    """Clear one attention of a print job; on a terminal it is shown and asked for first."""

    def explain(aside: Output, job: Mapping[str, Any]) -> None:
        found = [item for item in job["attention"] if item["code"] == code]
        if not found:
            refuse(output, not_open(code, identity, job))
        show_attention(aside, {**job, "attention": found})
        aside.line(ACKNOWLEDGE_MEANS.format(code=code))

    path = f"/print-jobs/{job_id(identity)}"
    with connect(ctx) as api:
        look = _looking(api, path, explain)
        note = agree(look, note, f"Clear {code}?", yes=yes, kept_with="print job")
        body = {"code": code, "operator": operator, "note": note}
        reply = decide(api, output, path, f"posd print-jobs {identity}", "acknowledge", body)
    output.line(f"{code} is cleared.")
    show_attention(output, reply.body)


def _looking(api: Api, path: str, explain: Callable[[Output, Mapping[str, Any]], None]) -> Callable[[Output], None]:
    """Return what shows the print job, and then by `explain` what the decision means."""

    def look(aside: Output) -> None:
        job = api.get(path).body
        aside.panel(f"print job {job['print_job_id']}", job_pairs(job), "cyan")
        explain(aside, job)

    return look
