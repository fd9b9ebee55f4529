"""The last line on a terminal while something runs: what happens now and for how long, and a daemon that is away."""

import time
from types import TracebackType
from typing import Self

from rich.console import RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from posd.cli.app.output import Output

#: redraws a second: enough for a spinner and a seconds counter.
REDRAWS_PER_SECOND = 8

AWAY = "posd is away; waiting for it ({goes_on})"
BACK = "posd is back"


class LiveLine:
    """Context manager. With --json it writes nothing but a daemon that is away (to stderr).

    `goes_on` says what goes on without the command: "the payment goes on".
    """

    def __init__(self, output: Output, goes_on: str) -> None:
        self.output = output
        self._away_words = AWAY.format(goes_on=goes_on)
        self._started = time.monotonic()
        self._now = Text("starting")
        self._away = False
        self._spinner = Spinner("line" if output.stdout.options.ascii_only else "dots")
        self._live = Live(
            console=output.stdout, get_renderable=self._render, refresh_per_second=REDRAWS_PER_SECOND, transient=True
        )

    def __enter__(self) -> Self:
        if self.output.rich:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Remove the live line, so that other words can follow."""
        self._live.stop()

    def now(self, text: str) -> None:
        """Say what happens now."""
        self._now = Text(text)

    def away(self, reason: str) -> None:
        """Say once that the daemon cannot be reached."""
        self._now = Text(self._away_words, style="yellow")
        if not self._away:
            self._away = True
            self._tell(f"{self._away_words}: {reason}", "yellow")

    def back(self) -> None:
        """Say that the daemon answers again, where it was away."""
        if self._away:
            self._away = False
            self._tell(BACK, "green")

    def _tell(self, text: str, style: str) -> None:
        if self.output.as_json:
            self.output.note(text)
        else:
            self.output.line(text, style)

    def _render(self) -> RenderableType:
        elapsed = f" {time.monotonic() - self._started:3.0f} s  "
        self._spinner.update(text=Text.assemble(elapsed, self._now))
        return self._spinner
