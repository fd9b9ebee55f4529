"""`posd status`: whether all is well. Also `posd metrics` and `posd completion`."""

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from posd.base.files import user_name
from posd.base.problems import RemedyStep, remedy
from posd.base.text import shown
from posd.base.times import parse_iso
from posd.cli.app.completion_words import SHELLS
from posd.cli.app.connection import Api, ForeignAnswer, Problem, Unreachable, connect, json_option
from posd.cli.app.context import RESULT_CODES, ExitCode, context
from posd.cli.app.lazy import READABLE_COLUMNS
from posd.cli.app.output import Output, asked, counted, pasted, size
from posd.cli.app.parameters import check_usage
from posd.cli.app.tables import short_ids, shortened, width, wrap
from posd.cli.app.times import age, day, here, in_words, moment, short
from posd.cli.certificates import expired
from posd.cli.explain.catalogue import chosen, glossed, language, named, say, translate, translated
from posd.cli.operate.logs import sentence
from posd.cli.payments.words import check_words, started, state
from posd.client.connection import DEFAULT_SOCKET

Document = Mapping[str, Any]

#: `reachable` of a terminal -> word on the screen.
REACHABLE: Mapping[bool | None, str] = {True: "yes", False: "NO", None: "not known"}
#: Function that returns a text of this screen from the catalogue.
_say = partial(say, "status")
#: Age in seconds from which the newest backup counts as old. The timer makes one a day.
BACKUP_SECONDS = 2 * 86_400
#: Seconds between two screens of --watch.
REFRESH_SECONDS = 2.0
#: Maximum number of open payments that are shown.
MOST_OPEN = 5
#: Column of the text beside the labels.
INDENT = 17
#: Format of the line about a terminal.
TERMINAL = "{:<10} {:<9} {:<13} {}"
#: Commands that may need sudo: one reads all files, the other writes files of posd's user.
DOCTOR, RENEW = "posd doctor", "posd tls renew"
#: Health checks that are shown first if they fail, because the results or times of other checks depend on them.
FIRST = ("storage", "configuration", "clock")
#: State folder of the package, which belongs to posd's user.
USUAL_STATE = Path("/var/lib/posd")
#: Longest wait for the service manager and its journal, in seconds.
SYSTEMD_SECONDS = 1.0
#: Longest wait for posd, in seconds. posd first probes the terminals for up to half of that time.
ANSWER_SECONDS = 10.0


class StatusLine(NamedTuple):
    """Line of the screen. `wrong`: whether it reports a problem. `steps`: what to do."""

    label: str
    text: str
    wrong: bool = False
    steps: Sequence[RemedyStep] = ()


def do(*commands: str) -> list[RemedyStep]:
    """Return one step for each command, without a text."""
    return [RemedyStep("", command) for command in commands]


@click.command()
@click.option("--watch", is_flag=True, help="Show it again every two seconds, until Ctrl-C.")
@json_option
@click.pass_context
def status(ctx: click.Context, output: Output, watch: bool) -> None:
    """Show in one screen whether all is well, and what to do if not.

    The first line is the answer. A line with a problem begins with ! and names the next command. Exit code 0: all is
    well. 1: there is a problem. 3: the daemon does not run, or this user may not use its socket.
    """
    if not watch:
        sys.exit(_show(ctx, output))
    check_usage("status", no_terminal=not output.rich)
    with suppress(KeyboardInterrupt), output.stdout.screen():
        while True:
            _show(ctx, output)
            time.sleep(REFRESH_SECONDS)


def _show(ctx: click.Context, output: Output) -> ExitCode:
    """Write the screen. Return the exit code."""
    try:
        with connect(ctx) as api:
            document, raw = ask(api)
            payments = _open_payments(api)
    except ForeignAnswer:
        raise
    except Unreachable as error:
        _down(ctx, output, error)
        return ExitCode.UNREACHABLE
    found = typed(lines(document, payments), Path(api.socket))
    if output.as_json:
        output.json(raw)
    else:
        write(output, headline(document, found), found, failing=document["health"]["status"] == "failing")
    return ExitCode.NOT_DONE if any(line.wrong for line in found) else ExitCode.DONE


def typed(found: Iterable[StatusLine], socket: Path) -> list[StatusLine]:
    """Return the lines, with `sudo` before `posd doctor` and `posd tls renew` if this user needs it."""
    at = next((place for place in (socket, socket.parent, USUAL_STATE) if place.exists()), None)
    if at is None or os.geteuid() in (0, at.stat().st_uid):
        return list(found)
    as_posd = {DOCTOR: f"sudo {DOCTOR}", RENEW: f"sudo -u {user_name(at.stat().st_uid)} {RENEW}"}
    return [line._replace(steps=[_as_posd(step, as_posd) for step in line.steps]) for line in found]


