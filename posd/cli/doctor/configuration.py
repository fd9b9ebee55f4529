"""The configuration file: everything that is wrong with it, and with the files and credentials that it names."""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from posd.base.files import user_name
from posd.base.redaction import REDACTED
from posd.cli.doctor.context import DoctorContext, Findings, failure, me, ok, refusal, unseen, warning
from posd.cli.doctor.users import barrier, mode, readable
from posd.config import HeaderError, HeaderValue
from posd.config.profile import EDITIONS
from posd.config.schema import PROFILE_SECTIONS, SECRET_NAMES
from posd.terminals import trust


def check(shop: DoctorContext) -> Findings:
    """Tell each problem of the file, and of the files that it names."""
    for problem in shop.problems:
        subject = problem.key or problem.file
        yield refusal(
            problem.key,
            subject,
            problem.reason,
            problem.cure,
            shop.edit_at(problem.file, problem.line),
            file=problem.file,
            line=problem.line,
        )
    if shop.config is None:
        return
    found = list(_named_files(shop))
    yield from found
    if not shop.problems and not found:
        yield ok(shop.config_file, "every key is known and every value can be used")
    yield from _rows_of_the_other_edition(shop)
    for file in (shop.config_file, *sorted((shop.config_file.parent / "config.d").glob("*.toml"))):
        if file.exists():
            yield from _permissions(shop, file)
    if not shop.settings.terminals and not shop.problems:
        yield warning(
            "terminals",
            "the configuration names no terminal: every payment is refused",
            'see which are announced, add a section [[terminals]] with serial = "…" for each, and restart posd',
            shop.command("terminals", "--all"),
            shop.edit(),
            *shop.systemctl("restart"),
        )


def _rows_of_the_other_edition(shop: DoctorContext) -> Findings:
    """Tell where the file says of a terminal of the newer edition what the older one has: a row that was copied."""
    classic, newer = EDITIONS["classic"], EDITIONS["2026"]
    for access_mode in {item.access_mode for item in shop.settings.terminals if item.edition == "2026"}:
        given = shop.settings.profiles["2026"].table(access_mode)
        for operation, old in classic.table(access_mode).items():
            row, new = given[operation], newer.table(access_mode)[operation]
            if (row.path, row.document_member) != (new.path, new.document_member) and row.path == old.path:
                where = f"{PROFILE_SECTIONS[access_mode]}.{operation}"
                yield warning(
                    where,
                    f"terminals of edition 2026 are called at {row.path}, as the file says; the edition has {new.path}",
                    "remove path from that section, and print.document_member, unless the terminal wants them so",
                    shop.command("config", "show", "--profile"),
                    shop.edit(),
                )


def named(shop: DoctorContext) -> Iterator[tuple[str, Path | HeaderValue]]:
    """Yield each file and each credential that the configuration names, with the first key that does."""
    config = shop.settings
    for name in ("certificate", "private_key"):
        if path := getattr(config.webhooks, name):
            yield f"webhooks.{name}", path
    tables = {"terminal_defaults": config.terminal_defaults}
    tables |= {f"terminals[{number}]": terminal for number, terminal in enumerate(config.terminals)}
    headers = {"profile": config.profile_headers["local"], "profile.cloud": config.profile_headers["cloud"]}
    headers = {"terminal_defaults": config.terminal_defaults.headers} | headers
    headers |= {at: table.headers for at, table in tables.items()}
    known: set[object] = set()
    for at, table in tables.items():
        if table.ca_file and table.ca_file not in known:
            known.add(table.ca_file)
            yield f"{at}.ca_file", table.ca_file
        for name in ("business_code", "webhook_secret"):
            if (secret := getattr(table, name)) is not None and secret not in known:
                known.add(secret)
                yield f"{at}.{name}", secret
    for at, values in headers.items():
        for name, value in values.items():
            if value.value is None and value not in known:
                known.add(value)
                yield f"{at}.headers.{name}", value


def _named_files(shop: DoctorContext) -> Findings:
    """Open what the configuration names, as posd does."""
    for key, value in named(shop):
        if isinstance(value, Path):
            yield from _opened(shop, key, value)
            if key.endswith("ca_file"):
                yield from _ca_file(shop, key, value)
        elif value.file is not None:
            found = list(_opened(shop, key, value.file))
            yield from found or _header(shop, key, value, value.file)
        else:
            yield from _credential(shop, key, str(value.credential))


