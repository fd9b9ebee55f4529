"""The files of the daemon: what is wrong with them, which users own them and may read them."""

import errno
import os
import sqlite3
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from posd import tls
from posd.base.files import user_name
from posd.cli.doctor.configuration import named, without_others
from posd.cli.doctor.context import (
    DoctorContext,
    Findings,
    failure,
    ok,
    permitted,
    refusal,
    warning,
)
from posd.cli.doctor.database import newest_backup, open_unchanged
from posd.cli.doctor.users import barrier, mode, tried_as, writable
from posd.config import HeaderValue
from posd.records.callback_urls import CREDENTIAL, KeyFileError, load_keys
from posd.storage import database_id
from posd.storage.database_files import closed_to_us
from posd.upkeep import known_ca

#: All users but the owner.
OTHERS = stat.S_IRWXG | stat.S_IRWXO


def check_files(shop: DoctorContext) -> Findings:
    """Tell which of the daemon's files are open to others, or closed to the daemon."""
    for subject, part in PARTS.items():
        yield from permitted(subject, part(shop))


def _directory(shop: DoctorContext) -> Findings:
    directory = shop.settings.database.path.parent
    closed = list(to_write(shop, "database.path", directory, "posd cannot make its database there"))
    yield from closed
    if closed:
        return
    if not directory.exists():
        yield ok(directory, "the state directory does not exist yet: it is made at the first start")
        return
    found = directory.stat()
    if found.st_mode & stat.S_IWOTH or found.st_mode & stat.S_IWGRP:
        yield failure(
            directory,
            f"others may put files into the state directory ({mode(found)}), and exchange the database or a key",
            "close it to others",
            shop.as_root("chmod", "0700", directory),
        )
    elif found.st_mode & OTHERS:
        yield ok(directory, f"others may see what lies in it ({mode(found)}), not change it; 0700 is tighter")
    else:
        yield ok(directory, f"only {user_name(found.st_uid)} may look into it")


def to_write(shop: DoctorContext, key: str, path: Path, consequence: str, *, made: str = "0700") -> Findings:
    """Tell where posd cannot make or write a file or directory of its own, which has the mode `made`.

    Raise PermissionError.
    """
    if shop.service is not None and shop.service.read_only(path):
        unit = f"the unit of posd lets it write nothing there (ProtectSystem=strict), and {consequence}"
        todo = f"add the line ReadWritePaths={path} below [Service], then restart posd"
        yield refusal(key, path, unit, todo, *shop.systemctl("edit"), *shop.systemctl("restart"))
        return
    if shop.service is not None and not path.exists() and shop.service.makes(path):
        return
    if not shop.can_try:
        with suppress(FileNotFoundError):
            path.stat()  # what may not be seen is told as such
        return
    closed = barrier(shop.user, writable, path)
    if closed is None:
        return
    at, user = closed.at, shop.user.name
    if closed.number == errno.EROFS:
        if (mount := mount_point(at)) in shop.read_only:
            return  # told before
        shop.read_only.add(mount)
        why = f"the file system of {at} cannot be written ({closed.reason})"
        todo, *commands = mount_again(shop, at)
    elif closed.number == errno.ENOTDIR:
        why, todo = f"{at} is no directory", "move it away, or correct the path"
        commands = [shop.as_root("mv", at, f"{at}.old")]
    else:
        found = at.stat()
        why = f"{at} belongs to {user_name(found.st_uid)} ({mode(found)}), and posd runs as {user}"
        todo = f"give it to {user}"
        if at == path:
            commands = [shop.as_root("chown", f"{user}:", at)]
            if found.st_uid == shop.user.uid:
                commands = [shop.as_root("chmod", "u+rwX", at)]
        elif path.exists():
            todo, commands = f"let {user} pass through it", [shop.as_root("chmod", "o+x", at)]
        else:
            commands = [shop.as_root("install", "-d", "-m", made, "-o", user, "-g", shop.user.group, path)]
    yield refusal(key, path, f"{consequence}: {why}", todo, *commands)


def mount_again(shop: DoctorContext, path: Path) -> tuple[str, ...]:
    """Return words and commands about a file system that is mounted read-only."""
    return (
        "find out why: a disk that fails is often mounted so; then mount it again",
        _kernel_log(shop),
        shop.as_root("mount", "-o", "remount,rw", mount_point(path)),
    )


def _kernel_log(shop: DoctorContext) -> str:
    return f"{shop.as_root('dmesg', '--level=err,warn')} | tail -n 20"


def mount_point(path: Path) -> Path:
    """Return where the file system of a path is mounted."""
    return next(one for one in (path, *path.parents) if one.is_mount())


def _database(shop: DoctorContext) -> Findings:
    path = shop.settings.database.path
    if not path.exists():
        return  # the check of the database tells of it
    closed = list(_kept_by_others(shop, path))
    yield from closed
    if path.stat().st_mode & OTHERS:
        yield warning(
            path,
            f"others may read the payments ({mode(path.stat())})",
            "close it to others (posd does so itself when it starts)",
            shop.as_root("chmod", "0600", path),
        )
    elif not closed:
        yield ok(path, f"only {user_name(path.stat().st_uid)} may read it")


def _kept_by_others(shop: DoctorContext, database: Path) -> Findings:
    """Check which files of posd belong to another user, for example after root copied them back."""
    if not shop.can_try:
        return
    kept = tried_as(shop.user, lambda: [str(path) for path in closed_to_us(database)], list[str])
    if kept:
        user, folder = shop.user.name, database.parent
        meaning = f"posd runs as {user}, and may not use {', '.join(kept)}: they belong to another user"
        give = shop.as_root("chown", "-R", user, folder)
        yield refusal("database.path", kept[0], meaning, f"give the files of {folder} to {user}", give)


