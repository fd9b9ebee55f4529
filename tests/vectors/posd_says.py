"""posd's result for a vector, with the member names of its `expect`. Public functions of posd's pure rules make the
result.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec

from posd.base import ids
from posd.base.ids import Channel
from posd.base.operations import OperationType
from posd.base.problems import Problem
from posd.payments import request as requests
from posd.payments.answers import RESULTS, SearchHit, judge_abort, read_reply, request_body
from posd.payments.entries import Attempted, Searched, apply
from posd.payments.model import Transaction, next_step
from posd.payments.transitions import RepeatedEvent, advance, recognise
from posd.payments.wire import NotAnEvent, TransactionEvent, read_event
from posd.printing import entries
from posd.printing import request as print_requests
from posd.printing.model import PrintJob, belongs
from posd.printing.wire import NotAPrintEvent, PollAnswered, read_poll, read_webhook
from posd.records.model import Phase
from posd.records.request import meaning
from posd.terminals.attempt import Attempt, NotSent, Replied, ReplyLost
from tests.vectors.case import AMOUNT, HERE, IDENTITY, TERMINAL, Case, content, load

NOW = datetime(2026, 11, 20, 10, 42, 3, tzinfo=UTC)
CREATED = "2026-11-20T10:42:00.000Z"
#: Members of each payment and print job.
COMMON: dict[str, Any] = {
    "terminal": TERMINAL,
    "created_at": CREATED,
    "updated_at": CREATED,
    "phase": Phase.STARTING,
    "sent_to": "https://terminal",
}
#: Time that posd waits for an event after an unclear start before it asks a person (configuration:
#: first_event_grace_seconds).
GRACE = timedelta(seconds=10)


def says(case: Case) -> dict[str, Any]:
    """Return posd's result, in the form of `case.expect`."""
    return KINDS[case.kind](case.given)


def _transaction_event(given: Mapping[str, Any]) -> dict[str, Any]:
    try:
        event = read_event(content(given["body"]))
    except NotAnEvent as error:
        return {"reply": 400, "why": str(error)}
    if event.client_transaction_id not in (given["client_transaction_id"], ""):
        return {"reply": 400, "why": "client_transaction_id"}
    return {"reply": 200, "reads": _reads(event)}


def _reads(event: TransactionEvent) -> dict[str, Any]:
    """Return the values that were read, by their place in the message."""
    taken: dict[str, Any] = {
        name: getattr(event, name) or None
        for name in ("event_id", "occurred_at", "status", "merchant_id", "client_transaction_id")
    }
    if event.event_id.startswith("sha256:"):  # posd makes the id, because the event's own id cannot be read
        del taken["event_id"]
    reason, response = event.failure_reason, event.raw_response
    taken["terminal"] = {name: getattr(event, name) or None for name in ("serial_number", "brand", "model")}
    taken["previous_status"], taken["reading_type"] = event.previous_status, event.reading_type
    taken["operation"] = _there({"type": event.operation_type, "amount": _there({"tip": event.tip})})
    if reason is not None:
        taken["failure_reason"] = {"type": reason.type, "code": reason.code, "message": reason.message}
    if response is not None:
        names = ("transaction_reference", "ticket_number", "authorized_amount")
        of_receipt = {name: getattr(response.receipt, name) for name in ("card_type", "cvm_type", "franchise")}
        taken["raw_response"] = {name: getattr(response, name) for name in names} | of_receipt
        taken["raw_response"]["message_fields"] = _there({"F38": response.receipt.authorization_code})
    return _there(taken, keep=("failure_reason", "raw_response"))


