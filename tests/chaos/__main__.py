"""Make one random run of a shop with faults. Exit code 1 if data is lost, doubled or wrong."""

import argparse
import asyncio
import json
import shutil
import signal
import sqlite3
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.books import Books, Finding, compare
from tests.chaos.plan import Plan, make_plan
from tests.chaos.run import Run
from tests.chaos.shop import Shop

#: Number of payments for each terminal and each till, and the least and greatest number of terminals and tills.
PAYMENTS_FOR_ONE, LEAST, MOST = 60, 3, 24
#: Factor by which terminals are faster than people.
SPEED = 40.0


@dataclass
class Report:
    """Injected faults and findings of a run."""

    directory: Path
    #: Kind of fault -> number of injected faults.
    injected: Counter[str]
    results: Counter[str]
    #: Unexpected faults of the run itself.
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
        return "\n".join((*lines, *(f"  fault: {fault}" for fault in self.faults)))


def _counted(counts: Counter[str]) -> list[str]:
    return [f"  {count:6} {name}" for name, count in sorted(counts.items())]


async def make_run(plan: Plan, directory: Path) -> tuple[Report, Books]:
    """Make a run in a directory, and compare the ledgers. The ledgers and the log stay in the directory."""
    transactions = []
    async with Shop(plan, directory, SPEED) as shop:
        run = Run(shop)
        try:
            transactions = await run.go()
        except Exception as error:  # noqa: BLE001 - after any error the ledgers are written
            shop.faults.append(f"the run broke off: {error!r}")
    books = Books(
        [list(terminal.simulator.ledger) for terminal in shop.terminals.values()],
        [till.ledger for till in shop.tills],
        transactions,
        shop.daemon.database,
        {payment.id: payment.sale for payment in plan.payments if payment.sale},
        shop.resolved,
    )
    for name, lines in (("terminals", books.terminals), ("tills", books.tills), ("posd", [shop.log])):
        text = "".join(json.dumps(line, default=str) + "\n" for ledger in lines for line in ledger)
        (directory / f"{name}.jsonl").write_text(text)
    ends = Counter((item["outcome"] or {}).get("result", item["phase"]) for item in transactions)
    report = Report(directory, run.injected, ends, shop.faults)
    if transactions:
        try:
            report.findings += compare(books)
        except sqlite3.DatabaseError as error:
            report.findings.append(Finding("lost", "database", f"it cannot be read: {error}"))
    return report, books


def main() -> int:
    """Parse the command line, make the run, print the findings."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--payments", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1, help="even: search and abort are confirmed; odd: they are not")
    options = parser.parse_args()
    number = min(MOST, max(LEAST, options.payments // PAYMENTS_FOR_ONE))
    plan = make_plan(options.seed, options.payments, number, number)
    directory = Path(tempfile.mkdtemp(prefix="posd-chaos-", dir="/tmp"))
    # SIGTERM ends the run like Ctrl-C
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        report, _ = asyncio.run(make_run(plan, directory))
    except KeyboardInterrupt:
        return 130
    print(report)
    if report.good:
        shutil.rmtree(directory)
    else:
        print(f"ledgers, log and database: {directory}")
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
