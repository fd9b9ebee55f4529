"""The configuration in force, and the refusal of a newer one: for health, metrics, status and the log."""

from collections.abc import Callable
from datetime import datetime

from posd.api.documents import Check, ConfigurationError, ConfigurationState, RefusedConfiguration
from posd.base.times import iso
from posd.clock.kernel import ProcessMoment
from posd.config import Config, ConfigProblem


class InForce:
    """The newest loaded configuration, and the refusal of a newer one.

    `refused` is empty without one.
    """

    def __init__(self, config: Config, now: Callable[[], datetime], elapsed: Callable[[], float]) -> None:
        """`elapsed`: seconds since the boot, sleep included."""
        self.config = config
        self._now = now
        self._elapsed = elapsed
        self._loaded = self._refused = ProcessMoment(elapsed)
        self.refused: tuple[ConfigProblem, ...] = ()
        self.needs_restart: tuple[str, ...] = ()

    def refuse(self, problems: tuple[ConfigProblem, ...]) -> None:
        """Record the problems of a newer configuration, until one is loaded."""
        self._refused, self.refused = ProcessMoment(self._elapsed), problems

    def load(self, config: Config, needs_restart: tuple[str, ...]) -> None:
        """Record that a newer configuration was loaded."""
        self.config, self.needs_restart = config, needs_restart
        self._loaded, self.refused = ProcessMoment(self._elapsed), ()

    @property
    def loaded_at(self) -> str:
        """Time at which it was loaded."""
        return iso(self._loaded.at(self._now()))

    @property
    def refused_at(self) -> str:
        """Time at which the newer one was refused."""
        return iso(self._refused.at(self._now()))

    def check(self) -> Check:
        """Return the check of the health resource."""
        if not self.refused:
            words = f"loaded at {self.loaded_at}"
            if self.needs_restart:
                words += f"; {restart_words(self.needs_restart)}"
            return Check("ok", words, "")
        first, more = self.refused[0], len(self.refused) - 1
        words = f"a changed configuration was refused at {self.refused_at}: {first.what}"
        words += f" (and {more} more)" if more else ""
        return Check(
            "degraded",
            f"{words}. What was loaded at {self.loaded_at} goes on",
            f"{first.cure}; then: posd config check && systemctl reload posd",
        )

    def state(self) -> ConfigurationState:
        """Return its document."""
        errors = [ConfigurationError(p.file, p.line, p.key, f"{p.reason}; {p.cure}") for p in self.refused]
        refused = RefusedConfiguration(self.refused_at, errors) if errors else None
        return ConfigurationState(self.loaded_at, refused, list(self.needs_restart))


def restart_words(keys: tuple[str, ...]) -> str:
    """Return a sentence about the changes that wait for a restart."""
    return f"what has changed in {', '.join(keys)} is taken up by a restart alone: systemctl restart posd"
