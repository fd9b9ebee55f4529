"""A terminal as far as `posd watch` uses one: it follows what is written to it, and refuses what it does not know."""

import re

from posd.cli.watch.screen import width

TOKEN = re.compile(r"\x1b\[(\??[0-9;]*)([A-Za-z])|([^\x1b])", re.DOTALL)
#: The begin of a sequence, of which the rest may come.
BEGUN = re.compile(r"\x1b(\[\??[0-9;]*)?$")


class Emulator:
    """What stands on the screen after what was written: characters and their graphic rendition."""

    def __init__(self, columns: int, height: int) -> None:
        self.columns, self.height = columns, height
        self.cells = [[(" ", "")] * columns for _ in range(height)]
        self.row = self.column = 0
        self.style = ""
        self.modes: set[str] = set()
        self._begun = ""

    def write(self, text: str) -> None:
        """Follow it. Raise ValueError at what no frame may hold."""
        text = self._begun + text
        self._begun = ""
        place = 0
        while place < len(text):
            found = TOKEN.match(text, place)
            if found is None:
                if BEGUN.match(text, place):
                    self._begun = text[place:]
                    return
                raise ValueError(f"not known: {text[place : place + 20]!r}")
            place = found.end()
            parameters, command, char = found.groups()
            if char is not None:
                self._put(char)
            else:
                self._do(command, parameters)

    def lines(self) -> list[str]:
        """Return what stands there, without styles."""
        return ["".join(char for char, _ in row) for row in self.cells]

    def _put(self, char: str) -> None:
        if not char.isprintable():
            raise ValueError(f"a control character: {char!r}")
        wide = width(char)
        if self.column + wide > self.columns:
            raise ValueError(f"{char!r} is beyond the last column")
        style = self.style if self.style != "0" else ""
        self.cells[self.row][self.column] = (char, style)
        for extra in range(1, wide):
            self.cells[self.row][self.column + extra] = ("", style)
        self.column += wide

    def _do(self, command: str, parameters: str) -> None:
        match command:
            case "H":
                row, _, column = parameters.partition(";")
                self.row, self.column = int(row or 1) - 1, int(column or 1) - 1
                if not (self.row < self.height and self.column < self.columns):
                    raise ValueError(f"{parameters} is beyond the screen")
            case "K" if not parameters:
                if self.style:
                    raise ValueError("the rest of a line is wiped with a style")
                self.cells[self.row][self.column :] = [(" ", "")] * (self.columns - self.column)
            case "J" if parameters == "2":
                self.cells = [[(" ", "")] * self.columns for _ in range(self.height)]
            case "m":
                self.style = parameters
            case "h":
                self.modes.add(parameters)
            case "l":
                self.modes.discard(parameters)
            case _:
                raise ValueError(f"not known: {command!r} {parameters!r}")
