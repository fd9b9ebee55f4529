"""The watch of a folder. The watch reports new, removed and moved files.

If the folder cannot be watched, nothing is reported.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from posd.storage.database_files import watch_folder

CHANGES: dict[str, Callable[[Path], object]] = {
    "a file is created": lambda folder: (folder / "new").write_bytes(b""),
    "a file is removed": lambda folder: (folder / "file").unlink(),
    "a file is renamed": lambda folder: (folder / "file").rename(folder / "other"),
    "a file is moved away": lambda folder: (folder / "file").rename(folder.parent / "away"),
    "a file replaces another file": lambda folder: (folder / "second").replace(folder / "file"),
    "a link is made": lambda folder: (folder / "link").hardlink_to(folder / "file"),
    "the folder is moved": lambda folder: folder.rename(folder.parent / "moved"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "folder"
    made.mkdir()
    for name in ("file", "second"):
        (made / name).write_bytes(b"")
    return made


@pytest.mark.parametrize("name", CHANGES)
async def test_a_file_that_appears_or_disappears_is_reported(folder: Path, name: str) -> None:
    changed = asyncio.Event()
    with watch_folder(folder, changed.set):
        CHANGES[name](folder)
        async with asyncio.timeout(30):
            await changed.wait()


async def test_a_write_to_a_file_is_not_reported(folder: Path) -> None:
    heard: list[str] = []
    changed = asyncio.Event()
    with watch_folder(folder, lambda: (heard.append("changed"), changed.set())[1]):
        (folder / "file").write_bytes(b"more")
        await asyncio.sleep(0)  # the loop polls all descriptors in each turn
        await asyncio.sleep(0)
        assert heard == []
        (folder / "second").unlink()
        async with asyncio.timeout(30):
            await changed.wait()
    assert heard == ["changed"]


async def test_after_the_end_of_the_watch_nothing_is_reported(folder: Path) -> None:
    heard: list[str] = []
    with watch_folder(folder, lambda: heard.append("changed")):
        pass
    (folder / "file").unlink()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert heard == []


async def test_a_folder_that_cannot_be_watched_reports_nothing(tmp_path: Path) -> None:
    with watch_folder(tmp_path / "nowhere", lambda: pytest.fail("a change was reported")):
        await asyncio.sleep(0)
