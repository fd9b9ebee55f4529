"""A day with all kinds of payments in two currencies, compared to the cent with the terminals' records."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import pytest
import pytest_asyncio

from posd.base.times import iso
from posd.simulator import Simulator
from tests.support.commands import posd
from tests.support.daemon import Daemon
from tests.support.simulated import simulated

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: Limit in seconds, far longer than a payment.
STUCK = 60.0
#: Scenarios of the charges of one terminal (docs/reference/scenarios.md).
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
#: Scenarios whose number of charges is uncertain.
UNSETTLED = {"approval-after-decline", "two-approvals"}
#: Scenario whose approval never reaches posd.
ENDLESS = "search-empty"
#: Scenario whose end posd learns only by a search.
UNTOLD = "missing-final"


#: Amount of partial refunds.
REFUND = {"amount": {"subtotal_iva0": "7.00"}}
#: Serial -> currency. The third terminal reports refunds with negative amounts, as some acquirers do.
CURRENCIES = {"SN-0001": "USD", "SN-0002": "EUR", "=SN<3>": "USD"}
NEGATIVE = """
summary = "A refund of 7.00 is answered with -7.00."
when = "The acquirer counts what is given back as negative."
[[steps]]
status = "TERMINAL_ACKNOWLEDGED"
[[steps]]
status = "APPROVAL_REQUESTED"
[[steps]]
status = "APPROVAL"
set = { "raw_response.authorized_amount" = -7.00 }
[expect]
result = "approved"
charges = 1
"""


@dataclass
class Street:
    """A daemon, the terminals, and the ids of the payments by scenario."""

    daemon: Daemon
    terminals: Mapping[str, Simulator]
    courses: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    async def pay(self, course: str = "", **request: Any) -> str:
        """Run an operation to its end. Return the id."""
        identity = str(uuid4())
        self.courses[course].add(identity)
        plain = {} if request["type"] == "refund" else {"scenario": "approve-contactless"}
        metadata = {"scenario": course, "till": "=1+1"} if course else plain
        reply = await self.daemon.call("PUT", f"/transactions/{identity}", {"metadata": metadata, **request})
        assert reply.status == 201, reply.body
        if course == ENDLESS:
            await self.terminals[request["terminal"]].ledger.wait_for("final", client_transaction_id=identity)
            return identity
        if course == UNTOLD:  # a person requests the search, so that the test does not wait for posd's own search
            await self.terminals[request["terminal"]].ledger.wait_for("final", client_transaction_id=identity)
            assert (await self.daemon.call("POST", f"/transactions/{identity}/reconcile")).status == 200
        assert await self.daemon.outcome(identity, STUCK) is not None, (course, request)
        return identity

    async def day(self, serial: str, draw: Random) -> None:
        """Run every operation of a shop on one terminal, with amounts of any size."""

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
        # A capture must not exceed the reservation, and the reservation may be any sum.
        part = {"amount": {"subtotal_iva0": "0.01"}}
        captures = [await self.pay(**request("capture", original=held[number]) | part) for number in (0, 1)]
        await self.pay(**request("void", original=captures[1]))
        await self.pay(**request("void", original=held[2]))
        await self.pay(**request("refund", original=charges[3]) | REFUND)
        await self.pay(ENDLESS, **request("charge"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def street() -> AsyncIterator[Street]:
    """Yield a day with three terminals at which customers add a tip."""
    with TemporaryDirectory(prefix="posd-") as directory:
        (file := Path(directory) / "negative.toml").write_text(NEGATIVE)
        own: dict[str, dict[str, Any]] = {serial: {"currency": currency} for serial, currency in CURRENCIES.items()}
        own["=SN<3>"]["scenario_file"] = file
        serials = dict.fromkeys(CURRENCIES, "")
        async with simulated(Path(directory), serials, own=own, tip=Decimal("0.37")) as (daemon, terminals):
            street = Street(daemon, terminals)
            await asyncio.gather(*(street.day(serial, Random(serial)) for serial in terminals))
            yield street


def report(street: Street, *arguments: str) -> str:
    """Run the command for all days on which payments of the test can be."""
    days = ("--from", "yesterday", "--to", "today")
    done = posd("report", *days, *arguments, config=street.daemon.config_file)
    assert done.returncode == 0, done.stderr
    return done.stdout


def charged(street: Street, serial: str) -> dict[str, Decimal]:
    """Return the charged amounts of the terminal's ledger, id -> amount. A void of a charge has a negative amount."""
    ledger = street.terminals[serial].ledger
    finals = [line for line in ledger.of("final") if line["charged"]]
    operations = {line["transaction_reference"]: line["operation"] for line in finals}
    started = {line["client_transaction_id"]: line for line in ledger.of("start") if line["runs"]}
    found: dict[str, Decimal] = defaultdict(Decimal)
    for line in finals:
        identity, operation = line["client_transaction_id"], line["operation"]
        if operation in ("charge", "capture", "post-tip"):
            found[identity] += Decimal(line["amount"])
        elif operation == "refund":
            found[identity] -= abs(Decimal(line["amount"]))
        elif operation == "void":
            original = operations[started[identity]["transaction_reference"]]
            found[identity] -= Decimal(line["amount"]) if original in ("charge", "capture") else 0
    return found


