"""Documents of `GET /status`: the condition of posd, its machine and its terminals, for an operator."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from posd.api.documents import CertificateCheck, Check, ConfigurationState, Health, Version
from posd.base.json_types import Moment, Uuid
from posd.records.model import Phase
from posd.terminals.documents import Terminal


class LastPayment(msgspec.Struct, frozen=True):
    """The payment that a terminal was asked for last."""

    client_transaction_id: Annotated[Uuid, Meta(description="its id")]
    at: Annotated[Moment, Meta(description="when it was started")]
    phase: Annotated[Phase, Meta(description="its phase")]
    result: Annotated[str | None, Meta(description="of its outcome, null until there is one")]


class TerminalStatus(Terminal, frozen=True, kw_only=True):
    """A terminal of the fleet, and what it did last."""

    last_payment: Annotated[LastPayment | None, Meta(description="null where there was none, or it cannot be read")]


class Counters(msgspec.Struct, frozen=True):
    """How many there are of what may need a person."""

    open_payments: Annotated[int, Meta(description="payments without an outcome")]
    in_doubt: Annotated[int, Meta(description="those of them of which it is not known whether the terminal has them")]
    attention: Annotated[int, Meta(description="attentions of payments that no person has acknowledged")]
    open_print_jobs: Annotated[int, Meta(description="print jobs that have not ended")]
    print_attention: Annotated[int, Meta(description="attentions of print jobs that no person has acknowledged")]
    quarantine: Annotated[int, Meta(description="callbacks that were refused though authentic")]


class Disk(msgspec.Struct, frozen=True):
    """The file system on which the database lies; null where the system does not say."""

    free_bytes: Annotated[int | None, Meta(description="what is free for posd")]
    size_bytes: Annotated[int | None, Meta(description="its size")]
    database_bytes: Annotated[int | None, Meta(description="the size of the database file")]


class DaemonStatus(msgspec.Struct, frozen=True):
    """How posd is."""

    at: Annotated[Moment, Meta(description="what the clock of this machine says")]
    started_at: Annotated[Moment, Meta(description="since when this process runs, by that clock as it is now")]
    uptime_seconds: Annotated[float, Meta(description="for how long it runs, whatever the clock did meanwhile")]
    version: Annotated[Version, Meta(description="what runs")]
    health: Annotated[Health, Meta(description="every check, as in GET /v1/health")]
    configuration: Annotated[ConfigurationState, Meta(description="which configuration is in force")]
    clock: Annotated[Check, Meta(description="the check of the clock")]
    certificate: Annotated[CertificateCheck, Meta(description="the check of the certificate")]
    restore: Annotated[Check, Meta(description="the check of what the database can have forgotten")]
    relay: Annotated[None, Meta(description="how the relay is; always null: there is none yet")]
    disk: Annotated[Disk, Meta(description="where the database lies")]
    backup_at: Annotated[Moment | None, Meta(description="when the newest backup was made, null where there is none")]
    counters: Annotated[Counters | None, Meta(description="null where the database cannot be read")]
    terminals: Annotated[list[TerminalStatus], Meta(description="the fleet, as configured")]
