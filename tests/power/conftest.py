"""A directory for each test."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.tmpfs import skip_without_small_disks


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory with a path short enough for Unix sockets."""
    with TemporaryDirectory(prefix="posd-") as directory:
        yield Path(directory)


@pytest.fixture(scope="session")
def small_disks() -> None:
    """Small disks can be mounted here; else the test is skipped."""
    skip_without_small_disks()
