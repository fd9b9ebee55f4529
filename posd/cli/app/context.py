"""Options of a command, its standard streams, and its exit codes. A lost output does not stop an action."""

import codecs
import errno
import io
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import click

    from posd.cli.app.output import Output
    from posd.client.documents import Problem
    from posd.config import ConfigProblem


class OutputLost(Exception):
    """Error if standard output cannot be written.

    It is not an OSError, because a command could mistake an OSError for an error of its files.
    """

    def __init__(self, cause: OSError) -> None:
        super().__init__(cause.strerror)
        self.nobody_reads = cause.errno == errno.EPIPE


class _Stream(io.BufferedWriter):
    """Standard stream. `drops`: whether to drop text that cannot be written, instead of raising OutputLost once.

    The C code of `io.BufferedWriter` makes the write. If Python code made it, a signal between a write and its return
    would cause a second write.
    """

    def __init__(self, descriptor: int, *, drops: bool) -> None:
        super().__init__(io.FileIO(descriptor, "w", closefd=False))
        self.drops = drops

    def write(self, content: Any, /) -> int:
        try:
            return super().write(content)
        except OSError as error:
            self._lose(error)
            return len(content)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self._lose(error)

    def _lose(self, error: OSError) -> None:
        if not self.drops:
            self.drops = True
            raise OutputLost(error) from error


_stdout: _Stream | None = None


def open_streams() -> None:
    """Replace `sys.stdout` and `sys.stderr` by `_Stream`s. If a descriptor is closed, its text is discarded."""
    global _stdout
    while (
        descriptor := os.open(os.devnull, os.O_RDONLY)
    ) <= 2:  # a socket or a database must not get descriptor 0, 1 or 2
        pass
    os.close(descriptor)
    _stdout = _Stream(1, drops=False)
    sys.stdout = _text(_stdout, sys.stdout.encoding if sys.stdout else None)
    sys.stderr = _text(_Stream(2, drops=True), sys.stderr.encoding if sys.stderr else None)


def _unaccented(error: UnicodeError) -> tuple[str, int]:
    """Return replacements for characters that the encoding lacks: a letter without its accent, or "?"."""
    from unicodedata import normalize  # the daemon does not need it

    assert isinstance(error, UnicodeEncodeError)  # noqa: S101 - the streams only encode
    letters = (normalize("NFD", char)[0] for char in error.object[error.start : error.end])
    return "".join(letter if letter.isascii() else "?" for letter in letters), error.end


codecs.register_error(_unaccented.__name__, _unaccented)


def drop_lost_output() -> None:
    """Drop text that cannot be written from now on, because a change that has begun must not be interrupted."""
    if _stdout is not None:
        _stdout.drops = True


def _text(stream: _Stream, encoding: str | None) -> io.TextIOWrapper:
    return io.TextIOWrapper(stream, encoding, errors=_unaccented.__name__, line_buffering=True)


# Options of a command, and facts about it, in click's `ctx.obj`.

#: Configuration file if neither an option nor a variable names one.
CONFIG_FILE = "/etc/posd/config.toml"
CONFIG_VARIABLE = "POSD_CONFIG"


@dataclass(slots=True)
class Context:
    """Options of `posd`, and facts about the command for its error messages.

    `starts`: whether the command starts a payment or print job, or waits for one, so that an error may leave it open.
    `utc`: whether to write times in UTC. `unread`: why the configuration could not be read.
    """

    config_path: str = CONFIG_FILE
    socket_path: str | None = None
    output: "Output | None" = None
    starts: bool = False
    utc: bool = False
    unread: str = ""

    def set_starts(self) -> None:
        """Set `starts`.

        From now on a lost output does not change the exit code, which reports the end of the payment.
        """
        self.starts = True
        drop_lost_output()


def context(ctx: "click.Context") -> Context:
    """Return the Context of this call."""
    return ctx.ensure_object(Context)


def usual_socket(file: Path) -> "tuple[Path, ConfigProblem | None]":
    """Return the admin socket if this user can open it, else the till socket.

    Also return the configuration's first error about its sockets, or None. If the configuration cannot be read, the
    path is the default.
    """
    from posd.config import examine, parse  # slow to import, and not needed with --socket

    # The files that the configuration names are not checked, because a till's user cannot read the daemon's private
    # key.
    config, problems = examine(file, check_files=False)
    why = next((problem for problem in problems if config is None or problem.key.startswith("local_api")), None)
    local = (config or parse("", file=file)).local_api
    return local.admin_socket if can_open(local.admin_socket) else local.till_socket, why


def can_open(path: Path) -> bool:
    """Return whether a process listens on the socket and accepts this user."""
    from posd.client.connection import probe
    from posd.client.documents import Unreachable

    try:
        probe(str(path))
    except Unreachable:
        return False
    return True


# Exit codes ("Command line" in the local API's contract).


class ExitCode(IntEnum):
    """The five exit codes of every posd command."""

    DONE = 0  #: done; for a payment: approved
    NOT_DONE = 1  # : declined, rejected, canceled, not started, or refused by posd
    USAGE = 2  #: wrong usage, an invalid request or a wrong configuration
    UNREACHABLE = 3  #: the daemon cannot be reached
    OPEN = 4  # : still open: a wait ended early and the payment goes on; or the end is unknown


#: `result` of an outcome -> exit code.
RESULT_CODES: Mapping[str, ExitCode] = {"approved": ExitCode.DONE} | dict.fromkeys(
    ("declined", "rejected", "canceled", "not_started"), ExitCode.NOT_DONE
)

#: HTTP statuses for a call that is wrong, so that a repetition fails too.
WRONG_CALL = frozenset({400, 403, 405, 408, 413, 415, 422, 501})


def for_transaction(transaction: Mapping[str, Any]) -> ExitCode:
    """Return the exit code for a transaction's document: by its outcome, or OPEN without one.

    A result that this version does not know is OPEN, because it may mean paid.
    """
    outcome = transaction.get("outcome")
    if outcome is None:
        return ExitCode.OPEN
    return RESULT_CODES.get(outcome["result"], ExitCode.OPEN)


def for_print_job(job: Mapping[str, Any]) -> ExitCode:
    """Return the exit code for a print job's document: DONE only if the job was printed."""
    if job["phase"] != "final":
        return ExitCode.OPEN
    return ExitCode.DONE if job["status"] == "COMPLETED" else ExitCode.NOT_DONE


def for_pruned(left: Mapping[str, Any]) -> ExitCode:
    """Return the exit code for a payment or print job that retention removed.

    `left`: members of the problem `pruned`.
    """
    if "print_status" in left:
        return ExitCode.DONE if left["print_status"] == "COMPLETED" else ExitCode.NOT_DONE
    return RESULT_CODES.get(left.get("result", ""), ExitCode.OPEN)


def for_problem(problem: "Problem", *, starts: bool = False) -> ExitCode:
    """Return the exit code for a problem. `starts`: as in `Context`.

    With `starts`, NOT_DONE and USAGE mean that nothing was started. After any other code, the payment or print job may
    have been started.
    """
    if problem.away:  # a stopping daemon counts as unreachable
        return ExitCode.UNREACHABLE
    if starts and not problem.never_started:
        return ExitCode.OPEN
    wrong = problem.next_step == "fix_call" or problem.status in WRONG_CALL
    return ExitCode.USAGE if wrong else ExitCode.NOT_DONE
