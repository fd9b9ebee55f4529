"""Texts of problems. Examples are compared with the daemon's response and with the text in the code."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

POSD = Path(__file__).parents[2] / "posd"
#: A text in the code with fewer fixed characters would match almost anything.
MEANS_SOMETHING = 20

#: Placeholder in a text of the code, such as `{error}`. posd replaces it by a value.
FIELD = re.compile(r"\{\w+\}")

#: Parts that vary: ids, serials, the sale of the examples, addresses, times, numbers, and ends.
CHANGES = re.compile(
    r"[0-9a-f]{8}-[0-9a-f-]{27}|receipt-\d+|SN-\w+|2026-11-20/till-3/1042|https?://[\w.:]+"
    r"|\d{4}-\d\d-\d\d[T ][\d:.]+Z?|\d{4}-\d\d-\d\d|\d+|approved"
)


def fits(example: str, said: str) -> bool:
    """Return whether an example matches a text, except for the parts that vary."""
    return re.fullmatch(".+?".join(re.escape(piece) for piece in CHANGES.split(example)), said) is not None


def is_written(example: str) -> bool:
    """Return whether a text of the code can become this example, alone or after "cannot …: "."""
    return any(
        piece in example and re.fullmatch(f"(?:[^:]+: )?{template}", example) for piece, template in _templates()
    )


@cache
def _templates() -> tuple[tuple[str, str], ...]:
    """Return the texts of the code as patterns, each with its longest piece.

    An example without this piece cannot match the pattern.
    """
    return tuple(found for file in POSD.rglob("*.py") for found in _in(file))


def _in(file: Path) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(file.read_text())):
        pieces = node.values if isinstance(node, ast.JoinedStr) else [node]
        literal = [piece.value if isinstance(piece, ast.Constant) else None for piece in pieces]
        texts = [piece for piece in literal if isinstance(piece, str)]
        if sum(map(len, texts)) >= MEANS_SOMETHING:
            found = "".join(_pattern(piece) if isinstance(piece, str) else ".*" for piece in literal)
            yield max((part for text in texts for part in FIELD.split(text)), key=len), found


def _pattern(text: str) -> str:
    """Return the pattern of a text of the code. A field such as `{error}` can become any text."""
    return ".*".join(map(re.escape, FIELD.split(text)))
