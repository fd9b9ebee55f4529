"""Cases that broke an invariant once, as files in `tests/vectors/found`; the suite replays each of them.

They are vectors (tests/vectors/README.md) of the kind `found`: `given` is the target and its case, and the expectation
is the invariants of that target (docs/evidence/fuzzing.md).
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.fuzz.target import Case
from tests.vectors import case as vectors

DIRECTORY = Path(vectors.HERE) / "found"


class Found(NamedTuple):
    """A case of a target, and the name of its file."""

    name: str
    target: str
    case: Case


def save(target: str, case: Case, reason: str, directory: Path = DIRECTORY) -> Path:
    """Write a case, and why it was kept; return its file."""
    given = {"target": target, "body": vectors.as_body(case.body), "beside": _to_json(case.given)}
    digest = hashlib.sha256(repr(case).encode()).hexdigest()[:12]
    vector = vectors.Case("found", f"{target}-{digest}", reason, "fuzzing", given, {"invariants": target})
    directory.mkdir(exist_ok=True)
    file = directory / f"{vector.name}.json"
    file.write_text(vector.dump(), "ascii")
    return file


def kept(directory: Path = DIRECTORY) -> Iterator[Found]:
    """Yield every case that was kept, by name."""
    for file in sorted(directory.glob("*.json")):
        given = vectors.load(file).given
        yield Found(file.stem, given["target"], Case(vectors.content(given["body"]), _from_json(given["beside"])))


def _to_json(value: Any) -> Any:
    match value:
        case bytes():
            return {"bytes": vectors.as_body(value)}
        case tuple() | list():
            return [_to_json(item) for item in value]
        case _:
            return value


def _from_json(value: Any) -> Any:
    match value:
        case {"bytes": body}:
            return vectors.content(body)
        case list():
            return tuple(_from_json(item) for item in value)
        case _:
            return value
