"""A run. One run of the plan. The tills pay, the planned faults happen, an operator helps, and at the end the shop
becomes quiet.
"""

import asyncio
import signal
import time
from collections import Counter
from random import Random
from typing import Any
from uuid import UUID

from tests.chaos.plan import Fault, Kind
from tests.chaos.shop import Shop
from tests.rig.judge import Line
from tests.rig.proxy import Lan

#: Maximum number of payments that begin while a fault waits for its moment.
MOST_WAITED = 100
#: Seconds without a change in posd that count as quiet. These seconds exceed posd's pause between two rounds of a
#: proof.
QUIET_SECONDS = 2.5
#: Maximum time until the shop is quiet, in seconds. These seconds cover a terminal's ten attempts and the operator's
#: wait.
SETTLED_SECONDS = 150.0
#: Maximum number of tries of the last payment on a terminal.
LAST_TRIES = 3


class Run:
    """One run of an open shop."""

    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        self.plan = shop.plan
        #: Number of injected faults of each kind.
        self.injected = Counter[Kind | None]()
        self._lan_lock = asyncio.Lock()

    async def go(self) -> list[dict[str, Any]]:
        """Run the whole plan. Return all transactions of posd at the end. Raise an error that ends the run early."""
        shop = self.shop
        async with asyncio.TaskGroup() as group:
            operator = group.create_task(shop.operate())
            faults = group.create_task(self._go_wrong_in_turn())
            await asyncio.wait([group.create_task(till.run()) for till in shop.tills])
            shop.moments.end()
            await faults
            await self._settle()
            operator.cancel()
        await asyncio.gather(*(self._pay_once_more(serial) for serial in self.plan.terminals))
        transactions = await shop.transactions()
        reply = await shop.daemon.call("POST", "/reprocess", socket=shop.daemon.admin_socket)
        if reply.status != 200 or reply.json["differing"] or reply.json["applied"]:
            shop.faults.append(f"reprocess answered {reply.status}: {reply.body.decode()}")
        await shop.end_daemon(signal.SIGTERM)
        return transactions

    # Faults.

    async def _go_wrong_in_turn(self) -> None:
        """Start each fault at its time and event."""
        moments = self.shop.moments
        async with asyncio.TaskGroup() as group:
            for fault in self.plan.faults:
                while moments.begun < fault.after and not moments.over:
                    await moments.wait(lambda _name, line: line["kind"] == "intent")
                group.create_task(self._go_wrong(fault))

    async def _go_wrong(self, fault: Fault) -> None:
        """Wait for a fault's moment, and cause the fault."""
        moments = self.shop.moments
        if fault.moment is not None:
            kind, _, status = fault.moment.partition(" ")
            target = {Kind.TERMINAL: self.plan.terminals, Kind.TILL: [till.name for till in self.shop.tills]}
            names = target[fault.kind][fault.target :][:1] if fault.kind in target else self.plan.terminals
            # the fault's target may be idle
            latest = fault.after + min(MOST_WAITED, max(5, len(self.plan.payments) // 10))

            def strikes(name: str, line: Line) -> bool:
                hit = name in names and line["kind"] == kind and status in ("", line.get("status"))
                return hit or moments.begun >= latest

            await moments.wait(strikes)
        self.injected[await self._cause(fault)] += 1

    async def _cause(self, fault: Fault) -> Kind | None:
        """Cause a fault, and end it. Return its kind, or None if there was no process to kill."""
        shop = self.shop
        match fault.kind:
            case Kind.DAEMON | Kind.DAEMON_STOP:
                async with shop.daemon_lock:
                    await shop.end_daemon(signal.SIGTERM if fault.kind is Kind.DAEMON_STOP else signal.SIGKILL)
                    await asyncio.sleep(fault.seconds)
                    await shop.daemon.start()
            case Kind.DAEMON_AT_POINT:
                async with shop.daemon_lock:
                    await shop.end_daemon(signal.SIGKILL)
                    self.injected[Kind.DAEMON] += 1
                    reached = await shop.start_dying_daemon(fault.detail)
                    await shop.daemon.start()
                return fault.kind if reached else Kind.DAEMON
            case Kind.TERMINAL:
                terminal = shop.terminals[self.plan.terminals[fault.target]]
                async with terminal.power:
                    await terminal.simulator.power_off()
                    await asyncio.sleep(fault.seconds)
                    await terminal.simulator.switchboard.set_powered(True)
            case Kind.TILL:
                return fault.kind if shop.tills[fault.target].kill() else None
            case Kind.LAN:
                async with self._lan_lock:
                    shop.lan_up_since = float("inf")
                    await _cut_off(shop.lan, fault)
                    shop.lan_up_since = time.monotonic()
            case Kind.CALLBACKS:
                async with self._lan_lock:
                    await _cut_off(shop.callbacks_lan, fault)
            case Kind.UNREACHABLE:
                terminal = shop.terminals[self.plan.terminals[fault.target]]
                async with terminal.cable:
                    await _cut_off(terminal.lan, fault)
        return fault.kind

    # The end.

    async def _settle(self) -> None:
        """Wait until every possible message has arrived and posd changes nothing more."""
        shop = self.shop
        try:
            async with asyncio.timeout(SETTLED_SECONDS):
                while not all(terminal.quiet() for terminal in shop.terminals.values()):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
                async for _ in shop.daemon.changes():  # the operator works at each change
                    if not await shop.transactions("open=true&"):
                        break
        except TimeoutError:
            shop.faults.append(f"it was not quiet {SETTLED_SECONDS:g} s after the last fault")
        still_open = {item["client_transaction_id"] for item in await shop.transactions("open=true&")}
        # posd waits for minutes between its own searches
        for identity in sorted(still_open | shop.resolved.keys()):
            await shop.daemon.call("POST", f"/transactions/{identity}/reconcile")
        changes = shop.daemon.changes()
        try:
            while True:
                async with asyncio.timeout(QUIET_SECONDS):
                    await anext(changes)
        except TimeoutError:
            return

    async def _pay_once_more(self, serial: str) -> None:
        """Pay on a terminal without any fault, and check that the payment is approved. If posd proves that it did not
        send a payment, start the payment again, as a till does.
        """
        rng = Random(f"last/{self.plan.seed}/{serial}")
        request = {"terminal": serial, "amount": {"subtotal_iva0": 1}, "metadata": {"scenario": "approve-contactless"}}
        outcome: Any = None
        for _ in range(LAST_TRIES):
            identity = str(UUID(int=rng.getrandbits(128), version=4))
            reply = await self.shop.daemon.call("PUT", f"/transactions/{identity}", request)
            if reply.status != 201:
                self.shop.faults.append(f"{serial} cannot be used at the end: {reply.body.decode()}")
                return
            outcome = await self.shop.daemon.outcome(identity)
            if outcome is None or outcome["evidence"][0]["kind"] != "unsent":
                break  # on a busy machine a connection can time out, but a start must not fail for another reason
        if outcome is None or outcome["result"] != "approved":
            self.shop.faults.append(f"the last payment on {serial}, without any fault, ended as {outcome}")


async def _cut_off(lan: Lan, fault: Fault) -> None:
    open_ones, new_ones = fault.detail.split()
    lan.down(cut=open_ones == "cut", refuse=new_ones == "refuse")
    await asyncio.sleep(fault.seconds)
    lan.up()
