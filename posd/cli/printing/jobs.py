"""`posd print-jobs`: print jobs, the newest first, or one with all that happened to it."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import click

from posd.cli.app.completion_words import print_jobs as jobs_to_name
from posd.cli.app.completion_words import serials
from posd.cli.app.connection import connect, json_option
from posd.cli.app.context import context
from posd.cli.app.output import Output, moment
from posd.cli.payments import words
from posd.cli.payments.await_outcome import look
from posd.cli.payments.listing import MORE, read_pages, show_what_to_do
from posd.cli.printing.command import finish, job_id, leave_open, wait
from posd.cli.printing.progress import PrintProgress, attention_advice, hint, job_pairs, show_attention, show_end, state


@click.command("print-jobs")
@click.argument("identity", metavar="[ID]", type=job_id, required=False, shell_complete=jobs_to_name())
@click.option("--open", "only_open", is_flag=True, help="Only those that are not final.")
@click.option("--attention", is_flag=True, help="Only those that a person should look at.")
@click.option("--terminal", metavar="SERIAL", shell_complete=serials, help="Only this terminal.")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True, help="How many at a time.")
@click.option("--all", "everything", is_flag=True, help="All of them, not only the newest (--json: a page a line).")
@click.option("--wait", "waiting", is_flag=True, help="With ID: wait for its end (exit codes as of posd print).")
@json_option
@click.pass_context
def print_jobs(
    ctx: click.Context,
    output: Output,
    identity: str | None,
    only_open: bool,
    attention: bool,
    terminal: str | None,
    limit: int,
    everything: bool,
    waiting: bool,
) -> None:
    """List print jobs, the newest first.

    With ID: everything about one of them, with its history.
    """
    if identity is None:
        if waiting:
            raise click.UsageError("--wait is for one print job: name its ID")
        marks = {"open": only_open, "attention": attention}
        params = {"limit": str(limit)} | {name: "true" for name, wanted in marks.items() if wanted}
        _list(ctx, output, params | ({"terminal": terminal} if terminal else {}), everything=everything)
    elif waiting:
        _wait(ctx, output, identity)
    else:
        _show(ctx, output, identity)


def _list(ctx: click.Context, output: Output, params: Mapping[str, str], *, everything: bool) -> None:
    with connect(ctx) as api:
        jobs, more = read_pages(api, output, "print_jobs", params, everything=everything)
    if jobs or not output.rich:
        output.table(
            ("created", "print job", "terminal", "reference", "state"),
            (list_row(job, narrow=output.narrow) for job in jobs),
            whole="print job",
            under="terminal",
        )
    else:
        output.line("No print jobs.")
    if "attention" in params:
        marks = ((item["code"], job["print_job_id"]) for job in jobs for item in job["attention"])
        show_what_to_do(output, ((code, attention_advice(code), identity) for code, identity in marks))
    if more:
        output.note(MORE)


def list_row(job: Mapping[str, Any], *, narrow: bool) -> tuple[str, ...]:
    """Return a print job's row in the list; attention stands behind its state.

    `narrow` puts the time below the date: the row has a second line anyway, for the terminal.
    """
    marks = " ".join(f"!{item['code']}" for item in job["attention"])
    return (
        moment(job["created_at"], date=True)[5:16].replace(" ", "\n" if narrow else " "),
        job["print_job_id"],
        job["terminal"] or "-",
        job["external_reference"] or "-",
        f"{state(job)} {marks}".strip(),
    )


def _wait(ctx: click.Context, output: Output, identity: str) -> None:
    context(ctx).starts = True
    with connect(ctx) as api:
        reply = look(api, f"/print-jobs/{identity}", output, partial(leave_open, PrintProgress(output), identity))
        if reply.body["phase"] != "final":
            with PrintProgress(output) as progress:
                reply = wait(api, progress, reply, None)
    finish(output, reply)


def _show(ctx: click.Context, output: Output, identity: str) -> None:
    path = f"/print-jobs/{identity}"
    with connect(ctx) as api:
        reply = api.get(path)
        if output.as_json:
            output.json(reply.raw)
            return
        happened = api.get(f"{path}/history").body["history"]
    job = reply.body
    output.panel(f"print job {identity}", job_pairs(job), "cyan")
    if job["phase"] == "final":
        show_end(output, job)
    else:
        output.line(f"now: {hint(job)}")
    show_attention(output, job)
    # A webhook's body says no more than the fields beside it, at length.
    told = [{name: value for name, value in entry.items() if name != "body"} for entry in happened]
    output.table(("time", "what", "details"), words.rows(told, {}))
