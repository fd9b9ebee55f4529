"""Detection of a moved database file after a commit."""

from pathlib import Path

import pytest

from posd.storage.writer import WRITTEN, OpenFiles
from tests.support.tables import there


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    folder.mkdir()
    for suffix in WRITTEN:
        (folder / f"posd.db{suffix}").touch()
    return folder / "posd.db"


def noted(path: Path) -> OpenFiles:
    return OpenFiles(path)


@pytest.mark.parametrize("suffix", WRITTEN)
def test_a_file_moved_after_a_check_is_detected(path: Path, suffix: str) -> None:
    placed = noted(path)
    assert placed.missing() is None
    moved = path.with_name(path.name + suffix)
    moved.rename(moved.with_name("aside"))
    assert "removed or moved away" in there(placed.missing())
    moved.touch()
    assert there(placed.missing()).startswith(f"{moved} was replaced by another file")
    moved.with_name("aside").rename(moved)
    assert placed.missing() is None


def test_other_changes_in_the_folder_are_ignored(path: Path) -> None:
    placed = noted(path)
    path.with_name("other").touch()
    assert placed.missing() is None


def test_a_moved_folder_is_detected(path: Path) -> None:
    placed = noted(path)
    path.parent.rename(path.parent.with_name("moved"))
    assert placed.missing() is not None
    path.parent.with_name("moved").rename(path.parent)
    assert placed.missing() is None
