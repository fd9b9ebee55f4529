"""The authentication of a terminal by its configuration."""

import base64
import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime

from posd.base.canonical_json import canonical
from posd.config import TerminalConfig
from posd.terminals.auth.request import Authentication, OutgoingRequest
from posd.terminals.auth.webhooks import Verifier

# The scheme `hmac` of older terminals: the body is signed and stays unencrypted.
#
# Source: docs/guides/real-terminals.md, hmac.


class HmacSha256:
    """Signature with the business code."""

    def __init__(self, business_code: str, now: Callable[[], float]) -> None:
        """`now`: seconds since 1970."""
        self._key = business_code.encode()
        self._now = now

    def __call__(self, request: OutgoingRequest) -> OutgoingRequest:
        """Return the request with the signature of its body (empty without one) and the present time."""
        body = None if request.body is None else canonical(request.body)
        signature = hmac.digest(self._key, body or b"", hashlib.sha256)
        signed = request.with_headers(
            {"Authorization": base64.b64encode(signature).decode(), "timestamp": str(int(self._now() * 1000))}
        )
        return replace(signed, body=body)


def none(request: OutgoingRequest) -> OutgoingRequest:
    """Return the request unchanged."""
    return request


def headers(values: Mapping[str, str]) -> Authentication:
    """Return the authentication that adds these headers to each request."""

    def add(request: OutgoingRequest) -> OutgoingRequest:
        return request.with_headers(values)

    return add


def of(terminal: TerminalConfig, now: Callable[[], datetime]) -> Authentication:
    """Return the configured authentication of a terminal; reads its secrets.

    Raise HeaderError if a secret cannot be read. Blocking.
    """
    values = {name: header.resolve() for name, header in terminal.headers.items()}
    beside = headers(values) if values else none
    if terminal.auth == "none":
        return beside
    assert terminal.business_code is not None  # noqa: S101 - the configuration is refused without one
    scheme = _scheme(terminal, terminal.business_code.resolve(), lambda: now().timestamp())
    return lambda request: scheme(beside(request))


def of_webhooks(terminal: TerminalConfig) -> Verifier | None:
    """Return the verifier of a terminal's webhooks, or None if no signature is expected; reads its secret.

    Raise HeaderError if the secret cannot be read. Blocking.
    """
    if not terminal.webhook_signature:
        return None
    assert terminal.secret_of_webhooks is not None  # noqa: S101 - the configuration is refused without one
    return Verifier(terminal.webhook_signature, terminal.secret_of_webhooks.resolve())


def _scheme(terminal: TerminalConfig, business_code: str, now: Callable[[], float]) -> Authentication:
    if terminal.auth == "hmac":
        from posd.terminals.auth.schemes import HmacSha256

        return HmacSha256(business_code, now)
    from posd.terminals.auth.hash_encrypt import HashEncrypt  # imported late: it loads the encryption library

    return HashEncrypt(business_code, terminal.serial, terminal.hash_encrypt, now)
