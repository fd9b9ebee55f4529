"""The fleet: the terminals that the configuration names, and what is known of each now (design 2 and 8).

A terminal is its serial. Its address comes from the configuration, which always wins, or from an announcement, and may
change at any time: the next request uses the newest. An announced serial outside the fleet is shown, never used. A
terminal in the cloud is called at the configured address alone: what is announced on this network says nothing of it.
"""

import functools
import ssl
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from posd.config import TerminalConfig
from posd.core.problems import Problem
from posd.core.profile import AccessMode
from posd.terminals import authentication, trust
from posd.terminals.client import Device

#: Announcements that are remembered, of terminals outside the fleet (to be shown) and of each one in it (two devices
#: can claim one serial); the LAN can announce without end.
MAX_STRANGERS = 64
MAX_OF_ONE_SERIAL = 4

Source = Literal["config", "mdns"]


class Announcement(msgspec.Struct, frozen=True):
    """What a terminal says of itself over mDNS; `name` is the instance name, `seen_at` ISO 8601."""

    name: str
    serial: str
    host: str  # an address, as it stands in a URL
    port: int
    brand: str | None
    model: str | None
    seen_at: str


class Known(msgspec.Struct):
    """What was learnt of a terminal since the start."""

    reachable: bool | None = None
    last_seen: str | None = None
    brand: str | None = None
    model: str | None = None


