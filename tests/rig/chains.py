"""Chains of operations on scripted terminals. A test chooses and compares each reference, in requests and in the
terminal's replies.
"""

import asyncio
import json
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from tests.rig.events import APPROVED, event
from tests.rig.shop import AMOUNT, Payment, Shop
from tests.rig.streams import Reply
from tests.rig.terminal import Request, acknowledgement, http
from tests.rig.webhooks import disk

#: Operation -> path on the LAN. In the cloud the path has the serial before `async` (terminal API, Calls).
PATHS = {
    "charge": "/terminal/v1/async/charge",
    "pre-auth": "/terminal/v1/async/authorization",
    "re-auth": "/terminal/v1/async/re_authorization",
    "capture": "/terminal/v1/async/capture",
    "post-tip": "/terminal/v1/async/pos_tip",
    "void": "/terminal/v1/async/void",
    "refund": "/terminal/v1/async/refund",
}
KINDS = tuple(PATHS)
#: Operation -> possible originals (local API, `unknown_original`).
FITS = {
    "re-auth": ("pre-auth",),
    "capture": ("pre-auth",),
    "post-tip": ("charge", "capture"),
    "void": ("charge", "pre-auth", "capture"),
    "refund": ("charge", "capture"),
}
#: Operation -> name in the final event. The vendor has not published the last three of these names.
WORDS = {
    "charge": "CHARGE",
    "pre-auth": "PREAUTH",
    "re-auth": "REAUTHORIZATION",
    "capture": "CAPTURE",
    "post-tip": "TIP_ADJUSTMENT",
    "void": "ANNULMENT",
    "refund": "GIVEN_BACK",
}
#: Amount that the terminal has processed. No later request may contain a part of this amount.
PROCESSED = {
    "currency": "USD",
    "subtotal_iva0": 987654.32,
    "tip": 77.77,
    "extra_taxes": {"airport_tax": 66.66, "iac": 55.55, "ice": 44.44, "travel_agency": 33.33},
}


async def taking(request: Request, writer: asyncio.StreamWriter) -> None:
    """Script of a terminal that accepts any operation and echoes the whole request (terminal API, Acknowledgement)."""
    kind = next(name for name, path in PATHS.items() if path.rpartition("/")[2] == request.path.rpartition("/")[2])
    echo = {"event_id": str(uuid4()), "operation": {**request.json, "type": kind}, "terminal": {"model": "M"}}
    writer.write(http(200, acknowledgement(request, "", **echo)))


@dataclass
class Operation(Payment):
    """One operation of a test. `reference`: the reference in the approval, as the terminal wrote it."""

    kind: str = "charge"
    reference: str = ""

    async def put(self, **changes: Any) -> Reply:
        """Start the operation or repeat the call. Keyword arguments replace fields of the request. A void or refund has
        no amount by default.
        """
        request = {"terminal": self.serial, "type": self.kind} | (
            {} if self.kind in ("void", "refund") else {"amount": AMOUNT}
        )
        return await self.shop.daemon.call("PUT", f"/transactions/{self.identity}", request | changes)

    async def begin(self, **changes: Any) -> "Operation":
        """Start the operation. Check that the terminal accepts the operation."""
        self.shop.terminal.start = taking
        reply = await self.put(**changes)
        assert reply.status == 201, reply.body
        assert reply.json["phase"] == "active", reply.body
        return self

    async def refused(self, code: str, **changes: Any) -> Any:
        """Start the operation. Check that posd refuses with this code, and sends and records nothing. Return the
        problem.
        """
        self.shop.terminal.start = taking
        reply = await self.put(**changes)
        assert reply.status == {"unknown_original": 422, "invalid_request": 422, "amount_exceeds": 422}.get(
            code, 409
        ), reply.body
        assert reply.json["code"] == code
        assert self.requests == []
        assert (await self.shop.daemon.call("GET", f"/transactions/{self.identity}")).status == 404
        return reply.json

    @property
    def sent(self) -> Any:
        """Return the only request of this operation that the terminal received."""
        (request,) = self.requests
        return request.json

    def states(self, status: str = "APPROVAL", previous: str | None = None, **changes: Any) -> dict[str, Any]:
        """Return an event of the operation. A final event contains the amount that the terminal has processed."""
        if status in ("APPROVAL", "TERMINAL_REJECTED", "TERMINAL_CANCELED"):
            operation = {"type": WORDS[self.kind], "amount": PROCESSED, "client_transaction_id": self.identity}
            if self.kind in ("re-auth", "capture"):
                operation["transaction_reference"] = self.sent["transaction_reference"]
            changes = {"operation": operation} | changes
        if status == "APPROVAL":
            changes = {"raw_response": self.answer()} | changes
        return event(self.identity, status, previous, self.serial, **changes)

    def answer(self, **changes: Any) -> dict[str, Any]:
        """Return the acquirer's approval with a new reference. The value None removes a field."""
        self.reference = self.reference or str(uuid4())
        answer = {
            "transaction_reference": self.reference,
            "ticket_number": f"T-{self.reference[:8]}",
            "authorized_amount": 11.20,
        } | changes
        return {name: value for name, value in answer.items() if value is not None}

    async def finish(self, status: str = "APPROVAL", **changes: Any) -> "Operation":
        """Deliver all events of the operation. Keyword arguments replace fields of the final event. The value None
        removes a field.
        """
        steps = 3 if status in ("APPROVAL", "DECLINED") else 1  # terminal API, Lifecycle
        await self.approve(steps)
        previous, _ = APPROVED[steps - 1]
        assert await self.deliver(json.dumps(self.states(status, previous, **changes)).encode()) == 200
        return self


def operation(shop: Shop, kind: str, on: Payment | None = None) -> Operation:
    """Return a new operation on the terminal of another operation, or on a new terminal."""
    return Operation(shop, str(uuid4()), on.serial if on else next(shop.serials), kind)


async def approved(shop: Shop, kind: str, original: Operation | None = None, **changes: Any) -> Operation:
    """Return an approved operation. An operation runs on the terminal of its original. Without `original`, the original
    is unknown to posd. Keyword arguments replace fields of the request.
    """
    if kind in FITS:
        changes = {"original": original.identity} | changes if original else {"transaction_reference": str(uuid4())}
    return await (await operation(shop, kind, original).begin(**changes)).finish()


def stored(item: Payment) -> dict[str, Any]:
    """Return the references of an operation in the database."""
    names = ("transaction_reference", "given_reference", "derives_from", "same_day_until")
    with disk(item.shop.daemon) as db:
        query = f"SELECT {', '.join(names)} FROM transactions WHERE client_transaction_id = ?"
        return dict(zip(names, db.execute(query, (item.identity,)).fetchone(), strict=True))
