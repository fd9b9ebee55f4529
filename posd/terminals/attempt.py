"""What is seen of the one attempt to call a terminal: whether anything was written, and whether a whole reply came."""

import msgspec


class NotSent(msgspec.Struct, frozen=True, tag="not_sent"):
    """Nothing of the request was written to the network."""

    reason: str


class Replied(msgspec.Struct, frozen=True, tag="replied"):
    """A whole reply was read: HTTP status and body. `complete` is False where the body was cut at the limit."""

    status: int
    body: bytes
    complete: bool = True


class Lost(msgspec.Struct, frozen=True, tag="lost"):
    """Something was written, and no readable reply came."""

    reason: str


Attempt = NotSent | Replied | Lost
