"""`posd tls`: the certificate with which terminals recognise this machine."""

import click

from posd.cli.app.lazy import LazyGroup, Targets

SUBCOMMANDS: Targets = {
    "init": "posd.cli.tls.init:init",
    "status": "posd.cli.tls.status:status",
    "renew": "posd.cli.tls.init:renew",
    "ca": "posd.cli.tls.init:ca",
}


@click.group(cls=LazyGroup, targets=SUBCOMMANDS)
def tls() -> None:
    """Make, look at and renew the certificates of the webhook listener."""
