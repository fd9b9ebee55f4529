"""`posd report` held against what really happened at the terminals: to the cent."""

import asyncio
import csv
import io
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from posd.simulator import Simulator
from tests.cli.processes import posd
from tests.support.daemon import Daemon
from tests.support.simulated import simulated

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: seconds: far above what a payment takes.
STUCK = 60.0
#: Charges of one terminal: how each goes on there (docs/scenarios.md).
COURSES = (
    "approve-contactless",
    "decline",
    "approve-chip-pin",
    "cancel-by-cardholder",
    "lost-acknowledgement",
    "amount-differs",
    "reject-after-card",
    "reversed",
    "wrong-clock",
    "very-late-final",
    "duplicated-final",
    "refused-422",
    "sparse-events",
    "missing-final",
    "approval-after-decline",
    "two-approvals",
)
#: Courses after which it is not known whether the customer was charged as posd says, or how often.
UNSETTLED = {"approval-after-decline", "two-approvals"}
#: The one that never ends: its approval never reaches posd.
ENDLESS = "search-empty"
#: The one whose end only a search tells.
UNTOLD = "missing-final"


@dataclass
class Street:
    """A daemon, its terminals, and what was paid on them: course -> ids."""

    daemon: Daemon
    terminals: Mapping[str, Simulator]
    courses: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    async def pay(self, course: str = "", **request: Any) -> str:
        """Run an operation to its end; return its id."""
        identity = str(uuid4())
        self.courses[course].add(identity)
        metadata = {"scenario": course, "till": "=1+1"} if course else {}
        reply = await self.daemon.call("PUT", f"/transactions/{identity}", {"metadata": metadata, **request})
        assert reply.status == 201, reply.body
        if course == ENDLESS:
            await self.terminals[request["terminal"]].ledger.wait_for("final", client_transaction_id=identity)
            return identity
        if course == UNTOLD:  # the test does not wait out the graces of reconciliation: a person asks
            await self.terminals[request["terminal"]].ledger.wait_for("final", client_transaction_id=identity)
            assert (await self.daemon.call("POST", f"/transactions/{identity}/reconcile")).status == 200
        assert await self.daemon.outcome(identity, STUCK) is not None, (course, request)
        return identity

    async def day(self, serial: str, draw: Random) -> None:
        """Do all that a shop does with one terminal, with amounts of any size."""

        def amount() -> dict[str, str]:
            parts = {name: f"{draw.randrange(20_000) / 100:.2f}" for name in ("iva", "subtotal_iva", "subtotal_iva0")}
            return parts | {"subtotal_iva0": f"{draw.randrange(1, 10**8)}.{draw.randrange(100):02}"}

        def request(kind: str, **rest: Any) -> dict[str, Any]:
            return {"terminal": serial, "type": kind, **({} if kind == "void" else {"amount": amount()}), **rest}

        for course in COURSES:
            await self.pay(course, **request("charge"))
        charges = [await self.pay(**request("charge")) for _ in range(4)]
        await self.pay(**request("void", original=charges[0]))
        await self.pay(**request("post-tip", original=charges[1]))
        await self.pay("decline", **request("void", original=charges[2]))
        held = [await self.pay(**request("pre-auth")) for _ in range(4)]
        await self.pay(**request("re-auth", original=held[0]))
        # For at most what is reserved, which may be any sum.
        part = {"amount": {"subtotal_iva0": "0.01"}}
        captures = [await self.pay(**request("capture", original=held[number]) | part) for number in (0, 1)]
        await self.pay(**request("void", original=captures[1]))
        await self.pay(**request("void", original=held[2]))
        await self.pay(ENDLESS, **request("charge"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def street() -> AsyncIterator[Street]:
    """A day with three terminals; on one of them customers add a tip."""
    serials = {"SN-0001": "", "SN-0002": "", "=SN<3>": ""}
    with TemporaryDirectory(prefix="posd-") as directory:
        async with simulated(Path(directory), serials, tip=Decimal("0.37")) as (daemon, terminals):
            street = Street(daemon, terminals)
            await asyncio.gather(*(street.day(serial, Random(serial)) for serial in terminals))
            yield street


def report(street: Street, *arguments: str) -> str:
    """Run the command for all days that the test can have touched."""
    days = ("--from", "yesterday", "--to", "today")
    done = posd("report", *days, *arguments, config=street.daemon.config_file)
    assert done.returncode == 0, done.stderr
    return done.stdout


def charged(street: Street, serial: str) -> dict[str, Decimal]:
    """Return what the terminal's own ledger says that it took: id -> amount, less for a void of a charge."""
    ledger = street.terminals[serial].ledger
    finals = [line for line in ledger.of("final") if line["charged"]]
    operations = {line["transaction_reference"]: line["operation"] for line in finals}
    started = {line["client_transaction_id"]: line for line in ledger.of("start") if line["runs"]}
    found: dict[str, Decimal] = defaultdict(Decimal)
    for line in finals:
        identity, operation = line["client_transaction_id"], line["operation"]
        if operation in ("charge", "capture", "post-tip"):
            found[identity] += Decimal(line["amount"])
        elif operation == "void":
            original = operations[started[identity]["transaction_reference"]]
            found[identity] -= Decimal(line["amount"]) if original in ("charge", "capture") else 0
    return found


def names_in(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


@pytest.mark.slow
async def test_totals_are_those_of_the_terminals_own_ledgers(street: Street) -> None:
    made = json.loads(report(street, "--json"), parse_float=Decimal)
    totals = {item["terminal"]: Decimal(item["total"]) for item in made["by_terminal"]}
    settled, unsettled = {}, set()
    question = set(made["in_question"])
    counted = {item["client_transaction_id"]: item["counted"] for item in made["payments"]}
    for serial in street.terminals:
        ledger = charged(street, serial)
        # What is in question and counted all the same counts as posd says, and is told apart.
        settled[serial] = sum((amount for identity, amount in ledger.items() if identity not in question), Decimal(0))
        settled[serial] += sum(
            Decimal(item["counted"] or 0)
            for item in made["payments"]
            if item["client_transaction_id"] in question and item["terminal"] == serial
        )
        unsettled |= {identity for identity, amount in ledger.items() if amount != (counted[identity] or 0)}
    assert totals == settled
    assert made["total"]["total"] == sum(settled.values())
    assert sum(settled.values()) > 0
    # Wherever the ledger says otherwise, the report does not claim to know.
    expected = set.union(*(street.courses[course] for course in (*UNSETTLED, ENDLESS)))
    assert (question, unsettled) == (expected, expected)


@pytest.mark.slow
async def test_one_terminal_alone_is_its_part_of_the_whole(street: Street) -> None:
    whole = json.loads(report(street, "--json"), parse_float=Decimal)
    parts = [json.loads(report(street, "--json", "--terminal", name), parse_float=Decimal) for name in street.terminals]
    assert sum(part["total"]["total"] for part in parts) == whole["total"]["total"]
    assert sum(len(part["payments"]) for part in parts) == len(whole["payments"])


@pytest.mark.slow
async def test_every_way_to_write_it_says_the_same_total(street: Street) -> None:
    total = json.loads(report(street, "--json"), parse_float=Decimal)["total"]["total"]
    rows = list(csv.DictReader(io.StringIO(report(street, "--csv", "--metadata", "till"), newline="")))
    assert sum(Decimal(row["counted"]) for row in rows if row["counted"]) == total
    assert {row["terminal"] for row in rows} == {"SN-0001", "SN-0002", "'=SN<3>"}
    assert {row["metadata.till"] for row in rows} == {"'=1+1", ""}
    assert f"Total: {total} USD" in report(street)
    page = report(street, "--html", "-")
    plain = page.replace('<i class="k">', "").replace("</i>", "")
    assert f"<b>{total}</b><span>total USD</span>" in plain
    assert "=SN&lt;3&gt;" in page
    assert "SN<3>" not in page


@pytest.mark.slow
async def test_amounts_that_differ_and_what_is_open_are_told(street: Street) -> None:
    made = json.loads(report(street, "--json"))
    # Of a tip that the customer added the sparse events do not tell.
    assert set(made["amount_differs"]) == street.courses["amount-differs"] | street.courses["sparse-events"]
    text = report(street)
    assert "Not in the totals: 6 payments that may have moved money" in text
    for identity in street.courses[ENDLESS] | street.courses["amount-differs"]:
        assert identity in text


@pytest.mark.slow
async def test_the_page_is_written_whole_over_an_older_one(street: Street, tmp_path: Path) -> None:
    page = tmp_path / "day.html"
    page.write_text("old")
    assert "Written:" in report(street, "--html", str(page))
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert names_in(tmp_path) == ["day.html"]
