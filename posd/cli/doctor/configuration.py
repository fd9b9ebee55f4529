"""Checks of the configuration: posd's own check as its user, what its unit hides from it, and who may write it."""

import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from posd.cli.doctor.context import CheckFinding, DoctorContext, Findings
from posd.cli.doctor.service import barrier, being
from posd.config import ConfigProblem, HeaderValue, examine
from posd.config.profile import EDITIONS
from posd.config.schema import PROFILE_SECTIONS
from posd.terminals import trust


def check(shop: DoctorContext) -> Findings:
    """Yield each problem of the files, and of the files that they name."""
    found = list(_problems(shop))
    yield from found
    if shop.config is None:
        return
    if not found:
        yield shop.tell("configuration.right", shop.config_file)
    yield from _rows_of_the_other_edition(shop)
    for file in (shop.config_file, *sorted((shop.config_file.parent / "config.d").glob("*.toml"))):
        if file.exists():
            yield from _open_to_others(shop, file)
    if not shop.settings.terminals and not shop.problems:
        yield shop.tell("configuration.no_terminal", "terminals")


def _problems(shop: DoctorContext) -> Findings:
    problems = shop.problems
    if shop.config is not None:
        with being(shop.user):  # includes the named files, which posd opens too
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
    """Return posd's problem; for a file that it may not read, also how to allow it."""
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
        given = {"reason": problem.reason, "cure": problem.cure, "file": problem.file}
        given["line"] = None if problem.line is None else f"+{problem.line}"
        found = shop.tell("configuration.problem", subject, key=key, **given)
    return msgspec.structs.replace(found, file=problem.file, line=problem.line)


def _elsewhere(shop: DoctorContext, key: str, path: Path) -> dict[str, Any]:
    return {"path": path, "name": key.rpartition(".")[2], "copy": shop.config_file.parent / path.name}


def named(shop: DoctorContext) -> Mapping[str, Path | HeaderValue]:
    """Return the files and credentials that the configuration names: the first key with it -> it."""
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
    """Check for credentials that the configuration names and the unit does not pass, or whose file is missing."""
    source = shop.service.credential(name)
    if source is None:
        yield shop.tell("configuration.no_credential", key, key=key, name=name)
    elif source and os.geteuid() == 0 and not Path(source).is_file():
        yield shop.tell("configuration.no_secret", key, key=key, name=name, source=source)


def _rows_of_the_other_edition(shop: DoctorContext) -> Findings:
    """Check whether a terminal of the newer edition has values of the older one: a copied row."""
    classic, newer = EDITIONS["classic"], EDITIONS["2026"]
    for access_mode in {item.access_mode for item in shop.settings.terminals if item.edition == "2026"}:
        given = shop.settings.profiles["2026"].table(access_mode)
        for operation, old in classic.table(access_mode).items():
            row, new = given[operation], newer.table(access_mode)[operation]
            if (row.path, row.document_member) != (new.path, new.document_member) and row.path == old.path:
                where = f"{PROFILE_SECTIONS[access_mode]}.{operation}"
                yield shop.tell("configuration.copied_row", where, path=row.path, new=new.path)


def _open_to_others(shop: DoctorContext, file: Path) -> Findings:
    if file.stat().st_mode & stat.S_IWOTH:
        yield shop.tell("configuration.writable", file)
    headers = (*shop.settings.profile_headers.values(), *(one.headers for one in shop.settings.terminals))
    secret = any(header.value is not None for table in headers for header in table.values())
    if secret and file.stat().st_mode & stat.S_IROTH:
        yield without_others(shop, "configuration.secret_open", file)


def without_others(shop: DoctorContext, code: str, path: Path) -> CheckFinding:
    """Return a finding whose commands restrict a file to posd."""
    owned = shop.user.uid in (0, path.stat().st_uid)
    group, rights = (None, "o-rwx") if owned else (shop.user.group, "g+r,o-rwx")
    return shop.tell(code, path, to_group=group, rights=rights)
