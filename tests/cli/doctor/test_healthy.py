"""`posd doctor` on a healthy set-up: the output, and the absence of changes."""

import asyncio
import json
import sqlite3
import subprocess
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
import trustme

from posd.base.times import iso
from posd.cli.app import times
from posd.cli.app.output import Output
from posd.cli.doctor.command import CHECKS, DoctorCheck, examine, show_group
from posd.cli.doctor.context import CheckFinding, CheckStatus, DoctorContext, Findings
from posd.config import load
from posd.terminals.attempt import ReplyLost
from tests.cli.doctor.healthy import (
    OF_THIS_MACHINE,
    SERIAL,
    STOPPED,
    Found,
    SetUp,
    Terminal,
    entry,
    failures,
    running,
    traces,
    warnings,
)
from tests.cli.processes import PATIENCE, posd, posd_as_nobody, posd_on_terminal
from tests.store.filled import filling
from tests.support.daemon import Daemon
from tests.support.needs import needs
from tests.support.tmpfs import small_disk

NAMES = {"check", "subject", "status", "meaning", "todo", "commands", "key", "file", "line", "refused", "unseen"}
ADMIN_SOCKET = Path("run") / "admin.sock"


def test_without_a_daemon_every_check_is_ok_that_needs_no_daemon(setup: SetUp) -> None:
    found = setup.findings()
    assert failures(found) == []
    assert warnings(found) - OF_THIS_MACHINE == {("callback", f"127.0.0.1:{setup.port}")}
    (down,) = (one for one in found if one["status"] == "failure")
    assert (down["check"], down["subject"]) == ("daemon", "posd")
    assert {one["check"] for one in found} == set(CHECKS)
    assert all(set(one) == NAMES and one["meaning"] for one in found)
    assert all(one["todo"] for one in found if one["status"] == "warning")
    assert {one["check"] for one in found if one["status"] != "ok" and not one["commands"]} == {"callback"}


async def test_with_a_daemon_everything_is_ok_and_the_terminal_gets_no_request_that_could_start_anything(
    setup: SetUp,
) -> None:
    async with running(setup):
        found = setup.findings(0)
        assert setup.check() == (0, []), "doctor does not report posd's own port as in use"
    assert failures(found) == []
    assert warnings(found) <= OF_THIS_MACHINE
    told = {(one["check"], one["subject"]): one["meaning"] for one in found}
    assert "posd answers with its certificate" in told["callback", f"127.0.0.1:{setup.port}"]
    assert "posd listens on it" in told["port", f"127.0.0.1:{setup.port}"]
    assert "it answers over TLS" in told["terminal", SERIAL]
    assert setup.terminal.calls == ["OPTIONS /"]


async def refused_payment(daemon: Daemon) -> None:
    """Start a payment that the terminal refuses. After the payment posd has written data and writes nothing more."""
    reply = await daemon.call("PUT", f"/transactions/{uuid4()}", {"amount": {"subtotal_iva0": 1}})
    assert reply.json["phase"] == "final"
    async with asyncio.timeout(PATIENCE):
        while (await daemon.call("GET", "/terminals")).json["terminals"][0]["transaction"]:  # noqa: ASYNC110
            await asyncio.sleep(0.02)  # the terminal is freed at the end of the call, without a message


@asynccontextmanager
async def stopped(setup: SetUp) -> AsyncIterator[None]:
    setup.file.write_text(setup.config)
    assert not list(setup.state.glob("*-wal"))
    yield


@asynccontextmanager
async def killed(setup: SetUp) -> AsyncIterator[None]:
    """Yield a state with the last commit in the WAL. doctor must read the WAL without a checkpoint."""
    async with running(setup) as daemon:
        await refused_payment(daemon)
        await daemon.kill()
        assert setup.database.with_name("posd.db-wal").stat().st_size
        yield


@asynccontextmanager
async def at_work(setup: SetUp) -> AsyncIterator[None]:
    async with running(setup) as daemon:
        await refused_payment(daemon)
        yield


State = Callable[[SetUp], AbstractAsyncContextManager[None]]


@pytest.mark.parametrize(("state", "code"), [(stopped, STOPPED), (killed, STOPPED), (at_work, 0)])
async def test_doctor_changes_nothing(setup: SetUp, state: State, code: int) -> None:
    async with state(setup):
        before = traces(setup.home)
        found = setup.findings_as_written(code)
        setup.check()
        after = traces(setup.home)
    assert any("no damage found" in one["meaning"] for one in found)
    if state is at_work:  # connections share this memory, and mark their reads in this memory
        shared = str(setup.database.with_name("posd.db-shm"))
        assert before.pop(shared)
        assert after.pop(shared)
    assert after == before


