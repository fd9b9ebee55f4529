"""How an answer is encoded: without callback tokens, amounts as JSON numbers, or as texts (`amounts=text`).

Each call is a task and chooses for itself, also for the thread that reads the database for it. What is kept as
bytes, such as metadata and the events of a terminal, stays as it is but for the tokens in it.
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
    """Set how the answer of the present call is encoded. `subjects`: ids whose tokens may be in it."""
    _chosen.set(_Encoding(_TEXTS if texts else ENCODER, subjects))


def encode(document: Any) -> bytes:
    """Encode a document of an answer, with exact decimals, without callback tokens."""
    return redacted(_chosen.get().encoder.encode(document))


def redacted(body: bytes, *subjects: str) -> bytes:
    """Return bytes for an answer without callback tokens: what `encode` cannot see, such as what becomes base64."""
    return REDACTOR.body(body, *_chosen.get().subjects, *subjects)
