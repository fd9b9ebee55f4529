"""A real daemon and scripted terminals for the client's tests."""

from collections.abc import AsyncIterator

import pytest

from posd.client import Problem
from tests.e2e.conftest import home, shop
from tests.rig.shop import Payment, Shop, acknowledging, open_counters

__all__ = ["home", "shop"]


def refused(code: str) -> pytest.RaisesExc[Problem]:
    """Check that posd refuses with this code."""
    return pytest.raises(Problem, check=lambda problem: problem.code == code)


@pytest.fixture
def payment(shop: Shop) -> Payment:
    """Yield a payment that is not started. The payment's terminal has no other payment and accepts this payment."""
    payment = shop.payment()
    shop.terminal.start = acknowledging(payment.serial)
    return payment


@pytest.fixture
async def alone() -> AsyncIterator[Payment]:
    """Yield a payment that is not started, on the only terminal of a daemon. A test can stop and restart the daemon."""
    async with open_counters(1) as [counter]:
        yield counter.payment()
