"""`posd doctor`: what is wrong here, what does it mean, and what is to be done."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from posd.cli.app.connection import json_option
from posd.cli.app.context import context
from posd.cli.app.exit_codes import ExitCode
from posd.cli.app.output import Output
from posd.cli.doctor.context import Finding, Status


@click.command()
@json_option
@click.pass_context
def doctor(ctx: click.Context, output: Output) -> None:
    """Check all that payments depend on: files, certificate, clock, network, terminals.

    Nothing is changed and no payment is started, whether posd runs or not. Exit code 0: nothing has failed. 1:
    something has. 2: the configuration cannot be read.
    """
    # Here and not above: this loads more than any other command needs.
    from posd.cli.doctor import show
    from posd.cli.doctor.checks import CHECKS, examine
    from posd.cli.doctor.context import Shop
    from posd.config import examine as read

    file = Path(context(ctx).config_path)
    given = context(ctx).socket_path
    config, problems = read(file, check_files=False)
    shop = Shop(file.absolute(), config, problems, Path(given) if given else None)
    if not output.rich:
        show.header(output)
    for name, check in CHECKS.items():
        if config is None and check.needs_configuration:
            continue
        with output.busy(f"{check.title} (up to {check.seconds:g} s)"):
            findings = examine(name, check, shop)
        show.group(output, check.title, findings)
    if output.as_json:
        output.json(msgspec.json.encode(shop.found))
    else:
        show.summary(output, shop.found, unread=config is None)
    sys.exit(_code(shop.found, unread=config is None))


def _code(found: Sequence[Finding], *, unread: bool) -> ExitCode:
    if unread:
        return ExitCode.USAGE
    failed = any(finding.status is Status.FAILURE for finding in found)
    return ExitCode.NOT_DONE if failed else ExitCode.DONE
