"""Context of the checks of posd doctor, and their findings. A later check reads results of earlier ones."""

import os
import pwd
import shlex
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from posd.base.files import user_name
from posd.cli import certificates
from posd.cli.app.context import CONFIG_FILE
from posd.cli.doctor import service
from posd.cli.doctor.service import Service, User
from posd.cli.explain.catalogue import language, named, over, say, translate
from posd.config import Config, ConfigProblem, TerminalConfig
from posd.config.layers import where
from posd.storage import backup, database_files
from posd.tls.files import TlsFiles


class CheckStatus(StrEnum):
    """Severity of a finding. After a warning payments still work. After a failure they do not, or soon will not."""

    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"


#: Longest search for damage in the database, in seconds. A large database may need more: use `posd verify`.
CHECK_SECONDS = 20.0

#: Status of the health resource -> severity.
STATUSES: Mapping[str, str] = {"ok": "ok", "degraded": "warning", "failing": "failure"}


class CheckFinding(msgspec.Struct, frozen=True, kw_only=True):
    """Finding of a check about a subject. `meaning`: what was found. `todo`: what to do, or "".

    `commands`: shell commands. `key`, `file`, `line`: key in the configuration, its file ("": the main one) and its
    line (None: not in a file). `refused`: whether posd does not start because of this, or cannot use the key's value.
    `unseen`: whether this user cannot read the subject. `check`: name of the check.
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
    check: str = ""


#: Result of a check: a generator, so that findings before a time-out are not lost.
Findings = Iterator[CheckFinding]


def texts() -> Mapping[str, Mapping[str, Any]]:
    """Return the texts of the findings: check -> code -> text, or table with `means`, `do`, `commands` and more.

    findings.toml describes the prefixes of commands. The file of another language has only texts, which override the
    English ones.
    """
    return _file("") if language() == "en" else over(_file(""), _file(f".{language()}"))


@cache
def _file(language: str) -> Mapping[str, Any]:
    return tomllib.loads(files(__package__).joinpath(f"findings{language}.toml").read_text("utf-8"))


@dataclass(slots=True)
class DoctorContext:
    """The installation that is checked, and results of earlier checks.

    `config`: None if the file cannot be read. `problems`: errors of the configuration. `socket`: option --socket.
    `answers`: whether the local API replies. `pid`, `uid`: process and user of the daemon; None: unknown. `checks`,
    `terminals_of_daemon`: from the local API. `addresses`: serial -> base URL. `clocks`: serial -> seconds by which the
    terminal's clock is ahead of this machine's. `found`: all findings so far. `seconds`: longest search for damage in
    the database. `read_only`: read-only mount points that were reported. `service`: unit of posd; empty if no unit runs
    this configuration.
    """

    config_file: Path
    config: Config | None
    problems: tuple[ConfigProblem, ...]
    socket: Path | None = None
    answers: bool = False
    pid: int | None = None
    uid: int | None = None
    checks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    terminals_of_daemon: list[dict[str, Any]] = field(default_factory=list)
    addresses: dict[str, str] = field(default_factory=dict)
    clocks: dict[str, float] = field(default_factory=dict)
    found: list[CheckFinding] = field(default_factory=list)
    seconds: float = CHECK_SECONDS
    read_only: set[Path] = field(default_factory=set)
    service: Service = field(init=False)

    def __post_init__(self) -> None:
        self.service = service.read(self.config_file) or Service({})
        if self.config is not None:
            self.addresses |= {one.serial: one.base_url for one in self.terminals if one.base_url}

    @property
    def settings(self) -> Config:
        """The configuration, for checks that need one."""
        assert self.config is not None  # noqa: S101 - without a configuration, these checks do not run
        return self.config

    @property
    def terminals(self) -> tuple[TerminalConfig, ...]:
        """Configured terminals with a valid serial."""
        return tuple(terminal for terminal in self.settings.terminals if terminal.serial)

    def section(self, serial: str) -> str:
        """Return the name of a terminal's section in the configuration."""
        return f"terminals[{[one.serial for one in self.settings.terminals].index(serial)}]"

    @property
    def made(self) -> TlsFiles | None:
        """Files of `posd tls init`, or None if the configuration names a certificate of the shop's PKI."""
        return certificates.own(self.settings)

    @property
    def certificate(self) -> Path:
        """The certificate that the webhook listener shows."""
        return certificates.pair(self.settings)[0]

    @property
    def private_key(self) -> Path:
        """Private key of the webhook listener."""
        return certificates.pair(self.settings)[1]

    @property
    def port(self) -> int:
        """Port in the callback URLs: from the daemon if it replies, else from the configuration. 0: unknown."""
        return int(self.served.get("port") or self.settings.webhooks.listen.port)

    @property
    def served(self) -> Mapping[str, Any]:
        """posd's report of the certificate that its listener shows: fingerprint and port."""
        return dict(self.health("certificate").get("served", {}))

    @property
    def there(self) -> bool:
        """Whether a daemon runs, even if it does not reply."""
        return self.answers or self.pid is not None

    @property
    def user(self) -> User:
        """User of posd: of its process or unit, else the owner of the state directory, else `posd`, else this user."""
        if self.service.settings and (found := service.of_service(self.service)) and self.uid in (None, found.uid):
            return found
        if self.uid is not None:
            return service.of_id(self.uid)
        if self.config is not None:
            with suppress(OSError):
                return service.of_id(self.config.database.path.parent.stat().st_uid)
        with suppress(KeyError):
            return service.of_id(pwd.getpwnam("posd").pw_uid)
        return service.of_id(os.getuid())

    @property
    def me(self) -> str:
        """Name of the user that runs this command."""
        return user_name(os.getuid())

    @property
    def can_try(self) -> bool:
        """Whether this process can try access as the user of posd, because it runs as root or as that user."""
        return os.getuid() in (0, self.user.uid)

    @property
    def backup(self) -> Path | None:
        """Newest backup of the timer, or None if there is none or this user cannot read it."""
        return (backup.newest_backup(self.settings.database.backups) or (0, None))[1]

    def health(self, check: str) -> Mapping[str, Any]:
        """Return the result of one of posd's health checks. It is empty if posd does not reply."""
        return self.checks.get(check, {})

    def failed(self, check: str, subject: str = "") -> bool:
        """Return whether an earlier check has failed, or failed for `subject`.

        Then consequences are not reported again.
        """
        failed = (one for one in self.found if one.status is CheckStatus.FAILURE)
        return any(one.check == check and subject in ("", one.subject) for one in failed)

    def tell(
        self, code: str, subject: object, status: str = "", key: str = "", remedy: str = "", **given: Any
    ) -> CheckFinding:
        """Return a finding with the texts of `code` in findings.toml, filled with `given` and values of the context.

        `remedy`: name of an advice that several findings share.
        """
        group, _, name = code.partition(".")
        text = texts()[group][name]
        if isinstance(text, str):
            text = {"means": text}
        if remedy:
            text = {**text, **texts()["remedy"][remedy]}
        words = _Words(self, {"subject": subject, "key": key, **given})
        return CheckFinding(
            status=CheckStatus(status or text.get("status", "ok")),
            subject=str(subject),
            meaning=text["means"].format_map(words),
            todo=text.get("do", "").format_map(words),
            commands=tuple(line for one in text.get("commands", ()) for line in self._commands(one, words)),
            key=key,
            refused=text.get("refused", False),
            unseen=text.get("unseen", False),
        )

    def unseen(self, subject: object, error: OSError) -> CheckFinding:
        """Return a finding which says that this user cannot read a subject."""
        return self.tell("unseen.file", subject, reason=not_seen(self, error))

    def permitted(self, subject: object, findings: Findings) -> Findings:
        """Yield the findings of a check. If the system denies access, end with a warning about `subject`."""
        try:
            yield from findings
        except PermissionError as error:
            yield self.unseen(subject, error)

    def command(self, *words: object) -> str:
        """Return a shell command that calls posd with this configuration."""
        return _joined([*self._posd, *map(str, words)])

    @property
    def _posd(self) -> list[str]:
        return ["posd", *([] if self.config_file == Path(CONFIG_FILE) else ["--config", str(self.config_file)])]

    def _commands(self, template: str, words: "_Words") -> Iterator[str]:
        """Yield the command of a template, or of its first alternative whose values are known."""
        posd, sudo = self._posd, [] if by_root() else ["sudo"]
        prefixes = {
            "root": sudo,
            "edit": sudo,
            "systemctl": [*sudo, "systemctl"],
            "journalctl": [*sudo, "journalctl"],
            "posd": posd,
            "as-posd": [*self._switch, *posd],
            "sudo-posd": ["sudo", *posd],
        }
        for way in template.split(" || "):
            with suppress(KeyError):  # an alternative with an unknown value
                verb, *rest = (word.format_map(words) for word in shlex.split(way))
                if verb == "edit":
                    file, line = where(self.config_file, rest[0]) if rest else (self.config_file, None)
                    rest = ["editor", *([] if line is None else [f"+{line}"]), str(file)]
                if verb not in ("systemctl", "journalctl") or self.service.settings:
                    yield _joined([*prefixes.get(verb, [verb]), *rest, *(["posd"] if verb == "systemctl" else [])])
                    return

    @property
    def _switch(self) -> list[str]:
        """Prefix that runs a command as the user of posd, who could not read files that root creates."""
        user = self.user
        if user.uid == os.getuid():
            return []
        if by_root():
            return ["runuser", "-u", user.name, "--"]
        return ["sudo", "-u", user.name] if user.uid else ["sudo"]


