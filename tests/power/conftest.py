"""Fixtures of the tests of a full disk and of a power loss."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.tmpfs import skip_without_small_disks


@pytest.fixture
def home() -> Iterator[Path]:
    """Yield a new directory, with a path short enough for Unix sockets."""
    with TemporaryDirectory(prefix="posd-") as directory:
        yield Path(directory)


@pytest.fixture(scope="session")
def small_disks() -> None:
    """Skip the test if small disks cannot be mounted here."""
    skip_without_small_disks()
