"""A daemon with simulated terminals."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from posd.simulator import Settings, Simulator
from posd.simulator.ledger import Ledger
from posd.tls import issue
from posd.tls.files import TlsFiles
from tests.rig.daemon import Daemon, running

#: Factor by which terminals are faster than people. At this speed an approved cycle takes about 10 ms.
SPEED = 2000.0


#: Settings of a daemon that soon searches for a payment, and that can or cannot prove `not_started` (`confirmed`).
SEARCHING = """
[reconcile]
first_event_grace_seconds = 0.5
stall_seconds = {stall}
stall_after_request_seconds = {stall_after_request}
settle_seconds = 1
probe_with_abort = {confirmed}
[profile.search]
confirmed = {confirmed}
[profile.abort]
confirmed = {confirmed}
"""


@asynccontextmanager
async def simulated(
    directory: Path,
    terminals: Mapping[str, str],
    extra: str = "",
    own: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    **settings: Any,
) -> AsyncIterator[tuple[Daemon, dict[str, Simulator]]]:
    """Run a daemon and simulated terminals for the block. `terminals`: serial -> further lines of the terminal's
    configuration. `settings` apply to all simulators. `own` applies to the simulator of a serial. The cloud service and
    the terminals of the network call the daemon by different names.
    """
    async with AsyncExitStack() as stack:
        daemon = await stack.enter_async_context(running(directory, ""))
        simulators, entries = {}, ""
        for number, (serial, lines) in enumerate(terminals.items()):
            state = directory / f"terminal-{number}"
            made = issue.init(state / "tls", names=["localhost"], addresses=["127.0.0.1"])
            simulators[serial] = simulator = await stack.enter_async_context(
                Simulator(
                    Settings(
                        **{"speed": SPEED, "mdns": False, "wait_seconds": 0} | settings | dict(own.get(serial, {})),
                        state=state,
                        serial=serial,
                        certificate=made.certificate,
                        private_key=made.private_key,
                        trust=daemon.ca,
                    )
                )
            )
            entries += f'[[terminals]]\nserial = "{serial}"\nbase_url = "{simulator.base_url}"\n'
            entries += f'ca_file = "{made.ca_certificate}"\n{lines}\n'
        await configured_otherwise(daemon, {"[discovery]": f"{entries}{extra}[discovery]"} | public(daemon))
        yield daemon, simulators


def simulate(serial: str, listen: str, made: TlsFiles, state: Path, trust: Path, speed: float) -> tuple[str, ...]:
    """Return the arguments of posd for a simulated terminal that prints its ledger."""
    options = {
        "--serial": serial,
        "--listen": listen,
        "--cert": made.certificate,
        "--key": made.private_key,
        "--state": state,
        "--trust": trust,
        "--speed": speed,
    }
    return ("simulate", "--json", *(str(word) for pair in options.items() for word in pair))


def undelivered(ledger: Ledger) -> set[str]:
    """Return the ids of the events that a terminal will still deliver."""
    over = {line["event_id"] for line in (*ledger.of("attempt", retry_in_seconds=None), *ledger.of("dropped"))}
    return {line["event_id"] for line in ledger.of("event")} - over


async def settled(ledger: Ledger, holds: Callable[[], bool]) -> None:
    """Wait until a condition is true, checked at each line of a terminal's ledger."""
    while not holds():
        await ledger.next(lambda _entry: True)


def public(daemon: Daemon) -> dict[str, str]:
    """Return the setting of the public name, by which an outside service reaches the listener."""
    return {"[database]": f'public_url = "https://localhost:{daemon.port}"\n[database]'}


async def configured_otherwise(daemon: Daemon, changes: Mapping[str, str]) -> None:
    """Stop the daemon, change its configuration, and start it on the same port."""
    assert await daemon.stop() == 0
    for old, new in changes.items():
        assert daemon.config.count(old) == 1, old
        daemon.config = daemon.config.replace(old, new)
    await daemon.start()
