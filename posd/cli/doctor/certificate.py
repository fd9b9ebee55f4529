"""The certificate of the webhook listener, and the addresses that terminals call: what a terminal will make of them."""

import asyncio
import contextlib
import hashlib
import re
import socket
import ssl
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from posd import tls
from posd.base import tls_contexts
from posd.base.ids import Channel
from posd.base.problems import Problem
from posd.cli.app import times
from posd.cli.doctor.context import (
    CheckStatus,
    DoctorContext,
    Findings,
    SubjectFinding,
    failure,
    may_not_read,
    me,
    ok,
    permitted,
    refusal,
    unseen,
    warning,
)
from posd.config import TerminalConfig
from posd.records.callback_urls import CallbackUrls
from posd.terminals.certificate_refusals import WORDS
from posd.tls.authority import OVERLAP_DAYS
from posd.tls.served import CertificateNotShown, shown_certificate

# How a terminal judges the certificate of this machine: a strict client, played here, and words for its refusal.

#: Flights of a TLS handshake: two from each side, and one more than that.
_FLIGHTS = 3
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----")


def blocks(path: Path) -> list[str]:
    """Return the certificates of a PEM file, each as PEM, in their order. Raise OSError."""
    return [found.decode("ascii") for found in _PEM.findall(path.read_bytes())]


def strict_client(shop: DoctorContext, *, dates: bool) -> ssl.SSLContext:
    """Return the context of a client that checks as strictly as OpenSSL can, with or without the dates.

    It trusts what a terminal is given: the CA of `posd tls init`; for a certificate of the shop's own the last one of
    its chain, and the CAs of this system. Raise OSError.
    """
    client = tls_contexts.strict_client(shop.ca_certificate, system=shop.ca_certificate is None)
    if not dates:  # whether a certificate has ended is a line of its own
        client.verify_flags |= tls_contexts.NO_CHECK_TIME
    if shop.ca_certificate is not None:
        return client
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(cadata=blocks(shop.certificate)[-1])
    return client


def client_refusal(server: ssl.SSLContext, client: ssl.SSLContext, host: str | None) -> ssl.SSLError | None:
    """Shake hands in memory; return why the client refuses (the name where one is given), None where it does not."""
    client.check_hostname = host is not None
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_side=False, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    try:
        for _ in range(_FLIGHTS):
            for end in ends:
                with contextlib.suppress(ssl.SSLWantReadError):
                    end.do_handshake()
    except ssl.SSLError as error:
        return error
    return None


#: OpenSSL's X509_V_ERR numbers (x509_vfy.h) -> words; Python's ssl passes them on without naming them.
REASONS = {
    9: "it is not valid yet",
    10: "it has expired",
    18: "it is signed by nobody but itself",
    19: "it is signed by a CA that is not trusted",
    20: "it is not signed by a CA that is trusted",
    21: "it is not signed by a CA that is trusted",
    62: "it is made for another name",
    64: "it is made for another address",
}


