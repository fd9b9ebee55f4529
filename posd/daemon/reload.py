"""Reload of a changed configuration (SIGHUP): terminals, profile, log level, callback address, and the certificate.

A wrong one is refused completely, and the present one stays in force.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from posd.api.certificate import CertificatePair, ServedCertificate
from posd.config import Config, ConfigError, ConfigProblem, HeaderError, kept, load
from posd.config.schema import SECTIONS, keys
from posd.daemon.in_force import InForce, restart_words
from posd.daemon.systemd import notify
from posd.logs import output
from posd.records.callback_urls import CallbackUrls
from posd.terminals.fleet import Fleet

#: Keys that a reload applies, besides the terminals and the profile; a section's name covers all its keys.
TAKEN_UP: Final = frozenset(
    {
        "logging",
        "terminal_defaults",
        "hash_encrypt",
        "print.document_member",
        "relay.metadata",
        "webhooks.advertise_host",
        "webhooks.public_url",
        "webhooks.certificate",
        "webhooks.private_key",
    }
)
#: Keys that only the commands read; a section's name covers all its keys.
OF_COMMANDS: Final = frozenset({"print.text_member", "relay", "collect"})

log = structlog.get_logger("posd.daemon")


@dataclass(eq=False, slots=True)
class Reloader:
    """Reload of the configuration. Run `run` as a task; setting `asked` requests a reload."""

    running: Config
    in_force: InForce
    fleet: Fleet
    callback_urls: CallbackUrls
    certificate: ServedCertificate
    pair: Callable[[Config], CertificatePair]
    status: Callable[[], str]

    async def run(self, asked: asyncio.Event) -> None:
        """Reload on each request, until cancelled."""
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
            resolved = await asyncio.to_thread(self.fleet.resolve_settings, new.terminals)
        except (ConfigError, HeaderError, OSError) as error:
            detail = "what was in force before goes on; correct it (posd config check), and reload again"
            log.error("config.refused", error=str(error), detail=detail)  # noqa: TRY400 - its message is for people
            self.in_force.refuse(_problems(error, self.running.file))
            return
        changed = taken_up(self.in_force.config, new)
        output.set_level(new.logging.level)
        self.callback_urls.use(new.webhooks.advertise_host, new.webhooks.public_url)
        self.certificate.use(self.pair(new))
        self.fleet.adopt(resolved, new.profiles)
        keys = needs_restart(self.running, new)
        self.in_force.load(new, keys)
        await keep(new)
        await self.fleet.warm_up()
        log.info("config.loaded", detail="; ".join(changed) or "the same as before", fleet=list(self.fleet.serials))
        if keys:
            log.warning("config.needs_restart", detail=restart_words(keys))


async def keep(config: Config) -> None:
    """Store a working configuration, for a start with a mistake in its files."""
    try:
        await asyncio.to_thread(kept.keep, config)
    except OSError as error:
        log.warning("config.not_kept", error=str(error))


def _problems(error: Exception, file: Path) -> tuple[ConfigProblem, ...]:
    if isinstance(error, ConfigError):
        return error.problems
    return (ConfigProblem(str(file), "", f"cannot be used: {error}", "correct what it names"),)


def needs_restart(running: Config, new: Config) -> tuple[str, ...]:
    """Return the keys whose new values need a restart."""
    known = TAKEN_UP | OF_COMMANDS
    return tuple(key for key in _differing(running, new) if not {key, key.partition(".")[0]} & known)


def taken_up(before: Config, new: Config) -> tuple[str, ...]:
    """Return the changes that apply at once, in words."""
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
