"""`posd tls`: the certificate with which terminals recognise this machine."""

import socket
import sys

import click

from posd import tls as certificates
from posd.cli.config import load_or_exit
from posd.cli.exit_codes import ExitCode


@click.group()
def tls() -> None:
    """Make the certificates of the webhook listener."""


@tls.command()
@click.option("--name", "names", multiple=True, metavar="NAME", help="A host name of this machine; repeatable.")
@click.option("--address", "addresses", multiple=True, metavar="IP", help="An address of this machine; repeatable.")
@click.option("--force", is_flag=True, help="Make a new CA too; every terminal then needs the new ca.crt.")
@click.pass_obj
def init(config_path: str, names: tuple[str, ...], addresses: tuple[str, ...], force: bool) -> None:
    """Make a server certificate, and the CA that vouches for it.

    Without --name and --address it is made for all names and addresses that this machine has now. A CA that is
    there is kept, so that terminals go on trusting this machine.
    """
    config = load_or_exit(config_path, check_files=False)
    directory = config.database.tls_directory
    made = certificates.files(directory)
    new_ca = force or not made.ca_certificate.exists()
    try:
        certificates.init(
            directory,
            names=names or local_names(),
            addresses=addresses or certificates.local_addresses(),
            overwrite=force,
        )
        ca, server = certificates.describe(made.ca_certificate), certificates.describe(made.certificate)
    except (certificates.TlsError, OSError) as error:
        click.echo(f"posd: {click.style(str(error), fg='red')}", err=True)
        sys.exit(ExitCode.USAGE if isinstance(error, certificates.SubjectError) else ExitCode.NOT_DONE)

    click.echo(f"Made a server certificate in {directory}, valid until {server.not_after:%Y-%m-%d}.")
    click.echo(f"  names:       {', '.join(server.names) or 'none'}")
    click.echo(f"  addresses:   {', '.join(server.addresses) or 'none'}")
    click.echo(f"  fingerprint: {server.fingerprint_sha256}")
    click.echo(f"{'Made a new' if new_ca else 'Kept the'} CA ({ca.subject}), valid until {ca.not_after:%Y-%m-%d}.")
    click.echo("")
    click.echo("What to do next:")
    if new_ca:
        click.echo(f"  1. Put {made.ca_certificate} on every terminal as a trusted CA. It is no secret; the keys are.")
    else:
        click.echo("  1. Nothing on the terminals: they trust this CA already.")
    if config.webhooks.certificate is not None:
        click.echo(f"  2. Remove certificate and private_key from [webhooks] in {config.file}: they name other files.")
        click.echo("  3. Restart posd, if it runs.")
    else:
        click.echo("  2. Restart posd, if it runs.")


def local_names() -> list[str]:
    """Name this machine: its host name, its full name, and localhost."""
    candidates = (socket.gethostname(), socket.getfqdn(), "localhost")
    return [name for name in dict.fromkeys(candidates) if certificates.HOST_NAME.fullmatch(name)]
