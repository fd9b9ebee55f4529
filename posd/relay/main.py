"""The relay as a process: until a signal, or once."""

import asyncio

import structlog

from posd.client.errors import Problem, Unreachable
from posd.config import Config
from posd.relay import process, scrape
from posd.relay.feed import FeedClient
from posd.relay.relay import LaneIdentity, Relay, RelayStopped
from posd.relay.stream import ServerTooOld, StreamAway

EXIT_DONE = 0
EXIT_REFUSED = 1
EXIT_CONFIGURATION = 2
EXIT_UNREACHABLE = 3

log = structlog.get_logger("posd.relay")


def run(config: Config, lane: str, *, once: bool, restart_at: int | None, begin: bool) -> int:
    """Run the relay of a lane; return the exit code. `restart_at` and `begin` as in `Relay`."""
    return process.run(
        _run(config, LaneIdentity(config.merchant.id, lane), once, restart_at, begin), config.logging.level
    )


async def _run(config: Config, lane: LaneIdentity, once: bool, restart_at: int | None, begin: bool) -> int:
    feed = FeedClient(config.local_api.feed_socket, limit=config.relay.batch, metadata=config.relay.metadata)
    relay = Relay(config.relay, lane, feed, restart_at, begin)
    try:
        if once:
            await relay.once()
        else:
            async with scrape.served(config.relay.metrics_listen, relay.counts.text):
                await relay.run()
    except asyncio.CancelledError:  # cancelled by a signal
        log.info("relay.stopped")
    except RelayStopped as error:
        log.error("relay.refused", error=str(error), detail=error.todo)  # noqa: TRY400 - it is the whole story
        return EXIT_REFUSED
    except ServerTooOld as error:
        log.error("relay.refused", error=str(error), detail="Upgrade the servers, or use one alone")  # noqa: TRY400
        return EXIT_CONFIGURATION
    except (StreamAway, Unreachable, Problem) as error:
        log.error("relay.away", error=str(error), detail=getattr(error, "todo", None))  # noqa: TRY400
        return EXIT_UNREACHABLE
    finally:
        await feed.close()
    return EXIT_DONE
