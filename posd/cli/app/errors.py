"""Display of errors: one message with the error and what to do, and the exit code."""

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, NoReturn

import click
import msgspec

from posd.base.problems import PROBLEMS
from posd.base.text import shown
from posd.cli.app.connection import ForeignAnswer, Problem, Unreachable
from posd.cli.app.context import ExitCode, OutputLost, for_problem
from posd.cli.app.context import context as context_of
from posd.cli.app.output import Output, inline
from posd.cli.app.tables import Lines
from posd.cli.app.times import in_words
from posd.cli.explain.catalogue import choose, chosen, explained, named, say, translate, translated
from posd.cli.payments.words import SPELLINGS, explained_by
from posd.client.connection import SOCKET_VARIABLE

#: Members of a problem that a translated message lists with their values.
FACTS = frozenset(
    {"allowed", "asked", "blocking_transaction", "error_id", "fields", "fleet", "limit_bytes", "not_after", "now"}
)


class Failure(click.ClickException):
    """Error for click: an exit code, and a message on stderr. With --json also JSON on stdout.

    `raw`: the problem of the API as received, for stdout. Without it, the JSON has the message as `detail`.
    """

    def __init__(self, message: Lines, exit_code: ExitCode, output: Output, raw: bytes | None = None) -> None:
        self._lines = [message] if isinstance(message, str) else list(message)
        super().__init__("\n".join(self._lines))
        self.exit_code = exit_code  # type: ignore[misc]  # click reads it from the instance
        self._output = output
        self._raw = raw

    def show(self, file: IO[Any] | None = None) -> None:  # noqa: ARG002 - click's signature
        if self._output.as_json and self._raw is not None:
            self._output.json(self._raw)
        else:
            self._output.json(msgspec.json.encode({"detail": self.message, "exit_code": self.exit_code}))
            self._output.note([f"posd: {self._lines[0]}", *self._lines[1:]], style="red")


def fail(output: Output, error: object, code: ExitCode = ExitCode.NOT_DONE) -> NoReturn:
    """End the command with a message. Raise Failure."""
    raise Failure(translate(str(error)), code, output)


@contextmanager
def interruptible(output: Output, words: str = "Stopped waiting; posd may continue with it.") -> Iterator[None]:
    """On Ctrl-C in the block, write `words` and exit with OPEN, because the payment or print job continues."""
    try:
        yield
    except KeyboardInterrupt:
        output.note(words, "yellow")
        sys.exit(ExitCode.OPEN)


def explain(error: Exception, ctx: click.Context) -> Failure:
    """Return the Failure for an exception that ended a command."""
    from posd.config import ConfigError  # imported here, because a successful command does not need it

    context = context_of(ctx)
    output = context.output or Output(as_json=False)
    match error:
        case Failure():
            return error
        case click.ClickException():
            choose(ctx)
            message = shown(error.format_message().replace("\n\t", " "))  # click puts each choice on a line
            lines = [message if output.as_json else translate(message)]
            if isinstance(error, click.UsageError) and error.ctx is not None and not output.as_json:
                lines += [f"  {error.ctx.get_usage()}", f"  {error.ctx.command_path} --help"]
            return Failure(lines, ExitCode(error.exit_code), output)
        case ForeignAnswer():
            return Failure(error.reason, ExitCode.NOT_DONE, output, error.raw)
        case OutputLost():
            return Failure(say("error", "output", error=error), ExitCode.NOT_DONE, Output(as_json=False))
        case Unreachable():
            _, _, advice = str(error).partition(error.reason)
            words = say("error", "unreachable", socket=error.socket, reason=translate(error.reason), advice=advice)
            lines = [words, *([f"  {context.unread}"] if context.unread else [])]
            return Failure(lines, ExitCode.UNREACHABLE, output)
        case Problem():
            lines, path = problem_lines(error), os.environ.get(SOCKET_VARIABLE)
            if error.code == "forbidden" and path and context.socket_path == path:  # POSD_SOCKET is the till socket
                lines.append(say("error", "variable", name=SOCKET_VARIABLE, path=path))
            if error.code in PROBLEMS:  # a newer posd may have other codes
                lines.append(f"  {explained_by([error.code])}")
            return Failure(lines, for_problem(error, starts=context.starts), output, error.raw)
        case ConfigError():
            lines = [f"  {translated(problem)}" for problem in error.problems]
            return Failure([say("error", "config"), *lines, say("error", "other_file")], ExitCode.USAGE, output)
        case _:
            where = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{where.filename}:{where.lineno}"
            lines = [say("error", "fault", kind=type(error).__name__, error=error, place=place)]
            lines += [say("error", "unknown")] * context.starts
            return Failure(lines, ExitCode.OPEN if context.starts else ExitCode.NOT_DONE, output)


def problem_lines(problem: Problem) -> list[str]:
    """Return the lines of a problem for people.

    The lines have the daemon's text, the errors of fields, and commands to type.
    """
    detail = problem.detail or problem.code
    for sent, typed in SPELLINGS.items():
        detail = detail.replace(sent, typed)
    known = explained("problem", problem.code, detail)
    lines = [known]
    if detail not in known:  # a translation lacks the facts of the daemon's text
        facts = {name: value for name, value in problem.extra.items() if name in FACTS and value}
        lines += [f"  {named(name)}: {in_words(inline(value))}" for name, value in facts.items()]
        lines.append(f"  {chosen('problem')[problem.code]['money']}")
    errors = problem.extra.get("errors") or []
    lines += [f"  {error.get('path')}: {translate(str(error.get('message')))}" for error in errors]
    blocking = [problem.extra[name] for name in ("blocking_transaction",) if name in problem.extra]
    lines += [f"  posd show {each}" for each in (*blocking, *(problem.extra.get("transactions") or ()))]
    return lines
