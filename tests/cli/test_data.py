"""`posd backup`, `restore` and `verify` as people and scripts call them."""

import json
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from posd.cli.app import times
from posd.storage import backup
from posd.storage.connection import PAGE_BYTES, lock, schema_version
from tests.rig import forks
from tests.rig.commands import Done, asked, check, posd, posd_on_terminal
from tests.rig.daemon import toml
from tests.rig.documents import ANSWERS, answer
from tests.rig.stub import Answer
from tests.rig.tables import every
from tests.store.filled import OPEN, filling, name

AT = "2026-11-20T11:00:00.000Z"
KEY = b"k" * 32


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
            backup.write(self.database, self.backup, [KEY], AT, lambda: False)
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


def sent(shop: Shop, end: int | None = None) -> list[Answer]:
    """Return a backup in the form that posd sends, up to an end."""
    return [Answer(200, shop.backup.read_bytes()[:end], "application/octet-stream")]


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_caller_writes_the_backup_that_posd_sends(shop: Shop) -> None:
    """The file does not exist, or is an older backup."""
    file = shop.home / "b.db"
    for _ in range(2):
        done = asked(sent(shop), "backup", str(file), "--json").ends(0)
        assert done.sent == [("POST", "/backup", {"send": True})]
        assert file.read_bytes() == shop.backup.read_bytes()
        assert file.stat().st_mode & 0o777 == 0o600
        kept = {"path": str(file), "bytes": file.stat().st_size, "transactions": 1, "at": AT, "synced": True}
        assert done.document == kept
        file.chmod(0o644)


def test_an_incomplete_backup_replaces_nothing(shop: Shop) -> None:
    file = shop.home / "b.db"
    shutil.copyfile(shop.backup, file)
    before = contents(shop.home)
    for end in (0, 100, -4096):
        assert asked(sent(shop, end), "backup", str(file)).returncode == 1
        assert contents(shop.home) == before


@every("command", ["support --yes", "report --html", "backup"])
@every("own", ["posd.db", "posd.db-wal", "posd.db.restored-1", "callback.key", "tls/server.key"])
def test_no_output_file_can_have_a_name_that_posd_uses(shop: Shop, command: str, own: str) -> None:
    (shop.database.parent / "tls").mkdir(exist_ok=True)
    before = contents(shop.home)
    done = posd(*command.split(), str(shop.database.parent / own), config=shop.config)
    assert (done.returncode, contents(shop.home)) == (2, before), done


# Restore.


def test_restore_with_json_reports_the_result_without_any_secret_key(shop: Shop) -> None:
    descriptor = lock(shop.home / "state" / "posd.db.lock")
    posd("restore", str(shop.backup), "--json", config=shop.config).ends(1, "stop it first (systemctl stop posd)")
    os.close(descriptor)
    document = posd("restore", str(shop.backup), "--json", config=shop.config).ends(0, lacks=[KEY.hex()]).document
    assert document["database"] == str(shop.database)
    assert (document["restored"]["old"], document["restored"]["taken_over"]) == ("read", 1)
    assert document["keys"] == {"kept": 0, "added": 1, "aside": None}


def restore(shop: Shop, *arguments: str, types: str = "") -> Done:
    """Restore the backup on a terminal."""
    return posd_on_terminal("--config", str(shop.config), "restore", *arguments, socket=shop.home / "s", types=types)


@pytest.mark.quick(1)
@pytest.mark.parametrize(("types", "code"), [("y\n", 0), ("n\n", 1)])
def test_restore_on_a_screen_shows_the_plan_and_asks(shop: Shop, types: str, code: int) -> None:
    before = shop.database.read_bytes()
    seen = restore(shop, str(shop.backup), types=types).ends(code)
    assert seen.fits(), seen.screen
    said = "".join(seen.words.replace("|", " ").split())  # a long path can break a line of the frame at any place
    times.use(utc=False)  # a command of another test may have used --utc
    made = f"made {times.moment(AT, date=True)}"
    for words in (made, "1 payment, newest", "could be read", "posd.db.replaced-", "Do it?"):
        assert words.replace(" ", "") in said, seen.screen
    assert (shop.database.read_bytes() == before) == ("Nothing was changed." in seen.screen) == bool(code)
    assert bool(shop.replaced()) != bool(code)


def test_restore_with_yes_saves_all_readable_data_without_a_question(shop: Shop) -> None:
    shop.damage()
    words = ("checking the new database", "2 payments were taken over", "A till that repeats such a call would start")
    restore(shop, "--without-backup", "--yes").ends(0, *words, "no callback key", lacks=["Do it?"])


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
        ("config.toml", "not a backup of posd"),
        ("state/posd.db", "is the database itself"),
    ],
)
def test_a_refused_restore_gives_its_reason(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, arguments: str, words: str
) -> None:
    monkeypatch.chdir(shop.home)
    (shop.home / "lane.ids").write_text(name(9))
    before = shop.database.read_bytes()
    posd("restore", *arguments.split(), config=shop.config).ends(2, words)
    assert (shop.database.read_bytes(), shop.replaced()) == (before, [])


