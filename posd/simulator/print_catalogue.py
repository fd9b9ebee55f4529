"""The catalogue of print scenarios that ships with the simulator: a file each, by its name."""

from collections.abc import Mapping
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from types import MappingProxyType

import msgspec

from posd.simulator.print_scenario import PrintScenario

DEFAULT_PRINT_SCENARIO = "completes"
#: A job chooses its scenario by this and the name as its externalReference.
CHOICE = "print:"
_SUFFIX = ".toml"


def text(name: str) -> str:
    """Return the file of a scenario as it stands."""
    return (_directory() / f"{name}{_SUFFIX}").read_text(encoding="utf-8")


@cache
def prints() -> Mapping[str, PrintScenario]:
    """Return the scenarios by their names, in the order of the names; they are read once."""
    files = sorted((file for file in _directory().iterdir() if file.name.endswith(_SUFFIX)), key=lambda file: file.name)
    return MappingProxyType(
        {file.name.removesuffix(_SUFFIX): msgspec.toml.decode(file.read_bytes(), type=PrintScenario) for file in files}
    )


def _directory() -> Traversable:
    return resources.files("posd.simulator") / "scenarios" / "print"
