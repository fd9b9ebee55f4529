"""Configuration of a terminal with its secrets and its client, resolved from the configuration file."""

import functools
import ssl
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from posd.base.clocks import wall
from posd.config import TerminalConfig
from posd.terminals import trust
from posd.terminals.auth import schemes
from posd.terminals.auth.webhooks import Verifier

if TYPE_CHECKING:
    from posd.terminals.client import TerminalAccess


class TerminalSettings:
    """Configuration of a terminal, with its secrets resolved.

    `make`: makes the client for its calls, at first use. `webhooks`: verifies the signatures of its webhooks, None if
    none is expected.
    """

    def __init__(
        self, config: TerminalConfig, make: "Callable[[], TerminalAccess]", webhooks: Verifier | None = None
    ) -> None:
        self.config = config
        self.webhooks = webhooks
        self._make = make

    @cached_property
    def device(self) -> "TerminalAccess":
        """The client for calls to it; a single one, even if loop and thread create it at once."""
        return vars(self).setdefault("device", self._make())  # type: ignore[no-any-return]

    @property
    def is_called(self) -> bool:
        """Whether its client was made."""
        return "device" in vars(self)


def resolve_settings(
    terminals: Iterable[TerminalConfig], now: Callable[[], datetime] = wall
) -> dict[str, TerminalSettings]:
    """Resolve trust, headers and secrets of each terminal; return the settings by serial. Blocking.

    Raise OSError or HeaderError if a file cannot be used.
    """
    contexts = functools.cache(trust.context)  # reading the system's CAs takes long: once is enough
    return {
        terminal.serial: TerminalSettings(
            terminal, _client_maker(terminal, contexts, now), schemes.of_webhooks(terminal)
        )
        for terminal in terminals
    }


def _client_maker(
    terminal: TerminalConfig,
    contexts: Callable[..., ssl.SSLContext],
    now: Callable[[], datetime],
) -> "Callable[[], TerminalAccess]":
    """Read the settings of a terminal's calls; return a maker of the client, which is large and not needed at start.

    Raise OSError or HeaderError.
    """
    authenticates = schemes.of(terminal, now)
    if terminal.ca_file is not None or terminal.pin is not None:
        # reports an unusable file at the start
        contexts(terminal.ca_file, terminal.pin, system=False)
    secure = (terminal.base_url or f"{terminal.scheme}:").lower().startswith("https:")

    def make() -> "TerminalAccess":
        from posd.terminals.client import TerminalAccess

        return TerminalAccess(
            trust=(
                contexts(terminal.ca_file, terminal.pin, system=terminal.trusts_system) if secure else trust.nobody()
            ),
            connect_timeout=terminal.connect_timeout_seconds,
            reply_timeout=terminal.reply_timeout_seconds,
            authentication=authenticates,
            server_name=terminal.server_name,
            ca_file=terminal.ca_file,
            trusts_system=terminal.trusts_system,
            serial=terminal.serial if terminal.ca_file is not None else "",
            window=None if terminal.auth == "none" else terminal.hash_encrypt.window_seconds,
            now=now,
        )

    return make
