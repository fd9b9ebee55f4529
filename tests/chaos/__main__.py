"""`python -m tests.chaos`: one random run; exit code 1 where anything was lost, doubled or wrong."""

import argparse
import asyncio
import json
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.chaos.compare import Books, Finding, compare, figures, read_ledger
from tests.chaos.plan import Kind, Plan, make_plan
from tests.chaos.run import Run, Stuck
from tests.chaos.street import Street

#: Characters of a fault that are shown; the logs have the rest.
MAX_FAULT = 400
#: How often the progress is shown, in seconds.
PROGRESS_SECONDS = 0.5


@dataclass
class Report:
    """What was done to the street, and what was found."""

    command: str
    seconds: float
    directory: str
    confirmed: bool
    injected: dict[str, int]
    connections: dict[str, dict[str, int]]
    bursts: list[int]
    figures: dict[str, int] = field(default_factory=dict)
    #: Kilobytes of each life of the daemon, at its beginning and its end.
    memory: list[tuple[int, int]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def count(self, kind: str) -> int:
        """How many findings of a kind there are."""
        return sum(finding.kind == kind for finding in self.findings)

    @property
    def good(self) -> bool:
        """Whether nothing was found."""
        return not self.findings and not self.faults


async def run(
    plan: Plan, directory: Path, speed: float, command: str, *, progress: bool = False
) -> tuple[Report, Books]:
    """Make a run in a directory, compare the ledgers, leave no process behind."""
    began = time.monotonic()
    street = Street(plan, directory, speed)
    made = Run(street)
    shown = asyncio.create_task(_show(made, began)) if progress else None
    try:
        await made.go()
    except Exception as error:  # noqa: BLE001 - whatever it was, the ledgers are compared
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
        round(time.monotonic() - began, 1),
        str(directory),
        plan.confirmed,
        {kind: made.injected[kind] for kind in Kind},
        {"to terminals": dict(to_terminals), "to posd": dict(street.callbacks.fates)},
        made.bursts,
        memory=street.memory,
        faults=street.faults + made.follower.faults,
    )
    books = Books(
        {serial: read_ledger(item.ledger) for serial, item in street.terminals.items()},
        {till.name: read_ledger(till.ledger) for till in street.tills},
        made.transactions,
        street.daemon.database,
        {payment.id: payment.sale for payment in plan.payments if payment.sale},
        made.person.resolved,
        made.follower.changes,
    )
    if made.transactions:
        report.findings = compare(books)
        report.figures = figures(books)
        report.figures["terminals freed by the person"] = len(made.person.released)
        report.figures["payments closed by the person"] = len(made.person.resolved)
        report.figures["of these by a guess"] = len(made.person.guessed)
        report.figures["times that everything was derived again"] = street.reprocessed
        report.figures["payments of the plan"] = len(plan.payments)
    return report, books


async def _show(made: Run, began: float) -> None:
    """Show how far it is, on a terminal in one line."""
    total = len(made.plan.payments)
    while True:
        happenings = made.street.happenings
        faults = sum(made.injected.values())
        text = (
            f"{time.monotonic() - began:5.0f} s  {happenings.begun}/{total} payments  {happenings.events} events  "
            f"{faults}/{len(made.plan.faults)} faults"
        )
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()
        await asyncio.sleep(PROGRESS_SECONDS)


def words(report: Report) -> str:
    """Say it for people."""
    lines = [f"{report.seconds:g} s; search and abort are {'' if report.confirmed else 'not '}confirmed", ""]
    lines += ["injected:"]
    lines += [f"  {count:6} {kind.replace('_', ' ')}" for kind, count in report.injected.items()]
    for direction, fates in report.connections.items():
        lines.append(f"connections {direction}:")
        lines += [f"  {count:6} {fate.replace('_', ' ')}" for fate, count in sorted(fates.items())]
    lines.append(f"events made during the outages: {', '.join(map(str, report.bursts)) or 'none'}")
    lines.append("what came of it:")
    lines += [f"  {count:6} {name}" for name, count in report.figures.items()]
    if report.memory:
        first, last = report.memory[0], report.memory[-1]
        most = max(end for _, end in report.memory)
        lines.append(
            f"resident memory of the daemon: {first[0] // 1024} MB at the first start, {last[0] // 1024} MB at the "
            f"last, {last[1] // 1024} MB at its end; at most {most // 1024} MB at the end of a life"
        )
    lines.append("")
    lines.append(f"{report.count('lost')} lost, {report.count('doubled')} doubled, {report.count('wrong')} wrong")
    lines += [f"  {finding.kind}: {finding.subject}: {finding.what}" for finding in report.findings]
    lines += [f"  fault: {fault[:MAX_FAULT]}" for fault in report.faults]
    lines.append(f"the same again: {report.command}")
    return "\n".join(lines)


def main() -> int:
    """Read the command line, make the run, tell what was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--payments", type=_count, default=500)
    parser.add_argument("--terminals", type=_count, default=6)
    parser.add_argument("--tills", type=_count, default=6)
    parser.add_argument("--seed", type=int, default=1, help="even: search and abort are confirmed; odd: they are not")
    parser.add_argument("--speed", type=_factor, default=40, help="how much faster than people the terminals are")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep everything there; else only after a failure")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report as JSON")
    options = parser.parse_args()
    command = (
        f"python -m tests.chaos --payments {options.payments} --terminals {options.terminals} --tills {options.tills} "
        f"--seed {options.seed} --speed {options.speed:g}"
    )
    plan = make_plan(options.seed, options.payments, options.terminals, options.tills)
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
    work = asyncio.create_task(run(plan, directory, speed, command, progress=sys.stderr.isatty()))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, work.cancel)
    report, _ = await work
    return report


if __name__ == "__main__":
    sys.exit(main())
