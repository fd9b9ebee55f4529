"""A device that announces the serial of a terminal of the fleet."""

import json
from typing import TYPE_CHECKING

from tests.simulation.http import Asked, Server

if TYPE_CHECKING:
    from tests.simulation.network import End
    from tests.simulation.terminal import Terminal
    from tests.simulation.world import World


class Twin:
    """A device that announces itself, accepts connections and refuses requests.

    posd must send nothing to the device while the real terminal replies.
    """

    def __init__(self, world: "World", terminal: "Terminal", address: str) -> None:
        self._world, self._terminal, self._address = world, terminal, address
        self._name = f"twin-{address}"
        world.network.way(address).there = True
        self._listening = world.network.serve(address, terminal.port, self._connected)
        world.air.announce(self._name, terminal.serial, address, terminal.port)
        world.seen("twin", "there")

    def _connected(self, end: "End") -> None:
        end.attach(Server(end, self._handle))

    async def _handle(self, asked: Asked, server: Server) -> None:
        world = self._world
        world.note("twin", "called", asked.method, asked.target)
        world.seen("twin", "called")
        world.checks.holds(world.disturbed, f"posd sent {asked.target} to a second {self._terminal.serial}")
        if asked.body:
            truth = world.bank.of(json.loads(asked.body).get("client_transaction_id", ""))
            if "/async/" in asked.target:
                truth.starts.append(self._address)
                world.checks.start(truth)
                truth.refused, truth.end = True, truth.end or "REFUSED"
            else:
                truth.lied = True
        server.answer(409, b'{"type": "TERMINAL", "code": "TER-003", "message": "busy"}')

    def leave(self) -> None:
        """Withdraw the device."""
        self._world.air.withdraw(self._name)
        self._listening.close()
        way = self._world.network.way(self._address)
        way.there = False
        way.cut()
