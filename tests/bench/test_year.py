"""The year of a busy shop: its days are played, and the picture can be drawn."""

from pathlib import Path
from xml.etree import ElementTree

from tests.bench import year


async def test_a_day_adds_payments_and_a_backup_and_needs_room_for_its_copy(tmp_path: Path) -> None:
    first, _, last = found = await year.measure(tmp_path, 3)
    assert first.database < last.database < last.backups < last.most
    assert last.backups - last.database > first.backups - first.database
    ElementTree.fromstring(year.draw(found))
