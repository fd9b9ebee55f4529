"""Root runs commands in a state folder of another account. The commands do not change the targets of links in the
folder.
"""

import gzip
import json
import os
import re
import shutil
import stat
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from posd.storage.connection import open_database
from posd.storage.database_files import is_own
from posd.tls import issue
from tests.cli.test_data import Shop
from tests.rig import forks
from tests.rig.commands import Done
from tests.rig.stub import Answer, Stub
from tests.rig.tables import there
from tests.rig.users import AS_ROOT, as_user
from tests.store.filled import name

#: A user without a name and without files on this machine.
OWNER = 54321


@pytest.fixture(scope="module", autouse=True)
def _can_run() -> None:
    """Skip the tests if this machine cannot run a command as `OWNER`."""
    as_user(OWNER)


#: Names in the state folder, and command lines.
TABLES = tomllib.loads(Path(__file__).with_name("as_root.toml").read_text())
NAMES, COMMANDS, ADVISED = TABLES["names"], TABLES["commands"], TABLES["advised"]


class OthersShop(Shop):
    """A stopped posd whose state belongs to `OWNER`, and a folder of root with a file for each name."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        home.chmod(0o755)
        self.state, self.victims = home / "state", home / "victims"
        open_database(self.database).close()
        self.state.joinpath("callback.key").write_text("00" * 32 + "\n")
        issue.init(self.state / "tls", names=["localhost"], addresses=["127.0.0.1"])
        (home / "ids").write_text(f"{name(77)}\n")
        (home / "run").mkdir()
        self.victims.mkdir()
        for path in (self.state, self.state / "tls", home / "run", *self.state.rglob("*")):
            os.chown(path, OWNER, OWNER)

    def link(self, *names: str, hard: bool) -> None:
        """Replace each name by a link."""
        for each in names:
            victim, path = self.victims / each.replace("/", "+"), self.state / each
            victim.write_bytes(path.read_bytes() if path.exists() else b"root's own")
            victim.chmod(0o640)
            path.unlink(missing_ok=True)
            (path.hardlink_to if hard else path.symlink_to)(victim)

    def seen(self) -> dict[Path, tuple[bytes, int, int, int]]:
        """Return content, owner, group and mode of root's files."""
        found = {path: path.lstat() for path in (self.victims, *self.victims.rglob("*"))}
        return {
            path: (b"" if stat.S_ISDIR(at.st_mode) else path.read_bytes(), at.st_uid, at.st_gid, at.st_mode)
            for path, at in found.items()
        }

    def command(self, words: str, interpreter: tuple[str, ...] = AS_ROOT) -> Done:
        """Run a command to its end, or the daemon until it has started. Check that it reports no fault of posd."""
        arguments = ["--config", str(self.config), *words.format(home=self.home, state=self.state).split()]
        environment = {name: os.environ[name] for name in os.environ if name.startswith(("PATH", *forks.AT_START))}
        read, write = os.pipe()
        process = forks.Forked(arguments, interpreter=interpreter, stdout=write, stderr=write, env=environment)
        os.close(write)
        lines = []
        with os.fdopen(read) as output:
            for line in output:
                lines.append(line)
                if "posd.started" in line:
                    process.terminate()
        said = "".join(lines)
        assert ("a fault of posd itself" in said, "Traceback" in said) == (False, False), said
        return Done(process.wait(), "", said)


@pytest.fixture
def shop() -> Iterator[OthersShop]:
    with TemporaryDirectory(prefix="posd-", dir="/tmp") as home:  # the owner may enter the parent folders
        yield OthersShop(Path(home))


@pytest.mark.quick(8)
@pytest.mark.parametrize("hard", [False, True], ids=["symbolic", "hard"])
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_of_root_follows_a_link_to_a_file_of_root(shop: OthersShop, command: str, hard: bool) -> None:
    for names in (NAMES, ("posd.db", "callback.key")):
        shop.link(*names, hard=hard)
        before = shop.seen()
        done = shop.command(command)
        assert shop.seen() == before, done


