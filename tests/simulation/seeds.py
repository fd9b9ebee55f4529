"""Runs that have found a fault: `seeds.txt`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.simulation import runs
from tests.simulation.plan import FAULTS
from tests.simulation.runs import Job

FILE: Final = Path(__file__).with_name("seeds.txt")


def read(text: str) -> Iterator[Job]:
    """Yield the runs in a text. Raise ValueError with the number of an invalid line."""
    for number, line in enumerate(text.splitlines(), 1):
        said = line.partition("#")[0].split()
        if not said:
            continue
        try:
            seed, size, faults = said
            yield Job(int(seed), int(size), _kinds(faults))
        except ValueError as error:
            raise ValueError(f"line {number} is not `seed size kinds`: {line!r} ({error})") from None


def _kinds(text: str) -> tuple[str, ...]:
    if text in ("all", "none"):
        return tuple(FAULTS) if text == "all" else ()
    names = frozenset(text.split(","))
    if wrong := names - set(FAULTS):
        raise ValueError(f"no kind of fault: {', '.join(sorted(wrong))}")
    return runs.chosen(names)
