"""Effects of the wires on requests and callbacks in the scenarios. Each effect applies to one exchange."""

from collections.abc import Awaitable, Callable
from typing import Any

from tests.crash.printing import WEBHOOKS, creates
from tests.crash.relay import Exchange
from tests.crash.world import World

#: Effect on one exchange. The effect returns the reply to the caller, or None without a reply.
Wire = Callable[[World, Exchange], Awaitable[bytes | None]]
#: Condition on an exchange.
Which = Callable[[World, Exchange], bool]

GONE = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
REFUSED = b"HTTP/1.1 409 Conflict\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}"


async def passed(_world: World, exchange: Exchange) -> bytes | None:
    """Pass the exchange on."""
    return await exchange.forward()


async def reply_lost(_world: World, exchange: Exchange) -> bytes | None:
    """Pass the exchange on, and lose the reply."""
    await exchange.forward()
    return None


def replied(reply: bytes | None) -> Wire:
    """Return a wire with this reply instead of the server's. None loses the request after it was written."""

    async def wire(_world: World, _exchange: Exchange) -> bytes | None:
        return reply

    return wire


def where(applies: Which, what: Wire, otherwise: Wire = passed) -> Wire:
    """Return a wire with this effect on some exchanges, and another effect on all others."""

    async def wire(world: World, exchange: Exchange) -> bytes | None:
        return await (what if applies(world, exchange) else otherwise)(world, exchange)

    return wire


def after(kind: str, reply: bytes | None = None, **fields: Any) -> Wire:
    """Return a wire that passes the exchange on, and delivers the reply after this line in the terminal's ledger. With
    `reply` the wire delivers another reply.
    """

    async def wire(world: World, exchange: Exchange) -> bytes | None:
        found = await exchange.forward()
        await world.terminal.ledger.wait_for(kind, client_transaction_id=world.payment.identity, **fields)
        return reply or found

    return wire


def start_is(what: Wire, otherwise: Wire = passed) -> Wire:
    """Return a wire with this effect on the start of the scenario's payment."""
    return where(_is_start, what, otherwise)


def events_are(what: Wire) -> Wire:
    """Return a wire with this effect on the callbacks of the scenario's payment."""
    return where(lambda world, item: bool(item.json["client_transaction_id"] == world.payment.identity), what)


def _is_start(world: World, exchange: Exchange) -> bool:
    if exchange.method != "POST" or not exchange.path.endswith("/charge"):
        return False
    return bool(exchange.json["client_transaction_id"] == world.payment.identity)


def _closed(world: World, _exchange: Exchange) -> bool:
    return not world.opened.is_set()


def _repeated(world: World, exchange: Exchange) -> bool:
    return any(item.body == exchange.body and item.status == 200 for item in world.callbacks.exchanges)


#: Lose the first response to each event, so that the terminal sends the event again.
answer_lost = where(_repeated, passed, reply_lost)
#: Lose the card event permanently.
card_lost = where(lambda _world, exchange: bool(exchange.json["status"] == "CARD_PRESENTED"), replied(GONE))
#: Block callbacks until the scenario opens the wire. The terminal retries.
blocked = where(_closed, replied(None))
#: Lose the reply to the start, and block searches until the scenario opens them.
start_lost_search_closed = where(
    lambda world, exchange: exchange.path.endswith("/transaction_search_online") and _closed(world, exchange),
    replied(GONE),
    start_is(reply_lost),
)
#: Act as the terminal: accept a print job, and lose the reply.
creation_lost = where(lambda _world, exchange: creates(exchange), reply_lost)
#: Let another device reply to the print webhooks, so that posd never gets a webhook.
webhooks_astray = where(lambda _world, exchange: exchange.path.startswith(WEBHOOKS), replied(GONE))
