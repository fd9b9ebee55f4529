"""What the checks look at, and what they leave for each other: a check reads what earlier ones have found out."""

import os
import pwd
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from posd import tls
from posd.base.files import user_name
from posd.cli.app.context import CONFIG_FILE
from posd.cli.doctor import service, users
from posd.cli.doctor.service import Service
from posd.cli.doctor.users import User
from posd.config import Config, ConfigProblem, TerminalConfig
from posd.config.lines import where

# What the doctor says: one finding a thing that was looked at.


class CheckStatus(StrEnum):
    """How well it is. A warning does not keep payments from being taken now; a failure does, or soon will."""

    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"


class SubjectFinding(msgspec.Struct, frozen=True, kw_only=True):
    """What a check says of a subject: its status, what that means, and what to do ("" where there is nothing).

    `commands` do it, each as it is pasted into a shell. `key` is the one of the configuration that it is about, `file`
    that file ("" for the main one) and `line` where it stands there, None where it does not. `refused`: posd does not
    start with it, or cannot use what the key says. `unseen`: this user may not look at it.
    """

    status: CheckStatus
    subject: str
    meaning: str
    todo: str = ""
    commands: tuple[str, ...] = ()
    key: str = ""
    file: str = ""
    line: int | None = None
    refused: bool = False
    unseen: bool = False


class CheckFinding(SubjectFinding, frozen=True, kw_only=True):
    """The same with the name of the check, as `posd doctor --json` prints it."""

    check: str


#: What a check returns: it yields what it finds as it finds it, so that a time limit loses only the rest.
Findings = Iterator[SubjectFinding]


def ok(subject: object, meaning: str, todo: str = "") -> SubjectFinding:
    """Say that something is as it should be."""
    return SubjectFinding(status=CheckStatus.OK, subject=str(subject), meaning=meaning, todo=todo)


def warning(subject: object, meaning: str, todo: str, *commands: str) -> SubjectFinding:
    """Say that something should be looked at."""
    return SubjectFinding(
        status=CheckStatus.WARNING, subject=str(subject), meaning=meaning, todo=todo, commands=commands
    )


def failure(subject: object, meaning: str, todo: str, *commands: str) -> SubjectFinding:
    """Say that something has to be mended."""
    return SubjectFinding(
        status=CheckStatus.FAILURE, subject=str(subject), meaning=meaning, todo=todo, commands=commands
    )


#: What to do to see what this user may not look at.
AS_ROOT = "run this as root, or as the user of posd, to see it"


def unseen(subject: object, meaning: str) -> SubjectFinding:
    """Say that this user may not look at something."""
    return SubjectFinding(status=CheckStatus.WARNING, subject=str(subject), meaning=meaning, todo=AS_ROOT, unseen=True)


def refusal(
    key: str, subject: object, meaning: str, todo: str, *commands: str, file: str = "", line: int | None = None
) -> SubjectFinding:
    """Say why posd does not start, or cannot use what the configuration says of `key`."""
    return SubjectFinding(
        status=CheckStatus.FAILURE,
        subject=str(subject),
        meaning=meaning,
        todo=todo,
        commands=commands,
        key=key,
        file=file,
        line=line,
        refused=True,
    )


@dataclass(frozen=True, slots=True)
class TerminalAddress:
    """Where a terminal is called, and how that is known: "config" or "mdns"."""

    base_url: str
    source: str