@pytest.mark.slow
def test_a_person_sees_groups_cures_and_a_summary(setup: SetUp) -> None:
    setup.key.chmod(0o644)
    setup.file.write_text(setup.config)
    seen = posd_on_terminal("--config", str(setup.file), "doctor", socket=setup.home / "none.sock")
    assert seen.returncode == STOPPED
    lines = [line.rstrip() for line in seen.screen.split("\n")]
    for check in CHECKS.values():
        assert check.title in lines
        assert any(f"{check.title} (up to {check.seconds:g} s)" in line for line in lines), "progress names the limit"
    assert any(line.startswith("  FAILURE ") and "callback.key" in line for line in lines)
    assert any(line.strip().startswith("chmod 0600 ") for line in lines)
    assert any(line.startswith("2 failures, ") for line in lines)
    assert all(len(line) <= 80 for line in lines)
    assert "\x1b[1;31m" in seen.written, "a failure is red"


@pytest.mark.parametrize("text", ["[webhooks", None], ids=["no TOML", "no file"])
def test_without_a_configuration_doctor_reports_what_it_can(setup: SetUp, text: str | None) -> None:
    if text is not None:
        setup.file.write_text(text)
    found = setup.findings_as_written()
    (failed,) = failures(found)
    assert (failed["check"], failed["subject"]) == ("configuration", str(setup.file))
    assert {"daemon", "clock"} <= {one["check"] for one in found}


@pytest.mark.parametrize(
    "text", ["[webhooks\n", "[discovery]\nenabled = false\n[webhook]\n"], ids=["no TOML", "an unknown section"]
)
async def test_a_configuration_broken_while_posd_runs_is_a_failure(setup: SetUp, text: str) -> None:
    """doctor finds the running posd by the named socket. doctor also reports that the next start would fail."""
    async with running(setup):
        setup.file.write_text(text)
        done = posd("doctor", "--json", config=setup.file, socket=setup.home / ADMIN_SOCKET)
    assert done.returncode == 1
    found = setup.read(done)
    assert ("daemon", "ok") in {(one["check"], one["status"]) for one in found}
    (failed, *_) = failures(found)
    line = text.count("\n")
    assert (failed["check"], failed["file"], failed["line"]) == ("configuration", str(setup.file), line)
    assert failed["commands"][0].endswith(f"editor +{line} {setup.file}")


def test_terminals_without_tls_with_a_pin_or_with_another_name_are_ok(setup: SetUp) -> None:
    terminal = setup.terminal
    pin = f'fingerprint_sha256 = "{terminal.fingerprint}"\n'
    with (
        Terminal(terminal.directory, secure=False).on() as plain,
        Terminal(terminal.directory).on() as pinned,
        Terminal(terminal.directory).on("127.0.0.2", terminal.port) as named,
    ):
        setup.config += entry(plain, "SN-PLAIN") + entry(pinned, "SN-PIN").replace(f'ca_file = "{terminal.ca}"\n', pin)
        other = entry(named, "SN-NAME").replace("127.0.0.1", "127.0.0.2")
        setup.config += f'{other}server_name = "localhost"\n'
        found = setup.findings()
    assert failures(found) == []
    told = {one["subject"]: one["meaning"] for one in found if one["check"] == "terminal"}
    assert [serial for serial in told if "over HTTP, without TLS" in told[serial]] == ["SN-PLAIN"]
    assert told.keys() == {SERIAL, "SN-PLAIN", "SN-PIN", "SN-NAME"}


