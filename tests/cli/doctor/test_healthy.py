"""`posd doctor` where nothing is wrong, what it shows, and that it leaves no trace."""

import asyncio
import json
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
import trustme

from posd.base.times import iso
from posd.cli.app import times
from posd.cli.app.output import Output
from posd.cli.doctor.checks import CHECKS, DoctorCheck, examine
from posd.cli.doctor.command import _group
from posd.cli.doctor.context import CheckFinding, CheckStatus, DoctorContext, Findings
from posd.config import load
from tests.cli.doctor.healthy import (
    OF_THIS_MACHINE,
    SERIAL,
    STOPPED,
    SetUp,
    Terminal,
    entry,
    failures,
    traces,
    warnings,
)
from tests.cli.processes import PATIENCE, posd, posd_on_terminal
from tests.support.daemon import Daemon
from tests.support.needs import needs
from tests.support.tmpfs import small_disk


def test_without_daemon_everything_is_ok_but_what_only_a_daemon_shows(setup: SetUp) -> None:
    found = setup.findings()
    assert failures(found) == []
    assert warnings(found) - OF_THIS_MACHINE == {("callback", f"127.0.0.1:{setup.port}")}
    (down,) = (one for one in found if one["status"] == "failure")
    assert (down["check"], down["subject"]) == ("daemon", "posd")
    assert {one["check"] for one in found} == set(CHECKS)
    words = {"check", "subject", "status", "meaning", "todo", "commands", "key", "file", "line", "refused", "unseen"}
    assert all(set(one) == words for one in found)
    assert all(one["todo"] for one in found if one["status"] == "warning")
    assert {one["check"] for one in found if one["status"] != "ok" and not one["commands"]} == {"callback"}
    assert all(one["meaning"] for one in found)


async def started(setup: SetUp) -> Daemon:
    """Start posd on the set-up."""
    daemon = Daemon(setup.home, setup.config)
    await daemon.start()
    return daemon


async def test_with_daemon_everything_is_ok_and_the_terminal_hears_nothing_that_could_start_something(
    setup: SetUp,
) -> None:
    daemon = await started(setup)
    try:
        found = setup.findings(0)
        checked = setup.check()
    finally:
        await daemon.stop()
    assert failures(found) == []
    assert warnings(found) <= OF_THIS_MACHINE
    assert checked == (0, []), "the port that posd itself has is not in use"
    told = {(one["check"], one["subject"]): one["meaning"] for one in found}
    assert "posd answers with its certificate" in told["callback", f"127.0.0.1:{setup.port}"]
    assert "posd listens on it" in told["port", f"127.0.0.1:{setup.port}"]
    assert "it answers over TLS" in told["terminal", SERIAL]
    assert setup.terminal.calls == ["OPTIONS /"]


async def refused_payment(daemon: Daemon) -> None:
    """Let posd write something: the terminal refuses, so that the payment is over, and nothing more is written."""
    reply = await daemon.call("PUT", f"/transactions/{uuid4()}", {"amount": {"subtotal_iva0": 1}})
    assert reply.json["phase"] == "final"
    async with asyncio.timeout(PATIENCE):
        while (await daemon.call("GET", "/terminals")).json["terminals"][0]["transaction"]:  # noqa: ASYNC110
            await asyncio.sleep(0.02)  # the terminal is freed when the call has ended, which no message says


def test_it_changes_nothing_where_posd_is_stopped(setup: SetUp) -> None:
    setup.file.write_text(setup.config)
    before = traces(setup.home)
    assert not list(setup.state.glob("*-wal"))
    setup.findings_as_written()
    assert traces(setup.home) == before


async def test_it_changes_nothing_where_posd_was_killed(setup: SetUp) -> None:
    """What was committed last lies in the WAL: it is read, and not moved from there."""
    daemon = await started(setup)
    await refused_payment(daemon)
    await daemon.kill()
    assert setup.database.with_name("posd.db-wal").stat().st_size
    before = traces(setup.home)
    found = setup.findings_as_written()
    assert traces(setup.home) == before
    assert any("no damage found" in one["meaning"] for one in found)


async def test_it_changes_nothing_where_posd_runs(setup: SetUp) -> None:
    daemon = await started(setup)
    try:
        await refused_payment(daemon)
        before = traces(setup.home)
        setup.findings_as_written(0)
        setup.check()
        after = traces(setup.home)
    finally:
        await daemon.stop()
    # The memory that its own connections share: posd notes there which of them reads, when it is asked something.
    shared = str(setup.database.with_name("posd.db-shm"))
    assert before.pop(shared)
    assert after.pop(shared)
    assert after == before


@pytest.mark.slow
def test_a_person_sees_groups_with_what_to_do_and_a_sum(setup: SetUp) -> None:
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


