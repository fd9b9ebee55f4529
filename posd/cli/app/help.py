"""What the help and the manual say beside the commands' own texts: their groups and their examples, of TOML files."""

import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple


class Example(NamedTuple):
    """What is typed, and what it does."""

    line: str
    does: str


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath(name).read_text("utf-8"))


#: group -> its commands, each with what it does.
GROUPS: Mapping[str, Mapping[str, str]] = _read("groups.toml")
#: command -> its examples.
EXAMPLES: Mapping[str, Sequence[Example]] = {
    command: [Example(line, does) for line, does in examples.items()]
    for command, examples in _read("examples.toml").items()
}
