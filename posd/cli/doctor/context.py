"""What the checks look at, and what they leave for each other: a check reads what earlier ones have found out."""

import os
import pwd
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from posd import tls
from posd.cli.app.parameters import user_name
from posd.config import Config, ConfigProblem, TerminalConfig

# What the doctor says: one finding a thing that was looked at.


class Status(StrEnum):
    """How well it is. A warning does not keep payments from being taken now; a failure does, or soon will."""

    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"


class Said(msgspec.Struct, frozen=True):
    """What a check says of a subject: its status, what that means, and what to do ("" where there is nothing)."""

    status: Status
    subject: str
    meaning: str
    todo: str = ""


class Finding(msgspec.Struct, frozen=True):
    """The same with the name of the check, as `posd doctor --json` prints it."""

    check: str
    subject: str
    status: Status
    meaning: str
    todo: str


#: What a check returns: it yields what it finds as it finds it, so that a time limit loses only the rest.
Findings = Iterator[Said]


def ok(subject: object, meaning: str, todo: str = "") -> Said:
    """Say that something is as it should be."""
    return Said(Status.OK, str(subject), meaning, todo)


def warning(subject: object, meaning: str, todo: str) -> Said:
    """Say that something should be looked at."""
    return Said(Status.WARNING, str(subject), meaning, todo)


def failure(subject: object, meaning: str, todo: str) -> Said:
    """Say that something has to be mended."""
    return Said(Status.FAILURE, str(subject), meaning, todo)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a terminal is called, and how that is known: "config" or "mdns"."""

    base_url: str
    source: str


@dataclass(slots=True)
class Running:
    """What is known of the daemon: `answers` is whether the local API did.

    `pid` and `uid` are those of its process (None: not known), `health` and `terminals` what the local API answers.
    """

    answers: bool = False
    pid: int | None = None
    uid: int | None = None
    health: dict[str, Any] = field(default_factory=dict)
    terminals: list[dict[str, Any]] = field(default_factory=list)

    @property
    def there(self) -> bool:
        """Whether a daemon lives, answering or not."""
        return self.answers or self.pid is not None


@dataclass(slots=True)
class Shop:
    """The set-up under examination. `config` is None where the file cannot be read; `socket` is that of --socket.

    `found` is all that was said so far. `clocks`: what -> how many seconds its clock is ahead of this machine's.
    """

    config_file: Path
    config: Config | None
    problems: tuple[ConfigProblem, ...]
    socket: Path | None = None
    running: Running = field(default_factory=Running)
    addresses: dict[str, Address] = field(default_factory=dict)
    clocks: dict[str, float] = field(default_factory=dict)
    found: list[Finding] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.config is not None:
            self.addresses |= {one.serial: Address(one.base_url, "config") for one in self.terminals if one.base_url}

    @property
    def settings(self) -> Config:
        """The configuration; only checks that need one ask for it."""
        assert self.config is not None  # noqa: S101 - the table of checks says which of them need it
        return self.config

    @property
    def terminals(self) -> tuple[TerminalConfig, ...]:
        """The terminals with a serial that could be read."""
        return tuple(terminal for terminal in self.settings.terminals if terminal.serial)

    @property
    def terminals_by_serial(self) -> Mapping[str, TerminalConfig]:
        """The same by serial."""
        return {terminal.serial: terminal for terminal in self.terminals}

    @property
    def certificate(self) -> Path:
        """The certificate that the webhook listener shows."""
        return self.settings.webhooks.certificate or self._made.certificate

    @property
    def private_key(self) -> Path:
        """Its private key."""
        return self.settings.webhooks.private_key or self._made.private_key

    @property
    def ca_certificate(self) -> Path | None:
        """The CA that `posd tls init` made; None where the certificate comes from elsewhere."""
        return None if self.settings.webhooks.certificate else self._made.ca_certificate

    @property
    def _made(self) -> tls.TlsFiles:
        return tls.files(self.settings.database.tls_directory)

    @property
    def port(self) -> int:
        """The port that terminals are told to call: posd's own word counts; 0 where it is not known."""
        return int(self.served.get("port") or self.settings.webhooks.port)

    @property
    def served(self) -> Mapping[str, Any]:
        """What posd says of the certificate that it shows: its fingerprint, and the port."""
        found: Mapping[str, Any] = self.health("certificate").get("served", {})
        return found

    def health(self, check: str) -> Mapping[str, Any]:
        """Return what posd says of one of its own checks; nothing where it does not run."""
        found: Mapping[str, Any] = self.running.health.get("checks", {}).get(check, {})
        return found

    def failed(self, check: str, subject: str = "") -> bool:
        """Tell whether an earlier check has failed (about a subject): then its consequences are not told again."""
        return any(
            item.check == check and item.status is Status.FAILURE and subject in ("", item.subject)
            for item in self.found
        )


def daemon_uid(shop: Shop) -> int | None:
    """Return the user of posd: of its process, else the owner of the state directory; None where that is not known."""
    if shop.running.uid is not None:
        return shop.running.uid
    with suppress(OSError):
        return shop.settings.database.path.parent.stat().st_uid
    with suppress(KeyError):
        return pwd.getpwnam("posd").pw_uid
    return None


def me() -> str:
    """Return the name of the user that runs this."""
    return user_name(os.geteuid())


#: What to do where something may not be read.
AS_ROOT = "run posd doctor as root (sudo posd doctor), or as the user of posd, to see it"


def may_not_read(error: PermissionError) -> str:
    """Say that the system does not let this user look at something."""
    return f"not looked at: {me()} may not read {error.filename or 'it'}"


def permitted(subject: object, findings: Findings) -> Findings:
    """Yield findings; where the system does not let this user look, a warning about `subject` ends them."""
    try:
        yield from findings
    except PermissionError as error:
        yield warning(subject, may_not_read(error), AS_ROOT)
