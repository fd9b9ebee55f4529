"""`python -m tests.bench`: posd measured against its bounds; exit code 1 where one does not hold.

Real processes over real TLS and Unix sockets, on the loopback interface and on a real disk. Each ratio is of two things
that are measured in this run, one after the other and again. It wants a machine that does nothing else. All of it takes
some twenty minutes; --short takes a minute, shows only that everything works, and judges no figure. --quick takes
a minute and compares a few ratios with tests/bench/reference.json, as CI does.
"""

import argparse
import asyncio
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from tests.bench import quick
from tests.bench.bench import Bench, sync_seconds
from tests.bench.machine import words
from tests.bench.measures import MEASURES
from tests.bench.table import Part, Report, screen

#: Columns of the table in a pipe or a file.
PLAIN_COLUMNS = 200


async def run(bench: Bench, names: Sequence[str]) -> Report:
    """Measure; what fails is told in the report, and the rest is measured all the same."""
    began = datetime.now(UTC).isoformat(timespec="minutes")
    command = " ".join(["python -m tests.bench", *sys.argv[1:]])
    report = Report(command, began, bench.short, words(bench.sync_seconds))
    for number, name in enumerate(names, 1):
        bench.say(f"{name} ({number} of {len(names)})")
        clock = time.monotonic()
        part = Part(name, 0.0)
        try:
            part.rows = await MEASURES[name](bench)
        except Exception as error:  # noqa: BLE001 - what was measured before it is not lost
            traceback.print_exc()
            part.failure = f"{type(error).__name__}: {error}"
        part.seconds = time.monotonic() - clock
        report.parts.append(part)
    return report


def main() -> int:
    """Read the command line, measure, tell what was found."""
    options = _options().parse_args()
    home = Path(tempfile.mkdtemp(prefix="posd-bench-", dir=options.directory))
    try:
        return asyncio.run(_until_told(options, home))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130
    finally:
        shutil.rmtree(home, ignore_errors=True)


async def _until_told(options: argparse.Namespace, home: Path) -> int:
    """Do what the command line says; SIGTERM ends it like Ctrl-C."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    bench = Bench(home, options.short, sync_seconds(home))
    if options.quick:
        return await quick.run(bench, keep=options.keep)
    report = await run(bench, options.only or list(MEASURES))
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = PLAIN_COLUMNS
    console.print(screen(report), *report.machine, sep="\n")
    return 0 if report.good else 1


def _options() -> argparse.ArgumentParser:
    summary, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=summary, epilog=rest)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--short", action="store_true", help="small sizes: shows that everything works, judges nothing")
    how.add_argument("--quick", action="store_true", help="about a minute: a few ratios against the stored reference")
    parser.add_argument("--keep", action="store_true", help="with --quick: store what was measured as the reference")
    names = ", ".join(MEASURES)
    parser.add_argument("--only", action="append", choices=MEASURES, metavar="PART", help=f"repeatable: {names}")
    parser.add_argument("--directory", default="/tmp", help="on the disk that counts; default: %(default)s")
    return parser


if __name__ == "__main__":
    sys.exit(main())
