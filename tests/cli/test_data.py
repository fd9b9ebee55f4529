"""`posd backup`, `restore` and `verify` as people and scripts call them."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from posd.cli.app import times
from posd.storage import backup
from posd.storage.connection import PAGE_BYTES, lock, schema_version
from tests.cli.documents import answer
from tests.cli.processes import asked, asked_on_terminal, posd, posd_on_terminal
from tests.cli.stub import Answer
from tests.store.filled import OPEN, filling, name
from tests.support.daemon import toml
from tests.support.tables import every


class Shop:
    """A stopped posd with a configuration, a database with two payments, and a backup with the first payment."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.config = home / "config.toml"
        self.database = home / "state" / "posd.db"
        self.backup = home / "backup.db"
        self.config.write_text(toml(home, ""))
        self.database.parent.mkdir(mode=0o700)
        with filling(self.database) as filled:
            filled.pay(1)
            backup.write(self.database, self.backup, [b"k" * 32], "2026-11-20T11:00:00.000Z", lambda: False)
            filled.pay(2, OPEN)

    def replaced(self) -> list[str]:
        return [path.name for path in self.database.parent.iterdir() if ".replaced-" in path.name]

    def damage(self) -> None:
        content = self.database.read_bytes()
        self.database.write_bytes(bytes(PAGE_BYTES) + content[PAGE_BYTES:])


@pytest.fixture
def shop() -> Iterator[Shop]:
    with TemporaryDirectory(prefix="posd-") as home:  # the path is short, because the test counts lines
        yield Shop(Path(home))


# Backup.


def sent(shop: Shop) -> Answer:
    """Return a backup in the form that posd sends."""
    return Answer(200, shop.backup.read_bytes(), "application/octet-stream")


@pytest.mark.parametrize("before", ["nothing", "a backup"])
def test_backup_writes_the_data_of_posd_as_the_caller(shop: Shop, before: str) -> None:
    file = shop.home / "b.db"
    if before == "a backup":
        file.write_bytes(shop.backup.read_bytes())
        file.chmod(0o644)
    done = asked([sent(shop)], "backup", str(file), "--json")
    assert done.returncode == 0, done.stderr
    assert done.sent == [("POST", "/backup", {"send": True})]
    assert file.read_bytes() == shop.backup.read_bytes()
    assert file.stat().st_mode & 0o777 == 0o600
    at = "2026-11-20T11:00:00.000Z"
    kept = {"path": str(file), "bytes": file.stat().st_size, "transactions": 1, "at": at, "synced": True}
    assert done.document == kept


@pytest.mark.parametrize("end", [0, 100, -4096])
def test_an_incomplete_backup_replaces_nothing(shop: Shop, end: int) -> None:
    file = shop.home / "b.db"
    shutil.copyfile(shop.backup, file)
    before = {path.name for path in shop.home.iterdir()}
    done = asked([Answer(200, shop.backup.read_bytes()[:end], "application/octet-stream")], "backup", str(file))
    assert done.returncode == 1, done
    assert file.read_bytes() == shop.backup.read_bytes()
    assert {path.name for path in shop.home.iterdir()} == before


@pytest.mark.parametrize("command", ["support --yes", "report --html", "backup"])
@pytest.mark.parametrize("own", ["posd.db", "posd.db-wal", "posd.db.restored-1", "callback.key", "tls/server.key"])
def test_no_output_file_can_have_a_name_that_posd_uses(shop: Shop, command: str, own: str) -> None:
    before = {path: path.read_bytes() for path in shop.database.parent.iterdir()}
    (shop.database.parent / "tls").mkdir()
    done = posd(*command.split(), str(shop.database.parent / own), config=shop.config)
    assert done.returncode == 2, done
    assert {path: path.read_bytes() for path in shop.database.parent.iterdir() if path.is_file()} == before


@pytest.mark.parametrize("kind", ["directory", "text", "database", "link to the database", "nowhere"])
def test_backup_refuses_an_invalid_target(shop: Shop, kind: str) -> None:
    target = {
        "directory": shop.home,
        "text": shop.config,
        "database": shop.database.rename(shop.home / "moved.db") if kind == "database" else shop.database,
        "link to the database": shop.home / "link.db",
        "nowhere": shop.home / "nowhere" / "b.db",
    }[kind]
    (shop.home / "link.db").symlink_to(shop.database)
    before = {path: path.read_bytes() for path in shop.home.rglob("*") if path.is_file()}
    done = asked([sent(shop)], "backup", str(target))
    assert done.returncode in (1, 2)
    assert str(target) in done.stderr
    assert {path: path.read_bytes() for path in before} == before


# Restore.


