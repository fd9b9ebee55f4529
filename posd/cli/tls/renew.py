"""`posd tls renew`: the server certificate anew, with the same key and CA. Also what the timer and the daemon run."""

import sys
from datetime import UTC, datetime
from typing import NoReturn

import click
import msgspec

from posd import tls
from posd.cli.app.connection import json_option
from posd.cli.app.context import context
from posd.cli.app.exit_codes import ExitCode
from posd.cli.app.output import Output
from posd.cli.operate.config import load_or_exit
from posd.cli.tls import settings
from posd.cli.tls.settings import document, fail, own, pair, say, wanted
from posd.config import Config


@click.command()
@click.option("--if-needed", is_flag=True, help="Only where it ends soon or lacks an address of this machine.")
@click.option("--no-reload", is_flag=True, help="Do not tell the posd that runs; it takes it up within a minute.")
@json_option
@click.pass_context
def renew(ctx: click.Context, output: Output, if_needed: bool, no_reload: bool) -> None:
    """Make the server certificate anew, with the same private key and CA.

    It is made for the names and addresses that this machine has now, and for those that were named at init. The
    terminals need nothing, and the posd that runs takes it up without a restart.
    """
    config = load_or_exit(context(ctx).config_path, check_files=False)
    made = own(config)
    if made is None:
        _not_ours(config, output, if_needed=if_needed)
    now = datetime.now(UTC)
    try:
        reasons = _reasons(config, made, now)
        if if_needed and not reasons:
            info = tls.describe(made.certificate)
            say(output, f"Not needed: valid for {info.days_left(now)} more days, for all that terminals call.")
            _end(output, {"renewed": False, "reasons": [], "certificate": document(info, made.certificate, now)})
        tls.renew(config.database.tls_directory)
        info, ca = tls.describe(made.certificate), tls.describe(made.ca_certificate)
    except tls.TlsError as error:
        fail(output, error)
    say(
        output,
        f"Renewed {made.certificate}, valid until {info.not_after:%Y-%m-%d}; key and CA are the same as before.",
        f"  names:       {', '.join(info.names) or 'none'}",
        f"  addresses:   {', '.join(info.addresses) or 'none'}",
        f"  fingerprint: {info.fingerprint_sha256}",
    )
    serves = None if no_reload else _taken_up(ctx, config, info, output)
    if left := tls.renewal_reasons(info, wanted(config), now):
        # It ends with its CA, or terminals call it by a name that nobody gave it.
        what = "; ".join(left)
        cure = (
            f"its CA ends on {ca.not_after:%Y-%m-%d}: posd tls init --force, then put the new "
            f"{made.ca_certificate} on every terminal"
            if info.days_left(now) < tls.RENEWAL_DAYS
            else f"name it at init: posd tls init --name or --address ({tls.missing(info, wanted(config))})"
        )
        fail(output, f"the renewed certificate does not help: {what}; {cure}")
    _end(
        output,
        {
            "renewed": True,
            "reasons": list(reasons),
            "certificate": document(info, made.certificate, now),
            "served": serves,
        },
    )


def _not_ours(config: Config, output: Output, *, if_needed: bool) -> NoReturn:
    """End: the pair of the shop's own PKI is not posd's to renew. For the timer that is no fault."""
    certificate, private_key = pair(config)
    words = (
        f"the certificate is that of the shop's own PKI ({config.file}, [webhooks]); put a new pair into {certificate} "
        f"and {private_key}: posd takes it up by itself"
    )
    if not if_needed:
        fail(output, f"cannot renew: {words}")
    say(output, f"Nothing is renewed here: {words}.")
    _end(output, {"renewed": False, "reasons": [], "certificate": None})


def _reasons(config: Config, made: tls.TlsFiles, now: datetime) -> tuple[str, ...]:
    """Say why the certificate has to be made anew: what cannot be served, ends soon, or lacks an address."""
    try:
        info = tls.load(made.certificate, made.private_key).info
    except tls.TlsError as error:
        return (str(error),)
    return tls.renewal_reasons(info, wanted(config), now)


def _taken_up(ctx: click.Context, config: Config, info: tls.CertificateInfo, output: Output) -> bool | None:
    """Tell the daemon that runs, and say whether it serves the certificate now; None where none runs."""
    daemon = settings.find(ctx, config)
    if daemon is None:
        say(output, "No posd answers here; one that runs takes it up within a minute.")
        return None
    if daemon.reload() and daemon.serves(info.fingerprint_sha256):
        say(output, f"posd serves it now, on {daemon.address}.")
        return True
    say(output, "posd takes it up within a minute; look with: posd tls status")
    return False


def _end(output: Output, result: dict[str, object]) -> NoReturn:
    if output.as_json:
        output.json(msgspec.json.encode(result))
    sys.exit(ExitCode.DONE)
