"""`posd clock`: evidence for and against the clock of this machine, and an operator's confirmation."""

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import click

from posd.cli.app.connection import connect, json_option
from posd.cli.app.context import ExitCode
from posd.cli.app.lazy import LazyGroup
from posd.cli.app.output import Output, Pair, aside, counted
from posd.cli.app.parameters import asks, confirm
from posd.cli.app.times import in_words, moment
from posd.cli.explain.catalogue import named, say, translate


@click.group(cls=LazyGroup, targets={"confirm": "posd.cli.operate.clock:confirm_"}, invoke_without_command=True)
@json_option
@click.pass_context
def clock(ctx: click.Context, output: Output) -> None:
    """Show whether posd trusts the clock of this machine, why, and what waits for it.

    Payments need the clock only for `not_after` and for signed calls. Until posd trusts the clock, posd removes nothing
    and makes or renews no certificate. Exit code 0: posd trusts the clock. 1: posd does not trust it.
    """
    if ctx.invoked_subcommand is not None:
        return
    with connect(ctx) as api:
        reply = api.get("/clock")
    output.reply(reply, _show)
    sys.exit(ExitCode.DONE if reply.body["sure"] else ExitCode.NOT_DONE)


@click.command("confirm")
@click.option("--operator", required=True, metavar="NAME", help="Name of the person who compared the clock.")
@click.option("--note", metavar="TEXT", help="How it was compared; posd stores it.")
@json_option
@click.pass_context
def confirm_(ctx: click.Context, output: Output, operator: str, note: str | None) -> None:
    """Confirm that the clock of this machine is right.

    Compare it with another clock first (date). Waiting work then continues at once: posd removes the records
    that are older than the configured days by this clock. The removal cannot be undone.
    """
    if not operator.strip():
        raise click.BadParameter("give the person who compared the clock", param_hint="--operator")
    body = {"operator": operator.strip()} | ({"note": note.strip()} if note and note.strip() else {})
    with connect(ctx) as api:
        if asks():
            _show(aside(), api.get("/clock").body)
            confirm(aside(), "Does another clock show the same time and day?")
        reply = api.post("/clock/confirm", body)
    output.reply(reply, _show)


def _show(output: Output, state: Mapping[str, Any]) -> None:
    sure = bool(state["sure"])
    output.panel(say("clock", "sure" if sure else "unsure"), _pairs(state), "green" if sure else "yellow")
    if not sure:
        output.line()
        output.line(say("clock", "waiting"), "bold")
        for item in state["waiting"]:
            output.line(in_words(translate(item)), indent=2)
        output.line()
        output.line(say("clock", "todo", todo=in_words(translate(state["todo"]))))


def _pairs(state: Mapping[str, Any]) -> Iterator[Pair]:
    seen, terminals = state["witnesses"], state["witnesses"]["terminals"]
    yield "the clock says", moment(seen["now"], year=True)
    if state["detail"]:
        yield "not trusted", in_words(translate(state["detail"]), year=True)
    yield "highest trusted time", moment(seen["highest"], date=True)
    yield "confirmed up to", moment(seen["confirmed"], date=True)
    yield "this posd was made on", seen["built"][:10]
    yield "time service", say("clock", seen["kernel"])
    yield "terminals", _terminals(terminals)
    if (said := state["confirmation"]) is not None:
        note = f": {said['note']}" if said["note"] else ""
        at = moment(said["at"], date=True)
        yield "last confirmed", say("clock", "confirmed_by", at=at, operator=said["operator"], note=note)
    for item in state["unsure"][:5]:
        since, until = (moment(item[name], date=True) if item[name] else named("now") for name in ("since", "until"))
        why = named(item["reason"].replace("_", " "))
        yield "was not trusted", say("clock", "from_to", since=since, until=until, why=why)


def _terminals(said: Mapping[str, Any]) -> str:
    if (ahead := said["ahead_seconds"]) is None:
        return say("clock", "no_times")
    verdict = say("clock", "confirm" if said["agree"] else "confirm_nothing")
    many = {"payments": counted(said["payments"], named("payment")), "terminals": said["terminals"]}
    return say("clock", "ahead" if ahead > 0 else "behind", apart=abs(ahead), verdict=verdict, **many)
