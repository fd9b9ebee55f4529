"""`posd tls`: certificates of the webhook listener, and of the CA that signs them."""

import sqlite3
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import click
import msgspec

from posd.cli import certificates
from posd.cli.app import times
from posd.cli.app.connection import json_option
from posd.cli.app.context import Context, ExitCode, context, drop_lost_output
from posd.cli.app.errors import fail
from posd.cli.app.lazy import LazyGroup, Targets
from posd.cli.app.output import Output, Pair, counted
from posd.cli.certificates import document, folded, grouped, own, pair, tell, wanted
from posd.cli.explain.catalogue import choose, named, say
from posd.cli.operate.config import load_as_owner
from posd.config import Config
from posd.tls import certificate, issue
from posd.tls.files import (
    PUBLIC_CA,
    SubjectError,
    TlsError,
    TlsFiles,
    ca_for_terminals,
    describe,
    files_in,
    load_pair,
    there,
)
from posd.upkeep.known_ca import REMEDY, lost_beside

SUBCOMMANDS: Targets = {name: f"posd.cli.tls:{name}" for name in ("init", "status", "renew", "ca")}


@click.group("tls", cls=LazyGroup, targets=SUBCOMMANDS)
@click.pass_context
def tls_(ctx: click.Context) -> None:
    """Make, show and renew the certificates of the webhook listener."""
    choose(ctx)


@click.command()
@click.option("--fingerprint", is_flag=True, help="Print its SHA-256 fingerprint instead, to compare by eye.")
@json_option
@click.pass_obj
def ca(given: Context, output: Output, fingerprint: bool) -> None:
    """Print the CA certificate (PEM) that terminals have to trust: posd tls ca > ca.crt

    The certificate is not secret. If a next CA exists, the command prints the next CA.
    """
    config = load_as_owner(given.config_path)
    made = own(config)
    if made is None:
        fail(output, say("tls", "no_ca", file=config.file))
    try:
        path = _readable_ca(made, config.local_api.directory)
        info = describe(path)
        pem = path.read_text("ascii")
    except (TlsError, OSError) as error:
        fail(output, error)
    if output.as_json:
        shown = document(info, path, datetime.now(UTC)) | {"pem": pem}
        output.json(msgspec.json.encode(shown))
    elif fingerprint:
        output.verbatim(*grouped(info.fingerprint_sha256))
    else:
        click.echo(pem, nl=False)


def _readable_ca(made: TlsFiles, sockets: Path) -> Path:
    """Return the file of the CA certificate for terminals. If it is unreadable, return its copy beside the sockets.

    Raise TlsError.
    """
    try:
        return ca_for_terminals(made)
    except TlsError:
        if not (copy := sockets / PUBLIC_CA).exists():
            raise
        return copy


@click.command()
@click.option("--name", "names", multiple=True, metavar="NAME", help="A host name of this machine; repeatable.")
@click.option("--address", "addresses", multiple=True, metavar="IP", help="An address of this machine; repeatable.")
@click.option("--force", is_flag=True, help="Make a new CA too; every terminal then needs the new ca.crt.")
@click.option("--if-missing", is_flag=True, help="Only if there is none yet, as on the first start of the service.")
@click.pass_context
def init(ctx: click.Context, names: tuple[str, ...], addresses: tuple[str, ...], force: bool, if_missing: bool) -> None:
    """Make a server certificate, and the CA that signs it.

    The certificate has all present names and addresses of this machine, and the given ones. An existing CA is kept, so
    terminals still trust this machine. Every renewal keeps the given names and addresses.
    """
    config = load_as_owner(context(ctx).config_path)
    output = Output(as_json=False)
    directory = config.database.tls_directory
    made = files_in(directory)
    try:
        if if_missing and (present := _present(config, made)):
            output.verbatim(say("tls", "not_made", present=present))
            return
        if not (force or there(made.ca_certificate)) and (words := lost_beside(config.database.path, made)):
            fail(output, say("tls", "ca_lost", words=words, cure=named(REMEDY)))
        # With --if-missing the daemon is not called: it has not started, and a call to systemd's socket would wait.
        daemon = None if if_missing else certificates.find(ctx, config)
        if daemon is not None and daemon.clock_doubt:
            fail(output, daemon.clock_doubt)
        new_ca = force or not there(made.ca_certificate)
        drop_lost_output()
        asked = certificate.Subjects(names, addresses)
        # As in `issue.renew`, because the daemon renews a certificate that lacks an address of this machine.
        every = asked | certificate.Subjects(tuple(certificate.local_names()), tuple(certificate.local_addresses()))
        issue.init(directory, names=every.names, addresses=every.addresses, given=asked, overwrite=force)
        ca, server = describe(made.ca_certificate), describe(made.certificate)
    except sqlite3.Error as error:
        fail(output, say("tls", "no_known_ca", file=config.database.path, error=error))
    except (TlsError, OSError) as error:
        code = ExitCode.USAGE if isinstance(error, SubjectError) else ExitCode.NOT_DONE
        fail(output, error, code)

    own_pair = config.webhooks.certificate is not None
    serves = daemon is not None and not own_pair and daemon.reload() and daemon.serves(server.fingerprint_sha256)
    next_step = "unused" if own_pair else "served" if serves else "soon" if daemon is not None else "start"
    for name in ("made", "made_ca" if new_ca else "kept_ca", next_step):
        where = {"directory": directory, "file": config.file, "ca": made.ca_certificate, "subject": ca.subject}
        tell(output, say("tls", name, **where, ca_until=times.day(ca.not_after), **_described(server)))


