"""`posd doctor` on healthy set-ups (output, absence of changes, network, unit) and on broken set-ups: one line names
the fault, and no other line reports its consequences.
"""

import ast
import asyncio
import json
import os
import pwd
import re
import shlex
import shutil
import socket
import sqlite3
import ssl
import subprocess
import threading
import tomllib
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack, closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from string import Formatter
from uuid import uuid4

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from posd.base.times import iso
from posd.cli import doctor
from posd.cli.app import times
from posd.cli.app.output import Output
from posd.cli.doctor import context, service
from posd.cli.doctor.command import CHECKS, DoctorCheck, examine, show_group
from posd.cli.doctor.context import CheckFinding, CheckStatus, DoctorContext, Findings, texts
from posd.config import load
from posd.config import parse as configuration
from posd.simulator import Settings, Simulator
from posd.terminals.attempt import ReplyLost
from posd.tls import certificate as dates
from posd.tls import issue
from posd.tls.files import TlsError, TlsFiles, files_in
from tests.cli.doctor.conftest import (
    OF_THIS_MACHINE,
    SERIAL,
    STOPPED,
    Found,
    SetUp,
    Terminal,
    entry,
    failures,
    read,
    running,
    traces,
    warnings,
)
from tests.e2e.test_distrust import refuse
from tests.rig.certificates import OLD_STYLE, PrivateCa
from tests.rig.command_lines import parse
from tests.rig.commands import PATIENCE, posd, posd_as_nobody, posd_on_terminal
from tests.rig.daemon import Daemon
from tests.rig.needs import needs
from tests.rig.slow import named_quick
from tests.rig.tables import there
from tests.rig.tmpfs import small_disk
from tests.rig.waits import until
from tests.store.filled import filling

NOBODY = pwd.getpwnam("nobody")


@dataclass(frozen=True)
class Fault:
    """A row of faults.toml, which describes the fields."""

    check: str
    subject: str
    words: str
    shell: str = ""
    change: tuple[str, str] | None = None
    add: str = ""
    expired: bool = False
    key: str | None = None
    cured: bool = False
    root: bool = False
    unit: str | None = None
    status: str = "failure"


Cause = Callable[[SetUp, ExitStack], object]


def listener_for(address: str) -> Cause:
    """Replace the listener's certificate."""
    return lambda setup, _: issue.init(setup.state / "tls", names=["localhost"], addresses=[address])


def terminal_for(*addresses: str, names: tuple[str, ...] = ()) -> Cause:
    """Start the terminal with another certificate."""

    def cause(setup: SetUp, stack: ExitStack) -> None:
        issue.init(setup.terminal.directory, names=names, addresses=addresses)
        other = stack.enter_context(Terminal(setup.terminal.directory).on())
        setup.change(setup.terminal.base_url, other.base_url)

    return cause


def own_pair(setup: SetUp, *_: object, address: str = "127.0.0.1") -> TlsFiles:
    """Configure a pair of the shop's own PKI."""
    made = issue.init(setup.directory / "own", names=["localhost"], addresses=[address])
    setup.change("[database]", f'certificate = "{made.certificate}"\nprivate_key = "{made.private_key}"\n[database]')
    return made


def own_key_encrypted(setup: SetUp, *_: object) -> None:
    key = own_pair(setup).private_key
    private, cipher = load_pem_private_key(key.read_bytes(), None), BestAvailableEncryption(b"a passphrase")
    key.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, cipher))


def port_of_metrics_taken(setup: SetUp, stack: ExitStack) -> None:
    setup.metrics = stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
    setup.config += f'[metrics]\nlisten = "127.0.0.1:{setup.metrics}"\n'


def database_of_newer_posd(setup: SetUp, *_: object) -> None:
    with closing(sqlite3.connect(setup.database)) as db:
        db.execute("PRAGMA user_version = 999")


def terminal_off(setup: SetUp, stack: ExitStack) -> None:
    free = stack.enter_context(socket.socket())
    free.bind(("127.0.0.1", 0))  # the socket is bound but not listening, so that no other program gets the port
    setup.change(setup.terminal.base_url, f"https://127.0.0.1:{free.getsockname()[1]}")


def terminal_without_tls(setup: SetUp, stack: ExitStack) -> None:
    plain = stack.enter_context(Terminal(setup.terminal.directory, secure=False).on())
    setup.change(setup.terminal.base_url, f"https://127.0.0.1:{plain.port}")


