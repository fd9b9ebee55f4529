"""`posd metrics`, `posd openapi`, `posd completion`: one text each, printed as it is."""

import sys

import click

from posd.cli.app.completion_words import SHELLS
from posd.cli.app.connection import connect


@click.command()
@click.pass_context
def metrics(ctx: click.Context) -> None:
    """Print the daemon's metrics in Prometheus' text format.

    For a cron job beside node_exporter, where posd is not to write the file itself: posd metrics > posd.prom
    """
    with connect(ctx) as api:
        sys.stdout.write(api.metrics())


# `posd openapi`: the description of the local API.


@click.command()
def openapi() -> None:
    """Print the description of the local API, an OpenAPI 3.1 document: for whoever makes a client by it.

    It asks no daemon, and is the same whatever the configuration says. A daemon gives it at GET /v1/openapi.json.
    """
    from posd.api.openapi import document

    click.echo(document())


# `posd completion`: what makes a shell complete the commands of posd.


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script with which a shell completes commands, options and ids.

    SHELL is bash, zsh or fish. Ids of payments and print jobs, serials and attention codes are asked from the daemon;
    where it does not answer at once, nothing is offered. A package of posd has put the scripts in place already.
    """
    from click.shell_completion import ShellComplete, get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"click knows no {shell}")
    made = kind(ctx.find_root().command, {}, "posd", "_POSD_COMPLETE")
    # Not the class's own: that one of bash runs bash, to complain of its age.
    click.echo(ShellComplete.source(made))
