"""Runner of `posd watch` in this process, with Textual's pilot."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from textual.pilot import Pilot

from posd.cli.app.connection import Api
from posd.cli.watch.app import Rows, Watch
from posd.cli.watch.state import Shop, look
from tests.rig.counter import PATIENCE


class Seen:
    """`posd watch` with a pilot, which presses keys and reads the screen."""

    def __init__(self, app: Watch, pilot: "Pilot[None]") -> None:
        self.app, self.pilot = app, pilot

    def lines(self) -> list[str]:
        """Return the text of the screen."""
        return [strip.text for strip in self.app.screen._compositor.render_strips()]

    async def press(self, *keys: str) -> None:
        """Press keys."""
        await self.pilot.press(*keys)

    async def after(self, key: str, *words: str) -> None:
        """Press a key. Wait until a line has all these words."""
        await self.press(key)
        await self.shows(*words)

    async def until(self, holds: Callable[[list[str]], bool], otherwise: str) -> list[str]:
        """Wait until the lines on the screen meet a condition. Return them."""
        deadline = time.monotonic() + PATIENCE
        while not holds(lines := self.lines()):
            assert time.monotonic() < deadline, "\n".join([otherwise, *lines])
            await asyncio.sleep(0.05)
        return lines

    async def shows(self, *words: str) -> list[str]:
        """Wait until a line has all these words."""
        return await self.until(lambda lines: any(all(word in line for word in words) for line in lines), f"no {words}")

    async def selects(self, *words: str) -> None:
        """Wait until the selected row has all these words."""
        await self.until(lambda _: all(word in self._selected() for word in words), f"not selected: {words}")

    def _selected(self) -> str:
        rows = self.app.focused
        return rows.lines[rows.highlighted].plain if isinstance(rows, Rows) and rows.highlighted is not None else ""


@asynccontextmanager
async def seen(socket: Path, size: tuple[int, int] = (80, 24)) -> AsyncIterator[Seen]:
    """Run the view for the block."""
    with Api(socket) as api:
        app = Watch(socket, look(api, Shop()))
    async with app.run_test(size=size) as pilot:
        yield Seen(app, pilot)
        app.exit(app.return_value)


def pictured(socket: Path, size: tuple[int, int]) -> tuple[list[str], str]:
    """Return the complete screen of `posd watch` as lines and as a picture, for columns and lines of a terminal."""

    async def look() -> tuple[list[str], str]:
        async with seen(socket, size) as view:
            await view.shows("in_doubt")
            await view.shows("% approved")
            lines = await view.shows("q quit")
            picture = view.app.export_screenshot(title="posd watch")
            return [line.rstrip() for line in lines], re.sub(r"\s*@font-face \{.*?\}", "", picture, flags=re.DOTALL)

    return asyncio.run(look())
