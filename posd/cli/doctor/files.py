"""The configuration file, and the files of the daemon: what is wrong with them, which users own and may read them."""

import errno
import grp
import os
import pwd
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

from posd import tls
from posd.cli.app.parameters import user_name
from posd.cli.doctor.context import AS_ROOT, Findings, Said, Shop, daemon_uid, failure, me, ok, permitted, warning
from posd.config import examine
from posd.daemon.sockets import SOCKET_MODE
from posd.records.callback_urls import NEW_KEY

# The configuration file: everything that is wrong with it, and with the files that it names.


def check_configuration(shop: Shop) -> Findings:
    """Tell each problem, or that there is none."""
    known = set(shop.problems)
    in_files = [problem for problem in examine(shop.config_file)[1] if problem not in known]
    # What this user may not read the daemon may well be able to: that says nothing about the set-up.
    closed = [problem for problem in in_files if os.strerror(errno.EACCES) in problem.reason and os.geteuid() != 0]
    for problem in (*shop.problems, *in_files):
        subject = problem.key or problem.file
        if problem in closed:
            yield warning(subject, f"not looked at: {me()} may not read the file that it names", AS_ROOT)
        else:
            yield failure(subject, problem.reason, problem.cure)
    if not shop.problems and len(closed) == len(in_files):
        yield ok(shop.config_file, "every key is known and every value can be used")
    if shop.config is not None:
        yield from _permissions(shop)
        if not shop.settings.terminals and not shop.problems:
            yield warning(
                "terminals",
                "the configuration names no terminal: every payment is refused",
                'add a section [[terminals]] with serial = "…" for each terminal, then restart posd',
            )


def _permissions(shop: Shop) -> Findings:
    file = shop.config_file
    mode = stat.S_IMODE(file.stat().st_mode)
    if mode & stat.S_IWOTH:
        yield failure(
            file,
            "everybody on this machine may change the configuration, and so decide which terminals are believed",
            f"chmod o-w {file}",
        )
    secret = any(
        header.value is not None
        for headers in (*shop.settings.profile_headers.values(), *(one.headers for one in shop.settings.terminals))
        for header in headers.values()
    )
    if secret and mode & stat.S_IROTH:
        yield warning(
            file,
            "it has values of headers in it, which may be keys, and everybody on this machine may read them",
            "put the values into files of their own (headers = {NAME = {file = …}}), or close the configuration to "
            f"others: chmod o-r {file}",
        )


Tell = Callable[[object, str, str], Said]

#: What to do about a secret that others may know.
KEY_ANEW = f"while no payment is open: stop posd, move the key away, {NEW_KEY}, and start posd"
PAIR_ANEW = "get a new pair (of posd's own: posd tls init)"
CA_ANEW = "make a new CA (posd tls init --force), and put its ca.crt on every terminal"

#: All users but the owner.
OTHERS = stat.S_IRWXG | stat.S_IRWXO


def check_files(shop: Shop) -> Findings:
    """Tell which of the daemon's files are open to others, or closed to the daemon."""
    for subject, part in PARTS.items():
        yield from permitted(subject, part(shop))


def _directory(shop: Shop) -> Findings:
    directory = shop.settings.database.path.parent
    if not directory.exists():
        yield warning(
            directory,
            "the state directory does not exist yet",
            "posd makes it at its first start, where it may; else create it for the user of posd, with mode 0700",
        )
        return
    found = directory.stat()
    if not stat.S_ISDIR(found.st_mode):
        yield failure(directory, "this is no directory", "move it away, or correct database.path")
    elif found.st_mode & stat.S_IWOTH or found.st_mode & stat.S_IWGRP:
        yield failure(
            directory,
            f"others may put files into the state directory ({_mode(found)}), and exchange the database or a key",
            f"chmod 0700 {directory}",
        )
    elif found.st_mode & OTHERS:
        yield ok(directory, f"others may see what lies in it ({_mode(found)}), not change it; 0700 is tighter")
    else:
        yield ok(directory, f"only {user_name(found.st_uid)} may look into it")


