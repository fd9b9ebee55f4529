"""`posd support`: one archive for remote help.

The command collects no secrets, and removes secrets that appear in other data.

Each part is collected separately. If a part is unavailable, the archive has the reason. The archive has no data of a
payment except its id. Log lines have only fields of an allow-list.
"""

import gzip
import io
import json
import os
import platform
import re
import sqlite3
import ssl
import subprocess
import sys
import tarfile
import tomllib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import click
import msgspec

from posd import __version__
from posd.base import ids
from posd.base.redaction import REDACTED, Redactor
from posd.base.text import shown
from posd.cli.app.completion_words import files as offer_files
from posd.cli.app.connection import Api, Problem, Unreachable, json_option
from posd.cli.app.context import Context, ExitCode, can_open, context
from posd.cli.app.errors import fail
from posd.cli.app.output import Output, aside, size
from posd.cli.app.parameters import asks, check_usage, confirm
from posd.cli.app.private_file import write_private_file
from posd.cli.explain.catalogue import chosen, events, say
from posd.cli.operate.config import refuse_own_file
from posd.cli.operate.logs import NoLog, of_file, of_journal, read, stripped
from posd.cli.operate.status import ask as ask_status
from posd.cli.operate.status import output_of
from posd.config import Config, ConfigProblem, examine, parse
from posd.config.show import toml_lines
from posd.logs.output import FIELDS
from posd.storage.connection import schema_version

#: Maximum number of log lines, and of their bytes. The newest lines are collected.
LOG_LINES = 5000
LOG_BYTES = 4 * 1024 * 1024
#: Maximum size of any other part, in bytes: far above the normal size.
PART_BYTES = 2 * 1024 * 1024
#: Time-out of posd doctor, in seconds.
DOCTOR_SECONDS = 240

#: Log events whose detail is omitted, because it can quote the acquirer's reference. The line still has the code.
DETAIL_LEFT_OUT = frozenset({"payment.attention", "print.attention"})
#: Fields that every line of the log may have, and fields with free text.
LINE_FIELDS = FIELDS | {"timestamp", "level", "event", "logger", "exception"}
TEXTS = frozenset({"detail", "error", "reason"})
#: Pattern of systemd's lines about the service. Lines of other programs are omitted.
SYSTEMD = re.compile(r"(posd[\w@-]*\.(service|socket|timer): |(Starting|Started|Stopping|Stopped) posd).{0,300}")

#: Pattern of keys in the configuration with secret values, including all of `headers`.
SECRET_KEY = re.compile(r"\bheaders\b|secret|token|passw|dsn|code$|authorization|api.?key", re.IGNORECASE)
QUOTED = re.compile(r"\"([^\"]*)\"|'([^']*)'")
#: Minimum length of a removed secret. Shorter values could match ordinary words.
LEAST_SECRET = 6
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
#: Pattern of user and password in a URL.
USER = re.compile(r"(?<=://)[^/@\s\"']+(?=@)")


@dataclass(frozen=True, slots=True)
class ArchivePart:
    """Part of the archive, a file: its description (`says`) and its content, or why it is unavailable (`missing`)."""

    name: str
    says: str
    content: str = ""
    missing: str = ""


class PartUnavailable(Exception):
    """Error if a part is unavailable. The message has the reason."""


@dataclass(slots=True)
class Machine:
    """Sources of a support archive. `config` has defaults in place of unreadable values."""

    given: Context
    log: str | None
    unit: str
    config: Config = field(init=False)
    problems: Sequence[ConfigProblem] = field(init=False)
    api: Api = field(init=False)

    def __post_init__(self) -> None:
        path = Path(self.given.config_path)
        found, self.problems = examine(path, check_files=False)
        self.config = found or parse("", file=path, check_files=False)
        local = self.config.local_api
        socket = Path(self.given.socket_path) if self.given.socket_path else local.admin_socket
        self.api = Api(socket if self.given.socket_path or can_open(socket) else local.till_socket)


