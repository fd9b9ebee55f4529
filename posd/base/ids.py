"""Ids of payments and print jobs, chosen by a till, and the tokens of their callback addresses."""

import hmac
import itertools
import re
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from typing import Annotated

from msgspec import Meta

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII)


def canonical_uuid(text: str) -> str | None:
    """Return a UUID in canonical lower case, or None if the text is not a UUID."""
    lowered = text.lower()
    return lowered if _UUID.fullmatch(lowered) else None


#: UUIDs of a program that forgot to set an id (RFC 9562, 5.9 and 5.10). Two payments would have the same id.
NIL_AND_MAX = frozenset({"00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"})
#: Pattern that matches the UUIDs of `NIL_AND_MAX`, in upper and lower case.
NIL_OR_MAX = "^([0-]+|[Ff-]+)$"


def chosen_uuid(text: object) -> str:
    """Return a UUID that a program chose, in canonical lower case. Raise ValueError with the reason."""
    canonical = canonical_uuid(text) if isinstance(text, str) else None
    if canonical is None:
        raise ValueError("must be a UUID, such as 7f3c1f0e-3b0a-4d7c-9d55-0f6b1c2a9e11")
    if canonical in NIL_AND_MAX:
        raise ValueError("must not be the nil or the max UUID: an id that was never set is not the id of one payment")
    return canonical


ID_RULE = "must be 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-', and not dots alone"


#: Pattern of the id of a print job.
ID_PATTERN = r"(?!\.+$)[A-Za-z0-9._-]{1,64}"


_ID = re.compile(ID_PATTERN, re.ASCII)


PrintJobId = Annotated[str, Meta(pattern=f"^{ID_PATTERN}$")]


def is_print_job_id(text: str) -> bool:
    """Return whether a text can be the id of a print job.

    An id of dots only is refused, because the id is part of paths, where dots lead to the parent folder.
    """
    return _ID.fullmatch(text) is not None


# Callback tokens: proof that posd made a callback address for one payment or print job.
#
# A token is an HMAC of the channel and the id under the daemon's key. posd checks it before it reads the body, without
# a database query. A token survives the loss or restore of the database, and other devices on the LAN cannot guess it.
# The terminal API publishes no signature or secret for deliveries (see architecture, Steps of a webhook).

#: Length of a key. HMAC-SHA256 uses all 256 bits.
KEY_BYTES = 32
#: Pattern of a key in its file.
KEY_LINE = re.compile(r"[0-9a-f]{64}", re.ASCII)
#: Number of characters of a SHA-256 digest in URL-safe base64 without padding.
TOKEN_CHARACTERS = 43


class Channel(StrEnum):
    """The two webhook channels. The channels share neither payloads nor tokens (terminal API, Events)."""

    TRANSACTION = "transactions"
    PRINT = "print-jobs"


# Cached: each event of a payment needs the token, and its digest takes as long as parsing the event.
@lru_cache(maxsize=128)
def token(key: bytes, channel: Channel, subject: str) -> str:
    """Return the URL-safe token of one id on one channel."""
    digest = hmac.digest(key, f"posd:{channel}:{subject}".encode(), sha256)
    return urlsafe_b64encode(digest).rstrip(b"=").decode("ascii")


def verify(keys: Sequence[bytes], channel: Channel, subject: str, given: str) -> bool:
    """Return whether `given` is the token of an id under any key (newest first). The time for each key is constant."""
    candidate = given.encode("utf-8", "surrogatepass")
    for key in keys:  # noqa: SIM110 - called for each event; a generator takes twice as long
        if hmac.compare_digest(token(key, channel, subject).encode("ascii"), candidate):
            return True
    return False


def tokens(keys: Sequence[bytes], subjects: Iterable[str]) -> set[str]:
    """Return the tokens of ids on both channels under each key.

    The cache is not used, because there may be many ids.
    """
    every = itertools.product(keys, Channel, subjects)
    return {token.__wrapped__(*one) for one in every}


def path(channel: Channel, subject: str, given: str) -> str:
    """Return the path of a callback URL."""
    return f"/webhooks/{channel}/{subject}/{given}"
