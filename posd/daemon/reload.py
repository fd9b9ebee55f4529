"""Present configuration, and its reload (SIGHUP).

A reload applies terminals, profile, log level, callback address and certificate. If the new configuration has a
mistake, the present configuration stays unchanged.

posd stores a copy of the last working configuration. If the files have a mistake at a later start, posd uses the copy.
It does so only for the same file, and only with a state folder from the service manager.
"""

import asyncio
import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec
import structlog

from posd.api.documents import Check, ConfigurationError, ConfigurationState, RefusedConfiguration
from posd.base import files
from posd.base.clocks import ProcessMoment
from posd.base.problems import RemedyStep
from posd.base.times import iso
from posd.config import Config, ConfigError, ConfigProblem
from posd.config.layers import Layers
from posd.config.reader import whole
from posd.config.schema import SECTIONS, keys

#: Name of the copy in the state folder. The copy contains the secrets of the configuration.
NAME = "config.last"


class KeptFiles(msgspec.Struct, frozen=True):
    """Texts of the files in their order. `first`: the file of `--config`."""

    first: str
    texts: dict[str, str]


def store_copy(config: Config) -> None:
    """Store a working configuration: the texts of its files when they were read. Raise OSError."""
    if (place := _place()) is not None:
        texts = {str(layer.file): layer.text for layer in config.layers.files}
        files.replace(place, msgspec.json.encode(KeptFiles(str(config.layers.first), texts)))


def recall_copy(path: Path) -> Config | None:
    """Return the stored copy of a configuration file, or None if the file was removed or the copy is unusable."""
    place = _place()
    if place is None or not path.exists():
        return None
    try:
        kept = msgspec.json.decode(place.read_bytes(), type=KeptFiles)
        layers = Layers(path.absolute())
        for file, text in kept.texts.items():
            layers.add(Path(file), text)
        return whole(layers) if kept.first == str(layers.first) else None
    except (OSError, msgspec.DecodeError, ConfigError):
        return None


def _place() -> Path | None:
    folder = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
    return Path(folder, NAME) if folder else None


#: Keys that a reload applies, in addition to the terminals and the profile. A section's name stands for all its keys.
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
#: Keys that only the commands read. A section's name stands for all its keys.
OF_COMMANDS: Final = frozenset({"print.text_member", "relay", "collect"})

log = structlog.get_logger("posd.daemon")


class InForce:
    """The newest loaded configuration, and the refusal of a newer configuration.

    `refused` is empty without a refusal.
    """

    def __init__(self, config: Config, now: Callable[[], datetime], elapsed: Callable[[], float]) -> None:
        """`elapsed`: seconds since the boot, including sleep."""
        self.at_start = self.config = config
        self._now = now
        self._elapsed = elapsed
        self._loaded = self._refused = ProcessMoment(elapsed)
        self.refused: tuple[ConfigProblem, ...] = ()
        self.needs_restart: tuple[str, ...] = ()

    def refuse(self, problems: tuple[ConfigProblem, ...]) -> None:
        """Record the problems of a newer configuration. The problems are shown until a configuration is loaded."""
        self._refused, self.refused = ProcessMoment(self._elapsed), problems

    def load(self, config: Config, needs_restart: tuple[str, ...]) -> None:
        """Record that a newer configuration was loaded."""
        self.config, self.needs_restart = config, needs_restart
        self._loaded, self.refused = ProcessMoment(self._elapsed), ()

    @property
    def loaded_at(self) -> str:
        """Time at which the configuration was loaded."""
        return iso(self._loaded.at(self._now()))

    @property
    def refused_at(self) -> str:
        """Time at which the newer configuration was refused."""
        return iso(self._refused.at(self._now()))

    def check(self) -> Check:
        """Return the check of the configuration for the health report."""
        if not self.refused:
            words = f"loaded at {self.loaded_at}"
            if self.needs_restart:
                words += f"; {restart_words(self.needs_restart)}"
            return Check.of("ok", words)
        first, more = self.refused[0], len(self.refused) - 1
        words = f"a changed configuration was refused at {self.refused_at}: {first.what}"
        words += f" (and {more} more)" if more else ""
        return Check.of(
            "degraded",
            f"{words}. posd goes on with the configuration of {self.loaded_at}",
            RemedyStep(first.cure),
            RemedyStep("then", "posd config check && sudo systemctl reload posd"),
            reason="refused",
        )

    def state(self) -> ConfigurationState:
        """Return the state of the configuration for `GET /status`."""
        errors = [ConfigurationError(p.file, p.line, p.key, f"{p.reason}; {p.cure}") for p in self.refused]
        refused = RefusedConfiguration(self.refused_at, errors) if errors else None
        return ConfigurationState(self.loaded_at, refused, list(self.needs_restart))


def restart_words(keys: tuple[str, ...]) -> str:
    """Return text about the changes that need a restart."""
    return f"the change of {', '.join(keys)} needs a restart: systemctl restart posd"


async def keep(config: Config) -> None:
    """Store a working configuration, for a start with a mistake in its files."""
    try:
        await asyncio.to_thread(store_copy, config)
    except OSError as error:
        log.warning("config.not_kept", error=str(error))


def problems(error: ConfigError | OSError, file: Path) -> tuple[ConfigProblem, ...]:
    """Return the problems of a configuration that cannot be used. An OSError concerns a file that a terminal needs."""
    if isinstance(error, ConfigError):
        return error.problems
    return (ConfigProblem(str(file), "", f"cannot be used: {error}", "correct what it names"),)


def applied(running: Config, new: Config) -> Config:
    """Return the running configuration, with new values of the keys in `[webhooks]` that a reload applies.

    The other keys keep their values. So the path of posd's CA still follows from the database that is open.
    """
    names = [name for name in keys(SECTIONS["webhooks"]) if f"webhooks.{name}" in TAKEN_UP]
    webhooks = {name: getattr(new.webhooks, name) for name in names}
    return msgspec.structs.replace(running, webhooks=msgspec.structs.replace(running.webhooks, **webhooks))


def needs_restart(running: Config, new: Config) -> tuple[str, ...]:
    """Return the keys whose new values need a restart."""
    known = TAKEN_UP | OF_COMMANDS
    return tuple(key for key in _differing(running, new) if not {key, key.partition(".")[0]} & known)


def taken_up(before: Config, new: Config) -> tuple[str, ...]:
    """Return the changes that apply at once, as text."""
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
