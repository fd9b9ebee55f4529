"""`posd config`: is the configuration right, and what is in force."""

import grp
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from posd import tls
from posd.base.text import shown
from posd.cli.app.context import Context
from posd.cli.app.exit_codes import ExitCode
from posd.config import Config, ConfigError, ConfigProblem, load
from posd.config.profile import AccessMode
from posd.config.show import entries, profile_entries, toml_lines
from posd.terminals import trust

#: What stands behind a value that does not come from its own key.
SOURCE_NOTES = {
    "default": "default",
    "terminal_defaults": "from [terminal_defaults]",
    "profile": "with those of [profile]",
    "profile.cloud": "with those of [profile.cloud]",
}

#: How `posd config show --profile` writes whether what a row starts can be aborted.
ABORTABLE = {True: "yes", False: "no", None: "-"}


@click.group()
def config() -> None:
    """Check the configuration file, and show what is in force."""


@config.command()
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.pass_obj
def check(given: Context, as_json: bool) -> None:
    """Check the configuration file and the files that it names.

    Exit code 0: it can be used. 2: it cannot; every problem is listed, with what to do about it.
    """
    loaded = load_or_exit(given.config_path, as_json=as_json)
    notes = list(_not_yet(loaded))
    if as_json:
        click.echo(json.dumps({"file": str(loaded.file), "ok": True, "problems": [], "notes": notes}))
        return
    _say(f"{loaded.file}: the configuration is right.")
    for label, value in _summary(loaded):
        _say(f"  {label + ':':<12} {value}")
    if notes:
        _say("On this machine posd cannot start with it yet:")
    for note in notes:
        _say(f"  {note}", fg="yellow")


@config.command()
@click.option("--profile", is_flag=True, help="Show the terminal profile instead: which path carries what.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@click.pass_obj
def show(given: Context, profile: bool, as_json: bool) -> None:
    """Show the configuration in force, defaults marked. Values of headers are never shown."""
    loaded = load_or_exit(given.config_path, as_json=as_json)
    if profile:
        _show_profile(loaded, as_json=as_json)
    elif as_json:
        click.echo(json.dumps(_document(loaded), indent=2, ensure_ascii=False))
    else:
        _say(f"# {loaded.file}", dim=True)
        for line, source in toml_lines(loaded):
            note = SOURCE_NOTES.get(source or "")
            _say(line if note is None else f"{line}  # {note}", dim=note is not None or None)


def _say(text: str, *, err: bool = False, **style: Any) -> None:
    """Write a line, without what would load more than these commands need (`posd.cli.app.output`)."""
    click.echo(click.style(shown(text), **style), err=err)


def load_or_exit(config_path: str, *, as_json: bool = False, check_files: bool = True) -> Config:
    """Load the configuration; where that fails, print every problem and exit with code 2."""
    try:
        return load(Path(config_path), check_files=check_files)
    except ConfigError as error:
        if as_json:
            problems = [{"file": p.file, "key": p.key, "reason": p.reason, "cure": p.cure} for p in error.problems]
            click.echo(json.dumps({"file": error.problems[0].file, "ok": False, "problems": problems}))
        else:
            _print_problems(error.problems)
        sys.exit(ExitCode.USAGE)


def _print_problems(problems: tuple[ConfigProblem, ...]) -> None:
    for problem in problems:
        key = f"{click.style(shown(problem.key), bold=True)} " if problem.key else ""
        click.echo(f"{shown(problem.file)}: {key}{click.style(shown(problem.reason), fg='red')}", err=True)
        _say(f"    {problem.cure}", err=True)
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    _say(f"{count}: the configuration cannot be used until this is mended.", err=True)


def _not_yet(loaded: Config) -> Iterable[str]:
    """Say what else than the file keeps the daemon from starting here: certificates and groups."""
    made = tls.files(loaded.database.tls_directory)
    try:
        tls.server_context(
            loaded.webhooks.certificate or made.certificate, loaded.webhooks.private_key or made.private_key
        )
    except tls.TlsError as error:
        yield str(error)
    for ca_file in dict.fromkeys(terminal.ca_file for terminal in loaded.terminals):
        try:
            trust.context(ca_file, "")
        except OSError as error:
            yield str(error)
    for group in dict.fromkeys((loaded.local_api.till_group, loaded.local_api.admin_group)):
        try:
            if group:
                grp.getgrnam(group)
        except KeyError:
            yield f"the group {group} does not exist; create it (systemd-sysusers, or groupadd {group})"


def _summary(loaded: Config) -> Iterable[tuple[str, str]]:
    marks = {"local": "", "cloud": " (cloud)"}
    terminals = [f"{terminal.serial}{marks[terminal.access_mode]}" for terminal in loaded.terminals]
    yield "terminals", ", ".join(terminals) or "none: every payment will be refused until one is configured"
    certificate = loaded.webhooks.certificate or "the one of posd tls init"
    yield "webhooks", f"https on {loaded.webhooks.listen}, certificate: {certificate}"
    if any(terminal.access_mode == "cloud" for terminal in loaded.terminals):
        yield "cloud", f"the service calls back at {loaded.webhooks.public_url}"
    yield "sockets", f"{loaded.local_api.till_socket}, {loaded.local_api.admin_socket}"
    yield "database", str(loaded.database.path)
    assumed = sum(row.assumption for mode in _access_modes(loaded) for row in loaded.profile.table(mode).values())
    yield "profile", f"{assumed} paths are assumptions (posd config show --profile)" if assumed else "confirmed"


def _access_modes(loaded: Config) -> set[AccessMode]:
    """Return the access modes that the fleet uses; without terminals the one that they would have."""
    return {terminal.access_mode for terminal in loaded.terminals} or {loaded.terminal_defaults.access_mode}


def _document(loaded: Config) -> dict[str, object]:
    values: dict[str, Any] = {}
    for entry in entries(loaded):
        table = values
        for name in entry.section.split("."):
            table = table.setdefault(name, {})
        table[entry.name] = entry.value
    terminals = [values.pop(f"terminals[{index}]") for index in range(len(loaded.terminals))]
    sources = {f"{entry.section}.{entry.name}": entry.source for entry in entries(loaded)}
    return {"file": str(loaded.file), "values": {**values, "terminals": terminals}, "sources": sources}


def _show_profile(loaded: Config, *, as_json: bool) -> None:
    rows = list(profile_entries(loaded))
    if as_json:
        document = [
            {
                "access_mode": entry.access_mode,
                "operation": entry.operation,
                "method": entry.row.method,
                "path": entry.row.path,
                "pointer": entry.row.pointer,
                "abortable": entry.abortable,
                "confirmed": entry.row.confirmed,
                "replaced": entry.replaced,
            }
            for entry in rows
        ]
        click.echo(json.dumps({"file": str(loaded.file), "profile": document}, indent=2))
        return
    from posd.cli.app.output import Output

    output = Output(as_json=False)
    for access_mode, title in (("local", "Local network"), ("cloud", "Cloud")):
        output.table(
            (title, "method", "path", "abortable", "standing"),
            [
                (
                    entry.operation,
                    entry.row.method,
                    entry.row.path,
                    ABORTABLE[entry.abortable],
                    ("confirmed" if entry.row.confirmed else "assumption")
                    + (", from the configuration" if entry.replaced else ""),
                )
                for entry in rows
                if entry.access_mode == access_mode
            ],
        )
    output.line(
        "An assumption is used, but what it answers proves nothing until it is confirmed: check it with your terminal, "
        "then set confirmed = true in its section, as in [profile.abort]."
    )