async def asked(street: Street, **parameters: str) -> Any:
    """Return the daemon's report. By default the report covers all days on which payments of the test can be."""
    now = datetime.now(UTC)
    days = {"since": iso(now - timedelta(days=1)), "until": iso(now + timedelta(days=1))}
    query = urlencode(parameters if "shift" in parameters else days | parameters)
    reply = await street.daemon.call("GET", f"/report?{query}")
    assert reply.status == 200, reply.body
    return reply.json


def by_currency(made: Any) -> dict[str | None, Decimal]:
    return {item["currency"]: Decimal(item["total"]) for item in made["by_currency"]}


@pytest.mark.slow
async def test_the_report_equals_the_terminals_records(street: Street) -> None:
    made = await asked(street)
    question = set(made["in_question"])
    rows = {item["client_transaction_id"]: item for item in made["payments"]}
    settled: dict[tuple[str, str | None], Decimal] = defaultdict(Decimal)
    unsettled = set()
    for serial in street.terminals:
        for identity, amount in charged(street, serial).items():
            row = rows[identity]
            # For an uncertain payment, the report counts posd's amount. The payment is also listed separately.
            settled[serial, row["currency"]] += (row["counted"] or 0) if identity in question else amount
            if amount != (row["counted"] or 0):
                unsettled.add(identity)
            if identity not in street.courses["sparse-events"]:  # events of these scenarios have no `authorized_amount`
                assert row["currency"] == CURRENCIES[serial] or row["counted"] is None
    assert {(item["terminal"], item["currency"]): item["total"] for item in made["by_terminal"]} == settled
    totals: dict[str | None, Decimal] = defaultdict(Decimal)
    for (_, currency), amount in settled.items():
        totals[currency] += amount
    assert by_currency(made) == totals
    assert (made["total"], made["currencies"]) == (None, ["EUR", "USD"])
    # If the ledger differs, the report must mark the payment as uncertain.
    expected = set.union(*(street.courses[course] for course in (*UNSETTLED, ENDLESS)))
    assert (question, unsettled) == (expected, expected)
    for name in ("by_terminal", "by_type", "by_terminal_and_type", "by_brand", "by_day", "by_hour", "by_part"):
        added: dict[str | None, Decimal] = defaultdict(Decimal)
        for item in made[name]:
            added[item["currency"]] += item["total"]
        assert added == totals, name


@pytest.mark.slow
async def test_totals_the_feed_and_a_closed_shift_agree(street: Street) -> None:
    made = await asked(street)
    page = (await street.daemon.call("GET", "/transactions?totals=true&limit=1")).json
    added: dict[str | None, Decimal] = defaultdict(Decimal)
    for row in page["totals"]:
        gave_back = -1 if row["type"] in ("void", "refund") else 1
        if row["of"] == "payment" and row["result"] == "approved":
            added[row["currency"]] += gave_back * row["authorized_amount"]
    assert added == by_currency(made)

    told: dict[str, Any] = {}
    after = 0
    while changes := (feed := (await street.daemon.call("GET", f"/feed?after={after}&limit=500&with=outcome")).json)[
        "changes"
    ]:
        told |= {item["id"]: item["outcome"] for item in changes if "outcome" in item}
        after = feed["next_after"]
    added = defaultdict(Decimal)
    for outcome in told.values():
        if outcome["counted"] is not None:
            added[outcome["currency"]] += outcome["counted"]
    assert added == by_currency(made)

    daemon = street.daemon
    reply = await daemon.call("POST", "/shifts", {"operator": "Ana"}, socket=daemon.admin_socket)
    assert (reply.status, reply.json["total"]) == (201, None), reply.body
    assert by_currency(reply.json["totals"]) == by_currency(made)
    printed = await asked(street, shift="1")
    same = ("by_currency", "by_terminal", "by_type", "by_brand", "by_part", "reserved", "sureness", "results", "counts")
    assert [printed[name] for name in same] == [made[name] for name in same]
    assert by_currency(await asked(street, shift="open")) == {}
