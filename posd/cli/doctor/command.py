"""`posd doctor`: what is wrong, what it means, and what to do."""

import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import click
import msgspec
from rich.table import Table
from rich.text import Text

from posd.base.text import shown
from posd.cli.app.connection import json_option
from posd.cli.app.context import ExitCode, context
from posd.cli.app.lazy import READABLE_COLUMNS
from posd.cli.app.output import Output, counted, pasted
from posd.cli.app.times import in_words
from posd.cli.doctor import certificate, daemon, files, terminals
from posd.cli.doctor.context import CheckFinding, CheckStatus, DoctorContext, Findings, texts
from posd.cli.doctor.service import root_again
from posd.cli.explain.catalogue import named, say
from posd.config import examine as read_configuration
from posd.config.layers import where


class DoctorCheck(NamedTuple):
    """One check. `seconds`: time-out. `needs_configuration`: whether it can run only with a readable configuration.

    `refuses`: whether the check finds faults that prevent a start of posd. `posd config check` runs these checks.
    """

    title: str
    run: Callable[[DoctorContext], Findings]
    seconds: float
    needs_configuration: bool = True
    refuses: bool = False


#: All checks. The order matters, because later checks use results of earlier ones: the daemon's report, addresses,
#: clocks.
CHECKS: Mapping[str, DoctorCheck] = MappingProxyType(
    {
        "configuration": DoctorCheck("Configuration", files.configuration, 30, needs_configuration=False, refuses=True),
        "daemon": DoctorCheck("Daemon", daemon.check, 30, needs_configuration=False),
        "files": DoctorCheck("Files and keys", files.check, 30, refuses=True),
        "access": DoctorCheck("Sockets and groups", files.check_access, 30, refuses=True),
        "database": DoctorCheck("Database", files.check_database, 30, refuses=True),
        "disk": DoctorCheck("Disk", daemon.check_disk, 10),
        "port": DoctorCheck("Ports", daemon.check_ports, 30, refuses=True),
        "firewall": DoctorCheck("Firewall", daemon.check_firewall, 20),
        "mdns": DoctorCheck("mDNS", terminals.listen, 15),
        "certificate": DoctorCheck("Certificate", certificate.check, 20, refuses=True),
        "terminal": DoctorCheck("Terminals", terminals.check, 120),
        "callback": DoctorCheck("Callback addresses", certificate.check_callbacks, 60),
        "clock": DoctorCheck("Clock", daemon.check_clock, 10, needs_configuration=False),
    }
)


#: Longest search for damage in the database for `posd config check`, in seconds.
SHORT_CHECK_SECONDS = 3.0


def refusals(shop: DoctorContext) -> tuple[list[CheckFinding], list[CheckFinding]]:
    """Return the faults that prevent a start of posd, and the subjects that this user cannot read.

    Only the checks that can find such faults run.
    """
    shop.seconds = SHORT_CHECK_SECONDS
    daemon.find(shop)
    found = [one for name, check in CHECKS.items() if check.refuses for one in examine(name, check, shop)]
    return [one for one in found if one.refused], [one for one in found if one.unseen]


def examine(name: str, check: DoctorCheck, shop: DoctorContext) -> list[CheckFinding]:
    """Run one check and return its findings, which are also added to `shop.found`."""
    said: list[CheckFinding] = []

    def work() -> None:
        try:
            for item in check.run(shop):
                said.append(item)  # noqa: PERF402 - one by one, to keep them after a time-out
        except Exception as error:  # noqa: BLE001 - a fault in one check must not stop the others
            said.append(shop.tell("check.broken", check.title, kind=type(error).__name__, error=error))

    # The check runs in a daemon thread. If it hangs (on a dead network file system), the command can still exit.
    worker = threading.Thread(target=work, name=f"check-{name}", daemon=True)
    worker.start()
    worker.join(check.seconds)
    done = list(said)
    if worker.is_alive():
        root_again()  # the hanging thread may act as another user
        done.append(shop.tell("check.hangs", check.title, seconds=check.seconds))
    findings = [_placed(name, item, shop) for item in done]
    shop.found += findings
    return findings


def _placed(name: str, said: CheckFinding, shop: DoctorContext) -> CheckFinding:
    """Return a finding with the name of its check, and the place of its key in the configuration."""
    if said.refused and not said.file:
        file, line = where(shop.config_file, said.key)
        said = msgspec.structs.replace(said, file=str(file), line=line)
    return msgspec.structs.replace(said, check=name)


