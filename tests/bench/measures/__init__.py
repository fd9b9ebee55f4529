"""The parts of the table, in its order."""

from collections.abc import Mapping

from tests.bench.bench import Measure
from tests.bench.measures import memory, slow_disk, starting

#: Each by its name on the command line.
MEASURES: Mapping[str, Measure] = {
    "slow_disk": slow_disk.measure,
    "memory": memory.measure,
    "starting": starting.measure,
}
