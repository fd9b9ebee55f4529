"""`posd await`, and how every command begins what it then waits for: until the outcome, the deadline or Ctrl-C."""

import sys
import time
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NoReturn

import click

from posd.cli.app.connection import Api, ForeignAnswer, Problem, Reply, Unreachable, connect, id_argument, json_option
from posd.cli.app.context import context
from posd.cli.app.errors import Failure
from posd.cli.app.exit_codes import ExitCode, for_pruned, for_transaction
from posd.cli.app.output import LiveLine, Output
from posd.cli.app.waiting import Snapshot, TimedOut, follow, start
from posd.cli.payments.progress import GOES_ON, Progress, show_attention, show_outcome
from posd.cli.payments.words import words_of
from posd.client.errors import Draining, Pruned

#: Phases in which it is not known whether the terminal took what it was sent.
DOUBTFUL = frozenset({"starting", "in_doubt"})

timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Stop waiting after this long (exit code 4); it goes on all the same.",
)


def deadline_in(timeout: float | None) -> float | None:
    """Return the time of `time.monotonic()` that is so many seconds away."""
    return None if timeout is None else time.monotonic() + timeout


def begin(
    api: Api,
    line: LiveLine,
    path: str,
    request: Mapping[str, Any],
    *,
    deadline: float | None,
    nothing: str,
    maybe: str,
    leave: Callable[[str], NoReturn],
) -> Reply:
    """Start what `path` names, once the daemon answers for it; its answer may be a final one.

    `nothing` is said where the call reached nobody; `leave` is called with why, and with `maybe`, where it may have
    started and that is all that is known. Raise Problem, or Unreachable where nothing was started.
    """
    try:
        return start(api, path, request, deadline=deadline, away=line.away)
    except (TimedOut, KeyboardInterrupt):
        leave(maybe)
    except ForeignAnswer as answer:
        leave(f"posd: {answer.reason}\n{maybe}")
    except Unreachable:
        line.close()
        line.output.note(nothing, style="yellow")
        raise
    except Problem as problem:
        if problem.means_nothing_sent:
            raise
        leave(f"posd: {problem.detail}\n{maybe}")


def look(api: Api, path: str, output: Output, leave: Callable[[str], NoReturn]) -> Reply:
    """Read what is to be waited for; `leave` is called with why where posd is there and cannot tell how it stands.

    Raise Problem where posd refuses, Unreachable where it is not there; where it has ended and only that is left of it,
    Failure with the exit code of how it ended.
    """
    try:
        return api.get(path)
    except ForeignAnswer as answer:
        leave(not_known(answer))
    except Pruned as left:
        raise Failure(left.detail, for_pruned(left.extra), output, left.raw) from left
    except Problem as problem:
        if problem.status < 500 or isinstance(problem, Draining):
            raise
        leave(not_known(problem))


def not_known(error: Problem | Unreachable) -> str:
    """Say why the outcome is not known."""
    reason = error.reason if isinstance(error, Unreachable) else error.detail
    return f"posd: {reason}\nIts outcome is not known"


def wait(api: Api, progress: Progress, reply: Reply, deadline: float | None) -> Reply:
    """Follow the transaction until it is final; leave the program with OPEN where that is not to be had.

    So it does at the deadline, on Ctrl-C, and where posd fails and goes on failing: that is no outcome.
    """
    goes_on = words_of(reply.body).fill(GOES_ON)
    try:
        for update in follow(api, reply.body["client_transaction_id"], deadline=deadline):
            progress.show(update)
            if isinstance(update, Snapshot):
                reply = update.reply
    except TimedOut:
        leave_open(progress, reply.body, f"Still open; {goes_on}", reply)
    except KeyboardInterrupt:
        leave_open(progress, reply.body, f"Stopped waiting; {goes_on}", reply)
    except (Problem, Unreachable) as error:
        leave_open(progress, reply.body, not_known(error), reply)
    return reply


def leave_open(progress: Progress, transaction: Mapping[str, Any], why: str, reply: Reply | None = None) -> NoReturn:
    """Say why a transaction is left open and how to go on, and leave the program; `reply` is what --json shows of it.

    `transaction` is what is known of it: its id and its type at least.
    """
    progress.close()
    output = progress.output
    if output.as_json and reply is not None:
        output.json(reply.raw)
    transaction_id = transaction["client_transaction_id"]
    output.note(
        f"{why}.\n"
        f"  its outcome:  posd await {transaction_id}\n"
        f"  to stop it:   posd abort {transaction_id}\n"
        f"Do not start this {words_of(transaction).noun} again before its outcome is known.",
        style="yellow",
    )
    sys.exit(ExitCode.OPEN)


def finish(output: Output, reply: Reply) -> NoReturn:
    """Write the outcome of a final transaction, and leave the program by it."""
    if output.as_json:
        output.json(reply.raw)
    else:
        show_outcome(output, reply.body)
        show_attention(output, reply.body)
    sys.exit(for_transaction(reply.body))


@click.command("await")
@id_argument
@timeout_option
@json_option
@click.pass_context
def await_(ctx: click.Context, output: Output, transaction_id: uuid.UUID, timeout: float | None) -> None:
    """Wait for a payment's outcome.

    That of a charge, a pre-authorization or whatever else was started. One that is over answers at once.
    """
    deadline = deadline_in(timeout)
    context(ctx).starts = True
    with connect(ctx) as api:
        draft = {"client_transaction_id": str(transaction_id), "type": None}
        leave = partial(leave_open, Progress(output, draft), draft)
        reply = look(api, f"/transactions/{transaction_id}", output, leave)
        if reply.body["phase"] != "final":
            with Progress(output, reply.body) as progress:
                reply = wait(api, progress, reply, deadline)
    finish(output, reply)
