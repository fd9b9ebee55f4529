"""Proofs about a terminal for its commissioning: pure rules. [says.lacks] of the catalogue has the texts.

The rules are at least as strict as `confirmed = true`, which has the same effect: with search and abort posd may
conclude that a payment never started.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

Document = Mapping[str, Any]

CANCELED = "TERMINAL_CANCELED"
#: Final states from the acquirer. A search has to find such a payment.
OF_ACQUIRER = frozenset({"APPROVAL", "DECLINED"})
#: Attentions of an approval that contradicts the request.
OTHER_SUM = frozenset({"amount_differs", "approval_unlikely"})


class ProvedPayment(NamedTuple):
    """One payment of the check, after its end."""

    identity: str
    acknowledged: bool
    #: Final state that the terminal reported by an event or a search; None without one.
    status: str | None
    #: Whether the final state arrived by callback.
    called_back: bool
    #: Reply to the abort that was sent while the payment ran; None without an abort.
    abort: str | None
    #: Results of searches after its end.
    searches: tuple[str, ...]
    #: Whether the requested sum was approved; None if nothing was approved.
    exact: bool | None


class ProvedPrintJob(NamedTuple):
    """Print job of the check, after its end."""

    identity: str
    accepted: bool
    #: Last state that the terminal reported; None without one.
    status: str | None
    #: Whether the terminal reported a state when posd asked for the job.
    asked: bool


class WalkProofs(NamedTuple):
    """Observations of one check; None for steps that were not run."""

    payments: Sequence[ProvedPayment]
    #: Response of `POST /terminals/{serial}/probe`.
    unknown: Document | None = None
    #: Whether a person confirmed that the terminal shows the requested sum.
    shown: bool | None = None
    print_job: ProvedPrintJob | None = None


def payment(document: Document, history: Iterable[Document], searches: Iterable[str], total: Decimal) -> ProvedPayment:
    """Evaluate an ended payment: its document, its history, and the searches after its end."""
    lines, outcome = list(history), document["outcome"]
    stated = any(item["kind"] in ("event", "search") for item in outcome["evidence"])
    status = outcome["status"] if stated else None
    answers = [line["answer"] for line in lines if line["kind"] == "abort_answered"]
    exact = outcome["authorized_amount"] == total and not OTHER_SUM & {item["code"] for item in document["attention"]}
    return ProvedPayment(
        identity=document["client_transaction_id"],
        acknowledged=any(line["kind"] == "attempt" and line["judgement"] == "acknowledged" for line in lines),
        status=status,
        called_back=status is not None and any(line["kind"] == "event" and line["status"] == status for line in lines),
        abort=answers[-1] if answers else None,
        searches=tuple(searches),
        exact=exact if outcome["result"] == "approved" else None,
    )


def print_job(asked: Document, history: Iterable[Document]) -> ProvedPrintJob:
    """Evaluate a print job: the terminal's reply to a poll, and its history."""
    document = asked["print_job"]
    return ProvedPrintJob(
        identity=document["print_job_id"],
        accepted=any(line["kind"] == "attempt" and line["judgement"] == "accepted" for line in history),
        status=document["status"] if document["decided_by"] in ("webhook", "poll") else None,
        asked=asked["status"] is not None,
    )


def _start(seen: WalkProofs) -> str:
    if any(not item.acknowledged for item in seen.payments):
        return "not_acknowledged"
    return ""


def _callback(seen: WalkProofs) -> str:
    return "no_callback" if any(not item.called_back for item in seen.payments) else ""


def _signature(seen: WalkProofs) -> str:
    if seen.unknown is None or not seen.unknown["webhook_signature"]:
        return "unsigned"
    return "not_signed" if _callback(seen) else ""  # an event without a valid signature does not count


def _abort(seen: WalkProofs) -> str:
    aborted = [item for item in seen.payments if item.abort is not None]
    if not aborted:
        return "not_aborted"
    for item in aborted:
        if item.abort == "nothing_running":
            return "nothing_ran"
        if item.abort != "taken":
            return "abort_refused"
        if item.status != CANCELED:
            return "not_canceled"
    return ""


def _search(seen: WalkProofs) -> str:
    if any("none" in item.searches for item in seen.payments if item.status in OF_ACQUIRER):
        return "denied"
    if not any("found" in item.searches for item in seen.payments):
        if any("none" in item.searches for item in seen.payments):
            return "canceled_unknown"
        return "no_search_answer"
    if seen.unknown is None:
        return "not_searched"
    if seen.unknown["result"] == "found":
        return "invented"
    if seen.unknown["result"] != "none":
        return "no_explicit_none"
    if not seen.unknown["found_before"]:
        return "without_serial"
    return ""


def _amount_unit(seen: WalkProofs) -> str:
    approved = [item.exact for item in seen.payments if item.exact is not None]
    if seen.shown is False or False in approved:
        return "another_sum"
    if seen.shown is None and not approved:
        return "sum_not_compared"
    return ""


def _print(seen: WalkProofs) -> str:
    job = seen.print_job
    if job is None:
        return "no_page"
    if not job.accepted or job.status != "COMPLETED":
        return "page_failed"
    return ""


def _print_job(seen: WalkProofs) -> str:
    if seen.print_job is None or not seen.print_job.asked:
        return "job_unknown"
    return ""


#: Part -> the code of what its proof lacks, empty if it is proven. In the order of the check.
LACKS: Mapping[str, Callable[[WalkProofs], str]] = {
    "start": _start,
    "callback": _callback,
    "signature": _signature,
    "abort": _abort,
    "search": _search,
    "amount_unit": _amount_unit,
    "print": _print,
    "print_job": _print_job,
}


def lacking(seen: WalkProofs) -> dict[str, str]:
    """Return for each part the code of what its proof lacks; empty if it is proven.

    Without an ended payment nothing about payments is proven.
    """
    if not seen.payments:
        nothing = "no_payment"
        return {part: lacks(seen) if part.startswith("print") else nothing for part, lacks in LACKS.items()}
    return {part: lacks(seen) for part, lacks in LACKS.items()}
