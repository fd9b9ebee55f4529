"""Documents of the calls on the database, terminals, the feed and the daemon itself."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from posd.base.ids import Channel
from posd.base.json_types import OPEN, Moment, Uuid, WireFormat
from posd.base.problems import RemedyStep, remedy
from posd.calls.streams import Notice
from posd.payments import reprocess
from posd.payments.accounting import FeedOutcome
from posd.printing.documents import PrintReport
from posd.records.model import Phase
from posd.storage.changes import FeedDatabase
from posd.storage.marks import GoneBack, Restored
from posd.terminals.documents import Terminal
from posd.upkeep.restore_guard import UnknownPayment

# Documents for operators: quarantine, reprocessing, backup, restore, prune.


class QuarantinedBody(msgspec.Struct, frozen=True):
    """A body that was refused although its callback address was authentic."""

    id: Annotated[int, Meta(description="its number; ascending in the order of arrival")]
    received_at: Annotated[Moment, Meta(description="when it arrived")]
    channel: Annotated[str, WireFormat(Channel), Meta(description="which kind of callback")]
    client_transaction_id: Annotated[Uuid | None, Meta(description="the payment that the callback address names")]
    print_job_id: Annotated[str | None, Meta(description="the print job that the callback address names")]
    reason: Annotated[str, Meta(description="why it was refused")]
    peer: Annotated[str, Meta(description="the address that sent it")]
    body: Annotated[
        str,
        Meta(
            description="its bytes without callback tokens, in base64", extra_json_schema={"contentEncoding": "base64"}
        ),
    ]


class Quarantine(msgspec.Struct, frozen=True):
    """A page of the list of quarantined bodies."""

    quarantine: Annotated[list[QuarantinedBody], Meta(description="ascending by id")]
    next_after: Annotated[int, Meta(description="`after` of the next page")]


class Reprocessed(reprocess.TransactionReport):
    """Bodies applied from the quarantine, and records that differed from their stored messages."""

    printing: Annotated[PrintReport, Meta(description="the report on print jobs")] = msgspec.field(
        default_factory=PrintReport
    )


class RestoresSeen(msgspec.Struct, frozen=True):
    """Restores that an operator has confirmed by this call."""

    restores: Annotated[list[Restored], Meta(description="restores, oldest first")]
    gone_back: Annotated[list[GoneBack], Meta(description="times at which posd found an older database, oldest first")]


class Restores(RestoresSeen, frozen=True):
    """Restores and steps back in time that no operator has confirmed."""

    refusing: Annotated[bool, Meta(description="whether unknown ids are refused until an operator has checked")]
    transactions: Annotated[
        list[UnknownPayment], Meta(description="payments that were taken over by their id alone, oldest first")
    ]


class PruneProgress(msgspec.Struct, frozen=True):
    """Progress of the removal of old records."""

    retention_days: Annotated[int, Meta(description="days for which records are kept, 0: without limit")]
    doing: Annotated[str | None, Meta(description="step of the present removal, null if none runs")]
    removed: Annotated[int, Meta(description="number of records removed so far in this step")]


# Documents of terminals, the feed and the daemon (local API, Terminals, feed, service).

State = Literal["ok", "degraded", "failing"]


class Terminals(msgspec.Struct, frozen=True):
    """The fleet, and other announced terminals if requested."""

    terminals: Annotated[list[Terminal], Meta(description="the configured fleet, then announced terminals outside it")]


class Change(msgspec.Struct, frozen=True):
    """One recorded change of one transaction or print job, with its state after the change."""

    seq: Annotated[int, Meta(description="its number; ascending, without gaps from first_seq on")]
    at: Annotated[Moment, Meta(description="when")]
    kind: Annotated[Literal["transaction", "print_job"], OPEN, Meta(description="record type")]
    id: Annotated[str, Meta(description="client_transaction_id or print_job_id of the record")]
    reason: Annotated[str, Meta(description="cause of the change: a word for people and logs; new words may be added")]
    phase: Annotated[Phase, Meta(description="the phase after the change")]
    status: Annotated[str | None, Meta(description="the status after the change")]
    result: Annotated[str | None, Meta(description="of a transaction: the result of its outcome, null before its end")]
    attention: Annotated[tuple[str, ...], Meta(description="the codes of its attentions")]
    terminal: Annotated[str | None, Meta(description="serial number of its terminal, if known")]
    outcome: Annotated[
        FeedOutcome | UnsetType, Meta(description="if `with` is given: the outcome at this change, of an ended payment")
    ] = UNSET


class FeedPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the feed."""

    database_id: Annotated[str, Meta(description="id of the database; a restore makes a new one")]
    first_seq: Annotated[int, Meta(description="from this number on, the numbers of this database_id have no gap")]
    changes: Annotated[list[Change], Meta(description="ascending by seq")]
    next_after: Annotated[int, Meta(description="`after` of the next page")]
    place: Annotated[str, Meta(description="`next_after` with a check value, to detect an older copy of the database")]
    notices: Annotated[list[Notice], Meta(description="reasons why the reader may have missed changes; usually none")]
    databases: Annotated[
        list[FeedDatabase], Meta(description="each database_id of this database, the present one last")
    ]
    open: Annotated[
        int | UnsetType,
        Meta(description="if `with` is given, on the last page of the feed: number of payments that have not ended"),
    ] = UNSET
    attention: Annotated[
        dict[str, int] | UnsetType,
        Meta(description="given with `open`: open attentions of payments and print jobs, by code"),
    ] = UNSET


