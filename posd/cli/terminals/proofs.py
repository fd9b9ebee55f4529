"""Rules for what the test of a new terminal proves. [says.lacks] of the catalogue has the texts about missing proof.

A proof has the same effect as `confirmed = true`: with proven search and abort, posd may conclude that a payment never
started. So the rules are at least as strict.
"""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

Document = Mapping[str, Any]

CANCELED = "TERMINAL_CANCELED"
#: Final states that come from the acquirer. A search must find such a payment.
OF_ACQUIRER = frozenset({"APPROVAL", "DECLINED"})
#: Attentions about an approval that differs from the request.
OTHER_SUM = frozenset({"amount_differs", "approval_unlikely"})


class ProvedPayment(NamedTuple):
    """An ended payment of the test, and what it shows."""

    identity: str
    acknowledged: bool
    #: Final state that the terminal reported by an event or a search, or None.
    status: str | None
    #: Whether the final state arrived by callback.
    called_back: bool
    #: Reply to the abort that was sent while the payment ran, or None without an abort.
    abort: str | None
    #: Results of the searches after the end.
    searches: tuple[str, ...]
    #: Whether the requested amount was approved. None: nothing was approved.
    exact: bool | None


class ProvedPrintJob(NamedTuple):
    """Print job of the test, and what it shows."""

    identity: str
    accepted: bool
    #: Last state that the terminal reported, or None.
    status: str | None
    #: Whether the terminal replied with a state when posd queried the job.
    asked: bool


class WalkProofs(NamedTuple):
    """Results of all steps of one test. None: the step was not run."""

    payments: Sequence[ProvedPayment]
    #: posd's response to `POST /terminals/{serial}/probe`, a search for a payment that never existed.
    unknown: Document | None = None
    #: Whether the operator saw the requested amount on the terminal.
    shown: bool | None = None
    print_job: ProvedPrintJob | None = None


def payment(document: Document, history: Iterable[Document], searches: Iterable[str], total: Decimal) -> ProvedPayment:
    """Return what an ended payment shows. `searches`: results of searches after the end. `total`: requested amount."""
    lines, outcome = list(history), document["outcome"]
    stated = any(item["kind"] in ("event", "search") for item in outcome["evidence"])
    status = outcome["status"] if stated else None
    answers = [line["answer"] for line in lines if line["kind"] == "abort_answered"]
    exact = outcome["authorized_amount"] == total and not OTHER_SUM & {item["code"] for item in document["attention"]}
    return ProvedPayment(
        identity=document["client_transaction_id"],
        acknowledged=any(line["kind"] == "attempt" and line["judgement"] == "acknowledged" for line in lines),
        status=status,
        called_back=any(line["kind"] == "event" and line["status"] == status for line in lines),
        abort=answers[-1] if answers else None,
        searches=tuple(searches),
        exact=exact if outcome["result"] == "approved" else None,
    )


def print_job(asked: Document, history: Iterable[Document]) -> ProvedPrintJob:
    """Return what a print job shows. `asked`: response to its `reconcile`."""
    document = asked["print_job"]
    return ProvedPrintJob(
        identity=document["print_job_id"],
        accepted=any(line["kind"] == "attempt" and line["judgement"] == "accepted" for line in history),
        status=document["status"] if document["decided_by"] in ("webhook", "poll") else None,
        asked=asked["status"] is not None,
    )


def lacking(seen: WalkProofs) -> dict[str, str]:
    """Return part -> code of what its proof lacks, or "" if the part is proven. The parts are in the order of the test.

    Without an ended payment no part about payments is proven.
    """
    of_payments = dict.fromkeys(("start", "callback", "signature", "abort", "search", "amount_unit"), "no_payment")
    return (_of_payments(seen) if seen.payments else of_payments) | _of_printing(seen.print_job)


def _of_payments(seen: WalkProofs) -> dict[str, str]:
    payments, unknown, approved = seen.payments, seen.unknown or {}, [item.exact for item in seen.payments]
    no_callback = any(not item.called_back for item in payments)
    return {
        "start": _first(not_acknowledged=any(not item.acknowledged for item in payments)),
        "callback": _first(no_callback=no_callback),
        # If signatures are configured, posd accepts no event without a valid one. So each callback proves the
        # signature.
        "signature": _first(unsigned=not unknown.get("webhook_signature"), not_signed=no_callback),
        "abort": _abort([item for item in payments if item.abort is not None]),
        "search": _search(payments, unknown),
        "amount_unit": _first(
            another_sum=seen.shown is False or False in approved,
            sum_not_compared=seen.shown is None and True not in approved,
        ),
    }


def _first(**faults: bool) -> str:
    """Return the name of the first argument that is true, or ""."""
    return next((fault for fault, holds in faults.items() if holds), "")


def _abort(aborted: Sequence[ProvedPayment]) -> str:
    found = (
        _first(
            nothing_ran=item.abort == "nothing_running",
            abort_refused=item.abort != "taken",
            not_canceled=item.status != CANCELED,
        )
        for item in aborted
    )
    return next(filter(None, found), "") if aborted else "not_aborted"


def _search(payments: Sequence[ProvedPayment], unknown: Document) -> str:
    results = {result for item in payments for result in item.searches}
    of_acquirer = {result for item in payments if item.status in OF_ACQUIRER for result in item.searches}
    return _first(
        denied="none" in of_acquirer,
        canceled_unknown="found" not in results and "none" in results,
        no_search_answer="found" not in results,
        not_searched=not unknown,
        invented=unknown.get("result") == "found",
        no_explicit_none=unknown.get("result") != "none",
        without_serial=not unknown.get("found_before"),
    )


def _of_printing(job: ProvedPrintJob | None) -> dict[str, str]:
    failed = job is not None and (not job.accepted or job.status != "COMPLETED")
    return {
        "print": _first(no_page=job is None, page_failed=failed),
        "print_job": _first(job_unknown=job is None or not job.asked),
    }
