"""Choice of a payment's scenario by the control API, the metadata, the amount, or an option. The tests also cover the
possible actions.
"""

from typing import Any

import pytest

from posd.simulator.payment import ManualControl, remainder
from posd.simulator.scenario import payments
from posd.simulator.wire import PaymentStatus
from tests.simulator.conftest import Stage, Till
from tests.simulator.own import CANCELED, A, C, Q, steps
from tests.support.tables import every

METADATA = {"scenario": "decline"}
AMOUNT = {"subtotal_iva": 8000.05, "iva": 1000, "extra_taxes": {"ice": 0.01}}  # 9000.06
BY_AMOUNT = "reject-after-card"


async def chosen(till: Till, **fields: Any) -> tuple[str | None, str | None]:
    """Pay. Return the scenario and the reason for its choice. Check that the terminal ran the scenario."""
    before = len(till.terminal.ledger.of("over"))
    answer = await till.charge(**fields)
    line = till.terminal.ledger.of("start")[-1]
    assert answer.status_code == line["http_status"]
    if answer.status_code == 200:
        transaction = answer.json()["operation"]["client_transaction_id"]
        await till.terminal.ledger.wait_for("over", client_transaction_id=transaction)
        (final,) = till.terminal.ledger.of("final", client_transaction_id=transaction)
        played = payments().get(line["scenario"])
        assert final["status"] == (played.steps[-1].status if played else CANCELED)
        assert len(till.terminal.ledger.of("over")) == before + 1
    return line["scenario"], line["chosen_by"]


async def test_the_sources_of_a_scenario_have_an_order(stage: Stage) -> None:
    async with stage.plays(steps(A, CANCELED)) as till:
        terminal = till.terminal.terminal
        assert await chosen(till) == ("own", "option")
        assert await chosen(till, amount=AMOUNT) == (BY_AMOUNT, "amount")
        assert await chosen(till, amount=AMOUNT, metadata=METADATA) == ("decline", "metadata")
        assert await chosen(till, metadata={"scenario": "own"}) == ("own", "metadata")
        assert terminal.choice.armed is None
        terminal.arm("reject-before-card")
        assert await chosen(till, amount=AMOUNT, metadata=METADATA) == ("reject-before-card", "armed")
        assert terminal.choice.armed is None
        assert await chosen(till, metadata=METADATA) == ("decline", "metadata")


@pytest.mark.parametrize("amount", [{"subtotal_iva0": 9000}, {"subtotal_iva0": 9000.061}, {"subtotal_iva0": 90.06}])
async def test_other_amounts_choose_no_scenario(till: Till, amount: dict[str, Any]) -> None:
    assert await chosen(till, amount=amount) == ("approve-contactless", "option")


async def test_a_refused_start_does_not_use_up_an_armed_scenario(till: Till) -> None:
    till.terminal.terminal.arm("decline")
    assert (await till.post(b"{")).status_code == 400
    assert await chosen(till) == ("decline", "armed")


#: State -> possible actions. No other action is possible.
POSSIBLE = {
    A: set(ManualControl),
    C: set(ManualControl),
    Q: {ManualControl.APPROVE, ManualControl.DECLINE},
}


@every("status", [None, *PaymentStatus, "PIN_REQUESTED"])
@every("hand", ManualControl)
def test_each_state_has_its_possible_actions(status: str | None, hand: ManualControl) -> None:
    steps = remainder(status, hand)
    assert (steps is not None) == (hand in POSSIBLE.get(str(status), set()))