@pytest.mark.parametrize("whole", [True, False], ids=["whole chain", "leaf alone"])
def test_a_certificate_of_the_shops_own_pki_is_judged_by_its_own_chain(setup: SetUp, whole: bool) -> None:
    leaf = trustme.CA().create_child_ca().issue_cert("127.0.0.1")
    certificate, key = setup.home / "shop.crt", setup.home / "shop.key"
    for part in leaf.cert_chain_pems if whole else leaf.cert_chain_pems[:1]:
        part.write_to_path(certificate, append=True)
    leaf.private_key_pem.write_to_path(key)
    key.chmod(0o640)  # a group may have access to the key
    setup.change("[database]", f'certificate = "{certificate}"\nprivate_key = "{key}"\n[database]')
    (told,) = (one["meaning"] for one in setup.findings() if one["subject"] == "chain")
    assert ("2 certificates; every terminal has to trust" in told) == whole
    assert ("add the intermediate CA to the file" in told) != whole
    key.chmod(0o644)
    if whole:  # the other certificates belong to another chain
        certificate.write_bytes(leaf.cert_chain_pems[0].bytes() + trustme.CA().cert_pem.bytes())
    failed = [(one["check"], one["subject"]) for one in failures(setup.findings())]
    assert failed == [("files", str(key)), *([("certificate", "chain")] if whole else [])]


def test_a_public_url_that_cannot_be_reached_from_here_is_a_warning(setup: SetUp) -> None:
    setup.change("[database]", f'public_url = "https://localhost:{setup.port}"\n[database]')
    setup.config += 'access_mode = "cloud"\n'
    (told,) = (one for one in setup.findings() if one["check"] == "callback")
    assert (told["subject"], told["status"]) == (f"localhost:{setup.port}", "warning")
    assert f"calls it for {SERIAL}; a call from this machine failed: it cannot be reached" in told["meaning"]


@pytest.mark.parametrize(
    ("hangs", "words"),
    [pytest.param(True, "did not end within 2.5 s", marks=pytest.mark.slow), (False, "ZeroDivisionError")],
)
def test_a_hanging_or_failed_check_is_reported_and_its_earlier_findings_count(
    setup: SetUp, hangs: bool, words: str
) -> None:
    setup.file.write_text(setup.config)
    over = threading.Event()

    def checking(_: DoctorContext) -> Findings:
        yield CheckFinding(status=CheckStatus.OK, subject="first", meaning="said before")
        if not hangs:
            raise ZeroDivisionError("nothing")
        over.wait()

    shop = DoctorContext(setup.file, load(setup.file), ())
    first, second = examine("odd", DoctorCheck("An odd thing", checking, 2.5 if hangs else 60), shop)
    over.set()
    assert (first.subject, first.status) == ("first", "ok")
    assert (second.subject, second.status) == ("An odd thing", "failure")
    assert words in second.meaning
    assert shop.found == [first, second]


@pytest.mark.slow
@pytest.mark.usefixtures("small_disks")
def test_a_nearly_full_disk_is_a_failure(setup: SetUp, tmp_path: Path) -> None:
    """The state directory is a small disk. Only processes in the test's namespace see the disk."""
    kept = {path.relative_to(setup.state): path for path in setup.state.rglob("*") if path.is_file()}
    setup.file.write_text(setup.config)
    with small_disk(tmp_path, setup.state, "300m") as disk:
        for name, path in kept.items():
            target = disk.files / name
            target.parent.mkdir(mode=0o700, exist_ok=True)
            target.write_bytes(path.read_bytes())
            target.chmod(0o600)
        command = [str(disk.python), "-m", "posd", "--config", str(setup.file), "doctor", "--json"]

        def failed() -> list[Found]:
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
            return failures(json.loads(done.stdout))

        assert failed() == []
        disk.fill(spare=1024 * 1024)
        (full,) = failed()
    assert (full["check"], full["subject"]) == ("disk", str(setup.state))
    assert "the disk is nearly full (" in full["meaning"]
    assert f"du -xah --threshold=100M {setup.state}" in str(full["commands"])


@pytest.mark.parametrize(
    ("sent_to", "before", "status"),
    [
        ("https://192.0.2.20:6869", timedelta(), "ok"),
        ("https://127.0.0.1:6869", timedelta(), "warning"),  # a call on loopback passes no firewall
        ("https://192.0.2.20:6869", timedelta(days=3650), "warning"),  # the payment is older than the boot
    ],
)
def test_only_callbacks_prove_that_terminals_reach_this_machine(
    setup: SetUp, sent_to: str, before: timedelta, status: str
) -> None:
    with closing(sqlite3.connect(setup.database)) as db, db:
        db.execute("UPDATE transactions SET terminal = ?, sent_to = ?", (SERIAL, sent_to))
        db.execute("UPDATE events SET received_at = ?", (iso(datetime.now(UTC) - before),))
    (told,) = (one for one in setup.findings() if one["check"] == "firewall")
    assert (told["subject"], told["status"]) == (SERIAL, status)
    assert ("not checked" in told["meaning"]) == (status == "warning")