@click.command()
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path), shell_complete=offer_files)
@click.option("--log", metavar="FILE", help="A file with posd's log, - for standard input; without it, the journal.")
@click.option("--unit", default="posd", show_default=True, metavar="UNIT", help="The service, in the journal.")
@click.option("--yes", is_flag=True, help="Do not ask before writing it.")
@json_option
@click.pass_context
def support(ctx: click.Context, output: Output, file: Path, log: str | None, unit: str, yes: bool) -> None:
    """Write an archive (.tar.gz) for remote help.

    It has versions, configuration without secrets, status, doctor, metrics and the last lines of the log. It has no
    token, metadata, sale, reference, ticket number, authorization code, card data or operator's name. The command shows
    the content before it writes the archive. The command works without a running posd and with a wrong configuration;
    the archive names the missing parts.
    """
    check_usage("support", no_yes=not (yes or asks()))
    _refuse_existing(file, output)
    machine = Machine(context(ctx), log, unit)
    with output.busy(say("support", "busy")):
        parts = collect(machine)
    listing = _listing(parts)
    beside = aside() if output.as_json else output
    for line in () if output.as_json and yes else listing:
        beside.line(line.strip(), indent=len(line) - len(line.lstrip()))
    if not yes:
        confirm(beside, say("support", "write", file=file), "Nothing was written.")
    try:
        write_private_file(file, archive(parts, datetime.now(UTC)), replaces=False)
    except FileExistsError:
        _refuse_existing(file, output)
    except OSError as error:
        fail(output, say("support", "not_written", file=file, reason=error.strerror))
    document = {
        "file": str(file),
        "members": {part.name: part.says for part in parts if not part.missing},
        "missing": {part.name: part.missing for part in parts if part.missing},
    }
    output.json(msgspec.json.encode(document))
    output.line(say("support", "written", file=file, size=size(file.stat().st_size)), "green")


def collect(machine: Machine) -> list[ArchivePart]:
    """Return all parts, without secrets."""
    scrub = Scrubber(machine)
    parts = []
    descriptions = chosen("part")
    for name, take in PARTS.items():
        says = descriptions[name].format(lines=LOG_LINES)
        try:
            part = ArchivePart(name, says, scrub(_cut(take(machine))))
        except (PartUnavailable, Problem, Unreachable) as error:
            part = ArchivePart(name, says, missing=shown(scrub(str(error))))
        except (OSError, sqlite3.Error, subprocess.SubprocessError, ValueError) as error:
            part = ArchivePart(name, says, missing=shown(scrub(f"{type(error).__name__}: {error}")))
        parts.append(part)
    return parts


def archive(parts: Sequence[ArchivePart], now: datetime) -> bytes:
    """Return the bytes of the archive: a folder with the parts, and contents.txt."""
    contents = "\n".join((f"Made by posd {__version__} at {now:%Y-%m-%dT%H:%M:%SZ}.", "", *_listing(parts), ""))
    members = {"contents.txt": contents, **{part.name: part.content for part in parts if not part.missing}}
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as tar:
        for name, content in members.items():
            raw = content.encode()
            member = tarfile.TarInfo(f"posd-support/{name}")
            member.size, member.mode, member.mtime = len(raw), 0o600, int(now.timestamp())
            tar.addfile(member, io.BytesIO(raw))
    return packed.getvalue()


def _listing(parts: Sequence[ArchivePart]) -> list[str]:
    had = [f"  {part.name}: {part.says} ({size(len(part.content.encode()))})" for part in parts if not part.missing]
    lacks = [f"  {part.name}: {part.missing}" for part in parts if part.missing]
    missing = [say("support", "missing"), *lacks] if lacks else []
    return [say("support", "contents"), *had, *missing, say("support", "left_out")]


def _refuse_existing(file: Path, output: Output) -> None:
    if os.path.lexists(file):
        fail(output, say("support", "exists", file=file), ExitCode.USAGE)
    refuse_own_file(file)
    if not file.absolute().parent.is_dir():
        fail(output, say("support", "no_directory", folder=file.absolute().parent), ExitCode.USAGE)