def _opened(shop: DoctorContext, key: str, path: Path) -> Findings:
    """Tell where a file that the configuration names cannot be opened by posd.

    What is no file may be a secret that stands in its place.
    """
    closed = barrier(shop.user, readable, path) if shop.can_try else readable(path)
    if closed is None:
        if shop.service is not None and shop.service.hides(path):
            hidden = f"names {path}, which the unit of posd hides from it (ProtectHome=, PrivateTmp=)"
            yield refusal(key, key, hidden, *_elsewhere(shop, key, path))
        return
    absent = closed.number != errno.EACCES and not SECRET_NAMES.isdisjoint(key.split("."))
    reason = f"names {REDACTED if absent else path}, which cannot be read ({closed.reason})"
    if closed.number == errno.EACCES and not shop.can_try:
        yield unseen(key, f"not looked at: {me()} may not read {path}")
    elif closed.number != errno.EACCES:
        yield refusal(key, key, reason, "put the file there, or correct the path", shop.edit(key))
    elif closed.at != path:
        yield refusal(key, key, f"{reason}: {_standing(shop, closed.at, 'pass through')}", *_elsewhere(shop, key, path))
    else:
        standing = _standing(shop, path, "read")
        yield refusal(key, key, f"{reason}: {standing}", "let posd read it", *_let_read(shop, path))


def _let_read(shop: DoctorContext, path: Path) -> Iterator[str]:
    """Yield the commands that let posd read a file, or pass through a directory, of another user."""
    if path.stat().st_uid == shop.user.uid:
        yield shop.as_root("chmod", "u+rX", path)
    else:
        yield shop.as_root("chgrp", shop.user.group, path)
        yield shop.as_root("chmod", "g+rX", path)


def _elsewhere(shop: DoctorContext, key: str, path: Path) -> tuple[str, ...]:
    """Return words and commands that put a file where posd may read it."""
    copy = shop.config_file.parent / path.name
    todo = f'copy it beside the configuration, and write {key.rpartition(".")[2]} = "{copy}" there'
    return todo, shop.as_root("install", "-m", "0640", "-g", shop.user.group, path, copy), shop.edit(key)


def _standing(shop: DoctorContext, path: Path, what: str) -> str:
    """Say whose a file is, and which user may not do something with it."""
    found = path.stat()
    return (
        f"{path} belongs to {user_name(found.st_uid)} ({mode(found)}), and the user {shop.user.name} may not {what} it"
    )


def _ca_file(shop: DoctorContext, key: str, path: Path) -> Findings:
    if not os.access(path, os.R_OK):
        return  # told before
    try:
        trust.context(path)
    except OSError as error:
        todo = "put the CA of the terminal there, in PEM form; see which certificate it shows"
        find = shop.command("terminals", "pin", next(iter(shop.terminals_by_serial), "SERIAL"))
        yield refusal(key, key, str(error), todo, find, shop.edit(key))


def _header(shop: DoctorContext, key: str, value: HeaderValue, path: Path) -> Findings:
    try:
        value.resolve()
    except HeaderError as error:
        yield refusal(
            key, key, f"cannot be used: {error.source} {error.reason}", error.cure, shop.as_root("editor", path)
        )


def _credential(shop: DoctorContext, key: str, name: str) -> Findings:
    """Tell where the unit does not pass a credential that the configuration names, or from a file that is not there."""
    if shop.service is None:
        return
    source = shop.service.credential(name)
    edit = shop.systemctl("edit")
    if source is None:
        todo = f"add the line LoadCredential={name}:/etc/posd/credentials/{name} below [Service], then restart posd"
        meaning = f"the unit of posd passes no credential {name}"
        yield refusal(key, key, meaning, todo, *edit, *shop.systemctl("restart"))
    elif source and os.geteuid() == 0 and (closed := readable(Path(source))):
        meaning = f"systemd cannot read {source} for the credential {name} ({closed.reason})"
        yield refusal(key, key, meaning, "put the secret there", shop.as_root("editor", source))


def _permissions(shop: DoctorContext, file: Path) -> Findings:
    found = file.stat()
    if found.st_mode & stat.S_IWOTH:
        yield failure(
            file,
            "everybody on this machine may change the configuration, and so decide which terminals are believed",
            "close it to others",
            shop.as_root("chmod", "o-w", file),
        )
    secret = any(
        header.value is not None
        for headers in (*shop.settings.profile_headers.values(), *(one.headers for one in shop.settings.terminals))
        for header in headers.values()
    )
    if secret and found.st_mode & stat.S_IROTH:
        yield warning(
            file,
            "it has values of headers in it, which may be keys, and everybody on this machine may read them",
            "put the values into files of their own (headers = {NAME = {file = …}}), or close the configuration to "
            "others",
            *without_others(shop, file),
        )
    if shop.can_try and (closed := barrier(shop.user, readable, file)):
        yield refusal(
            "",
            file,
            f"posd cannot read its configuration ({closed.reason}): {_standing(shop, closed.at, 'read')}",
            "let posd read it",
            *_let_read(shop, closed.at),
            file=str(file),
        )


def without_others(shop: DoctorContext, path: Path) -> Iterator[str]:
    """Yield the commands that close a file to others and leave it to posd."""
    if shop.user.uid not in (0, path.stat().st_uid):
        yield shop.as_root("chgrp", shop.user.group, path)
        yield shop.as_root("chmod", "g+r,o-rwx", path)
    else:
        yield shop.as_root("chmod", "o-rwx", path)
