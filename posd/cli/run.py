"""`posd run`: the daemon."""

import click

from posd.cli import running
from posd.cli.app.context import Context


@click.command()
@click.pass_obj
def run(given: Context) -> None:
    """Run the daemon in the foreground, until SIGTERM or Ctrl-C.

    Logs go to stdout, one JSON line a fact. Exit code 2: the configuration or the certificate is wrong;
    1: something else is in the way, such as another daemon or a port in use.
    """
    running.run(given.config_path)