def _cut(text: str) -> str:
    """Return a text, cut at a maximum length."""
    return text if len(text) <= 2 * PART_BYTES else f"{text[: 2 * PART_BYTES]}\n(cut: it is longer)\n"


# Removal of secrets.


class Scrubber:
    """Function object that removes this machine's secrets, and what looks like a secret, from a text."""

    def __init__(self, machine: Machine) -> None:
        keys = _keys(machine.config.database.callback_key)
        found = {*_secrets_of_files(machine), *keys}
        every = {one.strip() for one in found if len(one.strip()) >= LEAST_SECRET}
        forms = {
            form for one in every for form in (one, msgspec.json.encode(one).decode()[1:-1], json.dumps(one)[1:-1])
        }
        # The longest first, because one secret may be part of another.
        self._known = sorted(forms, key=len, reverse=True)
        self._redactor = Redactor([bytes.fromhex(key) for key in keys if ids.KEY_LINE.fullmatch(key)])

    def __call__(self, text: str) -> str:
        """Return a text without secrets."""
        for secret in self._known:
            text = text.replace(secret, REDACTED)
        return self._redactor.text(USER.sub(REDACTED, text))


def _secrets_of_files(machine: Machine) -> Iterator[str]:
    path = Path(machine.given.config_path)
    for file in (path, *sorted((path.parent / "config.d").glob("*.toml"))):
        try:
            text = file.read_bytes().decode("utf-8", "replace")
        except OSError:
            continue
        try:
            document = tomllib.loads(text)
        except tomllib.TOMLDecodeError:
            yield from _secret_lines(text)
        else:
            yield from _secret_values(document, path.parent, secret=False)


def _secret_lines(text: str) -> Iterator[str]:
    """Yield the secrets of a file that is not valid TOML: quoted texts after secret keys, and in secret tables."""
    table = ""
    for line in text.splitlines():
        name, _, rest = line.partition("=")
        if name.lstrip().startswith("["):
            table = name.strip().strip("[]")
        elif SECRET_KEY.search(f"{table}.{name.strip()}"):
            yield from (one or other for one, other in QUOTED.findall(rest))


def _secret_values(value: Any, directory: Path, *, secret: bool) -> Iterator[str]:
    """Yield the secrets of a TOML value: texts below a secret key, and the contents of files that such a key names."""
    if isinstance(value, list):
        for item in value:
            yield from _secret_values(item, directory, secret=secret)
    elif isinstance(value, dict):
        for name, item in value.items():
            if secret and name == "file" and isinstance(item, str):
                yield from _keys(directory / item)
            elif not (secret and name == "credential"):
                yield from _secret_values(item, directory, secret=secret or bool(SECRET_KEY.search(name)))
    elif secret and isinstance(value, str):
        yield from (value, *value.split())


def _keys(path: Path) -> list[str]:
    """Return the words of a file with secrets. An unreadable file has none."""
    try:
        with path.open("rb") as file:
            return file.read(64 * 1024).decode("utf-8", "replace").split()
    except OSError:
        return []


# The parts.


def _versions(machine: Machine) -> str:  # noqa: ARG001 - all parts have this signature
    release = {}
    with suppress(OSError):
        release = platform.freedesktop_os_release()
    document = {
        "posd": __version__,
        "schema": schema_version(),
        "python": sys.version,
        "sqlite": sqlite3.sqlite_version,
        "openssl": ssl.OPENSSL_VERSION,
        "system": release.get("PRETTY_NAME", ""),
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "packages": {one.name: one.version for one in sorted(metadata.distributions(), key=lambda one: one.name)},
    }
    return _json(document)


def _configuration(machine: Machine) -> str:
    lines = [f"# {problem.file}: {problem.key} {problem.reason}" for problem in machine.problems]
    if lines:
        lines = ["# The file cannot be used. Its readable part, with defaults for the rest:", *lines]
    for line, source in toml_lines(machine.config):
        lines.append(line if source is None else f"{line}  # {source}")
    return "\n".join(lines) + "\n"


