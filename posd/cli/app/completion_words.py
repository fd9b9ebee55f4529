"""Shell completion of words: ids, serials, attention codes, files.

The calls to posd have a short time-out, because the user waits. After an error nothing is offered and nothing is
written, because the shell would show the message inside the command line.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from posd.cli.app.context import CONFIG_FILE, CONFIG_VARIABLE, usual_socket

SHELLS = ("bash", "zsh", "fish")

#: Maximum number of offered payments or print jobs. A screen has no room for more.
LIMIT = 50

#: Time-out in seconds of a call to the daemon, which usually takes milliseconds.
PATIENCE = 0.5
#: Completion function: a click callback of an argument or an option.
Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
#: Function that yields the words to offer, each with its help.
Words = Callable[[click.Context], Iterable[tuple[str, str]]]


def offer(words: Words) -> Complete:
    """Return a completion function that offers those of `words` that begin with the typed text."""

    def complete(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            found = dict(words(ctx))
        except Exception:  # noqa: BLE001 - see the top of this file
            return []
        from posd.base.text import shown  # here, because only a completion needs it

        typed = incomplete.lower()
        # A shell reads lines, so words with a line end are left out.
        return [
            CompletionItem(word, help=shown(about or ""))
            for word, about in found.items()
            if word.lower().startswith(typed) and word.isprintable()
        ]

    return complete


def payments(query: str, *types: str, approved: bool = False, jobs: str | None = None) -> Complete:
    """Return a completion function for the ids of payments that match, and of print jobs that match `jobs`."""

    def words(ctx: click.Context) -> Iterator[tuple[str, str]]:
        for item in _ask(ctx, f"/transactions?limit={LIMIT}&{query}")["transactions"]:
            outcome = item["outcome"] or {}
            if (not types or item["type"] in types) and (not approved or outcome.get("result") == "approved"):
                state = outcome.get("result") or item["status"] or item["phase"]
                yield item["client_transaction_id"], f"{item['terminal']} {item['type']} {state}"
        if jobs is not None:
            yield from _print_jobs(ctx, jobs)

    return offer(words)


def _print_jobs(ctx: click.Context, query: str) -> Iterator[tuple[str, str]]:
    for item in _ask(ctx, f"/print-jobs?limit={LIMIT}&{query}")["print_jobs"]:
        yield item["print_job_id"], f"{item['terminal']} {item['status'] or item['phase']}"


def _serials(ctx: click.Context) -> Iterator[tuple[str, str]]:
    for item in _ask(ctx, "/terminals")["terminals"]:
        yield item["serial"], item["model"] or ""


def _attention(ctx: click.Context) -> Iterator[tuple[str, str]]:
    identity = ctx.params.get("identity")
    for kind, key in (("transactions", "client_transaction_id"), ("print_jobs", "print_job_id")):
        path = f"/{kind.replace('_', '-')}?limit={LIMIT}&attention=true"
        for item in _ask(ctx, path)[kind]:
            if identity is None or item[key].startswith(identity):
                yield from ((attention["code"], attention["detail"]) for attention in item["attention"])


serials = offer(_serials)
attention_codes = offer(_attention)


def files(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Leave the completion of files to the shell."""
    return [CompletionItem(incomplete, type="file")]


def _ask(ctx: click.Context, path: str) -> Any:
    """Return the body of the daemon's response. Raise Problem or Unreachable."""
    from posd.client.connection import Connection  # here, because only a completion needs it
    from posd.client.plans import Call

    given = ctx.find_root().params  # during a completion, options that were not typed have no value
    config = given.get("config_path") or os.environ.get(CONFIG_VARIABLE) or CONFIG_FILE
    socket = given.get("socket_path") or os.environ.get("POSD_SOCKET") or usual_socket(Path(config))[0]
    with Connection(socket) as api:
        return api.call(Call("GET", path, seconds=PATIENCE)).body
