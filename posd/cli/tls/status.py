"""`posd tls status`: what is served, for whom, how long, and what to do next."""

import sqlite3
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from posd import tls
from posd.cli.app import times
from posd.cli.app.connection import json_option
from posd.cli.app.context import context
from posd.cli.app.exit_codes import ExitCode
from posd.cli.app.output import Output, Pair
from posd.cli.operate.config import load_as_owner
from posd.cli.tls import settings
from posd.cli.tls.settings import document, fail, grouped, own, pair, wanted
from posd.tls.issue import CertificateReport, Finding, report
from posd.tls.served import CertificateNotShown
from posd.upkeep.known_ca import REMEDY, lost_beside

#: finding's level -> colour of its word.
STYLES: Mapping[str, str] = {"ok": "green", "warning": "yellow", "failure": "red"}


@click.command()
@json_option
@click.pass_context
def status(ctx: click.Context, output: Output) -> None:
    """Show the certificate that terminals see, and what to do about it.

    The listener itself is asked too, where posd runs. Exit code 0: all is well; 1: there is something to do.
    """
    config = load_as_owner(context(ctx).config_path)
    now = datetime.now(UTC)
    made, (certificate, private_key) = own(config), pair(config)
    try:
        found = report(certificate, private_key, made, wanted(config), now)
    except tls.TlsError as error:
        fail(output, error)
    daemon = settings.find(ctx, config)
    lost = None
    if made is not None:
        with suppress(sqlite3.Error):  # the check of the database tells of it
            lost = lost_beside(config.database.path, made)
    # No pair is made anew, and nothing is renewed, before that is mended.
    of_files = found.findings if lost is None else (Finding("failure", "CA", lost, REMEDY),)
    findings = (*of_files, *_of_listener(daemon, found), *_of_terminals(daemon))
    well = all(finding.level == "ok" for finding in findings)
    if output.as_json:
        result = {
            "ok": well,
            "own": made is not None,
            "certificate": document(found.certificate, certificate, now) if found.certificate else None,
            "ca": document(found.ca, made.ca_certificate, now) if found.ca and made else None,
            "listener": daemon.address if daemon else None,
            "refused_by": daemon.check.get("refused_by", []) if daemon else [],
            "findings": findings,
        }
        output.json(msgspec.json.encode(result))
    else:
        _show(output, found, str(certificate), findings, now, well=well)
    sys.exit(ExitCode.DONE if well else ExitCode.NOT_DONE)


def _show(
    output: Output, found: CertificateReport, path: str, findings: tuple[Finding, ...], now: datetime, *, well: bool
) -> None:
    pairs: list[Pair] = [("file", path)]
    if found.certificate is not None:
        info = found.certificate
        first, *rest = grouped(info.fingerprint_sha256)
        pairs += [
            ("names", ", ".join(info.names) or "none"),
            ("addresses", ", ".join(info.addresses) or "none"),
            ("issued by", info.issuer),
            ("valid until", f"{times.day(info.not_after)} ({info.days_left(now)} days)"),
            ("fingerprint", first),
            *(("", line) for line in rest),
        ]
    if found.ca is not None:
        pairs.append(
            ("CA", f"{found.ca.subject}, until {times.day(found.ca.not_after)} ({found.ca.days_left(now)} days)")
        )
    output.panel("certificate", pairs, "green" if well else "yellow")
    output.line()
    output.table(("", "what", "how it stands"), [(item.level, item.what, item.words) for item in findings])
    cures = list(dict.fromkeys(item.cure for item in findings if item.level != "ok" and item.cure))
    if cures:
        output.line()
        output.line("What to do next:", style="bold")
        for cure in cures:
            output.line(cure, indent=2)


def _of_listener(daemon: settings.RunningDaemon | None, found: CertificateReport) -> Iterator[Finding]:
    """Ask the listener what it shows, and compare."""
    if daemon is None:
        yield Finding("ok", "listener", "no posd answers here: what it shows was not looked at")
        return
    try:
        info = tls.describe_der(daemon.shown())
    except (CertificateNotShown, tls.TlsError) as error:
        yield Finding("failure", "listener", f"{daemon.address} {error}", "look at: posd status")
        return
    if found.certificate is not None and info.fingerprint_sha256 == found.certificate.fingerprint_sha256:
        yield Finding("ok", "listener", f"{daemon.address} shows this certificate")
        return
    until, detail = times.day(info.not_after), times.in_words(daemon.check["detail"])
    words = f"{daemon.address} shows another certificate, valid until {until} ({detail})"
    yield Finding("warning", "listener", words, "posd takes up what is on the disk within a minute, where it is right")


def _of_terminals(daemon: settings.RunningDaemon | None) -> Iterator[Finding]:
    """Name the devices that refused the certificate of late."""
    refused: list[Mapping[str, Any]] = daemon.check.get("refused_by", []) if daemon else []
    for item in refused:
        address, alert, count = item["address"], item["alert"], item["count"]
        last = times.moment(item["last_at"], date=True)
        words = f"{address} refuses the certificate ({alert}, {count} times, last {last})"
        yield Finding("warning", "terminal", words, f"put the CA on the device at {address}: posd tls ca > ca.crt")
