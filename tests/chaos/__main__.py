"""Make one random run of a shop with faults. Exit code 1 if a record contradicts another record."""

import argparse
import json
import shutil
import sqlite3
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.chaos.books import Books, compare
from tests.chaos.plan import Plan, make_plan
from tests.chaos.run import Run
from tests.chaos.shop import Shop
from tests.rig.command import execute
from tests.rig.figures import show

#: Number of payments for each terminal and each till, and the least and greatest number of terminals and tills.
PAYMENTS_FOR_ONE, LEAST, MOST = 60, 3, 24


async def make_run(plan: Plan, directory: Path) -> tuple[Counter[str], list[str], Books]:
    """Make a run in a directory, and compare the ledgers. Return the number of injected faults of each kind, all
    findings, and the records. The ledgers and the log stay in the directory.
    """
    transactions = []
    async with Shop(plan, directory) as shop:
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
    if transactions:
        try:
            shop.faults += compare(books)
        except sqlite3.DatabaseError as error:
            shop.faults.append(f"the database cannot be read: {error}")
    injected = Counter({str(kind): count for kind, count in run.injected.items() if kind is not None})
    return injected, shop.faults, books


async def command() -> int:
    """Make the run. Print the findings."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--payments", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1, help="even: search and abort are confirmed; odd: they are not")
    options = parser.parse_args()
    number = min(MOST, max(LEAST, options.payments // PAYMENTS_FOR_ONE))
    directory = Path(tempfile.mkdtemp(prefix="posd-chaos-", dir="/tmp"))
    plan = make_plan(options.seed, options.payments, number, number)
    injected, findings, books = await make_run(plan, directory)
    ends = Counter((item["outcome"] or {}).get("result", item["phase"]) for item in books.transactions)
    show(("injected faults and payments", "number"), sorted((injected + ends).items()))
    print(f"{len(findings)} findings", *findings, sep="\n  ")
    if findings:
        print(f"ledgers, log and database: {directory}")
        return 1
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(execute(command()))