def _described(info: certificate.CertificateInfo) -> dict[str, str]:
    return {
        "until": times.day(info.not_after),
        "names": ", ".join(info.names) or named("none"),
        "addresses": ", ".join(info.addresses) or named("none"),
        "fingerprint": info.fingerprint_sha256,
    }


def _present(config: Config, made: TlsFiles) -> str | None:
    """Return the text about the present certificate, or None if there is none."""
    if config.webhooks.certificate is not None:
        return say("tls", "configured", file=config.file, certificate=config.webhooks.certificate)
    return say("tls", "present", directory=made.certificate.parent) if there(made.certificate) else None


# `posd tls renew`: a new server certificate with the same key. The timer and the daemon run this command too.


@click.command()
@click.option("--if-needed", is_flag=True, help="Only if it ends soon or lacks an address of this machine.")
@click.option("--new-ca", is_flag=True, help="Make the next CA; the present one signs until shortly before its end.")
@click.option("--end-old-ca", is_flag=True, help="Sign with the new CA now. First install it on all terminals.")
@click.option("--no-reload", is_flag=True, help="Do not notify the running posd, which loads it within a minute.")
@json_option
@click.pass_context
def renew(ctx: click.Context, output: Output, if_needed: bool, new_ca: bool, end_old_ca: bool, no_reload: bool) -> None:
    """Make a new server certificate, with the same private key and CA.

    It has the present names and addresses of this machine, and those that were given at init. Nothing changes for the
    terminals, and a running posd loads it without a restart.

    Seven months before the CA ends posd makes the next CA. Install it on every terminal (posd tls ca). The old CA signs
    until shortly before its end, then the new one signs.
    """
    config = load_as_owner(context(ctx).config_path)
    made = own(config)
    if made is None:
        _not_ours(config, output, if_needed=if_needed)
    now = datetime.now(UTC)
    try:
        reasons = _reasons(config, made, now)
        if if_needed and not reasons:
            info = describe(made.certificate)
            tell(output, say("tls", "not_needed", days=info.days_left(now)))
            _end(output, {"renewed": False, "reasons": [], "certificate": document(info, made.certificate, now)})
        _wait_for_the_clock(ctx, config, output, if_needed=if_needed, by_daemon=no_reload)
        drop_lost_output()
        before = describe(made.ca_certificate).fingerprint_sha256 if there(made.ca_certificate) else ""
        issue.renew(config.database.tls_directory, new_ca=new_ca, end_old_ca=end_old_ca, called=wanted(config))
        info, ca = describe(made.certificate), describe(made.ca_certificate)
    except TlsError as error:
        fail(output, error)
    given = {"file": made.certificate, **_described(info), "subject": ca.subject}
    tell(output, say("tls", "renewed_same" if ca.fingerprint_sha256 == before else "renewed_new", **given))
    tell(output, say("tls", "fields", **given))
    if there(made.next_ca_certificate):
        tell(output, say("tls", "ca_waits", from_day=times.day(ca.next_ca_from)))
    serves = None if no_reload else _taken_up(ctx, config, info, output)
    if left := certificate.renewal_reasons(info, wanted(config), now):
        # The new certificate has to be replaced too: the CA ends soon, or a name or address is missing.
        ends, future = info.days_left(now) < certificate.RENEWAL_DAYS, ca.not_before > now
        name = "ends_with_ca" if ends else "ca_of_future" if future else "lacks_name"
        days = {"ca_until": times.day(ca.not_after), "from_day": times.day(ca.not_before)}
        lacking = certificate.missing_names(info, wanted(config))
        cure = say("tls", name, **days, ca=made.ca_certificate, lacking=lacking)
        fail(output, say("tls", "no_help", left="; ".join(left), cure=cure))
    found = document(info, made.certificate, now)
    _end(output, {"renewed": True, "reasons": list(reasons), "certificate": found, "served": serves})


