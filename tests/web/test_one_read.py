"""A call that shows a payment reads the database once, so that the shown rows belong to one state."""

import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from posd.calls.streams import CallContext
from posd.payments.handlers import TransactionCalls
from tests.core.scenarios import NOW
from tests.store.filled import OPEN, filling, name


class CountedReads(CallContext):
    """Parts of the handlers without a store. Each look-up is counted."""

    is_blind = False

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db, self.reads = db, 0
        self.now = lambda: NOW

    async def look_up(self, function: Callable[[sqlite3.Connection], Any]) -> Any:
        self.reads += 1
        return function(self.db)

    def shows(self, request: Any, approvals: Sequence[str]) -> None:
        pass


@pytest.mark.parametrize("number", [1, 2], ids=["approved", "open"])
async def test_a_payment_is_shown_by_one_read(tmp_path: Path, number: int) -> None:
    async def recorded(_identity: str, work: Callable[[], Awaitable[Any]]) -> Any:
        return await work()

    with filling(tmp_path / "posd.db") as filled:
        filled.pay(1)
        filled.pay(2, OPEN)
        context = CountedReads(filled.db)
        config = SimpleNamespace(
            local_api=SimpleNamespace(language="en"), reconcile=SimpleNamespace(first_event_grace_seconds=5)
        )
        parts = (
            SimpleNamespace(recorded=recorded),
            SimpleNamespace(possible=lambda _: False),
            SimpleNamespace(missing_proof=lambda *_: ()),
        )
        calls = TransactionCalls(context, *cast(Any, parts), cast(Any, config))
        state = SimpleNamespace(admin=False, headers={"Accept-Language": ()})
        request = SimpleNamespace(path_params={"client_transaction_id": name(number)}, state=state, method="GET")
        response = await calls.get_transaction(cast(Any, request))
        assert (response.status_code, context.reads) == (200, 1)
        assert name(number).encode() in response.body
