"""Comparison of the quick run with the stored reference. The comparison finds the ratios that are worse, and the
differences.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

FILE = Path(__file__).with_name("reference.json")
#: Share by which a ratio may be worse than the reference.
TOLERANCE = 0.25

#: Name of a ratio -> its value in each round. The median counts, and less is better.
Ratios = Mapping[str, Sequence[float]]


def better(one: Ratios, other: Ratios) -> Ratios:
    """Return the measurement with the lower median for each ratio."""
    return {name: min(one[name], other[name], key=median) for name in one}


def complaints(measured: Ratios, reference: Mapping[str, float]) -> list[str]:
    """Return texts about ratios that are worse by more than the tolerance, and about ratios that only one measurement
    has.
    """
    found = []
    for name, rounds in measured.items():
        if name not in reference:
            found.append(f"{name}: the reference does not have it")
        elif (change := median(rounds) / reference[name] - 1) > TOLERANCE:
            worse = f"{change:.0%} worse than the reference of {reference[name]:.3g}"
            found.append(f"{name}: {median(rounds):.3g}, {worse}")
    return found + [f"{name}: it was not measured" for name in reference if name not in measured]


def read(file: Path = FILE) -> dict[str, float]:
    """Return the stored reference."""
    stored: dict[str, float] = json.loads(file.read_text())["ratios"]
    return stored


def write(measured: Ratios, versions: Mapping[str, str], file: Path = FILE) -> None:
    """Store a run and its environment as the reference."""
    ratios = {name: float(f"{median(rounds):.4g}") for name, rounds in measured.items()}
    file.write_text(json.dumps({"made_with": dict(versions), "ratios": ratios}, indent=1) + "\n")
