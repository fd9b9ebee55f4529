"""Clients for scripted terminals, without a fleet."""

from pathlib import Path
from typing import Any

import msgspec

from posd.config import TerminalConfig, parse
from posd.terminals import trust
from posd.terminals.authentication import Authentication, none
from posd.terminals.client import TerminalAccess
from tests.rig.terminal import ScriptedTerminal

#: Pin that no certificate has.
NO_PIN = {"fingerprint_sha256": "0" * 64}


def configured(**values: Any) -> TerminalConfig:
    """Return the configuration of one terminal. The time-outs are long."""
    (terminal,) = parse('[[terminals]]\nserial = "SN-TEST"\n', file=Path("config.toml")).terminals
    usual = {"connect_timeout_seconds": 30, "reply_timeout_seconds": 30}
    return msgspec.structs.replace(terminal, **(usual | values))


def access(
    terminal: ScriptedTerminal | None = None, authentication: Authentication = none, **values: Any
) -> TerminalAccess:
    """Return a client that trusts the terminal's CA. Without a terminal, it trusts no certificate."""
    config = configured(**({"ca_file": terminal.ca_file} if terminal is not None else NO_PIN), **values)
    return TerminalAccess(config, trust.context(config.ca_file, config.pin), authentication)