def _there(members: dict[str, Any], keep: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the members with a value. An amount becomes a text of its digits."""
    found = {}
    for name, value in members.items():
        inner = _there(value) if isinstance(value, dict) else str(value) if isinstance(value, Decimal) else value
        if inner is not None and (inner != {} or name in keep):
            found[name] = inner
    return found


def _attempt(given: Mapping[str, Any]) -> Attempt:
    if "transport" in given:
        return {"not_sent": NotSent("refused"), "lost": ReplyLost("reset")}[given["transport"]]
    return Replied(given["reply"]["http_status"], content(given["reply"]["body"]))


def _starting() -> Transaction:
    own = {"client_transaction_id": IDENTITY, "type": OperationType.CHARGE, "amount": AMOUNT.encode()}
    return Transaction(**COMMON | own)


def _shown(after: Transaction) -> dict[str, Any]:
    attention = sorted(item.code for item in after.attention)
    return {"phase": after.phase, "status": after.status, "attention": attention}


def _start_reply(given: Mapping[str, Any]) -> dict[str, Any]:
    after = apply(_starting(), Attempted(_attempt(given), given.get("errors_in_2xx", False)), NOW)
    found = _shown(after) | {"outcome": after.outcome.result if after.outcome else None}
    if after.outcome is not None:
        (evidence,) = after.outcome.evidence
        found["evidence"] = evidence.kind
        reason = after.outcome.failure_reason
        found["terminal"] = msgspec.to_builtins(reason.terminal if reason else None)
    return found


def _search_reply(given: Mapping[str, Any]) -> dict[str, Any]:
    paged = given.get("paged", False)
    answer = read_reply(_attempt(given), given["pointer"], given["client_transaction_id"], paged=paged)
    doubtful = apply(_starting(), Attempted(ReplyLost("reset")), NOW)
    after = apply(doubtful, Searched(answer), NOW)
    return {
        "answer": RESULTS[type(answer)],
        "elements": len(answer.elements) if isinstance(answer, SearchHit) else 0,
        "after": _shown(after)
        | {
            "outcome": after.outcome.result if after.outcome else None,
            "reference": after.outcome.transaction_reference if after.outcome else None,
        },
    }


def _job() -> PrintJob:
    return PrintJob(print_job_id="job-1042", **COMMON)


def _taken(own: str | None) -> PrintJob:
    """Return a job that the terminal has accepted, with the terminal's own id if any."""
    named = f'{{"printJobId": "{own or "job-1042"}"}}'.encode()
    return entries.apply(_job(), entries.Created(Replied(202, named)), NOW)


def _stands(job: PrintJob) -> dict[str, Any]:
    names = ("phase", "status", "decided_by", "error_code", "error_message")
    return {name: getattr(job, name) for name in names} | {"attention": sorted(item.code for item in job.attention)}


def _print_webhook(given: Mapping[str, Any]) -> dict[str, Any]:
    job, body = _taken(given["terminal_job_id"]), content(given["body"])
    try:
        report = read_webhook(body)
    except NotAPrintEvent as error:
        refused = entries.apply(job, entries.Quarantined(str(error)), NOW)
        return {"reply": 400, "after": _stands(refused)}
    if report.job_id is not None and not belongs(job, report.job_id):
        refused = entries.apply(job, entries.Quarantined("another job"), NOW)
        return {"reply": 400, "after": _stands(refused)}
    read = {
        "printJobId": report.job_id,
        "status": report.status,
        "externalReference": report.external_reference,
        "errorCode": report.error_code,
        "errorMessage": report.error_message,
    }
    after = entries.apply(job, entries.Called(body), NOW)
    return {"reply": 200, "reads": _there(read), "after": _stands(after)}


def _print_start_reply(given: Mapping[str, Any]) -> dict[str, Any]:
    after = entries.apply(_job(), entries.Created(_attempt(given), reads_errors=True), NOW)
    return {"after": _stands(after), "terminal_job_id": after.terminal_job_id}


def _print_poll_reply(given: Mapping[str, Any]) -> dict[str, Any]:
    job = _taken(given["terminal_job_id"])
    answer = read_poll(_attempt(given), job)
    after = entries.apply(job, entries.Polled(answer), NOW)
    return {"status": answer.report.status if isinstance(answer, PollAnswered) else None, "after": _stands(after)}


def _sequence(given: Mapping[str, Any]) -> dict[str, Any]:
    after, verdicts = _starting(), []
    bodies: dict[str, list[bytes]] = {}
    for step in given["steps"]:
        ((kind, file),) = step.items()
        inner = load(HERE / file).given
        if kind == "start":
            after = apply(after, Attempted(_attempt(inner), errors_in_2xx=False), NOW)
        elif kind == "search":
            answer = read_reply(_attempt(inner), inner["pointer"], inner["client_transaction_id"])
            after = apply(after, Searched(answer), NOW)
        else:
            body = content(inner["body"])
            event = read_event(body)
            recorded = bodies.setdefault(event.event_id, [])
            seen = recognise(body, recorded)
            recorded.append(body)
            if seen is RepeatedEvent.REPEATED:
                verdicts.append("repeat")
                continue
            after, verdict = advance(after, event, seen=seen, now=NOW)
            verdicts.append(verdict)
    outcome = after.outcome
    return _shown(after) | {
        "next_step": next_step(after, NOW, GRACE),
        "outcome": outcome
        and {
            "result": outcome.result,
            "status": outcome.status,
            "transaction_reference": outcome.transaction_reference,
            "reached_acquirer": outcome.reached_acquirer,
            "evidence": [item.kind for item in outcome.evidence],
            "supersedes": outcome.supersedes.result if outcome.supersedes else None,
        },
        "verdicts": verdicts,
    }


def _callback_token(given: Mapping[str, Any]) -> dict[str, Any]:
    channel = Channel(given["channel"])
    token = ids.token(bytes.fromhex(given["key"]), channel, given["id"])
    assert ids.verify([b"another", bytes.fromhex(given["key"])], channel, given["id"], token)
    return {"token": token, "path": ids.path(channel, given["id"], token)}


def _request(
    given: Mapping[str, Any], read: Callable[[bytes], Any], body: Callable[[Any], bytes], repeated: str
) -> dict[str, Any]:
    """Return the request to the terminal, or the problem. `repeated`: member that a repeated call compares."""
    try:
        request, faults = read(content(given["body"]))
    except Problem as problem:
        return {"problem": problem.code}
    if faults:
        return {"problem": "invalid_request", "paths": sorted(fault.path for fault in faults)}
    meaning(getattr(request, repeated))  # a repeated call reads the member in the same way
    return {"request": {"text": body(request).decode()}}


def _start_request(given: Mapping[str, Any]) -> dict[str, Any]:
    def body(request: Any) -> bytes:
        names = ("type", "amount", "metadata", "options", "transaction_reference")
        own = {"client_transaction_id": given["client_transaction_id"]}
        transaction = Transaction(**COMMON | own | {name: getattr(request, name) for name in names})
        return requests.start_body(transaction, given["callback_url"])

    return _request(given, requests.read_start, body, "metadata")


def _print_request(given: Mapping[str, Any]) -> dict[str, Any]:
    def body(request: Any) -> bytes:
        own = {"print_job_id": given["print_job_id"], "document": request.document}
        job = PrintJob(**COMMON | own | {"external_reference": request.external_reference})
        return print_requests.print_body(job, given["callback_url"], given["document_member"])

    return _request(given, print_requests.read_print, body, "document")


#: kind of vector -> posd's result. Addresses, and refusals because of a fleet, a merchant or a size, are tested with
#: the listener itself: see test_listener.py.
KINDS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "transaction-event": _transaction_event,
    "start-reply": _start_reply,
    "search-reply": _search_reply,
    "abort-reply": lambda given: {"answer": judge_abort(_attempt(given))},
    "print-webhook": _print_webhook,
    "print-start-reply": _print_start_reply,
    "print-poll-reply": _print_poll_reply,
    "sequence": _sequence,
    "callback-token": _callback_token,
    "start-request": _start_request,
    "print-request": _print_request,
    "search-request": lambda given: {"request": {"text": request_body(given["client_transaction_id"]).decode()}},
}
