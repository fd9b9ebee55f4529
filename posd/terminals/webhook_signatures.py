"""Signatures of webhooks: the headers that may carry one, and its verification. Pure.

No signature is documented for webhooks of these terminals: the three kinds here are those of similar services. Only the
configuration requires one (`webhook_signature`). Source: docs/guides/real-terminals.md, Webhook signatures.
"""

import base64
import hashlib
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from posd.base.text import shown
from posd.config.schema import WebhookSignature

#: Headers of a request as received: names in lower case.
Headers = Iterable[tuple[bytes, bytes]]

#: Limits of the headers that are checked and stored: so many of a name, each of at most so many bytes. A signature has
#: 64.
MAX_OF_A_NAME = 2
MAX_VALUE_BYTES = 200
#: Limits of the header names that are shown.
MAX_NAMES = 40
MAX_NAME_CHARACTERS = 64

_ID = b"x-kushki-id"


class SignatureKind(NamedTuple):
    """One kind of signature: HMAC-SHA256 of the body. `headers` may carry it.

    `encoded`: base64, possibly after a word such as HMAC and a space; otherwise hexadecimal digits. `with_id`: signs
    the body, a dot, and the value of the header X-Kushki-Id.
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


def carried(headers: Headers) -> tuple[tuple[bytes, bytes], ...]:
    """Return the headers that a signature may need, without values too long for one."""
    found: list[tuple[bytes, bytes]] = []
    left = dict.fromkeys(_MATTERING, MAX_OF_A_NAME)
    for name, value in headers:
        if left.get(name) and len(value) <= MAX_VALUE_BYTES:
            left[name] -= 1
            found.append((name, value))
    return tuple(found)


def names(headers: Headers) -> str:
    """Return the names of headers for display, each once, without their values."""
    found = list(dict.fromkeys(name for name, _ in headers))
    words = [shown(name[:MAX_NAME_CHARACTERS].decode("ascii", "replace")) for name in found[:MAX_NAMES]]
    more = [f"and {len(found) - MAX_NAMES} more"] if len(found) > MAX_NAMES else []
    return ", ".join([*words, *more])


@dataclass(frozen=True, slots=True)
class Verifier:
    """Verifier of a terminal's webhooks. repr does not show the secret."""

    name: WebhookSignature
    secret: str = field(repr=False)

    def fault(self, headers: Headers, body: bytes) -> str:
        """Return the fault of a body's signature in words; empty if it is right."""
        kind, given = KINDS[self.name], carried(headers)
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
    word, space, rest = value.partition(b" ")
    return rest if kind.encoded and space and word.replace(b"-", b"").isalnum() else value
