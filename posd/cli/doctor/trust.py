"""How a terminal judges the certificate of this machine: a strict client, played here, and words for its refusal."""

import asyncio
import contextlib
import hashlib
import re
import ssl
from pathlib import Path
from urllib.parse import urlsplit

from posd import tls
from posd.base.callback_tokens import Channel
from posd.cli.doctor.context import Shop
from posd.config import TerminalConfig
from posd.records.callback_urls import CallbackUrls

#: OpenSSL's X509_V_FLAG_NO_CHECK_TIME: whether a certificate has ended is a line of its own.
_NO_CHECK_TIME = 0x200000
#: Flights of a TLS handshake: two from each side, and one more than that.
_FLIGHTS = 3
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----")


def blocks(path: Path) -> list[str]:
    """Return the certificates of a PEM file, each as PEM, in their order. Raise OSError."""
    return [found.decode("ascii") for found in _PEM.findall(path.read_bytes())]


def strict_client(shop: Shop, *, dates: bool) -> ssl.SSLContext:
    """Return the context of a client that checks as strictly as OpenSSL can, with or without the dates.

    It trusts what a terminal is given: the CA of `posd tls init`; for a certificate of the shop's own the last one of
    its chain, and the CAs of this system. Raise OSError.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.minimum_version = ssl.TLSVersion.TLSv1_2
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    if not dates:
        client.verify_flags |= _NO_CHECK_TIME
    if shop.ca_certificate is not None:
        client.load_verify_locations(cafile=shop.ca_certificate)
        return client
    client.load_default_certs()
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(cadata=blocks(shop.certificate)[-1])
    return client


def refusal(server: ssl.SSLContext, client: ssl.SSLContext, host: str | None) -> ssl.SSLError | None:
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
        f"{found.not_after:%Y-%m-%d} (SHA-256 {fingerprint})"
    )


def callback(shop: Shop, terminal: TerminalConfig, base_url: str) -> tuple[str, int]:
    """Return host and port at which that terminal is told to call back, as posd itself makes the URL.

    Raise Problem where this machine has no way to the terminal.
    """
    webhooks = shop.settings.webhooks
    # An address on which posd cannot listen was told already; what follows from it is not told again.
    listen = "::" if shop.failed("port") else webhooks.host
    urls = CallbackUrls((bytes(32),), webhooks.advertise_host, shop.port, webhooks.public_url, listen)
    parts = urlsplit(asyncio.run(urls.url(Channel.TRANSACTION, "doctor", base_url, terminal.access_mode)))
    return parts.hostname or "", parts.port or 443
