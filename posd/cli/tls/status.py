"""`posd tls status`: the certificate that terminals see, and what posd's doctor says of it."""

import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec

from posd import tls
from posd.cli.app import times
from posd.cli.app.connection import json_option
from posd.cli.app.context import context
from posd.cli.app.exit_codes import ExitCode
from posd.cli.app.output import Output, Pair
from posd.cli.doctor.command import CHECKS, examine, show_group
from posd.cli.doctor.context import CheckStatus, DoctorContext, Findings
from posd.cli.doctor.files import certificate_files
from posd.cli.operate.config import load_as_owner
from posd.cli.tls.settings import document, grouped


@click.command()
@json_option
@click.pass_context
def status(ctx: click.Context, output: Output) -> None:
    """Show the certificate that terminals see, and what to do about it.

    The findings are those of posd doctor; the listener itself is asked too, where posd runs. Exit code 0: all is well;
    1: there is something to do.
    """
    config = load_as_owner(context(ctx).config_path)
    socket = context(ctx).socket_path
    shop = DoctorContext(config.file, config, (), Path(socket) if socket else None)
    examine("daemon", CHECKS["daemon"], shop)
    shop.found.clear()
    examine("files", CHECKS["files"]._replace(run=_files), shop)
    for name in ("certificate", "callback") if shop.there else ("certificate",):
        examine(name, CHECKS[name], shop)
    well = all(one.status is CheckStatus.OK for one in shop.found)
    now = datetime.now(UTC)
    certificate, ca = _described(shop.certificate), _described(shop.made.ca_certificate) if shop.made else None
    if output.as_json:
        result = {
            "ok": well,
            "own": shop.made is not None,
            "certificate": document(certificate, shop.certificate, now) if certificate else None,
            "ca": document(ca, shop.made.ca_certificate, now) if ca and shop.made else None,
            "refused_by": shop.health("certificate").get("refused_by", []),
            "findings": shop.found,
        }
        output.json(msgspec.json.encode(result))
    else:
        output.panel("certificate", _pairs(shop, certificate, ca, now), "green" if well else "yellow")
        output.line()
        show_group(output, "What posd doctor says of it", shop.found)
    sys.exit(ExitCode.DONE if well else ExitCode.NOT_DONE)


def _files(shop: DoctorContext) -> Findings:
    return shop.permitted("certificate files", certificate_files(shop))


def _described(path: Path) -> tls.CertificateInfo | None:
    with suppress(tls.TlsError):
        return tls.describe(path)
    return None


def _pairs(
    shop: DoctorContext, certificate: tls.CertificateInfo | None, ca: tls.CertificateInfo | None, now: datetime
) -> list[Pair]:
    pairs: list[Pair] = [("file", str(shop.certificate))]
    if certificate is not None:
        first, *rest = grouped(certificate.fingerprint_sha256)
        pairs += [
            ("names", ", ".join(certificate.names) or "none"),
            ("addresses", ", ".join(certificate.addresses) or "none"),
            ("issued by", certificate.issuer),
            ("valid until", f"{times.day(certificate.not_after)} ({certificate.days_left(now)} days)"),
            ("fingerprint", first),
            *(("", line) for line in rest),
        ]
    if ca is not None:
        pairs.append(("CA", f"{ca.subject}, until {times.day(ca.not_after)} ({ca.days_left(now)} days)"))
    return pairs