#: Values for texts about a file: name in braces -> function of the file's path. The file is `at`, else the subject.
OF_FILE: Mapping[str, Callable[[Path], object]] = {
    "mode": lambda path: f"{named('mode')} {stat.S_IMODE(path.stat().st_mode):04o}",
    "owner": lambda path: user_name(path.stat().st_uid),
    "socket_group": lambda path: service.group_name(path.stat().st_gid),
    "mount": database_files.mount_point,
}


#: Names of values that are translated.
WORDS = ("who", "what", "consequence", "often", "users", "reason", "how")


class _Words:
    """Values for the texts of a finding: the arguments, else values about a file, else attributes of the context."""

    def __init__(self, shop: DoctorContext, given: Mapping[str, object]) -> None:
        self._shop = shop
        self._given = given

    def __getitem__(self, name: str) -> object:
        """Return the value of a name. Raise KeyError if it is unknown, so that `_commands` skips the alternative."""
        if name in self._given:
            found = translate(str(self._given[name])) if name in WORDS else self._given[name]
        elif name in OF_FILE:
            found = OF_FILE[name](Path(str(self._given.get("at", self._given["subject"]))))
        else:
            found = getattr(self._shop, name)
        if found is None:
            raise KeyError(name)
        return found


def by_root() -> bool:
    """Return whether the user works as root.

    After sudo the result is false, because the next command needs sudo again.
    """
    return os.getuid() == 0 and not os.environ.get("SUDO_USER")


def not_seen(shop: DoctorContext, error: OSError) -> str:
    """Return why this user cannot read something: the file that denies access, or the error's own text."""
    return say("doctor", "closed", me=shop.me, file=error.filename) if error.filename else str(error.strerror)


def _joined(words: list[str]) -> str:
    return " ".join(word if word in ("|", ">") else shlex.quote(word) for word in words)
