"""`posd config`: check the configuration file, and show the values in force. Also `posd openapi`."""

import json
import os
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from posd.base.files import acting_as_owner
from posd.base.text import shown
from posd.cli.app.context import Context, ExitCode, context
from posd.cli.app.output import Output, aside, counted, pasted
from posd.cli.app.tables import wrap
from posd.cli.explain.catalogue import choose, named, say, translated
from posd.config import Config, ConfigError, ConfigProblem, load
from posd.config.show import ProfileEntry, ShownValue, entries, profile_entries, toml_lines

if TYPE_CHECKING:
    from posd.cli.doctor.context import CheckFinding

#: Source of a value that does not come from its own key -> note after the value.
SOURCE_NOTES = {
    "default": "default",
    "terminal_defaults": "from [terminal_defaults]",
    "profile": "with those of [profile]",
    "profile.cloud": "with those of [profile.cloud]",
}

#: Indentation of the cure of a problem.
INDENT = 4
#: Minimum column of the values in the summary.
SUMMARY_INDENT = 15

#: Whether an operation can be aborted -> text of `posd config show --profile`.
ABORTABLE = {True: "yes", False: "no", None: "-"}


@click.group()
@click.pass_context
def config(ctx: click.Context) -> None:
    """Check the configuration file, and show what is in force."""
    choose(ctx)