def _service(machine: Machine) -> str:
    properties = "Id,LoadState,UnitFileState,ActiveState,SubState,Result,NRestarts,ExecMainStartTimestamp,"
    properties += "ExecMainExitTimestamp,ExecMainCode,ExecMainStatus,MemoryCurrent,FragmentPath"
    units = f"{machine.unit}.service {machine.unit}.socket"
    if not (found := output_of(f"systemctl show --no-pager --property={properties} {units}")):
        raise PartUnavailable(say("support", "no_unit"))
    return found


def _status(machine: Machine) -> str:
    document = msgspec.json.decode(ask_status(machine.api)[1])
    for terminal in document["terminals"]:
        (terminal.get("commissioned") or {}).pop("by", None)  # the name of an operator
    return _json(document)


def _doctor(machine: Machine) -> str:
    socket = ["--socket", machine.given.socket_path] if machine.given.socket_path else []
    command = [sys.executable, "-m", "posd", "--config", machine.given.config_path, *socket, "doctor", "--json"]
    try:
        done = subprocess.run(  # noqa: S603 - no word is from the user's text, and no shell runs
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=DOCTOR_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise PartUnavailable(say("support", "late_doctor", seconds=DOCTOR_SECONDS)) from error
    try:
        return _json(msgspec.json.decode(done.stdout))
    except msgspec.DecodeError as error:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        why = said[-1] if said else done.returncode
        raise PartUnavailable(say("support", "failed_doctor", why=why)) from error


def _log(machine: Machine) -> str:
    source = of_journal(machine.unit, [f"--lines={LOG_LINES}"]) if machine.log is None else of_file(machine.log)
    kept: deque[dict[str, Any]] = deque(maxlen=LOG_LINES)
    left_out = 0
    try:
        with source as found:
            for raw in found:
                line = _line(stripped(raw))
                left_out += line is None
                kept.extend([] if line is None else [line])
    except NoLog as error:
        raise PartUnavailable(str(error)) from error
    if not kept:
        raise PartUnavailable(say("support", "no_line", others=left_out))
    ids = {str(line[name]).lower() for line in kept for name in ("transaction", "print_job") if name in line}
    texts: deque[str] = deque()
    total = 0
    for line in reversed(kept):
        text = msgspec.json.encode({name: _known_ids(name, value, ids) for name, value in line.items()}).decode()
        total += len(text)
        if total > LOG_BYTES:
            break
        texts.appendleft(text)
    head = msgspec.json.encode({"lines": len(texts), "others_left_out": left_out}).decode()
    return "\n".join((head, *texts)) + "\n"


def _line(raw: bytes) -> dict[str, Any] | None:
    """Return the allowed fields of a line of the log, or None if it is from neither posd nor systemd about posd."""
    line = read(raw)
    if line is None:
        text = raw.decode("utf-8", "replace")
        return {"systemd": text} if SYSTEMD.fullmatch(text) else None
    if line["event"] not in events():
        return None
    without = {"detail"} if line["event"] in DETAIL_LEFT_OUT else set()
    return {name: value for name, value in line.items() if name in LINE_FIELDS - without}


def _known_ids(name: str, value: Any, ids: set[str]) -> Any:
    """Return a field's value without UUIDs that are not in `ids`, because they may be the acquirer's references."""
    if name not in TEXTS or not isinstance(value, str):
        return value
    return UUID.sub(lambda found: found[0] if found[0].lower() in ids else REDACTED, value)


def _json(document: object) -> str:
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


#: Name of a part -> function that returns its content. [part] of the catalogue has the descriptions.
PARTS: Mapping[str, Callable[[Machine], str]] = {
    "versions.json": _versions,
    "config.toml": _configuration,
    "service.txt": _service,
    "status.json": _status,
    "doctor.json": _doctor,
    "metrics.txt": lambda machine: machine.api.metrics(),
    "log.jsonl": _log,
}