def test_restore_as_json_is_the_report_without_any_key(shop: Shop) -> None:
    done = posd("restore", str(shop.backup), "--json", config=shop.config)
    document = done.document
    assert document["database"] == str(shop.database)
    assert (document["restored"]["old"], document["restored"]["taken_over"]) == ("read", 1)
    assert document["keys"] == {"kept": 0, "added": 1, "aside": None}
    assert (b"k" * 32).hex() not in done.stdout


@pytest.mark.quick(1)
@pytest.mark.parametrize(("types", "code"), [("y\n", 0), ("n\n", 1)])
def test_restore_on_a_terminal_shows_the_plan_and_asks(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, types: str, code: int
) -> None:
    monkeypatch.setenv("POSD_CONFIG", str(shop.config))
    before = shop.database.read_bytes()
    seen = posd_on_terminal("restore", str(shop.backup), socket=shop.home / "s", types=types)
    assert seen.returncode == code
    said = "".join(seen.screen.replace("│", " ").split())  # the output has a line break after the preceding path
    times.use(utc=False)  # a command of another test may have used --utc
    for words in (
        f"made {times.moment('2026-11-20T11:00:00Z', date=True)}",
        "1 payment, newest",
        "could be read",
        "posd.db.replaced-",
        "Do it?",
    ):
        assert words.replace(" ", "") in said, seen.screen
    assert seen.fits()
    assert (shop.database.read_bytes() == before) == bool(code)
    assert ("Nothing was changed." in seen.screen) == bool(code)
    assert bool(shop.replaced()) != bool(code)


