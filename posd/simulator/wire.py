"""JSON and times as they stand on the wire. Numbers are int or Decimal from the request to the event, never float."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec

_DECODER: msgspec.json.Decoder[Any] = msgspec.json.Decoder(float_hook=Decimal)
_ENCODER = msgspec.json.Encoder(decimal_format="number")


class NotJson(ValueError):
    """The bytes are not a JSON document."""


def decode(raw: bytes | str) -> Any:
    """Read one JSON document; numbers with a point or an exponent become Decimal, digit by digit.

    Raises NotJson.
    """
    try:
        return _DECODER.decode(raw)
    except (ValueError, RecursionError, ArithmeticError) as error:
        raise NotJson(str(error)) from error


def encode(value: Any) -> bytes:
    """Write JSON; a Decimal is written as the number that it was read from (10.10 stays 10.10)."""
    return _ENCODER.encode(value)


def timestamp() -> str:
    """Now, as events bear it: ISO 8601, UTC, milliseconds, `Z` (terminal API, Events)."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
