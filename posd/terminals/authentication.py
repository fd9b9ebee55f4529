"""Authentication of calls to terminals and of their webhooks. No I/O.

An `Authentication` is a function that receives a request, and returns it with what the terminal requires, such as a
signature. The schemes are `hmac_sha256` and `hash_encrypt`, chosen by `auth` in the configuration. With each scheme,
the configured headers are sent too. A scheme receives the request without the headers Host and Content-Length, which
follow from URL and body.

The terminal API has no signature of webhooks. The three kinds here are those of similar services. A signature is
required only if `webhook_signature` is configured.

Source: docs/guides/real-terminals.md, Webhook signatures.
"""

import base64
import hashlib
import hmac
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from posd.base.canonical_json import canonical
from posd.base.text import shown
from posd.config.schema import WebhookSignature
from posd.config.values import sendable
from posd.terminals.attempt import CallFailed


@dataclass(frozen=True, slots=True)
class OutgoingRequest:
    """One HTTP request. The repr shows only the method, because headers, body and URL can contain secrets.

    `opened` returns the decrypted body of the reply, or raises ValueError.
    """

    method: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | None = field(repr=False, default=None)
    opened: Callable[[bytes], bytes] = field(repr=False, default=bytes)

    def with_headers(self, values: Mapping[str, str]) -> "OutgoingRequest":
        """Return a copy with these headers.

        The new headers replace headers of the same name, regardless of case (RFC 9110, 5.1).
        """
        replaced = {name.lower() for name in values}
        kept = {name: value for name, value in self.headers.items() if name.lower() not in replaced}
        return replace(self, headers={**kept, **values})


#: Function that is called for each request just before it is sent, in the event loop. It must not block.
Authentication = Callable[[OutgoingRequest], OutgoingRequest]


def authenticate(request: OutgoingRequest, authentication: Authentication) -> OutgoingRequest:
    """Return the request to send. Raise CallFailed for every failure, with a message that quotes no secret.

    Headers are checked here, so that a wrong one is reported as a failure of the authentication.
    """
    try:
        authenticated = authentication(request)
    except Exception as error:  # noqa: BLE001 - any error of a scheme; its text may quote a key
        raise CallFailed(f"the request could not be authenticated ({type(error).__name__})") from None
    if not sendable(authenticated.headers):
        raise CallFailed("the request could not be authenticated (a header that cannot be sent)")
    return authenticated


# Scheme `hmac` of older terminals: the body is signed and not encrypted.
#
# Source: docs/guides/real-terminals.md, hmac.


def hmac_sha256(business_code: str, now: Callable[[], float]) -> Authentication:
    """Return the authentication that signs with the business code. `now`: seconds since 1970."""
    key = business_code.encode()

    def sign(request: OutgoingRequest) -> OutgoingRequest:
        # Without a body, the empty text is signed.
        body = None if request.body is None else canonical(request.body)
        signature = base64.b64encode(hmac.digest(key, body or b"", hashlib.sha256)).decode()
        signed = request.with_headers({"Authorization": signature, "timestamp": str(int(now() * 1000))})
        return replace(signed, body=body)

    return sign


def none(request: OutgoingRequest) -> OutgoingRequest:
    """Return the request unchanged (no authentication)."""
    return request


def headers(values: Mapping[str, str]) -> Authentication:
    """Return an authentication that only adds these headers."""

    def add(request: OutgoingRequest) -> OutgoingRequest:
        return request.with_headers(values)

    return add


#: Headers of a request as received: names in lower case.
Headers = Iterable[tuple[bytes, bytes]]

#: Limits of the headers that are checked and stored: number of headers with the same name, and size of a value in
#: bytes. A signature has at most 64 bytes.
MAX_OF_A_NAME = 2
MAX_VALUE_BYTES = 200
#: Limits of the header names that are shown: number of names, and length of a name.
MAX_NAMES = 40
MAX_NAME_CHARACTERS = 64

_ID = b"x-kushki-id"


class SignatureKind(msgspec.Struct, frozen=True):
    """One kind of signature: HMAC-SHA256 of the body. `headers`: names of the headers that may have the signature.

    `encoded`: whether the signature is in base64, possibly after a word such as HMAC and a space. Otherwise it is in
    hexadecimal digits. `with_id`: whether the signed text is the body, a dot, and the value of the header X-Kushki-Id.
    """

    headers: tuple[bytes, ...]
    encoded: bool = False
    with_id: bool = False


KINDS: Mapping[WebhookSignature, SignatureKind] = {
    "wh-business-code-base64": SignatureKind((b"signature", b"authorization"), encoded=True),
    "wh-secret-body-hex": SignatureKind((b"kushki-signature", b"x-kushki-signature")),
    "wh-secret-body-dot-id-hex": SignatureKind((b"x-kushki-signature",), with_id=True),
}

_MATTERING = frozenset({_ID, *(name for kind in KINDS.values() for name in kind.headers)})


def signature_headers(headers: Headers) -> tuple[tuple[bytes, bytes], ...]:
    """Return the headers that the check of a signature may need. Omit values that are too long for a signature."""
    found: list[tuple[bytes, bytes]] = []
    left = dict.fromkeys(_MATTERING, MAX_OF_A_NAME)
    for name, value in headers:
        if left.get(name) and len(value) <= MAX_VALUE_BYTES:
            left[name] -= 1
            found.append((name, value))
    return tuple(found)


def header_names(headers: Headers) -> str:
    """Return the names of headers for display, each once."""
    found = list(dict.fromkeys(name for name, _ in headers))
    words = [shown(name[:MAX_NAME_CHARACTERS].decode("ascii", "replace")) for name in found[:MAX_NAMES]]
    more = [f"and {len(found) - MAX_NAMES} more"] if len(found) > MAX_NAMES else []
    return ", ".join([*words, *more])


@dataclass(frozen=True, slots=True)
class Verifier:
    """Verifier of a terminal's webhooks. The repr does not show the secret."""

    name: WebhookSignature
    secret: str = field(repr=False)

    def fault(self, headers: Headers, body: bytes) -> str:
        """Return the fault of a body's signature as text, or an empty text if the signature is valid."""
        kind, given = KINDS[self.name], signature_headers(headers)
        signatures = [_signature(value, kind) for name, value in given if name in kind.headers]
        if not signatures:
            return f"it has no signature (no usable header {' or '.join(name.decode() for name in kind.headers)})"
        ids = [value for name, value in given if name == _ID]
        if kind.with_id and len(ids) != 1:
            return f"it has {len(ids)} usable headers {_ID.decode()}, and its signature needs one"
        expected = self._sign(body + b"." + ids[0] if kind.with_id else body, kind)
        right = any(hmac.compare_digest(expected, signature) for signature in signatures)
        return "" if right else "its signature is wrong"

    def _sign(self, text: bytes, kind: SignatureKind) -> bytes:
        digest = hmac.digest(self.secret.encode(), text, hashlib.sha256)
        return base64.b64encode(digest) if kind.encoded else digest.hex().encode()


def _signature(value: bytes, kind: SignatureKind) -> bytes:
    """Return the signature in the value of a header."""
    word, _, rest = value.partition(b" ")
    return rest if kind.encoded and word.replace(b"-", b"").isalnum() else value
