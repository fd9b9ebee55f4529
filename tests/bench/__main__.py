"""`python -m tests.bench`: posd measured against its bounds; exit code 1 where one does not hold.

Real processes over real TLS and Unix sockets, on the loopback interface and on a real disk. Each ratio is of two things
that are measured in this run, one after the other and again. It wants a machine that does nothing else. All of it takes
less than half an hour; --short takes a minute, shows only that everything works, and judges no figure. --quick takes
a minute and compares a few ratios with tests/bench/reference.json, as CI does.
"""

import argparse
import asyncio
import json
import os
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
from rich.text import Text

from tests.bench import charts, quick
from tests.bench.bench import Bench, sync_seconds
from tests.bench.machine import about, words
from tests.bench.measures import MEASURES
from tests.bench.table import Part, Report, markdown, put_into, screen

#: Columns of the table in a pipe or a file.
PLAIN_COLUMNS = 200


async def run(bench: Bench, names: Sequence[str], command: str) -> Report:
    """Measure; what fails is told in the report, and the rest is measured all the same."""
    began = datetime.now(UTC).isoformat(timespec="minutes")
    report = Report(command, began, bench.short, about(bench.sync_seconds))
    for number, name in enumerate(names, 1):
        bench.say(f"{name} ({number} of {len(names)})")
        clock = time.monotonic()
        part = Part(name, 0.0)
        try:
            part.rows = await MEASURES[name](bench)
        except Exception as error:  # noqa: BLE001 - what was measured before it is not lost
            traceback.print_exc()
            part.failure = f"{type(error).__name__}: {error}"
        part.seconds = round(time.monotonic() - clock, 1)
        report.parts.append(part)
    return report


def main() -> int:
    """Read the command line, measure, tell what was found."""
    options = _options().parse_args()
    if options.list:
        for name, measure in MEASURES.items():
            print(f"{name:18} {(sys.modules[measure.__module__].__doc__ or '').splitlines()[0]}")
        return 0
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
    if options.plots:
        options.plots.mkdir(parents=True, exist_ok=True)
    bench = Bench(home, options.short, sync_seconds(home), options.plots, options.before, options.interpreter)
    if options.quick:
        return await quick.run(bench, keep=options.keep)
    report = await run(bench, options.only or _parts(options), _command(options))
    _tell(report)
    _write(options, report)
    return 0 if report.good else 1


def _write(options: argparse.Namespace, report: Report) -> None:
    """Write the files that the command line names."""
    if options.json:
        options.json.write_text(json.dumps(report.document(), indent=1) + "\n")
    drawn = charts.write(options.plots, report) if options.plots else {}
    if options.markdown:
        page = options.markdown.read_text() if options.markdown.exists() else ""
        beside = {os.path.relpath(file, options.markdown.parent): words for file, words in drawn.items()}
        options.markdown.write_text(put_into(page, markdown(report, beside)))


def _parts(options: argparse.Namespace) -> list[str]:
    """Return the parts of a whole run: another interpreter is measured where one is named."""
    return [name for name in MEASURES if name != "interpreter" or options.interpreter]


def _tell(report: Report) -> None:
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = PLAIN_COLUMNS
    console.print(screen(report))
    for line in words(report.machine):
        console.print(Text(line, style="dim"))


def _command(options: argparse.Namespace) -> str:
    """Return what repeats the run; of a file or directory that was named only the last part."""
    parts = ["python -m tests.bench", *(["--short"] if options.short else [])]
    parts += [f"--only {name}" for name in options.only or ()]
    parts += [f"--before {options.before.name}"] if options.before else []
    parts += [f"--interpreter {Path(options.interpreter).name}"] if options.interpreter else []
    return " ".join(parts)


def _options() -> argparse.ArgumentParser:
    summary, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=summary, epilog=rest)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--short", action="store_true", help="small sizes: shows that everything works, judges nothing")
    how.add_argument("--quick", action="store_true", help="about a minute: a few ratios against the stored reference")
    parser.add_argument("--keep", action="store_true", help="with --quick: store what was measured as the reference")
    parser.add_argument("--only", action="append", choices=list(MEASURES), metavar="NAME", help="one part; repeatable")
    parser.add_argument("--list", action="store_true", help="name the parts, and end")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all that was measured as JSON, with versions")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table into the page's own place")
    parser.add_argument("--plots", type=Path, metavar="DIRECTORY", help="draw what was measured (SVG)")
    parser.add_argument(
        "--before", type=_directory, metavar="DIRECTORY", help="a checkout of an earlier version, for part payments"
    )
    parser.add_argument("--interpreter", metavar="PYTHON", help="another Python with posd's dependencies: its own part")
    parser.add_argument(
        "--directory", type=_directory, default="/tmp", help="on the disk that counts; default: %(default)s"
    )
    return parser


def _directory(name: str) -> Path:
    """Return a directory that is there."""
    path = Path(name).resolve()
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"{name} is no directory")
    return path


if __name__ == "__main__":
    sys.exit(main())
