"""How an answer is encoded: amounts as JSON numbers, or as texts where the call asks for that (`amounts=text`).

Each call is a task and chooses for itself, also for the thread that reads the database for it. What is kept as
bytes, such as metadata and the events of a terminal, stays as it is.
"""

from contextvars import ContextVar
from typing import Any

import msgspec

from posd.base.json_types import ENCODER

_TEXTS = msgspec.json.Encoder(decimal_format="string")
_chosen = ContextVar("encoder", default=ENCODER)


def choose(*, texts: bool) -> None:
    """Say how the answer of the present call is encoded."""
    _chosen.set(_TEXTS if texts else ENCODER)


def encode(document: Any) -> bytes:
    """Encode a document of an answer, with exact decimals."""
    return _chosen.get().encode(document)
