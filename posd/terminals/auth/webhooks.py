"""Signatures of webhooks: which headers may carry one, and whether it is right. Pure.

No signature is documented for webhooks of these terminals: the three kinds here are those of services like it. None is
asked for unless the configuration says which (`webhook_signature`). Source: docs/real-terminals.md, Webhook signatures.
"""

import base64
import hashlib
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from posd.base.text import shown
from posd.config.schema import WebhookSignature

#: Headers of a request as they came: names in lower case.
Headers = Iterable[tuple[bytes, bytes]]

#: What is looked at and kept of the headers that may matter: so many of a name, of at most so many bytes. A signature
#: has 64.
MAX_OF_A_NAME = 2
MAX_VALUE_BYTES = 200
#: What is shown of the names of headers.
MAX_NAMES = 40
MAX_NAME_CHARACTERS = 64

_ID = b"x-kushki-id"


class Kind(NamedTuple):
    """One kind of signature: HMAC-SHA256 of the body. `headers` may carry it.

    `encoded`: in base64, where it may follow a word such as HMAC and a space; else in hexadecimal digits. `with_id`: of
    the body, a dot, and the value of the header X-Kushki-Id.
    """

    headers: tuple[bytes, ...]
    encoded: bool = False
    with_id: bool = False


KINDS: Mapping[WebhookSignature, Kind] = {
    "wh-business-code-base64": Kind((b"signature", b"authorization"), encoded=True),
    "wh-secret-body-hex": Kind((b"kushki-signature", b"x-kushki-signature")),
    "wh-secret-body-dot-id-hex": Kind((b"x-kushki-signature",), with_id=True),
}

_MATTERING = frozenset({_ID, *(name for kind in KINDS.values() for name in kind.headers)})


def carried(headers: Headers) -> tuple[tuple[bytes, bytes], ...]:
    """Return those headers that a signature may need, without those that are too long to be part of one."""
    found: list[tuple[bytes, bytes]] = []
    left = dict.fromkeys(_MATTERING, MAX_OF_A_NAME)
    for name, value in headers:
        if left.get(name) and len(value) <= MAX_VALUE_BYTES:
            left[name] -= 1
            found.append((name, value))
    return tuple(found)


def names(headers: Headers) -> str:
    """Return the names of headers, each once, without their values, to be shown."""
    found = list(dict.fromkeys(name for name, _ in headers))
    words = [shown(name[:MAX_NAME_CHARACTERS].decode("ascii", "replace")) for name in found[:MAX_NAMES]]
    more = [f"and {len(found) - MAX_NAMES} more"] if len(found) > MAX_NAMES else []
    return ", ".join([*words, *more])


@dataclass(frozen=True, slots=True)
class Verifier:
    """Verifies the webhooks of a terminal. The secret does not show in repr."""

    name: WebhookSignature
    secret: str = field(repr=False)

    def fault(self, headers: Headers, body: bytes) -> str:
        """Say what is wrong with the signature of a body; empty where it is right."""
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

    def _sign(self, text: bytes, kind: Kind) -> bytes:
        digest = hmac.digest(self.secret.encode(), text, hashlib.sha256)
        return base64.b64encode(digest) if kind.encoded else digest.hex().encode()


def _signature(value: bytes, kind: Kind) -> bytes:
    """Return the signature in the value of a header."""
    word, space, rest = value.partition(b" ")
    return rest if kind.encoded and space and word.replace(b"-", b"").isalnum() else value
