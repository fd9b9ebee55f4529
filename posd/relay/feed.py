"""posd's feed, read on its own socket as any client reads it."""

from contextlib import aclosing
from pathlib import Path

import msgspec

from posd.client.async_ import AsyncConnection
from posd.client.calls import HEALTH, Call
from posd.client.errors import Unreachable
from posd.relay.messages import Page

#: Seconds that an answer is waited for: posd reads a page in milliseconds.
ANSWER_SECONDS = 30.0

_PAGE = msgspec.json.Decoder(Page)


class Feed:
    """The feed behind a socket. Every method raises Unreachable, or Problem, where posd does not answer."""

    def __init__(self, socket: Path, *, limit: int, metadata: bool) -> None:
        """`limit` is how many changes a page has at most; `metadata`: with the till's own words."""
        self._socket = str(socket)
        self._limit = str(limit)
        self._adds = "outcome,metadata" if metadata else "outcome"
        self._http = AsyncConnection(self._socket, None)

    async def close(self) -> None:
        """End it."""
        await self._http.close()

    async def page(self, after: str) -> Page:
        """Read what comes after a number or a place."""
        call = Call("GET", "/feed", {"after": after, "limit": self._limit, "with": self._adds}, seconds=ANSWER_SECONDS)
        reply = await self._http.call(call)
        try:
            return _PAGE.decode(reply.raw)
        except msgspec.DecodeError as error:
            raise Unreachable(self._socket, f"its feed is not as this relay knows it: {error}", sent=True) from error

    async def health(self) -> dict[str, str]:
        """Tell in a word how posd is, and each check that is not well."""
        document = (await self._http.call(HEALTH)).body
        checks = {name: check["status"] for name, check in document["checks"].items()}
        return {"status": document["status"]} | {name: word for name, word in checks.items() if word != "ok"}

    async def version(self) -> str:
        """Tell which posd it is."""
        found: str = (await self._http.call(Call("GET", "/version"))).body["version"]
        return found

    async def changed(self, after: int) -> None:
        """Wait until there is a change after that number, or posd stops."""
        async with aclosing(self._http.stream("/feed", after)) as items:
            async for _ in items:
                return
