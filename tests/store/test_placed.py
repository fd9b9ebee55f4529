"""Whether a moved file of the database is found after a commit, also where the folder's time says nothing."""

import os
import time
from pathlib import Path

import pytest

from posd.storage.open_files import TICK, WRITTEN, OpenFiles
from tests.support.tables import there


@pytest.fixture
def path(tmp_path: Path) -> Path:
    for suffix in WRITTEN:
        (tmp_path / f"posd.db{suffix}").touch()
    return tmp_path / "posd.db"


def changed(folder: Path, at: int) -> None:
    """Let the entries of a folder have changed at that time (nanoseconds)."""
    os.utime(folder, ns=(at, at))


def noted(path: Path) -> OpenFiles:
    placed = OpenFiles(path)
    placed.note()
    return placed


@pytest.mark.parametrize("suffix", WRITTEN)
@pytest.mark.parametrize("before", [TICK * 10, 0], ids=["long ago", "just now"])
def test_a_file_that_is_moved_after_a_look_is_found(path: Path, suffix: str, before: int) -> None:
    placed = noted(path)
    changed(path.parent, time.time_ns() - before)
    assert placed.missing_now() is None
    moved = path.with_name(path.name + suffix)
    moved.rename(moved.with_name("aside"))
    found = there(placed.missing_now())
    assert str(moved) in found
    moved.with_name("aside").rename(moved)
    assert placed.missing_now() is None


def test_a_change_just_after_a_look_that_the_folders_time_does_not_show_is_found(path: Path) -> None:
    placed, now = noted(path), time.time_ns()
    changed(path.parent, now)
    assert placed.missing() is None
    path.rename(path.with_name("aside"))
    changed(path.parent, now)
    assert placed.missing_now() is not None


def test_other_changes_in_the_folder_mean_nothing(path: Path) -> None:
    placed = noted(path)
    changed(path.parent, time.time_ns() - TICK * 10)
    assert placed.missing() is None
    path.with_name("other").touch()
    assert placed.missing_now() is None


def test_a_folder_that_is_moved_away_is_found(path: Path) -> None:
    placed = noted(path)
    changed(path.parent, time.time_ns() - TICK * 10)
    assert placed.missing() is None
    path.parent.rename(path.parent.with_name("moved"))
    assert placed.missing_now() is not None
    path.parent.with_name("moved").rename(path.parent)
    assert placed.missing_now() is None
