"""What an operator saw working with a terminal, and the profile for which that counts: pure.

An operator vouches for a row of the profile in one of two ways. One is `confirmed = true` in the configuration. The
other is to have seen it working with this terminal (`Commission.proven`), with its present profile. After a change of
the profile nothing of that counts until the operator checks again.
"""

import hashlib
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from posd.config.profile import OperationRow, Table

if TYPE_CHECKING:
    from posd.config import TerminalConfig


class Part(StrEnum):
    """Functions that an operator can see working with a terminal (local API, `commission`)."""

    START = "start"
    ABORT = "abort"
    SEARCH = "search"
    PRINT = "print"
    PRINT_JOB = "print_job"
    CALLBACK = "callback"
    SIGNATURE = "signature"
    AMOUNT_UNIT = "amount_unit"


class Commission(msgspec.Struct, frozen=True):
    """Functions seen working with a terminal: time, operator, reason, and version of its profile."""

    terminal: str
    at: str
    operator: str
    note: str
    uid: int | None
    proven: tuple[Part, ...]
    profile: str


def version(terminal: "TerminalConfig", table: Table) -> str:
    """Return the version of a terminal's profile: a digest of all inputs of a proof, without secrets.

    It covers each row (without `confirmed`, which is the operator's word too) and how the terminal is called. It also
    covers the names of the headers, the authentication of calls and webhooks, and the units of amounts. On this network
    it excludes the address, because a terminal moves. In the cloud it includes the address of the service.
    """
    cloud = terminal.access_mode == "cloud"
    rows = {name: msgspec.structs.asdict(row) | {"confirmed": None} for name, row in table.items()}
    parts = (
        sorted(rows.items()),
        terminal.access_mode,
        terminal.base_url if cloud else terminal.scheme,
        sorted(name.lower() for name in terminal.headers),
        terminal.auth,
        msgspec.structs.asdict(terminal.hash_encrypt) if terminal.auth == "hash-encrypt" else None,
        terminal.amount_unit,
        terminal.unit_of_answers,
        terminal.webhook_signature,
    )
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


def vouched(operation: str, row: OperationRow, profile: str, seen: Commission | None) -> bool:
    """Return whether an operator vouches for a row of the profile (`operation`), so that its replies are proof.

    `profile`: the version in force. `seen`: what was seen working with the terminal, or None.
    """
    return row.confirmed or (seen is not None and seen.profile == profile and operation in seen.proven)
