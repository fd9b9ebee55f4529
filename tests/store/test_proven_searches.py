"""Searches that are proven to work. Such a search has found another transaction of the same terminal before."""

from functools import partial
from typing import Any

import pytest

from posd.payments import rows
from posd.payments.model import Result, Transaction
from posd.payments.record import begin
from posd.payments.transitions import resolved
from posd.storage.store import Store
from posd.terminals.attempt import StartRefused
from tests.core.inputs import content, event, found, reply
from tests.core.scenarios import ACK, CANCELED, CARD, NOW, REJECTED, REQUESTED, starting

SEARCH = "POST /terminal/v1/transaction_search_online"


async def remember(store: Store, terminal: str, identity: str, search: str = SEARCH) -> None:
    await store.write(
        partial(rows.remember_search, terminal=terminal, search=search, client_transaction_id=identity, at="then")
    )


async def has_found_another(store: Store, terminal: str, identity: str, search: str = SEARCH) -> bool:
    ask = partial(rows.search_found_another, terminal=terminal, search=search, client_transaction_id=identity)
    return await store.read(ask)


async def remembered(store: Store) -> list[Any]:
    query = "SELECT terminal, search, client_transaction_id, at FROM proven_searches ORDER BY 1, 2, 3"
    return await store.read(lambda db: db.execute(query).fetchall())


async def test_finding_another_transaction_of_the_terminal_proves_a_search(store: Store) -> None:
    assert not await has_found_another(store, "SN-1", "a")
    await remember(store, "SN-1", "a")
    assert await has_found_another(store, "SN-1", "b")
    assert not await has_found_another(store, "SN-1", "a"), "finding the searched one proves nothing of others"
    assert not await has_found_another(store, "SN-2", "b"), "another terminal may behave differently"
    assert not await has_found_another(store, "SN-1", "b", f"{SEARCH} /data"), "another search may behave differently"


async def test_two_stored_search_hits_prove_the_search(store: Store) -> None:
    for identity in ("a", "a", "b", "c", "d"):
        await remember(store, "SN-1", identity)
    assert await remembered(store) == [("SN-1", SEARCH, "a", "then"), ("SN-1", SEARCH, "b", "then")]
    for identity in ("a", "b", "c"):
        assert await has_found_another(store, "SN-1", identity)


def ended(number: int, *bodies: bytes, terminal: str = "SN-1") -> Transaction:
    """Return a transaction that began in this minute and received these events."""
    transaction = starting(
        client_transaction_id=f"{number}", terminal=terminal, created_at=f"2026-11-20T10:{number:02}:00.000Z"
    )
    for body in bodies:
        transaction = event(body).apply(transaction)
    return transaction


@pytest.mark.parametrize(
    ("last", "control"),
    [
        ([content("APPROVAL", REQUESTED)], "2"),
        ([content("DECLINED", REQUESTED)], "2"),
        ([content(CANCELED, CARD)], "1"),
        ([content(REJECTED, CARD)], "1"),
        ([content(ACK)], "1"),
        ([], "1"),
    ],
)
async def test_a_search_is_tried_on_the_acquirers_newest_payment(store: Store, last: list[bytes], control: str) -> None:
    """The acquirer's index contains the payments that reached the acquirer.

    A payment that was canceled earlier may be missing.
    """
    items = [
        ended(1, content("APPROVAL", REQUESTED)),
        ended(0, content("APPROVAL", REQUESTED)),
        ended(2, *last),
        ended(3, content("APPROVAL", REQUESTED), terminal="SN-2"),
    ]
    for item in items:
        await store.write(partial(begin, transaction=item, word="test"))
    assert await store.read(partial(rows.search_control, terminal="SN-1")) == control


async def test_a_search_is_not_tried_on_a_payment_that_the_terminal_did_not_end(store: Store) -> None:
    concluded = [
        resolved(ended(1), Result.APPROVED, "Ana", "slip", None, NOW),
        reply(StartRefused(409, "busy"))(ended(2)),
    ]
    for item in concluded:
        await store.write(partial(begin, transaction=item, word="test"))
    assert await store.read(partial(rows.search_control, terminal="SN-1")) is None
    searched = found(content("DECLINED", REQUESTED)).apply(ended(3))
    await store.write(partial(begin, transaction=searched, word="test"))
    assert await store.read(partial(rows.search_control, terminal="SN-1")) == "3"
