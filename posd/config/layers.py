"""Merged files of the configuration, with the origin and the line of each value.

The file of `--config` is the first, followed by `config.d/*.toml` beside it in the order of their names. Tables are
merged, later values override earlier values, and `[[terminals]]` are appended.
"""

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from posd.config.values import ConfigError, ConfigProblem, unread

#: Folder of the further files, beside the first.
FOLDER = "config.d"
#: Default path of the configuration file. If this file is missing, the defaults apply.
USUAL = Path("/etc/posd/config.toml")
#: Maximum depth of tables and lists in a file. The deepest key, a header's `file`, has five levels. The parser's own
#: limit depends on the stack, and the daemon must be able to read every file that `posd config check` can read.
MAX_LEVELS = 32
#: Key of the list whose elements are appended.
TERMINALS = "terminals"

#: Pattern of the place of a fault in a message of the TOML parser.
_PARSER_SAYS = re.compile(r"\(at line ([0-9]+), column [0-9]+\)")
_STEP = re.compile(r'"([^"]*)"|([A-Za-z0-9_-]+)|\[([0-9]+)\]')


class Layer(msgspec.Struct, frozen=True):
    """Content of one file. `terminals_before`: number of terminals in earlier files."""

    file: Path
    document: dict[str, Any]
    terminals_before: int = 0
    text: str = ""


class Layers(msgspec.Struct):
    """Files from first to last. `first`: the file of `--config`, which may be missing."""

    first: Path
    files: list[Layer] = []

    def __repr__(self) -> str:
        return f"Layers({self.first})"  # the texts may have secrets

    @property
    def document(self) -> dict[str, Any]:
        """The merged content of all files."""
        merged: dict[str, Any] = {}
        for layer in self.files:
            _lay(merged, layer.document)
        return merged

    def add(self, file: Path, text: str) -> None:
        """Add the text of a file as the top layer. Raise ConfigError if it is not TOML."""
        before = sum(len(_terminals(layer.document)) for layer in self.files)
        self.files.append(Layer(file, _parsed(file, text), before, text))

    def origin(self, key: str) -> tuple[Path, str]:
        """Return the file of a key such as `terminals[3].serial`, and the key in that file.

        For a missing key, return the file with the longest matching prefix of the key.
        """
        best, longest, own = self.first, 0, key
        for layer in self.files:
            here = _own_key(layer, key)
            steps = known_steps(layer.document, here) if here is not None else 0
            if here is not None and steps and steps >= longest:
                best, longest, own = layer.file, steps, here
        return best, own

    def place(self, key: str) -> tuple[Path, int | None, str]:
        """Return the file of a key, its line if known, and the key in that file."""
        file, own = self.origin(key)
        text = next((layer.text for layer in self.files if layer.file == file), "")
        return file, line_of(text, own), own


def steps_of(key: str) -> list[int | str]:
    """Return the steps of a dotted key. `terminals[1]."a b"` has the steps terminals, 1, a b."""
    return [int(index) if index else quoted or bare for quoted, bare, index in _STEP.findall(key)]


def known_steps(document: Any, key: str) -> int:
    """Return how many of the first steps of a key exist in a document."""
    found = 0
    for step in steps_of(key):
        try:
            document = document[step]
        except (LookupError, TypeError):
            return found
        found += 1
    return found


def read_all(path: Path) -> Layers:
    """Read the file, and the files in `config.d` beside it. Raise ConfigError with all unreadable files."""
    file = path.absolute()
    layers = Layers(file)
    problems: list[ConfigProblem] = []
    further = _further(file.parent / FOLDER)
    for item in (file, *further):
        if item is file and not item.exists() and (further or item == USUAL):
            continue
        try:
            layers.add(item, _text(item))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(tuple(problems))
    return layers


def _further(folder: Path) -> list[Path]:
    try:
        names = [item for item in folder.iterdir() if item.suffix == ".toml" and not item.name.startswith(".")]
    except FileNotFoundError:
        return []
    except OSError as error:
        if not folder.exists():  # a parent is a file, and the error of the first file says so
            return []
        is_file = isinstance(error, NotADirectoryError)
        cure = "make it a folder, or remove it" if is_file else "let the user that runs posd look into that folder"
        raise unread(folder, f"cannot be read ({error.strerror})", cure) from error
    return sorted(names)


