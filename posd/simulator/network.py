"""Where a terminal can be called: its address, the listener there, its announcement and the certificate it shows."""

import ipaddress
import itertools
import socket
from collections.abc import Iterator

from starlette.applications import Starlette

from posd.simulator.announcer import Announcer, reachable_addresses
from posd.simulator.certificates import Certificates
from posd.simulator.ledger import Ledger
from posd.simulator.listener import Listener, bind
from posd.simulator.scenario import Certificate
from posd.simulator.settings import Settings
from posd.simulator.switches import NotPossible


class Network:
    """One address. It is held from the beginning to the end, so that a terminal that was away comes back to it."""

    def __init__(self, settings: Settings, ledger: Ledger) -> None:
        """Take the first address, without listening there. Raises SettingsError."""
        self._settings = settings
        self._ledger = ledger
        self._certificates = _certificates(settings)
        #: What is shown at the next `listen`.
        self.certificate = Certificate.OWN
        self._ports: Iterator[int] = itertools.cycle(settings.move_ports or (0,))
        self._listener: Listener | None = None
        self._announcer: Announcer | None = None
        self._bound: socket.socket = bind(settings.host, settings.port)
        self._port = _port_of(self._bound)

    @property
    def base_url(self) -> str:
        """Where the terminal can be called, without a slash at the end."""
        scheme = "http" if self._certificates is None else "https"
        return f"{scheme}://{_url_host(self._addresses()[0])}:{self._port}"

    async def up(self, app: Starlette) -> None:
        """Listen and announce. Raises SettingsError where somebody else listens there by now."""
        await self.listen(app)
        if self._settings.mdns and self._announcer is None:
            self._announcer = Announcer(
                self._ledger,
                serial=self._settings.serial,
                brand=self._settings.brand,
                model=self._settings.model,
                addresses=self._addresses(),
                port=self._port,
            )
            self._announcer.start(self._settings.mdns_interfaces)

    async def listen(self, app: Starlette) -> None:
        """Listen, where it does not yet."""
        if self._listener is None:
            tls = None if self._certificates is None else self._certificates.context(self.certificate)
            listener = Listener(app, tls)
            listener.start(self._bound)
            self._listener = listener

    async def refuse(self) -> None:
        """Hang up on everybody and refuse calls; the address stays taken."""
        if self._listener is not None:
            listener, self._listener = self._listener, None
            listener.close()
            self._bound = bind(self._settings.host, self._port)
            await listener.stop()

    async def down(self, *, goodbye: bool = False) -> None:
        """Refuse calls, and be announced no more; whether that is said tells `goodbye`."""
        await self.refuse()
        if self._announcer is not None:
            announcer, self._announcer = self._announcer, None
            await announcer.stop(goodbye=goodbye)

    def move(self) -> None:
        """Take the next address; the network must be down. Raises SettingsError where it cannot be had."""
        bound = bind(self._settings.host, next(self._ports))
        self._bound.close()
        self._bound, self._port = bound, _port_of(bound)

    def choose(self, which: Certificate) -> None:
        """Choose what is shown from the next `listen` on. Raises NotPossible, SettingsError."""
        if self._certificates is None:
            raise NotPossible("this terminal speaks plain HTTP and shows no certificate: leave out --http")
        self._certificates.context(which)  # made now: it fails here, and not when the listener is down
        self.certificate = which

    async def close(self) -> None:
        """Say goodbye, and give the address back."""
        await self.down(goodbye=True)
        self._bound.close()

    def _addresses(self) -> list[str]:
        return reachable_addresses(self._settings.host, self._settings.mdns_interfaces)


def _certificates(settings: Settings) -> Certificates | None:
    if settings.certificate is None or settings.private_key is None:
        return None
    ca = (
        None
        if settings.ca_certificate is None or settings.ca_private_key is None
        else (settings.ca_certificate, settings.ca_private_key)
    )
    return Certificates(settings.certificate, settings.private_key, ca)


def _port_of(bound: socket.socket) -> int:
    port: int = bound.getsockname()[1]
    return port


def _url_host(address: str) -> str:
    return f"[{address}]" if ipaddress.ip_address(address).version == 6 else address
