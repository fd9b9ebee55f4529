"""The documents of terminals (local API, Terminals): made here, where they are known."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from posd.base.json_types import OPEN, Moment, Uuid

State = Literal["answers", "unchecked", "silent", "refused"]


class Claim(msgspec.Struct, frozen=True):
    """Another address at which the terminal is announced."""

    base_url: Annotated[str, Meta(description="the address")]
    same_device: Annotated[bool, Meta(description="it is one more address of the device that is used")]
    last_seen: Annotated[Moment, Meta(description="when it was announced last")]
    state: Annotated[
        State,
        OPEN,
        Meta(description="what the last connection to it showed; `refused`: its certificate is not trusted"),
    ]
    reason: Annotated[str | None, Meta(description="why it does not answer")]


class Terminal(msgspec.Struct, frozen=True, kw_only=True):
    """A terminal of the fleet, or one that is announced in this network."""

    serial: Annotated[str, Meta(description="its serial number")]
    brand: Annotated[str | None, Meta(description="as it says itself")]
    model: Annotated[str | None, Meta(description="as it says itself")]
    base_url: Annotated[str | None, Meta(description="the address to call it at, null where none is known")]
    source: Annotated[Annotated[Literal["config", "mdns"], OPEN] | None, Meta(description="where it comes from")]
    reachable: Annotated[bool | None, Meta(description="whether the last call or look got through, null without one")]
    last_seen: Annotated[Moment | None, Meta(description="its last sign of life")]
    transaction: Annotated[Uuid | None, Meta(description="the payment that holds it")]
    reason: Annotated[str | None, Meta(description="why it cannot be reached, or why no address is known")]
    checked_at: Annotated[Moment | None, Meta(description="when it was called or looked at last")]
    claims: Annotated[list[Claim], Meta(description="other addresses at which it is announced")]
    in_fleet: Annotated[
        Literal[False] | UnsetType,
        Meta(description="only of a stranger: it is announced, and not in the fleet, so that it is never called"),
    ] = UNSET
