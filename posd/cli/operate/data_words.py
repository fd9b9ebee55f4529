"""What these commands say alike: counts and sizes in words, refusals, and how far something is."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from posd.cli.app.errors import Failure
from posd.cli.app.exit_codes import ExitCode
from posd.cli.app.output import Output
from posd.storage.backup import NotABackup
from posd.storage.errors import StoreError
from posd.upkeep import verify as checking

Look = Callable[[str, int, int], None]


@contextmanager
def told(output: Output) -> Iterator[None]:
    """Turn what is refused into a message and an exit code."""
    try:
        yield
    except StoreError as error:
        code = ExitCode.USAGE if isinstance(error, NotABackup | checking.Unusable) else ExitCode.NOT_DONE
        raw = msgspec.json.encode({"ok": False, "error": str(error)})
        raise Failure(str(error), code, output, raw) from error


@contextmanager
def progress(output: Output) -> Iterator[Look]:
    """Show on a terminal what is under way, and how far it is where that is known."""
    spinner = SpinnerColumn("line" if output.stderr.options.ascii_only else "dots")
    columns: tuple[Any, ...] = (
        spinner,
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=output.stderr, transient=True, disable=not output.stderr.is_terminal) as bar:
        task = bar.add_task("opening the file", total=None)

        def look(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total or None)

        yield look


def payments(count: int) -> str:
    """Write a number of payments."""
    return "1 payment" if count == 1 else f"{count} payments"


def print_jobs(count: int) -> str:
    """Write a number of print jobs."""
    return "1 print job" if count == 1 else f"{count} print jobs"


def taken(what: str, by_id: int) -> str:
    return f"{what}, of {by_id} only the id" if by_id else what


def size(count: int) -> str:
    """Write a number of bytes for people: 4.0 MiB."""
    value = float(count)
    for unit in ("bytes", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.1f} {unit}" if unit != "bytes" else f"{count} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
