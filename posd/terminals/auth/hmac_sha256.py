"""The scheme `hmac` of older terminals: the body is signed and stays unencrypted.

Source: docs/guides/real-terminals.md, hmac.
"""

import base64
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import replace

from posd.base.canonical_json import canonical
from posd.terminals.auth.request import OutgoingRequest


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
