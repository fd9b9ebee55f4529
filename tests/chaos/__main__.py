"""`python -m tests.chaos`: one random run; exit code 1 where anything was lost, doubled or wrong."""

import argparse
import asyncio
import json
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from tests.chaos.books import Books, Finding
from tests.chaos.compare import compare
from tests.chaos.faults import SWITCHES, Kind
from tests.chaos.figures import figures
from tests.chaos.ledgers import read_ledger
from tests.chaos.plan import Plan, make_plan
from tests.chaos.report import Report, words
from tests.chaos.run import Run, Stuck
from tests.chaos.stored import told
from tests.chaos.street import Street

#: How often the progress is shown, in seconds.
PROGRESS_SECONDS = 0.5
#: Payments for one terminal and one till where the command names none, and at least and at most how many of them: more
#: processes than this only wait for the processors.
PAYMENTS_FOR_ONE, LEAST, MOST = 60, 3, 24


async def run(
    plan: Plan, directory: Path, speed: float, command: str, *, progress: Callable[[str], None] | None = None
) -> tuple[Report, Books]:
    """Make a run in a directory, compare the ledgers, leave no process behind. `progress` is told how far it is."""
    began, clock = datetime.now(UTC), time.monotonic()
    street = Street(plan, directory, speed)
    made = Run(street)
    shown = asyncio.create_task(_show(made, clock, progress)) if progress else None
    try:
        await made.go()
    except Exception as error:  # noqa: BLE001 - after any error the ledgers are compared
        street.faults.append(f"the run broke off: {error if isinstance(error, Stuck) else repr(error)}")
        await made.salvage()
    finally:
        if shown is not None:
            shown.cancel()
        await asyncio.shield(street.close())
    to_terminals: Counter[str] = Counter()
    for serial in plan.terminals:
        to_terminals += street.proxies[serial].fates
    report = Report(
        command,
        began.isoformat(timespec="minutes"),
        round(time.monotonic() - clock, 1),
        str(directory),
        plan.confirmed,
        {kind: made.injected[kind] for kind in Kind},
        {"to terminals": dict(sorted(to_terminals.items())), "to posd": dict(sorted(street.callbacks.fates.items()))},
        made.bursts,
        scenarios=dict(sorted(Counter(payment.scenario for payment in plan.payments).items())),
        lives=street.lives,
        faults=street.faults + made.follower.faults,
    )
    report.take(street.memory)
    books = Books(
        {serial: read_ledger(item.ledger) for serial, item in street.terminals.items()},
        {till.name: read_ledger(till.ledger) for till in street.tills},
        made.transactions,
        street.daemon.database,
        {payment.id: payment.sale for payment in plan.payments if payment.sale},
        made.person.resolved,
        made.follower.changes,
        words=made.person.words,
        days=plan.days,
    )
    if made.transactions:
        try:
            _hold_against_each_other(made, books, report)
        except sqlite3.DatabaseError as error:
            report.findings.append(Finding("lost", "database", f"it cannot be read: {error}"))
    return report, books


def _hold_against_each_other(made: Run, books: Books, report: Report) -> None:
    """Compare the books, and count what is in them. Raise DatabaseError."""
    books.told = told(books.database)
    report.findings += compare(books)
    report.figures = figures(books)
    report.figures["terminals freed by the person"] = len(made.person.released)
    report.figures["payments closed by the person"] = len(made.person.resolved)
    report.figures["of these by a guess"] = len(made.person.guessed)
    report.figures["times that everything was derived again"] = made.street.reprocessed
    report.figures["payments of the plan"] = len(made.plan.payments)


async def _show(made: Run, began: float, tell: Callable[[str], None]) -> None:
    """Tell how far it is."""
    total = len(made.plan.payments)
    while True:
        happenings = made.street.happenings
        seconds = time.monotonic() - began
        left = seconds / happenings.begun * (total - happenings.begun) if happenings.begun else 0.0
        tell(
            f"{seconds:5.0f} s  {happenings.begun}/{total} payments  {happenings.events} events  "
            f"{made.injected.total()}/{len(made.plan.faults)} faults  "
            + (f"about {left:.0f} s to go" if left else "coming to rest")
        )
        await asyncio.sleep(PROGRESS_SECONDS)


def main() -> int:
    """Read the command line, make the run, tell what was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--payments", type=_count, default=500)
    parser.add_argument("--terminals", type=_count, help=f"default: one for {PAYMENTS_FOR_ONE} payments, up to {MOST}")
    parser.add_argument("--tills", type=_count, help="default: as many as terminals")
    parser.add_argument("--seed", type=int, default=1, help="even: search and abort are confirmed; odd: they are not")
    parser.add_argument("--speed", type=_factor, default=40, help="how much faster than people the terminals are")
    names = f"of {', '.join(sorted(SWITCHES))}"
    parser.add_argument("--only", type=_switches, metavar="NAMES", help=f"let nothing else go wrong: {names}")
    parser.add_argument("--without", type=_switches, metavar="NAMES", help="let all go wrong but this, named likewise")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep everything there; else only after a failure")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report as JSON")
    options = parser.parse_args()
    terminals = options.terminals or min(MOST, max(LEAST, options.payments // PAYMENTS_FOR_ONE))
    tills = options.tills or terminals
    command = (
        f"python -m tests.chaos --payments {options.payments} --terminals {terminals} --tills {tills} "
        f"--seed {options.seed} --speed {options.speed:g}"
    )
    on = (SWITCHES if options.only is None else options.only) - (options.without or set())
    for name in ("only", "without"):
        if (chosen := getattr(options, name)) is not None:
            command += f" --{name} {','.join(sorted(chosen))}"
    plan = make_plan(options.seed, options.payments, terminals, tills).with_only(on)
    try:
        if options.keep:
            options.keep.mkdir(parents=True)
    except OSError as error:
        parser.error(f"--keep {options.keep}: {error.strerror}; name a directory that is not there yet")
    directory = options.keep or Path(tempfile.mkdtemp(prefix="posd-chaos-", dir="/tmp"))
    try:
        report = asyncio.run(_until_told(plan, directory, options.speed, command))
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.stderr.write(f"\nstopped; what was written so far: {directory}\n")
        return 130
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
    print(words(report))
    if options.json:
        options.json.write_text(json.dumps(asdict(report), indent=1))
    if options.keep or not report.good:
        print(f"ledgers, logs and the database: {directory}")
    else:
        shutil.rmtree(directory)
    return 0 if report.good else 1


def _switches(text: str) -> frozenset[str]:
    names = frozenset(text.split(","))
    if wrong := names - SWITCHES:
        raise argparse.ArgumentTypeError(f"{', '.join(sorted(wrong))} is none of {', '.join(sorted(SWITCHES))}")
    return names


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)


def _factor(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not above 0")
    return value


async def _until_told(plan: Plan, directory: Path, speed: float, command: str) -> Report:
    """Run it; SIGTERM ends it like Ctrl-C."""
    work = asyncio.create_task(run(plan, directory, speed, command, progress=_line if sys.stderr.isatty() else None))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, work.cancel)
    report, _ = await work
    return report


def _line(text: str) -> None:
    """Show a line in place of the one before."""
    sys.stderr.write(f"\r\x1b[K{text}")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
