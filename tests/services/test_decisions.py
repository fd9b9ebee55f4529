"""Operators' decisions about payments that posd has, and about payments that a restore may have lost."""

import asyncio
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from posd.base.operations import OperationType
from posd.payments import rows
from posd.payments.entries import Dismissed, Released, Resolved
from posd.payments.model import AttentionCode, Result
from posd.payments.request import Decision, PaymentFacts
from posd.records.model import Pruned
from posd.storage import changes
from posd.storage.marks import MissingRecords
from tests.rig.book import identity as identity_of
from tests.rig.shop import Held, hanging_up
from tests.rig.tables import there
from tests.services.inside import CHARGE, code_of, composed

WORD = ("Ana", "the slip shows it", 1000)
RELEASED, RESOLVED = Released(*WORD), Resolved(*WORD, Result.APPROVED)
SUM = b'{"subtotal_iva0":11.20}'
SLIP = {"terminal": None, "type": None, "amount": SUM}
PERIOD = MissingRecords(None, "2026-11-20T10:42:00.000Z")
#: An id in a table must be the same in each process that collects the tests.
KNOWN, PRUNED, LOST = map(identity_of, range(1, 4))


@pytest.mark.parametrize(
    ("decision", "facts", "codes", "holds"),
    [
        (RELEASED, None, ["call_outstanding", "", ""], False),
        (RESOLVED, SLIP, ["call_outstanding", "", "already_final"], False),
        (RESOLVED, SLIP | {"amount": b'{"subtotal_iva0":11.21}'}, ["call_outstanding", "id_reused", "id_reused"], True),
        (Dismissed(*WORD, AttentionCode.IN_DOUBT), None, ["not_found", "", "not_found"], True),
    ],
)
async def test_an_operator_decides_after_the_call_to_the_terminal_has_ended(
    tmp_path: Path, decision: Decision, facts: dict[str, Any] | None, codes: list[str], holds: bool
) -> None:
    """`codes`: problems of three attempts: during the call to the terminal, after its end in doubt, and a repetition.

    `holds`: whether the payment holds its terminal in the end.
    """
    identity, given, found = str(uuid4()), facts and PaymentFacts(**facts), list[str]()
    async with composed(tmp_path) as inside:
        inside.terminal.start = script = Held(hanging_up)
        starting = asyncio.create_task(inside.payments.start(identity, CHARGE))
        await script.arrived.wait()
        found.append(await code_of(inside.payments.decide(identity, decision, given)))
        script.release.set()
        await starting
        found += [await code_of(inside.payments.decide(identity, decision, given)) for _ in range(2)]
        assert (found, await inside.store.read(rows.leases)) == (codes, {"SN-TEST": identity} if holds else {})


@pytest.mark.parametrize(
    ("identity", "lost", "facts", "decision", "code"),
    [
        (LOST, False, SLIP, RESOLVED, "not_found"),
        (LOST, True, None, RELEASED, "not_found"),
        (LOST, True, SLIP | {"amount": b"{}"}, RESOLVED, "invalid_request"),
        (PRUNED, True, SLIP, RESOLVED, "pruned"),
    ],
)
async def test_only_a_slip_of_a_possibly_lost_payment_is_recorded(
    tmp_path: Path, identity: str, lost: bool, facts: dict[str, Any] | None, decision: Decision, code: str
) -> None:
    """`lost`: whether a restore may have lost records."""
    async with composed(tmp_path) as inside:
        till = inside.till(missing=lambda: PERIOD if lost else None)
        removed = Pruned(PRUNED, "SN-TEST", None, "declined", "2026-11-20")
        await inside.store.write(lambda unit: rows.PAYMENT.keep_pruned(unit.db, removed))
        assert await code_of(till.decide(identity, decision, facts and PaymentFacts(**facts))) == code
        assert await inside.get(identity) is None


@pytest.mark.parametrize(
    ("facts", "type_", "derives_from"),
    [
        ({}, OperationType.CHARGE, None),
        ({"type": OperationType.REFUND, "original": KNOWN, "sale": "basket-7"}, OperationType.REFUND, KNOWN),
        ({"type": OperationType.VOID, "original": LOST}, OperationType.VOID, None),
    ],
)
async def test_the_slip_of_a_lost_payment_becomes_its_record(
    tmp_path: Path, facts: dict[str, Any], type_: OperationType, derives_from: str | None
) -> None:
    identity, given = str(uuid4()), PaymentFacts(**SLIP | facts)
    async with composed(tmp_path) as inside:
        inside.reload(inside.terminal.toml + 'answer_amount_unit = "hundredths"\n')
        await inside.payments.start(KNOWN, CHARGE)
        newest = await inside.store.read(changes.newest_seq)
        await inside.till(missing=lambda: PERIOD).decide(identity, RESOLVED, given)
        record = there(await inside.get(identity))
        assert (record.type, record.amount, record.sale, record.original) == (type_, SUM, given.sale, given.original)
        assert (record.derives_from, record.answer_unit) == (derives_from, "hundredths")
        feed = await inside.store.read(lambda db: changes.after(db, newest, 9))
        assert [change.reason for change in feed] == ["orphan", "resolve"]