def test_a_pipe_gets_a_line_a_finding(setup: SetUp) -> None:
    done = setup.doctor()
    head, *lines = done.stdout.splitlines()
    assert head.split("\t") == ["status", "check", "subject", "meaning", "what to do", "commands"]
    assert all(len(line.split("\t")) == 6 for line in lines)
    assert {line.split("\t")[0] for line in lines} <= {"ok", "warning", "failure"}
    assert "1 failure" in done.stderr


@pytest.mark.parametrize("text", ["[webhooks", None], ids=["no TOML", "no file"])
def test_without_a_configuration_it_says_what_it_can(setup: SetUp, text: str | None) -> None:
    if text is None:
        setup.file.unlink(missing_ok=True)
        setup.config = ""
    else:
        setup.file.write_text(text)
    found = setup.findings_as_written()
    (failed,) = failures(found)
    assert (failed["check"], failed["subject"]) == ("configuration", str(setup.file))
    assert {"daemon", "clock"} <= {one["check"] for one in found}


@pytest.mark.parametrize(
    "text", ["[webhooks\n", "[discovery]\nenabled = false\n[webhook]\n"], ids=["no TOML", "an unknown section"]
)
async def test_a_configuration_that_broke_while_posd_runs(setup: SetUp, text: str) -> None:
    """What runs is found over the socket that is named, and it does not hide that the next start would fail."""
    daemon = await started(setup)
    try:
        setup.file.write_text(text)
        done = posd("doctor", "--json", config=setup.file, socket=setup.home / "run" / "admin.sock")
    finally:
        await daemon.stop()
    assert done.returncode == 1
    found = setup.read(done)
    assert ("daemon", "ok") in {(one["check"], one["status"]) for one in found}
    (failed, *_) = failures(found)
    line = text.count("\n")
    assert (failed["check"], failed["file"], failed["line"]) == ("configuration", str(setup.file), line)
    assert failed["commands"][0].endswith(f"editor +{line} {setup.file}")


def test_a_terminal_without_tls_is_called_without(setup: SetUp) -> None:
    with Terminal(setup.terminal.directory, secure=False).on() as plain:
        setup.config += entry(plain, "SN-PLAIN")
        found = setup.findings()
    (told,) = (one for one in found if one["check"] == "terminal" and one["subject"] == "SN-PLAIN")
    assert "over HTTP, without TLS" in told["meaning"]


def test_a_pinned_terminal_is_trusted_by_its_fingerprint(setup: SetUp) -> None:
    setup.change(f'ca_file = "{setup.terminal.ca}"\n', f'fingerprint_sha256 = "{setup.terminal.fingerprint}"\n')
    assert failures(setup.findings()) == []


def test_a_certificate_for_another_name_is_right_where_that_name_is_configured(setup: SetUp) -> None:
    setup.change(setup.terminal.base_url, setup.terminal.base_url.replace("127.0.0.1", "127.0.0.2"))
    setup.config += 'server_name = "localhost"\n'
    with Terminal(setup.terminal.directory).on("127.0.0.2", setup.terminal.port):
        assert [one["subject"] for one in failures(setup.findings())] == []


@pytest.mark.parametrize("whole", [True, False], ids=["whole chain", "leaf alone"])
def test_a_certificate_of_the_shops_own_pki_is_judged_by_its_own_chain(setup: SetUp, whole: bool) -> None:
    leaf = trustme.CA().create_child_ca().issue_cert("127.0.0.1")
    certificate, key = setup.home / "shop.crt", setup.home / "shop.key"
    for part in leaf.cert_chain_pems if whole else leaf.cert_chain_pems[:1]:
        part.write_to_path(certificate, append=True)
    leaf.private_key_pem.write_to_path(key)
    key.chmod(0o640)  # its group may be given it
    setup.change("[database]", f'certificate = "{certificate}"\nprivate_key = "{key}"\n[database]')
    found = setup.findings()
    (told,) = (one["meaning"] for one in found if one["subject"] == "chain")
    assert ("2 certificates; every terminal has to trust" in told) == whole
    assert ("an intermediate CA has to follow in the file" in told) != whole
    key.chmod(0o644)
    (failed,) = failures(setup.findings())
    assert (failed["check"], failed["subject"]) == ("files", str(key))


def test_a_ca_without_its_key_is_a_warning_long_before_the_certificate_ends(setup: SetUp) -> None:
    """Payments go on until then; keeping the key elsewhere may be on purpose."""
    setup.tls.ca_key.unlink()
    (told,) = (one for one in setup.findings() if one["subject"] == str(setup.tls.ca_key))
    assert (told["check"], told["status"]) == ("files", "warning")
    assert "cannot be renewed before its end" in told["meaning"]


