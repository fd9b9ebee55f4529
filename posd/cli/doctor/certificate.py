"""Checks of the webhook listener's certificate and of the callback addresses, as a terminal sees them."""

import asyncio
import hashlib
import socket
import ssl
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from posd.api.certificate import WORDS
from posd.base import tls_contexts
from posd.base.ids import Channel
from posd.base.problems import Problem, remedy
from posd.cli import certificates
from posd.cli.app import times
from posd.cli.doctor.context import STATUSES, CheckFinding, DoctorContext, Findings, not_seen
from posd.cli.explain.catalogue import say
from posd.cli.payments.words import check_words
from posd.config import TerminalConfig
from posd.records.callback_urls import CallbackUrls
from posd.tls import issue
from posd.tls.certificate import CertificateInfo, called_as, missing_names, read_certificate
from posd.tls.files import TlsError, TlsFiles, describe, load_pair, shown_certificate

CERTIFICATE, PRIVATE_KEY = "webhooks.certificate", "webhooks.private_key"
_BEGIN = "-----BEGIN CERTIFICATE-----"


def check(shop: DoctorContext) -> Findings:
    """Check the certificate's dates, key, chain and names, and the CA."""
    subject, private_key, made = shop.certificate, shop.private_key, shop.made
    try:
        subject.open("rb").close()  # raises PermissionError with the name of the file
        if private_key.exists():
            private_key.open("rb").close()
        elif made is None:
            return  # the check of the configuration reports it
        leaf = load_pair(subject, private_key, None).info
    except FileNotFoundError:
        # Earlier checks have reported a lost CA, and a missing certificate of the shop's PKI.
        if made is not None and not shop.failed("files", str(made.ca_certificate)):
            code, key = ("later", "") if shop.service.makes_certificate else ("none", CERTIFICATE)
            yield shop.tell(f"certificate.{code}", subject, key=key)
    except PermissionError as error:
        if (said := shop.health("certificate")) and (how := STATUSES.get(str(said.get("status")))):
            detail, steps = check_words("certificate", said)
            reason = not_seen(shop, error)
            yield shop.tell("certificate.unseen", subject, how, reason=reason, said=detail, todo=remedy(steps))
        else:
            yield shop.unseen(subject, error)
    except TlsError as error:
        words, cure = str(error).partition("; ")[0], "own" if made is None else "pair"
        at, key = (private_key, PRIVATE_KEY) if str(private_key) in words else (subject, CERTIFICATE)
        yield shop.tell("certificate.pair", at, key=key, words=words, remedy=cure)
    else:
        code = leaf.validity(datetime.now(UTC))
        cure = {"valid": "", "future": "set_clock"}.get(code, _renewal(shop))
        yield shop.tell(f"certificate.{code}", subject, remedy=cure, **_dates(leaf, "certificate"))
        yield from _names(shop, leaf)
        yield shop.tell("certificate.key", private_key)
        yield from _own_chain(shop) if made is None else _ca(shop, made)


def _renewal(shop: DoctorContext) -> str:
    """Return the name of the remedy for a new certificate.

    While posd does not trust the clock, no certificate is made.
    """
    if shop.made is None:
        return "own"
    return "clock_first" if shop.health("clock").get("status") == "degraded" else "renew"


def _dates(found: CertificateInfo, what: str) -> dict[str, Any]:
    starts, now = (times.moment(at, year=True) for at in (found.not_before, datetime.now(UTC)))
    days, day = found.days_left(datetime.now(UTC)), times.day(found.not_after)
    return {"what": what, "day": day, "days": days, "starts": starts, "now": now}