def _callback_key(shop: DoctorContext) -> Findings:
    path = shop.settings.database.callback_key
    if shop.service is not None and shop.service.credential(CREDENTIAL) is not None:
        yield ok(path, "the callback key is a credential of the unit")
        return
    lost = (
        "put it back from a backup (where there is none: a new one; callbacks of payments under way are then refused)"
    )
    if path.exists():
        said = list(_private(shop, path, "could make up the outcome of a payment", _key_anew(shop)))
        yield from said
        if os.access(path, os.R_OK) and not any(item.refused for item in said):
            try:
                load_keys(path, may_make=False)
            except KeyFileError:
                meaning = "it is damaged: no callback key (64 hex digits a line), and posd will not start"
                yield refusal("database.path", path, meaning, lost, *_key_back(shop))
    elif _used(shop):
        meaning = "the callback key is lost, without which callbacks under way are refused: posd will not start"
        yield refusal("database.path", path, meaning, lost, *_key_back(shop))


def _used(shop: DoctorContext) -> bool:
    """Tell whether the database has known payments, so that its callback key cannot be made anew, as posd judges it."""
    if shop.settings.database.witness.exists():
        return True
    try:
        with open_unchanged(shop.settings.database.path) as db:
            return database_id.last_seq(db) > 0
    except (OSError, sqlite3.Error):
        return False  # the check of the database tells of it


def _key_anew(shop: DoctorContext) -> tuple[str, ...]:
    path = shop.settings.database.callback_key
    return (
        *shop.systemctl("stop"),
        shop.as_root("mv", path, f"{path}.old"),
        shop.posd("restore", "--new-callback-key", "--operator", "NAME"),
        *shop.systemctl("start"),
    )


def _key_back(shop: DoctorContext) -> tuple[str, ...]:
    backup = newest_backup(shop)
    return (
        *shop.systemctl("stop"),
        shop.posd("restore", backup) if backup else shop.posd("restore", "--new-callback-key", "--operator", "NAME"),
        *shop.systemctl("start"),
    )


def _certificate_files(shop: DoctorContext) -> Findings:
    key, given = shop.private_key, shop.settings.webhooks.private_key
    made = tls.files(shop.settings.database.tls_directory)
    anew = shop.posd("tls", "init")
    if key.exists():
        power = "could pose as this machine towards the terminals"
        yield from _private(shop, key, power, (anew,), group_may=given is not None)
    if given is not None:
        return
    ca_anew = shop.posd("tls", "init", "--force")
    with suppress(OSError, sqlite3.Error), open_unchanged(shop.settings.database.path) as db:
        if (words := known_ca.lost(known_ca.known(db), made)) is not None:
            yield refusal("database.path", made.ca_certificate, words, known_ca.REMEDY, ca_anew)
    if made.ca_key.exists():
        power = "could make certificates that all terminals trust; then put the new ca.crt on every terminal"
        yield from _private(shop, made.ca_key, power, (ca_anew,))
    elif made.ca_certificate.exists():
        yield warning(
            made.ca_key,
            "the key of the CA is not there: the certificate cannot be renewed before its end",
            "put it back from a backup; without one make a new CA, and put its ca.crt on every terminal",
            ca_anew,
        )


def _backups(shop: DoctorContext) -> Findings:
    backups = shop.settings.database.backups
    if backups.exists():  # else it is made in the state directory
        yield from to_write(shop, "database.path", backups, "no backup can be written there")


def _textfile(shop: DoctorContext) -> Findings:
    file, key = shop.settings.metrics.textfile, "metrics.textfile"
    if file is None:
        return
    if not file.parent.exists():
        make = shop.as_root("install", "-d", "-o", shop.user.name, "-g", shop.user.group, file.parent)
        yield refusal(
            key, file.parent, "there is no such directory: posd cannot write its metrics there", "make it", make
        )
    else:
        yield from to_write(shop, key, file.parent, "posd cannot write its metrics there")


def _header_files(shop: DoctorContext) -> Findings:
    for key, value in named(shop):
        path = value.file if isinstance(value, HeaderValue) else None
        if path is None or not path.exists():
            continue  # the check of the configuration tells of it
        if path.stat().st_mode & stat.S_IRWXO:
            yield warning(
                path,
                f"everybody on this machine may read what is sent to the terminals as a key ({mode(path.stat())})",
                "close it to others",
                *without_others(shop, path),
            )
        elif not shop.failed("configuration", key):
            yield ok(path, "posd may read it, and not everybody")


#: What is looked at, as it is named where this user may not look -> how.
PARTS: Mapping[str, Callable[[DoctorContext], Findings]] = {
    "state directory": _directory,
    "database": _database,
    "callback key": _callback_key,
    "certificate files": _certificate_files,
    "backups": _backups,
    "metrics": _textfile,
    "header files": _header_files,
}


def _private(
    shop: DoctorContext, path: Path, power: str, anew: tuple[str, ...], *, group_may: bool = False
) -> Findings:
    """Check whether another user may read a secret. A group may read the shop's own key."""
    found = path.stat()
    if found.st_mode & (stat.S_IRWXO if group_may else OTHERS):
        yield failure(
            path,
            f"others may read this secret ({mode(found)}): a user who has read it {power}",
            "close it to others; where another user may have read it, make a new one too, while no payment is open: "
            + "; ".join(anew),
            shop.as_root("chmod", "o-rwx" if group_may else "0600", path),
        )
        return
    yield ok(path, f"only {user_name(found.st_uid)} may read it" if not group_may else "others may not read it")
