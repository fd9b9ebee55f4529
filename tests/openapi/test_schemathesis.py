"""Run schemathesis against the running daemon."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from requests import Session

from tests.openapi import released
from tests.openapi.checks import faults, session
from tests.openapi.simulated import opened

#: Number of generated requests of each call, in addition to the requests that schemathesis derives from the
#: description.
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
def called() -> Iterator[tuple[Session, Path]]:
    """Yield a session that calls a daemon, and the daemon's directory."""
    with opened() as daemon, session(daemon) as calling:
        yield calling, daemon.directory


schema = schemathesis.openapi.from_dict(released.today())


@schema.parametrize()
@BOUNDED
def test_schemathesis_finds_only_listed_failures(case: Any, called: tuple[Session, Path]) -> None:
    assert not (fault := faults(case, *called)), fault
