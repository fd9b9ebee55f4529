"""A second device that announces the serial of a terminal which is found over mDNS."""

import asyncio

from tests.chaos.faults import Fault
from tests.chaos.processes import Line, Process
from tests.chaos.responder import Responder
from tests.chaos.street import READY_SECONDS, Street
from tests.chaos.surroundings import NOTICED_SECONDS, Surroundings


class Impostor(Process):
    """A device that says that it is a terminal of the fleet, takes payments and would say that it has charged them."""

    def __init__(self, street: Street, serial: str, number: int) -> None:
        super().__init__(f"impostor-{number}", street.directory / f"impostor-{number}.log", street.faults.append)
        self.serial = serial
        self.ledger = street.directory / f"impostor-{number}.ledger"
        self.port = 0
        self._state = street.directory / f"impostor-{number}"
        self._street = street
        self._ready = asyncio.Event()

    async def start(self) -> None:
        """Start it, and wait until it can be called."""
        leaf = self._street.terminal_leaf
        await self.spawn(
            *("posd", "simulate", "--json", "--serial", self.serial, "--listen", "127.0.0.1:0"),
            *("--cert", str(leaf.certificate), "--key", str(leaf.private_key), "--state", str(self._state)),
            *("--ledger", str(self.ledger), "--trust", str(self._street.daemon.ca), "--speed", "40"),
        )
        async with asyncio.timeout(READY_SECONDS):
            await self._ready.wait()

    def _hear(self, line: Line) -> None:
        if "ready" in line:
            self.port = int(line["base_url"].rsplit(":", 1)[1])
            self._ready.set()


async def claim(around: Surroundings, fault: Fault) -> bool:
    """Let a second device announce the serial of a terminal for a while."""
    street = around.street
    if not street.plan.found:
        return False
    serial = street.plan.found[fault.target % len(street.plan.found)]
    impostor = Impostor(street, serial, len(street.impostors))
    street.impostors.append(impostor)
    await impostor.start()
    responder = Responder(street.service_type)

    async def conflict() -> bool:
        terminal = (await street.daemon.call("GET", f"/terminals/{serial}")).json
        return bool(terminal["identity"]["conflict"])

    async def no_conflict() -> bool:
        return not await conflict()

    try:
        await responder.announce(serial, impostor.port, f"impostor-{impostor.name}")
        around.seen["second claimants of a serial"] += 1
        if await around.until(conflict):
            around.seen["of these shown as a conflict"] += 1
            # The person of the shop decides.
            told = await around.until(no_conflict)
            around.expect(
                told, serial, f"the person says which device it is, and {NOTICED_SECONDS:g} s later it is open"
            )
        await asyncio.sleep(fault.seconds)
    finally:
        await responder.close()
        await impostor.kill()
    return True