@config.command()
@click.option("--file-only", is_flag=True, help="Check only the file, because it is for another machine.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.pass_obj
def check(given: Context, file_only: bool, as_json: bool) -> None:
    """Check the configuration file, and that posd can start with it on this machine.

    It opens everything that posd opens at its start: files, folders, keys, ports, groups, the database. If root runs
    the command, it opens all as posd's user. It changes nothing. Exit code 0: posd can use the configuration. 2: it
    cannot; every problem is listed with its cure.
    """
    loaded = load_or_exit(given.config_path, as_json=as_json, check_files=False)
    refused: list[CheckFinding] = []
    unseen: list[CheckFinding] = []
    if not file_only:
        from posd.cli.doctor.command import refusals  # here, because only this command needs it
        from posd.cli.doctor.context import DoctorContext

        shop = DoctorContext(loaded.file, loaded, (), Path(given.socket_path) if given.socket_path else None)
        refused, unseen = refusals(shop)
    notes = list(dict.fromkeys(map(_reason, unseen)))
    problems = [
        ConfigProblem(one.file, one.key, _reason(one), "\n".join((one.todo, *one.commands)), one.line)
        for one in refused
    ]
    output = Output(as_json=as_json)
    if as_json:
        _print_problems(loaded.file, problems, notes)
    elif problems:
        _show_problems(problems)
    else:
        output.verbatim(say("config", "right_but" if notes else "right", file=loaded.file))
        summary = [(named(label), value) for label, value in _summary(loaded)]
        column = max(SUMMARY_INDENT, *(len(label) + 4 for label, _ in summary))
        room = output.stdout.width - column if output.rich else sys.maxsize
        for label, value in summary:
            first, *rest = wrap(shown(value), room)
            output.verbatim(f"{f'  {label}:':<{column}}{first}", *(" " * column + part for part in rest))
        output.verbatim(*(f"  {note}" for note in notes), style="yellow")
        if notes:
            command = shop.command("config", "check")
            output.verbatim(say("config", "check_all", command=command), style="yellow")
    sys.exit(ExitCode.USAGE if refused else ExitCode.DONE)


def _reason(one: "CheckFinding") -> str:
    """Return the text of a finding. It begins with the subject, unless the subject is the key."""
    return one.meaning if one.unseen or one.subject == one.key else f"{one.subject}: {one.meaning}"


@config.command()
@click.option("--profile", is_flag=True, help="Show the terminal profile instead: the path of each operation.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@click.pass_obj
def show(given: Context, profile: bool, as_json: bool) -> None:
    """Show the configuration in force, with defaults marked. Values of headers are never shown."""
    loaded = load_or_exit(given.config_path, as_json=as_json)
    if profile:
        _show_profile(loaded, as_json=as_json)
    elif as_json:
        click.echo(json.dumps(_document(loaded), indent=2))
    else:
        output = Output(as_json=False)
        output.verbatim(f"# {loaded.file}", style="dim")
        for line, entry in toml_lines(loaded):
            note = _origin(loaded, entry) if entry else ""
            output.verbatim(f"{line}  # {note}" if note else line, style="dim" if note else "")


def _origin(loaded: Config, entry: ShownValue) -> str:
    """Return the note after a value: its file, if that is not the main file, or its source."""
    if entry.file is None:
        return SOURCE_NOTES[entry.source]
    return "" if entry.file == loaded.file else str(entry.file.relative_to(loaded.file.parent))


def load_as_owner(config_path: str, *, as_json: bool = False) -> Config:
    """Load the configuration as `load_or_exit` does. Afterwards root acts as the owner of the state folder."""
    config = load_or_exit(config_path, as_json=as_json, check_files=False)
    act_as_owner(config.database.path)
    return config


def act_as_owner(file: Path) -> None:
    """If root runs the command, act as the owner of a file's folder until the command ends. Raise ClickException."""
    try:
        click.get_current_context().with_resource(acting_as_owner(file))
    except OSError as error:
        raise click.ClickException(f"cannot use {file.absolute().parent}: {error.strerror}") from error


def refuse_own_file(path: Path) -> None:
    """Raise UsageError for one of posd's files beside its database, which no command may overwrite."""
    from posd.config import examine, parse
    from posd.storage.database_files import is_own  # here, because few commands write a file

    file = Path(context(click.get_current_context()).config_path)
    config = examine(file, check_files=False)[0] or parse("", file=file, check_files=False)
    if is_own(path, config.database.path):
        raise click.UsageError(say("backup", "own_file", file=path))


def load_or_exit(config_path: str, *, as_json: bool = False, check_files: bool = True) -> Config:
    """Load the configuration. If it has errors, print all and exit with code 2."""
    try:
        return load(Path(config_path), check_files=check_files)
    except ConfigError as error:
        if as_json:
            _print_problems(error.problems[0].file, error.problems)
        else:
            _show_problems(error.problems)
            _show_editor(error.problems)
        sys.exit(ExitCode.USAGE)


def _print_problems(file: Path | str, problems: Sequence[ConfigProblem], notes: Sequence[str] = ()) -> None:
    """Print the problems of the configuration as JSON."""
    document = {"file": str(file), "ok": not problems, "problems": problems, "notes": notes}
    click.echo(msgspec.json.encode(document))


def _show_problems(problems: Sequence[ConfigProblem]) -> None:
    beside = aside()
    width = beside.stdout.width if beside.rich else sys.maxsize
    for problem in map(translated, problems):
        beside.line(problem.what, "red")
        cure, *commands = problem.cure.split("\n")
        if cure:
            beside.line(cure, indent=INDENT)
        beside.verbatim(*(line for command in commands for line in pasted(command, INDENT, width)))
    beside.line(say("config", "refused", problems=counted(len(problems), named("problem"))))


def _show_editor(problems: Sequence[ConfigProblem]) -> None:
    """For each file with a problem, write the command that opens the file at its first problem."""
    for file, first in {problem.file: problem for problem in reversed(problems)}.items():
        line = [] if first.line is None else [f"+{first.line}"]
        aside().verbatim(shlex.join([*(["sudo"] if os.geteuid() else []), "editor", *line, file]))


def _summary(loaded: Config) -> Iterable[tuple[str, str]]:
    marks = {"local": "", "cloud": " (cloud)"}
    terminals = [f"{terminal.serial}{marks[terminal.access_mode]}" for terminal in loaded.terminals]
    yield "terminals", ", ".join(terminals) or say("config", "no_terminal")
    is_default = loaded.sources["merchant.timezone"] == "default"
    yield "days", say("config", "default_days" if is_default else "days", zone=loaded.merchant.timezone)
    certificate = loaded.webhooks.certificate or say("config", "own_certificate")
    name = "webhooks_of_ipv4" if loaded.webhooks.listen.host == "0.0.0.0" else "webhooks"  # noqa: S104 - compared
    yield "webhooks", say("config", name, listen=loaded.webhooks.listen, certificate=certificate)
    if loaded.metrics.listen:
        yield "metrics", say("config", "metrics", listen=loaded.metrics.listen)
    modes = {terminal.access_mode for terminal in loaded.terminals} or {loaded.terminal_defaults.access_mode}
    if "cloud" in modes and loaded.terminals:
        yield "cloud", say("config", "cloud", url=loaded.webhooks.public_url)
    local = loaded.local_api
    feed = say("config", "feed", socket=local.feed_socket, group=local.feed_group)
    sockets = (local.till_socket, local.admin_socket, feed if local.feed_group else local.feed_socket)
    yield "sockets", ", ".join(map(str, sockets))
    yield "database", str(loaded.database.path)
    assumed = sum(not entry.row.confirmed for entry in profile_entries(loaded) if entry.access_mode in modes)
    yield "profile", say("config", "assumed" if assumed else "confirmed", count=assumed)


def _document(loaded: Config) -> dict[str, object]:
    values: dict[str, Any] = {}
    for entry in entries(loaded):
        table = values
        for name in entry.section.split("."):
            table = table.setdefault(name, {})
        table[entry.name] = entry.value
    terminals = [values.pop(f"terminals[{index}]") for index in range(len(loaded.terminals))]
    keys = {f"{entry.section}.{entry.name}": entry for entry in entries(loaded)}
    return {
        "file": str(loaded.file),
        "values": {**values, "terminals": terminals},
        "sources": {key: entry.source for key, entry in keys.items()},
        "files": {key: str(entry.file) for key, entry in keys.items() if entry.file},
    }


def _show_profile(loaded: Config, *, as_json: bool) -> None:
    rows = list(profile_entries(loaded))
    if as_json:
        row_members = ("method", "path", "pointer", "paged", "errors_in_2xx", "document_member", "confirmed")
        members = ("edition", "access_mode", "operation", "abortable", "replaced")
        document = [
            {name: getattr(entry, name) for name in members} | {name: getattr(entry.row, name) for name in row_members}
            for entry in rows
        ]
        click.echo(json.dumps({"file": str(loaded.file), "profile": document}, indent=2))
        return
    output = Output(as_json=False)
    word = named if output.rich else str  # a pipe is for programs
    titles = {"local": word("Local network"), "cloud": word("Cloud")}
    tables = dict.fromkeys((entry.edition, entry.access_mode) for entry in rows)
    for edition, access_mode in tables:
        output.table(
            (f"{titles[access_mode]}, {edition}", "method", "path", "abortable", "standing"),
            [
                (one.operation, one.row.method, one.row.path, ABORTABLE[one.abortable], word(_standing(one)))
                for one in rows
                if (one.edition, one.access_mode) == (edition, access_mode)
            ],
        )
        if output.rich:
            output.line()
    output.line(say("config", "assumption"))


def _standing(entry: ProfileEntry) -> str:
    standing = "confirmed" if entry.row.confirmed else "assumption"
    return f"{standing}, from the configuration" if entry.replaced else standing


@click.command()
def openapi() -> None:
    """Print the OpenAPI 3.1 description of the local API, for generating a client.

    The command needs no daemon and no configuration. A daemon serves the same description at GET /v1/openapi.json.
    """
    from posd.api.openapi import document

    click.echo(document())
