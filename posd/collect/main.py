"""The collector as a process: until a signal."""

import asyncio
import signal

import structlog

from posd.collect.collector import Collector
from posd.collect.store import WrongTables
from posd.config import Config
from posd.logs import output
from posd.relay.stream import ServerTooOld

EXIT_DONE = 0
EXIT_CONFIGURATION = 2

log = structlog.get_logger("posd.collect")


def run(config: Config) -> int:
    """Collect until SIGTERM or SIGINT; return the exit code."""
    output.configure(config.logging.level)
    try:
        return asyncio.run(_run(config))
    finally:
        output.floods.tell()
        output.flush()


async def _run(config: Config) -> int:
    task = asyncio.ensure_future(Collector(config.collect).run())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        log.info("collect.stopped")
    except (WrongTables, ServerTooOld) as error:
        log.error("collect.refused", error=str(error))  # noqa: TRY400 - it is the whole story
        return EXIT_CONFIGURATION
    return EXIT_DONE
