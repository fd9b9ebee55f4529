"""Client library of posd for tills. It never starts a payment twice, and waits for outcomes across restarts.

    from posd.client import Paid, PaymentStore, Posd

    store = PaymentStore("open-payments")  # each payment is on disk before the call
    with Posd(store=store.save) as posd:
        payment = posd.charge(uuid.uuid4(), Decimal("11.20"))
        match payment.outcome().paid:
            case Paid.PAID: ...

`AsyncPosd` is the same for asyncio. Every call can raise `PosdError`. If the error's `never_started` is True, the
payment is not paid, and the till can forget the id. Otherwise the till keeps the id and follows the error's
`next_step`. The package imports no other part of posd. It loads httpx2 only when a client is created.
"""

from typing import TYPE_CHECKING, Any

from posd.client.calls import Payment, Posd, Print
from posd.client.connection import DEFAULT_SOCKET
from posd.client.documents import ForeignAnswer, OutcomeUnknown, PosdError, Problem, Unreachable
from posd.client.operations import Amount, Effect, Paid, Reserved, Reversed
from posd.client.states import (
    Approved,
    Attention,
    Canceled,
    Change,
    Check,
    Declined,
    Display,
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
    State,
    StillOpen,
    StillPrinting,
    Terminal,
    TerminalFailure,
    Transaction,
    UnknownResult,
    Version,
)
from posd.client.store import PaymentStore, StoredPayment

if TYPE_CHECKING:
    from posd.client.async_ import AsyncPayment, AsyncPosd, AsyncPrint

__all__ = [
    "DEFAULT_SOCKET",
    "Amount",
    "Approved",
    "AsyncPayment",
    "AsyncPosd",
    "AsyncPrint",
    "Attention",
    "Canceled",
    "Change",
    "Check",
    "Declined",
    "Display",
    "Effect",
    "Evidence",
    "Failure",
    "FeedChange",
    "ForeignAnswer",
    "Health",
    "NotStarted",
    "Notice",
    "Outcome",
    "OutcomeUnknown",
    "Paid",
    "Payment",
    "PaymentStore",
    "Posd",
    "PosdError",
    "Print",
    "PrintJob",
    "Problem",
    "Receipt",
    "Rejected",
    "Reserved",
    "Reversed",
    "State",
    "StillOpen",
    "StillPrinting",
    "StoredPayment",
    "Terminal",
    "TerminalFailure",
    "Transaction",
    "UnknownResult",
    "Unreachable",
    "Version",
]

if not TYPE_CHECKING:  # hidden from type checkers, which would accept every missing name

    def __getattr__(name: str) -> Any:
        """Return a name of the async client.

        The async client is loaded at first use, because asyncio takes long to import.
        """
        if name in {"AsyncPayment", "AsyncPosd", "AsyncPrint"}:
            from posd.client import async_

            return getattr(async_, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
