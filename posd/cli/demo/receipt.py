"""The receipt of the demo: printed on the terminal that took the payment, as a till does it.

Source: terminal API, Printing.
"""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from posd.cli.app.api import Api
from posd.cli.app.output import money
from posd.cli.app.waiting import Away, follow_print_job, start
from posd.cli.demo.timeline import POSD, TERMINAL, TILL, Charge, Step, Timeline

#: characters of a line on paper.
WIDTH = 32
#: the last line of the timeline where all went well.
PRINTED = "printed"
#: members of an amount -> how a receipt calls them.
LABELS = {"subtotal_iva": "subtotal", "subtotal_iva0": "subtotal", "iva": "IVA"}


@dataclass(slots=True)
class Receipt:
    """A receipt that was sent to the printer: what it says, what became of it, and what came out on paper."""

    text: str
    print_job: Mapping[str, Any]
    steps: list[Step] = field(default_factory=list)
    paper: str | None = None

    def fault(self) -> str | None:
        """Say what is not as planned; None where all is."""
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
    show: Callable[[Step], None],
    check: Callable[[], None],
    paper: Callable[[str], str | None],
) -> Receipt:
    """Print the receipt of an approved charge: PUT it, then wait for its end.

    `deadline` is a time of `time.monotonic()`; `paper` tells what the terminal has printed under an id. For the rest
    see `make_charge`. Raise Problem, Unreachable or TimedOut.
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
    for update in (
        () if job["phase"] == "final" else follow_print_job(api, f"/print-jobs/{identity}", deadline=deadline)
    ):
        check()
        if not isinstance(update, Away):
            job = update.print_job
    ended = datetime.fromisoformat(job["updated_at"])
    match job["decided_by"]:
        case "webhook":
            timeline.note(TERMINAL, POSD, f"{job['status']}, by webhook", at=ended)
        case "poll":
            timeline.note(TERMINAL, POSD, f"{job['status']}, when it was asked", at=ended)
    timeline.note(
        POSD, TILL, PRINTED if job["status"] == "COMPLETED" else f"not printed: {job['status'] or job['phase']}"
    )
    return Receipt(text, job, timeline.steps, paper(identity))


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
