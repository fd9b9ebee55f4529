"""Parts for the tests of printing: print requests by raw HTTP, and a till that prints."""

import json
from typing import Any

import httpx2

from tests.simulator.conftest import Till

PRINT = "/terminal/v1/print"
PRINT_JOB = "/terminal/v1/print_job"
RECEIPT = {"text": "MY SHOP\n\nTotal   11.20\nThank you"}


def creation(print_job_id: str, scenario: str | None = None, **fields: Any) -> dict[str, Any]:
    """Return the body of a print request. The body omits a field that is None."""
    reference = {} if scenario is None else {"externalReference": f"print:{scenario}"}
    body = {"printJobId": print_job_id, "document": RECEIPT} | reference | fields
    return {name: value for name, value in body.items() if value is not None}


class PrintTill(Till):
    """A till that requests prints on one terminal."""

    async def create(self, print_job_id: str, scenario: str | None = None, **fields: Any) -> httpx2.Response:
        return await self.post(json.dumps(creation(print_job_id, scenario, **fields)).encode(), PRINT)

    async def status(self, print_job_id: str) -> httpx2.Response:
        return await self.get(f"{PRINT_JOB}?print_job_id={print_job_id}")

    def prints(self) -> list[str]:
        """Return the ids of the printed jobs."""
        return [item["print_job_id"] for item in self.terminal.printer.prints()]

    async def ended(self, print_job_id: str, status: str = "COMPLETED") -> dict[str, Any]:
        return await self.terminal.ledger.wait_for("printed", print_job_id=print_job_id, status=status)

    async def told(self, print_job_id: str, call: int = 1) -> dict[str, Any]:
        return await self.terminal.ledger.wait_for("print_webhook", print_job_id=print_job_id, call=call)
