"""Choice of a payment's scenario by the control API, the metadata, the amount, or an option."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from posd.simulator import Settings, Simulator
from tests.simulator.conftest import Till
from tests.simulator.own import CANCELED, A, steps, write

METADATA = {"scenario": "decline"}
AMOUNT = {"subtotal_iva": 8000.05, "iva": 1000, "extra_taxes": {"ice": 0.01}}  # 9000.06
BY_AMOUNT = "reject-after-card"


async def chosen(till: Till, **fields: Any) -> tuple[str | None, str | None]:
    """Pay. Return the scenario and the reason for its choice."""
    await till.run("charge", **fields)
    line = till.terminal.ledger.of("start")[-1]
    return line["scenario"], line["chosen_by"]


async def test_the_sources_of_a_scenario_have_a_precedence(
    settings: Callable[..., Settings], client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    async with Simulator(settings(scenario_file=write(tmp_path, steps(A, CANCELED)))) as simulator:
        till = Till(simulator, client)
        terminal = till.terminal.terminal
        assert await chosen(till) == ("own", "option")
        assert await chosen(till, amount=AMOUNT) == (BY_AMOUNT, "amount")
        assert await chosen(till, amount=AMOUNT, metadata=METADATA) == ("decline", "metadata")
        assert await chosen(till, metadata={"scenario": "own"}) == ("own", "metadata")
        assert terminal.armed is None
        terminal.arm("reject-before-card")
        assert await chosen(till, amount=AMOUNT, metadata=METADATA) == ("reject-before-card", "armed")
        assert terminal.armed is None
        assert await chosen(till, metadata=METADATA) == ("decline", "metadata")


@pytest.mark.parametrize("amount", [{"subtotal_iva0": 9000}, {"subtotal_iva0": 9000.061}, {"subtotal_iva0": 90.06}])
async def test_only_a_listed_amount_chooses_a_scenario(till: Till, amount: dict[str, Any]) -> None:
    assert await chosen(till, amount=amount) == ("approve-contactless", "option")


async def test_a_refused_start_does_not_use_up_an_armed_scenario(till: Till) -> None:
    till.terminal.terminal.arm("decline")
    assert (await till.post(b"{")).status_code == 400
    assert await chosen(till) == ("decline", "armed")
