"""Text in the cells of a terminal: what it takes of them, and lines of a given width."""

from rich.cells import cell_len


def width(text: str) -> int:
    """Return how many cells a text takes."""
    return len(text) if text.isascii() else cell_len(text)


def head(text: str, room: int) -> str:
    """Return as much of the text as takes at most `room` cells."""
    if text.isascii():
        return text[: max(0, room)]
    used = 0
    for place, char in enumerate(text):
        used += width(char)
        if used > room:
            return text[:place]
    return text


def wrap(text: str, room: int) -> list[str]:
    """Break a text into lines of at most `room` cells, between words where that is possible."""
    lines = []
    line = ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if width(longer) <= room:
            line = longer
            continue
        if line:
            lines.append(line)
        line = word
        while room > 0 and width(line) > room:
            first = head(line, room) or line[0]
            lines.append(first)
            line = line[len(first) :]
    return [*lines, line]


def shortened(text: str, room: int, mark: str = "…") -> str:
    """Return the text in at most `room` cells; where it is longer, its middle is left out: both ends tell it apart."""
    if width(text) <= room:
        return text
    last = head(text[::-1], (room - 1) // 2)[::-1]
    return head(text, room - 1 - width(last)) + mark + last if room > 0 else ""