def test_what_the_cloud_calls_is_a_warning_where_it_cannot_be_reached_from_here(setup: SetUp) -> None:
    setup.change("[database]", f'public_url = "https://localhost:{setup.port}"\n[database]')
    setup.config += 'access_mode = "cloud"\n'
    (told,) = (one for one in setup.findings() if one["check"] == "callback")
    assert (told["subject"], told["status"]) == (f"localhost:{setup.port}", "warning")
    assert f"the service calls it for {SERIAL}; seen from here it cannot be reached" in told["meaning"]


@pytest.mark.slow
def test_a_check_that_hangs_is_named_with_its_limit_and_what_it_said_before_counts(setup: SetUp) -> None:
    setup.file.write_text(setup.config)
    over = threading.Event()

    def hanging(_: DoctorContext) -> Findings:
        yield CheckFinding(status=CheckStatus.OK, subject="first", meaning="said before")
        over.wait()

    shop = DoctorContext(setup.file, load(setup.file), ())
    first, second = examine("slow", DoctorCheck("A slow thing", hanging, 2.5), shop)
    over.set()
    assert (first.subject, first.status) == ("first", "ok")
    assert (second.subject, second.status) == ("A slow thing", "failure")
    assert "did not end within 2.5 s" in second.meaning
    assert shop.found == [first, second]


def test_a_check_that_breaks_is_told_and_the_others_go_on(setup: SetUp) -> None:
    setup.file.write_text(setup.config)

    def breaking(_: DoctorContext) -> Findings:
        yield CheckFinding(status=CheckStatus.OK, subject="first", meaning="said before")
        raise ZeroDivisionError("nothing")

    found = examine("odd", DoctorCheck("An odd thing", breaking, 60), DoctorContext(setup.file, load(setup.file), ()))
    assert [one.status for one in found] == ["ok", "failure"]
    assert "ZeroDivisionError" in found[1].meaning


@pytest.mark.slow
@pytest.mark.usefixtures("small_disks")
def test_a_disk_that_is_nearly_full(setup: SetUp, tmp_path: Path) -> None:
    """The state directory is a small disk of its own; only what runs in its namespace sees it."""
    kept = {path.relative_to(setup.state): path for path in setup.state.rglob("*") if path.is_file()}
    setup.file.write_text(setup.config)
    with small_disk(tmp_path, setup.state, "300m") as disk:
        for name, path in kept.items():
            target = disk.files / name
            target.parent.mkdir(mode=0o700, exist_ok=True)
            target.write_bytes(path.read_bytes())
            target.chmod(0o600)
        roomy = on_disk(disk.python, setup)
        disk.fill(spare=1024 * 1024)
        full = on_disk(disk.python, setup)
    assert failures(roomy) == []
    (failed,) = failures(full)
    assert (failed["check"], failed["subject"]) == ("disk", str(setup.state))
    assert "the disk is nearly full (" in failed["meaning"]
    assert f"du -xah --threshold=100M {setup.state}" in str(failed["commands"])


@pytest.mark.parametrize(
    ("sent_to", "before", "status"),
    [
        ("https://192.0.2.20:6869", timedelta(), "ok"),
        ("https://127.0.0.1:6869", timedelta(), "warning"),  # nothing on the way could have held it back
        ("https://192.0.2.20:6869", timedelta(days=3650), "warning"),  # before this machine was started
    ],
)
def test_that_terminals_get_through_is_shown_by_their_callbacks_alone(
    setup: SetUp, sent_to: str, before: timedelta, status: str
) -> None:
    with closing(sqlite3.connect(setup.database)) as db, db:
        db.execute("UPDATE transactions SET terminal = ?, sent_to = ?", (SERIAL, sent_to))
        db.execute("UPDATE events SET received_at = ?", (iso(datetime.now(UTC) - before),))
    setup.file.write_text(setup.config)
    (told,) = (one for one in setup.findings() if one["check"] == "firewall")
    assert (told["subject"], told["status"]) == (SERIAL, status)
    assert ("not looked at" in told["meaning"]) == (status == "warning")