def test_restore_with_yes_does_not_ask(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSD_CONFIG", str(shop.config))
    shop.damage()
    seen = posd_on_terminal("restore", str(shop.backup), "--yes", socket=shop.home / "s")
    assert seen.returncode == 0
    assert "Do it?" not in seen.screen
    assert "checking the new database" in seen.screen
    assert "only in part" in " ".join(seen.screen.split())


def test_restore_without_a_backup_saves_all_readable_data(shop: Shop) -> None:
    shop.damage()
    done = posd("restore", "--without-backup", config=shop.config)
    assert done.returncode == 0, done.stderr
    assert "2 payments were taken over" in done.stdout
    assert "A till that repeats such a call would start it again" in done.stdout
    assert "no callback key" in done.stdout
    with closing(sqlite3.connect(shop.database)) as db:
        assert {row[0] for row in db.execute("SELECT client_transaction_id FROM transactions")} == {name(1), name(2)}


@pytest.mark.quick(6)
@every(
    ("arguments", "words"),
    [
        ("", "name the backup FILE"),
        ("backup.db --seen", "name the backup FILE"),
        ("backup.db --without-backup", "name the backup FILE"),
        ("--seen --new-callback-key", "name the backup FILE"),
        ("--ids lane.ids --seen", "name the backup FILE"),
        ("--ids nowhere.ids", "nowhere.ids"),
        ("--ids state", "state"),
        ("--ids config.toml", "line 2: "),
        ("backup.db --ids /dev/zero", "line 1: longer than"),
        ("nowhere.db", "there is no file nowhere.db"),
        ("config.toml", "no backup of posd"),
        ("state/posd.db", "is the database itself"),
    ],
)
def test_restore_refuses_with_the_reason(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, arguments: str, words: str
) -> None:
    monkeypatch.chdir(shop.home)
    (shop.home / "lane.ids").write_text(name(9))
    before = shop.database.read_bytes()
    done = posd("restore", *arguments.split(), config=shop.config)
    assert (done.returncode, words in done.stderr) == (2, True), done
    assert (shop.database.read_bytes(), shop.replaced()) == (before, [])


@pytest.mark.parametrize("with_backup", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_restore_with_a_list_of_ids_shows_it_before_the_question(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, with_backup: bool
) -> None:
    monkeypatch.setenv("POSD_CONFIG", str(shop.config))
    (shop.home / "lane.ids").write_text(f"# lane-1\n{name(2)}\n{name(8)}\t2026-11-20T10:42:00Z\tSN-8\n{name(9)}\n")
    files = [str(shop.backup)] if with_backup else []
    seen = posd_on_terminal(
        "restore", *files, "--ids", str(shop.home / "lane.ids"), socket=shop.home / "s", types="y\n"
    )
    assert seen.returncode == 0
    assert seen.fits()
    question, done = seen.screen.split("Do it?")
    assert "ids of the list" in question
    assert "3, of these 2 not known: taken over in doubt" in question
    said = " ".join(done.split())
    assert "The list of ids named 3 payments; 2 of them were not known here." in said
    assert "posd restore --seen" in said


def test_restore_accepts_a_list_from_standard_input_with_json(shop: Shop) -> None:
    (shop.home / "lane.ids").write_bytes(f"{name(9)}\r\n".encode())
    command = f'"{sys.executable}" -m posd --config "$0/config.toml" restore --ids - --json < "$0/lane.ids"'
    done = subprocess.run(["sh", "-c", command, shop.home], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    mark = json.loads(done.stdout)["restored"]
    assert (mark["file"], mark["ids"], mark["ids_taken_over"], mark["taken_over"]) == (None, 1, 1, 2)


def test_a_list_with_wrong_lines_is_refused_before_anything_is_changed(shop: Shop) -> None:
    (shop.home / "lane.ids").write_text(f"{name(9)}\n\x1b[2J\nSN-1\n")
    before = {path.name for path in shop.database.parent.iterdir()}
    arguments = ("restore", str(shop.backup), "--ids", str(shop.home / "lane.ids"))
    done = posd(*arguments, config=shop.config)
    assert done.returncode == 2
    assert done.stderr.startswith("posd: 2 lines of the list of --ids cannot be read; nothing was changed:\n")
    assert "\x1b" not in done.stderr
    assert "\n  line 3: 'SN-1' is no id of a payment" in done.stderr
    told = posd(*arguments, "--json", config=shop.config).document
    assert (told["ok"], told["error"]) == (False, done.stderr.removeprefix("posd: ").removesuffix("\n"))
    assert {path.name for path in shop.database.parent.iterdir()} == before


def test_restore_while_posd_runs_is_refused(shop: Shop) -> None:
    descriptor = lock(shop.home / "state" / "posd.db.lock")
    done = posd("restore", str(shop.backup), "--json", config=shop.config)
    os.close(descriptor)
    assert done.returncode == 1
    assert "stop it first (systemctl stop posd)" in done.document["error"]


#: Unconfirmed events: a start with a database older than its witness, and one payment.
UNSEEN = {
    "restores": [],
    "gone_back": [{"at": "2026-11-20T10:42:00.120Z", "reason": "1 payment is not in it", "taken_over": 1}],
    "refusing": True,
    "transactions": [
        {
            "client_transaction_id": "7f3c1f0e-3b0a-4d7c-9d55-0f6b1c2a9e11",
            "terminal": "SN-0001",
            "created_at": "2026-11-20T10:40:00.000Z",
            "phase": "in_doubt",
            "result": None,
        }
    ],
}


@every(("note", "kept"), [(("--note", "all there"), "all there"), ((), "looked at, without a note")])
def test_the_payments_in_question_are_shown_before_a_person_confirms(note: tuple[str, ...], kept: str) -> None:
    script = [answer(UNSEEN), answer({"restores": [], "gone_back": []})]
    done = asked(script, "restore", "--seen", "--operator", "Ana", *note)
    assert done.returncode == 0
    assert "gone back in time" in done.stderr
    assert "7f3c1f0e-3b0a-4d7c-9d55-0f6b1c2a9e11  SN-0001" in done.stderr
    seen = ("POST", "/restore/seen", {"operator": "Ana", "note": kept})
    assert done.sent == [("GET", "/restore", None), seen]
    if note:
        typed = asked_on_terminal(script, "restore", "--seen", types="\nall there\n")
        assert (typed.returncode, typed.sent[1][2]["note"]) == (0, "all there")


# Verify.


def test_verify_checks_the_configured_database_or_a_backup(shop: Shop) -> None:
    done = posd("verify", config=shop.config)
    assert (done.returncode, done.stdout) == (
        0,
        f"{shop.database}: nothing is wrong with this database (2 payments, 6 events, schema {schema_version()}).\n",
    )
    assert "with this backup (1 payment," in posd("verify", str(shop.backup), config=shop.config).stdout
    document = posd("verify", str(shop.backup), "--json").document
    assert (document["ok"], document["backup"], document["findings"]) == (True, True, [])


def test_verify_names_each_fault_its_meaning_and_its_cure(shop: Shop) -> None:
    with closing(sqlite3.connect(shop.database)) as db:
        db.execute("UPDATE transactions SET final_event = 99 WHERE phase = 'final'")
        db.commit()
    done = posd("verify", config=shop.config)
    assert done.returncode == 1
    assert done.lines[1:] == [
        "final_event: the final event of a payment is not one of its events",
        f"  payment {name(1)}: event 99 is not there",
        "  What to do: derive it again from the terminals' events: posd reprocess",
    ]
    document = posd("verify", "--json", config=shop.config).document
    assert (document["ok"], document["counts"]) == (False, {"final_event": 1})
    assert document["findings"][0]["cure"]


def test_verify_of_another_file_exits_2(shop: Shop) -> None:
    done = posd("verify", str(shop.config))
    assert (done.returncode, "cannot be read as a database" in done.stderr) == (2, True)
    as_json = posd("verify", str(shop.home / "nowhere"), "--json")
    assert (as_json.returncode, as_json.document["ok"]) == (2, False)
