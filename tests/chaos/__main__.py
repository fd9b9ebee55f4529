"""`python -m tests.chaos`: one random run; exit code 1 if anything was lost, doubled or wrong."""

import argparse
import asyncio
import shutil
import signal
import sqlite3
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.books import Books, Finding
from tests.chaos.compare import compare
from tests.chaos.ledgers import read_ledger
from tests.chaos.plan import Plan, make_plan
from tests.chaos.run import Run, Stuck
from tests.chaos.street import Street

#: Payments for each terminal and till by default, and the least and largest number of terminals. More processes would
#: only wait for processors.
PAYMENTS_FOR_ONE, LEAST, MOST = 60, 3, 24
#: Most characters of a printed fault; the logs have the rest.
MAX_FAULT = 400


@dataclass
class Report:
    """Injected faults, and findings."""

    directory: Path
    #: Kind of fault -> how often it was injected.
    injected: Counter[str]
    results: Counter[str]
    faults: list[str]
    findings: list[Finding] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Whether no fault was found."""
        return not self.findings and not self.faults

    def __str__(self) -> str:
        kinds = Counter(finding.kind for finding in self.findings)
        counts = ", ".join(f"{kinds[kind]} {kind}" for kind in ("lost", "doubled", "wrong"))
        lines = ["injected:", *_counted(self.injected), "payments:", *_counted(self.results)]
        lines.append(f"{counts}, {len(self.faults)} faults")
        lines += [f"  {finding.kind}: {finding.subject}: {finding.what}" for finding in self.findings]
        return "\n".join((*lines, *(f"  fault: {fault[:MAX_FAULT]}" for fault in self.faults)))


def _counted(counts: Counter[str]) -> list[str]:
    return [f"  {count:6} {name}" for name, count in sorted(counts.items())]


async def run(plan: Plan, directory: Path, speed: float) -> tuple[Report, Books]:
    """Make a run in a directory, compare the ledgers, and end all processes."""
    street = Street(plan, directory, speed)
    made = Run(street)
    try:
        await made.go()
    except Exception as error:  # noqa: BLE001 - after any error the ledgers are compared
        street.faults.append(f"the run broke off: {error if isinstance(error, Stuck) else repr(error)}")
        await made.salvage()
    finally:
        await asyncio.shield(street.close())
    ends = ((item["outcome"] or {}).get("result", item["phase"]) for item in made.transactions)
    report = Report(directory, made.injected, Counter(ends), street.faults)
    books = Books(
        {serial: read_ledger(item.ledger) for serial, item in street.terminals.items()},
        {till.name: read_ledger(till.ledger) for till in street.tills},
        made.transactions,
        street.daemon.database,
        {payment.id: payment.sale for payment in plan.payments if payment.sale},
        made.person.resolved,
    )
    if made.transactions:
        try:
            report.findings += compare(books)
        except sqlite3.DatabaseError as error:
            report.findings.append(Finding("lost", "database", f"it cannot be read: {error}"))
    return report, books


def main() -> int:
    """Parse the command line, make the run, print the findings."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--payments", type=_count, default=500)
    parser.add_argument("--terminals", type=_count, help=f"default: one for {PAYMENTS_FOR_ONE} payments, up to {MOST}")
    parser.add_argument("--tills", type=_count, help="default: as many as terminals")
    parser.add_argument("--seed", type=int, default=1, help="even: search and abort are confirmed; odd: they are not")
    parser.add_argument("--speed", type=float, default=40, help="factor by which terminals are faster than people")
    parser.add_argument(
        "--keep", action="store_true", help="keep ledgers, logs and database; else only after a failure"
    )
    options = parser.parse_args()
    terminals = options.terminals or min(MOST, max(LEAST, options.payments // PAYMENTS_FOR_ONE))
    plan = make_plan(options.seed, options.payments, terminals, options.tills or terminals)
    directory = Path(tempfile.mkdtemp(prefix="posd-chaos-", dir="/tmp"))
    try:
        report = asyncio.run(_until_ended(plan, directory, options.speed))
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.stderr.write(f"\nstopped; what was written so far: {directory}\n")
        return 130
    print(report)
    if options.keep or not report.good:
        print(f"ledgers, logs and the database: {directory}")
    else:
        shutil.rmtree(directory)
    return 0 if report.good else 1


async def _until_ended(plan: Plan, directory: Path, speed: float) -> Report:
    """Make the run. SIGTERM ends it like Ctrl-C."""
    work = asyncio.create_task(run(plan, directory, speed))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, work.cancel)
    report, _ = await work
    return report


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
