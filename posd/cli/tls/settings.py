"""What every `posd tls` command needs of the configuration, and how it ends where something cannot be done."""

import sys
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import click

from posd import tls
from posd.cli.app.exit_codes import ExitCode
from posd.cli.app.output import Output
from posd.config import Config

#: bytes of a fingerprint in one line, when people compare it with another screen.
BYTES_A_LINE = 16


def own(config: Config) -> tls.TlsFiles | None:
    """Return the files that `posd tls init` makes; None where the pair of the shop's own PKI is configured."""
    return None if config.webhooks.certificate else tls.files(config.database.tls_directory)


def pair(config: Config) -> tuple[Path, Path]:
    """Return the certificate and the private key that the daemon serves."""
    made = tls.files(config.database.tls_directory)
    return config.webhooks.certificate or made.certificate, config.webhooks.private_key or made.private_key


def wanted(config: Config) -> tls.Subjects:
    """Return by what terminals call this machine now."""
    return tls.called_as(config.webhooks.host, config.webhooks.advertise_host)


def document(info: tls.CertificateInfo, path: Path, now: datetime) -> dict[str, Any]:
    """Return a certificate as --json shows it."""
    return {
        "path": str(path),
        "subject": info.subject,
        "issuer": info.issuer,
        "names": list(info.names),
        "addresses": list(info.addresses),
        "not_before": info.not_before.isoformat(),
        "not_after": info.not_after.isoformat(),
        "days_left": info.days_left(now),
        "fingerprint_sha256": info.fingerprint_sha256,
    }


def grouped(fingerprint: str) -> tuple[str, ...]:
    """Write a fingerprint as other programs show it, in lines that can be compared by eye."""
    pairs = [fingerprint[at : at + 2].upper() for at in range(0, len(fingerprint), 2)]
    return tuple(":".join(pairs[at : at + BYTES_A_LINE]) for at in range(0, len(pairs), BYTES_A_LINE))


def fail(output: Output, error: object, code: ExitCode = ExitCode.NOT_DONE) -> NoReturn:
    """Say what cannot be done, on stderr, and end."""
    output.note(f"posd: {error}", style="red")
    sys.exit(code)


def say(output: Output, *lines: str) -> None:
    """Write lines for people; nothing with --json."""
    if not output.as_json:
        for line in lines:
            click.echo(line)
