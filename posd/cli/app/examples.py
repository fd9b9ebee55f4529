"""The examples of each command, from examples.toml, for its help and its manual page."""

import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import NamedTuple


class Example(NamedTuple):
    """What is typed, and what it does."""

    line: str
    does: str


#: command -> its examples.
EXAMPLES: Mapping[str, Sequence[Example]] = {
    command: [Example(line, does) for line, does in examples.items()]
    for command, examples in tomllib.loads(files(__package__).joinpath("examples.toml").read_text("utf-8")).items()
}
