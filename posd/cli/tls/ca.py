"""`posd tls ca`: the CA certificate that terminals have to trust."""

import sys
from datetime import UTC, datetime

import click
import msgspec

from posd import tls
from posd.cli.app.connection import json_option
from posd.cli.app.context import Context
from posd.cli.app.output import Output
from posd.cli.operate.config import load_or_exit
from posd.cli.tls.settings import document, fail, grouped, own


@click.command()
@click.option("--fingerprint", is_flag=True, help="Print its SHA-256 fingerprint instead, to compare by eye.")
@json_option
@click.pass_obj
def ca(given: Context, output: Output, fingerprint: bool) -> None:
    """Print the CA certificate (PEM) that terminals have to trust: posd tls ca > ca.crt

    It is no secret.
    """
    config = load_or_exit(given.config_path, check_files=False)
    made = own(config)
    if made is None:
        fail(
            output, f"there is no CA of posd's: {config.file} names a pair of the shop's own PKI, which has its own CA"
        )
    try:
        info = tls.describe(made.ca_certificate)
        pem = made.ca_certificate.read_text("ascii")
    except (tls.TlsError, OSError) as error:
        fail(output, error)
    if output.as_json:
        shown = document(info, made.ca_certificate, datetime.now(UTC)) | {"pem": pem}
        output.json(msgspec.json.encode(shown))
    elif fingerprint:
        click.echo("\n".join(grouped(info.fingerprint_sha256)))
    else:
        sys.stdout.write(pem)
