"""The collector as a process: until a signal."""

import asyncio

import structlog

from posd.collect.collector import Collector
from posd.collect.store import WrongTables
from posd.config import Config
from posd.relay import process, scrape
from posd.relay.stream import ServerTooOld

EXIT_DONE = 0
EXIT_CONFIGURATION = 2

log = structlog.get_logger("posd.collect")


def run(config: Config) -> int:
    """Collect until SIGTERM or SIGINT; return the exit code."""
    return process.run(_run(config), config.logging.level)


async def _run(config: Config) -> int:
    collector = Collector(config.collect)
    try:
        async with scrape.served(config.collect.metrics_listen, collector.metrics):
            await collector.run()
    except asyncio.CancelledError:  # cancelled by a signal
        log.info("collect.stopped")
    except (WrongTables, ServerTooOld) as error:
        log.error("collect.refused", error=str(error))  # noqa: TRY400 - it is the whole story
        return EXIT_CONFIGURATION
    return EXIT_DONE
