"""A charge of the demo and its receipt: each message, its sender, its receiver and its time."""

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from posd.cli.app.connection import Api
from posd.cli.app.outcome import Arrived, CurrentState, Disconnected, follow, follow_print_job, start
from posd.cli.app.output import money, total
from posd.cli.payments.show import event_extra

#: the actors, as the timeline names them.
TILL, POSD, TERMINAL = "till", "posd", "terminal"


@dataclass(frozen=True, slots=True)
class PlannedCharge:
    """A charge to make: how it should end, how the simulated customer behaves, and the amount."""

    result: str
    scenario: str
    amount: Mapping[str, Decimal]

    @property
    def total(self) -> Decimal:
        return total(self.amount)


@dataclass(frozen=True, slots=True)
class TimelineStep:
    """A line of the timeline; `offset` in seconds since the till's call."""

    offset: float
    sender: str
    receiver: str
    what: str


class Timeline:
    """The lines of one thing that is done, told as they come; it begins when this is made."""

    def __init__(self, show: Callable[[TimelineStep], None]) -> None:
        self.steps: list[TimelineStep] = []
        self._show = show
        self._began, self._began_at = time.monotonic(), datetime.now(UTC)

    def note(self, sender: str, receiver: str, what: str, *, at: datetime | None = None) -> None:
        """Add a line; `at` is when the daemon says that it was, now where left out."""
        offset = time.monotonic() - self._began if at is None else max(0.0, (at - self._began_at).total_seconds())
        self.steps.append(TimelineStep(offset, sender, receiver, what))
        self._show(self.steps[-1])


@dataclass(slots=True)
class Charge:
    """A charge that was made."""

    plan: PlannedCharge
    transaction: Mapping[str, Any]
    steps: list[TimelineStep] = field(default_factory=list)

    @property
    def result(self) -> str:
        return str(self.transaction["outcome"]["result"])

    @property
    def seconds(self) -> float:
        return self.steps[-1].offset

    def fault(self) -> str | None:
        """Return what is not as planned; None if all is."""
        if self.result != self.plan.result:
            return f"the charge of {money(self.plan.total)} should be {self.plan.result}, and is {self.result}"
        authorized = self.transaction["outcome"]["authorized_amount"]
        if self.result == "approved" and authorized != self.plan.total:
            return f"asked for {money(self.plan.total)}, and {authorized} was authorized"
        return None


def make_charge(
    api: Api,
    plan: PlannedCharge,
    serial: str,
    *,
    deadline: float,
    show: Callable[[TimelineStep], None],
    check: Callable[[], None],
) -> Charge:
    """Run one charge as a till would: PUT it, then follow its events until the outcome.

    Each step goes to `show` as it comes. `check` is called again and again meanwhile. `deadline` is a time of
    `time.monotonic()`. Raise Problem, Unreachable or TimedOut.
    """
    timeline = Timeline(show)
    transaction_id = str(uuid.uuid4())
    request = {"terminal": serial, "amount": plan.amount, "metadata": {"scenario": plan.scenario}}
    timeline.note(TILL, POSD, f"PUT /v1/transactions/{transaction_id[:8]}...  {money(plan.total)}")
    reply = start(api, f"/transactions/{transaction_id}", request, deadline=deadline, away=lambda _: check())
    timeline.note(POSD, TERMINAL, f"charge, over TLS; answered: {answered(reply.body)}")
    transaction: Mapping[str, Any] = reply.body
    for update in follow(api, transaction_id, deadline=deadline):
        check()
        match update:
            case Arrived(item):
                at = datetime.fromisoformat(item["received_at"])
                event = item["event"]
                what = f"{event['status']}  {event_extra(event)}".rstrip()
                timeline.note(TERMINAL, POSD, what, at=at)
            case CurrentState():
                transaction = update.transaction
            case Disconnected():
                pass
    outcome = transaction["outcome"]
    ticket = f", ticket {outcome['ticket_number']}" if outcome["ticket_number"] else ""
    timeline.note(POSD, TILL, f"outcome: {outcome['result']}{ticket}")
    return Charge(plan, transaction, timeline.steps)


