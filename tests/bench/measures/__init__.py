"""The parts of the table, in its order."""

from collections.abc import Mapping

from tests.bench.bench import Measure
from tests.bench.measures import (
    acknowledgements,
    flash,
    idle,
    interpreter,
    memory,
    payments,
    replay,
    signing,
    slow_disk,
    starting,
    stored,
    tills,
)

#: Each by its name on the command line.
MEASURES: Mapping[str, Measure] = {
    "acknowledgements": acknowledgements.measure,
    "payments": payments.measure,
    "slow_disk": slow_disk.measure,
    "tills": tills.measure,
    "signing": signing.measure,
    "memory": memory.measure,
    "starting": starting.measure,
    "stored": stored.measure,
    "flash": flash.measure,
    "idle": idle.measure,
    "replay": replay.measure,
    "interpreter": interpreter.measure,
}
