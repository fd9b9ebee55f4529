"""Callback tokens: the proof that a callback belongs to the transaction for which posd gave its address out.

A token is an HMAC of the channel and the id under the daemon's key. It is checked before the body is read, without
a look-up, survives the loss or restore of the database, and cannot be guessed by another device on the LAN
(architecture, The way of a webhook; no signature or secret on deliveries is published).
"""

import hmac
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from enum import StrEnum
from hashlib import sha256

#: 256 bits, what HMAC-SHA256 uses in full.
KEY_BYTES = 32


class Channel(StrEnum):
    """The two webhook channels; they share neither payload nor token (terminal API, Events)."""

    TRANSACTION = "transactions"
    PRINT = "print-jobs"


def token(key: bytes, channel: Channel, subject: str) -> str:
    """Return the URL-safe token (43 characters) of one id on one channel."""
    digest = hmac.digest(key, f"posd:{channel}:{subject}".encode(), sha256)
    return urlsafe_b64encode(digest).rstrip(b"=").decode("ascii")


def verify(keys: Sequence[bytes], channel: Channel, subject: str, given: str) -> bool:
    """Tell whether `given` is the token of that id under any of the keys (newest first), in constant time a key."""
    candidate = given.encode("utf-8", "surrogatepass")
    return any(hmac.compare_digest(token(key, channel, subject).encode("ascii"), candidate) for key in keys)


def path(channel: Channel, subject: str, given: str) -> str:
    """Return the path of a callback URL."""
    return f"/webhooks/{channel}/{subject}/{given}"