def on_disk(python: Path, setup: SetUp) -> list[dict[str, str]]:
    command = [str(python), "-m", "posd", "--config", str(setup.file), "doctor", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    return list(json.loads(done.stdout))


#: Runs it twice, as root (so that all is imported, wherever Python is installed) and then as another user.
_AS_ANOTHER = """
    import os, sys
    from pathlib import Path
    from tests.cli.processes import posd
    file = Path(sys.argv[1])
    posd("doctor", "--json", config=file)
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    done = posd("doctor", "--json", config=file)
    print(done.stdout)
    print(posd("config", "check", "--json", config=file).stdout)
    print(*(line for line in posd("doctor", config=file).stdout.splitlines() if "may not look" in line), sep="\\n")
    print(done.stderr, file=sys.stderr)
    sys.exit(done.returncode)
"""


@pytest.mark.slow
@needs(root=True)
async def test_who_may_read_little_is_told_so_line_by_line(setup: SetUp) -> None:
    """A member of the admin group sees what posd says; what only posd and root may read is named, and is no failure."""
    group = "nogroup"
    setup.change('admin_group = ""', f'admin_group = "{group}"')
    setup.terminal.directory.chmod(0o755)  # the CA of the terminals is no secret
    daemon = await started(setup)
    try:
        found, checked, lines, code = as_another(setup)
    finally:
        await daemon.stop()
    assert failures(found) == []
    assert code == 0
    closed = {one["subject"]: one["meaning"] for one in found if "may not read" in one["meaning"]}
    assert {"callback key", "certificate files", str(setup.database)} <= set(closed)
    assert (checked["ok"], checked["problems"]) == (True, [])
    assert f"not looked at: nobody may not read {setup.tls.private_key}" in str(checked["notes"])
    assert all("nobody" in meaning for meaning in closed.values())
    (line,) = lines
    assert line.split("\t")[0:3] == ["warning", "not looked at", "nobody"]
    assert "files (callback key), files (certificate files)" in line
    assert line.endswith(f"sudo posd --config {setup.file} doctor")
    assert "posd says of it: valid for" in closed[str(setup.tls.certificate)]
    told = {(one["check"], one["subject"]): one["meaning"] for one in found}
    assert "posd answers with its certificate" in told["callback", f"127.0.0.1:{setup.port}"]
    assert "nobody may use it; its group is nogroup" in told["access", str(setup.home / "run" / "admin.sock")]


def as_another(setup: SetUp) -> tuple[list[dict[str, str]], dict[str, object], list[str], int]:
    """Return what doctor and config check find as another user, doctor's lines of what it may not see, and its code."""
    command = [sys.executable, "-c", textwrap.dedent(_AS_ANOTHER), str(setup.file)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=2 * PATIENCE, check=False, cwd=Path(__file__).parents[3]
    )
    assert done.stderr.strip() == "", done.stderr
    found, checked, *lines = filter(None, done.stdout.splitlines())
    return list(json.loads(found)), json.loads(checked), lines, done.returncode


async def test_a_daemon_that_hangs_is_not_taken_for_none(setup: SetUp) -> None:
    daemon = await started(setup)
    assert daemon.process is not None
    (setup.home / "run" / "admin.sock").unlink()
    (setup.home / "run" / "till.sock").unlink()
    try:
        found = setup.findings_as_written(1)
    finally:
        await daemon.stop(signal.SIGTERM)
    (told,) = (one for one in found if one["check"] == "daemon")
    assert told["status"] == "failure"
    assert f"process {daemon.process.pid if daemon.process else ''}" in told["meaning"]


def test_a_person_reads_the_daemons_times_in_the_local_zone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    at = "2026-11-20T14:02:11.123Z"
    found = CheckFinding(
        status=CheckStatus.WARNING, subject="webhook listener", meaning=f"away until {at}", check="daemon"
    )
    _group(Output(as_json=False), "Daemon", [found])
    seen = capsys.readouterr().out
    assert times.moment(at, date=True) in " ".join(seen.split())


def test_a_cure_names_the_file_that_has_the_terminal(setup: SetUp) -> None:
    """A key that is missing is written into the section of the terminal; what is wrong is corrected where it stands."""
    section = next(part for part in setup.config.split("[[terminals]]\n")[1:] if SERIAL in part).partition("[")[0]
    setup.change(f"[[terminals]]\n{section}", "")
    further = setup.home / "config.d" / "10-terminals.toml"
    further.parent.mkdir()
    rows = [line for line in section.splitlines() if line and not line.startswith("base_url")]
    further.write_text("\n".join(["# the shop's", "[[terminals]]", *rows, "[discovery]", "enabled = false", ""]))
    setup.config = setup.config.replace("[discovery]\nenabled = false\n", "")
    (failed,) = (one for one in failures(setup.findings()) if one["check"] == "terminal")
    assert failed["commands"][-1].endswith(f"editor +2 {further}")
    further.write_text(
        further.read_text().replace("# the shop's\n", "").replace(str(setup.terminal.ca), "/nowhere/ca.pem")
    )
    (named,) = (one for one in failures(setup.findings()) if one["check"] == "configuration")
    assert (named["file"], named["commands"][-1].split()[-1]) == (str(further), str(further))
