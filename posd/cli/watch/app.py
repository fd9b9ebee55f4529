"""Live view of `posd watch`, drawn with Textual."""

import asyncio
import os
import signal
import termios
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.color import Color
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.drivers.linux_driver import LinuxDriver
from textual.filter import LineFilter
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Footer, OptionList, Static
from textual.widgets.option_list import Option

from posd.base.text import Language, shown
from posd.cli.explain.catalogue import language, named, say
from posd.cli.payments.decide import RECONCILE_SECONDS
from posd.cli.watch import texts
from posd.cli.watch.state import Kind, ListName, Row, Shop, Source, WatchState

#: Minimum number of seconds between two frames.
FRAME_SECONDS = 0.25
#: The bottom line shows the result of an action for this number of seconds.
MESSAGE_SECONDS = 20.0
#: Longest time of the exit, in seconds.
EXIT_SECONDS = 5.0
#: Pairs: the minimum number of lines of the screen, and the maximum number of lines of advice. The first pair that fits
#: the screen is used.
BELOW_LINES = ((30, 8), (24, 4), (16, 3))
#: Minimum number of lines of a screen that shows the rates.
RATES_FROM = 12
#: The lists, the most urgent first.
PRESSING = (ListName.ATTENTION, ListName.OPEN, ListName.TERMINALS)
#: Characters that this view and Textual draw -> ASCII characters.
DRAWN = str.maketrans("·─…▁▂▃▄▅▆▇│", "--~||||||||")


class Ascii(LineFilter):
    """Textual filter that leaves only ASCII characters."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002
        """Replace other characters, without a change of the width."""
        return [segment._replace(text=_ascii(segment.text)) for segment in segments]


def _ascii(text: str) -> str:
    return "".join(char if char.isascii() else "?" * cell_len(char) for char in text.translate(DRAWN))


class Rows(OptionList):
    """Widget for a list of rows. The selected row stays selected while other rows change."""

    rows: Sequence[Row] = ()
    lines: Sequence[Text] = ()

    @property
    def selected(self) -> Row | None:
        """The selected row, or None."""
        return None if self.highlighted is None or not self.rows else self.rows[self.highlighted]

    def show(self, rows: Sequence[Row], lines: Sequence[Text]) -> None:
        """Replace the rows and their lines. If the selected row is gone, the next one is selected."""
        keys, before = [row.key for row in rows], [row.key for row in self.rows]
        key, place = self.selected.key if self.selected else None, self.highlighted or 0
        old, self.rows, self.lines, self.can_focus = self.lines, rows, lines, bool(rows)
        if keys == before:
            for number, line in enumerate(lines):
                if line != old[number]:
                    self.replace_option_prompt_at_index(number, line)
            return
        self.set_options(lines or [Option(texts.nothing(ListName[str(self.id)]), disabled=True)])
        if rows:
            self.highlighted = keys.index(key) if key in keys else min(place, len(rows) - 1)


class RowPage(Screen[None]):
    """Page with all details of one row (`row`), or with the help (None)."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("q,escape", "app.pop_screen", named("back"), key_display="q")]

    def __init__(self, title: str, row: Row | None = None) -> None:
        super().__init__()
        self.heading, self.row = title, row
        #: `WatchState.version` when the details of the row were last requested.
        self.version = -1

    def compose(self) -> ComposeResult:
        """Yield the widgets: header, scrolled text, message, keys."""
        yield from (Static(id=name) for name in ("header", "notice"))
        with VerticalScroll() as area:
            entitle(area, Text(self.heading))
            yield Static(say("watch", "asking"), id="text")
        yield Static(id="message")
        yield Footer()

    def show(self, text: Text | None, problem: str = "") -> None:
        """Show the text of the page, or `problem`. If the page was closed, do nothing."""
        told = Text(shown(say("watch", "not_shown", problem=problem)), "red") if text is None else text
        for place in self.query("#text").results(Static):
            place.update(told)


def entitle(widget: Widget, title: Text) -> None:
    """Set the title in the border above a widget, if the title has changed."""
    content = Content.from_rich_text(Text.assemble(" ", title, " ") if title else title)
    if widget.border_title != content.markup:
        widget.border_title = content


def put(screen: Screen[Any], name: str, text: Text) -> None:
    """Set the text of the widget `name`, if the text has changed. Without text the widget takes no line."""
    widget = screen.query_one(f"#{name}", Static)
    if widget.content != text:
        widget.update(text)
    widget.display = bool(text)


def _key(keys: str, action: str, word: str, sign: str, *, show: bool = True) -> Binding:
    """Return a key binding with its word on the bottom line and its help, in the language that is set."""
    return Binding(keys, action, named(word), key_display=sign, tooltip=say("watch", f"key_{word}"), show=show)


