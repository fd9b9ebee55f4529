"""Derived operations: correct references, counted amounts, and the state after a restart.

A chain is written as `p=pre-auth, r=re-auth p, capture r`: an operation, its original, and a name for its reference.
"""

import uuid
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from posd.simulator import Settings, Simulator
from tests.simulator.conftest import Till

Event = dict[str, Any]


class Chain:
    """Runner of a chain, step by step, with the references by name."""

    def __init__(self, till: Till) -> None:
        self._till = till
        self.references: dict[str, str] = {}

    async def run(self, text: str, **fields: Any) -> list[Event]:
        """Run all steps to their ends. Return the final events of the steps."""
        return [await self._run(step, fields) for step in text.split(", ") if step]

    async def attempt(self, step: str, **fields: Any) -> httpx2.Response:
        """Start one step. Return the terminal's reply."""
        operation, _, name = step.partition(" ")
        return await self._till.start(operation, transaction_reference=self.references.get(name), **fields)

    async def _run(self, step: str, fields: dict[str, Any]) -> Event:
        named, _, rest = step.rpartition("=")
        operation, _, original = rest.partition(" ")
        event = await self._till.run(operation, transaction_reference=self.references.get(original), **fields)
        assert event["status"] == "APPROVAL"
        self.references[named] = event["raw_response"]["transaction_reference"]
        return event


CAPTURED, VOIDED, TIPPED, SUPERSEDED = "ALREADY_CAPTURED", "ALREADY_VOIDED", "ALREADY_TIPPED", "REFERENCE_SUPERSEDED"
#: Earlier operations, the next request, and the code of the refusal.
REFUSED = [
    ("", "re-auth x", "UNKNOWN_REFERENCE"),
    ("", "void none", "INVALID_REQUEST"),
    ("c=charge", "capture c", "REFERENCE_DOES_NOT_FIT"),
    ("c=charge, t=post-tip c", "void t", "REFERENCE_DOES_NOT_FIT"),
    # a newer re-authorization
    ("p=pre-auth, r=re-auth p", "void p", SUPERSEDED),
    ("p=pre-auth, r=re-auth p, s=re-auth r", "capture p", SUPERSEDED),
    ("p=pre-auth, r=re-auth p, s=re-auth p", "re-auth r", SUPERSEDED),
    # captured
    ("p=pre-auth, c=capture p", "capture p", CAPTURED),
    ("p=pre-auth, r=re-auth p, c=capture r", "void p", CAPTURED),
    ("p=pre-auth, c=capture p, v=void c", "re-auth p", CAPTURED),
    # voided
    ("p=pre-auth, r=re-auth p, v=void r", "capture r", VOIDED),
    ("c=charge, v=void c", "void c", VOIDED),
    ("c=charge, t=post-tip c, v=void c", "post-tip c", VOIDED),
    # tipped
    ("c=charge, t=post-tip c", "post-tip c", TIPPED),
]


@pytest.mark.quick(7)
@pytest.mark.parametrize(("done", "asked", "code"), REFUSED, ids=[f"{row[0]}: {row[1]}" for row in REFUSED])
async def test_an_operation_that_does_not_fit_is_refused(quick_till: Till, done: str, asked: str, code: str) -> None:
    chain = Chain(quick_till)
    chain.references["x"] = str(uuid.uuid4())
    await chain.run(done)
    operation, _, name = asked.partition(" ")
    chain.references = {each: reference.upper() for each, reference in chain.references.items()}
    answer = await chain.attempt(asked)
    assert (answer.status_code, answer.json()["code"]) == (422, code)
    line = quick_till.terminal.ledger.of("start")[-1]
    shown = (line["operation"], line["transaction_reference"], line["http_status"], line["code"], line["scenario"])
    assert shown == (operation, chain.references.get(name), 422, code, None)
    assert (await quick_till.charge()).status_code == 200  # a refusal does not occupy the terminal


async def test_a_void_without_an_amount_has_the_amount_of_its_original(quick_till: Till) -> None:
    chain = Chain(quick_till)
    (charge,) = await chain.run("c=charge", amount={"iva": 1.20, "subtotal_iva": 10.1, "extra_taxes": {"ice": 0.0001}})
    (void,) = await chain.run("v=void c", amount=None)
    assert void["operation"]["amount"] == charge["operation"]["amount"]
    assert void["raw_response"]["authorized_amount"] == "11.3001"


#: The id has letters, so that upper and lower case differ.
UUID = "7f3cabcd-0000-4000-8000-00000000000f"


async def test_a_restart_keeps_finals_but_loses_the_payment_in_progress(
    settings: Callable[..., Settings], client: httpx2.AsyncClient
) -> None:
    async with Simulator(settings()) as terminal:
        chain = Chain(till := Till(terminal, client))
        paid, captured = await chain.run("p=pre-auth, c=capture p")
        told = [(await till.search(event["client_transaction_id"])).content for event in (paid, captured)]
    async with Simulator(settings(scenario="approve-chip-pin", speed=1.0)) as terminal:
        assert (await Till(terminal, client).charge(client_transaction_id=UUID)).status_code == 200
    async with Simulator(settings()) as terminal:
        again = Chain(till := Till(terminal, client))
        again.references = chain.references
        assert (await again.attempt("capture p")).json()["code"] == CAPTURED
        assert [(await till.search(event["client_transaction_id"])).content for event in (paid, captured)] == told
        assert (await till.search(UUID)).content == b"[]"
        assert terminal.ledger.of("final") == []  # a ledger in memory has only the events since its creation