def old_style(authority: PrivateCa) -> Cause:
    """Start the terminal with a chain that strict rules refuse."""

    def cause(setup: SetUp, stack: ExitStack) -> None:
        files = files_in(setup.terminal.directory.with_name("old"))
        ca, leaf = authority.write(files.ca_certificate.parent, "127.0.0.1")
        ca.rename(files.ca_certificate)
        leaf.certificate.rename(files.certificate)
        leaf.private_key.rename(files.private_key)
        terminal = stack.enter_context(Terminal(files.ca_certificate.parent).on())
        setup.change(setup.terminal.base_url, terminal.base_url)
        setup.change(str(setup.terminal.ca), str(terminal.ca))

    return cause


#: Name of a fault -> function that causes the fault, if faults.toml cannot describe the whole cause.
CAUSES: dict[str, Cause] = {
    "expired": listener_for("127.0.0.1"),
    "not_for_address": listener_for("10.9.9.9"),
    "ca_waits": lambda setup, _: issue.renew(setup.state / "tls", new_ca=True),
    "own_expired": own_pair,
    "own_encrypted": own_key_encrypted,
    "own_missing": lambda setup, _: own_pair(setup).private_key.unlink(),
    "state_not_made": own_pair,
    "port_taken": lambda setup, stack: stack.enter_context(socket.create_server(("127.0.0.1", setup.port))),
    "metrics_taken": port_of_metrics_taken,
    "newer": database_of_newer_posd,
    "terminal_off": terminal_off,
    "terminal_without_tls": terminal_without_tls,
    "terminal_misnamed": terminal_for(names=("a.local",)),
    "terminal_expired": terminal_for("127.0.0.1"),
    "clocks_apart": lambda setup, _: setattr(setup.terminal, "ahead", -timedelta(minutes=7)),
    **{f"terminal_{name.replace(' ', '_')}": old_style(authority) for name, authority in OLD_STYLE.items()},
}
FAULTS = {
    name: Fault(**row) for name, row in tomllib.loads(Path(__file__).with_name("faults.toml").read_text()).items()
}
CASES = [
    pytest.param(name, marks=[*case.marks, *([needs(root=True)] if FAULTS[name].root else [])], id=name)
    for name, case in zip(
        FAULTS, named_quick(FAULTS, ("key_is_none", "port_taken", "callback_key_lost", "closed_key")), strict=True
    )
]


UNIT = """
# a comment
[Unit]
Description=posd
[Service]
ExecStart=/usr/bin/posd --config {file} run
StateDirectory=posd \\
    posd/backups
ReadWritePaths=/
ProtectHome=yes
LoadCredential=other:/nonexistent
"""