def _as_posd(step: RemedyStep, commands: Mapping[str, str]) -> RemedyStep:
    return RemedyStep(step.does, commands.get(step.command or "", step.command))


def ask(api: Api) -> tuple[Document, bytes]:
    """Return the status, decoded and as received. On the till socket, read only the parts that it serves."""
    try:
        reply = api.get("/status", {"check": "true"}, seconds=ANSWER_SECONDS)
        return reply.body, reply.raw  # noqa: TRY300 - the code below is for the till socket
    except Problem as problem:
        if problem.code != "forbidden":
            raise
    asked_for = {
        "version": api.get("/version"),
        "health": api.get("/health", also={503}),  # health `failing` has status 503
        "terminals": api.get("/terminals", {"check": "true"}),
    }
    document = {name: reply.body for name, reply in asked_for.items()}
    document["terminals"] = document["terminals"]["terminals"]
    return document, msgspec.json.encode({name: msgspec.Raw(reply.raw) for name, reply in asked_for.items()})


def _open_payments(api: Api) -> Sequence[Document] | None:
    """Return the open payments, or None if the database cannot be read. posd's health reports that."""
    with suppress(Problem):
        return list(api.get("/transactions", {"open": "true", "limit": "500"}).body["transactions"])
    return None


def headline(document: Document, found: Sequence[StatusLine]) -> str:
    """Return the first line: whether all is well."""
    # Of several lines about one subject, only the first has a label.
    labels = [
        "payments in doubt" if line.label == "open payments" and line.text.endswith(named("in doubt")) else line.label
        for line in found
        if line.wrong and line.label
    ]
    wrong = [named(label).replace("  ", "terminal ") for label in labels]
    if not wrong:
        return _say("well" if "counters" in document else "well_here")
    checks = document["health"]["checks"]
    failing = [row for name, row in chosen("check").items() if checks.get(name, {}).get("status") == "failing"]
    text = failing[0].get("failing") if failing else None
    return _say("failing" if text else "not_well", failing=text, wrong=", ".join(wrong))


def lines(document: Document, payments: Sequence[Document] | None) -> Iterator[StatusLine]:
    """Yield the lines of the screen, from the whole status or its part from the till socket."""
    whole = "uptime_seconds" in document
    version = document["version"]
    yield StatusLine("version", f"{version['version']} (API {version['api']}, {named('schema')} {version['schema']})")
    if whole:
        # If posd does not trust the clock, the year may be wrong, so show it.
        year = document["clock"]["status"] != "ok"
        since = moment(document["started_at"], date=True, year=year)
        yield StatusLine("uptime", _say("uptime", age=age(document["uptime_seconds"]), since=since))
        yield _configuration(document["configuration"], year=year)
    checks = document["health"]["checks"]
    for name, check in sorted(checks.items(), key=lambda item: _rank(*item)):
        well = check["status"] == "ok"
        if (well and name not in ("clock", "certificate")) or (name == "configuration" and whole):
            continue
        detail, steps = check_words(name, check)
        if not well and not any(step.command for step in steps):
            steps = [*steps, *do(DOCTOR)]
        if name == "clock" and well:
            detail = moment(detail, date=True)
        elif language() != "en":
            detail = _with_times(name, check, detail, document)
        # The year may be wrong, so show it.
        words = in_words(detail, year=name == "clock")
        yield StatusLine(name.replace("_", " "), words, not well, [] if well else steps)
    yield from _terminals(document["terminals"])
    yield from _work(document.get("counters"), payments)
    if whole:
        yield _disk(document["disk"])
        yield _backup(document)
    else:
        yield StatusLine("not shown", _say("socket_of_tills"), steps=[RemedyStep(_say("use_admin_socket"))])


def _with_times(name: str, check: Document, detail: str, document: Document) -> str:
    """Return the catalogue's text about a check, with the times from the daemon's report."""
    if name == "certificate" and (served := check.get("served")):
        text = "expired" if check.get("reason") == "expired" else "valid"
        until = _say(text, until=moment(served["not_after"], date=True))
        return until if check["status"] == "ok" else f"{until}. {detail}"
    if name == "clock" and check.get("reason") and "at" in document:
        return _say("clock_says", detail=detail, now=moment(document["at"], date=True, year=True))
    return detail


