"""The callback address: what a terminal meets where it is told to call."""

import hashlib
import socket
import ssl
from urllib.parse import urlsplit

from posd.base.problems import Problem
from posd.cli.app.output import moment
from posd.cli.doctor import certificate
from posd.cli.doctor.context import Findings, Said, Shop, failure, me, ok, warning
from posd.httpd.alerts import WORDS
from posd.tls.serving import NotShown, shown_certificate

#: How long a connection to this machine's own address may take, in seconds.
CONNECT_SECONDS = 10.0


def check(shop: Shop) -> Findings:
    """Call each address that terminals are told to call, as they would, and look at the certificate."""
    called: dict[tuple[str, int], list[str]] = {}
    outside = set()
    for terminal in shop.terminals:
        address, cloud = shop.addresses.get(terminal.serial), terminal.access_mode == "cloud"
        if address is None or (cloud and not shop.settings.webhooks.public_url):
            continue  # the check of the terminal, or of the configuration, tells of it
        try:
            place = certificate.callback(shop, terminal, address.base_url)
            called.setdefault(place, []).append(terminal.serial)
            outside |= {place} if cloud else set()
        except Problem as problem:
            yield failure(
                terminal.serial,
                f"this machine has no way to {address.base_url}: it cannot be told where to call back",
                problem.detail.rpartition("; ")[2],
            )
    for (host, port), serials in called.items():
        subject = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        who = ", ".join(serials)
        if (host, port) in outside:
            yield _from_outside(subject, host, port, who)
        elif port == 0:
            yield warning(subject, "not tried: the configuration names no fixed port", "see the line of the port")
        elif not shop.running.there:
            yield warning(
                subject, f"not tried, because posd does not run: {who} will call it", "start posd, then run it again"
            )
        else:
            yield _own(shop, subject, host, port, who)
    yield from _distrust(shop)


def _distrust(shop: Shop) -> Findings:
    """Tell who has refused our certificate, as posd has counted it."""
    at = {urlsplit(address.base_url).hostname: serial for serial, address in shop.addresses.items()}
    for item in shop.running.health.get("checks", {}).get("certificate", {}).get("refused_by", []):
        serial = at.get(item["address"])
        who, tell = (f"terminal {serial}", failure) if serial else ("a device that is no terminal of ours", warning)
        times = "once" if item["count"] == 1 else f"{item['count']} times"
        yield tell(
            item["address"],
            f"{who} has refused the certificate of this machine ({item['alert']}, {times}, the last time at "
            f"{moment(item['last_at'])}): its callbacks do not come",
            f"{WORDS.get(item['alert'], 'put ca.crt on it (posd tls ca)')}. Once that is done this line goes away "
            "within a day, or when posd is restarted",
        )


def _own(shop: Shop, subject: str, host: str, port: int, who: str) -> Said:
    try:
        shown = shown_certificate(host, port, seconds=CONNECT_SECONDS)
    except NotShown as error:
        return failure(
            subject,
            f"{who} will call this address; what should be posd {error}",
            "does another program have this address and port? Does webhooks.listen lead there, and is "
            "webhooks.advertise_host this machine?",
        )
    serving = fingerprint(shown) == shop.served.get("fingerprint_sha256")
    try:
        expected = fingerprint(ssl.PEM_cert_to_DER_cert(certificate.blocks(shop.certificate)[0]))
    except (OSError, IndexError, ValueError):
        what = "posd answers with its certificate" if serving else f"a server shows {certificate.described(shown)}"
        return ok(subject, f"{who} will call it; {what}; {me()} may not read the files to compare more")
    told_before = shop.failed("certificate")
    tell = warning if told_before else failure
    if fingerprint(shown) != expected and serving:
        return tell(
            subject,
            f"posd still shows another certificate ({fingerprint(shown)}) than the one on the disk ({expected})",
            "see the lines of the certificate, then reload posd (systemctl reload posd); its log says why it did not "
            "take up the new one",
        )
    if fingerprint(shown) != expected:
        return failure(
            subject,
            f"{who} will call this address, and it is not posd that answers there: it shows "
            f"{certificate.described(shown)}; that of posd has {expected}",
            "another program or machine has this address and port: stop it, or correct webhooks.advertise_host and "
            "webhooks.listen",
        )
    refused = _judged(shop, host, port)
    if refused is None:
        return ok(subject, f"{who} will call it; posd answers with its certificate, and a strict client accepts it")
    return tell(
        subject,
        f"{who} will call it; posd answers with its certificate, and a strict client refuses it: {refused}",
        "see the lines of the certificate" if told_before else "see posd tls status",
    )


def fingerprint(der: bytes) -> str:
    """Return the SHA-256 fingerprint of a certificate in lower hex."""
    return hashlib.sha256(der).hexdigest()


def _judged(shop: Shop, host: str, port: int) -> str | None:
    """Connect as a strict client does; return why it refuses, None where it does not."""
    try:
        client = certificate.strict_client(shop, dates=True)
        with (
            socket.create_connection((host, port), CONNECT_SECONDS) as connection,
            client.wrap_socket(connection, server_hostname=host),
        ):
            return None
    except ssl.SSLError as error:
        return certificate.words(error)
    except (OSError, IndexError) as error:
        return str(error)


def _from_outside(subject: str, host: str, port: int, who: str) -> Said:
    """Call the public address with the CAs of this system, as the service does; from inside it may not be reachable."""
    todo = (
        "check it from outside this network; what stands before posd (reverse proxy, forwarded port) has to lead to "
        "webhooks.listen and to show a certificate that the service trusts"
    )
    try:
        with (
            socket.create_connection((host, port), CONNECT_SECONDS) as connection,
            ssl.create_default_context().wrap_socket(connection, server_hostname=host),
        ):
            return ok(subject, f"the service calls it for {who}; it answers with a certificate that this system trusts")
    except ssl.SSLError as error:
        return warning(
            subject,
            f"the service calls it for {who}; seen from here its certificate is refused: {certificate.words(error)}",
            todo,
        )
    except OSError as error:
        reason = "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
        return warning(subject, f"the service calls it for {who}; from here it cannot be reached ({reason})", todo)
