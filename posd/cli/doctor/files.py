"""Checks of files: the configuration and the files that it names, the database, keys, sockets."""

import errno
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from posd.base.files import acting_as_owner
from posd.cli.doctor.context import CheckFinding, DoctorContext, Findings, not_seen
from posd.cli.doctor.service import barrier, being, group_id, group_name, of_id, of_service
from posd.cli.explain.catalogue import say, translated
from posd.config import ConfigProblem, HeaderValue, examine
from posd.daemon.sockets import SOCKET_MODE
from posd.records.callback_urls import CREDENTIAL, KeyFileError, load_keys
from posd.storage import StoreError, changes, connection
from posd.storage.database_files import closed_to_us, mount_point
from posd.terminals import trust
from posd.upkeep import known_ca

# Configuration: posd's own checks as its user, files that its unit hides from it, and users who may write the files.


def configuration(shop: DoctorContext) -> Findings:
    """Yield each problem of the configuration's files, and of the files that they name."""
    found = list(_problems(shop))
    yield from found
    if shop.config is None:
        return
    if not found:
        yield shop.tell("configuration.right", shop.config_file)
    for file in (shop.config_file, *sorted((shop.config_file.parent / "config.d").glob("*.toml"))):
        if file.exists():
            yield from _open_to_others(shop, file)
    if not shop.settings.terminals and not shop.problems:
        yield shop.tell("configuration.no_terminal", "terminals")


def _problems(shop: DoctorContext) -> Findings:
    problems = shop.problems
    if shop.config is not None:
        with being(shop.user):  # also checks the named files, as the user of posd
            _, problems = examine(shop.config_file)
    keys = named(shop)
    for problem in problems:
        yield _problem(shop, problem, _file(keys.get(problem.key)) if problem.key else Path(problem.file))
    told = {problem.key for problem in problems}
    for key, value in keys.items():
        if key in told:
            continue
        file = _file(value)
        if file is None:
            if shop.service.settings:
                yield from _credential(shop, key, str(getattr(value, "credential", "")))
        elif shop.service.hides(file):
            yield shop.tell("configuration.hidden", key, key=key, **_elsewhere(shop, key, file))
        elif key.endswith("ca_file"):
            try:
                trust.context(file)
            except OSError as error:
                serial = next((one.serial for one in shop.terminals), "SERIAL")
                yield shop.tell("configuration.no_ca", key, key=key, reason=error, serial=serial)


def _problem(shop: DoctorContext, problem: ConfigProblem, path: Path | None) -> CheckFinding:
    """Return the finding about a problem of the configuration.

    For an unreadable file it says how to give posd access.
    """
    key, subject = problem.key, problem.key or problem.file
    closed = barrier(shop.user, path) if path is not None else None
    at = Path(closed.filename) if closed is not None and closed.errno == errno.EACCES else None
    if at is not None and closed is not None and path is not None and (shop.can_try or key):
        if not shop.can_try:
            return shop.unseen(subject, closed)
        given: dict[str, Any] = {"reason": problem.reason, "at": at}
        if at != path:
            return shop.tell("configuration.behind", subject, key=key, **given, **_elsewhere(shop, key, path))
        code = "owned" if at.stat().st_uid == shop.user.uid else "closed"
        found = shop.tell(f"configuration.{code}", subject, key=key, **given)
    else:
        told = translated(problem)
        given = {"reason": told.reason, "cure": told.cure, "file": problem.file}
        given["line"] = None if problem.line is None else f"+{problem.line}"
        found = shop.tell("configuration.problem", subject, key=key, **given)
    return msgspec.structs.replace(found, file=problem.file, line=problem.line)


def _elsewhere(shop: DoctorContext, key: str, path: Path) -> dict[str, Any]:
    return {"path": path, "name": key.rpartition(".")[2], "copy": shop.config_file.parent / path.name}