def unit_directory(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Replace the system's unit directories by lib and etc, which overrides lib. Return lib."""
    places = home / "lib", home / "etc"
    for place in places:
        (place / f"{service.UNIT}.d").mkdir(parents=True)
    monkeypatch.setattr(service, "DIRECTORIES", tuple(map(str, places)))
    return places[0]


def write_unit(units: Path, file: Path, text: str, name: str = "a.conf") -> None:
    """Write the unit, and a drop-in with a text."""
    (units / service.UNIT).write_text(UNIT.format(file=file))
    (units / f"{service.UNIT}.d" / name).write_text(f"[Service]\n{text}\n")


def cause(name: str, setup: SetUp, stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Cause a fault. Return the values of the set-up for the texts of the fault."""
    fault = FAULTS[name]
    with monkeypatch.context() as short:
        if fault.expired:
            short.setattr(issue, "SERVER_LIFETIME", timedelta(hours=23))
        if name in CAUSES:
            CAUSES[name](setup, stack)
    known = {"home": setup.directory, "state": setup.state, "port": setup.port, "metrics": setup.metrics}
    known["url"] = setup.terminal.base_url
    if fault.unit is not None:
        known["units"] = units = unit_directory(setup.directory, monkeypatch)
        write_unit(units, setup.config_file, fault.unit.format_map(known))
    if fault.change is not None:
        old, new = fault.change
        setup.change(old.format_map(known), new.format_map(known))
    setup.config += fault.add.format_map(known)
    subprocess.run(fault.shell.format_map(known), shell=True, check=True)
    return known


@pytest.mark.parametrize("name", CASES)
def test_each_fault_is_named_by_its_own_line_only(setup: SetUp, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`posd config check` also names a fault that keeps posd from starting. The named commands repair the fault."""
    fault = FAULTS[name]
    if fault.root:  # doctor finds the user of posd by the owner of the state directory
        setup.config_file.write_text(setup.config)
        for path in (setup.directory, *setup.directory.rglob("*")):
            os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid)
    with ExitStack() as stack:
        known = cause(name, setup, stack, monkeypatch)
        found = setup.findings()
        before = traces(setup.directory)
        code, problems = setup.check()
        assert traces(setup.directory) == before
        starts = fault.key in (None, "metrics.textfile") or fault.unit is not None  # posd itself reads no unit
        if not starts and setup.state.stat().st_uid == os.geteuid():
            code_of_start, _ = asyncio.run(Daemon(setup.directory, setup.config).cannot_start())
            assert code_of_start in (1, 2), "posd also names the fault at its start"
    subject = fault.subject.format_map(known)
    told = failures(found)
    if fault.status == "warning":
        assert told == []
        told = [one for one in found if (one["check"], one["subject"]) == (fault.check, subject)]
        assert warnings(found) - OF_THIS_MACHINE == {(fault.check, subject), ("callback", f"127.0.0.1:{setup.port}")}
    (one,) = told
    assert (one["status"], one["check"], one["subject"]) == (fault.status, fault.check, subject)
    assert fault.words.format_map(known) in one["meaning"]
    assert (bool(one["todo"]), bool(one["commands"])) == (True, True)
    assert (one["key"] if one["refused"] else None) == fault.key
    assert (code, problems) == ((0, []) if fault.key is None else (2, [(str(setup.config_file), fault.key)]))
    if fault.key is not None:
        assert (one["file"], one["line"] is not None) == (str(setup.config_file), fault.key != "")
    if fault.cured:
        setup.cure(one["commands"])
        assert failures(setup.findings_as_written()) == []


def test_with_an_untrusted_clock_nothing_is_renewed_and_a_terminals_time_is_shown(
    setup: SetUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {"status": "degraded", "detail": "the clock says 2025-12-03 06:55:30 UTC", "todo": "x", "commands": []}
    monkeypatch.setattr(context.DoctorContext, "health", lambda _shop, name: said if name == "clock" else {})
    issue.init(setup.state / "tls", names=["localhost"], addresses=["10.9.9.9"])
    setup.terminal.ahead = timedelta(days=365)
    lacking, posd, terminal = (one for one in failures(setup.findings()) if one["check"] in ("certificate", "clock"))
    assert (lacking["check"], " Dec 2025 " in posd["meaning"]) == ("certificate", True)
    assert "confirm it if it is right" in lacking["todo"], "posd may distrust a clock that is right"
    assert re.search(r"its clock is 36.* [dh] ahead of", terminal["meaning"])
    assert f"clock shows {(datetime.now().astimezone() + timedelta(days=365)):%d %b %Y}" in terminal["meaning"]
    assert (
        lacking["commands"] == posd["commands"] == terminal["commands"] == [f"posd --config {setup.config_file} clock"]
    )


@pytest.mark.parametrize(("clock", "status"), [("ok", "failure"), ("degraded", "ok")])
def test_a_wrong_certificate_date_fails_only_if_the_clock_is_trusted_and_no_pin_is_suggested(
    setup: SetUp, clock: str, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """posd checks dates only by a trusted clock. Otherwise posd sends payments, and doctor must report no failure."""
    said = {"status": clock, "detail": "2025-12-03T06:55:30.000Z", "todo": "", "commands": []}
    with ExitStack() as stack:
        cause("terminal_expired", setup, stack, monkeypatch)
        monkeypatch.setattr(context.DoctorContext, "health", lambda _shop, name: said if name == "clock" else {})
        (found,) = (one for one in setup.findings() if one["check"] == "terminal")
    assert (found["status"], "While posd trusts this clock, it sends the terminal no payment" in found["meaning"]) == (
        status,
        clock == "ok",
    )
    assert not [command for command in found["commands"] if "pin" in command]


@pytest.mark.parametrize(("user", "behind", "root"), [(0, "", True), (0, "ana", False), (1000, "", False)])
def test_a_person_who_used_sudo_gets_commands_with_sudo(
    user: int, behind: str, root: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: user)
    monkeypatch.setenv("SUDO_USER", behind)
    assert context.by_root() is root


def test_for_a_ca_not_yet_valid_doctor_suggests_only_to_check_the_clock(
    setup: SetUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine's clock is behind. A new CA on every terminal would not repair the fault."""
    monkeypatch.setattr(issue, "BACKDATED", timedelta(days=-1))
    with suppress(TlsError):  # the finding names the dates that are in the future
        issue.init(setup.state / "tls", names=["localhost"], addresses=["127.0.0.1"], overwrite=True)
    (ca,) = (one for one in failures(setup.findings()) if one["subject"] == str(setup.state / "tls" / "ca.crt"))
    assert ca["commands"] == ["timedatectl"]


# Texts. Each text is used, its placeholders can be filled, and its commands are valid.


#: Texts that several findings share.
REMEDIES = texts()["remedy"]
CODES = [(check, name) for check, group in texts().items() if group is not REMEDIES for name in group]


class Filler(str):
    """Values that a check would provide."""

    __slots__ = ()

    def __format__(self, _: str) -> str:
        return str(self)

    def __getattr__(self, _: str) -> "Filler":
        return self


def fields(*templates: str) -> set[str]:
    named = (field for template in templates for _, field, _, _ in Formatter().parse(template) if field)
    return {field.partition(".")[0] for field in named}


def test_each_finding_gets_all_its_values_and_its_commands_are_valid(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("")
    shop = DoctorContext(file, configuration("", file=file), (), pid=1)
    for check, name, remedy in [*((*code, "") for code in CODES), *(("certificate", "ends", one) for one in REMEDIES)]:
        text = texts()[check][name]
        text = {"means": text} if isinstance(text, str) else {**text, **REMEDIES.get(remedy, {})}
        needed = fields(text["means"], text.get("do", ""), *text.get("commands", ()))
        given = {field: Filler("x") for field in needed - {"subject", "key"} if not hasattr(shop, field)}
        found = shop.tell(f"{check}.{name}", "x", key="webhooks.listen", remedy=remedy, **given)
        assert found.meaning
        for command in found.commands:
            if typed := re.fullmatch(r"(?:sudo (?:-u \S+ )?|runuser -u \S+ -- )?posd (.*?)(?: > \S+)?", command):
                parse(shlex.split(typed[1]))


def test_each_finding_of_a_check_has_its_text() -> None:
    said = set()
    for path in (*Path(str(doctor.__file__)).parent.glob("*.py"), *map(Path, (dates.__file__, issue.__file__))):
        said |= {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}
    whole = {text for text in said if isinstance(text, str) and re.fullmatch(rf"({'|'.join(texts())})\.[a-z_]+", text)}
    keys = {"database.path", "configuration", "terminal"}
    assert {text for text in whole - keys if tuple(text.split(".")) not in CODES} == set()


# A healthy set-up.


NAMES = {"check", "subject", "status", "meaning", "todo", "commands", "key", "file", "line", "refused", "unseen"}
ADMIN_SOCKET = Path("run") / "admin.sock"


def test_without_a_daemon_the_checks_that_need_no_daemon_are_ok(setup: SetUp) -> None:
    found = setup.findings()
    assert failures(found) == []
    assert warnings(found) - OF_THIS_MACHINE == {("callback", f"127.0.0.1:{setup.port}")}
    (down,) = (one for one in found if one["status"] == "failure")
    assert (down["check"], down["subject"]) == ("daemon", "posd")
    assert {one["check"] for one in found} == set(CHECKS)
    assert all(set(one) == NAMES and one["meaning"] for one in found)
    assert all(one["todo"] for one in found if one["status"] == "warning")
    assert {one["check"] for one in found if one["status"] != "ok" and not one["commands"]} == {"callback"}


async def test_with_a_daemon_all_checks_are_ok_and_nothing_is_started_on_a_terminal(setup: SetUp) -> None:
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
    """Start a payment that the terminal refuses. Afterwards posd has written data, and no further write is due."""
    reply = await daemon.call("PUT", f"/transactions/{uuid4()}", {"amount": {"subtotal_iva0": 1}})
    assert reply.json["phase"] == "final"

    async def freed() -> bool:  # the end of the call frees the terminal, and no message reports this
        return not (await daemon.call("GET", "/terminals")).json["terminals"][0]["transaction"]

    await until(freed)


@pytest.mark.parametrize("state", ["stopped", "killed", "running"])
async def test_doctor_changes_nothing(setup: SetUp, state: str) -> None:
    """After a kill, the last commit is in the WAL. doctor must read the WAL without a checkpoint."""
    async with AsyncExitStack() as stack:
        setup.config_file.write_text(setup.config)
        if state != "stopped":
            daemon = await stack.enter_async_context(running(setup))
            await refused_payment(daemon)
        if state == "killed":
            await daemon.kill()
        wal = [path.stat().st_size for path in setup.state.glob("*-wal")]
        assert state == "running" or (bool(wal), all(wal)) == (state == "killed", True)
        before = traces(setup.directory)
        found = setup.findings_as_written(0 if state == "running" else STOPPED)
        setup.check()
        after = traces(setup.directory)
    assert any("no damage found" in one["meaning"] for one in found)
    if state == "running":  # connections share this memory, and mark their reads in this memory
        shared = str(setup.database.with_name("posd.db-shm"))
        assert (bool(before.pop(shared)), bool(after.pop(shared))) == (True, True)
    assert after == before


@pytest.mark.slow
def test_a_person_sees_grouped_findings_with_cures_and_a_summary(setup: SetUp) -> None:
    setup.key.chmod(0o644)
    setup.config_file.write_text(setup.config)
    seen = posd_on_terminal("--config", str(setup.config_file), "doctor", socket=setup.directory / "none.sock")
    assert (seen.returncode, seen.fits()) == (STOPPED, True)
    lines = [line.rstrip() for line in seen.screen.split("\n")]
    for check in CHECKS.values():
        assert check.title in lines
        assert f"{check.title} (up to {check.seconds:g} s)" in seen.screen, "progress names the limit"
    for begin, part in (("  FAILURE ", "callback.key"), ("    ", " chmod 0600 "), ("2 failures, ", "")):
        assert any(line.startswith(begin) and part in line for line in lines), begin
    assert "\x1b[1;31m" in seen.written, "a failure is red"


async def test_a_missing_or_broken_configuration_is_reported_as_a_failure(setup: SetUp) -> None:
    """doctor finds the running posd by the named socket. doctor also reports that the next start would fail."""
    (missing,) = failures(setup.findings_as_written())
    assert (missing["check"], missing["subject"]) == ("configuration", str(setup.config_file))
    async with running(setup):
        for line, text in ((3, "[discovery]\nenabled = false\n[webhook]\n"), (1, "[webhooks\n")):
            setup.config_file.write_text(text)
            done = posd("doctor", "--json", config=setup.config_file, socket=setup.directory / ADMIN_SOCKET)
            (failed, *_), checked = failures(read(done)), {(one["check"], one["status"]) for one in read(done)}
            assert (done.returncode, ("daemon", "ok") in checked) == (1, True)
            assert (failed["check"], failed["file"], failed["line"]) == ("configuration", str(setup.config_file), line)
            assert failed["commands"][0].endswith(f"editor +{line} {setup.config_file}")
    (failed,) = failures(found := setup.findings_as_written())
    assert (failed["check"], {"daemon", "clock"} <= {one["check"] for one in found}) == ("configuration", True)


def test_a_terminal_is_ok_without_tls_and_with_a_pin_and_with_a_server_name(setup: SetUp) -> None:
    terminal = setup.terminal
    pin = f'fingerprint_sha256 = "{terminal.leaf.fingerprint}"\n'
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
    certificate, key = setup.directory / "shop.crt", setup.directory / "shop.key"
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
    (told,) = of(setup.findings(), "callback")
    assert (told["subject"], told["status"]) == (f"localhost:{setup.port}", "warning")
    assert f"calls it for {SERIAL}; a call from this machine failed: it cannot be reached" in told["meaning"]


@pytest.mark.parametrize(
    ("hangs", "words"),
    [pytest.param(True, "did not end within 2.5 s", marks=pytest.mark.slow), (False, "ZeroDivisionError")],
)
def test_a_hanging_or_failed_check_is_reported_and_its_earlier_findings_count(
    setup: SetUp, hangs: bool, words: str
) -> None:
    setup.config_file.write_text(setup.config)
    over = threading.Event()

    def checking(_: DoctorContext) -> Findings:
        yield CheckFinding(status=CheckStatus.OK, subject="first", meaning="said before")
        if not hangs:
            raise ZeroDivisionError("nothing")
        over.wait()

    shop = DoctorContext(setup.config_file, load(setup.config_file), ())
    first, second = examine("odd", DoctorCheck("An odd thing", checking, 2.5 if hangs else 60), shop)
    over.set()
    assert (first.subject, first.status, second.subject, second.status) == ("first", "ok", "An odd thing", "failure")
    assert (words in second.meaning, shop.found) == (True, [first, second])


@pytest.mark.slow
@pytest.mark.usefixtures("small_disks")
def test_a_nearly_full_disk_is_a_failure(setup: SetUp, tmp_path: Path) -> None:
    """The state directory is a small disk. Only processes in the test's namespace see the disk."""
    kept = shutil.copytree(setup.state, tmp_path / "kept")
    setup.config_file.write_text(setup.config)
    with small_disk(tmp_path, setup.state, "300m") as disk:
        shutil.copytree(kept, disk.files, dirs_exist_ok=True)
        command = [str(disk.python), "-m", "posd", "--config", str(setup.config_file), "doctor", "--json"]

        def failed() -> list[Found]:
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
            return failures(json.loads(done.stdout))

        assert failed() == []
        disk.fill(spare=1024 * 1024)
        (full,) = failed()
        largest = f"import os; os.system({full['commands'][-1].removeprefix('sudo ')!r})"
        done = subprocess.run([str(disk.python), "-c", largest], capture_output=True, text=True, check=True)
    assert "posd.db" in done.stdout, "the command lists the files of a small disk too"
    assert (full["check"], full["subject"]) == ("disk", str(setup.state))
    assert "the disk is nearly full (" in full["meaning"]
    assert "never delete posd.db*, callback.key or tls/" in full["todo"]


@pytest.mark.parametrize(
    ("host", "sent_to", "before", "status", "words"),
    [
        ("127.0.0.9", "https://192.0.2.20:6869", timedelta(), "ok", "callbacks of this terminal arrive"),
        # A call on loopback passes no firewall.
        ("127.0.0.9", "https://127.0.0.1:6869", timedelta(), "warning", "not checked: only a callback"),
        ("127.0.0.1", "https://127.0.0.1:6869", timedelta(), "ok", "not checked: this terminal is on this machine"),
        # The payment is older than the boot.
        ("127.0.0.9", "https://192.0.2.20:6869", timedelta(days=3650), "warning", "not checked: only a callback"),
    ],
)
def test_only_callbacks_prove_that_terminals_reach_this_machine(
    setup: SetUp, host: str, sent_to: str, before: timedelta, status: str, words: str
) -> None:
    setup.change(setup.terminal.base_url, setup.terminal.base_url.replace("127.0.0.1", host))
    with closing(sqlite3.connect(setup.database)) as db, db:
        db.execute("UPDATE transactions SET terminal = ?, sent_to = ?", (SERIAL, sent_to))
        db.execute("UPDATE events SET received_at = ?", (iso(datetime.now(UTC) - before),))
    (told,) = of(setup.findings(), "firewall")
    assert (told["subject"], told["status"], words in told["meaning"]) == (SERIAL, status, True), told


async def test_payments_that_wait_for_a_person_are_reported(setup: SetUp) -> None:
    with filling(setup.database) as filled:
        filled.attempt(filled.intent(2), ReplyLost("cut"))
    async with running(setup):
        told = [one for one in setup.findings(0) if one["subject"] == "payments"]
    assert {(one["check"], one["status"], *one["commands"]) for one in told} == {
        ("daemon", "warning", f"posd --config {setup.config_file} list --attention")
    }


@pytest.mark.slow
@needs(root=True)
async def test_a_check_without_the_needed_rights_says_so_and_is_not_a_failure(setup: SetUp) -> None:
    """A member of the admin group sees posd's reports. doctor names files that only posd and root can read, and reports
    no failure for these files.
    """
    setup.change('admin_group = ""', 'admin_group = "nogroup"')
    setup.terminal.directory.chmod(0o755)  # the CA for the terminals is not secret
    async with running(setup):
        lines = ("doctor --json", "config check --json", "doctor")
        said, config_check, piped = (posd_as_nobody(setup.config_file, line) for line in lines)
    assert (said.returncode, said.stderr) == (0, "")
    assert failures(said.document) == []
    told = {one["subject"]: one["meaning"] for one in said.document}
    for subject in ("callback key", "certificate files", str(setup.database)):
        assert "nobody may not read" in told[subject]
    assert "posd reports: valid for" in told[str(setup.tls.certificate)]
    assert "posd answers with its certificate" in told[f"127.0.0.1:{setup.port}"]
    assert "nobody may use it; its group is nogroup" in told[str(setup.directory / ADMIN_SOCKET)]
    checked = config_check.document
    assert (checked["ok"], checked["problems"]) == (True, [])
    assert f"not checked: nobody may not read {setup.tls.private_key}" in str(checked["notes"])
    (line,) = (line for line in piped.lines if line.startswith("warning\tnot checked\tnobody\t"))
    assert line.endswith(f"sudo posd --config {setup.config_file} doctor")


async def test_a_hanging_daemon_is_not_reported_as_stopped(setup: SetUp) -> None:
    async with running(setup) as daemon:
        for socket in ("admin.sock", "till.sock"):
            (setup.directory / "run" / socket).unlink()
        (told,) = of(setup.findings_as_written(1), "daemon")
        assert (told["status"], f"process {there(daemon.process).pid}" in told["meaning"]) == ("failure", True)


def test_a_person_sees_the_daemons_times_in_the_local_zone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    at = "2026-11-20T14:02:11.123Z"
    found = CheckFinding(status=CheckStatus.WARNING, subject="listener", meaning=f"away until {at}", check="daemon")
    show_group(Output(as_json=False), "Daemon", [found])
    assert times.moment(at, date=True) in " ".join(capsys.readouterr().out.split())


def test_a_cure_names_the_configuration_file_of_the_terminal(setup: SetUp) -> None:
    """A missing key is added to the section of the terminal. A wrong key is corrected in place."""
    section = next(part for part in setup.config.split("[[terminals]]\n")[1:] if SERIAL in part).partition("[")[0]
    setup.change(f"[[terminals]]\n{section}", "")
    further = setup.directory / "config.d" / "10-terminals.toml"
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


# The network: the callback address, devices that refuse the certificate, terminals found by mDNS.


def of(found: list[Found], check: str) -> list[Found]:
    return [one for one in found if one["check"] == check]


async def test_a_callback_address_without_posd_is_a_failure(setup: SetUp) -> None:
    issue.init(setup.state / "tls", names=[], addresses=["127.0.0.1", "127.0.0.2"])
    setup.change("[database]", 'advertise_host = "127.0.0.2"\n[database]')
    async with running(setup):
        (silent,) = failures(setup.findings(1))
        with Terminal(setup.terminal.directory).on("127.0.0.2", setup.port):
            (strange,) = failures(setup.findings(1))
    subjects = {(failed["check"], failed["subject"]) for failed in (silent, strange)}
    assert subjects == {("callback", f"127.0.0.2:{setup.port}")}
    assert f"{SERIAL} will call this address; posd's listener there cannot be reached" in silent["meaning"]
    assert "another server answers there: it shows a certificate of " in strange["meaning"]
    assert setup.terminal.leaf.fingerprint in strange["meaning"]


async def test_a_key_without_its_certificate_is_reported_once(setup: SetUp) -> None:
    """posd keeps its earlier certificate. The earlier certificate is a consequence, not a separate failure."""
    async with running(setup):
        shutil.copy(setup.terminal.directory / "server.crt", setup.tls.certificate)
        found = setup.findings(1)
    (failed,) = failures(found)
    assert (failed["check"], failed["subject"]) == ("certificate", str(setup.tls.private_key))
    (told,) = of(found, "callback")
    assert (told["status"], "posd still shows another certificate" in told["meaning"]) == ("warning", True)


async def test_a_listener_on_another_port_than_configured_is_reported(setup: SetUp) -> None:
    async with running(setup):
        setup.change(f"127.0.0.1:{setup.port}", "127.0.0.1:1")
        found = setup.findings(1)
    (failed,) = failures(found)
    assert (failed["check"], failed["subject"]) == ("port", "127.0.0.1:1")
    assert f"posd listens on port {setup.port}, not on" in failed["meaning"]
    assert of(found, "callback")[0]["subject"] == f"127.0.0.1:{setup.port}"


async def refused_by(daemon: Daemon, port: int, least: int) -> list[Found]:
    """Refuse the certificate from two addresses. Return posd's report after it has counted this many refusals."""
    for source in ("127.0.0.1", "127.0.0.3"):
        await asyncio.to_thread(refuse, ssl.create_default_context(cadata=None), port, "127.0.0.1", source)

    async def counted() -> list[Found]:
        found = (await daemon.call("GET", "/health")).json["checks"]["certificate"]["refused_by"]
        return found if len(found) >= least else []

    return await until(counted)


async def test_devices_that_refuse_the_certificate_are_named_with_what_to_do(setup: SetUp) -> None:
    async with running(setup) as daemon:
        await refused_by(daemon, setup.port, 2)
        found = setup.findings(1)
    told = {one["subject"]: one for one in of(found, "callback")}
    ours, other = told["127.0.0.1"], told["127.0.0.3"]
    assert ([one["subject"] for one in failures(found)], other["status"]) == (["127.0.0.1"], "warning")
    assert f"terminal {SERIAL} has refused the certificate" in ours["meaning"]
    assert "a device that is not a terminal of ours" in other["meaning"]
    assert all("ca.crt" in one["todo"] for one in (ours, other))


async def test_a_check_by_this_machine_does_not_count_as_a_terminals_refusal(setup: SetUp) -> None:
    own_pair(setup, address="10.9.9.9")
    async with running(setup) as daemon:
        (unnamed,) = failures(setup.findings(1))  # the terminal of the set-up uses an address of this machine
        assert "the certificate does not name it: every callback is refused" in unnamed["meaning"]
        assert (await daemon.call("GET", "/health")).json["checks"]["certificate"]["refused_by"] == []
    setup.change(setup.terminal.base_url, "https://127.0.0.9:1")
    async with running(setup) as daemon:
        assert [item["address"] for item in await refused_by(daemon, setup.port, 1)] == ["127.0.0.3"]
        assert "refuses it" not in (await daemon.call("GET", "/health")).json["checks"]["certificate"]["detail"]


@pytest.mark.slow
async def test_while_posd_does_not_run_doctor_finds_terminals_by_mdns_and_names_missing_ones(setup: SetUp) -> None:
    serial, state = f"SN-{setup.port}", setup.directory / "simulated"  # a serial that no other test announces
    setup.change("enabled = false", 'interfaces = ["127.0.0.1"]')
    setup.change(f'serial = "{SERIAL}"', 'serial = "SN-CONFIGURED"')
    for more in (serial, "SN-GONE"):
        setup.config += f'[[terminals]]\nserial = "{more}"\nca_file = "{setup.terminal.ca}"\n'
    setup.config_file.write_text(setup.config)
    state.mkdir()
    made = files_in(setup.terminal.directory)
    pair = {"certificate": made.certificate, "private_key": made.private_key}
    terminal = Simulator(Settings(state=state, serial=serial, mdns_interfaces=("127.0.0.1",), **pair))
    async with terminal, asyncio.timeout(PATIENCE):
        while True:  # multicast packets are sometimes lost, and an announcement takes over a second
            found = read(await asyncio.to_thread(posd, "doctor", "--json", config=setup.config_file))
            if len(failures(found)) == 1:
                break
    told = {one["subject"]: one for one in of(found, "terminal")}
    assert {name: one["status"] for name, one in told.items()} == {
        "SN-CONFIGURED": "ok",
        serial: "ok",
        "SN-GONE": "failure",
    }
    assert "(found by mDNS): it answers over TLS" in told[serial]["meaning"]
    assert "does not announce itself over mDNS" in told["SN-GONE"]["meaning"]
    (heard,) = of(found, "mdns")
    assert (heard["status"], "SN-GONE" in heard["meaning"]) == ("warning", True)


# The effect of posd's unit: the user, hidden paths, restrictions, and passed credentials.


def test_a_systemd_unit_is_read_with_its_drop_in_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, units = Path("/x/config.toml"), unit_directory(tmp_path, monkeypatch)
    assert service.read(file) is None
    strict = "ProtectSystem=strict\nReadWritePaths=\nReadWritePaths=/srv/posd\nSupplementaryGroups=a"
    write_unit(units, file, strict, "20.conf")
    write_unit(units, file, "SupplementaryGroups=b", "10.conf")
    write_unit(tmp_path / "etc", file, "SupplementaryGroups=c", "10.conf")
    found = service.read(file)
    assert found is not None
    assert found.words("SupplementaryGroups") == ["c", "a"], "the file of this name in the later directory counts"
    assert found.made == [Path("/var/lib/posd"), Path("/var/lib/posd/backups")]
    for path, read_only in (("/srv/posd/posd.db", False), ("/var/lib/posd/x", False), ("/srv/other", True)):
        assert found.read_only(Path(path)) == read_only, path
    for path, hidden in (("/root/ca.crt", True), ("/home/a/b", True), ("/etc/posd/ca.crt", False), ("/tmp/a", False)):
        assert found.hides(Path(path)) == hidden, path
    assert (found.credential("other"), found.credential("none")) == ("/nonexistent", None)
    assert not found.makes_certificate
    assert service.read(Path("/y/config.toml")) is None, "the unit runs another configuration"
    (tmp_path / "etc" / service.UNIT).unlink()
    (tmp_path / "etc" / service.UNIT).symlink_to("/dev/null")
    assert service.read(file) is None, "the unit is masked"
