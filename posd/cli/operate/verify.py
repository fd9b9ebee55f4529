"""`posd verify`: reads a database or a backup, whether the daemon runs or not."""

import sys
from pathlib import Path

import click
import msgspec

from posd.cli.app.connection import json_option
from posd.cli.app.context import context
from posd.cli.app.exit_codes import ExitCode
from posd.cli.app.output import Output
from posd.cli.operate.config import load_or_exit
from posd.cli.operate.data_words import payments, print_jobs, progress, told
from posd.upkeep import verify as checking


@click.command()
@click.argument("file", metavar="[FILE]", required=False, type=click.Path(path_type=Path))
@json_option
@click.pass_context
def verify(ctx: click.Context, output: Output, file: Path | None) -> None:
    """Check the database, or the backup FILE; nothing is changed.

    posd may run. Exit code 0: nothing is wrong. 1: something is. 2: the file cannot be checked.
    """
    if file is None:
        file = load_or_exit(context(ctx).config_path, as_json=output.as_json, check_files=False).database.path
    with told(output), progress(output) as look:
        report = checking.verify(file, look)
    if output.as_json:
        output.json(msgspec.json.encode({"ok": not report.counts, **msgspec.structs.asdict(report)}))
    else:
        _show_report(output, report)
    sys.exit(ExitCode.NOT_DONE if report.counts else ExitCode.DONE)


def _show_report(output: Output, report: checking.Report) -> None:
    what = "backup" if report.backup else "database"
    counted = f"{payments(report.transactions)}, {report.events} events"
    if report.print_jobs:
        counted += f", {print_jobs(report.print_jobs)}"
    checked = f"{counted}, schema {report.schema}"
    if not report.counts:
        output.line(f"{report.file}: nothing is wrong with this {what} ({checked}).", "green")
        return
    output.line(f"{report.file}: something is wrong with this {what} ({checked}).", "red")
    for kind, count in report.counts.items():
        found = [finding for finding in report.findings if finding.kind == kind]
        output.line(f"{kind}: {found[0].means}", "bold")
        for finding in found:
            output.line(f"{finding.subject}: {finding.detail}", indent=2)
        if count > len(found):
            output.line(f"and {count - len(found)} more", indent=2)
        output.line(f"What to do: {found[0].cure}", "yellow", indent=2)