async def test_payments_that_wait_for_a_person_are_reported(setup: SetUp) -> None:
    with filling(setup.database) as filled:
        filled.attempt(filled.intent(2), ReplyLost("cut"))
    async with running(setup):
        told = [one for one in setup.findings(0) if one["subject"] == "payments"]
    assert {(one["check"], one["status"], *one["commands"]) for one in told} == {
        ("daemon", "warning", f"posd --config {setup.file} list --attention")
    }


@pytest.mark.slow
@needs(root=True)
async def test_a_user_who_may_read_little_is_told_so_on_each_line(setup: SetUp) -> None:
    """A member of the admin group sees posd's reports. doctor names files that only posd and root can read, and reports
    no failure for these files.
    """
    setup.change('admin_group = ""', 'admin_group = "nogroup"')
    setup.terminal.directory.chmod(0o755)  # the CA for the terminals is not secret
    async with running(setup):
        said, config_check, piped = posd_as_nobody(setup.file, "doctor --json", "config check --json", "doctor")
    assert (said.returncode, said.stderr) == (0, "")
    found, checked = said.document, config_check.document
    assert failures(found) == []
    (line,) = (line for line in piped.lines if "\tnot checked\t" in line)
    closed = {one["subject"]: one["meaning"] for one in found if "may not read" in one["meaning"]}
    assert {"callback key", "certificate files", str(setup.database)} <= set(closed)
    assert all("nobody" in meaning for meaning in closed.values())
    assert (checked["ok"], checked["problems"]) == (True, [])
    assert f"not checked: nobody may not read {setup.tls.private_key}" in str(checked["notes"])
    assert line.split("\t")[0:3] == ["warning", "not checked", "nobody"]
    assert "files (callback key), files (certificate files)" in line
    assert line.endswith(f"sudo posd --config {setup.file} doctor")
    assert "posd reports: valid for" in closed[str(setup.tls.certificate)]
    told = {(one["check"], one["subject"]): one["meaning"] for one in found}
    assert "posd answers with its certificate" in told["callback", f"127.0.0.1:{setup.port}"]
    assert "nobody may use it; its group is nogroup" in told["access", str(setup.home / ADMIN_SOCKET)]


async def test_a_hanging_daemon_is_not_reported_as_stopped(setup: SetUp) -> None:
    async with running(setup) as daemon:
        assert daemon.process is not None
        (setup.home / ADMIN_SOCKET).unlink()
        (setup.home / ADMIN_SOCKET).with_name("till.sock").unlink()
        (told,) = (one for one in setup.findings_as_written(1) if one["check"] == "daemon")
        assert told["status"] == "failure"
        assert f"process {daemon.process.pid}" in told["meaning"]


def test_a_person_sees_the_daemons_times_in_the_local_zone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    at = "2026-11-20T14:02:11.123Z"
    show_group(
        Output(as_json=False),
        "Daemon",
        [CheckFinding(status=CheckStatus.WARNING, subject="listener", meaning=f"away until {at}", check="daemon")],
    )
    assert times.moment(at, date=True) in " ".join(capsys.readouterr().out.split())


def test_a_cure_names_the_file_that_has_the_terminal(setup: SetUp) -> None:
    """A missing key is added to the section of the terminal. A wrong key is corrected in place."""
    section = next(part for part in setup.config.split("[[terminals]]\n")[1:] if SERIAL in part).partition("[")[0]
    setup.change(f"[[terminals]]\n{section}", "")
    further = setup.home / "config.d" / "10-terminals.toml"
    further.parent.mkdir()
    rows = [line for line in section.splitlines() if line and not line.startswith("base_url")]
    further.write_text("\n".join(["# the shop's", "[[terminals]]", *rows, "[discovery]", "enabled = false", ""]))
    setup.config = setup.config.replace("[discovery]\nenabled = false\n", "")
    (failed,) = (one for one in failures(setup.findings()) if one["check"] == "terminal")
    assert failed["commands"][-1].endswith(f"editor +2 {further}")
    text = further.read_text().replace("# the shop's\n", "")
    further.write_text(text.replace(str(setup.terminal.ca), "/nowhere/ca.pem"))
    (named,) = (one for one in failures(setup.findings()) if one["check"] == "configuration")
    assert (named["file"], named["commands"][-1].split()[-1]) == (str(further), str(further))
