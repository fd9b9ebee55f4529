"""The files of the daemon: what is wrong with them, which users own them and may read them."""

import errno
import os
import sqlite3
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from posd.cli.doctor.configuration import named, without_others
from posd.cli.doctor.context import CheckFinding, DoctorContext, Findings, mount_point
from posd.cli.doctor.database import open_unchanged
from posd.cli.doctor.users import barrier, being
from posd.config import HeaderValue
from posd.records.callback_urls import CREDENTIAL, KeyFileError, load_keys
from posd.storage import database_id
from posd.storage.database_files import closed_to_us
from posd.upkeep import known_ca

#: All users but the owner.
OTHERS = stat.S_IRWXG | stat.S_IRWXO


def check(shop: DoctorContext) -> Findings:
    """Check which of the daemon's files are open to others, or closed to the daemon."""
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
    """Check where posd cannot make or write a file or directory of its own, which has the mode `made`.

    Raise PermissionError.
    """
    if shop.service.read_only(path):
        yield shop.tell("files.unit_forbids", path, key=key, consequence=consequence)
        return
    if not path.exists() and shop.service.makes(path):  # what may not be seen raises PermissionError
        return
    closed = barrier(shop.user, path, write=True) if shop.can_try else None
    if closed is None:
        return
    at = Path(closed.filename)
    if closed.errno == errno.EROFS:
        if mount_point(at) in shop.read_only:
            return  # told before
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
        return  # the check of the database tells of it
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
    """Return whether the database has known payments, so that its callback key cannot be replaced."""
    if shop.settings.database.witness.exists():
        return True
    with suppress(OSError, sqlite3.Error), open_unchanged(shop.settings.database.path) as db:
        return database_id.last_seq(db) > 0
    return False  # the check of the database tells of it


def certificate_files(shop: DoctorContext) -> Findings:
    """Check the keys of the certificate and of its CA, and that the CA is the one that posd has used."""
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
    if backups.exists():  # else it is made in the state directory
        yield from to_write(shop, "database.path", backups, "no backup can be written there")
    if textfile is not None and not textfile.parent.exists():
        yield shop.tell("files.no_metrics", textfile.parent, key="metrics.textfile")
    elif textfile is not None:
        yield from to_write(shop, "metrics.textfile", textfile.parent, "posd cannot write its metrics there")


def _secrets(shop: DoctorContext) -> Findings:
    for key, value in named(shop).items():
        path = value.file if isinstance(value, HeaderValue) else None
        if path is None or not path.exists():
            continue  # the check of the configuration tells of it
        if path.stat().st_mode & stat.S_IRWXO:
            yield without_others(shop, "files.secret_open", path)
        elif not shop.failed("configuration", key):
            yield shop.tell("files.secret_closed", path)


#: What is looked at, as it is named where this user may not look -> how.
PARTS: Mapping[str, Callable[[DoctorContext], Findings]] = {
    "state directory": _directory,
    "database": _database,
    "callback key": _callback_key,
    "certificate files": certificate_files,
    "backups and metrics": _written,
    "header files": _secrets,
}


def _private(shop: DoctorContext, path: Path, code: str, *, group_may: bool = False) -> CheckFinding:
    """Check whether another user may read a secret. A group may read the shop's own key."""
    if path.stat().st_mode & (stat.S_IRWXO if group_may else OTHERS):
        return shop.tell(f"files.{code}", path, closed="o-rwx" if group_may else "0600")
    return shop.tell("files.group_private" if group_may else "files.private", path)
