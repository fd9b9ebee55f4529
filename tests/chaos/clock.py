"""The daemon's wall clock jumps, a person prunes meanwhile, and the clock is right again."""

import asyncio
import shutil
import signal
from pathlib import Path

from tests.chaos.faults import Fault
from tests.chaos.surroundings import Surroundings

#: What the letter of a step's form is counted in.
UNITS = {"d": "days", "h": "hours"}


async def step_clock(around: Surroundings, fault: Fault) -> bool:
    """Let the clock jump; a person prunes meanwhile. Then it is right again, and the person says so."""
    street = around.street
    assert street.clock is not None
    step, _, restart = fault.detail.partition(" ")
    what = f"the clock jumped by {step}"
    certificates = street.directory / "tls-before"
    if not certificates.exists():
        shutil.copytree(street.daemon.ca.parent, certificates)
    async with street.daemon_lock:
        street.clock.move(**{UNITS[step[-1]]: int(step[:-1])})
        try:
            around.seen[f"clock steps of {step}"] += 1

            async def unsure() -> bool:
                return await around.check("clock") != "ok"

            noticed = await around.until(unsure)
            around.seen["of these noticed by posd"] += noticed
            around.expect(noticed, "clock", f"{what}, and health says that the clock is well")
            if restart:
                await street.end_daemon(signal.SIGTERM)
                if not await around.start_daemon(f"when it is started after {what}"):
                    street.clock.move()
                    await _mended(around, certificates)
            reply = await street.admin("POST", "/prune", {})
            removed = reply.json["removed"]["transactions"] if reply.status == 200 else 0
            around.seen["prunes by a person meanwhile"] += 1
            around.expect(not removed, "retention", f"{removed} payments were removed after {what}", "lost")
            await asyncio.sleep(fault.seconds)
        finally:
            street.clock.move()
        # No message when it is right again: a person sees that in `posd clock`.
        code, _ = await around.posd("clock", "confirm", "--operator", "Person")
        around.seen["clocks confirmed by the person"] += code == 0
        if street.daemon.process is None or street.daemon.process.returncode is not None:
            around.expect(False, "daemon", f"it has ended by itself after {what}")
            street.daemon.process = None
            await _mended(around, certificates)
        if not await around.certificate_is_good():
            around.expect(False, "certificate", f"terminals refuse it when the clock is right again after {what}")
            await street.end_daemon(signal.SIGTERM)
            await _mended(around, certificates)
    return True


async def _mended(around: Surroundings, certificates: Path) -> None:
    """Start the daemon with the certificate that it had at first: the run goes on."""
    if not await around.start_daemon("when the clock is right again"):
        shutil.rmtree(around.street.daemon.ca.parent)
        shutil.copytree(certificates, around.street.daemon.ca.parent)
        await around.street.start_daemon()
