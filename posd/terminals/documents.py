"""Documents of terminals in the local API."""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from posd.base.json_types import OPEN, Moment, Uuid
from posd.terminals.addresses import REACHABLE
from posd.terminals.announcements import Announcement, CandidateVerdict
from posd.terminals.identity import Claimant, Part, Proof, ProofWord
from posd.terminals.terminal import FleetTerminal

State = Literal["answers", "unchecked", "silent", "refused"]


class Claim(msgspec.Struct, frozen=True):
    """Another address at which the terminal is announced."""

    base_url: Annotated[str, Meta(description="the address")]
    same_device: Annotated[bool, Meta(description="whether this is another address of the device in use")]
    last_seen: Annotated[Moment, Meta(description="time of the last announcement")]
    state: Annotated[
        State,
        OPEN,
        Meta(description="result of the last connection there; `refused`: its certificate is not trusted"),
    ]
    reason: Annotated[str | None, Meta(description="why it does not answer")]


class Identity(msgspec.Struct, frozen=True):
    """Proof that a device is the terminal, and the devices that claim to be it."""

    proof: ProofWord
    conflict: Annotated[bool, Meta(description="nothing is sent until an operator decides, or the conflict ends")]
    claims: Annotated[list[Claimant], Meta(description="every claimed address of the terminal")]


class Commissioned(msgspec.Struct, frozen=True):
    """Functions that an operator has seen working with a terminal."""

    at: Annotated[Moment, Meta(description="when it was recorded")]
    by: Annotated[str, Meta(description="name of the operator")]
    proven: Annotated[list[Annotated[Part, OPEN]], Meta(description="the parts that work")]


class Terminal(msgspec.Struct, frozen=True, kw_only=True):
    """A terminal of the fleet, or a terminal that is announced in this network."""

    serial: Annotated[str, Meta(description="its serial number")]
    brand: Annotated[str | None, Meta(description="as the terminal reports it")]
    model: Annotated[str | None, Meta(description="as the terminal reports it")]
    base_url: Annotated[str | None, Meta(description="its address for calls, null if none is known")]
    source: Annotated[Annotated[Literal["config", "mdns"], OPEN] | None, Meta(description="source of the address")]
    reachable: Annotated[bool | None, Meta(description="whether the last call or check succeeded, null without one")]
    last_seen: Annotated[Moment | None, Meta(description="time of its last reply, event or announcement")]
    transaction: Annotated[Uuid | None, Meta(description="the payment that holds it")]
    reason: Annotated[str | None, Meta(description="why it cannot be reached, or why no address is known")]
    checked_at: Annotated[Moment | None, Meta(description="time of the last call or check")]
    claims: Annotated[list[Claim], Meta(description="other announced addresses of it")]
    identity: Annotated[Identity, Meta(description="the proof of its identity, and the devices that claim to be it")]
    commissioned: Annotated[
        Commissioned | None, Meta(description="the parts that work under its present profile, null if not commissioned")
    ] = None
    commission_lapsed: Annotated[
        Moment | None, Meta(description="time of its commissioning under an earlier profile; null otherwise")
    ] = None
    in_fleet: Annotated[
        bool | UnsetType,
        Meta(description="`false` for an announced terminal outside the fleet, which posd never calls; else omitted"),
    ] = UNSET


#: Result of a connection -> word of the local API.
STATES: Mapping[CandidateVerdict, State] = {
    CandidateVerdict.ANSWERS: "answers",
    CandidateVerdict.UNCHECKED: "unchecked",
    CandidateVerdict.SILENT: "silent",
    CandidateVerdict.REFUSED: "refused",
}


def terminal_document(terminal: FleetTerminal, transaction: str | None, no_address: str) -> Terminal:
    """Return a terminal of the fleet.

    `transaction`: the payment that the terminal is busy with. `no_address`: why the terminal has no address.
    """
    addresses, best = terminal.addresses, terminal.addresses.best
    believed = next((claim for claim in addresses.claims if best is None or claim.has(best.base_url)), None)
    announcement = believed.announcement if believed else None
    seen, lapsed, proof = terminal.commissioned, terminal.commission_lapsed, addresses.proof()
    return Terminal(
        serial=terminal.serial,
        brand=terminal.brand or (announcement.brand if announcement else None),
        model=terminal.model or (announcement.model if announcement else None),
        base_url=best.base_url if best else None,
        source=("mdns" if addresses.configured is None else "config") if best else None,
        reachable=REACHABLE[best.verdict] if best else None,
        last_seen=terminal.last_seen,
        transaction=transaction,
        reason=best.reason if best else no_address,
        checked_at=best.checked_at if best else None,
        claims=[
            Claim(
                base_url=candidate.base_url,
                same_device=claim is believed and addresses.configured is None,
                last_seen=claim.announcement.seen_at,
                state=STATES[candidate.verdict],
                reason=candidate.reason,
            )
            for claim in addresses.claims
            for candidate in claim.candidates
            if best is None or candidate.base_url != best.base_url
        ],
        identity=Identity(
            proof=addresses.proof(best) if proof is Proof.NONE else proof,
            conflict=terminal.conflict is not None,
            claims=list(addresses.claimants()),
        ),
        commissioned=Commissioned(seen.at, seen.operator, list(seen.proven)) if seen and not lapsed else None,
        commission_lapsed=seen.at if seen and lapsed else None,
    )


def stranger_document(announced: Announcement) -> Terminal:
    """Return the document of an announced terminal outside the fleet."""
    return Terminal(
        serial=announced.serial,
        brand=announced.brand,
        model=announced.model,
        base_url=f"https://{announced.hosts[0]}:{announced.port}",
        source="mdns",
        reachable=None,
        last_seen=announced.seen_at,
        transaction=None,
        reason=None,
        checked_at=None,
        claims=[],
        identity=Identity(proof=Proof.NONE, conflict=False, claims=[]),
        in_fleet=False,
    )
