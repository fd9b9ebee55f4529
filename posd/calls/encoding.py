"""Encoding of a response: without callback tokens, amounts as JSON numbers, or as texts (`amounts=text`).

Each call is a task with its own choice, also on the thread that reads the database for it. Stored bytes, such as
metadata and the events of a terminal, stay unchanged except for tokens.
"""

from contextvars import ContextVar
from typing import Any, NamedTuple

import msgspec

from posd.base.json_types import ENCODER
from posd.base.redaction import REDACTOR

_TEXTS = msgspec.json.Encoder(decimal_format="string")


class _Encoding(NamedTuple):
    encoder: msgspec.json.Encoder
    subjects: tuple[str, ...]


_DEFAULT = _Encoding(ENCODER, ())
_chosen = ContextVar("encoding", default=_DEFAULT)


def choose(*, texts: bool, subjects: tuple[str, ...] = ()) -> None:
    """Set the encoding of the present call's response. `subjects`: ids whose tokens may be in it."""
    _chosen.set(_Encoding(_TEXTS if texts else ENCODER, subjects))


def encode(document: Any) -> bytes:
    """Encode a document of a response, with exact decimals, without callback tokens."""
    return redacted(encode_whole(document))


def encode_whole(document: Any) -> bytes:
    """Encode a document with possible tokens in it: `redacted_in_steps` removes them."""
    return _chosen.get().encoder.encode(document)


async def redacted_in_steps(body: bytes) -> bytes:
    """Return bytes for a response without callback tokens; the loop runs between the pieces of a long one."""
    return await REDACTOR.body_in_steps(body, *_chosen.get().subjects)


def redacted(body: bytes, *subjects: str) -> bytes:
    """Return bytes for a response without callback tokens, for parts hidden from `encode`, such as base64."""
    return REDACTOR.body(body, *_chosen.get().subjects, *subjects)
