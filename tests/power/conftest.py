"""A directory for each test."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory with a path short enough for Unix sockets."""
    with TemporaryDirectory(prefix="posd-") as directory:
        yield Path(directory)
