"""schemathesis over the running daemon; the long run of it is `python -m tests.openapi.cases`."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings

from tests.openapi import released
from tests.openapi.checks import faults
from tests.openapi.gateway import Gateway, opened

#: Generated requests of each call, beside those that schemathesis derives from the description.
EXAMPLES = 8

BOUNDED = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with TemporaryDirectory(prefix="posd-") as directory, opened(Path(directory)) as gateway:
        yield gateway


schema = schemathesis.openapi.from_dict(released.today())


@schema.parametrize()
@BOUNDED
def test_no_failure_but_listed_refusals(case: Any, gateway: Gateway) -> None:
    _, fault = faults(case, gateway)
    assert not fault, fault