def _database(shop: Shop) -> Findings:
    path = shop.settings.database.path
    if not path.exists():
        return  # the check of the database tells of it
    yield from _owned(shop, path, "posd cannot write to it: no payment can start")
    for suffix in ("-wal", "-shm"):
        beside = path.with_name(path.name + suffix)
        if beside.exists():
            yield from _owned(shop, beside, "posd cannot use the database with it")
    lock = shop.settings.database.lock
    if lock.exists():
        yield from _owned(shop, lock, "posd cannot lock its database and will not start")
    if path.stat().st_mode & OTHERS:
        yield warning(
            path,
            f"others may read the payments ({_mode(path.stat())})",
            f"chmod 0600 {path} (posd does so itself when it starts)",
        )
    else:
        yield ok(path, f"only {user_name(path.stat().st_uid)} may read it")


def _callback_key(shop: Shop) -> Findings:
    path = shop.settings.database.callback_key
    if path.exists():
        yield from _private(shop, path, "could make up the outcome of a payment", KEY_ANEW)
    elif shop.settings.database.path.exists():
        yield warning(
            path,
            "there is no callback key beside the database. Where systemd hands it to posd (LoadCredential) that is "
            "right; else posd will not start, for callbacks under way would be refused with another one",
            f"if it was lost, put it back from a backup: posd restore BACKUP. Only where there is none: {NEW_KEY}",
        )


def _certificate_files(shop: Shop) -> Findings:
    key, given = shop.private_key, shop.settings.webhooks.private_key
    if key.exists():
        yield from _private(
            shop, key, "could pose as this machine towards the terminals", PAIR_ANEW, group_may=given is not None
        )
    if not shop.certificate.exists():
        return  # the check of the certificate tells of it
    if not _may_read(shop, shop.certificate):
        yield _closed_to_posd(shop, shop.certificate, "posd cannot show it to the terminals, and will not start")
    if given is None:
        made = tls.files(shop.settings.database.tls_directory)
        if made.ca_key.exists():
            yield from _private(
                shop, made.ca_key, "could make certificates that all terminals trust", CA_ANEW, unreadable=warning
            )
        elif made.ca_certificate.exists():
            yield warning(
                made.ca_key,
                "the key of the CA is not there: the certificate cannot be renewed before its end",
                f"put it back from a backup; without one: {CA_ANEW}",
            )


def _header_files(shop: Shop) -> Findings:
    paths = {header.file for one in shop.settings.terminals for header in one.headers.values() if header.file}
    for path in sorted(paths):
        if not path.exists():
            continue  # the check of the configuration tells of it
        if not _may_read(shop, path):
            yield _closed_to_posd(shop, path, "posd cannot send this header, and will not start")
        elif path.stat().st_mode & stat.S_IRWXO:
            yield warning(
                path,
                f"everybody on this machine may read what is sent to the terminals as a key ({_mode(path.stat())})",
                f"chmod o-rwx {path}",
            )
        else:
            yield ok(path, "posd may read it, and not everybody")


#: What is looked at, as it is named where this user may not look -> how.
PARTS: Mapping[str, Callable[[Shop], Findings]] = {
    "state directory": _directory,
    "database": _database,
    "callback key": _callback_key,
    "certificate files": _certificate_files,
    "header files": _header_files,
}


def _private(
    shop: Shop, path: Path, power: str, anew: str, *, unreadable: Tell = failure, group_may: bool = False
) -> Findings:
    """Judge a secret: posd must be able to read it, and no other user. A key of the shop's own may be its group's."""
    found = path.stat()
    open_to = found.st_mode & (stat.S_IRWXO if group_may else OTHERS)
    if open_to:
        yield failure(
            path,
            f"others may read this secret ({_mode(found)}): who has it {power}",
            f"chmod 0600 {path}. If somebody may have read it: {anew}",
        )
    elif not _may_read(shop, path):
        yield _closed_to_posd(shop, path, "posd cannot read it", unreadable)
    else:
        yield ok(path, f"only {user_name(found.st_uid)} may read it" if not group_may else "others may not read it")


def _owned(shop: Shop, path: Path, consequence: str) -> Findings:
    """Tell where a file that posd writes belongs to another user."""
    wanted, found = daemon_uid(shop), path.stat().st_uid
    if wanted and wanted != found:  # root may write it all the same
        owner = user_name(wanted)
        yield failure(
            path, f"it belongs to {user_name(found)}, not to {owner}: {consequence}", f"chown {owner}: {path}"
        )


