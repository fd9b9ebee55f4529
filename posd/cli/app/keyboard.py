"""Keys from a terminal one by one, without blocking the loop, and the terminal as it was when that ends."""

import asyncio
import os
import signal
import termios
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from types import TracebackType
from typing import Any, Self

#: The most bytes that are read at once: a key, or a line that was typed.
_CHUNK = 1024
_STDIN = 0
#: Where `termios.tcgetattr` has them.
_LOCAL_MODES = 3
_CONTROL = 6


def _nothing() -> None:
    """Do nothing: no function was given."""


@dataclass
class Keyboard:
    """Gives keys one by one, from stdin, while the block runs; a line of text where one is asked for.

    `pressed` is called with each key, `left` before the process stops, `taken` when the terminal is its own (again),
    `hung_up` when there is no terminal any more. When the block ends the terminal is as it was. While the process is
    stopped, or in the background, it is too.
    """

    pressed: Callable[[str], None]
    _: KW_ONLY
    left: Callable[[], None] = _nothing
    taken: Callable[[], None] = _nothing
    hung_up: Callable[[], None] = _nothing
    _is_taken: bool = field(default=False, init=False)
    _typed: Callable[[str], None] | None = field(default=None, init=False)
    _before: list[Any] = field(default_factory=lambda: termios.tcgetattr(_STDIN), init=False)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop, init=False)

    def __enter__(self) -> Self:
        self._loop.add_signal_handler(signal.SIGTSTP, self._stop)
        self._loop.add_signal_handler(signal.SIGCONT, self._take)
        self._take()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.remove_signal_handler(signal.SIGTSTP)
        self._loop.remove_signal_handler(signal.SIGCONT)
        self._give_back()

    def look_again(self) -> None:
        """Take the terminal where it is ours again: a shell's `fg` says nothing to a process that runs already."""
        if not self._is_taken and _in_foreground():
            self._take()

    def ask(self, typed: Callable[[str], None]) -> None:
        """Let a person type a line, seen and corrected as anywhere; `typed` is called with it."""
        self._typed = typed
        self._set(_unflushed(self._before))

    def _take(self) -> None:
        if _in_foreground():
            self._typed = None
            self._single_keys()
            self._loop.add_reader(_STDIN, self._read)
            self._is_taken = True
            self.taken()
        else:
            self._loop.remove_reader(_STDIN)  # reading there would stop the process

    def _give_back(self) -> None:
        self._is_taken = False
        self._loop.remove_reader(_STDIN)
        self._set(self._before)

    def _stop(self) -> None:
        """Ctrl-Z: stop, but leave the terminal to the shell as it was."""
        self.left()
        self._give_back()
        os.kill(os.getpid(), signal.SIGSTOP)

    def _read(self) -> None:
        try:
            text = os.read(_STDIN, _CHUNK).decode(errors="replace")
        except OSError:
            text = ""  # it was hung up
        typed, self._typed = self._typed, None
        if typed is not None:
            self._single_keys()
            typed(text.strip())
        elif text:
            for key in text:
                self.pressed(key)
        else:
            self._loop.remove_reader(_STDIN)
            self.hung_up()

    def _single_keys(self) -> None:
        """Let each key come at once. In one step: between two, Ctrl-C would throw away what was typed before it."""
        attributes = _unflushed(termios.tcgetattr(_STDIN))
        attributes[_LOCAL_MODES] &= ~(termios.ECHO | termios.ICANON)  # Ctrl-C and Ctrl-Z stay what they are
        attributes[_CONTROL][termios.VMIN], attributes[_CONTROL][termios.VTIME] = 1, 0
        self._set(attributes)

    def _set(self, attributes: list[Any]) -> None:
        if _in_foreground():
            termios.tcsetattr(_STDIN, termios.TCSANOW, attributes)


def _unflushed(attributes: list[Any]) -> list[Any]:
    """Ctrl-C and Ctrl-Z do not throw away what was typed before them.

    A read of what was announced, and is gone when it is read, would wait for the next key, and the loop with it.
    """
    kept = list(attributes)
    kept[_LOCAL_MODES] |= termios.NOFLSH
    return kept


def _in_foreground() -> bool:
    """Whether the terminal listens to this process; it stops one in the background that touches it."""
    try:
        return os.tcgetpgrp(_STDIN) == os.getpgrp()
    except OSError:
        return False  # it was hung up