@pytest.mark.quick(2)
@pytest.mark.parametrize("command", [one for one in COMMANDS if one.startswith(("tls init", "tls renew", "run"))])
def test_no_command_of_root_follows_a_folder_link_to_a_folder_of_root(shop: OthersShop, command: str) -> None:
    (shop.state / "tls").rename(shop.victims / "tls")
    (shop.state / "tls").symlink_to(shop.victims / "tls")
    for path in (shop.victims / "tls", *(shop.victims / "tls").iterdir()):
        os.chown(path, 0, 0)
    before = shop.seen()
    done = shop.command(command)
    assert shop.seen() == before, done


@pytest.mark.quick(4)
@pytest.mark.parametrize(
    "command", [one for one in COMMANDS if not one.startswith(("restore --yes --new", "verify {", "tls renew --end"))]
)
def test_files_that_root_creates_belong_to_the_owner_of_the_folder(shop: OthersShop, command: str) -> None:
    done = shop.command(command)
    assert "Permission denied" not in done.stderr, done.stderr
    for path in (shop.state, *shop.state.rglob("*")):
        assert path.lstat().st_uid == OWNER, path
    for path in shop.state.iterdir():
        assert is_own(path, shop.database) or path.name == "support.tar.gz", path
    if "{home}/support" in command:
        assert (shop.home / "support.tar.gz").stat().st_uid == 0
    if command != "doctor":  # `doctor` checks this machine
        assert done.returncode in (0, 1 if command == "tls status" else 0), done


@pytest.mark.quick(4)
@pytest.mark.parametrize("advice", ADVISED)
def test_posd_starts_after_root_has_run_the_advised_commands_in_a_new_state_folder(
    shop: OthersShop, advice: str
) -> None:
    for path in shop.state.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    done = [shop.command(words) for words in advice.split("; ")]
    shop.command("tls init --if-missing", as_user(OWNER)).ends(0)
    started = shop.command("run", as_user(OWNER))
    assert "posd.started" in started.stderr, (done, started)


def test_a_failed_start_names_the_command_that_gives_one_file_back_to_posd(shop: OthersShop) -> None:
    """The files may come from `sudo cp` of a copy."""
    for file in ("posd.db", "posd.db-wal", "posd.db.lock", "callback.key", "tls", "tls/server.key"):
        path = shop.state / file
        path.touch()
        for each in (path, *path.rglob("*")):
            os.chown(each, 0, 0)
            each.chmod(0o755 if each.is_dir() else 0o600)
        lines = map(json.loads, shop.command("run", as_user(OWNER)).stderr.splitlines())
        (error,) = (line["error"] for line in lines if line["event"] == "posd.cannot_start")
        command = re.search(r": sudo (chown -R \S+ \S+)$", error)
        assert f"{path}" in error
        subprocess.run(there(command)[1].split(), check=True)
    assert "posd.started" in shop.command("run", as_user(OWNER)).stderr


@pytest.mark.parametrize("packed", [False, True])
def test_root_restores_from_files_that_the_owner_may_not_read(shop: OthersShop, packed: bool) -> None:
    if packed:
        shop.backup.write_bytes(gzip.compress(shop.backup.read_bytes()))
    private = shop.home / "private"
    private.mkdir(mode=0o700)
    shop.backup.rename(private / "backup.db")
    (private / "ids").write_text(f"{name(77)}\n")
    for words in (f"restore --yes {private}/backup.db", f"verify {private}/backup.db"):
        shop.command(words, as_user(OWNER)).ends(2, f"{private}/backup.db")
    shop.command(f"restore --yes --ids {private}/ids {private}/backup.db").ends(0)
    assert {path.lstat().st_uid for path in shop.state.rglob("*")} == {OWNER}


@pytest.mark.parametrize(("folder", "owner"), [("state", OWNER), (".", 0)])
def test_a_backup_by_root_belongs_to_the_owner_of_the_folder(shop: OthersShop, folder: str, owner: int) -> None:
    file = shop.home / folder / "b.db"
    with Stub(shop.home / "s", [Answer(200, shop.backup.read_bytes(), "application/octet-stream")]):
        shop.command(f"--socket {{home}}/s backup {file}").ends(0)
    assert (file.stat().st_uid, file.stat().st_mode & 0o777) == (owner, 0o600)