def _text(file: Path) -> str:
    """Return the text of a file. Raise ConfigError."""
    try:
        return file.read_bytes().decode("utf-8-sig")  # editors on Windows write a byte order mark
    except FileNotFoundError as error:
        cure = "write it (config.example.toml documents every key), or name another one with --config or POSD_CONFIG"
        raise unread(file, "does not exist", cure) from error
    except OSError as error:
        reason = f"cannot be read ({error.strerror})"
        raise unread(file, reason, "make it readable for the user that runs posd") from error
    except UnicodeDecodeError as error:
        raise unread(file, f"is not UTF-8 (byte {error.start})", "save it as UTF-8 text") from error


def _parsed(file: Path, text: str) -> dict[str, Any]:
    """Parse the text of a file. Raise ConfigError if it is not TOML."""
    try:
        document: dict[str, Any] | None = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        at = _PARSER_SAYS.search(str(error))
        cure = "correct that line; the rest is unread"
        raise unread(file, f"is not valid TOML: {error}", cure, int(at[1]) if at else None) from error
    except ValueError as error:  # Python itself refuses a number of 5000 digits
        raise unread(file, "has a number with too many digits", "write it with fewer") from error
    except RecursionError:
        document = None
    if document is None or _deeper_than(document, MAX_LEVELS):
        raise unread(file, "is nested too deeply", "correct the brackets in it")
    return document


def _deeper_than(document: dict[str, Any], levels: int) -> bool:
    """Return whether tables and lists are nested deeper than `levels`."""
    layer: list[Any] = [document]
    for _ in range(levels):
        inner = (item for value in layer for item in (value.values() if isinstance(value, dict) else value))
        layer = [item for item in inner if isinstance(item, dict | list)]
    return bool(layer)


def _lay(below: dict[str, Any], above: dict[str, Any], top: bool = True) -> None:
    """Merge the table `above` into the table `below`, in place."""
    for name, value in above.items():
        there = below.get(name)
        if isinstance(there, dict) and isinstance(value, dict):
            _lay(there, value, top=False)
        elif top and name == TERMINALS and isinstance(there, list) and isinstance(value, list):
            below[name] = [*there, *value]
        else:
            below[name] = _copied(value)


def _copied(value: Any) -> Any:
    """Copy tables, so that a later merge does not change the tables of the file."""
    return {name: _copied(item) for name, item in value.items()} if isinstance(value, dict) else value


def _terminals(document: dict[str, Any]) -> Sequence[Any]:
    found = document.get(TERMINALS)
    return found if isinstance(found, list) else ()


def _own_key(layer: Layer, key: str) -> str | None:
    """Return the key in one file for a key of the merged files, or None for a terminal of another file."""
    found = re.match(rf"{TERMINALS}\[([0-9]+)\]", key)
    if found is None:
        return key
    index = int(found[1]) - layer.terminals_before
    known = 0 <= index < len(_terminals(layer.document))
    return f"{TERMINALS}[{index}]{key[found.end() :]}" if known else None


#: In a file with more lines, posd does not look for the line of a key, because each step of the search parses the file
#: from the beginning.
MAX_LINES = 5000


def where(path: Path, key: str) -> tuple[Path, int | None]:
    """Return the file and the line of a key. The call blocks, because it reads the files again.

    For a missing key, return the file and line of its section. If there is no section, return the file at `path`.
    """
    try:
        return read_all(path).place(key)[:2]
    except ConfigError:
        return path, None


def section(path: Path, serials: Sequence[str], serial: str) -> tuple[Path, int | None]:
    """Return the file and the line of the serial of a terminal, else `path`.

    `serials`: serials of all terminals of the configuration, in order.
    """
    return where(path, f"terminals[{serials.index(serial)}].serial") if serial in serials else (path, None)


def line_of(text: str, key: str) -> int | None:
    """Return the line (from 1) of a key such as `terminals[1].serial`.

    For a missing key, return the first line of its section. Return None without a section, and for a text that is not
    TOML.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    document = _document_of(lines)
    if document is None or len(lines) > MAX_LINES:
        return None
    known = known_steps(document, key)
    if not known:
        return None
    # Binary search for the first line at which the text so far has the key. Inside a value of several lines the text is
    # not TOML. There the search extends the text to the end of the value.
    least, most = 1, len(lines)
    while least < most:
        middle = (least + most) // 2
        end = middle
        while (begun := _document_of(lines[:end])) is None:
            end += 1
        least, most = (least, middle) if known_steps(begun, key) >= known else (middle + 1, most)
    return least


def _document_of(lines: list[str]) -> dict[str, Any] | None:
    try:
        return tomllib.loads("\n".join(lines))
    except (ValueError, RecursionError):
        return None
