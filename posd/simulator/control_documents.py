"""What the control API shows: the catalogue, and how a terminal stands."""

from typing import Any

from posd.simulator.catalogue import payments
from posd.simulator.print_catalogue import prints
from posd.simulator.simulator import Simulator


def listed_scenarios() -> list[dict[str, Any]]:
    """Return the catalogue in brief: name, kind (payment or print), summary, when, and the amount that chooses it."""
    return [
        *(
            {"name": name, "kind": "payment", "summary": item.summary, "when": item.when, "amount": item.amount}
            for name, item in payments().items()
        ),
        *(
            {"name": name, "kind": "print", "summary": item.summary, "when": item.when, "amount": None}
            for name, item in prints().items()
        ),
    ]


def state_of(terminal: Simulator) -> dict[str, Any]:
    """Return how a terminal stands.

    `payment` is the one that runs, or null; `armed` the scenario of the next one where somebody chose it live;
    `scenario` that of payments which choose none; `waiting_events` how many events wait for their delivery.
    """
    running = terminal.terminal.running
    return {
        "serial": terminal.settings.serial,
        "base_url": terminal.base_url,
        "powered": terminal.powered,
        "plugged": terminal.plugged,
        "certificate": terminal.certificate,
        "scenario": terminal.scenario,
        "armed": terminal.terminal.armed,
        "payment": None
        if running is None
        else {
            "client_transaction_id": running.client_transaction_id,
            "operation": running.operation,
            "scenario": running.scenario,
            "status": running.status,
        },
        "waiting_events": terminal.waiting_events,
    }
