"""The live view: keys and messages come in, frames go out, and the terminal is as it was when it ends."""

import asyncio
import os
import queue
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import assert_never

from posd.cli.app.keyboard import Keyboard
from posd.cli.payments.words import SEARCHES, meaning, state, words_of
from posd.cli.watch.control import Do, Wish, press
from posd.cli.watch.render import View, frame, furthest, page_room
from posd.cli.watch.rows import what
from posd.cli.watch.screen import ENTER, ESCAPE_SECONDS, LEAVE, Decoder, Glyphs, Screen
from posd.cli.watch.source import Acted, Answered, Changed, Ended, Fault, Message, NoAnswer, Source, Told
from posd.cli.watch.state import Kind, Row, Shop, State, Status, Ui, settle

#: seconds between two frames at least; what a key does is seen at once.
FRAME_SECONDS = 0.25
#: How long it is said what became of an action.
SAID = timedelta(seconds=20)
#: seconds: the most that the last frame may take to reach a terminal that does not read.
LAST_WORDS_SECONDS = 5.0

_STDOUT = 1


class Writer:
    """Writes to the terminal in a thread: the view goes on where the terminal reads slowly, or not at all."""

    def __init__(self, done: Callable[[], None], failed: Callable[[], None]) -> None:
        """`done` is called in the thread when all was written, `failed` where the terminal is gone."""
        self._done, self._failed = done, failed
        self._texts: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._idle = threading.Event()
        self._idle.set()
        threading.Thread(target=self._run, daemon=True).start()

    @property
    def busy(self) -> bool:
        """Whether the terminal has not taken everything yet."""
        return not self._idle.is_set()

    def write(self, text: str) -> None:
        """Write that, behind what is not written yet."""
        self._idle.clear()
        self._texts.put(text)

    def flush(self) -> None:
        """Wait until the terminal has taken everything, but not for long."""
        self._idle.wait(LAST_WORDS_SECONDS)

    def _run(self) -> None:
        while True:
            left = self._texts.get().encode(errors="replace")
            try:
                while left:
                    left = left[os.write(_STDOUT, left) :]
            except OSError:
                self._failed()
            if self._texts.empty():
                self._idle.set()
                self._done()