@pytest.mark.parametrize("with_backup", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_restore_shows_the_list_of_ids_before_the_question(shop: Shop, with_backup: bool) -> None:
    (shop.home / "lane.ids").write_text(f"# lane-1\n{name(2)}\n{name(8)}\t2026-11-20T10:42:00Z\tSN-8\n{name(9)}\n")
    files = [str(shop.backup)] if with_backup else []
    seen = restore(shop, *files, "--ids", str(shop.home / "lane.ids"), types="y\n").ends(0, "posd restore --seen")
    question, done = seen.words.split("Do it?")
    assert (seen.fits(), "3; 2 of them were not known, and are in doubt" in question) == (True, True)
    assert "The list of ids named 3 payments; 2 of them were not known here." in done


def test_restore_with_json_accepts_a_list_from_standard_input(shop: Shop) -> None:
    line = forks.command("posd", ("--config", str(shop.config), "restore", "--ids", "-", "--json"))
    done = subprocess.run(line, input=f"{name(9)}\r\n", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    mark = json.loads(done.stdout)["restored"]
    assert (mark["file"], mark["ids"], mark["ids_taken_over"], mark["taken_over"]) == (None, 1, 1, 2)


def test_a_list_with_wrong_lines_is_refused_before_anything_is_changed(shop: Shop) -> None:
    (shop.home / "lane.ids").write_text(f"{name(9)}\n\x1b[2J\nSN-1\n")
    before = contents(shop.home)
    arguments = ("restore", str(shop.backup), "--ids", str(shop.home / "lane.ids"))
    head = "posd: 2 lines of the list of --ids cannot be read; nothing was changed:\n"
    done = posd(*arguments, config=shop.config).ends(2, head, "\n  line 3: 'SN-1' is not the id", lacks=["\x1b"])
    told = posd(*arguments, "--json", config=shop.config).document
    assert (told["ok"], told["error"]) == (False, done.stderr.removeprefix("posd: ").removesuffix("\n"))
    assert contents(shop.home) == before


#: Record of an unconfirmed start with a database older than its witness, and the id of a payment in question.
UNSEEN = ANSWERS["get_restore"]["200"]
PAYMENT = UNSEEN["transactions"][0]["client_transaction_id"]


def test_the_payments_in_question_are_shown_before_a_person_confirms() -> None:
    script = [answer(UNSEEN), answer({"restores": [], "gone_back": []})]
    for note, kept in ((" --note 'all there'", "all there"), ("", "checked, without a note")):
        confirmed = ("POST", "/restore/seen", {"operator": "Ana", "note": kept})
        sent = [("GET", "/restore", None), confirmed]
        check(f"restore --seen --operator Ana{note}", script, 0, "gone back in time", f"{PAYMENT}  SN-0001", sent=sent)
    typed = asked(script, "restore", "--seen", types="\nall there\n")
    assert (typed.returncode, typed.sent[1][2]["note"]) == (0, "all there")


# Verify.


def test_verify_checks_the_configured_database_or_a_backup(shop: Shop) -> None:
    done = posd("verify", config=shop.config)
    sound = f"nothing is wrong with this database (2 payments, 6 events, schema {schema_version()}).\n"
    assert (done.returncode, done.stdout) == (0, f"{shop.database}: {sound}")
    assert "with this backup (1 payment," in posd("verify", str(shop.backup), config=shop.config).stdout
    document = posd("verify", str(shop.backup), "--json").document
    assert (document["ok"], document["backup"], document["findings"]) == (True, True, [])
    posd("verify", str(shop.config)).ends(2, "cannot be read as a database")
    assert not posd("verify", str(shop.home / "nowhere"), "--json").ends(2).document["ok"]


def test_verify_explains_each_fault_and_its_cure(shop: Shop) -> None:
    with closing(sqlite3.connect(shop.database)) as db, db:
        db.execute("UPDATE transactions SET final_event = 99 WHERE phase = 'final'")
    assert posd("verify", config=shop.config).ends(1).lines[1:] == [
        "final_event: the final event of a payment is not one of its events",
        f"  payment {name(1)}: event 99 is not there",
        "  What to do: derive it again from the terminals' events: posd quarantine --apply",
    ]
    document = posd("verify", "--json", config=shop.config).document
    assert (document["ok"], document["counts"]) == (False, {"final_event": 1})
    assert document["findings"][0]["cure"]
