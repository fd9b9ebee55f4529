"""Calls to terminals: the request, the device, and the record of the result."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from posd.terminals.addresses import Addresses
from posd.terminals.attempt import Attempt, refuser
from posd.terminals.members import Members, NewestStart

if TYPE_CHECKING:
    from posd.terminals.client import TerminalAccess


class TerminalRequest(msgspec.Struct, frozen=True):
    """One request to a terminal, ready to be sent; `base_url` is the chosen address."""

    terminal: str
    base_url: str
    method: str
    path: str
    body: bytes | None = None


class Contact:
    """Calls to terminals, and the identity of the called device."""

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
        """Send the request once; record whether the terminal was reached (see `TerminalAccess.call`)."""
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
            self._addresses.record_other_identity(request.terminal, request.base_url, other)
        return attempt

    def device(self, serial: str) -> "TerminalAccess":
        """Return the client for calls to a terminal."""
        return self._members.device(self._members.of(serial))

    def longest(self, serial: str) -> float:
        """Return the longest duration of one call to a terminal, in seconds."""
        device = self.device(serial)
        return device.connect_timeout + device.reply_timeout

    def same_device(self, serial: str, sent_to: str, base_url: str) -> bool | str:
        """Return whether `base_url` leads to the device of the newest start, at `sent_to`.

        A fingerprint instead: it does if it shows that certificate (see `Member.same_as`).
        """
        return self._members.of(serial).same_as(sent_to, base_url)

    def was_same_device(self, serial: str, sent_to: str, base_url: str, certificate: str | None) -> bool:
        """Return whether the device with this certificate at `base_url` is the one of the newest start."""
        same = self._members.of(serial).same_as(sent_to, base_url)
        return same if isinstance(same, bool) else certificate == same

    def note_start(self, serial: str, base_url: str, certificate: str | None) -> None:
        """Record that a start goes to the device at that address, with this certificate (fingerprint)."""
        member = self._members.of(serial)
        member.started = NewestStart(base_url, certificate)
        self._addresses.note_certificate(serial, base_url, certificate)