class App:
    """Shows the shop until it is told to end."""

    def __init__(self, socket: Path, shop: Shop, glyphs: Glyphs, *, colour: bool) -> None:
        """`shop` is the first look."""
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._state = State(shop)
        self._ui = Ui()
        self._glyphs = glyphs
        self._screen = Screen(colour=colour)
        self._writer = Writer(lambda: self._soon(self._draw_later), lambda: self._soon(self._end))
        self._source = Source(socket, shop, lambda message: self._soon(self._heard, message))
        self._keyboard = Keyboard(self._char, left=self._leave, taken=self._enter, hung_up=self._end)
        self._decoder = Decoder()
        self._escape: asyncio.TimerHandle | None = None
        self._drawing: asyncio.TimerHandle | None = None
        self._drawn_at = 0.0
        self._shown = False

    async def run(self) -> None:
        """Run until a key or a signal ends it. Raise what went wrong, once the terminal is as it was."""
        self._loop.set_exception_handler(self._fault)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._loop.add_signal_handler(number, self._end)
        self._loop.add_signal_handler(signal.SIGWINCH, self._resized)
        try:
            with self._keyboard:
                self._source.start()
                self._tick()
                await self._ended
        finally:
            self._source.close()
            self._leave()

    def _soon(self, call: Callable[..., None], *arguments: object) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(call, *arguments)

    def _end(self, error: Exception | None = None) -> None:
        if self._ended.done():
            return
        if error is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(error)

    def _fault(self, _loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        error = context.get("exception")
        self._end(error if isinstance(error, Exception) else RuntimeError(str(context.get("message"))))

    def _enter(self) -> None:
        if not self._shown:
            self._shown = True
            self._writer.write(ENTER)
        self._resized()

    def _leave(self) -> None:
        if self._shown:
            self._shown = False
            self._writer.write(LEAVE)
            self._writer.flush()

    def _resized(self) -> None:
        self._screen.forget()
        self._draw()

    def _tick(self) -> None:
        """Let the clocks go on, once a second."""
        if self._ended.done():
            return
        self._keyboard.look_again()
        self._draw_later()
        now = datetime.now(UTC)
        self._loop.call_later(1.001 - now.microsecond / 1_000_000, self._tick)

    def _draw_later(self) -> None:
        if self._drawing is None and not self._ended.done():
            wait = self._drawn_at + FRAME_SECONDS - self._loop.time()
            self._drawing = self._loop.call_later(max(0.0, wait), self._draw)

    def _draw(self) -> None:
        """Write what differs; while the terminal still takes the last frame, the next one waits and is newer."""
        if self._drawing is not None:
            self._drawing.cancel()
            self._drawing = None
        if not self._shown or self._writer.busy:
            return
        now = datetime.now(UTC)
        settle(self._ui, self._state.rows(now))
        columns, height = self._size()
        text = self._screen.frame(frame(self._view(now), columns, height), columns, height)
        self._drawn_at = self._loop.time()
        if text:
            self._writer.write(text)

    def _view(self, now: datetime) -> View:
        return View(self._state, self._ui, now, self._glyphs)

    @staticmethod
    def _size() -> tuple[int, int]:
        try:
            size = os.get_terminal_size(_STDOUT)
        except OSError:
            return 80, 24
        return size.columns or 80, size.lines or 24

    def _char(self, char: str) -> None:
        if self._escape is not None:
            self._escape.cancel()
            self._escape = None
        key = self._decoder.feed(char)
        if self._decoder.waiting:
            self._escape = self._loop.call_later(ESCAPE_SECONDS, self._lone_escape)
        if key is not None:
            self._press(key)

    def _lone_escape(self) -> None:
        self._escape = None
        key = self._decoder.flush()
        if key is not None:
            self._press(key)

    def _press(self, key: str) -> None:
        now = datetime.now(UTC)
        rows = self._state.rows(now)
        settle(self._ui, rows)
        columns, height = self._size()
        view = self._view(now)
        room = page_room(view, columns, height) if self._ui.page else max(1, height // 3)
        said = self._ui.status
        wish = press(key, self._ui, rows, room=room, furthest=furthest(view, columns, height))
        if self._ui.status is not None and self._ui.status is not said and wish is None:  # what is under way stays
            self._ui.status = self._ui.status._replace(until=now + SAID)
        if wish is not None:
            self._grant(wish)
        self._draw()

    def _grant(self, wish: Wish) -> None:
        match wish.do, wish.row:
            case Do.QUIT, _:
                self._end()
            case Do.REDRAW, _:
                self._screen.forget()
            case Do.TELL, Row() as row:
                self._source.tell(row)
            case Do.ABORT, Row() as row:
                self._ui.status = Status(f"asking {row.document['terminal']} to abort {what(row)} …", "cyan")
                self._source.act(row, "abort")
            case Do.RECONCILE, Row() as row:
                self._source.act(row, "reconcile")

    def _heard(self, message: Message) -> None:
        now = datetime.now(UTC)
        match message:
            case Answered(shop):
                if self._state.away is not None:
                    self._say("posd is back", "green", now)
                self._state.answered(shop)
            case NoAnswer(reason, pause):
                self._state.unreachable(reason, now, pause)
            case Changed(changes, anew):
                if anew:
                    self._state.forget_feed()
                for change in changes:
                    self._state.changed(change, now)
                self._ask_again({change["id"] for change in changes})
            case Ended(document):
                self._state.known(document)
            case Acted():
                self._acted(message, now)
            case Told(row, told):
                page = self._ui.page
                if page is not None and page.of is not None and page.of.key == row.key:
                    newer = page.of._replace(document=told.get("document", page.of.document))
                    self._ui.page = page._replace(of=newer, told=told)
            case Fault(error):
                self._end(error)
            case _:
                assert_never(message)
        self._draw_later()

    def _ask_again(self, identities: set[str]) -> None:
        """Have what the page shows told anew, where it changed."""
        page = self._ui.page
        if page is not None and page.of is not None and page.of.identity in identities:
            self._source.tell(page.of)

    def _acted(self, acted: Acted, now: datetime) -> None:
        row, document = acted.row, acted.document
        if document is None:
            self._say(f"{what(row)}: {acted.problem}", "bold yellow", now)
        elif document["outcome"] is not None:
            style, words = meaning(document)
            self._say(f"{words} ({what(row)}: {state(document)})", style, now)
        elif acted.call == "abort":
            self._say(f"asked to abort {what(row)}. It may still approve: its outcome is awaited", "green", now)
        else:
            search = document["last_search"]
            told = words_of(document).fill(SEARCHES.get(search["result"], "{noun}")) if search else "It was not asked."
            self._say(f"{what(row)} is still open ({state(document)}). {told}", "yellow", now)
        if self._ui.page is not None and row.kind is Kind.PAYMENT:
            self._ask_again({row.identity})

    def _say(self, text: str, style: str, now: datetime) -> None:
        self._ui.status = Status(text, style, now + SAID)
