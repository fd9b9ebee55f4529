"""A run: the tills pay, faults happen by the plan, an operator helps, and at the end the shop becomes quiet."""

import asyncio
import json
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any
from uuid import UUID

from tests.chaos.faults import Fault, Kind
from tests.chaos.person import Person
from tests.chaos.processes import Line
from tests.chaos.street import Away, Street
from tests.support.proxy import Lan

#: Seconds without any event, while tills work, after which the run counts as stuck.
STUCK_SECONDS = 90.0
#: Most payments that begin while a fault waits for its moment.
MOST_WAITED = 100
#: Seconds without a change of posd that count as quiet. They exceed its pause between two rounds of a proof.
QUIET_SECONDS = 2.5
#: Most seconds until the shop is quiet: a terminal's ten attempts, and the person's patience.
SETTLED_SECONDS = 150.0
#: Most tries of the last payment on a terminal.
LAST_TRIES = 3


class Stuck(Exception):
    """The run makes no progress."""


class Run:
    """One run of a shop."""

    def __init__(self, street: Street) -> None:
        self.street = street
        self.plan = street.plan
        #: How often each kind of fault was injected.
        self.injected: Counter[str] = Counter()
        self.person = Person(street)
        #: posd's final state: every transaction.
        self.transactions: list[dict[str, Any]] = []
        self._lan_lock = asyncio.Lock()

    async def go(self) -> None:
        """Run everything. Raise Stuck, or the error that ends it early."""
        street = self.street
        await street.open()
        for till in street.tills:
            await till.start()
        person = asyncio.create_task(self.person.help(), name="person")
        faults = asyncio.create_task(self._go_wrong_in_turn(), name="faults")
        tills = [asyncio.create_task(till.done.wait(), name=till.name) for till in street.tills]
        try:
            await self._watch(tills, beside=[person, faults])
            street.happenings.end()
            await self._watch([faults], beside=[person])
            await self._settle()
            await self._close()
        finally:
            tasks = (person, faults, *tills)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, tasks: Sequence[asyncio.Task[Any]], beside: Sequence[asyncio.Task[Any]]) -> None:
        """Wait for tasks. Raise their errors, those of the tasks `beside`, and Stuck without progress."""
        happenings = self.street.happenings
        seen, since = -1, 0.0
        waiting = set(tasks)
        while waiting:
            done, _ = await asyncio.wait({*waiting, *beside}, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            steps = happenings.steps + self.injected.total()
            if steps != seen or waiting & done:
                seen, since = steps, time.monotonic()
            elif time.monotonic() - since > STUCK_SECONDS:
                names = ", ".join(sorted(task.get_name() for task in waiting))
                raise Stuck(f"no till has come further for {STUCK_SECONDS:g} s; still at work: {names}")
            waiting -= done
            beside = [task for task in beside if not task.done()]

    async def salvage(self) -> None:
        """Read posd's state after an aborted run, if posd still responds."""
        with suppress(OSError, Away):
            self.transactions = await self.street.list("")

    # Faults.

    async def _go_wrong_in_turn(self) -> None:
        """Start each fault when its time and its event have come. Raise the error of any."""
        happenings = self.street.happenings
        async with asyncio.TaskGroup() as group:
            for fault in self.plan.faults:
                while happenings.begun < fault.after and not happenings.over:
                    await happenings.wait(lambda _who, line: line["kind"] == "intent")
                group.create_task(self._go_wrong(fault), name=fault.kind)

    async def _go_wrong(self, fault: Fault) -> None:
        """Wait for a fault's moment, and cause the fault."""
        happenings = self.street.happenings
        if fault.moment is not None:
            who = self._target(fault)
            kind, status = fault.moment
            # Its target may be idle.
            latest = fault.after + min(MOST_WAITED, max(5, len(self.plan.payments) // 10))

            def strikes(name: str, line: Line) -> bool:
                whom = name == who if who else name in self.street.terminals
                hit = whom and line["kind"] == kind and status in (None, line.get("status"))
                return hit or happenings.begun >= latest

            await happenings.wait(strikes)
        await self._deeds[fault.kind](self, fault)

    def _target(self, fault: Fault) -> str | None:
        """Return the process whose ledger shows the event. None, for faults of the daemon or the LAN: any terminal."""
        match fault.kind:
            case Kind.TERMINAL:
                return self.plan.terminals[fault.target]
            case Kind.TILL:
                return f"till-{fault.target}"
            case _:
                return None

    async def _kill_daemon(self, fault: Fault) -> None:
        async with self.street.daemon_lock:
            await self.street.end_daemon(signal.SIGKILL)
            self.injected[fault.kind] += 1
            await asyncio.sleep(fault.seconds)
            await self.street.start_daemon()

    async def _kill_daemon_at_point(self, fault: Fault) -> None:
        async with self.street.daemon_lock:
            await self.street.end_daemon(signal.SIGKILL)
            self.injected[Kind.DAEMON] += 1
            reached = await self.street.start_dying_daemon(fault.detail)
            self.injected[fault.kind if reached else Kind.DAEMON] += 1
            await self.street.start_daemon()

    async def _stop_daemon(self, fault: Fault) -> None:
        async with self.street.daemon_lock:
            await self.street.end_daemon(signal.SIGTERM)
            self.injected[fault.kind] += 1
            await self.street.start_daemon()

    async def _kill_terminal(self, fault: Fault) -> None:
        terminal = self.street.terminals[self.plan.terminals[fault.target]]
        async with terminal.lock:
            await terminal.kill()
            self.injected[fault.kind] += 1
            await asyncio.sleep(fault.seconds)
            await terminal.start()

    async def _kill_till(self, fault: Fault) -> None:
        till = self.street.tills[fault.target]
        async with till.lock:
            if till.done.is_set():
                return
            await till.kill()
            self.injected[fault.kind] += 1
            if not till.done.is_set():  # it may have ended at this moment
                await till.start()

    async def _break_lan(self, fault: Fault) -> None:
        async with self._lan_lock:
            self.person.lan_up_since = float("inf")
            await self._cut_off(self.street.lan, fault)
            self.person.lan_up_since = time.monotonic()

    async def _break_callbacks(self, fault: Fault) -> None:
        async with self._lan_lock:
            await self._cut_off(self.street.callbacks_lan, fault)

    async def _hide_terminal(self, fault: Fault) -> None:
        terminal = self.street.terminals[self.plan.terminals[fault.target]]
        async with terminal.cut_off:
            await self._cut_off(terminal.lan, fault)

    async def _cut_off(self, lan: Lan, fault: Fault) -> None:
        open_ones, new_ones = fault.detail.split()
        lan.down(cut=open_ones == "cut", refuse=new_ones == "refuse")
        await asyncio.sleep(fault.seconds)
        lan.up()
        self.injected[fault.kind] += 1

    _deeds: Mapping[Kind, Callable[["Run", Fault], Awaitable[None]]] = {
        Kind.DAEMON: _kill_daemon,
        Kind.DAEMON_AT_POINT: _kill_daemon_at_point,
        Kind.DAEMON_STOP: _stop_daemon,
        Kind.TERMINAL: _kill_terminal,
        Kind.TILL: _kill_till,
        Kind.LAN: _break_lan,
        Kind.CALLBACKS: _break_callbacks,
        Kind.UNREACHABLE: _hide_terminal,
    }

    # The end.

    async def _settle(self) -> None:
        """Stop all faults, and wait until every possible message has arrived."""
        street = self.street
        try:
            async with asyncio.timeout(SETTLED_SECONDS):
                # This only reads the terminals' files.
                while any(item.waiting() or item.running for item in street.terminals.values()):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
                async for _ in street.daemon.changes():  # the person works at each change
                    if not await street.list("open=true&"):
                        break
        except TimeoutError:
            street.faults.append(f"it was not quiet {SETTLED_SECONDS:g} s after the last fault")
        still_open = {item["client_transaction_id"] for item in await self.street.list("open=true&")}
        # posd waits for minutes between its own searches
        for identity in sorted(still_open | self.person.resolved.keys()):
            await street.daemon.call("POST", f"/transactions/{identity}/reconcile")
        await self._quiet()

    async def _quiet(self) -> None:
        """Wait until posd changes nothing more."""
        changes = self.street.daemon.changes()
        while True:
            try:
                async with asyncio.timeout(QUIET_SECONDS):
                    await anext(changes)
            except TimeoutError:
                return

    async def _close(self) -> None:
        """Pay again on each terminal, search for every open payment, and end all processes in order."""
        street = self.street
        await asyncio.gather(*(self._pay_once_more(serial) for serial in self.plan.terminals))
        self.transactions = await self.street.list("")
        (street.directory / "transactions.json").write_text(json.dumps(self.transactions, indent=1, default=str))
        await street.reprocess()
        for terminal in street.terminals.values():
            await terminal.kill(signal.SIGTERM)
        await street.end_daemon(signal.SIGTERM)

    async def _pay_once_more(self, serial: str) -> None:
        """Pay on a terminal, and check that it is approved.

        A payment that was provably not sent is started again, as by a till.
        """
        rng = Random(f"last/{self.plan.seed}/{serial}")
        outcome: Any = None
        for _ in range(LAST_TRIES):
            identity = str(UUID(int=rng.getrandbits(128), version=4))
            if not await self._start_last(serial, identity):
                return
            outcome = await self.street.daemon.outcome(identity)
            if outcome is None or outcome["evidence"][0]["kind"] != "unsent":
                break  # the cause was not a busy machine that could not connect in time
        if outcome is None or outcome["result"] != "approved":
            self.street.faults.append(f"the last payment on {serial}, without any fault, ended as {outcome}")

    async def _start_last(self, serial: str, identity: str) -> bool:
        request = {"terminal": serial, "amount": {"subtotal_iva0": 1}, "metadata": {"scenario": "approve-contactless"}}
        reply = await self.street.daemon.call("PUT", f"/transactions/{identity}", request)
        if reply.status != 201:
            self.street.faults.append(f"{serial} cannot be used at the end: {reply.body.decode()}")
        return reply.status == 201
