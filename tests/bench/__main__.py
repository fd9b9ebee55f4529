"""`python -m tests.bench`: posd measured against its bounds; exit code 1 where one does not hold.

Real processes over real TLS and Unix sockets, on the loopback interface and on a real disk. Each ratio is of two things
that are measured in this run, one after the other and again. It wants a machine that does nothing else. All of it takes
less than half an hour; --short takes a minute, shows only that everything works, and judges no figure.
"""

import argparse
import asyncio
import json
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
    bench = Bench(home, options.short, sync_seconds(home), options.growth)
    report = await run(bench, options.only or list(MEASURES), _command(options))
    _tell(report)
    if options.json:
        options.json.write_text(json.dumps(report.document(), indent=1) + "\n")
    if options.markdown:
        page = options.markdown.read_text() if options.markdown.exists() else ""
        options.markdown.write_text(put_into(page, markdown(report)))
    return 0 if report.good else 1


def _tell(report: Report) -> None:
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = PLAIN_COLUMNS
    console.print(screen(report))
    for line in words(report.machine):
        console.print(Text(line, style="dim"))


def _command(options: argparse.Namespace) -> str:
    """Return what repeats the run."""
    parts = ["python -m tests.bench", *(["--short"] if options.short else [])]
    return " ".join(parts + [f"--only {name}" for name in options.only or ()])


def _options() -> argparse.ArgumentParser:
    summary, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=summary, epilog=rest)
    parser.add_argument("--short", action="store_true", help="small sizes: shows that everything works, judges nothing")
    parser.add_argument("--only", action="append", choices=list(MEASURES), metavar="NAME", help="one part; repeatable")
    parser.add_argument("--list", action="store_true", help="name the parts, and end")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all that was measured as JSON, with versions")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table into the page's own place")
    parser.add_argument("--growth", type=Path, metavar="FILE", help="with part stored: draw its figures by size (SVG)")
    parser.add_argument("--directory", type=Path, default="/tmp", help="on the disk that counts; default: %(default)s")
    return parser


if __name__ == "__main__":
    sys.exit(main())