def words(error: ssl.SSLError) -> str:
    """Say why a certificate was refused."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return REASONS.get(error.verify_code, error.verify_message or str(error))
    return (error.reason or str(error)).replace("_", " ").lower()


def described(der: bytes) -> str:
    """Describe a certificate that was shown: for whom, by whom, until when, its fingerprint."""
    fingerprint = hashlib.sha256(der).hexdigest()
    try:
        found = tls.describe_der(der)
    except tls.TlsError:
        return f"a certificate that cannot be read (SHA-256 {fingerprint})"
    return (
        f"a certificate of {found.subject or 'nobody'}, issued by {found.issuer or 'nobody'}, valid until "
        f"{times.day(found.not_after)} (SHA-256 {fingerprint})"
    )


def called_at(shop: DoctorContext, terminal: TerminalConfig, base_url: str) -> tuple[str, int]:
    """Return host and port at which that terminal is told to call back, as posd itself makes the URL.

    Raise Problem where this machine has no way to the terminal.
    """
    webhooks = shop.settings.webhooks
    # An address on which posd cannot listen was told already; what follows from it is not told again.
    listen = "::" if shop.failed("port") else webhooks.host
    urls = CallbackUrls((bytes(32),), webhooks.advertise_host, shop.port, webhooks.public_url, listen)
    parts = urlsplit(asyncio.run(urls.url(Channel.TRANSACTION, "doctor", base_url, terminal.access_mode)))
    return parts.hostname or "", parts.port or 443


CERTIFICATE, PRIVATE_KEY = "webhooks.certificate", "webhooks.private_key"


def check_certificate(shop: DoctorContext) -> Findings:
    """Tell of the certificate's dates, key, chain and names, and of the CA."""
    subject = str(shop.certificate)
    try:
        if not shop.certificate.exists():
            if shop.failed("files", str(shop.ca_certificate)):
                return  # the CA is lost: no pair is made before that is mended
            if shop.ca_certificate is not None and shop.service is not None and shop.service.makes_certificate:
                yield ok(subject, "there is no certificate yet: it is made at the first start")
            elif shop.ca_certificate is not None:
                yield refusal(
                    CERTIFICATE,
                    subject,
                    "there is no certificate: posd will not start, because terminals call it over HTTPS only",
                    f"make one; then put {shop.ca_certificate} on every terminal",
                    shop.posd("tls", "init"),
                )
            return
        with shop.certificate.open("rb"):
            pass  # what may not be read is told as such
        leaf = tls.describe(shop.certificate)
    except PermissionError as error:
        yield _from_health(shop, may_not_read(error))
        return
    except tls.TlsError as error:
        yield refusal(CERTIFICATE, subject, str(error).partition("; ")[0], *_pair(shop))
        return
    yield _dates(shop, leaf)
    yield from _names(shop, leaf)
    yield from permitted(shop.private_key, _serving(shop))
    if shop.ca_certificate is not None:
        try:
            ca = tls.describe(shop.ca_certificate)
        except tls.TlsError:
            return  # the chain told of it
        wrong = _dated(ca, OVERLAP_DAYS)
        tell, words = wrong or (ok, _valid(ca))
        todo = _new_ca(shop) if wrong else ("",)
        if tls.files(shop.ca_certificate.parent).next_ca_certificate.exists():
            day = times.day(tls.following_from(ca))
            tell, words = (
                warning,
                f"{words}; a new one waits, and signs from {day} on",
            )
            todo = "put it on every terminal; once all have it, end the old one", f"{shop.posd('tls', 'ca')} > ca.crt"
        if ca.not_before > datetime.now(UTC):  # a new one would have to be carried to every terminal, for nothing
            words_of_new, command, *_ = _new_ca(shop)
            look = "timedatectl" if shop.health("clock").get("status", "ok") == "ok" else shop.command("clock")
            todo = (f"is the clock of this machine right? Only where it is: {words_of_new} ({command})", look)
        yield tell(shop.ca_certificate, f"the CA {words}", *todo)


def _new(shop: DoctorContext) -> tuple[str, ...]:
    """Return words and commands: a new certificate."""
    if shop.ca_certificate is None:
        return _own(shop)
    if shop.health("clock").get("status") == "degraded":  # by a wrong clock nothing is made
        return "see to the clock first; posd renews it by itself once the clock is right", shop.command("clock")
    todo = "renew it; posd takes it up by itself, and nothing is to be done on the terminals: the CA stays"
    return todo, shop.posd("tls", "renew")


def _pair(shop: DoctorContext) -> tuple[str, ...]:
    """Return words and commands: a new certificate with a new key."""
    if shop.ca_certificate is None:
        return _own(shop)
    todo = "make a new pair; the CA is kept, so nothing is to be done on the terminals"
    return todo, shop.posd("tls", "init")


def _new_ca(shop: DoctorContext) -> tuple[str, ...]:
    """Return words and commands: a new CA."""
    if _vouches(shop):
        todo = "make the CA that follows; then put it on every terminal, which trust the old one until its end"
        return todo, shop.posd("tls", "renew", "--new-ca"), f"{shop.posd('tls', 'ca')} > ca.crt"
    return f"make a new CA; then put {shop.ca_certificate} on every terminal", shop.posd("tls", "init", "--force")


def _vouches(shop: DoctorContext) -> bool:
    """Whether the CA can be read and has not ended: one that follows can be made beside it."""
    if shop.ca_certificate is None:
        return False
    try:
        return tls.describe(shop.ca_certificate).not_after > datetime.now(UTC)
    except tls.TlsError:
        return False