def _closed_to_posd(shop: Shop, path: Path, consequence: str, tell: Tell = failure) -> Said:
    owner = user_name(daemon_uid(shop) or 0)
    return tell(
        path,
        f"{consequence}: it belongs to {user_name(path.stat().st_uid)} ({_mode(path.stat())}), posd runs as {owner}",
        f"chown {owner}: {path}",
    )


def _may_read(shop: Shop, path: Path) -> bool:
    """Tell whether the user of posd may read a file, by its mode; the directories above it are not looked at."""
    uid, found = daemon_uid(shop), path.stat()
    if not uid:  # root may; of a user that is not known nothing can be said
        return True
    if found.st_uid == uid:
        return bool(found.st_mode & stat.S_IRUSR)
    if found.st_gid in _groups(uid):
        return bool(found.st_mode & stat.S_IRGRP)
    return bool(found.st_mode & stat.S_IROTH)


def _groups(uid: int) -> list[int]:
    try:
        user = pwd.getpwuid(uid)
    except KeyError:
        return []
    return os.getgrouplist(user.pw_name, user.pw_gid)


def _mode(found: os.stat_result) -> str:
    return f"mode {stat.S_IMODE(found.st_mode):04o}"


# The local sockets: the groups that may use them, and whether this user is in them.


def check_access(shop: Shop) -> Findings:
    """Tell of the groups, the socket directory, and the two sockets."""
    api = shop.settings.local_api
    for key, group in (("till_group", api.till_group), ("admin_group", api.admin_group)):
        yield _group(key, group)
    yield from permitted(api.directory, _sockets(shop))


def _sockets(shop: Shop) -> Findings:
    api = shop.settings.local_api
    yield _socket_directory(api.directory)
    if shop.running.there:
        yield _socket(api.till_socket, api.till_group, "tills")
        yield _socket(api.admin_socket, api.admin_group, "operators")


def _group(key: str, group: str) -> Said:
    if not group:
        return ok(key, "empty: the group that posd itself runs as")
    try:
        grp.getgrnam(group)
    except KeyError:
        return failure(
            group,
            f"the group of local_api.{key} does not exist: posd will not start",
            f'create it (systemd-sysusers, or groupadd {group}), or set {key} = "" for the group of posd itself',
        )
    else:
        return ok(group, f"the group of local_api.{key} exists")


def _socket_directory(directory: Path) -> Said:
    if not directory.exists():
        return ok(directory, "the directory of the sockets is made when posd starts")
    mode = directory.stat().st_mode
    if mode & stat.S_IWOTH:
        return failure(
            directory,
            f"everybody may exchange the sockets (mode {stat.S_IMODE(mode):04o}), and pose as posd towards the tills",
            f"chmod 0755 {directory}",
        )
    if not mode & stat.S_IXOTH:
        return warning(
            directory,
            f"only some users may pass through it (mode {stat.S_IMODE(mode):04o}): others cannot reach their socket",
            f"chmod 0755 {directory}, unless all tills and operators belong to its group",
        )
    return ok(directory, "tills and operators can reach the sockets in it")


def _socket(path: Path, group: str, users: str) -> Said:
    if not path.exists():
        return failure(path, f"posd runs, but its socket for {users} is not there", "restart posd")
    found = path.stat()
    mode = stat.S_IMODE(found.st_mode)
    owner = _group_name(found.st_gid)
    if mode & stat.S_IRWXO:
        return failure(
            path,
            f"everybody on this machine may use the socket for {users} (mode {mode:04o}, it should be 0660)",
            f"chmod 0660 {path}, and find out what has changed it",
        )
    if mode & SOCKET_MODE != SOCKET_MODE:
        return failure(
            path, f"{users} cannot use their socket (mode {mode:04o}, it should be 0660)", f"chmod 0660 {path}"
        )
    if group and owner != group:
        return failure(
            path,
            f"the socket for {users} belongs to the group {owner}; local_api says {group}",
            "restart posd, if the configuration was changed; else find out what has changed the socket",
        )
    return _use(path, owner, users)


def _use(path: Path, group: str, users: str) -> Said:
    if os.access(path, os.W_OK):
        return ok(path, f"{me()} may use it; its group is {group}")
    if group in map(_group_name, _groups(os.geteuid())):
        return warning(
            path, f"{me()} belongs to {group}, but not yet in this session", "log out and in again, then try again"
        )
    return ok(path, f"for {users}: the group {group} may use it; {me()} is not in it, and may not")


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
