"""Reader of posd's feed, on its own socket."""

from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec

from posd.client.async_ import AsyncConnection
from posd.client.connection import problem_in
from posd.client.documents import Unreachable
from posd.client.plans import Call
from posd.relay.messages import Page

#: Longest wait for a response, in seconds: posd reads a page in milliseconds.
ANSWER_SECONDS = 30.0

_PAGE = msgspec.json.Decoder(Page)


class FeedClient:
    """Feed behind a socket. Every method raises Unreachable without a response of posd, or Problem.

    Pages are read over one kept connection, as bytes, because most of a page is published unchanged.
    """

    def __init__(self, socket: Path, *, limit: int, metadata: bool) -> None:
        """`limit`: most changes of a page. `metadata`: include the till's metadata."""
        self._socket = str(socket)
        self._asked = {"limit": str(limit), "with": "outcome,metadata" if metadata else "outcome"}
        self._pages = AsyncConnection(self._socket, kept=1)
        self._streams = AsyncConnection(self._socket)

    async def close(self) -> None:
        """Close the connections."""
        await self._pages.close()
        await self._streams.close()

    async def page(self, after: str) -> Page:
        """Read the changes after a number or a place."""
        found: Page = self._read(await self._get("/feed", self._asked | {"after": after}), _PAGE.decode)
        return found

    async def health(self) -> dict[str, str]:
        """Return posd's overall state, and each check that is not ok."""
        document = self._read(await self._get("/health"), msgspec.json.decode)
        checks = {name: check["status"] for name, check in document["checks"].items()}
        return {"status": document["status"]} | {name: word for name, word in checks.items() if word != "ok"}

    async def version(self) -> str:
        """Return posd's version."""
        found: str = self._read(await self._get("/version"), msgspec.json.decode)["version"]
        return found

    async def changed(self, after: int) -> None:
        """Wait until there is a change after that number, or posd stops."""
        async with aclosing(self._streams.stream("/feed", after)) as items:
            async for _ in items:
                return

    async def _get(self, path: str, query: dict[str, str] | None = None) -> bytes:
        response = await self._pages.request(Call("GET", path, query or {}, seconds=ANSWER_SECONDS))
        if response.status_code >= 400 and path != "/health":  # a failing posd reports its faults
            raise problem_in(self._socket, response.status_code, response.content)
        return response.content

    def _read(self, content: bytes, decode: Any) -> Any:
        try:
            return decode(content)
        except msgspec.DecodeError as error:
            raise Unreachable(self._socket, f"this relay does not know such an answer: {error}", sent=True) from error
