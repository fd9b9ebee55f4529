"""A shop for tests that block: a daemon that a test can kill, and simulated terminals in a thread."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar
from uuid import uuid4

from posd.cli.app.connection import Api, Problem, Unreachable
from posd.simulator import Simulator
from posd.simulator.control import DEEDS
from posd.simulator.wire import Refused
from tests.rig.daemon import Daemon
from tests.rig.simulated import simulated

#: Limit of a wait in seconds, far longer than any wait takes.
PATIENCE = 60.0

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, Any]], Any]


@contextmanager
def in_thread(opened: AbstractAsyncContextManager[T]) -> Iterator[tuple[T, Run]]:
    """Open the object in a thread for the block. Yield the object, and a function that runs a coroutine there."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever)

    def run(step: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(step, loop).result()

    thread.start()
    try:
        value = run(opened.__aenter__())
        try:
            yield value, run
        finally:
            run(opened.__aexit__(None, None, None))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@dataclass
class Counter:
    """The daemon and the terminals of a shop."""

    daemon: Daemon
    simulators: Mapping[str, Simulator]
    run: Run

    @property
    def serials(self) -> list[str]:
        return list(self.simulators)

    @property
    def socket(self) -> Path:
        return self.daemon.admin_socket

    def tidy(self) -> None:
        """Start the daemon if it is stopped. End the open payments."""
        if self.daemon.process is None:
            self.run(self.daemon.start())
        for payment in self.get("/transactions", {"open": "true"})["transactions"]:
            with suppress(Problem), Api(self.socket) as api:
                api.post(f"/transactions/{payment['client_transaction_id']}/abort")
            with suppress(Refused):  # a payment that can no longer be aborted needs an approval at the terminal
                self.hand("approve", payment["terminal"])
            self.ended(payment["client_transaction_id"])

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Any:
        """Return a response of the local API, or None if there is no response."""
        try:
            with Api(self.socket) as api:
                return api.get(path, query).body
        except (Unreachable, Problem):
            return None

    def charge(self, amount: float = 11.2, serial: str = "", *, scenario: str = "", **request: Any) -> str:
        """Start a payment with a scenario. Return the id, which is `identity` if given."""
        identity = request.pop("identity", None) or str(uuid4())
        metadata = {"scenario": scenario} if scenario else {}
        exact = {"subtotal_iva0": Decimal(str(amount))}
        body = {"terminal": serial or self.serials[0], "amount": exact, "metadata": metadata}
        with Api(self.socket) as api:
            api.put(f"/transactions/{identity}", body | request)
        return identity

    def hand(self, deed: str, serial: str = "") -> None:
        """Perform an action at a terminal: present-card, approve, unplug. Raise Refused."""
        _, do = DEEDS[deed]
        self.run(do(self.simulators[serial or self.serials[0]], None))

    def transaction(self, identity: str) -> Any:
        return self.get(f"/transactions/{identity}")

    def ended(self, identity: str) -> Any:
        """Wait for the outcome of a payment. Return the outcome."""
        return self.until(lambda: self.transaction(identity)["outcome"], "it does not end")

    def ledger(self) -> list[dict[str, Any]]:
        """Return the events that really happened at the first terminal."""
        return list(self.simulators[self.serials[0]].ledger)

    def until(self, look: Callable[[], T | None], otherwise: str) -> T:
        """Poll until there is a result. If there is no result in time, fail with this text."""
        deadline = time.monotonic() + PATIENCE
        while not (found := look()):
            assert time.monotonic() < deadline, f"{otherwise}: {self.daemon.lines[-20:]}"
            time.sleep(0.05)
        return found


@contextmanager
def open_counter(home: Path, *also: str, speed: float = 200.0, extra: str = "") -> Iterator[Counter]:
    """Run a shop in a directory for the block. `also`: serials of further terminals. `extra`: lines for the daemon's
    configuration.
    """
    serials = dict.fromkeys(("SN-0001", "SN-0002", *also), "")
    with in_thread(simulated(home, serials, extra, speed=speed)) as ((daemon, simulators), run):
        yield Counter(daemon, simulators, run)
