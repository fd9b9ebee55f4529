"""Documents of the local API in the form of the contract, for replies of a stub."""

import json
from typing import Any

from tests.cli.stub import Answer

ID = "7f3c0000-0000-4000-8000-000000000001"
OTHER_ID = "7f3c0000-0000-4000-8000-000000000002"
AT = "2026-11-20T14:02:11.123Z"
#: `next_step` -> possible values of `display`.
DISPLAY = {
    "wait": {"code": "looking", "text": "Checking with the terminal. Do not charge again"},
    "done": {"code": "paid", "text": "PAID 11.20"},
    "new_id_ok": {"code": "not_paid", "text": "NOT PAID"},
    "ask_person": {"code": "call_supervisor", "text": "CALL THE SUPERVISOR. Do not charge again"},
}


def answer(document: object, status: int = 200) -> Answer:
    """Return a response with a JSON document."""
    return Answer(status, json.dumps(document).encode())


def attention(code: str, detail: str = "") -> dict[str, str]:
    """Return an open attention."""
    return {"code": code, "since": AT, "detail": detail}


def outcome(result: str, evidence: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return an outcome with one kind of evidence. `fields` replace other members."""
    document = {
        "result": result,
        "status": None,
        "transaction_reference": None,
        "ticket_number": None,
        "failure_reason": None,
        "reached_acquirer": False,
        "next_step": (step := "done" if result == "approved" else "new_id_ok"),
        "display": DISPLAY[step],
        "reading_type": None,
        "authorized_amount": None,
        "receipt": None,
        "reversal": None,
        "decided_at": AT,
        "evidence": [{"at": AT, **evidence}],
        "supersedes": None,
        "final_event": None,
    }
    return document | fields


#: Members that a transaction and its outcome share.
IDENTITY = ("client_transaction_id", "terminal", "type", "sale", "amount")


def outcome_of(transaction: dict[str, Any]) -> dict[str, Any]:
    """Return the outcome of a final payment, in the form of the call for the outcome."""
    return {name: transaction[name] for name in IDENTITY} | transaction["outcome"]


def transaction(**fields: Any) -> dict[str, Any]:
    """Return an open payment in doubt. `fields` replace members. An outcome makes the payment final."""
    step = fields.get("next_step", "wait" if fields.get("phase") in ("starting", "active") else "ask_person")
    document = {
        "client_transaction_id": ID,
        "terminal": "SN-0001",
        "type": "charge",
        "sale": None,
        "phase": "final" if fields.get("outcome") else "in_doubt",
        "status": None,
        "reading_type": None,
        "next_step": step,
        "display": DISPLAY.get(step),
        "abortable": True,
        "released": False,
        "amount": {"iva": 1.20, "subtotal_iva": 10.00, "subtotal_iva0": 0},
        "metadata": {},
        "options": {},
        "transaction_reference": None,
        "original": None,
        "derived": [],
        "created_at": AT,
        "updated_at": AT,
        "last_search": None,
        "outcome": None,
        "attention": [],
    }
    return document | fields


JOB = "b7a1c0de-0000-4000-8000-000000001042"


def print_job(**fields: Any) -> dict[str, Any]:
    """Return a print job that the terminal has accepted. `fields` replace members. `decided_by` makes the job final."""
    document = {
        "print_job_id": JOB,
        "terminal": "SN-0001",
        "external_reference": "",
        "reprint_of": None,
        "status": "PENDING",
        "phase": "final" if fields.get("decided_by") else "active",
        "error_code": None,
        "error_message": None,
        "created_at": AT,
        "updated_at": AT,
        "decided_by": None,
        "attention": [],
    }
    return document | fields


COMPLETED = print_job(status="COMPLETED", decided_by="webhook")
FAILED = print_job(status="FAILED", decided_by="poll", error_code="E7", error_message="out of paper")
REFUSED = print_job(status=None, decided_by="refusal")
UNSENT = print_job(status=None, decided_by="unsent")
