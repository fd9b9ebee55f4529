"""Callback URLs for terminals, and the secret key of their tokens."""

import asyncio
import ipaddress
import os
import secrets
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from posd.base import files, ids
from posd.base.ids import Channel
from posd.base.problems import Problem
from posd.config.profile import AccessMode

#: Name of the systemd credential with the key (LoadCredential).
CREDENTIAL = "callback.key"

#: Longest time for resolving the name of a terminal, in seconds. Most terminals have an IP address, which needs no name
#: resolution.
RESOLVE_SECONDS = 3.0


class KeyFileError(Exception):
    """Callback key that cannot be read or created. The message has the reason and what to do."""


#: Command that creates a new key in place of a lost one.
NEW_KEY = "posd restore --new-callback-key --operator NAME"

_LOST = (
    "With another key, callbacks of payments that are under way are refused, and the terminals do not send them "
    "again: such a payment is then known only by a search of its terminal. Put the file back, or restore a "
    f"backup, which contains the key (posd restore BACKUP). Only if there is none: {NEW_KEY}"
)


def load_keys(path: Path, *, may_make: bool) -> tuple[bytes, ...]:
    """Return the callback keys, newest first. Each line of the file has one key of 64 hex digits.

    Create a missing file (mode 0600) if `may_make` is true, which means that the database is new. If systemd passes a
    credential `callback.key`, read the keys from that. Raise KeyFileError.
    """
    directory = os.environ.get("CREDENTIALS_DIRECTORY")
    credential = Path(directory) / CREDENTIAL if directory else None
    if credential is not None and credential.exists():
        path = credential
    try:
        if not path.exists():
            if not may_make:
                raise KeyFileError(f"the callback key {path} is not there, and the database was used with one. {_LOST}")
            make_key(path)
        text = path.read_text("ascii", "replace")
    except OSError as error:
        raise KeyFileError(f"cannot read or make the callback key {path} ({error}); posd must own it") from error
    lines = text.split()
    if not lines or not all(ids.KEY_LINE.fullmatch(line) for line in lines):
        raise KeyFileError(f"{path} is damaged: it is not a callback key (64 hex digits a line, newest first). {_LOST}")
    return tuple(bytes.fromhex(line) for line in lines)


def make_key(path: Path) -> None:
    """Create a missing key file. Raise OSError."""
    files.replace(path, f"{secrets.token_hex(ids.KEY_BYTES)}\n".encode())


async def facing(terminal_url: str) -> str:
    """Return this machine's address on the route to a terminal. Raise Problem terminal_offline without a route.

    This sends nothing: the connect of a datagram socket only looks up the route.

    A link-local address is returned without its scope (`fe80::1`, not `fe80::1%eth0`), because the interface's name has
    no meaning for the terminal.
    """
    parts = urlsplit(terminal_url)
    hostname = unquote(parts.hostname or "")  # a scope in a URL is written as %25eth0 (RFC 6874)
    port = parts.port or 443
    try:
        try:  # an IP address needs no thread for the resolver and no IDNA tables
            resolved = socket.getaddrinfo(hostname.encode(), port, type=socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST)
        except socket.gaierror:
            async with asyncio.timeout(RESOLVE_SECONDS):
                resolved = await asyncio.get_running_loop().getaddrinfo(hostname, port, type=socket.SOCK_DGRAM)
        family, kind, protocol, _, address = resolved[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)
            host: str = probe.getsockname()[0]
    except OSError as error:
        raise Problem(
            "terminal_offline",
            f"cannot start: this machine has no route to {hostname} ({error.strerror or 'its name is not found'}); "
            "check the network of this machine, or the terminal's address",
        ) from error
    return host


class CallbackUrls:
    """Creation of callback URLs, and check of their tokens. A `subject` is the id of a payment or a print job."""

    def __init__(
        self,
        keys: tuple[bytes, ...],
        advertise_host: str,
        port: int,
        public_url: str = "",
        listen_host: str = "::",
        facing: Callable[[str], Awaitable[str]] = facing,
    ) -> None:
        """`keys`: the callback keys, newest first. `advertise_host`: the configured address in the URLs, or empty.

        `public_url`: URL of the webhook listener for terminals in the cloud. `listen_host`: the bound address. If it is
        a single address, posd does not listen on other addresses. `facing`: returns this machine's address on the route
        to a terminal's URL.
        """
        self.keys = keys
        self._facing = facing
        self._port = port
        self.use(advertise_host, public_url)
        bound = ipaddress.ip_address(listen_host)
        # The bound address, written as the system writes this machine's addresses, but without a scope.
        self._bound = "" if bound.is_unspecified else str(bound).partition("%")[0]

    def use(self, advertise_host: str, public_url: str) -> None:
        """Set the configured address and URL, for callback URLs that are created later."""
        self._advertise_host = advertise_host
        self._public_url = public_url.rstrip("/")

    def path(self, channel: Channel, subject: str) -> str:
        """Return the path of the URL for one subject."""
        return ids.path(channel, subject, ids.token(self.keys[0], channel, subject))

    async def url(self, channel: Channel, subject: str, terminal_url: str, access_mode: AccessMode = "local") -> str:
        """Return the URL for one subject; see `url_and_host`."""
        return (await self.url_and_host(channel, subject, terminal_url, access_mode))[0]

    async def url_and_host(
        self, channel: Channel, subject: str, terminal_url: str, access_mode: AccessMode = "local"
    ) -> tuple[str, str | None]:
        """Return the URL for one subject, and this machine's address in it, or None if the address is configured.

        The URL has the configured address, else the only bound address, else the address on the route to the terminal.
        For a terminal in the cloud it begins with the public URL. Raise Problem terminal_offline without a route to the
        terminal.
        """
        path = self.path(channel, subject)
        if access_mode == "cloud":
            assert self._public_url  # noqa: S101 - the configuration has no cloud terminal without it
            return f"{self._public_url}{path}", None
        own = None
        if not self._advertise_host:
            facing = await self._facing(terminal_url)
            own = self._bound or facing
        host = own or self._advertise_host
        bracketed = f"[{host}]" if ":" in host else host
        return f"https://{bracketed}:{self._port}{path}", own

    def authentic(self, channel: Channel, subject: str, given: str) -> bool:
        """Return whether the token belongs to the subject."""
        return ids.verify(self.keys, channel, subject, given)