#: Status -> its word and its style on a terminal.
MARKS: Mapping[CheckStatus, tuple[str, str]] = {
    CheckStatus.OK: ("ok", "green"),
    CheckStatus.WARNING: ("warning", "yellow"),
    CheckStatus.FAILURE: ("FAILURE", "bold red"),
}
#: Width of the column of status words, which are indented by two.
MARK_COLUMNS = 9
#: Indentation of a command: as deep as the text above it.
COMMAND_INDENT = MARK_COLUMNS + 1


@click.command()
@json_option
@click.pass_context
def doctor(ctx: click.Context, output: Output) -> None:
    """Check all that payments depend on: files, certificate, clock, network, terminals.

    It changes nothing and starts no payment, and works whether posd runs or not. Exit code 0: no check failed. 1: a
    check failed, or the configuration cannot be used. 3: posd does not run; other checks may have failed too.
    """
    file = Path(context(ctx).config_path)
    given = context(ctx).socket_path
    config, problems = read_configuration(file, check_files=False)
    shop = DoctorContext(file.absolute(), config, problems, Path(given) if given else None)
    if not output.rich:
        output.cells(("status", "check", "subject", "meaning", "what to do", "commands"))
    for name, check in CHECKS.items():
        if config is None and check.needs_configuration:
            continue
        with output.busy(say("doctor", "busy", title=named(check.title), seconds=check.seconds)):
            findings = examine(name, check, shop)
        show_group(output, named(check.title), [one for one in findings if not _hidden(one)])
    if output.as_json:
        output.json(msgspec.json.encode(shop.found))
    else:
        if hidden := [one for one in shop.found if _hidden(one)]:
            subjects = ", ".join(dict.fromkeys(f"{one.check} ({one.subject})" for one in hidden))
            said = shop.tell("unseen.all", shop.me, subjects=subjects)
            show_group(output, named("Not checked"), [msgspec.structs.replace(said, check="not checked")])
        _summary(output, [one for one in shop.found if not _hidden(one)], len(hidden), unread=config is None)
    failed = any(one.status is CheckStatus.FAILURE for one in shop.found)
    sys.exit((ExitCode.NOT_DONE if failed else ExitCode.DONE) if shop.there else ExitCode.UNREACHABLE)


def _hidden(one: CheckFinding) -> bool:
    """Return whether the subject was not checked, because this user cannot read it."""
    return one.unseen and one.todo == texts()["unseen"]["file"]["do"]


def show_group(output: Output, title: str, findings: Sequence[CheckFinding]) -> None:
    """Write the findings of one check."""
    if not output.rich:
        for one in findings:
            output.cells((one.status, one.check, one.subject, one.meaning, one.todo, "; ".join(one.commands)))
        return
    if not findings:
        return
    output.line(title, "bold")
    for one in findings:
        mark, style = MARKS[one.status]
        place = f" ({one.file}:{one.line})" if one.line is not None else ""
        words = Text.assemble((shown(named(one.subject)), "bold"), ": ", shown(f"{in_words(one.meaning)}{place}"))
        if one.todo:
            words.append(f"\n> {shown(one.todo)}", style=style.removeprefix("bold "))
        grid = Table.grid(padding=(0, 1, 0, 0))
        grid.add_column(no_wrap=True, width=MARK_COLUMNS)
        grid.add_column(overflow="fold", max_width=READABLE_COLUMNS)
        grid.add_row(Text(f"  {named(mark)}", style=style), words)
        output.stdout.print(grid)
        for command in one.commands:
            output.verbatim(*pasted(command, COMMAND_INDENT, output.stdout.width))
    output.line()


def _summary(output: Output, found: Sequence[CheckFinding], hidden: int, *, unread: bool) -> None:
    """Write the number of findings of each status."""
    counts = Counter(one.status for one in found)
    failures, warnings = counts[CheckStatus.FAILURE], counts[CheckStatus.WARNING]
    told = {"failures": counted(failures, named("failure")), "warnings": counted(warnings, named("warning"))}
    text = say("doctor", "summary", **told, well=counts[CheckStatus.OK])
    text += say("doctor", "not_looked_at", hidden=hidden) if hidden else "."
    if unread:
        text += say("doctor", "unread")
    if output.rich:
        output.line(text, "red" if failures else "yellow" if warnings else "green")
    else:
        output.note(text)