class Check(msgspec.Struct, frozen=True):
    """One health check."""

    status: Annotated[State, Meta(description="`failing`: this part does not work. Only `storage` stops all payments")]
    detail: Annotated[str, Meta(description="what was found")]
    todo: Annotated[str, Meta(description="what an operator should do, empty if nothing")]
    commands: Annotated[list[RemedyStep], Meta(description="`todo` in steps, each with its command")]
    reason: Annotated[
        str, Meta(description="what was found, as a word for programs; empty if nothing. New words may be added")
    ] = ""

    @classmethod
    def of(cls, status: State, detail: str, *steps: RemedyStep, reason: str = "") -> Check:
        """Return a check with the advice in these steps."""
        return Check(status, detail, remedy(steps), list(steps), reason)


class Served(msgspec.Struct, frozen=True):
    """The certificate that the webhook listener shows."""

    fingerprint_sha256: Annotated[str, Meta(description="SHA-256 fingerprint, hexadecimal")]
    not_after: Annotated[Moment, Meta(description="when it ends")]
    port: Annotated[int, Meta(description="port of the listener")]


class Refusals(msgspec.Struct, frozen=True):
    """A device that refuses the certificate."""

    address: Annotated[str, Meta(description="address of the device")]
    alert: Annotated[str, Meta(description="the TLS alert of the refusal")]
    count: Annotated[int, Meta(description="number of refusals")]
    first_at: Annotated[Moment, Meta(description="time of the first refusal")]
    last_at: Annotated[Moment, Meta(description="time of the last refusal")]


class CertificateCheck(Check, frozen=True, kw_only=True):
    """The check of the certificate."""

    served: Annotated[Served, Meta(description="the certificate that the listener shows")]
    refused_by: Annotated[list[Refusals], Meta(description="devices that refused it within the last day")]


class ConfigurationError(msgspec.Struct, frozen=True):
    """One fault of a configuration."""

    file: Annotated[str, Meta(description="the file")]
    line: Annotated[int | None, Meta(description="line of the file, null if not known")]
    key: Annotated[str, Meta(description="the key, as in `terminals[1].serial`; empty: the whole file")]
    message: Annotated[str, Meta(description="the mistake, and what to write")]


class RefusedConfiguration(msgspec.Struct, frozen=True):
    """A changed configuration that is not in use."""

    at: Annotated[Moment, Meta(description="when")]
    errors: Annotated[list[ConfigurationError], Meta(description="all mistakes in the refused configuration")]


class ConfigurationState(msgspec.Struct, frozen=True):
    """The configuration in use."""

    loaded_at: Annotated[Moment, Meta(description="when it was read")]
    refused: Annotated[
        RefusedConfiguration | None,
        Meta(description="the newest reload, if it was refused; otherwise null"),
    ]
    needs_restart: Annotated[list[str], Meta(description="changed keys that need a restart")]


