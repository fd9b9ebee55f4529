"""Healthy set-ups, one for each test."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from posd.tls import issue
from tests.cli.doctor.healthy import SetUp, healthy
from tests.support.tmpfs import skip_without_small_disks


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return certificates of a terminal and of the webhook listener, made once."""
    home = tmp_path_factory.mktemp("certificates")
    for name in ("terminal", "server"):
        issue.init(home / name, names=["localhost"], addresses=["127.0.0.1"])
    return home / "terminal", home / "server"


@pytest.fixture
def setup(certificates: tuple[Path, Path]) -> Iterator[SetUp]:
    """Yield a healthy set-up in a directory that all users may enter, with a path short enough for sockets."""
    with TemporaryDirectory(prefix="posd-") as name:
        home = Path(name)
        home.chmod(0o755)
        with healthy(home, *certificates) as made:
            yield made


@pytest.fixture(scope="session")
def small_disks() -> None:
    """Skip the test if small disks cannot be mounted here."""
    skip_without_small_disks()
