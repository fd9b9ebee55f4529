"""A state directory with a backup in another folder, and ways to damage its database."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random

from posd.payments import rows
from posd.payments.model import Transaction
from posd.records.witness import StartedPayment
from posd.storage import backup
from posd.storage.connection import connect_reader
from posd.upkeep.restore import Restore, RestorePlan
from tests.rig.home import Home
from tests.rig.tables import there
from tests.store.filled import MORNING

NOON = MORNING + timedelta(hours=2)
OLD_KEY = b"o" * 32
BACKUP_KEY = b"b" * 32


@dataclass
class State(Home):
    """A state directory with a database, a lock and a key, and a backup in another folder."""

    directory: Path

    @property
    def copy(self) -> Path:
        return self.directory / "backup.db"

    def restore(self, file: Path | None = None, *ids: StartedPayment, without: bool = False) -> RestorePlan:
        with Restore(self.database, self.database.with_name("posd.db.lock"), self.key, NOON) as restoring:
            named = {item.client_transaction_id: item for item in ids}
            prepared = restoring.prepare(None if without else file or self.copy, lambda *_: None, named)
            restoring.commit()
            return prepared

    def back_up(self) -> None:
        backup.write(self.database, self.copy, [BACKUP_KEY], "2026-11-20T11:00:00.000Z", lambda: False)

    def row(self, identity: str) -> Transaction:
        with closing(connect_reader(self.database)) as db:
            return there(rows.get(db, identity))

    def names(self) -> set[str]:
        return {path.name for path in self.database.parent.iterdir()}


def destroy(path: Path, *tables: str) -> None:
    """Overwrite every page of these tables and indexes with garbage."""
    random, content = Random(3), bytearray(path.read_bytes())
    with closing(sqlite3.connect(path)) as db:
        size: int = db.execute("PRAGMA page_size").fetchone()[0]
        roots = [row[0] for row in db.execute("SELECT rootpage, name FROM sqlite_master") if row[1] in tables]
    assert len(roots) == len(tables)
    while roots:
        start = (roots.pop() - 1) * size
        page = content[start : start + size]
        if page[0] in (2, 5):  # an interior page: also destroy its children
            cells = int.from_bytes(page[3:5], "big")
            for place in range(12, 12 + 2 * cells, 2):
                cell = int.from_bytes(page[place : place + 2], "big")
                roots.append(int.from_bytes(page[cell : cell + 4], "big"))
            roots.append(int.from_bytes(page[8:12], "big"))
        content[start : start + size] = random.randbytes(size)
    path.write_bytes(content)
