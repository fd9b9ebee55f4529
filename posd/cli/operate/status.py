"""`posd status`: the health of the daemon, its version, what is open. `posd metrics`, `openapi` and `completion`."""

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import click
import msgspec

from posd.cli.app.completion_words import SHELLS
from posd.cli.app.connection import connect, json_option
from posd.cli.app.exit_codes import ExitCode
from posd.cli.app.output import Output, Pair, asked
from posd.cli.payments.words import state

#: health's `status` -> style of its headline.
STYLES: Mapping[str, str] = {"ok": "green", "degraded": "yellow", "failing": "red"}


@click.command()
@json_option
@click.pass_context
def status(ctx: click.Context, output: Output) -> None:
    """Show the daemon's health, open payments and open print jobs.

    Exit code 0 where the daemon is well, whatever the payments and print jobs are.
    """
    with connect(ctx) as api:
        replies = {
            "health": api.get("/health", also={503}),  # an answer here: a failing daemon says what fails
            "version": api.get("/version"),
            "open": api.get("/transactions", {"open": "true"}),
            "attention": api.get("/transactions", {"attention": "true"}),
            "open_print_jobs": api.get("/print-jobs", {"open": "true"}),
            "print_attention": api.get("/print-jobs", {"attention": "true"}),
        }
    word = replies["health"].body.get("status", "failing")
    if output.as_json:
        document = {name: msgspec.Raw(reply.raw) for name, reply in replies.items()}
        output.json(msgspec.json.encode({"socket": str(api.socket), **document}))
    else:
        pairs = _pairs({name: reply.body for name, reply in replies.items()})
        output.panel(f"posd: {word}", [("socket", str(api.socket)), *pairs], STYLES.get(word, "red"))
    sys.exit(ExitCode.DONE if word == "ok" else ExitCode.NOT_DONE)


def _pairs(told: Mapping[str, Any]) -> Iterator[Pair]:
    version, payments, attention = told["version"], told["open"]["transactions"], told["attention"]["transactions"]
    yield "version", f"{version['version']} (API {version['api']}, schema {version['schema']})"
    for name, check in told["health"].get("checks", {}).items():
        yield name, check_text(check)
    yield "open payments", str(len(payments))
    for transaction in payments:
        yield "", open_text(transaction)
    if attention:
        yield "attention", f"{len(attention)} (posd list --attention)"
    if told["open_print_jobs"]["print_jobs"]:
        yield "open print jobs", f"{count(told['open_print_jobs'], 'print_jobs')} (posd print-jobs --open)"
    if told["print_attention"]["print_jobs"]:
        yield "print attention", f"{count(told['print_attention'], 'print_jobs')} (posd print-jobs --attention)"


def count(page: Mapping[str, Any], name: str) -> str:
    """Write how many there are, of which a page shows the newest."""
    return f"{len(page[name])}{'' if page['next_cursor'] is None else ' and more'}"


def check_text(check: object) -> str:
    """Write one health check: its status, and what else it says."""
    if not isinstance(check, Mapping):
        return str(check)
    # What is no text is for programs: the texts say it all.
    rest = "; ".join(value for name, value in check.items() if name != "status" and isinstance(value, str) and value)
    return f"{check.get('status', '')}: {rest}" if rest else str(check.get("status", ""))


def open_text(transaction: Mapping[str, Any]) -> str:
    """Write an open payment in a line."""
    names = (transaction[name] for name in ("client_transaction_id", "terminal", "type"))
    person = "needs a person" if transaction["next_step"] == "ask_person" else ""
    return "  ".join(filter(None, (*names, asked(transaction["amount"]), state(transaction), person)))


# Commands that print one text as it is.


@click.command()
@click.pass_context
def metrics(ctx: click.Context) -> None:
    """Print the daemon's metrics in Prometheus' text format.

    For a cron job beside node_exporter, where posd is not to write the file itself: posd metrics > posd.prom
    """
    with connect(ctx) as api:
        sys.stdout.write(api.metrics())


@click.command()
def openapi() -> None:
    """Print the description of the local API, an OpenAPI 3.1 document: for whoever makes a client by it.

    It asks no daemon, and is the same whatever the configuration says. A daemon gives it at GET /v1/openapi.json.
    """
    from posd.api.openapi import document

    click.echo(document())


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script with which a shell completes commands, options and ids.

    SHELL is bash, zsh or fish. Ids of payments and print jobs, serials and attention codes are asked from the daemon;
    where it does not answer at once, nothing is offered. A package of posd has put the scripts in place already.
    """
    from click.shell_completion import ShellComplete, get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"click knows no {shell}")
    made = kind(ctx.find_root().command, {}, "posd", "_POSD_COMPLETE")
    # Not the class's own: that one of bash runs bash, to complain of its age.
    click.echo(ShellComplete.source(made))
