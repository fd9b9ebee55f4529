"""What the wires do to requests and callbacks in the scenarios, exchange by exchange."""

from collections.abc import Awaitable, Callable

from tests.crash.printing import WEBHOOKS, creates
from tests.crash.relay import Exchange
from tests.crash.world import World

#: Effect on one exchange: the reply on the wire, None if the caller gets none.
Wire = Callable[[World, Exchange], Awaitable[bytes | None]]

GONE = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
REFUSED = b"HTTP/1.1 409 Conflict\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}"


async def to_terminal(world: World, exchange: Exchange) -> bytes | None:
    """Pass it on."""
    return await world.wire.forward(exchange)


def start_is(what: Wire) -> Wire:
    """Apply that to the start of the scenario's payment, and pass on everything else."""

    async def wire(world: World, exchange: Exchange) -> bytes | None:
        return await (what if _is_start(world, exchange) else to_terminal)(world, exchange)

    return wire


async def reply_lost(world: World, exchange: Exchange) -> bytes | None:
    """The terminal gets it, and its reply does not come back."""
    await world.wire.forward(exchange)
    return None


async def swallowed(_world: World, _exchange: Exchange) -> bytes | None:
    """The request was written, and never reached the terminal."""
    return None


async def reply_late(world: World, exchange: Exchange) -> bytes | None:
    """The reply comes when the payment is over, and the terminal has tried to say so."""
    reply = await world.wire.forward(exchange)
    identity = world.payment.identity
    await world.terminal.ledger.wait_for("attempt", client_transaction_id=identity, status="APPROVAL")
    return reply


async def reply_after_abort(world: World, exchange: Exchange) -> bytes | None:
    """The reply comes when the terminal was asked to abort."""
    reply = await world.wire.forward(exchange)
    await world.terminal.ledger.wait_for("abort", client_transaction_id=world.payment.identity)
    return reply


async def refused_after_event(world: World, exchange: Exchange) -> bytes | None:
    """The terminal accepts it and reports an event; then a reply claims that it was refused."""
    await world.wire.forward(exchange)
    identity = world.payment.identity
    await world.terminal.ledger.wait_for("attempt", client_transaction_id=identity, retry_in_seconds=None)
    return REFUSED


async def start_lost_search_closed(world: World, exchange: Exchange) -> bytes | None:
    """The start's reply is lost, and searches lead nowhere until the scenario opens them."""
    if exchange.path.endswith("/transaction_search_online") and not world.opened.is_set():
        return GONE
    return await start_is(reply_lost)(world, exchange)


async def to_daemon(world: World, exchange: Exchange) -> bytes | None:
    """Pass it on."""
    return await world.callbacks.forward(exchange)


def events_are(what: Wire) -> Wire:
    """Apply that to the callbacks of the scenario's payment, and pass on everything else."""

    async def wire(world: World, exchange: Exchange) -> bytes | None:
        ours = exchange.json["client_transaction_id"] == world.payment.identity
        return await (what if ours else to_daemon)(world, exchange)

    return wire


async def answer_lost(world: World, exchange: Exchange) -> bytes | None:
    """The first answer to each event is lost, so that it comes again."""
    before = sum(1 for item in world.callbacks.exchanges if item.body == exchange.body and item.status == 200)
    reply = await world.callbacks.forward(exchange)
    return reply if before else None


async def card_lost(world: World, exchange: Exchange) -> bytes | None:
    """The event of the presented card is lost permanently."""
    return GONE if exchange.json["status"] == "CARD_PRESENTED" else await to_daemon(world, exchange)


async def blocked(world: World, exchange: Exchange) -> bytes | None:
    """No callback comes through until the scenario opens the way; the terminal tries again."""
    return await world.callbacks.forward(exchange) if world.opened.is_set() else None


async def astray(_world: World, _exchange: Exchange) -> bytes | None:
    """Another device answers the callbacks, for good: the terminal gives each event up."""
    return GONE


async def creation_lost(world: World, exchange: Exchange) -> bytes | None:
    """The terminal takes a print job, and its reply does not come back."""
    reply = await to_terminal(world, exchange)
    return None if creates(exchange) else reply


async def webhooks_astray(world: World, exchange: Exchange) -> bytes | None:
    """Another device answers the print webhooks: posd never sees one."""
    return GONE if exchange.path.startswith(WEBHOOKS) else await to_daemon(world, exchange)


def _is_start(world: World, exchange: Exchange) -> bool:
    """Whether an exchange with the terminal is the start of the scenario's payment."""
    return (
        exchange.method == "POST"
        and exchange.path.endswith("/charge")
        and (exchange.json["client_transaction_id"] == world.payment.identity)
    )
