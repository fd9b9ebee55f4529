"""`posd metrics`: what the daemon measures, as Prometheus reads it."""

import sys

import click

from posd.cli.app.connection import connect


@click.command()
@click.pass_context
def metrics(ctx: click.Context) -> None:
    """Print the daemon's metrics in Prometheus' text format.

    For a cron job beside node_exporter, where posd is not to write the file itself: posd metrics > posd.prom
    """
    with connect(ctx) as api:
        sys.stdout.write(api.metrics())
