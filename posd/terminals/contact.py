"""Calls to terminals: which request, to which device, and what is noted of it."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from posd.terminals.addresses import Addresses
from posd.terminals.attempt import Attempt, refuser
from posd.terminals.members import Members, Started

if TYPE_CHECKING:
    from posd.terminals.client import Device


class TerminalRequest(msgspec.Struct, frozen=True):
    """One request to a terminal, ready to be sent: `base_url` is the address that was chosen for it."""

    terminal: str
    base_url: str
    method: str
    path: str
    body: bytes | None = None


class Contact:
    """Calls terminals, and knows which device is called."""

    def __init__(self, members: Members, addresses: Addresses) -> None:
        self._members = members
        self._addresses = addresses

    async def call(
        self,
        request: TerminalRequest,
        *,
        same_as: str | None = None,
        written: Callable[[], None] = lambda: None,
        connected: Callable[[str | None], None] = lambda _certificate: None,
    ) -> Attempt:
        """Send the request once; note whether the terminal was reached. See `terminals.client.Device.call`."""
        shown: list[str | None] = []

        def note(certificate: str | None) -> None:
            shown.append(certificate)
            connected(certificate)

        device = self.device(request.terminal)
        url = f"{request.base_url}{request.path}"
        proven = self._members.of(request.terminal).must_prove(request.base_url)
        attempt = await device.call(
            request.method, url, request.body, same_as=same_as, proven=proven, written=written, connected=note
        )
        self._addresses.note_result(request.terminal, request.base_url, attempt, connected=bool(shown))
        if (said := refuser(attempt)) is not None and self._members.of(request.terminal).on_lan:
            other = said if said != request.terminal else None
            self._addresses.says_it_is(request.terminal, request.base_url, other)
        return attempt

    def device(self, serial: str) -> "Device":
        """Return the client for calls to a terminal."""
        return self._members.device(self._members.of(serial))

    def longest(self, serial: str) -> float:
        """Return how long one call to a terminal may take, in seconds."""
        device = self.device(serial)
        return device.connect_timeout + device.reply_timeout

    def same_device(self, serial: str, sent_to: str, base_url: str) -> bool | str:
        """Tell whether `base_url` leads to the device that the newest start went to, at `sent_to`.

        A fingerprint: where it shows the certificate of that. See `Member.same_as`.
        """
        return self._members.of(serial).same_as(sent_to, base_url)

    def was_same_device(self, serial: str, sent_to: str, base_url: str, certificate: str | None) -> bool:
        """Whether what showed this certificate at `base_url` is the device that the newest start went to."""
        same = self._members.of(serial).same_as(sent_to, base_url)
        return same if isinstance(same, bool) else certificate == same

    def note_start(self, serial: str, base_url: str, certificate: str | None) -> None:
        """Note that a start goes to the device at that address, which showed this certificate (fingerprint)."""
        member = self._members.of(serial)
        member.started = Started(base_url, certificate)
        self._addresses.note_certificate(serial, base_url, certificate)
