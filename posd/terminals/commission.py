"""What a person has seen working with a terminal, and for which profile that counts: pure.

A person vouches for a row of the profile by `confirmed = true` in the configuration, or by having seen it working with
this terminal (`Commission.proven`) by the profile that it has now. Where the profile has changed since, nothing of that
counts until a person looks again.
"""

import hashlib
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from posd.config.profile import Row, Table

if TYPE_CHECKING:
    from posd.config import TerminalConfig


class Part(StrEnum):
    """What can be seen working with a terminal (local API, `commission`)."""

    START = "start"
    ABORT = "abort"
    SEARCH = "search"
    PRINT = "print"
    PRINT_JOB = "print_job"
    CALLBACK = "callback"
    SIGNATURE = "signature"
    AMOUNT_UNIT = "amount_unit"


class Commission(msgspec.Struct, frozen=True):
    """What was seen working with a terminal: when, by whom, why, and by which version of its profile."""

    terminal: str
    at: str
    operator: str
    note: str
    uid: int | None
    proven: tuple[Part, ...]
    profile: str


def version(terminal: "TerminalConfig", table: Table) -> str:
    """Return the version of a terminal's profile: a digest of all that a proof depends on, and of nothing secret.

    That is each row (without `confirmed`, which is a person's word too), how the terminal is called, the names of the
    headers, how calls are authenticated and webhooks signed, and the units of amounts. On this network an address is
    none of it: a terminal moves. In the cloud the address is the service that answers.
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


def vouched(operation: str, row: Row, profile: str, seen: Commission | None) -> bool:
    """Whether a person vouches for a row of the profile (`operation`), so that its answers are proof.

    `profile` is the version that is in force, `seen` what was seen working with the terminal, if anything.
    """
    return row.confirmed or (seen is not None and seen.profile == profile and operation in seen.proven)
