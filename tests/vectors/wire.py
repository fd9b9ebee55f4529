"""JSON texts in which every literal stands as it was written, and the world that most vectors share."""

import json
from typing import Any

#: The payment of most vectors: a charge of 11.20 on SN-0001.
IDENTITY = "7f3c1f0e-3b0a-4d7c-9d55-0f6b1c2a9e11"
OTHER = "11111111-2222-4333-8444-555555555555"
TERMINAL, SECOND, FOREIGN = "SN-0001", "SN-0002", "SN-9999"
FLEET = [TERMINAL, SECOND]
MERCHANT = "M-1"
AMOUNT = '{"iva": 1.20, "subtotal_iva": 10.00, "subtotal_iva0": 0}'
REFERENCE = "a1b2c3d4-0000-4000-8000-000000000001"
SECOND_REFERENCE = "a1b2c3d4-0000-4000-8000-000000000002"
PREAUTHORIZED = "a1b2c3d4-0000-4000-8000-00000000000f"

ACK, CARD, REQUESTED = "TERMINAL_ACKNOWLEDGED", "CARD_PRESENTED", "APPROVAL_REQUESTED"
CANCELED, REJECTED, DECLINED, APPROVAL = "TERMINAL_CANCELED", "TERMINAL_REJECTED", "DECLINED", "APPROVAL"


class Literal(str):
    """JSON that stands in the text as it is: a number such as 10.10, or something that is no JSON at all."""

    __slots__ = ()


def text(value: Any) -> str:
    """Return the JSON text of a value; a `Literal` in it is left as it is."""
    match value:
        case Literal():
            return str(value)
        case dict():
            return "{" + ", ".join(f"{json.dumps(name)}: {text(item)}" for name, item in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(text, value)) + "]"
        case _:
            return json.dumps(value)


def body(value: Any) -> bytes:
    """Return the JSON of a value as bytes."""
    return text(value).encode()


def changed(document: Any, path: str, value: Any = None, *, remove: bool = False) -> Any:
    """Return the document with another value at a path (`raw_response.ticket_number`), or without it."""
    name, _, rest = path.partition(".")
    copy = dict(document)
    if rest:
        copy[name] = changed(copy[name], rest, value, remove=remove)
    elif remove:
        del copy[name]
    else:
        copy[name] = value
    return copy
