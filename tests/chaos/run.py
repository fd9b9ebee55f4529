"""A run. One run of the plan. The tills pay, the planned faults happen, an operator helps, and at the end the shop
becomes quiet.
"""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Any
from uuid import UUID

from tests.chaos.plan import Fault, Kind
from tests.chaos.shop import Line, Shop, Terminal
from tests.support.proxy import Lan

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
        self.injected: Counter[str] = Counter()
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
        await self._reprocess()
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
            kind, status = fault.moment
            target = {Kind.TERMINAL: self.plan.terminals, Kind.TILL: [till.name for till in self.shop.tills]}
            names = target[fault.kind][fault.target :][:1] if fault.kind in target else self.plan.terminals
            # the fault's target may be idle
            latest = fault.after + min(MOST_WAITED, max(5, len(self.plan.payments) // 10))

            def strikes(name: str, line: Line) -> bool:
                hit = name in names and line["kind"] == kind and status in (None, line.get("status"))
                return hit or moments.begun >= latest

            await moments.wait(strikes)
        await self._deeds[fault.kind](self, fault)

    async def _end_daemon(self, fault: Fault) -> None:
        async with self.shop.daemon_lock:
            await self.shop.end_daemon(signal.SIGTERM if fault.kind is Kind.DAEMON_STOP else signal.SIGKILL)
            self.injected[fault.kind] += 1
            await asyncio.sleep(fault.seconds)
            await self.shop.daemon.start()

    async def _kill_daemon_at_point(self, fault: Fault) -> None:
        async with self.shop.daemon_lock:
            await self.shop.end_daemon(signal.SIGKILL)
            self.injected[Kind.DAEMON] += 1
            reached = await self.shop.start_dying_daemon(fault.detail)
            self.injected[fault.kind if reached else Kind.DAEMON] += 1
            await self.shop.daemon.start()

    async def _cut_power(self, fault: Fault) -> None:
        terminal = self._terminal(fault)
        async with terminal.power:
            await terminal.simulator.power_off()
            self.injected[fault.kind] += 1
            await asyncio.sleep(fault.seconds)
            await terminal.simulator.switchboard.set_powered(True)

    async def _kill_till(self, fault: Fault) -> None:
        self.injected[fault.kind] += self.shop.tills[fault.target].kill()

    async def _break_lan(self, fault: Fault) -> None:
        async with self._lan_lock:
            self.shop.lan_up_since = float("inf")
            await self._cut_off(self.shop.lan, fault)
            self.shop.lan_up_since = time.monotonic()

    async def _break_callbacks(self, fault: Fault) -> None:
        async with self._lan_lock:
            await self._cut_off(self.shop.callbacks_lan, fault)

    async def _hide_terminal(self, fault: Fault) -> None:
        terminal = self._terminal(fault)
        async with terminal.cable:
            await self._cut_off(terminal.lan, fault)

    def _terminal(self, fault: Fault) -> Terminal:
        return self.shop.terminals[self.plan.terminals[fault.target]]

    async def _cut_off(self, lan: Lan, fault: Fault) -> None:
        open_ones, new_ones = fault.detail.split()
        lan.down(cut=open_ones == "cut", refuse=new_ones == "refuse")
        await asyncio.sleep(fault.seconds)
        lan.up()
        self.injected[fault.kind] += 1

    _deeds: Mapping[Kind, Callable[["Run", Fault], Awaitable[None]]] = {
        Kind.DAEMON: _end_daemon,
        Kind.DAEMON_AT_POINT: _kill_daemon_at_point,
        Kind.DAEMON_STOP: _end_daemon,
        Kind.TERMINAL: _cut_power,
        Kind.TILL: _kill_till,
        Kind.LAN: _break_lan,
        Kind.CALLBACKS: _break_callbacks,
        Kind.UNREACHABLE: _hide_terminal,
    }

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

    async def _reprocess(self) -> None:
        """Reprocess all records, and check that nothing differs."""
        reply = await self.shop.daemon.call("POST", "/reprocess", socket=self.shop.daemon.admin_socket)
        if reply.status != 200 or reply.json["differing"] or reply.json["applied"]:
            self.shop.faults.append(f"reprocess answered {reply.status}: {reply.body.decode()}")
