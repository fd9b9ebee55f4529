"""Reading a damaged database page by page: all undamaged data is found."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from posd.storage import connection
from posd.storage.connection import PAGE_BYTES as PAGE
from posd.storage.connection import connect_reader, open_database
from posd.upkeep.salvage import Salvaged, salvage
from tests.rig.slow import first_quick
from tests.store.filled import FINAL, OPEN, Filled, filling, name

TABLES = ("transactions", "events", "journal", "changes", "quarantine", "leases", "marks")


def fill(filled: Filled, count: int) -> None:
    """Add payments. Some payments are open, and some have metadata that needs overflow pages."""
    random = Random(7)
    for number in range(count):
        metadata = b'{"note": "%s"}' % (b"x" * random.choice((0, 100, 3000, 9000)))
        filled.pay(number, FINAL if number % 3 else OPEN, metadata=metadata, sale=f"sale {number}")
    filled.quarantine(name(0))


def rows(path: Path) -> dict[str, list[tuple[object, ...]]]:
    with closing(connect_reader(path)) as db:
        return {table: db.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall() for table in TABLES}


def salvaged(path: Path) -> tuple[Salvaged, dict[str, list[tuple[object, ...]]]]:
    """Salvage the file into another file. Return the counts and the rows."""
    target = path.with_name("salvaged.db")
    target.unlink(missing_ok=True)
    return salvage(path, target, lambda _done, _total: None), rows(target)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "posd.db"
    with filling(path) as filled:
        fill(filled, 40)
    return path


@pytest.mark.parametrize("step", first_quick((10, 1), 1))
def test_no_single_damaged_page_loses_an_id(whole: Path, tmp_path: Path, step: int) -> None:
    """Damage each page in turn, or each tenth page. Every id is also on another page. Every found row is unchanged."""
    path, content, random, before = tmp_path / "posd.db", whole.read_bytes(), Random(1), rows(whole)
    for start in range(0, len(content), PAGE * step):
        path.write_bytes(content[:start] + random.randbytes(PAGE) + content[start + PAGE :])
        found, after = salvaged(path)
        assert found.ids >= {name(number) for number in range(40)}, start // PAGE
        for table in ("transactions", "events", "journal", "changes"):
            assert set(after[table]) <= set(before[table]), (start // PAGE, table)


@pytest.mark.parametrize("seed", first_quick(range(30), 5))
def test_no_damage_invents_a_record(whole: Path, tmp_path: Path, seed: int) -> None:
    path, random, before = tmp_path / "posd.db", Random(seed), rows(whole)
    content = bytearray(whole.read_bytes())
    for _ in range(random.choice((1, 20, 400))):  # damage single bytes, sectors, or several pages
        start, length = random.randrange(len(content)), random.choice((1, 512, 5 * PAGE))
        content[start : start + length] = random.randbytes(min(length, len(content) - start))
    path.write_bytes(content[: random.choice((len(content), len(content) // 2))])
    found, after = salvaged(path)
    known = {name(number) for number in range(40)}
    # The salvage cannot detect a changed byte in a text. The merge checks the content of each row.
    assert len(found.ids - known) <= 3
    assert {row[0] for row in after["transactions"]} <= found.ids
    assert len(after["events"]) <= len(before["events"])


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "damage",
    [lambda path: path.write_bytes(b""), lambda path: path.unlink(), lambda path: path.write_bytes(b"x" * PAGE * 3)],
    ids=["empty", "gone", "garbage"],
)
def test_rows_only_in_the_wal_are_found_without_the_database(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    path = tmp_path / "posd.db"
    filled = Filled(open_database(path))
    fill(filled, 20)
    filled.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    recent = filled.pay(77, metadata=b'{"note": "%s"}' % (b"y" * 20_000))
    crashed = tmp_path / "crashed.db"
    for suffix in ("", "-wal"):
        shutil.copy(f"{path}{suffix}", f"{crashed}{suffix}")
    filled.db.close()
    damage(crashed)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    found, after = salvaged(crashed)
    assert recent in found.ids
    assert recent in {row[0] for row in after["transactions"]}
    assert len([row for row in after["events"] if row[1] == recent]) == len(FINAL)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name in before} == before


def test_uncommitted_rows_are_not_taken_over(tmp_path: Path) -> None:
    """With a cache of ten pages, SQLite writes the rest of a transaction to the WAL before its COMMIT."""
    path, crashed = tmp_path / "posd.db", tmp_path / "crashed.db"
    filled = Filled(open_database(path))
    committed = filled.pay(1)
    filled.db.execute("PRAGMA cache_size = 10")
    filled.db.execute("BEGIN")
    for number in range(100, 160):
        filled.pay(number, metadata=b'{"note": "%s"}' % (b"z" * 3000))
    for suffix in ("", "-wal"):
        shutil.copy(f"{path}{suffix}", f"{crashed}{suffix}")
    assert name(100).encode() in Path(f"{crashed}-wal").read_bytes()
    filled.db.execute("ROLLBACK")
    filled.db.close()
    found, after = salvaged(crashed)
    assert found.ids == {committed}
    assert len(after["transactions"]) == 1


def test_the_newer_state_counts_if_an_unused_page_still_has_the_older_state(tmp_path: Path) -> None:
    path = tmp_path / "posd.db"
    with filling(path) as filled:
        for number in range(20):
            filled.pay(number)
    old = path.read_bytes()
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE transactions SET revision = revision + 1, attention = '[]', sale = 'new'")
        db.commit()
    newer = rows(path)["transactions"]
    assert {row[3] for row in newer} == {"new"}
    new = path.read_bytes()
    for content in (old + new, new + old):
        path.write_bytes(content)
        assert salvaged(path)[1]["transactions"] == newer


def test_ids_on_the_inner_pages_of_an_index_are_found(tmp_path: Path) -> None:
    path = tmp_path / "posd.db"
    with filling(path) as filled:
        filled.db.execute("BEGIN")
        for number in range(300):
            filled.intent(number)
        filled.db.execute("COMMIT")
    content, inner = bytearray(path.read_bytes()), 0
    for start in range(PAGE, len(content), PAGE):
        if content[start] == 0x02:
            inner += 1
        else:
            content[start : start + PAGE] = bytes(PAGE)
    path.write_bytes(content)
    assert inner > 0
    assert set() < salvaged(path)[0].ids < set(filled.known)


@pytest.mark.quick(1)
@pytest.mark.parametrize("size", [PAGE, 4096])  # older versions of posd used the larger pages
def test_the_page_size_is_found_without_a_header(tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "posd.db"
    monkeypatch.setattr(connection, "PAGE_BYTES", size)
    with filling(path) as filled:
        fill(filled, 40)
    before = rows(path)
    path.write_bytes(bytes(size) + path.read_bytes()[size:])
    found, after = salvaged(path)
    assert found.ids == {name(number) for number in range(40)}
    assert after == before
