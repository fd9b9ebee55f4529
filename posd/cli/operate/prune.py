"""`posd prune`: the running daemon removes what is older than it has to be kept."""

import sys
from collections.abc import Mapping
from typing import Any

import click

from posd.cli.app.connection import Api, connect, json_option
from posd.cli.app.exit_codes import ExitCode
from posd.cli.app.output import Output, moment
from posd.cli.app.parameters import asks
from posd.cli.operate.data_words import payments, print_jobs, size

#: seconds: far above what the largest database needs, so that a fault ends too.
PRUNE_SECONDS = 6 * 3600.0

#: Why something is kept -> words.
KEPT = {
    "open": "open: they have no outcome yet",
    "attention": "somebody has to look at them: posd list --attention, posd print-jobs --attention",
    "recent": "they ended, or changed, less long ago",
    "chain": "something that derives from the same original is kept",
    "sale": "they say that their sale is paid, and a newer attempt of it is kept",
}


@click.command()
@click.option(
    "--older-than",
    type=click.IntRange(0, 36_500),
    metavar="DAYS",
    help="What ended more than DAYS days ago; without it, as configured (database.retention_days).",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option("--yes", is_flag=True, help="Do not ask whether it is meant.")
@json_option
@click.pass_context
def prune(ctx: click.Context, output: Output, older_than: int | None, dry_run: bool, yes: bool) -> None:
    """Remove payments and print jobs that ended long ago.

    posd does so by itself once a day. What is open or has attention stays, and what belongs to it. Of what is removed
    the ids stay, with terminal and result, so that no payment is ever started twice. It cannot be undone.
    """
    asked: dict[str, Any] = {} if older_than is None else {"older_than_days": older_than}
    with connect(ctx) as api:
        if not dry_run and not yes:
            if not asks():
                raise click.UsageError("say --yes: what is removed cannot be brought back (--dry-run says what it is)")
            aside = Output(as_json=False, stream=sys.stderr)
            _show(aside, _post(api, output, "posd looks what is old", {**asked, "dry_run": True}).body)
            if not click.confirm("Remove it? It cannot be undone", err=True):
                aside.line("Nothing was removed.")
                sys.exit(ExitCode.NOT_DONE)
        try:
            reply = _post(api, output, "posd removes what is old", {**asked, "dry_run": dry_run})
        except KeyboardInterrupt:
            output.note("Stopped waiting; posd may go on with it.", "yellow")
            sys.exit(ExitCode.OPEN)
    if output.as_json:
        output.json(reply.raw)
    else:
        _show(output, reply.body)


def _post(api: Api, output: Output, what: str, body: Mapping[str, Any]) -> Any:
    with output.busy(what):
        return api.post("/prune", body, seconds=PRUNE_SECONDS)


def _show(output: Output, report: Mapping[str, Any]) -> None:
    removed, dry_run = report["removed"], report["dry_run"]
    counted = [payments(removed["transactions"]), print_jobs(removed["print_jobs"])]
    if removed["quarantined"]:
        counted.append(f"{removed['quarantined']} refused callbacks")
    verb = "Would be removed" if dry_run else "Removed"
    output.line(
        f"{verb}: {', '.join(counted)}, of before {moment(report['before'], date=True)}.", "" if dry_run else "green"
    )
    for reason, count in sorted(report["kept"].items()):
        output.line(f"kept {count}: {KEPT.get(reason, reason)}", indent=2)
    if dry_run:
        return
    if report["bytes_returned"] is None:
        output.line(
            "The file is as large as before, and new payments use the space. To make it smaller once: posd backup "
            "FILE, stop posd, posd restore FILE."
        )
    else:
        after = report["bytes_before"] - report["bytes_returned"]
        output.line(f"Space returned: {size(max(0, report['bytes_returned']))}; the database has {size(after)} now.")
    output.line("Their ids are kept: none of them is ever started again.")
