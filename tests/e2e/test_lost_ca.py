"""posd reports a lost CA or callback key, and does not silently replace it (SECURITY.md)."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest
import pytest_asyncio

from posd.storage.connection import connect_reader
from posd.tls import issue
from posd.tls.files import fingerprint
from posd.upkeep.known_ca import REMEDY, KnownFingerprints, known
from tests.e2e.conftest import CHARGE
from tests.e2e.test_backup import back_up
from tests.e2e.test_backup import posd_command as command_of
from tests.e2e.test_certificates import check, command, files, reloaded
from tests.rig.commands import posd as posd_command
from tests.rig.daemon import Daemon
from tests.rig.shop import Shop
from tests.rig.slow import named_quick
from tests.rig.tables import there


@pytest_asyncio.fixture
async def seen(posd: Daemon) -> AsyncIterator[Daemon]:
    """Yield a stopped daemon that has recorded its CA."""
    await posd.stop()
    yield posd
    if posd.process is None or posd.process.returncode is not None:
        await posd.start()


def in_database(path: Path) -> KnownFingerprints | None:
    with closing(connect_reader(path)) as db:
        return known(db)


def findings(text: str) -> list[dict[str, str]]:
    """Return the findings of doctor or of tls status."""
    document = json.loads(text)
    return list(document["findings"] if isinstance(document, dict) else document)


def lose(posd: Daemon) -> None:
    shutil.rmtree(files(posd).certificate.parent)


def lose_certificate(posd: Daemon) -> None:
    files(posd).ca_certificate.unlink()


def put_another(posd: Daemon) -> None:
    lose(posd)
    issue.init(files(posd).certificate.parent, names=["localhost"], addresses=["127.0.0.1"])


async def test_a_lost_folder_of_certificates_is_reported_and_no_new_ca_is_made(seen: Daemon, home: Path) -> None:
    made = files(seen)
    shutil.copytree(made.certificate.parent, home / "copy")
    lose(seen)
    for arguments in (("init", "--if-missing"), ("init",)):
        code, said = await command(seen, *arguments)
        assert (code, "posd tls init --force" in said) == (1, True), said
        assert not made.ca_certificate.exists()
    code, said = await seen.cannot_start()
    assert (code, REMEDY in said) == (2, True), said
    for words in (("doctor",), ("tls", "status")):
        done = await asyncio.to_thread(posd_command, *words, "--json", config=seen.config_file)
        cures = {one.get("todo") or one.get("cure") for one in findings(done.stdout)}
        assert REMEDY in cures, done.stdout
        assert not [cure for cure in cures if cure and cure.startswith(("posd tls init", "make one"))], cures
    (line,) = (line for line in seen.lines if line["event"] == "certificate.ca_lost")
    assert (line["level"], "posd tls init --force" in line["detail"]) == ("error", True)
    shutil.copytree(home / "copy", made.certificate.parent)
    await seen.start()
    assert (await check(seen))["status"] == "ok"


@pytest.mark.parametrize("harm", [lose_certificate, put_another])
async def test_a_replaced_or_missing_ca_is_failing_until_a_person_makes_a_new_ca(
    seen: Daemon, harm: Callable[[Daemon], None]
) -> None:
    harm(seen)
    await seen.start()
    reply = await seen.call("GET", "/health")
    assert (reply.status, (await check(seen))["status"]) == (503, "failing")
    (line,) = (line for line in seen.lines if line["event"] == "certificate.ca_lost")
    assert line["level"] == "error"
    for name in ("doctor", "status"):
        done = await asyncio.to_thread(posd_command, name, config=seen.config_file)
        assert (done.returncode, "tls init --force" in done.stdout) == (1, True), done.stdout
    code, said = await command(seen, "renew")
    assert (await check(seen))["status"] == "failing", said
    code, said = await command(seen, "init", "--force")
    assert code == 0, said
    await reloaded(seen, "certificate.loaded")
    assert (await check(seen))["status"] == "ok"
    present = there(in_database(seen.database))
    assert present.ca == fingerprint(files(seen).ca_certificate)
    assert not files(seen).new_ca.exists()
    await seen.restart()
    assert (await check(seen))["status"] == "ok"


async def test_a_ca_lost_while_posd_runs_is_reported_once(posd: Daemon) -> None:
    kept = files(posd).ca_certificate.read_bytes()
    lose_certificate(posd)
    for _ in range(2):
        await reloaded(posd, "certificate.loaded")
        assert (await check(posd))["status"] == "failing"
    started = await posd.call("PUT", f"/transactions/{uuid4()}", CHARGE)
    assert started.json["phase"] == "active", "only a failing database refuses payments"
    assert len([line for line in posd.lines if line["event"] == "certificate.ca_lost"]) == 1
    files(posd).ca_certificate.write_bytes(kept)
    await reloaded(posd, "certificate.loaded")
    assert (await check(posd))["status"] == "ok"


@pytest.mark.parametrize("running", [True, False])
async def test_a_renewal_does_not_count_as_a_loss(seen: Daemon, running: bool) -> None:
    if running:
        await seen.start()
    old = fingerprint(files(seen).ca_certificate)
    for arguments in (("renew", "--new-ca"), ("renew", "--end-old-ca")):
        code, said = await command(seen, *arguments)
        assert code == 0, said
        if running:
            await reloaded(seen, "certificate.loaded")
            assert (await check(seen))["status"] != "failing"
    if not running:
        await seen.start()
    assert (await check(seen))["status"] == "ok"
    present = there(in_database(seen.database))
    assert present.ca == fingerprint(files(seen).ca_certificate) != old


async def test_a_backup_records_the_ca(posd: Daemon, home: Path) -> None:
    await back_up(posd, home / "b.db")
    assert in_database(home / "b.db") == KnownFingerprints(fingerprint(files(posd).ca_certificate) or "", None)


COMMAND = "posd restore --new-callback-key --operator NAME"


TROUBLES: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "damaged": lambda path: path.write_bytes(b"\xff\xfe" + path.read_bytes()[2:]),
    "a directory": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("trouble", named_quick(TROUBLES, ("missing", "damaged")))
async def test_without_the_callback_key_posd_reports_the_fault_and_does_not_start(own: Shop, trouble: str) -> None:
    daemon, key = own.daemon, own.daemon.key
    waiting = await own.started()
    await daemon.kill()
    good = key.read_bytes()
    TROUBLES[trouble](key)
    for _ in range(2):
        code, said = await daemon.cannot_start()
        assert code == 1
        assert str(key) in said
        if trouble != "a directory":
            assert "callbacks of payments that are under way are refused" in said
            assert "posd restore BACKUP" in said
            assert COMMAND in said
    if key.is_dir():
        key.rmdir()
    key.write_bytes(good)
    await daemon.start()
    await waiting.approve()
    assert (await waiting.get())["outcome"]["result"] == "approved"


@pytest.mark.parametrize("trouble", named_quick(("missing", "damaged"), ("missing",)))
async def test_a_person_can_make_a_new_key(own: Shop, trouble: str) -> None:
    daemon, key = own.daemon, own.daemon.key
    code, _, said = await command_of(daemon, "restore", "--new-callback-key", "--operator", "Ana", "--yes")
    assert (code, "stop it first" in said) == (1, True)
    waiting = await own.started()
    await daemon.kill()
    code, _, said = await command_of(daemon, "restore", "--new-callback-key", "--operator", "Ana", "--yes")
    assert (code, "is a good callback key" in said) == (1, True)
    TROUBLES[trouble](key)
    code, shown, said = await command_of(daemon, "restore", "--new-callback-key", "--operator", "Ana", "--yes")
    assert (code, "1 payment open" in shown, "With a new key posd refuses" in shown) == (0, True, True), said
    assert key.stat().st_mode & 0o777 == 0o600
    assert len(list(key.parent.glob("callback.key.replaced-*"))) == (trouble == "damaged")
    await daemon.start()
    assert await waiting.event("CARD_PRESENTED", "TERMINAL_ACKNOWLEDGED") == 403
    later = await own.started()
    await later.approve()
    assert (await later.get())["outcome"]["result"] == "approved"