class Checks(msgspec.Struct, frozen=True):
    """The checks by name."""

    storage: Annotated[Check, Meta(description="whether the database can be read and written")]
    local_api: Annotated[Check, Meta(description="whether clients find the sockets of the local API")]
    webhook_listener: Annotated[Check, Meta(description="whether terminals can call back")]
    certificate: Annotated[CertificateCheck, Meta(description="whether the certificate is valid")]
    discovery: Annotated[Check, Meta(description="whether posd receives the announcements of terminals")]
    clock: Annotated[Check, Meta(description="whether the clock of this machine can be trusted")]
    configuration: Annotated[Check, Meta(description="whether posd uses the configuration on disk")]
    restore: Annotated[
        Check, Meta(description="whether the database may have lost payments that no operator has checked yet")
    ]
    identity: Annotated[Check, Meta(description="whether posd knows which device is each terminal")]


#: States of a check, the best first.
STATES: tuple[State, ...] = ("ok", "degraded", "failing")


def overall(checks: Checks) -> State:
    """Return the state of the worst check."""
    return max((check.status for check in msgspec.structs.astuple(checks)), key=STATES.index)


class Health(msgspec.Struct, frozen=True):
    """State of posd, and of each of its checks."""

    status: Annotated[State, Meta(description="state of the worst check")]
    checks: Annotated[Checks, Meta(description="the checks by name")]


class Version(msgspec.Struct, frozen=True):
    """Versions and settings of this posd."""

    version: Annotated[str, Meta(description="version of posd")]
    api: Annotated[Literal["v1"], Meta(description="version of this API: the first part of its paths")]
    schema: Annotated[int, Meta(description="schema version of the database")]
    timezone: Annotated[str, Meta(description="time zone of the merchant, for days and hours")]
    currency: Annotated[str, Meta(description="currency of the merchant, empty if the configuration does not give it")]
    language: Annotated[str, Meta(description="language of the texts for cashiers")]


# Documents of `GET /status`: the condition of posd, its machine and its terminals, for an operator.


class LastPayment(msgspec.Struct, frozen=True):
    """The last payment on a terminal."""

    client_transaction_id: Annotated[Uuid, Meta(description="its id")]
    at: Annotated[Moment, Meta(description="when it was started")]
    phase: Annotated[Phase, Meta(description="its phase")]
    result: Annotated[str | None, Meta(description="result of its outcome, null before its end")]


class TerminalStatus(Terminal, frozen=True, kw_only=True):
    """A terminal of the fleet, and its last payment."""

    last_payment: Annotated[LastPayment | None, Meta(description="null if there is none, or it cannot be read")]


class Counters(msgspec.Struct, frozen=True):
    """Numbers of records that an operator may have to check."""

    open_payments: Annotated[int, Meta(description="payments without an outcome")]
    in_doubt: Annotated[int, Meta(description="payments in doubt")]
    attention: Annotated[int, Meta(description="open attentions of payments")]
    open_print_jobs: Annotated[int, Meta(description="print jobs that have not ended")]
    print_attention: Annotated[int, Meta(description="open attentions of print jobs")]
    quarantine: Annotated[int, Meta(description="callbacks with a valid token that were refused")]


class Disk(msgspec.Struct, frozen=True):
    """The file system of the database. A value is null if the system does not report it."""

    free_bytes: Annotated[int | None, Meta(description="bytes free for posd")]
    size_bytes: Annotated[int | None, Meta(description="size of the file system")]
    database_bytes: Annotated[int | None, Meta(description="the size of the database file")]


class DaemonStatus(msgspec.Struct, frozen=True):
    """State of posd, its machine and its terminals."""

    at: Annotated[Moment, Meta(description="time of this machine's clock")]
    started_at: Annotated[Moment, Meta(description="start of this process, by the present clock")]
    uptime_seconds: Annotated[float, Meta(description="run time of this process, independent of the wall clock")]
    version: Annotated[Version, Meta(description="the running version of posd, and its settings")]
    health: Annotated[Health, Meta(description="every check, as in GET /v1/health")]
    configuration: Annotated[ConfigurationState, Meta(description="the configuration in use")]
    clock: Annotated[Check, Meta(description="the check of the clock")]
    certificate: Annotated[CertificateCheck, Meta(description="the check of the certificate")]
    restore: Annotated[Check, Meta(description="the check of restores")]
    relay: Annotated[None, Meta(description="always null: the relay is a process of its own (posd relay)")]
    disk: Annotated[Disk, Meta(description="the file system of the database")]
    backup_at: Annotated[Moment | None, Meta(description="time of the newest backup, null if there is none")]
    counters: Annotated[Counters | None, Meta(description="null if the database cannot be read")]
    terminals: Annotated[list[TerminalStatus], Meta(description="the fleet, as configured")]
