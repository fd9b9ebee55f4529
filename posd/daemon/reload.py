"""Taking up a changed configuration while posd runs (SIGHUP): terminals, profile, log level, callback address, and the
certificate. One that is wrong is refused as a whole, and what was in force before goes on.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog

from posd.api.certificate import Pair, ServedCertificate
from posd.config import Config, ConfigError, ConfigProblem, HeaderError, load
from posd.config.schema import SECTIONS, keys
from posd.daemon.in_force import InForce, restart_words
from posd.daemon.systemd import notify
from posd.logs import output
from posd.records.callback_urls import CallbackUrls
from posd.terminals.fleet import Fleet

#: Keys that are taken up while posd runs, beside the terminals and the profile; of a section, where no key is named.
TAKEN_UP: Final = frozenset(
    {
        "logging",
        "terminal_defaults",
        "hash_encrypt",
        "print.document_member",
        "webhooks.advertise_host",
        "webhooks.public_url",
        "webhooks.certificate",
        "webhooks.private_key",
    }
)
#: Read by the commands alone; of a section, all of it.
OF_COMMANDS: Final = frozenset({"print.text_member", "relay", "collect"})

log = structlog.get_logger("posd.daemon")


@dataclass(eq=False, slots=True)
class Reloading:
    """Run `run` as a task; `asked` is set to ask for it."""

    running: Config
    in_force: InForce
    fleet: Fleet
    callback_urls: CallbackUrls
    certificate: ServedCertificate
    pair: Callable[[Config], Pair]
    status: Callable[[], str]
    _newest: Config = field(init=False)

    def __post_init__(self) -> None:
        self._newest = self.running

    async def run(self, asked: asyncio.Event) -> None:
        """Reload whenever it is asked for, until cancelled."""
        while True:
            await asked.wait()
            asked.clear()
            notify(RELOADING="1", MONOTONIC_USEC=str(time.monotonic_ns() // 1000), STATUS="reloading")
            await self._reload()
            await self.certificate.reload()
            notify(READY="1", STATUS=self.status())

    async def _reload(self) -> None:
        try:
            new = await asyncio.to_thread(load, self.running.file)
            made = await asyncio.to_thread(self.fleet.made, new.terminals)
        except (ConfigError, HeaderError, OSError) as error:
            detail = "what was in force before goes on; correct it (posd config check), and reload again"
            log.error("config.refused", error=str(error), detail=detail)  # noqa: TRY400 - its message is for people
            self.in_force.refuse(_problems(error, self.running.file))
            return
        changed = taken_up(self._newest, new)
        self._newest = new
        output.set_level(new.logging.level)
        self.callback_urls.use(new.webhooks.advertise_host, new.webhooks.public_url)
        self.certificate.use(self.pair(new))
        self.fleet.adopt(made, new.profiles)
        await self.fleet.warm_up()
        log.info(
            "config.loaded",
            detail="; ".join(changed) or "the same as before",
            fleet=list(self.fleet.serials),
        )
        keys = needs_restart(self.running, new)
        self.in_force.load(keys)
        if keys:
            log.warning("config.needs_restart", detail=restart_words(keys))


def _problems(error: Exception, file: Path) -> tuple[ConfigProblem, ...]:
    if isinstance(error, ConfigError):
        return error.problems
    return (ConfigProblem(str(file), "", f"cannot be used: {error}", "correct what it names"),)


def needs_restart(running: Config, new: Config) -> tuple[str, ...]:
    """Name the keys whose new values only a restart takes up."""
    known = TAKEN_UP | OF_COMMANDS
    return tuple(key for key in _differing(running, new) if not {key, key.partition(".")[0]} & known)


def taken_up(before: Config, new: Config) -> tuple[str, ...]:
    """Say what changes at once, in words; nothing where nothing does."""
    old = {terminal.serial: terminal for terminal in before.terminals}
    now = {terminal.serial: terminal for terminal in new.terminals}
    lists = {
        "added": [serial for serial in now if serial not in old],
        "removed": [serial for serial in old if serial not in now],
        "changed": [serial for serial in now if serial in old and now[serial] != old[serial]],
    }
    words = [f"terminals {what}: {', '.join(serials)}" for what, serials in lists.items() if serials]
    if new.profiles != before.profiles:
        words.append("the profile")
    return (*words, *(key for key in _differing(before, new) if {key, key.partition(".")[0]} & TAKEN_UP))


def _differing(one: Config, other: Config) -> tuple[str, ...]:
    return tuple(
        f"{name}.{key}"
        for name, section in SECTIONS.items()
        for key in keys(section)
        if getattr(one.section(name), key) != getattr(other.section(name), key)
    )
