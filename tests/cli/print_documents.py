"""Print jobs of the local API, as the contract shows them, for a stub to answer with."""

from typing import Any

from tests.cli.documents import AT

JOB = "b7a1c0de-0000-4000-8000-000000001042"


def print_job(**fields: Any) -> dict[str, Any]:
    """A print job that the terminal has accepted. `fields` replace its members, and a `decided_by` makes it final."""
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