def _rank(name: str, check: Document) -> int:
    """Return the rank of a health check for sorting: possible causes first, then checks that stop payments."""
    if check["status"] != "ok" and name in FIRST:
        return FIRST.index(name)
    return len(FIRST) if check["status"] == "failing" else len(FIRST) + 1


def _configuration(found: Document, *, year: bool) -> StatusLine:
    loaded = _say("loaded", at=moment(found["loaded_at"], date=True, year=year))
    if (refused := found["refused"]) is None:
        keys = ", ".join(found["needs_restart"])
        text = _say("restart", loaded=loaded, keys=keys) if keys else loaded
        return StatusLine("configuration", text, steps=do("sudo systemctl restart posd") if keys else ())
    first, more = refused["errors"][0], len(refused["errors"]) - 1
    where = first["file"] if first["line"] is None else f"{first['file']}:{first['line']}"
    what = f"{first['key']} {first['message']}".strip()
    also = _say("also", more=more) if more else ""
    text = _say("refused", at=moment(refused["at"]), what=f"{where}: {what}{also}", loaded=loaded)
    return StatusLine("configuration", text, wrong=True, steps=do("posd config check && sudo systemctl reload posd"))


def _terminals(items: Sequence[Document]) -> Iterator[StatusLine]:
    if not items:
        yield StatusLine("terminals", named("none"), wrong=True, steps=[RemedyStep(_say("no_terminals"))])
        return
    heads = map(named, ("reachable", "identity", "commissioned"))
    yield StatusLine("terminals", TERMINAL.format(*heads, _say("last_payment", zone=here())))
    for item in items:
        identity, commissioned = item["identity"], item.get("commissioned")
        words = TERMINAL.format(
            named(REACHABLE[item["reachable"]]),
            named("CONFLICT" if identity["conflict"] else identity["proof"]),
            day(commissioned["at"]) if commissioned else named("lapsed") if item.get("commission_lapsed") else "-",
            _last(item["last_payment"]) if "last_payment" in item else named("not shown"),
        )
        steps = list[RemedyStep]()
        if identity["conflict"]:
            steps = do(f"posd terminals identity {item['serial']}")
        elif item["reachable"] is False or not item["base_url"]:
            reason, pin = item["reason"] or "it does not answer", f"posd terminals pin {item['serial']}"
            steps = [RemedyStep(translate(reason)), *do(pin if pin in reason else DOCTOR)]
        wrong = bool(steps)
        if not wrong and item.get("commission_lapsed"):
            steps = do(f"posd terminals commission {item['serial']}")
        yield StatusLine(f"  {item['serial']}", words, wrong, steps)


def _last(payment: Document | None) -> str:
    if payment is None:
        return "-"
    return f"{short(payment['at'])} {named((payment['result'] or payment['phase']).replace('_', ' '))}"


def _needs_a_person(payment: Document) -> bool:
    return bool(payment["next_step"] == "ask_person" or payment["phase"] == "in_doubt")


def _work(counters: Document | None, payments: Sequence[Document] | None) -> Iterator[StatusLine]:
    """Yield the lines about open payments, attentions, print jobs and quarantine."""
    if payments is None:
        yield StatusLine("payments", named("cannot be read"), wrong=True, steps=do(DOCTOR))
        return
    doubtful = sum(item["phase"] == "in_doubt" for item in payments)
    many, doubt = len(payments), doubtful
    if counters is not None:  # `payments` may lack some open payments
        many, doubt = counters["open_payments"], counters["in_doubt"]
    text = _say("in_doubt", many=many or named("none"), doubt=doubt) if doubt else str(many or named("none"))
    steps = do("posd list --phase in_doubt") if doubt > doubtful else ()
    yield StatusLine("open payments", text, doubt > 0 or any(map(_needs_a_person, payments)), steps)
    # Show first the payments that an operator has to check.
    first = sorted(payments, key=lambda item: not _needs_a_person(item))[:MOST_OPEN]
    for beginning, item in zip(short_ids([item["client_transaction_id"] for item in first]), first, strict=True):
        person = _needs_a_person(item)
        yield StatusLine("", f"{beginning}  {open_text(item)}", person, _to_settle(item) if person else ())
    if many > len(first):
        yield StatusLine("", _say("more_open"))
    if counters is None:
        return
    attention, prints = counters["attention"], counters["print_attention"]
    steps = do("posd list --attention") if attention else ()
    yield StatusLine("attention", str(attention or named("none")), bool(attention), steps)
    if prints:
        yield StatusLine("print attention", str(prints), wrong=True, steps=do("posd list --print-jobs --attention"))
    if counters["open_print_jobs"]:
        yield StatusLine("print jobs", _say("open_print_jobs", count=counters["open_print_jobs"]))
    if counters["quarantine"]:
        callbacks = counted(counters["quarantine"], named("refused callback"))
        yield StatusLine("quarantine", _say("quarantine", callbacks=callbacks))


