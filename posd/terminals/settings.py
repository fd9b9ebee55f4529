"""Settings of a terminal: its configuration with secrets and client."""

import functools
import ssl
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from posd.base.clocks import wall
from posd.config import TerminalConfig
from posd.terminals import authentication, trust
from posd.terminals.authentication import Verifier

if TYPE_CHECKING:
    from posd.terminals.client import TerminalAccess


class TerminalSettings:
    """Configuration of a terminal with its secrets.

    `make`: creates the client at the first call. `webhooks`: verifier of webhook signatures, or None if none is
    required.
    """

    def __init__(
        self, config: TerminalConfig, make: "Callable[[], TerminalAccess]", webhooks: Verifier | None = None
    ) -> None:
        self.config = config
        self.webhooks = webhooks
        self._make = make

    @cached_property
    def device(self) -> "TerminalAccess":
        """The client for calls. Only one is created, even if the event loop and a thread need it at the same time."""
        return vars(self).setdefault("device", self._make())  # type: ignore[no-any-return]

    @property
    def is_called(self) -> bool:
        """Whether the client was created."""
        return "device" in vars(self)


def resolve_settings(
    terminals: Iterable[TerminalConfig], now: Callable[[], datetime] = wall
) -> dict[str, TerminalSettings]:
    """Read certificates, headers and secrets of each terminal. Return the settings by serial. Blocking.

    Raise OSError or HeaderError if a file cannot be used.
    """
    contexts = functools.cache(trust.context)  # reading the system's CAs takes long, so read them once
    return {
        terminal.serial: TerminalSettings(terminal, _client_maker(terminal, contexts, now), webhook_verifier(terminal))
        for terminal in terminals
    }


def _client_maker(
    terminal: TerminalConfig,
    contexts: Callable[..., ssl.SSLContext],
    now: Callable[[], datetime],
) -> "Callable[[], TerminalAccess]":
    """Read the settings of a terminal's calls. Return a function that creates the client, which is large and not needed
    at start.

    Raise OSError or HeaderError.
    """
    authenticates = authentication_of(terminal, now)
    if terminal.ca_file is not None or terminal.pin is not None:
        # report an unusable file at the start
        contexts(terminal.ca_file, terminal.pin, system=False)
    secure = (terminal.base_url or f"{terminal.scheme}:").lower().startswith("https:")

    def make() -> "TerminalAccess":
        from posd.terminals.client import TerminalAccess

        return TerminalAccess(
            trust.TerminalTrust(
                contexts(terminal.ca_file, terminal.pin, system=terminal.trusts_system) if secure else trust.nobody(),
                server_name=terminal.server_name,
                ca_file=terminal.ca_file,
                trusts_system=terminal.trusts_system,
                serial=terminal.serial if terminal.ca_file is not None else "",
            ),
            connect_timeout=terminal.connect_timeout_seconds,
            reply_timeout=terminal.reply_timeout_seconds,
            authentication=authenticates,
            window=None if terminal.auth == "none" else terminal.hash_encrypt.window_seconds,
            now=now,
        )

    return make


def authentication_of(terminal: TerminalConfig, now: Callable[[], datetime]) -> authentication.Authentication:
    """Read the secrets of a terminal, and return its configured authentication.

    Raise HeaderError if a secret cannot be read. Blocking.
    """
    values = {name: header.resolve() for name, header in terminal.headers.items()}
    beside = authentication.headers(values) if values else authentication.none
    if terminal.auth == "none":
        return beside
    assert terminal.business_code is not None  # noqa: S101 - the configuration is refused without one
    scheme = _scheme(terminal, terminal.business_code.resolve(), lambda: now().timestamp())
    return lambda request: scheme(beside(request))


def webhook_verifier(terminal: TerminalConfig) -> Verifier | None:
    """Read the secret of a terminal's webhooks, and return their verifier, or None if no signature is required.

    Raise HeaderError if the secret cannot be read. Blocking.
    """
    if not terminal.webhook_signature:
        return None
    assert terminal.secret_of_webhooks is not None  # noqa: S101 - the configuration is refused without one
    return Verifier(terminal.webhook_signature, terminal.secret_of_webhooks.resolve())


def _scheme(terminal: TerminalConfig, business_code: str, now: Callable[[], float]) -> authentication.Authentication:
    if terminal.auth == "hmac":
        return authentication.hmac_sha256(business_code, now)
    from posd.terminals.hash_encrypt import hash_encrypt  # imported late: it loads the encryption library

    return hash_encrypt(business_code, terminal.serial, terminal.hash_encrypt, now)
