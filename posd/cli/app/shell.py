"""Commands as they are pasted into a shell."""

import re

#: A word, with what is quoted in it.
_WORD = re.compile(r"(?:'[^']*'|\S)+")


def pasted(command: str, indent: int, width: int) -> list[str]:
    """Return the lines of a command, for a screen of so many columns: it goes on after a backslash."""
    lines = [" " * indent]
    for word in _WORD.findall(command):
        if len(lines[-1]) + len(word) + 2 > width and lines[-1].strip():
            lines[-1] += "\\"
            lines.append(" " * (indent + 2))
        lines[-1] += f"{word} "
    return [line.rstrip() for line in lines]
