"""Lines of configuration keys in their files, for messages about problems."""

import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from posd.config.layers import known_steps, read_all
from posd.config.values import ConfigError, ConfigProblem

#: Most lines of a searched file: each step of the search parses it from the beginning.
MAX_LINES = 5000

_PARSER_SAYS = re.compile(r"\(at line ([0-9]+), column [0-9]+\)")


def located(problems: Iterable[ConfigProblem]) -> tuple[ConfigProblem, ...]:
    """Return the problems with their lines, as far as known. Blocking: their files are read again."""
    texts: dict[str, str] = {}
    found = []
    for problem in problems:
        if problem.file not in texts:
            try:
                texts[problem.file] = Path(problem.file).read_bytes().decode("utf-8-sig")
            except (OSError, UnicodeDecodeError):
                texts[problem.file] = ""
        says = None if problem.key else _PARSER_SAYS.search(problem.reason)
        line = int(says[1]) if says else line_of(texts[problem.file], problem.key)
        found.append(msgspec.structs.replace(problem, line=line))
    return tuple(found)


def where(path: Path, key: str) -> tuple[Path, int | None]:
    """Return the file and the line of a key. Blocking: the files are read again.

    For a missing key, return the file and line of its section; without one, the file at `path`.
    """
    try:
        file, own = read_all(path).origin(key)
    except ConfigError:
        return path, None
    (found,) = located((ConfigProblem(str(file), own, "", ""),))
    return file, found.line


def section(path: Path, serials: Sequence[str], serial: str) -> Path:
    """Return the file with the section of a terminal, else `path`.

    `serials`: those of all terminals of the configuration, in its order.
    """
    return where(path, f"terminals[{serials.index(serial)}]")[0] if serial in serials else path


def line_of(text: str, key: str) -> int | None:
    """Return the line (from 1) of a key such as `terminals[1].serial`.

    For a missing key, return the first line of its section. None without a section, and for a text that is no TOML.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    document = _parsed(lines)
    if document is None or len(lines) > MAX_LINES:
        return None
    known = known_steps(document, key)
    if not known:
        return None
    # Binary search for the first line with which the text so far has the key. Inside a value of several lines the text
    # is no TOML; there the search extends it to the end of the value.
    least, most = 1, len(lines)
    while least < most:
        middle = (least + most) // 2
        end = middle
        while (begun := _parsed(lines[:end])) is None:
            end += 1
        least, most = (least, middle) if known_steps(begun, key) >= known else (middle + 1, most)
    return least


def _parsed(lines: list[str]) -> dict[str, Any] | None:
    try:
        return tomllib.loads("\n".join(lines))
    except (ValueError, RecursionError):
        return None
