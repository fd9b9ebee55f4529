"""`posd print`: a text or a document on a terminal's printer, once, and how it ended."""

import sys
import uuid
from functools import partial
from typing import Any, NoReturn

import click

from posd.cli.app.api import Api, Problem, Reply, Unreachable
from posd.cli.app.completion_words import files, serials
from posd.cli.app.connection import connect, json_option
from posd.cli.app.context import context
from posd.cli.app.exit_codes import ExitCode, for_print_job
from posd.cli.app.output import Output
from posd.cli.app.waiting import Snapshot, TimedOut, follow_print_job
from posd.cli.payments.await_outcome import DOUBTFUL, begin, deadline_in, not_known, timeout_option
from posd.cli.printing.progress import GOES_ON, PrintProgress, show_attention, show_end
from posd.cli.printing.source import job_id, read_document
from posd.cli.printing.words import hint

SENT_BEFORE = "This call sent nothing to the printer; an earlier one with the same --id may have."


@click.command("print")
@click.argument("file", metavar="FILE", shell_complete=files)
@click.option(
    "--terminal",
    metavar="SERIAL",
    shell_complete=serials,
    help="The terminal; may be left out where there is only one.",
)
@click.option("--reference", metavar="TEXT", help="What it belongs to: the terminal gives it back, lists show it.")
@click.option("--reprint-of", type=job_id, metavar="ID", help="The print job of which this is a reprint.")
@click.option("--text", "as_text", is_flag=True, help="Print FILE as text, even where it is a JSON object.")
@click.option("--id", "given_id", type=job_id, metavar="ID", help="Its id; made here where left out.")
@click.option("--no-wait", is_flag=True, help="Only start it (exit code 0 once it runs).")
@timeout_option
@json_option
@click.pass_context
def print_(
    ctx: click.Context,
    /,
    output: Output,
    file: str,
    as_text: bool,
    given_id: str | None,
    no_wait: bool,
    timeout: float | None,
    **given: str | None,
) -> None:
    """Print FILE on a terminal.

    A text (UTF-8) becomes a document; a file that is a JSON object is sent as it stands. "-" is standard input.

    The command waits for the end of the print job. Repeated with the same --id and all else the same it never prints a
    second time: it joins the first. Exit code 0: printed. 1: it failed, or was not taken. 4: still open.
    """
    deadline = deadline_in(timeout)
    fields = {
        "terminal": given["terminal"],
        "external_reference": given["reference"],
        "reprint_of": given["reprint_of"],
    }
    request: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
    request["document"] = read_document(ctx, file, as_text=as_text)
    identity = given_id or str(uuid.uuid4())
    context(ctx).starts = True
    with connect(ctx) as api, PrintProgress(output) as progress:
        # Before the call: whatever happens from here on, the id is on the screen.
        write = output.note if output.as_json else output.line
        write(f"print job {identity}")
        reply = begin(
            api,
            progress,
            f"/print-jobs/{identity}",
            request,
            deadline=deadline,
            nothing=SENT_BEFORE if given_id else "Nothing was sent to the printer.",
            maybe="It may have been sent to the printer, and then it goes on",
            leave=partial(leave_open, progress, identity),
        )
        if reply.body["phase"] != "final" and not no_wait:
            reply = wait(api, progress, reply, deadline)
    if reply.body["phase"] in DOUBTFUL:
        leave_open(progress, identity, "It may have been sent to the printer: that is not known", reply)
    if reply.body["phase"] != "final":
        _show_started(output, reply)
    finish(output, reply)


def wait(api: Api, progress: PrintProgress, reply: Reply, deadline: float | None) -> Reply:
    """Follow the print job until it is final; leave the program with OPEN where that is not to be had.

    So it does at the deadline, on Ctrl-C, and where posd fails and goes on failing: that is no outcome.
    """
    identity = reply.body["print_job_id"]
    try:
        progress.show(Snapshot(reply))
        for update in follow_print_job(api, f"/print-jobs/{identity}", deadline=deadline):
            progress.show(update)
            if isinstance(update, Snapshot):
                reply = update.reply
    except TimedOut:
        leave_open(progress, identity, f"Still open; {GOES_ON}", reply)
    except KeyboardInterrupt:
        leave_open(progress, identity, f"Stopped waiting; {GOES_ON}", reply)
    except (Problem, Unreachable) as error:
        leave_open(progress, identity, not_known(error), reply)
    return reply


def leave_open(progress: PrintProgress, identity: str, why: str, reply: Reply | None = None) -> NoReturn:
    """Say why a print job is left open and how to ask again, and leave the program; `reply` is what --json shows."""
    progress.close()
    output = progress.output
    if output.as_json and reply is not None:
        output.json(reply.raw)
    output.note(
        f"{why}.\n"
        f"  how it stands:   posd print-jobs {identity}\n"
        f"  to wait for it:  posd print-jobs {identity} --wait\n"
        "Do not print it again under another id before that is known.",
        style="yellow",
    )
    sys.exit(ExitCode.OPEN)


def finish(output: Output, reply: Reply) -> NoReturn:
    """Write how a print job ended, and leave the program by it."""
    if output.as_json:
        output.json(reply.raw)
    else:
        show_end(output, reply.body)
        show_attention(output, reply.body)
    sys.exit(for_print_job(reply.body))


def _show_started(output: Output, reply: Reply) -> NoReturn:
    if output.as_json:
        output.json(reply.raw)
    job = reply.body
    output.line(f"sent to {job['terminal']}: {hint(job)}")
    output.line(f"how it stands: posd print-jobs {job['print_job_id']}")
    sys.exit(ExitCode.DONE)
