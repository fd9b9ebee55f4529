"""What would stand on 58 mm of paper, drawn with characters: `posd print --preview`.

That a line has 384 dots, and that a character is half as wide as its size, is assumed: fonts and printers differ. So is
what a terminal does where a field is left out. What is written in brackets does not stand on the paper.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from rich.text import Text

from posd.base.text import shown
from posd.cli.app.cells import head, width
from posd.cli.app.output import Output
from posd.printing.commands import COMMANDS, MEMBER, PAPER_DOTS

#: The normal size of a character, in dots, and how many of them a line has.
NORMAL = 24
COLUMNS = PAPER_DOTS * 2 // NORMAL
#: The frame beside the paper, on a terminal that has room for it.
FRAME = ("| ", " |")

#: What a command has where a field is left out.
ALIGN, WEIGHT, DIVIDER, LINES, PIXELS, DOT_SIZE, ERROR_LEVEL = "LEFT", 1, "SOLID", 1, 0, 6, "M"

DIVIDERS = {"SOLID": "-" * COLUMNS, "DOTTED": ". " * (COLUMNS // 2), "EMPTY": ""}
CUT = f"{'- ' * 6} cut {' -' * 6}"
STYLES = ("bold", "italic", "underline")

#: Share of a QR code's bytes that is data, about.
DATA = {"L": 0.80, "M": 0.62, "Q": 0.45, "H": 0.35}
MAX_VERSION = 40

ABOUT = (
    f"58 mm of paper, {PAPER_DOTS} dots and {COLUMNS} characters of size {NORMAL} in a line: this is assumed, the "
    "printer's font may differ. Nothing was sent."
)

Command: TypeAlias = Mapping[str, Any]
#: A text and its style.
Piece: TypeAlias = tuple[str, str]


class Paper:
    """Draws commands; `lines` are what stands on the paper, `notes` what is to be said of it."""

    def __init__(self) -> None:
        self.lines: list[list[Piece]] = []
        self.notes: list[str] = []
        self._pieces: list[Piece] = []
        self._align = ALIGN
        self._room = 2 * PAPER_DOTS

    def draw(self, commands: list[Command]) -> None:
        """Draw all of them, which were checked."""
        for number, command in enumerate(commands):
            kind = str(command["type"])
            if kind != "text" and self._pieces:
                self.notes.append(
                    f"the text before /document/{MEMBER}/{number} ({_cut(kind)}) has no line feed at its end: what a "
                    "printer does then is not known"
                )
                self._end_line()
            if kind in COMMANDS:
                DRAWN[kind](self, command)
            else:
                self._beside(f"unknown command {_cut(kind)}")
        if self._pieces:
            self._end_line()

    def text(self, command: Command) -> None:
        """Draw a text. What does not fit into the line goes on in the next one."""
        size = int(command.get("size", NORMAL))
        if size < NORMAL:
            self.notes.append(f"of size {size} more stands in a line than can be drawn here")
            size = NORMAL
        style = " ".join(name for name in STYLES if command.get(name))
        *ended, rest = command["text"].replace("\r\n", "\n").split("\n")
        for line in ended:
            self._write(line, size, style, command.get("align", ALIGN))
            self._end_line()
        if rest:
            self._write(rest, size, style, command.get("align", ALIGN))

    def _write(self, text: str, size: int, style: str, align: str) -> None:
        """Write into the open line, whose first text says where it stands."""
        left = shown(text.expandtabs())
        while left:
            if not self._pieces:
                self._align, self._room = align, 2 * PAPER_DOTS
            part = head(left, self._room // size)
            if not part and self._pieces:
                self._end_line()
                continue
            part = part or left[0]  # wider than the paper
            self._pieces.append((part, style))
            self._room -= width(part) * size
            left = left[len(part) :]

    def _end_line(self) -> None:
        used = sum(width(text) for text, _ in self._pieces)
        self.lines.append([(" " * _before(used, COLUMNS, self._align), ""), *self._pieces])
        self._pieces = []

    def _beside(self, text: str) -> None:
        """Write what does not stand on the paper."""
        self.lines += [[(part, "dim")] for part in _parts(f"[{text}]", COLUMNS)]

    def columns(self, command: Command) -> None:
        """Draw texts beside each other, each in its share of the line."""
        columns = command["columns"]
        weights = [int(column.get("weight", WEIGHT)) for column in columns]
        edges = [COLUMNS * sum(weights[:number]) // sum(weights) for number in range(len(weights) + 1)]
        cells = []
        for column, left, right in zip(columns, edges, edges[1:], strict=False):
            if column["text"] and left == right:
                self.notes.append(f'a column has no room for "{_cut(column["text"])}": its weight is too small')
            cells.append([*_cell(column, right - left)])
        for number in range(max(map(len, cells))):
            row = (
                cell[number] if number < len(cell) else " " * (right - left)
                for cell, left, right in zip(cells, edges, edges[1:], strict=False)
            )
            self.lines.append([("".join(row), "")])

    def divider(self, command: Command) -> None:
        """Draw a line across the paper; what `offset` does is not known."""
        self.lines.append([(DIVIDERS[command.get("dividerType", DIVIDER)], "")])

    def feed(self, command: Command) -> None:
        """Leave lines free."""
        self.lines += [[] for _ in range(int(command.get("lines", LINES)))]

    def space(self, command: Command) -> None:
        """Leave about as many lines free as there are dots."""
        self.lines += [[] for _ in range(_lines_of(int(command.get("pixels", PIXELS))))]

    def qr(self, command: Command) -> None:
        """Draw a frame of about the size of the code, and in brackets what is in it."""
        content = command["content"]
        level = command.get("errorLevel", ERROR_LEVEL)
        modules = _modules(len(content.encode()), level)
        if modules is None:
            self.notes.append(f'"{_cut(content)}" does not fit into a QR code with error level {level}')
            modules = 17 + 4 * MAX_VERSION
        dots = modules * int(command.get("dotSize", DOT_SIZE))
        if dots > PAPER_DOTS:
            self.notes.append(f'the QR code of "{_cut(content)}" is about {dots} dots wide: the paper has {PAPER_DOTS}')
        high = min(max(_lines_of(dots), 3), COLUMNS // 2)
        wide = 2 * high - 2
        before = " " * _before(wide + 2, COLUMNS, command.get("align", ALIGN))
        inside = ["QR" if row == high // 2 else "" for row in range(1, high - 1)]
        for line in (f"+{'-' * wide}+", *(f"|{text.center(wide)}|" for text in inside), f"+{'-' * wide}+"):
            self.lines.append([(before + line, "")])
        self._beside(f"QR, about {dots} dots: {_cut(content, 160)}")

    def cut(self, _: Command) -> None:
        """Draw where the paper is cut."""
        self.lines.append([(CUT, "")])


#: type -> how it is drawn.
DRAWN: Mapping[str, Callable[[Paper, Command], None]] = {
    "text": Paper.text,
    "columns": Paper.columns,
    "divider": Paper.divider,
    "feed": Paper.feed,
    "space": Paper.space,
    "qr": Paper.qr,
    "cut": Paper.cut,
}


def show(output: Output, commands: list[Command]) -> None:
    """Write what would stand on the paper, and to stderr what is to be known of it."""
    paper = Paper()
    paper.draw(commands)
    framed = output.rich and output.stdout.width >= COLUMNS + len("".join(FRAME))
    left, right = FRAME if framed else ("", "")
    for pieces in paper.lines:
        used = sum(width(text) for text, _ in pieces)
        if output.rich:
            fill = " " * (COLUMNS - used) if framed else ""
            line = Text.assemble((left, "dim"), *pieces, fill, (right, "dim"))
            output.stdout.print(line, soft_wrap=True)
        else:
            output.verbatim("".join(text for text, _ in pieces).rstrip())
    for note in dict.fromkeys(paper.notes):
        output.note(note, "yellow")
    output.note(ABOUT)


def _parts(text: str, room: int) -> Iterator[str]:
    """Yield the text in parts of so many cells; nothing where there is no room."""
    while text and room > 0:
        part = head(text, room) or text[0]
        yield part
        text = text[len(part) :]


def _cell(column: Command, room: int) -> Iterator[str]:
    """Yield the lines of a column, each as wide as it."""
    for line in column["text"].replace("\r\n", "\n").split("\n"):
        for part in [*_parts(shown(line.expandtabs()), room)] or [""]:
            before = _before(width(part), room, column.get("align", ALIGN))
            yield " " * before + part + " " * (room - before - width(part))


def _before(used: int, room: int, align: str) -> int:
    """Return how many cells stand free before what is aligned."""
    free = max(0, room - used)
    return {"LEFT": 0, "CENTER": free // 2, "RIGHT": free}[align]


def _lines_of(dots: int) -> int:
    return (dots + NORMAL // 2) // NORMAL


def _modules(size: int, level: str) -> int | None:
    """Return about how many modules wide the code of so many bytes is, None where none holds them.

    A code of version N is 17 + 4 N wide (ISO/IEC 18004); what is left beside its patterns is data and correction.
    """
    for version in range(1, MAX_VERSION + 1):
        bits = (16 * version + 128) * version + 64
        if version > 1:
            patterns = version // 7 + 2
            bits -= (25 * patterns - 10) * patterns - 55 + (36 if version > 6 else 0)
        if size + 3 <= bits // 8 * DATA[level]:
            return 17 + 4 * version
    return None


def _cut(text: str, most: int = 40) -> str:
    return shown(text if len(text) <= most else f"{text[:most]}…")