@dataclass(slots=True)
class DaemonState:
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
class DoctorContext:
    """The set-up under examination. `config` is None where the file cannot be read; `socket` is that of --socket.

    `found` is all that was said so far. `answering`: the socket on which posd answers. `clocks`: what -> how many
    seconds its clock is ahead of this machine's. `read_only`: mount points that were told of. `quick`: a person waits
    for what posd would refuse, and for nothing else.
    """

    config_file: Path
    config: Config | None
    problems: tuple[ConfigProblem, ...]
    socket: Path | None = None
    running: DaemonState = field(default_factory=DaemonState)
    answering: Path | None = None
    addresses: dict[str, TerminalAddress] = field(default_factory=dict)
    clocks: dict[str, float] = field(default_factory=dict)
    found: list[CheckFinding] = field(default_factory=list)
    quick: bool = False
    read_only: set[Path] = field(default_factory=set)
    service: Service | None = field(init=False)

    def __post_init__(self) -> None:
        self.service = service.read(self.config_file)
        if self.config is not None:
            self.addresses |= {
                one.serial: TerminalAddress(one.base_url, "config") for one in self.terminals if one.base_url
            }

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

    @property
    def user(self) -> User:
        """The user of posd: of its process, of its unit, else the owner of the state directory, posd, or this user."""
        uid = self.running.uid
        if self.service is not None and (found := users.of_service(self.service)) and uid in (None, found.uid):
            return found
        if uid is not None:
            return users.of_id(uid)
        if self.config is not None:
            with suppress(OSError):
                return users.of_id(self.settings.database.path.parent.stat().st_uid)
        with suppress(KeyError):
            return users.of_id(pwd.getpwnam("posd").pw_uid)
        return users.of_id(os.getuid())

    @property
    def can_try(self) -> bool:
        """Whether this process may open files as the user of posd: it is root's, or that user's."""
        return os.getuid() in (0, self.user.uid)

    def as_root(self, *words: object) -> str:
        """Write a command that needs root."""
        return shlex.join(([] if by_root() else ["sudo"]) + [str(word) for word in words])

    def command(self, *words: object) -> str:
        """Write a command of posd that any user may give."""
        config = [] if self.config_file == Path(CONFIG_FILE) else ["--config", str(self.config_file)]
        return shlex.join(["posd", *config, *map(str, words)])

    def posd(self, *words: object) -> str:
        """Write a command of posd for its user: what root would make, that user could not read."""
        command, user = self.command(*words), self.user
        if user.uid == os.getuid():
            return command
        switch = ["sudo", "-u", user.name] if user.uid else ["sudo"]
        if by_root():
            switch = ["runuser", "-u", user.name, "--"]
        return f"{shlex.join(switch)} {command}"

    def systemctl(self, *words: str) -> tuple[str, ...]:
        """Write a command to the service manager about posd's unit; none where no unit runs this configuration."""
        return () if self.service is None else (self.as_root("systemctl", *words, "posd"),)

    def edit(self, key: str = "") -> str:
        """Write the command that opens the file of the configuration that says a key, at its line."""
        return self.edit_at(*where(self.config_file, key)) if key else self.edit_at(self.config_file)

    def edit_at(self, file: object, line: int | None = None) -> str:
        """Write the command that opens a file, at a line."""
        return self.as_root("editor", *([] if line is None else [f"+{line}"]), file)

    def edit_terminal(self, serial: str, key: str) -> str:
        """Write the command that opens the file that has the section of a terminal, at a key of it."""
        number = next(n for n, one in enumerate(self.settings.terminals) if one.serial == serial)
        return self.edit(f"terminals[{number}].{key}")

    def failed(self, check: str, subject: str = "") -> bool:
        """Tell whether an earlier check has failed (about a subject): then its consequences are not told again."""
        return any(
            item.check == check and item.status is CheckStatus.FAILURE and subject in ("", item.subject)
            for item in self.found
        )


def by_root() -> bool:
    """Tell whether the person types as root: one who used sudo for this command needs it for the next one too."""
    return os.getuid() == 0 and not os.environ.get("SUDO_USER")


def me() -> str:
    """Return the name of the user that runs this."""
    return user_name(os.getuid())


def may_not_read(error: PermissionError) -> str:
    """Say that the system does not let this user look at something."""
    return f"not looked at: {me()} may not read {error.filename or 'it'}"


def permitted(subject: object, findings: Findings) -> Findings:
    """Yield findings; where the system does not let this user look, a warning about `subject` ends them."""
    try:
        yield from findings
    except PermissionError as error:
        yield unseen(subject, may_not_read(error))
