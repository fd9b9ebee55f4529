"""Documents of terminals in the local API (Terminals)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from posd.base.json_types import OPEN, Moment, Uuid
from posd.terminals.identity import Claimant, Part, ProofWord

State = Literal["answers", "unchecked", "silent", "refused"]


class Claim(msgspec.Struct, frozen=True):
    """Another address at which the terminal is announced."""

    base_url: Annotated[str, Meta(description="the address")]
    same_device: Annotated[bool, Meta(description="another address of the device in use")]
    last_seen: Annotated[Moment, Meta(description="time of the last announcement")]
    state: Annotated[
        State,
        OPEN,
        Meta(description="result of the last connection to it; `refused`: its certificate is not trusted"),
    ]
    reason: Annotated[str | None, Meta(description="why it does not answer")]


class Identity(msgspec.Struct, frozen=True):
    """Proof that the device at an address is the terminal."""

    proof: ProofWord
    conflict: Annotated[bool, Meta(description="nothing is sent to it until a person decides, or it ends by itself")]
    claims: Annotated[list[Claimant], Meta(description="every claimed address of the terminal")]


class Commissioned(msgspec.Struct, frozen=True):
    """Functions that an operator has seen working with a terminal."""

    at: Annotated[Moment, Meta(description="when it was recorded")]
    by: Annotated[str, Meta(description="who saw it")]
    proven: Annotated[list[Annotated[Part, OPEN]], Meta(description="what was seen working")]


class Terminal(msgspec.Struct, frozen=True, kw_only=True):
    """A terminal of the fleet, or a terminal that is announced in this network."""

    serial: Annotated[str, Meta(description="its serial number")]
    brand: Annotated[str | None, Meta(description="as it says itself")]
    model: Annotated[str | None, Meta(description="as it says itself")]
    base_url: Annotated[str | None, Meta(description="its address for calls, null if none is known")]
    source: Annotated[Annotated[Literal["config", "mdns"], OPEN] | None, Meta(description="where it comes from")]
    reachable: Annotated[bool | None, Meta(description="whether the last call or check succeeded, null without one")]
    last_seen: Annotated[Moment | None, Meta(description="its last sign of life")]
    transaction: Annotated[Uuid | None, Meta(description="the payment that holds it")]
    reason: Annotated[str | None, Meta(description="why it cannot be reached, or why no address is known")]
    checked_at: Annotated[Moment | None, Meta(description="time of the last call or check")]
    claims: Annotated[list[Claim], Meta(description="other announced addresses of it")]
    identity: Annotated[Identity, Meta(description="the proof of its identity, and the devices that claim to be it")]
    commissioned: Annotated[
        Commissioned | None, Meta(description="what was seen working under its present profile, null if nothing")
    ] = None
    commission_lapsed: Annotated[
        Moment | None, Meta(description="time of its commissioning under an earlier profile; null otherwise")
    ] = None
    in_fleet: Annotated[
        bool | UnsetType,
        Meta(description="only for an announced terminal outside the fleet, and false: it is never called"),
    ] = UNSET