def named(shop: DoctorContext) -> Mapping[str, Path | HeaderValue]:
    """Return key -> file or credential that the configuration names there.

    If several keys name the same file or credential, only the first key is returned.
    """
    if shop.config is None:
        return {}
    config, found = shop.config, dict[str, object]()
    for name in ("certificate", "private_key"):
        found[f"webhooks.{name}"] = getattr(config.webhooks, name)
    tables = {"terminal_defaults": config.terminal_defaults}
    tables |= {f"terminals[{number}]": terminal for number, terminal in enumerate(config.terminals)}
    headers = {"profile": config.profile_headers["local"], "profile.cloud": config.profile_headers["cloud"]}
    for at, table in tables.items():
        found |= {f"{at}.{name}": getattr(table, name) for name in ("ca_file", "business_code", "webhook_secret")}
        headers[at] = table.headers
    for at, values in headers.items():
        found |= {f"{at}.headers.{name}": value for name, value in values.items() if value.value is None}
    first = {value: key for key, value in reversed(found.items()) if isinstance(value, Path | HeaderValue)}
    return {key: value for value, key in reversed(first.items())}


def _file(value: Path | HeaderValue | None) -> Path | None:
    return value.file if isinstance(value, HeaderValue) else value


def _credential(shop: DoctorContext, key: str, name: str) -> Findings:
    """Check that the unit passes a credential that the configuration names, and that its file exists."""
    source = shop.service.credential(name)
    if source is None:
        yield shop.tell("configuration.no_credential", key, key=key, name=name)
    elif source and os.geteuid() == 0 and not Path(source).is_file():
        yield shop.tell("configuration.no_secret", key, key=key, name=name, source=source)


def _open_to_others(shop: DoctorContext, file: Path) -> Findings:
    if file.stat().st_mode & stat.S_IWOTH:
        yield shop.tell("configuration.writable", file)
    headers = (*shop.settings.profile_headers.values(), *(one.headers for one in shop.settings.terminals))
    secret = any(header.value is not None for table in headers for header in table.values())
    if secret and file.stat().st_mode & stat.S_IROTH:
        yield without_others(shop, "configuration.secret_open", file)


def without_others(shop: DoctorContext, code: str, path: Path) -> CheckFinding:
    """Return a finding whose commands deny other users access to a file."""
    owned = shop.user.uid in (0, path.stat().st_uid)
    group, rights = (None, "o-rwx") if owned else (shop.user.group, "g+r,o-rwx")
    return shop.tell(code, path, to_group=group, rights=rights)


# Database: whether it exists and is undamaged.

KEY = "database.path"
#: SQLite's code of an error that is not damage -> code of the finding.
UNREAD = {sqlite3.SQLITE_BUSY: "busy", sqlite3.SQLITE_INTERRUPT: "too_large"}


def check_database(shop: DoctorContext) -> Findings:
    """Check whether the database exists and is undamaged."""
    path = shop.settings.database.path
    try:
        if not path.exists():
            yield _missing(shop)
            return
        with open_unchanged(path) as db:
            found = list(_contents(db, shop, path))
        yield from found
    except PermissionError as error:
        storage = shop.health("storage")
        if storage.get("status") == "ok":
            yield shop.tell("database.unseen", path, reason=not_seen(shop, error), said=storage.get("detail"))
        else:
            yield shop.unseen(path, error)
    except sqlite3.Error as error:
        damaged = connection.is_damage(error)
        code = "damaged" if damaged else UNREAD.get(getattr(error, "sqlite_errorcode", 0), "unopened")
        yield shop.tell(f"database.{code}", path, key=KEY if damaged else "", reason=error)


