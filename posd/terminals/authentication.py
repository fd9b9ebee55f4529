"""Authentication of calls to terminals: it turns a request into the request that is sent.

The schemes are `hmac_sha256` and `hash_encrypt`, chosen by `auth` in the configuration (`settings`). The configured
headers are sent with each. A scheme gets all of the request except Host and Content-Length, which follow from the URL
and the body.
"""

import base64
import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from posd.base.canonical_json import canonical
from posd.config.values import sendable


@dataclass(frozen=True, slots=True)
class OutgoingRequest:
    """One HTTP request. repr shows only its method: the rest can hold secrets, also in a signed URL.

    `opened` decrypts the body of the reply. It raises UnreadableReply.
    """

    method: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | None = field(repr=False, default=None)
    opened: Callable[[bytes], bytes] = field(repr=False, default=bytes)

    def with_headers(self, values: Mapping[str, str]) -> "OutgoingRequest":
        """Return a copy with these headers; they replace those of the same name, in any case (RFC 9110, 5.1)."""
        replaced = {name.lower() for name in values}
        kept = {name: value for name, value in self.headers.items() if name.lower() not in replaced}
        return replace(self, headers={**kept, **values})


#: Called for each request just before it is sent, in the event loop: it must not block.
Authentication = Callable[[OutgoingRequest], OutgoingRequest]


class NotAuthenticated(Exception):
    """Authentication that failed. The message names the kind of failure and quotes nothing."""


class UnreadableReply(ValueError):
    """Encrypted reply that the key of the request does not decrypt."""


def authenticate(request: OutgoingRequest, authentication: Authentication) -> OutgoingRequest:
    """Return the request to send. Raise NotAuthenticated for every failure.

    Headers are checked here, before the connection, so that the failure counts as one of authentication.
    """
    try:
        authenticated = authentication(request)
    except Exception as error:  # noqa: BLE001 - of a scheme's own; its text may quote a key
        raise NotAuthenticated(f"the request could not be authenticated ({type(error).__name__})") from None
    if not sendable(authenticated.headers):
        raise NotAuthenticated("the request could not be authenticated (a header that cannot be sent)")
    return authenticated


# The scheme `hmac` of older terminals: the body is signed and stays unencrypted.
#
# Source: docs/guides/real-terminals.md, hmac.


def hmac_sha256(business_code: str, now: Callable[[], float]) -> Authentication:
    """Return the authentication that signs with the business code. `now`: seconds since 1970."""
    key = business_code.encode()

    def sign(request: OutgoingRequest) -> OutgoingRequest:
        # the signature of the body (empty without one), and the present time
        body = None if request.body is None else canonical(request.body)
        signature = base64.b64encode(hmac.digest(key, body or b"", hashlib.sha256)).decode()
        signed = request.with_headers({"Authorization": signature, "timestamp": str(int(now() * 1000))})
        return replace(signed, body=body)

    return sign


def none(request: OutgoingRequest) -> OutgoingRequest:
    """Return the request unchanged."""
    return request


def headers(values: Mapping[str, str]) -> Authentication:
    """Return the authentication that adds these headers to each request."""

    def add(request: OutgoingRequest) -> OutgoingRequest:
        return request.with_headers(values)

    return add