def _ca(shop: DoctorContext, made: TlsFiles) -> Findings:
    try:
        code, ca = issue.ca_finding(made, datetime.now(UTC))
    except TlsError as error:
        yield shop.tell("certificate.no_ca", made.ca_certificate, words=str(error).partition("; ")[0], remedy="new_ca")
        return
    signed = issue.issued_by(shop.certificate, made.ca_certificate)
    yield shop.tell(
        f"certificate.{'chain' if signed else 'another_ca'}", "chain", remedy="" if signed else _renewal(shop)
    )
    remedy = {"valid": "", "next_ca": "", "future": "set_clock_of_ca", "expired": "new_ca"}.get(code, "following_ca")
    given = {"remedy": remedy, "from_day": times.day(ca.next_ca_from), **_dates(ca, "CA")}
    yield shop.tell(f"certificate.{code}", made.ca_certificate, **given)


def _own_chain(shop: DoctorContext) -> Findings:
    code, count, issuer = issue.chain_finding(shop.certificate)
    remedy = "own" if code == "broken_chain" else ""
    yield shop.tell(f"certificate.{code}", "chain", remedy=remedy, count=count, issuer=issuer)


def _names(shop: DoctorContext, leaf: CertificateInfo) -> Findings:
    """Check whether the certificate has each name and address that terminals call."""
    called: dict[str, list[str]] = {}
    advertised = shop.settings.webhooks.advertise_host
    if advertised:
        called[advertised] = []
    for terminal in shop.terminals:
        if terminal.access_mode != "cloud" and terminal.serial in shop.addresses:
            with suppress(Problem):  # the check of the callback addresses reports it
                called.setdefault(advertised or _called_at(shop, terminal)[0], []).append(terminal.serial)
    called = called or {host: [] for host in _hosts(shop)}
    for host, callers in called.items():
        lacks = bool(missing_names(leaf, called_as(host, host)))
        code, remedy = ("not_named", _renewal(shop)) if lacks else ("named", "")
        yield shop.tell(f"certificate.{code}", host, who=", ".join(callers) or "each terminal", remedy=remedy)


def _hosts(shop: DoctorContext) -> tuple[str, ...]:
    """Return all names and addresses of this machine, for the case that no terminal's address is known."""
    wanted = certificates.wanted(shop.settings)
    return (*wanted.names, *wanted.addresses)


def _called_at(shop: DoctorContext, terminal: TerminalConfig) -> tuple[str, int]:
    """Return host and port of a terminal's callback URL, built by posd's own code.

    Raise Problem if this machine has no route to the terminal.
    """
    webhooks = shop.settings.webhooks
    # If posd cannot listen on its address, an earlier check has reported that. Then use a wildcard, so that this check
    # does not report the consequence.
    listen = "::" if shop.failed("port") else webhooks.listen.host
    urls = CallbackUrls((bytes(32),), webhooks.advertise_host, shop.port, webhooks.public_url, listen)
    url = urls.url(Channel.TRANSACTION, "doctor", shop.addresses[terminal.serial], terminal.access_mode)
    parts = urlsplit(asyncio.run(url))
    return parts.hostname or "", parts.port or 443


# Callback addresses, called as a terminal would.

#: Time-out of a connect to a callback address, in seconds.
CONNECT_SECONDS = 10.0


def check_callbacks(shop: DoctorContext) -> Findings:
    """Check the certificate that each callback address shows."""
    called: dict[tuple[str, int, bool], list[str]] = {}
    for terminal in shop.terminals:
        cloud = terminal.access_mode == "cloud"
        if terminal.serial not in shop.addresses or (cloud and not shop.settings.webhooks.public_url):
            continue  # the check of the terminal or of the configuration reports the reason
        try:
            called.setdefault((*_called_at(shop, terminal), cloud), []).append(terminal.serial)
        except Problem as problem:
            todo, at = problem.detail.rpartition("; ")[2], shop.addresses[terminal.serial]
            yield shop.tell("callback.no_way", terminal.serial, base_url=at, todo=todo)
    called = called or {(host, shop.port, False): [] for host in _hosts(shop)}
    for (host, port, cloud), serials in called.items():
        subject = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        who = ", ".join(serials) or "each terminal"
        if cloud:
            reason = _refused(host, port, tls_contexts.client(system=True))
            yield shop.tell(f"callback.{'from_outside' if reason else 'outside'}", subject, who=who, reason=reason)
        elif port == 0 or not shop.there:
            yield shop.tell(f"callback.{'no_port' if port == 0 else 'stopped'}", subject, who=who)
        else:
            yield _shown(shop, subject, host, port, who)
    yield from _distrust(shop)