def answered(transaction: Mapping[str, Any]) -> str:
    """Return the result of the call to the terminal."""
    if transaction["outcome"] is not None:
        return str(transaction["outcome"]["result"])
    return "in doubt" if transaction["phase"] == "in_doubt" else "acknowledged"


#: characters of a line on paper.
WIDTH = 32
#: the last line of the timeline where all went well.
PRINTED = "printed"
#: members of an amount -> how a receipt calls them.
LABELS = {"subtotal_iva": "subtotal", "subtotal_iva0": "subtotal", "iva": "IVA"}


@dataclass(slots=True)
class PrintedReceipt:
    """A receipt that was sent to the printer: its text, how it ended, and what was printed."""

    text: str
    print_job: Mapping[str, Any]
    steps: list[TimelineStep] = field(default_factory=list)
    paper: str | None = None

    def fault(self) -> str | None:
        """Return what is not as planned; None if all is."""
        if self.print_job["status"] != "COMPLETED":
            return f"the receipt should be COMPLETED, and is {self.print_job['status']}"
        if self.paper != self.text:
            return "what the terminal says that it has printed is not the receipt"
        return None


def print_receipt(
    api: Api,
    charge: Charge,
    serial: str,
    *,
    deadline: float,
    show: Callable[[TimelineStep], None],
    check: Callable[[], None],
    paper: Callable[[str], str | None],
) -> PrintedReceipt:
    """Print the receipt of an approved charge on the terminal that took it: PUT it, then wait for its end.

    `paper` tells what the terminal has printed under an id. For the rest see `make_charge`.
    """
    timeline = Timeline(show)
    text = receipt_text(charge)
    identity = str(uuid.uuid4())
    reference = charge.transaction["outcome"]["ticket_number"] or ""
    request = {"terminal": serial, "external_reference": reference, "document": {"text": text}}
    timeline.note(TILL, POSD, f"PUT /v1/print-jobs/{identity[:8]}...  receipt, {len(text.splitlines())} lines")
    reply = start(api, f"/print-jobs/{identity}", request, deadline=deadline, away=lambda _: check())
    job: Mapping[str, Any] = reply.body
    timeline.note(POSD, TERMINAL, f"print job, over TLS; answered: {job['status'] or job['phase']}")
    updates = () if job["phase"] == "final" else follow_print_job(api, f"/print-jobs/{identity}", deadline=deadline)
    for update in updates:
        check()
        if not isinstance(update, Disconnected):
            job = update.transaction
    ended = datetime.fromisoformat(job["updated_at"])
    match job["decided_by"]:
        case "webhook":
            timeline.note(TERMINAL, POSD, f"{job['status']}, by webhook", at=ended)
        case "poll":
            timeline.note(TERMINAL, POSD, f"{job['status']}, when it was asked", at=ended)
    printed = job["status"] == "COMPLETED"
    timeline.note(POSD, TILL, PRINTED if printed else f"not printed: {job['status'] or job['phase']}")
    return PrintedReceipt(text, job, timeline.steps, paper(identity))


def receipt_text(charge: Charge) -> str:
    """Write the receipt of an approved charge."""
    outcome = charge.transaction["outcome"]
    details = outcome["receipt"] or {}
    rows = [
        *((LABELS[name], f"{value:.2f}") for name, value in charge.plan.amount.items()),
        ("TOTAL", money(charge.plan.total)),
        ("card", details.get("franchise")),
        ("authorization", details.get("authorization_code")),
        ("ticket", outcome["ticket_number"]),
    ]
    lines = [f"{name}{value!s:>{WIDTH - len(name)}}" for name, value in rows if value]
    return "\n".join(["POSD DEMO".center(WIDTH).rstrip(), "", *lines, "", "Thank you".center(WIDTH).rstrip()])