@contextmanager
def open_unchanged(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a database as its owner, without any write, even of the files that SQLite keeps beside it.

    Without a WAL, no program uses the file, and SQLite reads it directly. With a WAL, SQLite reads a snapshot through
    posd's shared memory, or after a kill through memory of its own. Raise PermissionError, OSError or sqlite3.Error.
    """
    with acting_as_owner(path):
        with path.open("rb"):
            pass  # `open` raises the system's reason, which SQLite would hide
        written = path.with_name(f"{path.name}-wal")
        shared = path.with_name(f"{path.name}-shm").exists() or (written.exists() and written.stat().st_size)
        how = "readonly_shm=1" if shared else "immutable=1"
        uri = f"file:{quote(str(path.absolute()))}?mode=ro&{how}"
        with closing(connection.open_file(uri, uri=True)) as db:
            db.execute("PRAGMA query_only = ON").close()
            yield db


def _missing(shop: DoctorContext) -> CheckFinding:
    files = shop.settings.database
    try:
        connection.refuse_lost(files.path, files.callback_key, files.witness)
    except StoreError:
        return shop.tell("database.lost", files.path, key=KEY)
    return shop.tell("database.another" if shop.answers else "database.not_made", files.path)


def _contents(db: sqlite3.Connection, shop: DoctorContext, path: Path) -> Findings:
    known, (version, is_backup) = connection.schema_version(), connection.identify(db)
    given: dict[str, Any] = {"version": version, "known": known}
    if path.stat().st_size == 0:
        code = "empty"
    elif is_backup:
        code, given["aside"] = "put_by_hand", path.with_name(f"{path.stem}-backup{path.suffix}")
    elif not version or version > known:
        code = "newer" if version else "foreign"
    elif (reason := _damage(db, shop.seconds)) is not None:
        code, given["reason"] = "damaged", reason
    else:
        older = say("doctor", "older", known=known) if version < known else ""
        yield shop.tell("database.whole", path, version=version, older=older)
        return
    yield shop.tell(f"database.{code}", path, key=KEY, **given)


def _damage(db: sqlite3.Connection, seconds: float) -> str | None:
    """Return the first damage that a quick check finds, or None.

    Raise sqlite3.OperationalError (interrupted) after `seconds`.
    """
    end = time.monotonic() + seconds
    db.set_progress_handler(lambda: int(time.monotonic() > end), connection.OPERATIONS_AT_A_TIME)
    ((found,),) = db.execute("PRAGMA quick_check(1)").fetchall()
    return None if found == "ok" else str(found)


# Files and keys: faults, owners and readers.

#: Permissions of all users except the owner.
OTHERS = stat.S_IRWXG | stat.S_IRWXO


def check(shop: DoctorContext) -> Findings:
    """Check which files other users can read, and which files the daemon cannot use."""
    for subject, part in PARTS.items():
        yield from shop.permitted(subject, part(shop))


def _directory(shop: DoctorContext) -> Findings:
    directory = shop.settings.database.path.parent
    closed = list(to_write(shop, "database.path", directory, "posd cannot make its database there"))
    yield from closed
    if not closed and not directory.exists():
        yield shop.tell("files.no_directory", directory)
    elif not closed and directory.stat().st_mode & (stat.S_IWOTH | stat.S_IWGRP):
        yield shop.tell("files.directory_open", directory)
    elif not closed:
        yield shop.tell("files.directory", directory)


def to_write(shop: DoctorContext, key: str, path: Path, consequence: str, *, made: str = "0700") -> Findings:
    """Check whether posd can write its file or directory, or create it with the mode `made`.

    `consequence`: what happens if posd cannot, for the finding. Raise PermissionError.
    """
    if shop.service.read_only(path):
        yield shop.tell("files.unit_forbids", path, key=key, consequence=consequence)
        return
    if not path.exists() and shop.service.makes(path):  # `exists` raises PermissionError for a hidden path
        return
    closed = barrier(shop.user, path, write=True) if shop.can_try else None
    if closed is None:
        return
    at = Path(closed.filename)
    if closed.errno == errno.EROFS:
        if mount_point(at) in shop.read_only:
            return  # already reported
        shop.read_only.add(mount_point(at))
        code = "read_only"
    elif closed.errno == errno.ENOTDIR:
        code = "no_folder"
    elif at == path:
        code = "unwritable" if at.stat().st_uid == shop.user.uid else "not_owned"
    else:
        code = "behind" if path.exists() else "cannot_make"
    given: dict[str, Any] = {"consequence": consequence, "at": at, "reason": closed.strerror, "made": made}
    yield shop.tell(f"files.{code}", path, key=key, **given)


def _database(shop: DoctorContext) -> Findings:
    path = shop.settings.database.path
    if not path.exists():
        return  # the check of the database reports it
    kept: list[Path] = []
    if shop.can_try:
        with being(shop.user):
            kept = closed_to_us(path)
    if kept:
        names = ", ".join(map(str, kept))
        yield shop.tell("files.of_another", kept[0], key="database.path", kept=names, folder=path.parent)
    if path.stat().st_mode & OTHERS:
        yield shop.tell("files.database_open", path)
    elif not kept:
        yield shop.tell("files.private", path)


def _callback_key(shop: DoctorContext) -> Findings:
    path = shop.settings.database.callback_key
    if shop.service.credential(CREDENTIAL) is not None:
        yield shop.tell("files.key_passed", path)
    elif path.exists():
        yield _private(shop, path, "key_open")
        if os.access(path, os.R_OK):
            try:
                load_keys(path, may_make=False)
            except KeyFileError:
                yield shop.tell("files.key_damaged", path, key="database.path")
    elif _used(shop):
        yield shop.tell("files.key_lost", path, key="database.path")


def _used(shop: DoctorContext) -> bool:
    """Return whether the database has had payments. Then its callback key cannot be replaced."""
    if shop.settings.database.witness.exists():
        return True
    with suppress(OSError, sqlite3.Error), open_unchanged(shop.settings.database.path) as db:
        return changes.last_seq(db) > 0
    return False  # the check of the database reports it


def certificate_files(shop: DoctorContext) -> Findings:
    """Check the keys of the certificate and of its CA, and whether the CA is the one that the database knows."""
    made = shop.made
    if shop.private_key.exists():
        yield _private(shop, shop.private_key, "tls_key_open", group_may=made is None)
    if made is None:
        return
    with suppress(OSError, sqlite3.Error), open_unchanged(shop.settings.database.path) as db:
        if (words := known_ca.lost(known_ca.known(db), made)) is not None:
            given = {"words": words, "cure": known_ca.REMEDY}
            yield shop.tell("files.ca_lost", made.ca_certificate, key="database.path", **given)
    if made.ca_key.exists():
        yield _private(shop, made.ca_key, "ca_key_open")
    elif made.ca_certificate.exists():
        yield shop.tell("files.no_ca_key", made.ca_key)


def _written(shop: DoctorContext) -> Findings:
    """Check whether backups and metrics can be written."""
    backups, textfile = shop.settings.database.backups, shop.settings.metrics.textfile
    if backups.exists():  # otherwise posd creates it in the state directory
        yield from to_write(shop, "database.path", backups, "no backup can be written there")
    if textfile is not None and not textfile.parent.exists():
        yield shop.tell("files.no_metrics", textfile.parent, key="metrics.textfile")
    elif textfile is not None:
        yield from to_write(shop, "metrics.textfile", textfile.parent, "posd cannot write its metrics there")


def _secrets(shop: DoctorContext) -> Findings:
    for key, value in named(shop).items():
        path = value.file if isinstance(value, HeaderValue) else None
        if path is None or not path.exists():
            continue  # the check of the configuration reports it
        if path.stat().st_mode & stat.S_IRWXO:
            yield without_others(shop, "files.secret_open", path)
        elif not shop.failed("configuration", key):
            yield shop.tell("files.secret_closed", path)


#: Subject -> its check. A finding names the subject if this user cannot read its files.
PARTS: Mapping[str, Callable[[DoctorContext], Findings]] = {
    "state directory": _directory,
    "database": _database,
    "callback key": _callback_key,
    "certificate files": certificate_files,
    "backups and metrics": _written,
    "header files": _secrets,
}


def _private(shop: DoctorContext, path: Path, code: str, *, group_may: bool = False) -> CheckFinding:
    """Check whether another user may read a secret file.

    `group_may`: a group may read it, as for a key of the shop's PKI.
    """
    if path.stat().st_mode & (stat.S_IRWXO if group_may else OTHERS):
        return shop.tell(f"files.{code}", path, closed="o-rwx" if group_may else "0600")
    return shop.tell("files.group_private" if group_may else "files.private", path)


# Local sockets, the user of posd, and the groups that may use the sockets.

#: Socket (prefix of its keys in the configuration) -> its users. posd can start without the feed socket.
SOCKETS = {"till": "tills", "admin": "operators", "feed": "a relay"}


def check_access(shop: DoctorContext) -> Findings:
    """Check the user and the groups, the socket directory, and the sockets."""
    api = shop.settings.local_api
    if of_service(shop.service) is None:
        yield shop.tell("access.no_user", shop.service.last("User"))
    for name in SOCKETS:
        yield _group(shop, f"{name}_group", getattr(api, f"{name}_group"))
    for path in shop.service.listens:
        if os.path.realpath(path) != os.path.realpath(api.till_socket):
            yield shop.tell("access.other_socket", path, key="local_api.directory", till=api.till_socket)
    yield from shop.permitted(api.directory, _sockets(shop))


def _group(shop: DoctorContext, key: str, group: str) -> CheckFinding:
    if not group:
        return shop.tell("access.own_group", key)
    gid, feed = group_id(group, -1), key == "feed_group"
    refused: dict[str, Any] = {"key": "" if feed else f"local_api.{key}", "name": key}
    if gid < 0:
        code = "feed_no_group" if feed else "no_group"
        return shop.tell(f"access.{code}", group, **refused, joins=shop.user.name if shop.user.uid else None)
    if shop.user.uid != 0 and gid not in shop.user.groups:
        return shop.tell("access.feed_not_in_group" if feed else "access.not_in_group", group, **refused)
    return shop.tell("access.group", group, name=key)


def _sockets(shop: DoctorContext) -> Findings:
    api, key, consequence = shop.settings.local_api, "local_api.directory", "posd cannot make its sockets there"
    closed = list(to_write(shop, key, api.directory, consequence, made="0755"))
    if not closed and (lock := api.directory / "posd.lock").exists():
        closed = list(to_write(shop, key, lock, consequence))
    yield from closed
    if not closed and not api.directory.exists():
        yield shop.tell("access.no_directory", api.directory)
    elif not closed:
        found = api.directory.stat()
        code = "directory" if found.st_mode & stat.S_IXOTH else "directory_closed"
        yield shop.tell("access.directory_open" if found.st_mode & stat.S_IWOTH else f"access.{code}", api.directory)
    for name, users in SOCKETS.items():
        group = getattr(api, f"{name}_group")
        if shop.there and (name != "feed" or not group or group_id(group, -1) >= 0):
            yield _socket(shop, getattr(api, f"{name}_socket"), group, users)


def _socket(shop: DoctorContext, path: Path, group: str, users: str) -> CheckFinding:
    if not path.exists():
        return shop.tell("access.no_socket", path, users=users)
    found = path.stat()
    owner = group_name(found.st_gid)
    if found.st_mode & stat.S_IRWXO:
        code = "socket_open"
    elif found.st_mode & SOCKET_MODE != SOCKET_MODE:
        code = "socket_closed"
    elif group and owner != group:
        code = "socket_of_another"
    elif os.access(path, os.W_OK):
        code = "may_use"
    elif owner in map(group_name, of_id(os.geteuid()).groups):
        code = "not_yet"
    else:
        code = "may_not_use"
    return shop.tell(f"access.{code}", path, users=users, wanted=group)