def _to_settle(payment: Document) -> list[RemedyStep]:
    """Return the advice on an open payment. If the last search did not find it, add how to resolve it."""
    identity = payment["client_transaction_id"]
    steps = do(f"posd reconcile {identity}")
    search = payment.get("last_search")
    if search is not None and search["result"] != "found":
        results = ", ".join(map(glossed, RESULT_CODES))
        steps.append(RemedyStep(_say("settle", results=results), f"posd resolve {identity} RESULT"))
    return steps


def _disk(disk: Document) -> StatusLine:
    if disk["free_bytes"] is None:
        return StatusLine("disk", named("cannot be looked at"), wrong=True, steps=do(DOCTOR))
    database = "" if disk["database_bytes"] is None else _say("database", size=size(disk["database_bytes"]))
    return StatusLine("disk", _say("free", free=size(disk["free_bytes"]), of=size(disk["size_bytes"])) + database)


def _backup(document: Document) -> StatusLine:
    """Return the line about the newest backup. Without one, a problem is shown two days after the start of posd."""
    made = document["backup_at"]
    old = document["uptime_seconds"]
    text = named("none yet")
    if made is not None:
        old = (parse_iso(document["at"]) - parse_iso(made)).total_seconds()
        # If the backup is from the future, the clock was wrong then or is wrong now. The check of the clock reports
        # that.
        text = _say("backup" if old >= 0 else "future_backup", age=age(old), at=moment(made, date=True))
    late = old > BACKUP_SECONDS
    steps = do("sudo systemctl start posd-backup", "sudo journalctl -u posd-backup -n 20") if late else ()
    return StatusLine("backup", text, late, steps)


def write(output: Output, first: str, found: Sequence[StatusLine], *, failing: bool) -> None:
    """Write the first line and the others. On a terminal they are broken to its width, in a pipe they are not."""
    wrong = any(line.wrong for line in found)
    if output.stdout.is_alt_screen:
        output.stdout.clear()
    output.line(first, "bold red" if failing else "bold yellow" if wrong else "bold green")
    terminals = [line for line in found if line.label.startswith(" ")]
    beside = INDENT
    if output.rich and terminals:
        # On a terminal a long serial is shortened, except in the first line.
        longest, rest = max(width(line.label) for line in terminals), max(width(line.text) for line in terminals)
        beside = max(INDENT, min(longest + 3, output.stdout.width - rest))
    for line in found:
        indent = beside if line in terminals or line.label == "terminals" else INDENT
        room = min(READABLE_COLUMNS, output.stdout.width - indent) if output.rich else sys.maxsize
        label = shortened(line.label, indent - 3) if output.rich and line in terminals else named(line.label)
        head = f"{'!' if line.wrong else ' '} {label} "
        # If a label is too long, the first line has less room for text.
        over = max(0, width(head) - indent)
        first_part, *rest_parts = wrap("x" * over + shown(line.text), room) or [""]
        parts = [first_part[over:], *rest_parts]
        parts += [part for step in line.steps for part in step_lines(step, room)]
        for part in parts:
            output.verbatim(f"{head:<{indent}}{part}".rstrip(), style="yellow" if line.wrong else "")
            head = ""


def step_lines(step: RemedyStep, room: int) -> list[str]:
    """Return the lines of a step.

    If a command does not fit beside the text, it is on lines of its own, so that a user can copy it.
    """
    words = shown(f"> {remedy([step])}")
    if step.command is None or width(words) <= room:
        return wrap(words, room)
    return [*(wrap(shown(f"> {step.does}:"), room) if step.does else ()), *pasted(shown(step.command), 2, room)]


# Screen if the daemon does not reply.