class Fleet:
    """The terminals by serial, their addresses, and the devices to call them by."""

    def __init__(self, terminals: tuple[TerminalConfig, ...]) -> None:
        """Resolve trust and headers of each terminal. Raise OSError or HeaderError where a file cannot be used."""
        self._terminals: Mapping[str, TerminalConfig] = {terminal.serial: terminal for terminal in terminals}
        contexts = functools.cache(trust.context)  # reading the system's CAs takes long: once is enough
        self._devices = {terminal.serial: _device(terminal, contexts) for terminal in terminals}
        self._announced: dict[str, Announcement] = {}
        self._known = {terminal.serial: Known() for terminal in terminals}
        #: Called with the serial of a terminal that can be reached again, or is announced anew.
        self.on_return: Callable[[str], None] = lambda _serial: None

    def __contains__(self, serial: str) -> bool:
        return serial in self._terminals

    @property
    def serials(self) -> tuple[str, ...]:
        """The serials of the fleet, as configured."""
        return tuple(self._terminals)

    def resolve(self, serial: str | None) -> str:
        """Return the serial that a till means; none is enough where there is one. Raise Problem unknown_terminal."""
        fleet = list(self._terminals)
        if serial is None and len(fleet) == 1:
            return fleet[0]
        if serial is None:
            detail = (
                "cannot choose a terminal: none was named and the fleet has "
                f"{len(fleet)}; name one of them in `terminal`"
                if fleet
                else "there is no terminal: the configuration names none; add [[terminals]] with its serial"
            )
            raise Problem("unknown_terminal", detail, fleet=fleet)
        if serial not in self._terminals:
            raise Problem(
                "unknown_terminal",
                f"terminal {serial} is not in the fleet ({', '.join(fleet) or 'empty'}); "
                "check the serial, or add it to [[terminals]] in the configuration",
                fleet=fleet,
            )
        return serial

    def access_mode(self, serial: str) -> AccessMode:
        """Return how a fleet member is called: on the local network or through the cloud."""
        return self._terminals[serial].access_mode

    def base_url(self, serial: str) -> tuple[str, Source] | None:
        """Return the newest address of a fleet member and where it comes from, None where none is known."""
        terminal = self._terminals[serial]
        if terminal.base_url:
            return terminal.base_url.rstrip("/"), "config"
        announcement = self._announcement(serial)
        if announcement is None:
            return None
        return f"{terminal.scheme}://{announcement.host}:{announcement.port}", "mdns"

    def device(self, serial: str) -> Device:
        """Return the client for calls to a fleet member."""
        return self._devices[serial]

    def announce(self, announcement: Announcement) -> bool:
        """Take an announcement; tell whether it brought anything new. Of a terminal in the cloud it never does."""
        where = self.base_url(announcement.serial) if announcement.serial in self else None
        old = self._announced.pop(announcement.name, None)
        if announcement.serial in self and self.access_mode(announcement.serial) == "cloud":
            return False
        if announcement.serial in self:
            alike = [name for name, item in self._announced.items() if item.serial == announcement.serial]
            limit = MAX_OF_ONE_SERIAL
        else:
            alike = [name for name, item in self._announced.items() if item.serial not in self]
            limit = MAX_STRANGERS
        if len(alike) >= limit:
            del self._announced[alike[0]]  # the oldest
        self._announced[announcement.name] = announcement  # last in the order: the newest
        if announcement.serial in self:
            self._known[announcement.serial].last_seen = announcement.seen_at
        new = old is None or msgspec.structs.replace(old, seen_at=announcement.seen_at) != announcement
        if announcement.serial in self and self.base_url(announcement.serial) != where:
            self.on_return(announcement.serial)
        return new

    def withdraw(self, name: str) -> Announcement | None:
        """Forget an announcement by its instance name, and return it."""
        return self._announced.pop(name, None)

    def heard_from(self, serial: str, at: str, *, brand: str | None = None, model: str | None = None) -> None:
        """Note a sign of life, and what the terminal said of itself."""
        known = self._known.get(serial)
        if known is not None:
            known.last_seen = at
            known.brand = brand or known.brand
            known.model = model or known.model

    def reached(self, serial: str, reachable: bool, at: str) -> None:
        """Note whether a call got through to a terminal."""
        known = self._known.get(serial)
        if known is None:
            return
        back = reachable and known.reachable is False
        known.reachable = reachable
        if reachable:
            known.last_seen = at
        if back:
            self.on_return(serial)

    def documents(self, held: Mapping[str, str], *, everything: bool) -> Iterator[dict[str, Any]]:
        """Yield the terminals as the local API shows them; `held` is terminal -> transaction."""
        for serial in self._terminals:
            yield self._document(serial, held)
        if everything:
            for item in self._announced.values():
                if item.serial not in self:
                    yield {
                        "serial": item.serial,
                        "brand": item.brand,
                        "model": item.model,
                        "base_url": f"https://{item.host}:{item.port}",
                        "source": "mdns",
                        "reachable": None,
                        "last_seen": item.seen_at,
                        "transaction": None,
                        "in_fleet": False,
                    }

    def hurry(self) -> None:
        """End the calls under way: posd is stopping."""
        for device in self._devices.values():
            device.hurry()

    async def close(self) -> None:
        """Close the devices."""
        for device in self._devices.values():
            await device.close()

    def _announcement(self, serial: str) -> Announcement | None:
        return next((item for item in reversed(self._announced.values()) if item.serial == serial), None)

    def _document(self, serial: str, held: Mapping[str, str]) -> dict[str, Any]:
        known = self._known[serial]
        announcement = self._announcement(serial)
        address = self.base_url(serial)
        return {
            "serial": serial,
            "brand": known.brand or (announcement.brand if announcement else None),
            "model": known.model or (announcement.model if announcement else None),
            "base_url": address[0] if address else None,
            "source": address[1] if address else None,
            "reachable": known.reachable,
            "last_seen": known.last_seen,
            "transaction": held.get(serial),
        }


def _device(terminal: TerminalConfig, contexts: Callable[[Path | None, str], ssl.SSLContext]) -> Device:
    return Device(
        trust=contexts(terminal.ca_file, terminal.fingerprint_sha256),
        connect_timeout=terminal.connect_timeout_seconds,
        reply_timeout=terminal.reply_timeout_seconds,
        authentication=authentication.of(terminal),
    )