def _own(shop: DoctorContext) -> tuple[str, ...]:
    """Return words and commands: a certificate that posd has not made."""
    todo = (
        f"put a right pair into {shop.certificate} and {shop.private_key}, then reload posd; or remove both keys from "
        "[webhooks] to use that of posd tls init"
    )
    return todo, *(shop.systemctl("reload") or (shop.edit("webhooks.certificate"),))


def _from_health(shop: DoctorContext, closed: str) -> SubjectFinding:
    """Return what posd says of a certificate that this user may not read."""
    said = unseen(shop.certificate, closed)
    health = shop.health("certificate")
    if (status := health.get("status")) is None:
        return said
    how = {"ok": CheckStatus.OK, "degraded": CheckStatus.WARNING}.get(str(status), CheckStatus.FAILURE)
    meaning = f"{closed}; posd says of it: {health.get('detail')}"
    return msgspec.structs.replace(said, status=how, meaning=meaning, todo=str(health.get("todo")))


def _dates(shop: DoctorContext, leaf: tls.CertificateInfo) -> SubjectFinding:
    subject, wrong = str(shop.certificate), _dated(leaf, tls.RENEWAL_DAYS)
    if wrong is None:
        return ok(subject, f"the certificate {_valid(leaf)}")
    tell, words = wrong
    if leaf.not_before > datetime.now(UTC):
        return tell(
            subject, f"the certificate {words}", "is the clock of this machine right? Else renew it", "timedatectl"
        )
    if shop.ca_certificate is None and tell is failure:
        return refusal(CERTIFICATE, subject, f"the certificate {words}, and posd will not start", *_new(shop))
    return tell(subject, f"the certificate {words}", *_new(shop))


def _dated(found: tls.CertificateInfo, days_left: int) -> tuple[Callable[..., SubjectFinding], str] | None:
    """Return how to tell of the dates of a certificate that should be looked at, and the words; None of a valid one."""
    start, end, now = found.not_before, found.not_after, datetime.now(UTC)
    if end <= now:
        return failure, f"expired on {times.day(end)}: every terminal refuses it"
    if start > now:
        return failure, (
            f"is valid from {times.moment(start, year=True)} on, and it is {times.moment(now, year=True)}: every "
            "terminal refuses it until then"
        )
    if (days := (end - now).days) < days_left:
        return warning, f"ends in {days} days, on {times.day(end)}"
    return None


def _valid(found: tls.CertificateInfo) -> str:
    return f"is valid until {times.day(found.not_after)} ({(found.not_after - datetime.now(UTC)).days} days)"


def _serving(shop: DoctorContext) -> Findings:
    """Check whether posd can serve the pair, by its own judge, and whether the chain is complete."""
    key = str(shop.private_key)
    if shop.private_key.exists():
        with shop.private_key.open("rb"):
            pass  # what may not be read is told as such
    elif shop.ca_certificate is None:
        return  # the check of the configuration tells of it
    try:
        served = tls.load(shop.certificate, shop.private_key, None)
    except tls.TlsError as error:
        words = str(error).partition("; ")[0]
        yield refusal(PRIVATE_KEY, key, f"{words}: posd will not start, or goes on with the old pair", *_pair(shop))
        return
    yield ok(key, "the private key belongs to the certificate")
    yield _chain(shop, served.context)


