"""What an announcement over mDNS says of a terminal: a serial, addresses, a port.

Anybody on the network can announce anything. What is not whole and plain is no announcement.
"""

from collections.abc import Iterable, Mapping

import msgspec

from posd.terminals import addresses

#: Longest serial, in characters: as in the configuration, so that a longer one can be of no terminal of the fleet.
MAX_SERIAL = 64
#: Longest brand and model that are kept, in characters.
MAX_TEXT = 128


class Malformed(Exception):
    """It is no announcement of a terminal; the message says why, and quotes nothing of it."""


class Announcement(msgspec.Struct, frozen=True):
    """What a terminal says of itself: `name` is the instance name in full, `seen_at` ISO 8601.

    `hosts` are its addresses as they stand in a URL, the best first: one device at each of them.
    """

    name: str
    serial: str
    hosts: tuple[str, ...]
    port: int
    brand: str | None
    model: str | None
    seen_at: str


class Rules(msgspec.Struct, frozen=True):
    """What the configuration says of announcements: TXT keys of the serial in order, addresses of chosen interfaces."""

    serial_keys: tuple[str, ...]
    interfaces: tuple[str, ...] = ()


def read(
    name: str,
    service_type: str,
    properties: Mapping[str, str | None],
    announced: Iterable[str],
    port: int | None,
    rules: Rules,
    seen_at: str,
) -> Announcement:
    """Return what it says. Raise Malformed.

    `name` ends with `service_type`; `properties` are the TXT record's, `announced` the addresses as text.
    """
    lowered = {key.lower(): value for key, value in properties.items()}
    serial = _serial(lowered, name.removesuffix(f".{service_type}"), rules.serial_keys)
    if not port or not 0 < port < 65_536:
        raise Malformed("it names no port")
    hosts = addresses.candidates(announced, rules.interfaces)
    if not hosts:
        raise Malformed("it names no address that can be used")
    return Announcement(name, serial, hosts, port, _text(lowered, "brand"), _text(lowered, "model"), seen_at)


def _serial(properties: Mapping[str, str | None], instance: str, keys: tuple[str, ...]) -> str:
    """Return the serial: the value of the first TXT key (in any case) that has one, else the instance name."""
    named = ((properties.get(key.lower()) or "").strip() for key in keys)
    serial = next((value for value in named if value), instance)
    if not serial or len(serial) > MAX_SERIAL or not _plain(serial):
        raise Malformed("its serial is empty, too long or not made of visible characters")
    return serial


def _text(properties: Mapping[str, str | None], key: str) -> str | None:
    value = (properties.get(key) or "").strip()[:MAX_TEXT]
    return value if value and _plain(value) else None


def _plain(text: str) -> bool:
    return text.isprintable() and "\N{REPLACEMENT CHARACTER}" not in text
