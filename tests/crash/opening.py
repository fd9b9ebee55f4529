"""Setup of the world of a cell: certificates, ports, configuration, terminal and relays."""

import signal
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import cache, partial
from pathlib import Path
from random import Random
from ssl import PROTOCOL_TLS_SERVER, SSLContext, create_default_context

import trustme

from posd.simulator import Settings, Simulator
from posd.tls import issue
from posd.tls.files import load_pair
from tests.crash.relay import Relay
from tests.crash.scenarios import Scenario
from tests.crash.world import SERIAL, World
from tests.support.daemon import Daemon, toml
from tests.support.ports import reserve

#: Factor by which terminals are faster than people. With this factor ten attempts of a terminal last 15 s, longer than
#: a restart.
SPEED = 20.0

TIMES = """
[reconcile]
first_event_grace_seconds = 0.5
stall_seconds = 3
stall_after_request_seconds = 2
settle_seconds = 1
probe_with_abort = {probe}
[print]
poll_first_seconds = 0.3
poll_max_seconds = 0.6
[terminal_defaults]
reply_timeout_seconds = 5
[profile.search]
confirmed = {probe}
[profile.abort]
confirmed = {probe}
"""


@asynccontextmanager
async def open_world(scenario: Scenario, lives: Sequence[str], home: Path, seed: int) -> AsyncIterator[World]:
    """Set up the world without the daemon, which `World.watch` runs. After the block no process and no file is left."""
    async with AsyncExitStack() as parts:
        made = issue.init(home / "state" / "tls", names=["localhost"], addresses=["127.0.0.1", "127.0.0.2"])
        state = home / "terminal"
        state.mkdir()
        settings = Settings(
            state=state,
            serial=SERIAL,
            trust=made.ca_certificate,
            speed=SPEED,
            seed=seed,
            wait_seconds=scenario.wait_seconds,
            unruly=scenario.unruly,
            mdns=False,
        )
        terminal = await parts.enter_async_context(Simulator(settings))
        callbacks_socket, port = _port_of_two_addresses()
        wire_socket = socket.socket()
        wire_socket.bind(("127.0.0.1", 0))
        authority, own = _authority()
        authority.cert_pem.write_to_path(str(home / "terminal.pem"))
        wire = Relay(wire_socket, own, "127.0.0.1", int(terminal.base_url.rsplit(":", 1)[1]))
        trust = create_default_context(cafile=str(made.ca_certificate))
        callbacks = Relay(
            callbacks_socket, load_pair(made.certificate, made.private_key, None).context, "127.0.0.1", port, trust
        )
        parts.push_async_callback(callbacks.stop)
        parts.push_async_callback(wire.stop)
        address = f"https://127.0.0.1:{wire_socket.getsockname()[1]}"
        fleet = f'[[terminals]]\nserial = "{SERIAL}"\nbase_url = "{address}"\nca_file = "{home}/terminal.pem"\n'
        listen = f'127.0.0.1:{port}"\nadvertise_host = "127.0.0.2"'
        config = toml(home, fleet, TIMES.format(probe=str(scenario.proves).lower()))
        daemon = Daemon(home, config.replace('127.0.0.1:0"', listen))
        parts.push_async_callback(daemon.end, signal.SIGKILL)
        world = World(scenario, lives, daemon, terminal, wire, callbacks, Random(seed))
        wire.script = partial(scenario.wire, world)
        callbacks.script = partial(scenario.callbacks, world)
        world.another(scenario.payment)
        await callbacks.start()
        if scenario.line != "refused":
            await wire.start(cut=scenario.line == "cut")
        yield world


@cache
def _authority() -> tuple[trustme.CA, SSLContext]:
    """Make the terminal's CA and its TLS context, once for all cells."""
    authority, context = trustme.CA(), SSLContext(PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return authority, context


def _port_of_two_addresses() -> tuple[socket.socket, int]:
    """Bind a port of 127.0.0.2. The daemon uses the same port of 127.0.0.1 in all lives."""
    while True:
        port = reserve()
        with suppress(OSError):
            return socket.create_server(("127.0.0.2", port)), port
