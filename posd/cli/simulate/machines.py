"""What `posd simulate` makes of its options: settings, certificates and files of each terminal."""

import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from posd import tls
from posd.simulator import Settings, SettingsError

#: Ports of the terminal profile's default base URLs.
HTTPS_PORT = 6869
HTTP_PORT = 6868


@dataclass(frozen=True, slots=True)
class Machine:
    """One terminal, and the CA that vouches for it where one was made."""

    settings: Settings
    ca_file: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the terminals are: `host` and the first one's `port`; directories and files as the options name them."""

    host: str
    port: int
    http: bool
    state: Path
    ledger: Path | None
    certificate: Path | None
    private_key: Path | None


def make(serials: Sequence[str], place: Place, common: dict[str, Any]) -> list[Machine]:
    """Make the terminals, with what they have in common.

    One has the state directory and the ledger for itself; of several each has a directory and a ledger by its serial
    in there, and ports count up. Raises SettingsError, TlsError and OSError.
    """
    several = len(serials) > 1
    return [_make(serial, number, place, common, several=several) for number, serial in enumerate(serials)]


def _make(serial: str, number: int, place: Place, common: dict[str, Any], *, several: bool) -> Machine:
    state, ledger = place.state, place.ledger
    if several:
        state = state / _file_name(serial)
        if ledger is not None:
            ledger.mkdir(parents=True, exist_ok=True)
            ledger = ledger / f"{_file_name(serial)}.jsonl"
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    files: dict[str, Any] = {"certificate": place.certificate, "private_key": place.private_key}
    ca_file = None
    if not place.http and place.certificate is None and place.private_key is None:
        made = _make_certificate(state / "tls", place.host)
        ca_file = made.ca_certificate
        files = {
            "certificate": made.certificate,
            "private_key": made.private_key,
            "ca_certificate": ca_file,
            "ca_private_key": made.ca_key,
        }
    port = place.port + number if place.port else 0
    settings = Settings(
        **common,
        **files,
        serial=serial,
        host=place.host,
        port=port,
        state=state,
        ledger_file=ledger,
    )
    return Machine(settings, ca_file)


def split_address(text: str, option: str, example: str) -> tuple[str, int]:
    """Split HOST:PORT. Raises SettingsError, which names the option."""
    host, colon, port = text.rpartition(":")
    if not (colon and port.isascii() and port.isdigit()):
        raise SettingsError(f"{option} {text!r} must be HOST:PORT, for example {example}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _file_name(serial: str) -> str:
    """Return a name for files that no serial can lead out of its directory with."""
    return quote(serial, safe="").replace(".", "%2E")


def _make_certificate(directory: Path, host: str) -> tls.TlsFiles:
    """Make a certificate for every name and address of this machine; what an earlier run made is kept.

    Somebody may have pinned its fingerprint: it is made anew only where it ends soon or lacks a name or an address.
    """
    names = dict.fromkeys([socket.gethostname(), "localhost"])
    addresses = dict.fromkeys([*tls.local_addresses(), "127.0.0.1", host])  # a wildcard among them does no harm
    made = tls.files(directory)
    with suppress(tls.TlsError):  # there is none yet, or it cannot be used
        info = tls.load(made.certificate, made.private_key).info
        if not tls.renewal_reasons(info, tls.Subjects(tuple(names), tuple(addresses)), datetime.now(UTC)):
            return made
    return tls.init(directory, names=list(names), addresses=list(addresses))
