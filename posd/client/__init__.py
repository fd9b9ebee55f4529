"""The till's client of posd: charge a card, wait for the outcome over any restart, and never start twice.

    from posd.client import Approved, Posd

    with Posd() as posd:
        payment = posd.charge(id, Decimal("11.20"))  # `id`: a UUID that the till has stored before
        outcome = payment.outcome()

`AsyncPosd` is the same for asyncio. A `Problem` of a call that starts something means that this call sent nothing
(after `IdReused` and `Pruned` a person looks: the id was used before); `Unreachable` means that nothing is known:
repeat the same call with the same id. It imports nothing else of posd, and httpx2 once a client is made.
"""

from typing import TYPE_CHECKING, Any

from posd.client.calls import Amount
from posd.client.connection import DEFAULT_SOCKET
from posd.client.errors import (
    AlreadyDerived,
    AlreadyFinal,
    CallOutstanding,
    Draining,
    Forbidden,
    ForeignAnswer,
    IdReused,
    InternalError,
    InvalidRequest,
    MalformedJson,
    MethodNotAllowed,
    NotAbortable,
    NotConfigured,
    NotFound,
    NothingRunning,
    OutcomeUnknown,
    PastPointOfNoReturn,
    PayloadTooLarge,
    Problem,
    Pruned,
    QueueFull,
    RequestTimeout,
    SaleConflict,
    StillOpen,
    StillPrinting,
    StorageUnavailable,
    TerminalBusy,
    TerminalOffline,
    UnknownOriginal,
    UnknownTerminal,
    Unreachable,
    UnsupportedMediaType,
)
from posd.client.states import (
    Approved,
    Attention,
    Canceled,
    Change,
    Check,
    Declined,
    Evidence,
    Failure,
    FeedChange,
    Health,
    Notice,
    NotStarted,
    Outcome,
    PrintJob,
    Receipt,
    Rejected,
    Terminal,
    Transaction,
    UnknownResult,
    Version,
)
from posd.client.sync import Payment, Posd, Print

if TYPE_CHECKING:
    from posd.client.async_ import AsyncPayment, AsyncPosd, AsyncPrint

__all__ = [
    "DEFAULT_SOCKET",
    "AlreadyDerived",
    "AlreadyFinal",
    "Amount",
    "Approved",
    "AsyncPayment",
    "AsyncPosd",
    "AsyncPrint",
    "Attention",
    "CallOutstanding",
    "Canceled",
    "Change",
    "Check",
    "Declined",
    "Draining",
    "Evidence",
    "Failure",
    "FeedChange",
    "Forbidden",
    "ForeignAnswer",
    "Health",
    "IdReused",
    "InternalError",
    "InvalidRequest",
    "MalformedJson",
    "MethodNotAllowed",
    "NotAbortable",
    "NotConfigured",
    "NotFound",
    "NotStarted",
    "NothingRunning",
    "Notice",
    "Outcome",
    "OutcomeUnknown",
    "PastPointOfNoReturn",
    "PayloadTooLarge",
    "Payment",
    "Posd",
    "Print",
    "PrintJob",
    "Problem",
    "Pruned",
    "QueueFull",
    "Receipt",
    "Rejected",
    "RequestTimeout",
    "SaleConflict",
    "StillOpen",
    "StillPrinting",
    "StorageUnavailable",
    "Terminal",
    "TerminalBusy",
    "TerminalOffline",
    "Transaction",
    "UnknownOriginal",
    "UnknownResult",
    "UnknownTerminal",
    "Unreachable",
    "UnsupportedMediaType",
    "Version",
]


def __getattr__(name: str) -> Any:
    """Return a name of the async client. It is loaded at its first use, since asyncio takes long to import."""
    if name in {"AsyncPayment", "AsyncPosd", "AsyncPrint"}:
        from posd.client import async_

        return getattr(async_, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