#: Keys that mean yes: in any language, and in Spanish only.
YES, YES_IN_SPANISH = ("y", "Y", "upper_y"), ("s", "S", "upper_s")
#: Key bindings. Those that a narrow screen must show come first.
KEYS = (
    _key("q", "quit", "quit", "q"),
    _key("question_mark,h", "help", "help", "?"),
    _key("s,enter", "show", "show", "s"),
    _key("a", "abort", "abort", "a"),
    _key("r", "reconcile", "reconcile", "r"),
    _key("up,down", "none", "select", "↑ ↓", show=False),
    _key("tab", "app.focus_next", "next", "Tab", show=False),
)


class Watch(App[None]):
    """The application: shows the state of the shop until a key or a signal ends it."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { overflow: hidden; }
    Static { height: auto; }
    #header, #rates { height: 1; }
    #lists { height: 1fr; }
    Rows, Rows:focus, VerticalScroll, #below {
        border: none; border-top: solid ansi_bright_black; border-title-style: bold;
        padding: 0; background: ansi_default; scrollbar-size-vertical: 1;
    }
    Rows { max-height: 34%; }
    #ATTENTION { height: 1fr; max-height: 100%; }
    Rows > .option-list--option { padding: 0; }
    Rows > .option-list--option-highlighted { background: ansi_default; color: ansi_default; text-style: none; }
    Rows:focus > .option-list--option-highlighted {
        background: ansi_default; color: ansi_default; text-style: reverse;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *KEYS,
        Binding("ctrl+c,ctrl+d", "quit", show=False, system=True),
        Binding("ctrl+z", "suspend_process", show=False),
    ]

    def __init__(self, socket: Path, shop: Shop, *, ascii_only: bool = False) -> None:
        """`shop`: state to show first."""
        super().__init__(ansi_color=True)
        self.theme = "ansi-dark"
        if ascii_only:
            self._filters.append(Ascii())
        self.state = WatchState(shop)
        self.source = Source(socket, self.state, self.call_later)
        self._message, self._message_until = Text(), 0.0
        #: Payment that the question on the bottom line is about. The question is whether to abort it.
        self._asked: Row | None = None
        #: Whether a key was pressed. Until then the most urgent row of all lists is selected.
        self._is_used = False
        self._drawn: object = None
        self._was_away = False

    def compose(self) -> ComposeResult:
        """Yield the widgets: header, lists, advice, rates, message, keys."""
        yield from (Static(id=name) for name in ("header", "notice"))
        with Vertical(id="lists"):
            yield from (Rows(Option(texts.nothing(name), disabled=True), id=name.name) for name in ListName)
        yield from (Static(id=name) for name in ("below", "rates", "message"))
        yield Footer()

    def on_mount(self) -> None:
        """Start polling and drawing."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, self.exit)
        # After Ctrl-Z and fg the terminal's screen is empty, but Textual would draw only changes.
        self.app_resume_signal.subscribe(self, lambda _: self.screen.refresh())
        self.source.start()
        self.set_interval(FRAME_SECONDS, self.draw)
        self.call_after_refresh(self.draw)

    def on_unmount(self) -> None:
        """Stop polling."""
        self.source.close()

    def exit(self, *given: Any, **options: Any) -> None:
        """End the application. After `EXIT_SECONDS` it ends even if the terminal does not read."""
        if isinstance(self._driver, LinuxDriver):
            late = threading.Timer(EXIT_SECONDS, _leave, (self._driver,))
            late.daemon = True
            late.start()
        super().exit(*given, **options)

    def _fatal_error(self) -> None:
        """Restore the terminal after an unexpected exception. `posd watch` reports that."""
        self._close_messages_no_wait()

    @property
    def fault(self) -> Exception | None:
        """Unexpected exception that ended the application, or None."""
        return self._exception

    async def on_event(self, event: events.Event) -> None:
        """If a question is on the screen, take the next key as its answer."""
        self._is_used |= isinstance(event, events.Key)
        if isinstance(event, events.Key) and self._asked is not None:
            row, self._asked = self._asked, None
            if event.key in YES or (event.key in YES_IN_SPANISH and language() is Language.ES):
                self._act(row, "abort")
            else:
                self.say(say("watch", "not_aborted"), "dim")
            return
        await super().on_event(event)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002
        """Return whether a key is shown and active. On a page, some keys have no effect."""
        page = self.screen if isinstance(self.screen, RowPage) else None
        is_payment = page is not None and page.row is not None and page.row.kind is Kind.PAYMENT
        return page is None or (action not in ("show", "help") and (is_payment or action not in ("abort", "reconcile")))

    def say(self, text: str, style: str, seconds: float = MESSAGE_SECONDS) -> None:
        """Show a message on the bottom lines for some seconds."""
        self._message, self._message_until = Text(shown(text), style), asyncio.get_running_loop().time() + seconds
        self._drawn = None

    def draw(self) -> None:
        """Draw a frame, if the state or the second has changed and the terminal has read the earlier frames."""
        if self._exit or not self.screen_stack or not self.screen.is_mounted:
            return
        now, height = datetime.now(UTC), self.size.height
        key = (self.state.version, now.replace(microsecond=0), self.size, self.screen)
        if key == self._drawn or self._is_behind():
            return
        self._drawn = key
        if self._was_away and self.state.away is None:
            self.say(say("watch", "back"), "green")
        self._was_away = self.state.away is not None
        over = asyncio.get_running_loop().time() > self._message_until
        self.screen.query_one(Footer).display = height > 2
        put(self.screen, "header", texts.header(self.state, now, self.size.width))
        put(self.screen, "notice", texts.notice(self.state, now, self.size.width, 3 if height >= 16 else 2))
        put(self.screen, "message", Text() if over else self._message)
        if not isinstance(self.screen, RowPage):
            self._draw_lists(self.screen, now)
        elif self.screen.row is not None and self.screen.version != self.state.version:
            self.screen.version = self.state.version
            work = partial(texts.page, row=self.screen.row, room=self.size.width - 1)
            self.source.ask(work, self.screen.show)

    def _is_behind(self) -> bool:
        """Return whether the terminal has not yet read earlier frames.

        Then drawing waits, so that the next frame is newer.
        """
        thread = self._driver._writer_thread if isinstance(self._driver, LinuxDriver) else None
        return thread is not None and thread._queue.qsize() > 2

    def _draw_lists(self, screen: Screen[Any], now: datetime) -> None:
        every, pressing = self.state.shop.rows(now), None
        for section in PRESSING:
            each, rows = screen.query_one(f"#{section.name}", Rows), [row for row in every if row.section is section]
            lines = texts.lines(section, rows, self.size.width - 2, now)
            each.show(rows, [Text.assemble(" ", line, no_wrap=True) for line in lines])
            entitle(each, texts.title(section, rows, self.state.shop))
            pressing = pressing or (each if rows else None)
        if screen.focused is None or not self._is_used:
            screen.set_focus(pressing)
        put(screen, "rates", texts.rates(self.state.shop, now) if self.size.height >= RATES_FROM else Text())
        row = self._row()
        most = next((lines for least, lines in BELOW_LINES if self.size.height >= least), 0)
        put(screen, "below", texts.below(row, self.size.width, most) if row and most else Text())
        entitle(screen.query_one("#below"), Text(texts.heading(row) if row else ""))

    def on_option_list_option_highlighted(self) -> None:
        """Show the advice on the newly selected row."""
        self._drawn = None
        self.draw()

    async def on_option_list_option_selected(self) -> None:
        """Show all details of the row. Textual calls this at Enter, which is a key of the list."""
        await self.action_show()

    #: When another list gets the focus, its row is the selected one.
    on_descendant_focus = on_option_list_option_highlighted

    def _row(self) -> Row | None:
        """Return the row that the keys act on, or None."""
        if isinstance(self.screen, RowPage):
            return self.screen.row
        return self.screen.focused.selected if isinstance(self.screen.focused, Rows) else None

    def _payment(self, call: str) -> Row | None:
        row = self._row()
        if row is not None and row.kind is not Kind.PAYMENT:
            self.say(say("watch", "for_payments", call=call), "yellow")
            return None
        return row

    async def action_help(self) -> None:
        """Show the meaning of the lists and the keys."""
        await self.push_screen(page := RowPage(named("help")))
        page.show(texts.help_page((str(key.key_display), key.tooltip) for key in KEYS))

    async def action_show(self) -> None:
        """Show all details of the selected row."""
        if (row := self._row()) is not None:
            await self.push_screen(RowPage(texts.heading(row), row))

    def action_abort(self) -> None:
        """Ask whether to abort the selected payment."""
        row = self._payment("abort")
        if row is None:
            return
        if not row.document["abortable"]:
            why = say("watch", "has_ended" if row.outcome else "too_late")
            self.say(say("watch", "cannot_abort", what=texts.what(row), why=why), "yellow")
            return
        self._asked = row
        question = f"{say('watch', 'abort', what=texts.what(row))}  {say('watch', 'yes_key')}"
        self.say(question, "bold yellow", float("inf"))

    def action_reconcile(self) -> None:
        """Request that posd asks the terminal for the state of the selected payment."""
        if (row := self._payment("reconcile")) is not None:
            self._act(row, "reconcile")

    def _act(self, row: Row, call: str) -> None:
        def said(document: Mapping[str, Any] | None, problem: str) -> None:
            failed = (f"{texts.what(row)}: {problem}", "bold yellow")
            self.say(*(failed if document is None else texts.became(row, call, document)))

        self.say(say("watch", f"asking_{call}", terminal=row.document["terminal"], what=texts.what(row)), "cyan")
        path = f"/transactions/{row.identity}/{call}"
        self.source.ask(lambda api: api.post(path, seconds=RECONCILE_SECONDS).body, said)


def _leave(driver: LinuxDriver) -> None:
    """Restore the modes of the terminal, and end the process at once."""
    if driver.attrs_before is not None:
        termios.tcsetattr(driver.fileno, termios.TCSANOW, driver.attrs_before)
    os._exit(0)