def _not_ours(config: Config, output: Output, *, if_needed: bool) -> NoReturn:
    """Exit with the message that posd does not renew a certificate of the shop's PKI. With `if_needed` exit with 0."""
    certificate, private_key = pair(config)
    words = say("tls", "own_pki", file=config.file, certificate=certificate, private_key=private_key)
    if not if_needed:
        fail(output, say("tls", "cannot_renew", why=words))
    tell(output, say("tls", "not_renewed", why=words))
    _end(output, {"renewed": False, "reasons": [], "certificate": None})


def _wait_for_the_clock(
    ctx: click.Context, config: Config, output: Output, *, if_needed: bool, by_daemon: bool
) -> None:
    """Exit if the running posd does not trust the clock. With `if_needed`, the option of the timer, exit with 0.

    `by_daemon`: whether the daemon called this command. Then it has checked the clock, and cannot reply while it
    starts.
    """
    daemon = None if by_daemon else certificates.find(ctx, config)
    if daemon is None or not daemon.clock_doubt:
        return
    if not if_needed:
        fail(output, daemon.clock_doubt)
    tell(output, say("tls", "renewed_later", why=daemon.clock_doubt))
    _end(output, {"renewed": False, "reasons": [], "certificate": None})


def _reasons(config: Config, made: TlsFiles, now: datetime) -> tuple[str, ...]:
    """Return the reasons to replace the certificate, if any.

    The certificate can be unusable, end soon or lack an address. Or its CA can require the replacement.
    """
    try:
        info = load_pair(made.certificate, made.private_key, now).info
    except TlsError as error:
        return (str(error),)
    return (*certificate.renewal_reasons(info, wanted(config), now), *issue.ca_reasons(made))


def _taken_up(ctx: click.Context, config: Config, info: certificate.CertificateInfo, output: Output) -> bool | None:
    """Notify the running daemon. Return whether it now serves the certificate, or None if no daemon runs."""
    daemon = certificates.find(ctx, config)
    if daemon is None:
        tell(output, say("tls", "no_posd"))
        return None
    if daemon.reload() and daemon.serves(info.fingerprint_sha256):
        tell(output, say("tls", "serves", address=daemon.address))
        return True
    tell(output, say("tls", "uses_soon"))
    return False


def _end(output: Output, result: dict[str, object]) -> NoReturn:
    output.json(msgspec.json.encode(result))
    sys.exit(ExitCode.DONE)


# `posd tls status`: the certificate that terminals see, and the findings of posd doctor about it.


@click.command()
@json_option
@click.pass_context
def status(ctx: click.Context, output: Output) -> None:
    """Show the certificate that terminals see, and what to do about it.

    It has the findings of posd doctor. If posd runs, the command also connects to the listener. Exit code 0: all is
    well. 1: there is something to do.
    """
    from posd.cli.doctor.command import CHECKS, examine, show_group  # here, because it imports all of posd doctor
    from posd.cli.doctor.context import CheckStatus, DoctorContext
    from posd.cli.doctor.files import certificate_files

    config = load_as_owner(context(ctx).config_path)
    socket = context(ctx).socket_path
    shop = DoctorContext(config.file, config, (), Path(socket) if socket else None)
    examine("daemon", CHECKS["daemon"], shop)
    shop.found.clear()
    examine(
        "files", CHECKS["files"]._replace(run=lambda of: of.permitted("certificate files", certificate_files(of))), shop
    )
    for name in ("certificate", "callback") if shop.there else ("certificate",):
        examine(name, CHECKS[name], shop)
    well = all(one.status is CheckStatus.OK for one in shop.found)
    now = datetime.now(UTC)
    certificate, ca = _info_of(shop.certificate), _info_of(shop.made.ca_certificate) if shop.made else None
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
        pairs = [("file", str(shop.certificate)), *(_pairs(certificate, now) if certificate else ())]
        if ca is not None:
            pairs.append(("CA", f"{ca.subject}, {_until(ca, now)}"))
        output.panel("certificate", pairs, "green" if well else "yellow")
        output.line()
        show_group(output, say("tls", "findings"), shop.found)
    sys.exit(ExitCode.DONE if well else ExitCode.NOT_DONE)


def _info_of(path: Path) -> certificate.CertificateInfo | None:
    with suppress(TlsError):
        return describe(path)
    return None


def _until(info: certificate.CertificateInfo, now: datetime) -> str:
    days = info.days_left(now)
    return say("tls", "ended" if days < 0 else "until", day=times.day(info.not_after), days=counted(days, named("day")))


def _pairs(info: certificate.CertificateInfo, now: datetime) -> list[Pair]:
    return [
        ("names", ", ".join(info.names) or named("none")),
        ("addresses", ", ".join(info.addresses) or named("none")),
        ("issued by", info.issuer),
        ("valid", _until(info, now)),
        *folded("fingerprint", info.fingerprint_sha256),
    ]
