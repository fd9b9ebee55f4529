"""Payments of a shop as the local API shows them, made up: for the report to read."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any
from uuid import UUID

from posd.base.times import iso
from tests.cli import documents

#: Franchise -> how often, of a hundred.
CARDS = {"VISA": 48, "MASTERCARD": 33, "DINERS CLUB": 12, "AMEX": 7}
#: Result -> how often, of a hundred.
RESULTS = {"approved": 88, "declined": 6, "canceled": 3, "rejected": 2, "not_started": 1}
STATES = {
    "approved": "APPROVAL",
    "declined": "DECLINED",
    "rejected": "TERMINAL_REJECTED",
    "canceled": "TERMINAL_CANCELED",
}


def payment(
    number: int,
    at: datetime,
    *,
    result: str | None = "approved",
    seconds: Decimal = Decimal("11.2"),
    authorized: Decimal | None = None,
    occurred_at: str | None = None,
    brand: str | None = "VISA",
    currency: str | None = "USD",
    evidence: str = "event",
    outcome: dict[str, Any] | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """Return a payment that was asked for at a moment; `outcome` and keyword arguments replace members."""
    decided = at + timedelta(milliseconds=int(seconds * 1000))
    document = documents.transaction(
        client_transaction_id=identity(number), created_at=iso(at), updated_at=iso(at), next_step="done"
    )
    document |= {"amount": {"iva": Decimal("1.20"), "subtotal_iva": Decimal("10.00")}} | fields
    if result is None:
        return document | {"phase": fields.get("phase", "active"), "next_step": fields.get("next_step", "wait")}
    stated = STATES.get(result) if evidence in ("event", "search") else None
    event = None
    if stated is not None:
        event = {
            "occurred_at": occurred_at or iso(decided),
            "terminal": {"serial_number": document["terminal"]},
            "operation": {"amount": {"currency": currency, "tip": 0}} if currency else {},
        }
    approved = result == "approved"
    document["outcome"] = documents.outcome(
        result,
        {"kind": evidence},
        status=stated,
        decided_at=iso(decided),
        transaction_reference=identity(number + 10**9) if approved else None,
        ticket_number=f"{number:06}" if approved else None,
        authorized_amount=authorized,
        receipt={"authorization_code": f"{number:06}", "franchise": brand, "card_type": "credit", "cvm_type": "PIN"}
        if approved
        else None,
        failure_reason={"type": "ACQUIRER", "code": "51", "message": "Insufficient funds"}
        if result == "declined"
        else None,
        final_event=event,
        **(outcome or {}),
    ) | (outcome or {})
    return document | {"phase": "final"}


def identity(number: int) -> str:
    """Return an id."""
    return str(UUID(int=Random(number).getrandbits(128), version=4))


def day(count: int, morning: datetime, terminals: int = 3, seed: int = 1) -> list[dict[str, Any]]:
    """Return the payments of a day: most at noon and in the evening, some tips, voids and reservations."""
    return list(_day(count, morning.astimezone(UTC), terminals, Random(seed)))


def _day(count: int, morning: datetime, terminals: int, draw: Random) -> Iterator[dict[str, Any]]:
    approved: list[dict[str, Any]] = []
    for number in range(count):
        hour = draw.choice((draw.gauss(13, 1.6), draw.gauss(19, 1.4), draw.uniform(8, 21)))
        at = morning + timedelta(hours=min(max(hour, 7), 22.9))
        result = draw.choices(list(RESULTS), list(RESULTS.values()))[0]
        whole = Decimal(draw.randrange(150, 9000)).scaleb(-2)
        iva = (whole * Decimal("0.15")).quantize(Decimal("0.01"))
        free = Decimal(draw.randrange(0, 2000)).scaleb(-2) if draw.random() < 0.3 else Decimal(0)
        kind = draw.choices(("charge", "pre-auth", "post-tip", "void"), (90, 3, 4, 3))[0]
        document: dict[str, Any] = {
            "terminal": f"SN-{draw.randrange(terminals) + 1:04}",
            "type": kind,
            "amount": {"iva": iva, "subtotal_iva": whole, "subtotal_iva0": free},
            "sale": f"2026-11-20/till-{number % 4 + 1}/{1000 + number}",
        }
        total = iva + whole + free
        outcome: dict[str, Any] = {}
        if kind in ("post-tip", "void"):
            if not approved:
                continue
            original = approved.pop(draw.randrange(len(approved)))
            document |= {"original": original["client_transaction_id"], "terminal": original["terminal"], "sale": None}
            total = original["outcome"]["authorized_amount"]
            if kind == "void":
                document["amount"] = {}
                outcome["reversal"] = "cancellation"
            else:
                total = (total * Decimal("0.1")).quantize(Decimal("0.01"))
                document["amount"] = {"tip": total}
            at = max(at, datetime.fromisoformat(original["created_at"]) + timedelta(minutes=9))
        made = payment(
            number,
            at,
            result=result,
            seconds=Decimal(str(round(draw.lognormvariate(2.5, 0.6), 3))),
            authorized=total if result == "approved" else None,
            brand=draw.choices(list(CARDS), list(CARDS.values()))[0],
            outcome=outcome,
            **document,
        )
        if result == "approved" and kind == "charge":
            approved.append(made)
        yield made


def trouble(morning: datetime) -> list[dict[str, Any]]:
    """Return what a bad day brings beside: open, in doubt, contradicted, corrected, and by a person's word."""
    at = [morning + timedelta(hours=10, minutes=17 * number) for number in range(6)]
    return [
        payment(900001, at[0], result=None, status="CARD_PRESENTED"),
        payment(
            900002,
            at[1],
            result=None,
            phase="in_doubt",
            next_step="ask_person",
            terminal="SN-0002",
            attention=[documents.attention("in_doubt", "the terminal gave no answer to the request")],
        ),
        payment(
            900003,
            at[2],
            result="declined",
            next_step="ask_person",
            attention=[documents.attention("conflicting_final", "two finals: DECLINED stands, APPROVAL came after it")],
        ),
        payment(
            900004,
            at[3],
            authorized=Decimal("8.20"),
            attention=[documents.attention("amount_differs", "asked for 11.20, authorized 8.20")],
        ),
        payment(900005, at[4], evidence="operator", terminal="SN-0002"),
        payment(
            900006,
            at[5],
            authorized=Decimal("11.20"),
            outcome={"supersedes": documents.outcome("not_started", {"kind": "refusal"})},
        ),
    ]
