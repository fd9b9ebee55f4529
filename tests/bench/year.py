"""`python -m tests.bench.year`: draws docs/pictures/year.svg, what the disk of a busy shop holds over 500 days.

Each day's payments are added to a database as posd leaves them (`tests.bench.seed`). Then posd's own daily retention
and daily backup run, by the clock of that day. A day has PAYMENTS, each of which stands for SCALE: all sizes are
proportional to their number. It takes some minutes.
"""

import asyncio
import logging
import sys
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

import structlog

from posd.base.ids import KEY_BYTES
from posd.storage.backup import KEEP, write_into
from posd.storage.store import Store
from posd.upkeep.retention import Retention
from tests.bench import seed

FILE = Path(__file__).parents[2] / "docs" / "pictures" / "year.svg"
DAYS, RETENTION_DAYS = 500, 400
#: None of these needs a person, so that all are removed at their time.
PAYMENTS = seed.CYCLE - 1
SHOP = 1_000
SCALE = SHOP / PAYMENTS
BEGIN = datetime(2026, 1, 1, 12, tzinfo=UTC)
DISK_GB = 16
WIDTH, HEIGHT, LEFT, TOP = 720, 320, 50, 20


class Day(NamedTuple):
    """What a day has on the disk, in GB: the database, that with its backups, and the most while one is made."""

    database: float
    backups: float
    most: float


async def measure(folder: Path, days: int = DAYS) -> list[Day]:
    """Play the days; return the sizes of each."""
    database = folder / "state" / "posd.db"
    database.parent.mkdir()
    courses = await seed.run_courses(folder / "courses")
    found = []
    for day in range(days):
        now, since = BEGIN + timedelta(days=day), (days - day) * seed.CYCLE
        await seed.fill(database, courses, PAYMENTS, terminals=3, since=since, newest=now + since * seed.APART)
        sizes: list[int] = []
        store = await Store.open(database, database.with_name("lock"))
        try:
            await _retention(store, now).prune(RETENTION_DAYS)
            look = partial(_look, database.parent, sizes)
            backups = database.with_name("backups")
            await asyncio.to_thread(write_into, database, backups, KEEP, [bytes(KEY_BYTES)], now, look)
        finally:
            await store.close()
        found.append(Day(*(size * SCALE / 1e9 for size in (_size(database), _size(database.parent), max(sizes)))))
        if day % 20 == 0:
            print(f"day {day}: " + ", ".join(f"{size:.2f}" for size in found[-1]), file=sys.stderr, flush=True)
    return found


def _retention(store: Store, now: datetime) -> Retention:
    return Retention(store, RETENTION_DAYS, lambda _: False, lambda: now, lambda: now, lambda: None)


def _look(folder: Path, sizes: list[int]) -> bool:
    sizes.append(_size(folder))
    return False


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def draw(found: Sequence[Day]) -> str:
    """Return the picture."""

    def at(day: float, gigabytes: float) -> str:
        x, y = LEFT + day / len(found) * (WIDTH - LEFT - 30), TOP + (1 - gigabytes / DISK_GB) * (HEIGHT - TOP - 40)
        return f"{x:.0f},{y:.1f}"

    def text(day: float, gigabytes: float, words: str, more: str = "") -> str:
        x, y = at(day, gigabytes).split(",")
        return f'<text x="{x}" y="{y}"{more}>{words}</text>'

    def area(size: Callable[[Day], float], colour: str) -> str:
        line = [at(day, size(found[day])) for day in (*range(0, len(found), 5), len(found) - 1)]
        return f'<polygon fill="{colour}" points="{" ".join([at(0, 0), *line, at(len(found) - 1, 0)])}"/>'

    last, end = found[-1], len(found)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-size="12">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
            area(lambda day: day.most, "#f3d9a4"),
            area(lambda day: day.backups, "#8fb8de"),
            area(lambda day: day.database, "#3f6f9f"),
            *(text(0, size - 0.2, f"{size} GB", ' text-anchor="end" dx="-4"') for size in range(4, DISK_GB + 1, 4)),
            *(f'<polyline stroke="#ccc" points="{at(0, size)} {at(end, size)}"/>' for size in range(0, DISK_GB + 1, 4)),
            *(text(day, -0.9, f"day {day}", ' text-anchor="middle"') for day in range(100, end + 1, 100)),
            text(end * 0.03, 15, f"{SHOP} payments a day, {RETENTION_DAYS} days kept, {KEEP} backups; a disk of 16 GB"),
            text(end * 0.7, last.most + 0.4, f"while a backup is made: {last.most:.1f} GB"),
            text(end * 0.7, last.database + 0.6, f"backups: {last.backups - last.database:.1f} GB"),
            text(end * 0.7, 0.5, f"database: {last.database:.1f} GB", ' fill="white"'),
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
        FILE.write_text(draw(asyncio.run(measure(Path(scratch)))))
