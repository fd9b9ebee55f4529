"""Documents of the local API, for replies of a stub. The documents are the contract's examples with other members."""

import json
from pathlib import Path
from typing import Any

import posd
from tests.rig.stub import Answer

EXAMPLES = json.loads((Path(str(posd.__file__)).parent / "api" / "examples.json").read_text("utf-8"))
#: Examples of the contract, by call and status.
ANSWERS: dict[str, dict[str, Any]] = EXAMPLES["answers"]
#: Examples of the contract, by name.
DOCUMENTS: dict[str, Any] = EXAMPLES["documents"]

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
    step = "done" if result == "approved" else "new_id_ok"
    own = {"result": result, "reached_acquirer": False, "next_step": step, "display": DISPLAY[step]}
    own |= {"decided_at": AT, "evidence": [{"at": AT, **evidence}]}
    return DOCUMENTS["resolved"]["outcome"] | own | fields


#: Members that a transaction and its outcome share.
IDENTITY = ("client_transaction_id", "terminal", "type", "sale", "amount")


def outcome_of(transaction: dict[str, Any]) -> dict[str, Any]:
    """Return the outcome of a final payment, in the form of the call for the outcome."""
    return {name: transaction[name] for name in IDENTITY} | transaction["outcome"]


def transaction(**fields: Any) -> dict[str, Any]:
    """Return an open payment in doubt. `fields` replace members. An outcome makes the payment final."""
    step = fields.get("next_step", "wait" if fields.get("phase") in ("starting", "active") else "ask_person")
    phase = "final" if fields.get("outcome") else "in_doubt"
    own = {"client_transaction_id": ID, "sale": None, "phase": phase, "status": None, "metadata": {}}
    own |= {"next_step": step, "display": DISPLAY.get(step), "created_at": AT, "updated_at": AT}
    return DOCUMENTS["started"] | own | fields


JOB = "b7a1c0de-0000-4000-8000-000000001042"


def print_job(**fields: Any) -> dict[str, Any]:
    """Return a print job that the terminal has accepted. `fields` replace members. `decided_by` makes the job final."""
    own = {"print_job_id": JOB, "external_reference": "", "status": "PENDING", "decided_by": None}
    own |= {"phase": "final" if fields.get("decided_by") else "active", "created_at": AT, "updated_at": AT}
    return DOCUMENTS["printed"] | own | fields


COMPLETED = print_job(status="COMPLETED", decided_by="webhook")
FAILED = print_job(status="FAILED", decided_by="poll", error_code="E7", error_message="out of paper")
REFUSED = print_job(status=None, decided_by="refusal")
UNSENT = print_job(status=None, decided_by="unsent")


def terminal(serial: str = "SN-1", **fields: Any) -> dict[str, Any]:
    """Return a reachable terminal that runs nothing. `fields` replace members."""
    return DOCUMENTS["terminal"] | {"serial": serial, "transaction": None} | fields
