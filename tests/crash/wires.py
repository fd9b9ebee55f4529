"""Effects of the wires on requests and callbacks in the scenarios. Each effect applies to one exchange."""

from collections.abc import Awaitable, Callable

from tests.crash.printing import WEBHOOKS, creates
from tests.crash.relay import Exchange
from tests.crash.world import World

#: Effect on one exchange. The effect returns the reply to the caller, or None without a reply.
Wire = Callable[[World, Exchange], Awaitable[bytes | None]]

GONE = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
REFUSED = b"HTTP/1.1 409 Conflict\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}"


async def to_terminal(world: World, exchange: Exchange) -> bytes | None:
    """Pass the exchange on to the terminal."""
    return await world.wire.forward(exchange)


def start_is(what: Wire) -> Wire:
    """Return a wire with this effect on the start of the scenario's payment. The wire passes on every other
    exchange.
    """

    async def wire(world: World, exchange: Exchange) -> bytes | None:
        return await (what if _is_start(world, exchange) else to_terminal)(world, exchange)

    return wire


async def reply_lost(world: World, exchange: Exchange) -> bytes | None:
    """Pass the exchange on, and lose the reply."""
    await world.wire.forward(exchange)
    return None


async def swallowed(_world: World, _exchange: Exchange) -> bytes | None:
    """Lose the request after it was written."""
    return None


async def reply_late(world: World, exchange: Exchange) -> bytes | None:
    """Deliver the reply after the end of the payment, when the terminal has tried to report the end."""
    reply = await world.wire.forward(exchange)
    identity = world.payment.identity
    await world.terminal.ledger.wait_for("attempt", client_transaction_id=identity, status="APPROVAL")
    return reply


async def reply_after_abort(world: World, exchange: Exchange) -> bytes | None:
    """Deliver the reply after the terminal got the abort."""
    reply = await world.wire.forward(exchange)
    await world.terminal.ledger.wait_for("abort", client_transaction_id=world.payment.identity)
    return reply


async def refused_after_event(world: World, exchange: Exchange) -> bytes | None:
    """Act as the terminal: accept the start, report an event, and then reply with a refusal."""
    await world.wire.forward(exchange)
    identity = world.payment.identity
    await world.terminal.ledger.wait_for("attempt", client_transaction_id=identity, retry_in_seconds=None)
    return REFUSED


async def start_lost_search_closed(world: World, exchange: Exchange) -> bytes | None:
    """Lose the reply to the start, and block searches until the scenario opens them."""
    if exchange.path.endswith("/transaction_search_online") and not world.opened.is_set():
        return GONE
    return await start_is(reply_lost)(world, exchange)


async def to_daemon(world: World, exchange: Exchange) -> bytes | None:
    """Pass the exchange on to the daemon."""
    return await world.callbacks.forward(exchange)


def events_are(what: Wire) -> Wire:
    """Return a wire with this effect on the callbacks of the scenario's payment. The wire passes on every other
    exchange.
    """

    async def wire(world: World, exchange: Exchange) -> bytes | None:
        ours = exchange.json["client_transaction_id"] == world.payment.identity
        return await (what if ours else to_daemon)(world, exchange)

    return wire


async def answer_lost(world: World, exchange: Exchange) -> bytes | None:
    """Lose the first response to each event, so that the terminal sends the event again."""
    before = sum(1 for item in world.callbacks.exchanges if item.body == exchange.body and item.status == 200)
    reply = await world.callbacks.forward(exchange)
    return reply if before else None


async def card_lost(world: World, exchange: Exchange) -> bytes | None:
    """Lose the card event permanently."""
    return GONE if exchange.json["status"] == "CARD_PRESENTED" else await to_daemon(world, exchange)


async def blocked(world: World, exchange: Exchange) -> bytes | None:
    """Block callbacks until the scenario opens the wire. The terminal retries."""
    return await world.callbacks.forward(exchange) if world.opened.is_set() else None


async def astray(_world: World, _exchange: Exchange) -> bytes | None:
    """Let another device reply to the callbacks, so that the terminal gives up each event."""
    return GONE


async def creation_lost(world: World, exchange: Exchange) -> bytes | None:
    """Act as the terminal: accept a print job, and lose the reply."""
    reply = await to_terminal(world, exchange)
    return None if creates(exchange) else reply


async def webhooks_astray(world: World, exchange: Exchange) -> bytes | None:
    """Let another device reply to the print webhooks, so that posd never gets a webhook."""
    return GONE if exchange.path.startswith(WEBHOOKS) else await to_daemon(world, exchange)


def _is_start(world: World, exchange: Exchange) -> bool:
    """Return whether an exchange with the terminal is the start of the scenario's payment."""
    return (
        exchange.method == "POST"
        and exchange.path.endswith("/charge")
        and (exchange.json["client_transaction_id"] == world.payment.identity)
    )