def _distrust(shop: DoctorContext) -> Findings:
    """Report devices that have refused the certificate, from posd's health."""
    at = {urlsplit(base_url).hostname: serial for serial, base_url in shop.addresses.items()}
    for item in shop.health("certificate").get("refused_by", []):
        serial = at.get(item["address"])
        given = {
            "who": say("doctor", "as_terminal", serial=serial) if serial else "a device that is not a terminal of ours",
            "often": "once" if item["count"] == 1 else say("doctor", "times", count=item["count"]),
            "last": times.moment(item["last_at"], date=True),
            "todo": WORDS.get(item["alert"], WORDS["unknown_ca"]),
        }
        status = "failure" if serial else "warning"
        yield shop.tell("callback.distrusts", item["address"], status, alert=item["alert"], **given)


def _shown(shop: DoctorContext, subject: str, host: str, port: int, who: str) -> CheckFinding:
    given: dict[str, Any] = {"who": who, "port": port}
    try:
        shown = shown_certificate(host, port, seconds=CONNECT_SECONDS)
    except ConnectionError as error:
        return shop.tell("callback.not_shown", subject, reason=error, **given)
    found, told_before = hashlib.sha256(shown).hexdigest(), shop.failed("certificate")
    serving = found == shop.served.get("fingerprint_sha256")
    given |= {"found": found, "what": _described(shown, found)}
    try:
        expected = describe(shop.certificate).fingerprint_sha256
    except (OSError, TlsError):
        return shop.tell(f"callback.{'answers' if serving else 'not_compared'}", subject, **given)
    if found != expected:
        code, status = ("old", "warning" if told_before else "failure") if serving else ("stranger", "failure")
        return shop.tell(f"callback.{code}", subject, status, expected=expected, **given)
    if told_before:  # no TLS check: posd would record its failure as a terminal's refusal
        return shop.tell("callback.wrong", subject, **given)
    client = tls_contexts.strict_client(shop.made.ca_certificate if shop.made else None, system=shop.made is None)
    if shop.made is None:  # trust the last certificate of the chain, as a terminal may
        client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        client.load_verify_locations(cadata="".join(shop.certificate.read_text("ascii").rpartition(_BEGIN)[1:]))
    reason = _refused(host, port, client)
    return shop.tell(f"callback.{'refused' if reason else 'accepted'}", subject, reason=reason, **given)


def _described(der: bytes, fingerprint: str) -> str:
    """Return the text about a certificate that an address shows: its subject, issuer, end and fingerprint."""
    with suppress(ValueError):
        info = read_certificate(der)
        subject, issuer = (name or say("doctor", "empty_name") for name in (info.subject, info.issuer))
        until = times.day(info.not_after)
        return say("doctor", "certificate", subject=subject, issuer=issuer, until=until, found=fingerprint)
    return say("doctor", "unreadable", found=fingerprint)


def _refused(host: str, port: int, client: ssl.SSLContext) -> str:
    """Connect with a TLS context. Return why it refuses the certificate, or why the connect failed, or ""."""
    try:
        with (
            socket.create_connection((host, port), CONNECT_SECONDS) as connection,
            client.wrap_socket(connection, server_hostname=host),
        ):
            return ""
    except ssl.SSLError as error:
        return say("doctor", "refused", reason=getattr(error, "verify_message", "") or error.reason)
    except TimeoutError:
        return "no answer"
    except OSError as error:
        return say("doctor", "not_reached", reason=error.strerror or error)
