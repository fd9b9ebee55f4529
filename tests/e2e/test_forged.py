"""Forged callbacks. Without the right token, posd changes nothing and stores nothing. A flood causes one log line."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from posd.base import ids
from posd.base.ids import Channel
from tests.rig.events import body
from tests.rig.https import post, send
from tests.rig.shop import Payment, Shop, quiet
from tests.rig.streams import Reply
from tests.rig.webhooks import address, attention, deliver, everything, faults, parse

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module", autouse=True)
def no_faults(shop: Shop) -> Iterator[None]:
    """Check after all these tests that the daemon's log has no internal fault."""
    yield
    assert faults(shop.daemon) == []


@dataclass(frozen=True)
class Genuine:
    """Parts of a payment's callback URL."""

    identity: str
    token: str

    @classmethod
    def of(cls, payment: Payment) -> "Genuine":
        _, _, _, identity, token = urlsplit(payment.requests[0].callback).path.split("/")
        assert identity == payment.identity
        return cls(identity, token)


def foreign(identity: str) -> str:
    """Return the token of a daemon with another key."""
    return ids.token(bytes(32), Channel.TRANSACTION, identity)


def flipped(token: str) -> str:
    """Return the token with its first character changed."""
    return ("A" if token[0] != "A" else "B") + token[1:]


#: Name -> path of a forged request. The vectors of the kind callback-address have all forms.
FORGED: dict[str, Callable[[Genuine], str]] = {
    "wrong token": lambda it: f"/webhooks/transactions/{it.identity}/{flipped(it.token)}",
    "empty token": lambda it: f"/webhooks/transactions/{it.identity}/",
    "token and more": lambda it: f"/webhooks/transactions/{it.identity}/{it.token}A",
    "token in the query": lambda it: f"/webhooks/transactions/{it.identity}?token={it.token}",
    "token of another id": lambda it: f"/webhooks/transactions/{uuid4()}/{it.token}",
    "token of another key": lambda it: f"/webhooks/transactions/{it.identity}/{foreign(it.identity)}",
    "another channel": lambda it: f"/webhooks/print-jobs/{it.identity}/{it.token}",
}


async def test_a_forged_callback_changes_nothing(shop: Shop) -> None:
    payment = await shop.started()
    await quiet(shop.daemon)
    before = everything(shop.daemon)
    content = body(payment.identity, "APPROVAL", "APPROVAL_REQUESTED", payment.serial)
    for name, path in FORGED.items():
        answer = await deliver(shop.daemon, path(Genuine.of(payment)), content)
        assert (answer.status, answer.body) == (403, b""), name
    assert everything(shop.daemon) == before
    assert (await payment.get())["phase"] == "active"


async def test_the_right_token_with_the_event_of_another_payment_changes_neither_payment(shop: Shop) -> None:
    mine, other = await shop.started(), await shop.started()
    content = body(other.identity, "APPROVAL", "APPROVAL_REQUESTED", other.serial)
    assert (await deliver(shop.daemon, mine.requests[0].callback, content)).status == 400
    documents = [await mine.get(), await other.get()]
    assert [document["phase"] for document in documents] == ["active", "active"]
    assert [attention(document) for document in documents] == [{"quarantined_event"}, set()]


async def test_a_large_forged_body_is_refused_with_a_response(shop: Shop) -> None:
    await quiet(shop.daemon)
    before = everything(shop.daemon)
    answer = await deliver(shop.daemon, f"/webhooks/transactions/{uuid4()}/x", b" " * 10_000_000)
    assert answer.status == 403
    assert everything(shop.daemon) == before


async def test_a_refused_connection_is_closed(shop: Shop) -> None:
    """posd serves no second request on the connection. The forger needs a new handshake for each request."""
    payment = await shop.started()
    genuine = body(payment.identity, "TERMINAL_CANCELED", "TERMINAL_ACKNOWLEDGED", payment.serial)
    forged = post("https://x/webhooks/transactions/x/x", b"").replace(b"connection: close\r\n", b"")
    data = forged + post(payment.requests[0].callback, genuine)
    answers: list[Reply] = parse(await send(shop.daemon.port, shop.daemon.ca, data))
    assert [(answer.status, answer.headers["connection"]) for answer in answers] == [(403, "close")]
    assert (await payment.get())["phase"] == "active"
    assert address(shop.daemon, payment.identity) == urlsplit(payment.requests[0].callback).path


async def shown(shop: Shop, serial: str) -> dict[str, Any]:
    """Return what a callback of a terminal may change, except times: posd probes a terminal at any time."""
    found = (await shop.daemon.call("GET", "/terminals")).json["terminals"]
    (terminal,) = (item for item in found if item["serial"] == serial)
    claims = [claim | {"since": None} for claim in terminal["identity"].pop("claims")]
    return {name: terminal[name] for name in ("brand", "model", "base_url", "identity")} | {"claims": claims}


async def test_a_callback_that_names_another_terminal_changes_nothing_of_that_terminal(shop: Shop) -> None:
    """Only the terminal that was asked can answer (architecture, Promises)."""
    asked, other = await shop.started(), shop.payment().serial
    before = await shown(shop, other)
    strange = {"serial_number": other, "brand": "Strange", "model": "Strange"}
    event = body(asked.identity, "TERMINAL_ACKNOWLEDGED", terminal=strange)
    for _ in range(2):  # the second delivery repeats the first
        assert await asked.deliver(event) == 200
    assert attention(await asked.get()) == {"serial_mismatch"}
    assert await shown(shop, other) == before
    assert (await shown(shop, asked.serial))["brand"] is None
    assert await asked.event("CARD_PRESENTED", "TERMINAL_ACKNOWLEDGED") == 200
    assert (await shown(shop, asked.serial))["brand"] == "Brand"


async def test_an_orphan_changes_nothing_of_the_terminal_that_it_names(shop: Shop) -> None:
    """The database does not know which terminal was asked, so only the event names it."""
    serial, identity = shop.payment().serial, str(uuid4())
    before = await shown(shop, serial)
    path = address(shop.daemon, identity)
    for status, previous in (("TERMINAL_ACKNOWLEDGED", None), ("CARD_PRESENTED", "TERMINAL_ACKNOWLEDGED")):
        strange = {"serial_number": serial, "brand": "Strange", "model": "Strange"}
        content = body(identity, status, previous, terminal=strange)
        assert (await deliver(shop.daemon, path, content)).status == 200
    assert await shown(shop, serial) == before
