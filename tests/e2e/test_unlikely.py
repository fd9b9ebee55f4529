"""A suspicious approval counts. posd applies the approval and reports `approval_unlikely`."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from posd.base.times import iso
from tests.rig.events import APPROVED, event
from tests.rig.shop import Payment, Shop, acknowledging, knowing, nothing_to_correct, open_shop
from tests.rig.webhooks import attention

ASKED = {"iva": 12.00, "subtotal_iva": 100.00}
BY_ANA = {"code": "approval_unlikely", "operator": "Ana", "note": "the slip has it too"}


def approval(
    payment: Payment, authorized: float = 112.00, currency: str = "USD", kind: str = "CHARGE", **changes: Any
) -> dict[str, Any]:
    """Return the approval of a payment of 112.00."""
    operation = {"type": kind, "amount": {"currency": currency}}
    given = event(payment.identity, *APPROVED[3], payment.serial, operation=operation, **changes)
    given["raw_response"]["authorized_amount"] = authorized
    return given


async def asked(shop: Shop, serial: str | None = None) -> Payment:
    """Return an open payment of 112.00 on a new terminal or on this terminal."""
    payment = shop.payment()
    payment.serial = serial or payment.serial
    shop.terminal.start = acknowledging(payment.serial)
    assert (await payment.put(amount=ASKED)).status == 201
    await payment.approve(3)
    return payment


async def approved(shop: Shop, serial: str | None = None, **changes: Any) -> Payment:
    """Return a payment with this approval."""
    payment = await asked(shop, serial)
    assert await payment.deliver(json.dumps(approval(payment, **changes)).encode()) == 200
    return payment


async def said(payment: Payment) -> str:
    """Return the text of the report about an approval, or "". Check that the outcome is approved by the terminal."""
    document = await payment.get()
    assert (document["outcome"]["result"], document["next_step"]) == ("approved", "done")
    assert attention(document) <= {"approval_unlikely"}
    return " ".join(item["detail"] for item in document["attention"])


YEAR_AGO = iso(datetime.now(UTC) - timedelta(days=365))


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.usefixtures("complete_journal")
class TestOneShop:
    """Tests with one daemon. At the end posd derives all payments again from their records."""

    @pytest.mark.parametrize(
        ("changes", "part"),
        [({"authorized": 0.01}, "asked for 112.0, authorized 0.01"), ({"occurred_at": YEAR_AGO}, YEAR_AGO)],
        ids=["a cent", "a year ago"],
    )
    async def test_an_approval_that_contradicts_its_request_is_applied_and_reported(
        self, shop: Shop, changes: dict[str, Any], part: str
    ) -> None:
        payment = await approved(shop, **changes)
        assert part in await said(payment)
        lines = [item for item in await payment.history() if item["kind"] == "approval_unlikely"]
        assert [len(item["reasons"]) for item in lines] == [1]
        line = await shop.daemon.log_line("payment.attention", transaction=payment.identity)
        assert (line["code"], line["level"]) == ("approval_unlikely", "warning")

    async def test_an_approval_found_by_a_search_is_compared_with_the_request_too(self, shop: Shop) -> None:
        payment = await asked(shop)
        found = approval(payment, 0.01)
        shop.terminal.search = knowing(found)
        assert (await payment.post("reconcile")).status == 200
        assert "0.01" in await said(payment)
        # The same approval also arrives as an event. posd does not report the approval twice.
        assert await payment.deliver(json.dumps(found).encode()) == 200
        assert [item["kind"] for item in await payment.history()].count("approval_unlikely") == 1


async def test_a_new_currency_of_a_terminal_is_reported_even_after_a_restart(own: Shop) -> None:
    """The first approval of a terminal sets the expected currency. An approval that an operator has acknowledged also
    sets the expected currency.
    """
    first = await approved(own)
    other = await approved(own, currency="EUR")
    assert (await said(first), await said(other)) == ("", "")
    strange = await approved(own, first.serial, currency="COP")
    assert "it is in COP, and not in USD" in await said(strange)
    assert await own.daemon.stop() == 0
    await own.daemon.start()
    again = await approved(own, first.serial, currency="COP")
    assert "it is in COP, and not in USD" in await said(again)
    assert await said(await approved(own, first.serial)) == ""
    assert (await again.post("acknowledge", BY_ANA, admin=True)).status == 200
    assert await said(await approved(own, first.serial, currency="COP")) == ""
    assert await said(await approved(own, first.serial)) == ""
    await nothing_to_correct(own.daemon)


async def test_a_currency_that_is_not_configured_is_reported_from_the_first_approval_on(home: Path) -> None:
    async with open_shop(home, '[merchant]\ncurrency = "USD"\n') as shop:
        assert "it is in COP, and not in USD" in await said(await approved(shop, currency="COP"))
        assert await said(await approved(shop)) == ""
        await nothing_to_correct(shop.daemon)