def _chain(shop: DoctorContext, server: ssl.SSLContext) -> SubjectFinding:
    subject = "chain"
    try:
        client = strict_client(shop, dates=False)
    except (OSError, IndexError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return failure(
            shop.ca_certificate or shop.certificate,
            f"the CA that the terminals are to trust cannot be read ({reason})",
            "put it back from a backup; without one " + _new_ca(shop)[0],
            *_new_ca(shop)[1:],
        )
    refused = client_refusal(server, client, None)
    if refused is not None:
        return failure(subject, f"a terminal that trusts the CA refuses the certificate: {words(refused)}", *_new(shop))
    if shop.ca_certificate is not None:
        return ok(subject, f"a terminal that has {shop.ca_certificate} accepts it")
    return _own_chain(shop)


def _own_chain(shop: DoctorContext) -> SubjectFinding:
    """Tell whether a certificate of the shop's own brings what stands between it and its CA."""
    from cryptography import x509

    last = x509.load_pem_x509_certificate(blocks(shop.certificate)[-1].encode())
    root = last.issuer == last.subject
    issuer = last.issuer.rfc4514_string()
    count = len(blocks(shop.certificate))
    if count == 1 and not root:
        return ok(
            "chain",
            f"the file has no other certificate with it: right only if {issuer} signs directly and every terminal "
            "trusts it; an intermediate CA has to follow in the file",
        )
    return ok("chain", f"{count} certificates; every terminal has to trust {issuer}")


def _names(shop: DoctorContext, leaf: tls.CertificateInfo) -> Findings:
    """Tell for each name or address that terminals call whether the certificate is made for it."""
    called = hosts(shop)
    for host, callers in called.items():
        who = ", ".join(callers)
        if tls.missing(leaf, tls.called_as(host, host)):
            yield failure(
                host,
                f"{who} will call this address, and the certificate does not name it: every callback is refused",
                *_new(shop),
            )
        else:
            yield ok(host, f"{who} will call this address, and the certificate names it")
    mine = tls.called_as(shop.settings.webhooks.host, "").addresses
    if called or not mine:
        return
    lacking = tls.missing(leaf, tls.Subjects(addresses=mine)).addresses
    if len(lacking) == len(mine):
        yield warning(
            "names",
            f"the certificate names none of the addresses under which terminals may call this machine "
            f"({', '.join(mine)})",
            *_new(shop),
        )
    else:
        named = [address for address in mine if address not in lacking]
        yield ok("names", f"the certificate names addresses of this machine: {', '.join(named)}")


def hosts(shop: DoctorContext) -> Mapping[str, list[str]]:
    """Return the names and addresses of this machine that terminals of this network call -> those terminals."""
    called: dict[str, list[str]] = {}
    if advertised := shop.settings.webhooks.advertise_host:
        called[advertised] = []
    for terminal in shop.terminals:
        address = shop.addresses.get(terminal.serial)
        if terminal.access_mode == "cloud" or address is None:
            continue
        try:
            host, _ = called_at(shop, terminal, address.base_url)
        except Problem:
            continue  # the check of the terminal tells of it
        called.setdefault(advertised or host, []).append(terminal.serial)
    return {host: callers or ["each terminal"] for host, callers in called.items()}


# The callback address: what a terminal meets where it is told to call.

#: How long a connection to this machine's own address may take, in seconds.
CONNECT_SECONDS = 10.0


def check_callbacks(shop: DoctorContext) -> Findings:
    """Call each address that terminals are told to call, as they would, and look at the certificate."""
    called: dict[tuple[str, int], list[str]] = {}
    outside = set()
    for terminal in shop.terminals:
        address, cloud = shop.addresses.get(terminal.serial), terminal.access_mode == "cloud"
        if address is None or (cloud and not shop.settings.webhooks.public_url):
            continue  # the check of the terminal, or of the configuration, tells of it
        try:
            place = called_at(shop, terminal, address.base_url)
            called.setdefault(place, []).append(terminal.serial)
            outside |= {place} if cloud else set()
        except Problem as problem:
            yield failure(
                terminal.serial,
                f"this machine has no way to {address.base_url}: it cannot be told where to call back",
                problem.detail.rpartition("; ")[2],
                "ip -brief address",
                "ip route",
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
                subject, f"not tried, because posd does not run: {who} will call it", "see the line of the daemon"
            )
        else:
            yield _shown(shop, subject, host, port, who)
    yield from _distrust(shop)


def _distrust(shop: DoctorContext) -> Findings:
    """Tell which devices have refused our certificate, as posd has counted it."""
    at = {urlsplit(address.base_url).hostname: serial for serial, address in shop.addresses.items()}
    for item in shop.health("certificate").get("refused_by", []):
        serial = at.get(item["address"])
        who, tell = (f"terminal {serial}", failure) if serial else ("a device that is no terminal of ours", warning)
        often = "once" if item["count"] == 1 else f"{item['count']} times"
        yield tell(
            item["address"],
            f"{who} has refused the certificate of this machine ({item['alert']}, {often}, the last time at "
            f"{times.moment(item['last_at'], date=True)}): its callbacks do not come",
            f"{WORDS.get(item['alert'], 'put ca.crt on it (posd tls ca)')}. Once that is done this line goes away "
            "within a day, or when posd is restarted",
            f"{shop.posd('tls', 'ca')} > ca.crt",
        )


def _shown(shop: DoctorContext, subject: str, host: str, port: int, who: str) -> SubjectFinding:
    try:
        shown = shown_certificate(host, port, seconds=CONNECT_SECONDS)
    except CertificateNotShown as error:
        return failure(
            subject,
            f"{who} will call this address; what should be posd {error}",
            "does another program have this address and port? Does webhooks.listen lead there, and is "
            "webhooks.advertise_host this machine?",
            "ip -brief address",
            shop.as_root("ss", "-ltnp", f"sport = :{port}"),
            shop.edit("webhooks.advertise_host"),
        )
    serving = _fingerprint(shown) == shop.served.get("fingerprint_sha256")
    try:
        expected = _fingerprint(ssl.PEM_cert_to_DER_cert(blocks(shop.certificate)[0]))
    except (OSError, IndexError, ValueError):
        what = "posd answers with its certificate" if serving else f"a server shows {described(shown)}"
        return ok(subject, f"{who} will call it; {what}; {me()} may not read the files to compare more")
    told_before = shop.failed("certificate")
    tell = warning if told_before else failure
    if _fingerprint(shown) != expected and serving:
        return tell(
            subject,
            f"posd still shows another certificate ({_fingerprint(shown)}) than the one on the disk ({expected})",
            "see the lines of the certificate, then reload posd; its log says why it did not take up the new one",
            *shop.systemctl("reload"),
        )
    if _fingerprint(shown) != expected:
        return failure(
            subject,
            f"{who} will call this address, and it is not posd that answers there: it shows "
            f"{described(shown)}; that of posd has {expected}",
            "another program or machine has this address and port: stop it, or correct webhooks.advertise_host and "
            "webhooks.listen",
            shop.as_root("ss", "-ltnp", f"sport = :{port}"),
            shop.edit("webhooks.advertise_host"),
        )
    if told_before:  # posd would hear a refusal, as from a terminal
        meaning = f"{who} will call it; posd answers with its certificate, in which something is wrong"
        return warning(subject, meaning, "see the lines of the certificate", shop.posd("tls", "status"))
    refused = _judged(shop, host, port)
    if refused is None:
        return ok(
            subject,
            f"{who} will call it; posd answers with its certificate, and a strict client on this machine accepts it",
        )
    return failure(
        subject,
        f"{who} will call it; posd answers with its certificate, and a strict client refuses it: {refused}",
        "see what is wrong with it",
        shop.posd("tls", "status"),
    )


def _fingerprint(der: bytes) -> str:
    """Return the SHA-256 fingerprint of a certificate in lower hex."""
    return hashlib.sha256(der).hexdigest()


def _judged(shop: DoctorContext, host: str, port: int) -> str | None:
    """Connect as a strict client does; return why it refuses, None where it does not."""
    try:
        client = strict_client(shop, dates=True)
        with (
            socket.create_connection((host, port), CONNECT_SECONDS) as connection,
            client.wrap_socket(connection, server_hostname=host),
        ):
            return None
    except ssl.SSLError as error:
        return words(error)
    except (OSError, IndexError) as error:
        return str(error)


def _from_outside(subject: str, host: str, port: int, who: str) -> SubjectFinding:
    """Call the public address with the CAs of this system, as the service does; from inside it may not be reachable."""
    todo = (
        "check it from outside this network; what stands before posd (reverse proxy, forwarded port) has to lead to "
        "webhooks.listen and to show a certificate that the service trusts"
    )
    try:
        with (
            socket.create_connection((host, port), CONNECT_SECONDS) as connection,
            tls_contexts.client(system=True).wrap_socket(connection, server_hostname=host),
        ):
            return ok(subject, f"the service calls it for {who}; it answers with a certificate that this system trusts")
    except ssl.SSLError as error:
        return warning(
            subject, f"the service calls it for {who}; seen from here its certificate is refused: {words(error)}", todo
        )
    except OSError as error:
        reason = "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
        return warning(subject, f"the service calls it for {who}; from here it cannot be reached ({reason})", todo)
