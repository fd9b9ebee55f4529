"""What a search finds of a payment whose scenario has it find something else."""

from random import Random
from typing import Any

from posd.simulator import messages, wire
from posd.simulator.answers import changed
from posd.simulator.lifecycle import Status
from posd.simulator.messages import Device, Event
from posd.simulator.payment import Payment
from posd.simulator.scenario import Failure, SearchFinds

#: Why a search says that an approved payment was declined.
CONTRADICTED = Failure("ACQUIRER", "05", "Do not honor")


def find(finds: SearchFinds, payment: Payment, usual: bytes | None, device: Device) -> bytes | None:
    """Return the event that is found, None where none is. `usual` is what an ordinary search would find."""
    match finds:
        case SearchFinds.USUAL:
            return usual
        case SearchFinds.NOTHING:
            return None
        case SearchFinds.STALE:
            return payment.previous or None
        case SearchFinds.ALL_STATES:
            return payment.newest or None
        case SearchFinds.ANOTHER:
            return _of_another(payment.newest) if payment.newest else None
        case SearchFinds.CONTRADICTION:
            return _contradicting(payment, device) if payment.ended else usual


def _of_another(event: bytes) -> bytes:
    """Return the event as one of another transaction, always the same."""
    body: dict[str, Any] = wire.decode(event)
    other = messages.new_uuid(_rng(body["client_transaction_id"]))
    paths = ["client_transaction_id"] + (["operation.client_transaction_id"] if "operation" in body else [])
    return wire.encode(changed(body, dict.fromkeys(paths, other), ()))


def _contradicting(payment: Payment, device: Device) -> bytes:
    """Return a final that says the opposite of the newest one, always the same."""
    final: dict[str, Any] = wire.decode(payment.final)
    rng = _rng(final["event_id"])
    approved = final["status"] == Status.APPROVAL
    authorized = payment.amount.authorized
    event = Event(
        event_id=messages.new_uuid(rng),
        occurred_at=final["occurred_at"],
        status=Status.DECLINED if approved else Status.APPROVAL,
        previous_status=Status.APPROVAL_REQUESTED,
        reading_type=payment.reading_type,
        failure=CONTRADICTED if approved else None,
        raw_response=None if approved else messages.approval(payment.start, authorized, payment.reading_type, rng),
    )
    return wire.encode(messages.transaction_event(device, payment.start, payment.amount, event))


def _rng(seed: str) -> Random:
    return Random(f"{seed}/search")  # noqa: S311 - reproducible, not secret
