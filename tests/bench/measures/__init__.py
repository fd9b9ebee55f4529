"""The parts of the table, in its order."""

from collections.abc import Mapping

from tests.bench.bench import Measure
from tests.bench.measures import acknowledgements, memory, slow_disk, starting, stored

#: Each by its name on the command line.
MEASURES: Mapping[str, Measure] = {
    "acknowledgements": acknowledgements.measure,
    "slow_disk": slow_disk.measure,
    "memory": memory.measure,
    "starting": starting.measure,
    "stored": stored.measure,
}