def _down(ctx: click.Context, output: Output, error: Unreachable) -> None:
    """Print what is known without the daemon: socket, configuration, service, last error."""
    from posd.config import examine

    file = Path(context(ctx).config_path)
    # The files that the configuration names are not checked, because only the daemon may read them.
    config, problems = examine(file, check_files=False)
    # Ask systemd only if the socket is in the default directory, which its service uses.
    service = _service() if Path(error.socket).parent == Path(DEFAULT_SOCKET).parent else {}
    last_error = _last_error(service.get("ActiveExitTimestamp")) if service else ""
    if output.as_json:
        errors = [
            {"file": each.file, "line": each.line, "key": each.key, "message": f"{each.reason}; {each.cure}"}
            for each in problems
        ]
        document = {
            "running": False,
            "socket": error.socket,
            "reason": error.reason,
            "service": service or None,
            "last_error": last_error or None,
            "configuration": {"file": str(file), "errors": errors},
        }
        output.json(msgspec.json.encode(document))
        return
    steps = do("sudo posd status" if error.lasting else DOCTOR)
    found = [StatusLine("socket", f"{error.socket}: {translate(error.reason)}", True, steps)]
    if file.exists() and not os.access(file, os.R_OK):
        found.append(StatusLine("configuration", _say("not_for_this_user", file=file), steps=do("sudo posd status")))
    elif config is not None and not problems:
        words = _say("can_be_read" if file.exists() else "not_there", file=file)
        found.append(StatusLine("configuration", words, steps=do("sudo posd config check")))
        if (until := expired(config)) is not None:
            found.append(StatusLine("certificate", _say("expired", until=day(until)), True, do(DOCTOR)))
    elif file.exists() or not context(ctx).socket_path:
        told = map(translated, problems[:3])
        found += [StatusLine("configuration", each.what, True, [RemedyStep(each.cure)]) for each in told]
    if service:
        runs = service.get("ActiveState") == "active"
        words = f"{service.get('ActiveState')} ({service.get('SubState')}), {named('result')} {service.get('Result')}"
        found.append(StatusLine("service", words, not runs, () if runs else do("sudo systemctl start posd")))
        if service.get("StatusText"):
            found.append(StatusLine("it says", service["StatusText"]))
        if last_error:
            found.append(StatusLine("last error", last_error))
        found.append(StatusLine("its log", "sudo journalctl -u posd -n 20"))
    title = "CANNOT BE ASKED" if error.lasting else "DOES NOT ANSWER" if error.sent else "DOES NOT RUN"
    write(output, f"posd: {named(title)}", typed(found, Path(error.socket)), failing=True)


def _service() -> Mapping[str, str]:
    """Return systemd's state of the service. It is empty without a service."""
    names = "LoadState,ActiveState,SubState,Result,StatusText,ActiveExitTimestamp"
    text = output_of(f"systemctl show posd.service --timestamp=unix --property={names}")
    said = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    return said if said.get("LoadState") == "loaded" else {}


def _last_error(since: str | None) -> str:
    """Return posd's newest error in the journal, since its last run.

    It is "" without one, or if this user cannot read it.
    """
    span = f"--since={since}" if since else "--boot"
    lines = output_of(f"journalctl _SYSTEMD_UNIT=posd.service {span} --priority=err --lines=1 --output=cat --quiet")
    text = lines.strip()
    try:
        return sentence(msgspec.json.decode(text, type=dict[str, Any]))
    except (ValueError, KeyError):
        return text


def output_of(command: str) -> str:
    """Return the output of a command, or "" if it fails."""
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(  # noqa: S603 - no word of the command is from a user
            command.split(), capture_output=True, text=True, errors="replace", timeout=SYSTEMD_SECONDS, check=True
        ).stdout
    return ""


def open_text(transaction: Mapping[str, Any]) -> str:
    """Return the line about an open payment, without its id."""
    names = (transaction["terminal"], named(transaction["type"]))
    person = named("needs a person") if transaction["next_step"] == "ask_person" else ""
    words = (*names, asked(transaction["amount"]), named(state(transaction)), started(transaction), person)
    return "  ".join(filter(None, words))


# Commands that print a text unchanged.


@click.command()
@click.pass_context
def metrics(ctx: click.Context) -> None:
    """Print the daemon's metrics in Prometheus' text format.

    Use it in a cron job beside node_exporter if posd does not write the file itself: posd metrics > posd.prom
    """
    with connect(ctx) as api:
        click.echo(api.metrics().encode(), nl=False)


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script with which a shell completes commands, options and ids.

    SHELL is bash, zsh or fish. The daemon supplies the ids of payments and print jobs, serials and attention codes. If
    the daemon does not answer at once, the shell offers none of them. The package of posd installs these scripts.
    """
    from click.shell_completion import ShellComplete, get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - click knows the shells of SHELLS
    made = kind(ctx.find_root().command, {}, "posd", "_POSD_COMPLETE")
    # click's own method would run bash to check its version.
    click.echo(ShellComplete.source(made))
