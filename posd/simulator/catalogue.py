"""The scenarios of payments that ship with the simulator, one TOML file each, and those of the user's own."""

from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import msgspec

from posd.simulator.amounts import Number
from posd.simulator.errors import SettingsError
from posd.simulator.scenario import Scenario

#: What happens to a payment for which nobody has chosen anything.
DEFAULT_SCENARIO = "approve-contactless"
_SUFFIX = ".toml"


@cache
def payments() -> Mapping[str, Scenario]:
    """Return the scenarios that ship with the simulator, by name. Raises SettingsError where a file cannot be read."""
    found = {file.name.removesuffix(_SUFFIX): file for file in _directory().iterdir() if file.name.endswith(_SUFFIX)}
    scenarios = {name: read(found[name]) for name in sorted(found)}
    by_amount: dict[Decimal, str] = {}
    for name, scenario in scenarios.items():
        if scenario.amount is not None:
            other = by_amount.setdefault(Decimal(scenario.amount), name)
            if other != name:
                raise SettingsError(f"the scenarios {other} and {name} have the same amount {scenario.amount}")
    return scenarios


def text(name: str) -> str:
    """Return the file of a scenario that ships with the simulator, as it stands."""
    return (_directory() / f"{name}{_SUFFIX}").read_text(encoding="utf-8")


def read(file: Path | Traversable) -> Scenario:
    """Read the file of a scenario. Raises SettingsError: the file, the key and what is wrong with it."""
    try:
        return msgspec.toml.decode(file.read_bytes(), type=Scenario)
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise SettingsError(f"cannot read the scenario {file}: {error}") from error


def by_amount(amount: Number, scenarios: Mapping[str, Scenario]) -> str | None:
    """Return the name of the scenario that an amount chooses, the last one of several; None where there is none."""
    names = {Decimal(item.amount): name for name, item in scenarios.items() if item.amount is not None}
    return names.get(Decimal(amount))


def _directory() -> Traversable:
    return files("posd.simulator") / "scenarios" / "payment"
