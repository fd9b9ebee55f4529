"""What the command line's tests share."""

import gc
import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture
def unconnected_sockets_may_leak() -> Iterator[None]:
    """httpcore2's synchronous backend does not close a Unix socket that it could not connect; Python's collector does,
    with a ResourceWarning that would hit any later test."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
