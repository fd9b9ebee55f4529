"""`posd doctor` on healthy set-ups (output, absence of changes, network, unit) and on broken set-ups: one line names
the fault, and no other line reports its consequences.
"""

import ast
import asyncio
import contextlib
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
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, ExitStack, closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from string import Formatter
from typing import Any, NamedTuple
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
from posd.tls import authority, issue
from posd.tls import certificate as dates
from posd.tls.files import TlsError, files_in
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
from tests.cli.manual.parsing import parse
from tests.cli.processes import PATIENCE, posd, posd_as_nobody, posd_on_terminal
from tests.store.filled import filling
from tests.support.certificates import OLD_STYLE
from tests.support.daemon import Daemon
from tests.support.needs import needs
from tests.support.slow import named_quick
from tests.support.tables import there
from tests.support.tmpfs import small_disk

NOBODY = pwd.getpwnam("nobody")


class Fault(NamedTuple):
    """A fault, with check, subject and text of the only failure or warning, and with the commands that cause the fault.

    `key`: key of the configuration that keeps posd from starting or working, or None. `cured`: whether the named
    commands repair the fault. `root`: whether root causes the fault in a set-up of another user. {home}, {state},
    {port} and {metrics} in texts are the values of the set-up. A shell runs a text in `how`.
    """

    check: str
    subject: str
    words: str
    how: Callable[[SetUp, ExitStack, pytest.MonkeyPatch], Any] | str
    key: str | None = None
    cured: bool = False
    root: bool = False
    status: str = "failure"


def changed(old: str, new: str) -> Callable[..., None]:
    """Change the configuration. Both texts may contain {port} and {home}."""
    return lambda s, *_: s.change(old.format(port=s.port, home=s.home), new.format(port=s.port, home=s.home))


def added(text: str) -> Callable[..., None]:
    return lambda s, *_: setattr(s, "config", s.config + text.format(home=s.home))


def made_for(*addresses: str, expired: bool = False) -> Callable[..., None]:
    """Replace the listener's certificate."""

    def how(setup: SetUp, _: ExitStack, patch: pytest.MonkeyPatch) -> None:
        with patch.context() as short:
            short.setattr(issue, "SERVER_LIFETIME", timedelta(hours=23) if expired else issue.SERVER_LIFETIME)
            issue.init(setup.state / "tls", names=["localhost"], addresses=addresses)

    return how


def shown_by_terminal(*addresses: str, names: tuple[str, ...] = (), expired: bool = False) -> Callable[..., None]:
    """Start the terminal with another certificate."""

    def how(setup: SetUp, stack: ExitStack, patch: pytest.MonkeyPatch) -> None:
        if expired:
            patch.setattr(issue, "SERVER_LIFETIME", timedelta(hours=23))
        issue.init(setup.terminal.directory, names=names, addresses=addresses)
        other = stack.enter_context(Terminal(setup.terminal.directory).on())
        setup.change(setup.terminal.base_url, other.base_url)

    return how


def own_pair(setup: SetUp, *_: object) -> tuple[Path, Path]:
    """Configure a pair of the shop's own PKI."""
    made = issue.init(setup.home / "own", names=["localhost"], addresses=["127.0.0.1"])
    setup.change("[database]", f'certificate = "{made.certificate}"\nprivate_key = "{made.private_key}"\n[database]')
    return made.certificate, made.private_key


def own_pair_expired(setup: SetUp, _: ExitStack, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(issue, "SERVER_LIFETIME", timedelta(hours=23))
    own_pair(setup)


def own_key_encrypted(setup: SetUp, *_: object) -> None:
    _, key = own_pair(setup)
    private, cipher = load_pem_private_key(key.read_bytes(), None), BestAvailableEncryption(b"a passphrase")
    key.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, cipher))


def port_taken(setup: SetUp, stack: ExitStack, *_: object) -> None:
    stack.enter_context(socket.create_server(("127.0.0.1", setup.port)))


def port_of_metrics_taken(setup: SetUp, stack: ExitStack, *_: object) -> None:
    setup.metrics = stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
    setup.config += f'[metrics]\nlisten = "127.0.0.1:{setup.metrics}"\n'


def database_of_newer_posd(setup: SetUp, *_: object) -> None:
    with closing(sqlite3.connect(setup.database)) as db:
        db.execute("PRAGMA user_version = 999")


def terminal_off(setup: SetUp, stack: ExitStack, *_: object) -> None:
    free = stack.enter_context(socket.socket())
    free.bind(("127.0.0.1", 0))  # the socket is bound but not listening, so that no other program gets the port
    setup.change(setup.terminal.base_url, f"https://127.0.0.1:{free.getsockname()[1]}")


def terminal_without_tls(setup: SetUp, stack: ExitStack, *_: object) -> None:
    plain = stack.enter_context(Terminal(setup.terminal.directory, secure=False).on())
    setup.change(setup.terminal.base_url, f"https://127.0.0.1:{plain.port}")


def old_style(name: str) -> Callable[..., None]:
    """Start the terminal with a chain that strict rules refuse."""

    def how(setup: SetUp, stack: ExitStack, *_: object) -> None:
        files = files_in(setup.terminal.directory.with_name("old"))
        ca, leaf = OLD_STYLE[name].write(files.ca_certificate.parent, "127.0.0.1")
        ca.rename(files.ca_certificate)
        leaf.certificate.rename(files.certificate)
        leaf.private_key.rename(files.private_key)
        terminal = stack.enter_context(Terminal(files.ca_certificate.parent).on())
        setup.change(setup.terminal.base_url, terminal.base_url)
        setup.change(str(setup.terminal.ca), str(terminal.ca))

    return how


def header_of_two_lines(setup: SetUp, *_: object) -> None:
    (setup.home / "key").write_text("one\ntwo\n")
    (setup.home / "key").chmod(0o600)
    setup.config += 'headers = {X-Key = {file = "key"}}\n'


def below_a_file(was: str) -> Callable[..., None]:
    """Replace a file by a directory."""

    def how(setup: SetUp, *_: object) -> None:
        (setup.home / "file").write_text("")
        setup.change(f'= "{setup.home}/{was}"', f'= "{setup.home}/file/{was}"')

    return how


def state_below_a_file(setup: SetUp, *_: object) -> None:
    own_pair(setup)
    below_a_file("state/posd.db")(setup)


THEIRS = "cp {{home}}/terminal/server.{0} {{state}}/tls/server.{0}"
SHUT = "chown root: {{home}}/{0}; chmod 600 {{home}}/{0}"
CA, HEADER = "terminals[0].ca_file", "terminals[0].headers.X-Key"
KEY, CRT = "webhooks.private_key", "webhooks.certificate"
PATH, RUN, LISTEN, TILL = "database.path", "local_api.directory", "webhooks.listen", "local_api.till_group"
TEXTFILE, PUBLIC, INTERFACE = "metrics.textfile", "webhooks.public_url", "discovery.interface"
DB, CALLBACK_KEY, OWN_KEY = "{state}/posd.db", "{state}/callback.key", "{home}/own/server.key"
SERVER_CRT, SERVER_KEY, CA_CRT = "{state}/tls/server.crt", "{state}/tls/server.key", "{state}/tls/ca.crt"
NOT_NAMED, TAKEN = "does not name it: every callback is refused", "uses the port: posd cannot"
NO_FILE = "cannot be read (No such file"
DAMAGE = "dd status=none conv=notrunc if=/dev/zero bs=4096 seek=1 count=2"
PIN, TO_TEXTFILE = "ab" * 32, '[metrics]\ntextfile = "{home}/metrics/posd.prom"\n'
GROUP, OFF = 'till_group = "{}"', "enabled = false"

#: Name -> check, subject, text, cause, key, and other fields of a fault.
BROKEN: dict[str, Fault] = {
    "callback_key_open": Fault("files", CALLBACK_KEY, "(mode 0644)", "chmod 644 {state}/callback.key", cured=True),
    "private_key_open": Fault("files", SERVER_KEY, "(mode 0640)", "chmod 640 {state}/tls/server.key", cured=True),
    "state_open": Fault("files", "{state}", "others may put files into", "chmod 777 {state}", cured=True),
    "no_ca_key": Fault("files", "{state}/tls/ca.key", "cannot be renewed", "rm {state}/tls/ca.key", status="warning"),
    "no_group": Fault("access", "none", "does not exist", changed(GROUP.format(""), GROUP.format("none")), TILL),
    "expired": Fault("certificate", SERVER_CRT, "expired on ", made_for("127.0.0.1", expired=True), cured=True),
    "not_for_address": Fault("certificate", "127.0.0.1", NOT_NAMED, made_for("10.9.9.9"), cured=True),
    "not_for_listened": Fault("certificate", "127.0.0.2", NOT_NAMED, changed("127.0.0.1:{port}", "127.0.0.2:{port}")),
    "key_of_another": Fault("certificate", SERVER_KEY, "does not belong", THEIRS.format("key"), KEY, cured=True),
    "of_another_ca": Fault("certificate", "chain", "by another CA", f"{THEIRS.format('key')}; {THEIRS.format('crt')}"),
    "no_certificate": Fault("certificate", SERVER_CRT, "no certificate", f"rm {SERVER_CRT}", CRT, cured=True),
    "ca_damaged": Fault("certificate", CA_CRT, "cannot be read", f"echo no > {CA_CRT}", cured=True),
    "ca_waits": Fault(
        "certificate",
        CA_CRT,
        "a new one signs",
        lambda s, *_: issue.renew(s.state / "tls", new_ca=True),
        status="warning",
    ),
    "no_key": Fault("certificate", SERVER_KEY, "does not exist", f"rm {SERVER_KEY}", KEY, cured=True),
    "key_is_none": Fault("certificate", SERVER_KEY, "cannot be read", f"echo no > {SERVER_KEY}", KEY, cured=True),
    "own_expired": Fault("certificate", "{home}/own/server.crt", "expired on ", own_pair_expired, CRT),
    "own_encrypted": Fault("certificate", OWN_KEY, "is encrypted", own_key_encrypted, KEY),
    "own_missing": Fault("configuration", KEY, NO_FILE, lambda s, *_: own_pair(s)[1].unlink(), KEY),
    "no_public_url": Fault("configuration", PUBLIC, "is missing", added('access_mode = "cloud"\n'), PUBLIC),
    "port_taken": Fault("port", "127.0.0.1:{port}", TAKEN, port_taken, LISTEN),
    "port_not_ours": Fault(
        "port", "192.0.2.7:{port}", "Cannot assign", changed("127.0.0.1:{port}", "192.0.2.7:{port}"), LISTEN
    ),
    "metrics_taken": Fault("port", "127.0.0.1:{metrics}", TAKEN, port_of_metrics_taken, "metrics.listen"),
    "no_metrics": Fault("files", "{home}/metrics", "no such directory", added(TO_TEXTFILE), TEXTFILE, cured=True),
    "damaged": Fault("database", DB, "the database is damaged", f"{DAMAGE} of={DB}", PATH),
    "overwritten": Fault("database", DB, "(file is not a database)", f"seq 9999 > {DB}", PATH, cured=True),
    "empty": Fault("database", DB, "is empty: it was damaged", f": > {DB}", PATH, cured=True),
    "lost": Fault("database", DB, "it was lost or moved", f"rm {DB}", PATH, cured=True),
    "newer": Fault("database", DB, "a newer posd has used it (schema 999;", database_of_newer_posd, PATH),
    "callback_key_lost": Fault("files", CALLBACK_KEY, "is lost", f"rm {CALLBACK_KEY}", PATH, cured=True),
    "callback_key_damaged": Fault("files", CALLBACK_KEY, "is damaged", f"echo no > {CALLBACK_KEY}", PATH, cured=True),
    "state_not_made": Fault("files", "{home}/file/state", "is no directory", state_below_a_file, PATH),
    "sockets_not_made": Fault("access", "{home}/file/run", "is no directory", below_a_file("run"), RUN, cured=True),
    "terminal_off": Fault("terminal", SERIAL, "nothing listens there", terminal_off),
    "terminal_without_tls": Fault("terminal", SERIAL, "it does not speak TLS correctly", terminal_without_tls),
    "terminal_of_another_ca": Fault(
        "terminal",
        SERIAL,
        "for which the CA in ",
        lambda s, *_: s.change(str(s.terminal.ca), str(s.tls.ca_certificate)),
    ),
    "terminal_swapped": Fault("terminal", SERIAL, f"expects {PIN}", added(f'fingerprint_sha256 = "{PIN}"\n')),
    "terminal_misnamed": Fault("terminal", SERIAL, "is for a.local", shown_by_terminal(names=("a.local",))),
    "terminal_expired": Fault("terminal", SERIAL, "has expired on ", shown_by_terminal("127.0.0.1", expired=True)),
    "terminal_nowhere": Fault(
        "terminal", SERIAL, "discovery is switched off", lambda s, *_: s.change(s.terminal.base_url, "")
    ),
    **{
        f"terminal_{one}": Fault("terminal", SERIAL, "strict rules", old_style(one), status="warning")
        for one in OLD_STYLE
    },
    "clocks_apart": Fault(
        "clock", SERIAL, "its clock is ", lambda s, *_: setattr(s.terminal, "ahead", -timedelta(minutes=7))
    ),
    "mdns_address": Fault("mdns", "192.0.2.7", "no interface", changed(OFF, 'interfaces = ["192.0.2.7"]')),
    "unknown_key": Fault(
        "configuration", INTERFACE, "not a known key", changed(OFF, f'{OFF}\ninterface = "e"'), INTERFACE
    ),
    "no_ca_file": Fault("configuration", CA, NO_FILE, "mv {home}/terminal/ca.crt {home}/away", CA),
    "ca_is_none": Fault(
        "configuration", CA, "contains no readable certificate", "echo no > {home}/terminal/ca.crt", CA
    ),
    "header_of_two_lines": Fault("configuration", HEADER, "is not one line", header_of_two_lines, HEADER),
}
BY_ROOT = {
    "key": Fault("files", SERVER_KEY, f"may not use {SERVER_KEY}", f"chown root: {SERVER_KEY}", PATH, cured=True),
    "callback_key": Fault("files", CALLBACK_KEY, "may not use", f"chown root: {CALLBACK_KEY}", PATH, cured=True),
    "database": Fault("files", DB, f"may not use {DB}", f"chown root: {DB}", PATH, cured=True),
    "state": Fault("files", "{state}", "{state} belongs to ", "chmod 500 {state}", PATH, cured=True),
    "backups": Fault("files", "{state}/backups", "no backup can be", "mkdir -m 755 {state}/backups", PATH, cured=True),
    "sockets": Fault("access", "{home}/run", "posd cannot make its sockets", "chown root: {home}", RUN, cured=True),
    "ca": Fault("configuration", CA, "(Permission denied): ", SHUT.format("terminal/ca.crt"), CA, cured=True),
    "ca_behind": Fault("configuration", CA, "may not enter it", "chown root: {home}/terminal", CA),
    "file": Fault(
        "configuration", "{home}/config.toml", "(Permission denied)", SHUT.format("config.toml"), "", cured=True
    ),
    "group": Fault("access", "daemon", "not in the group", changed(GROUP.format(""), GROUP.format("daemon")), TILL),
}
BROKEN |= {f"closed_{name}": fault._replace(root=True) for name, fault in BY_ROOT.items()}
QUICK = ("key_is_none", "port_taken", "callback_key_lost", "closed_key")
CASES = [
    pytest.param(name, marks=[*case.marks, *([needs(root=True)] if BROKEN[name].root else [])], id=name)
    for name, case in zip(BROKEN, named_quick(BROKEN, QUICK), strict=True)
]


@pytest.mark.parametrize("name", CASES)
def test_only_the_right_line_names_a_fault(setup: SetUp, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`posd config check` also names a fault that keeps posd from starting. The named commands repair the fault."""
    fault = BROKEN[name]
    if fault.root:  # doctor finds the user of posd by the owner of the state directory
        setup.file.write_text(setup.config)
        for path in (setup.home, *setup.home.rglob("*")):
            os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid)
    with ExitStack() as stack:
        if isinstance(fault.how, str):
            subprocess.run(fault.how.format(home=setup.home, state=setup.state), shell=True, check=True)
        else:
            fault.how(setup, stack, monkeypatch)
        found = setup.findings()
        before = traces(setup.home)
        code, problems = setup.check()
        assert traces(setup.home) == before
        if fault.key not in (None, "metrics.textfile") and setup.state.stat().st_uid == os.geteuid():
            code_of_start, _ = asyncio.run(Daemon(setup.home, setup.config).cannot_start())
            assert code_of_start in (1, 2), "posd also names the fault at its start"
    known = {"home": setup.home, "state": setup.state, "port": setup.port, "metrics": setup.metrics}
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
    assert (code, problems) == ((0, []) if fault.key is None else (2, [(str(setup.file), fault.key)]))
    if fault.key is not None:
        assert (one["file"], one["line"] is not None) == (str(setup.file), fault.key != "")
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
    assert re.search(r"its clock is 36.* [dh] ahead of", terminal["meaning"])
    assert f"; it has {(datetime.now().astimezone() + timedelta(days=365)):%d %b %Y}" in terminal["meaning"]
    assert lacking["commands"] == posd["commands"] == terminal["commands"] == [f"posd --config {setup.file} clock"]


@pytest.mark.parametrize(("user", "behind", "root"), [(0, "", True), (0, "ana", False), (1000, "", False)])
def test_a_person_who_used_sudo_gets_commands_with_sudo(
    user: int, behind: str, root: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: user)
    monkeypatch.setenv("SUDO_USER", behind)
    assert context.by_root() is root


def test_a_ca_that_is_not_valid_yet_asks_for_the_clock_before_a_new_ca(
    setup: SetUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine's clock is behind. A new CA on every terminal would not repair the fault."""
    monkeypatch.setattr(authority, "BACKDATED", timedelta(days=-1))
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


def test_each_finding_can_be_filled_and_each_command_is_valid(tmp_path: Path) -> None:
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


def test_each_finding_is_used_by_a_check_and_each_finding_of_a_check_has_its_text() -> None:
    said = set()
    for path in (*Path(str(doctor.__file__)).parent.glob("*.py"), *map(Path, (dates.__file__, issue.__file__))):
        said |= {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}
    assert [code for code in CODES if ".".join(code) not in said and code[1] not in said] == []
    assert [name for name in REMEDIES if name not in said] == []
    whole = {text for text in said if isinstance(text, str) and re.fullmatch(rf"({'|'.join(texts())})\.[a-z_]+", text)}
    keys = {"database.path", "configuration", "terminal"}
    assert {text for text in whole - keys if tuple(text.split(".")) not in CODES} == set()


# A healthy set-up.


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


@pytest.mark.parametrize("state", ["stopped", "killed", "running"])
async def test_doctor_changes_nothing(setup: SetUp, state: str) -> None:
    """After a kill, the last commit is in the WAL. doctor must read the WAL without a checkpoint."""
    async with AsyncExitStack() as stack:
        setup.file.write_text(setup.config)
        if state != "stopped":
            daemon = await stack.enter_async_context(running(setup))
            await refused_payment(daemon)
        if state == "killed":
            await daemon.kill()
        wal = [path.stat().st_size for path in setup.state.glob("*-wal")]
        assert state == "running" or (bool(wal), all(wal)) == (state == "killed", True)
        before = traces(setup.home)
        found = setup.findings_as_written(0 if state == "running" else STOPPED)
        setup.check()
        after = traces(setup.home)
    assert any("no damage found" in one["meaning"] for one in found)
    if state == "running":  # connections share this memory, and mark their reads in this memory
        shared = str(setup.database.with_name("posd.db-shm"))
        assert (bool(before.pop(shared)), bool(after.pop(shared))) == (True, True)
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
        assert f"{check.title} (up to {check.seconds:g} s)" in seen.screen, "progress names the limit"
    for begin, part in (("  FAILURE ", "callback.key"), ("    ", " chmod 0600 "), ("2 failures, ", "")):
        assert any(line.startswith(begin) and part in line for line in lines), begin
    assert max(map(len, lines)) <= 80
    assert "\x1b[1;31m" in seen.written, "a failure is red"


def test_without_a_configuration_doctor_reports_what_it_can(setup: SetUp) -> None:
    for text in (None, "[webhooks"):
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
    found, line = read(done), text.count("\n")
    assert (done.returncode, ("daemon", "ok") in {(one["check"], one["status"]) for one in found}) == (1, True)
    (failed, *_) = failures(found)
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
    assert (first.subject, first.status, second.subject, second.status) == ("first", "ok", "An odd thing", "failure")
    assert (words in second.meaning, shop.found) == (True, [first, second])


@pytest.mark.slow
@pytest.mark.usefixtures("small_disks")
def test_a_nearly_full_disk_is_a_failure(setup: SetUp, tmp_path: Path) -> None:
    """The state directory is a small disk. Only processes in the test's namespace see the disk."""
    kept = shutil.copytree(setup.state, tmp_path / "kept")
    setup.file.write_text(setup.config)
    with small_disk(tmp_path, setup.state, "300m") as disk:
        shutil.copytree(kept, disk.files, dirs_exist_ok=True)
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
    closed = {one["subject"]: one["meaning"] for one in found if "may not read" in one["meaning"]}
    assert {"callback key", "certificate files", str(setup.database)} <= set(closed)
    assert all("nobody" in meaning for meaning in closed.values())
    assert "posd reports: valid for" in closed[str(setup.tls.certificate)]
    assert (checked["ok"], checked["problems"]) == (True, [])
    assert f"not checked: nobody may not read {setup.tls.private_key}" in str(checked["notes"])
    (line,) = (line for line in piped.lines if line.startswith("warning\tnot checked\tnobody\t"))
    assert "files (callback key), files (certificate files)" in line
    assert line.endswith(f"sudo posd --config {setup.file} doctor")
    told = {(one["check"], one["subject"]): one["meaning"] for one in found}
    assert "posd answers with its certificate" in told["callback", f"127.0.0.1:{setup.port}"]
    assert "nobody may use it; its group is nogroup" in told["access", str(setup.home / ADMIN_SOCKET)]


async def test_a_hanging_daemon_is_not_reported_as_stopped(setup: SetUp) -> None:
    async with running(setup) as daemon:
        for socket in ("admin.sock", "till.sock"):
            (setup.home / "run" / socket).unlink()
        (told,) = (one for one in setup.findings_as_written(1) if one["check"] == "daemon")
        assert (told["status"], f"process {there(daemon.process).pid}" in told["meaning"]) == ("failure", True)


def test_a_person_sees_the_daemons_times_in_the_local_zone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    at = "2026-11-20T14:02:11.123Z"
    found = CheckFinding(status=CheckStatus.WARNING, subject="listener", meaning=f"away until {at}", check="daemon")
    show_group(Output(as_json=False), "Daemon", [found])
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
    assert setup.terminal.fingerprint in strange["meaning"]


async def test_a_mismatched_pair_is_reported_once(setup: SetUp) -> None:
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


def refuse(port: int, source: str) -> None:
    """Connect as a device that does not trust the CA."""
    distrusting = ssl.create_default_context(cadata=None)
    with (
        contextlib.suppress(ssl.SSLError),
        socket.create_connection(("127.0.0.1", port), PATIENCE, (source, 0)) as raw,
        distrusting.wrap_socket(raw, server_hostname="127.0.0.1"),
    ):
        raise AssertionError("the system trusts the CA of a test")


async def refused_by(daemon: Daemon, port: int, least: int) -> list[Found]:
    """Refuse the certificate from two addresses. Return posd's report after it has counted this many refusals."""
    for source in ("127.0.0.1", "127.0.0.3"):
        await asyncio.to_thread(refuse, port, source)
    async with asyncio.timeout(PATIENCE):
        while True:
            said = (await daemon.call("GET", "/health")).json["checks"]["certificate"]
            if len(said["refused_by"]) >= least:
                return list(said["refused_by"])
            await asyncio.sleep(0.02)  # posd sends no message for a counted refusal, so the test polls


async def test_devices_that_refuse_the_certificate_are_named_with_what_to_do(setup: SetUp) -> None:
    async with running(setup) as daemon:
        await refused_by(daemon, setup.port, 2)
        found = setup.findings(1)
    told = {one["subject"]: one for one in of(found, "callback")}
    ours, other = told["127.0.0.1"], told["127.0.0.3"]
    assert ([one["subject"] for one in failures(found)], other["status"]) == (["127.0.0.1"], "warning")
    assert f"terminal {SERIAL} has refused the certificate" in ours["meaning"]
    assert "a device that is no terminal of ours" in other["meaning"]
    assert all("ca.crt" in one["todo"] for one in (ours, other))


async def test_a_check_by_this_machine_itself_is_not_a_refusal_of_a_terminal(setup: SetUp) -> None:
    made = issue.init(setup.home / "own", names=["localhost"], addresses=["10.9.9.9"])
    setup.change("[database]", f'certificate = "{made.certificate}"\nprivate_key = "{made.private_key}"\n[database]')
    async with running(setup) as daemon:
        (unnamed,) = failures(setup.findings(1))  # the terminal of the set-up uses an address of this machine
        assert "the certificate does not name it: every callback is refused" in unnamed["meaning"]
        assert (await daemon.call("GET", "/health")).json["checks"]["certificate"]["refused_by"] == []
    setup.change(setup.terminal.base_url, "https://127.0.0.9:1")
    async with running(setup) as daemon:
        assert [item["address"] for item in await refused_by(daemon, setup.port, 1)] == ["127.0.0.3"]
        assert "refuses it" not in (await daemon.call("GET", "/health")).json["checks"]["certificate"]["detail"]


@pytest.fixture
async def announced(setup: SetUp) -> AsyncIterator[str]:
    """Run a simulated terminal that announces itself on loopback. Yield the serial, which is unique on this machine."""
    serial, state, made = f"SN-{setup.port}", setup.home / "simulated", files_in(setup.terminal.directory)
    state.mkdir()
    files = {"certificate": made.certificate, "private_key": made.private_key}
    async with Simulator(Settings(state=state, serial=serial, mdns_interfaces=("127.0.0.1",), **files)):
        yield serial


@pytest.mark.slow
async def test_terminals_are_found_by_mdns_while_posd_does_not_run(setup: SetUp, announced: str) -> None:
    setup.change("enabled = false", 'interfaces = ["127.0.0.1"]')
    setup.config += f'[[terminals]]\nserial = "{announced}"\nca_file = "{setup.terminal.ca}"\n'
    setup.file.write_text(setup.config)
    async with asyncio.timeout(PATIENCE):
        while True:  # multicast packets are sometimes lost, and an announcement takes over a second
            done = await asyncio.to_thread(posd, "doctor", "--json", config=setup.file)
            found = read(done)
            if done.returncode == STOPPED and not failures(found):
                break
    assert [one["status"] for one in of(found, "terminal")] == ["ok", "ok"]
    (told,) = (one for one in of(found, "terminal") if one["subject"] == announced)
    assert "(found by mDNS): it answers over TLS" in told["meaning"]
    (heard,) = of(found, "mdns")
    assert (heard["status"], announced in heard["meaning"]) == ("ok", True)


@pytest.mark.slow
def test_a_terminal_that_is_not_announced_is_reported(setup: SetUp) -> None:
    setup.change("enabled = false", 'interfaces = ["127.0.0.1"]')
    # other tests on this machine announce that serial
    setup.change(f'serial = "{SERIAL}"', f'serial = "SN-{setup.port}"')
    setup.config += '[[terminals]]\nserial = "SN-GONE"\n'
    found = setup.findings()
    (failed,) = failures(found)
    assert (failed["check"], failed["subject"]) == ("terminal", "SN-GONE")
    assert "it does not announce itself over mDNS" in failed["meaning"]
    (heard,) = of(found, "mdns")
    assert (heard["status"], "SN-GONE" in heard["meaning"]) == ("warning", True)


# The effect of posd's unit: the user, hidden paths, restrictions, and passed credentials.


UNIT = """
# a comment
[Unit]
Description=posd
[Service]
ExecStart=/usr/bin/posd --config {file} run
User={user}
StateDirectory=posd \\
    posd/backups
ProtectSystem={protect}
ReadWritePaths=/
ProtectHome=yes
LoadCredential=other:/nonexistent
"""


@pytest.fixture
def units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Replace the system's unit directories. Return the first directory. A later directory overrides the first
    directory.
    """
    places = tmp_path / "lib", tmp_path / "etc"
    for place in places:
        (place / f"{service.UNIT}.d").mkdir(parents=True)
    monkeypatch.setattr(service, "DIRECTORIES", tuple(map(str, places)))
    return places[0]


def write(units: Path, file: Path, *, user: str = "root", protect: str = "no") -> None:
    (units / service.UNIT).write_text(UNIT.format(file=file, user=user, protect=protect))


def drop_in(units: Path, name: str, text: str) -> None:
    (units / f"{service.UNIT}.d" / name).write_text(f"[Service]\n{text}\n")


def test_a_unit_is_read_with_its_drop_ins(units: Path) -> None:
    file = Path("/x/config.toml")
    assert service.read(file) is None
    write(units, file, protect="strict")
    drop_in(units, "20.conf", "ReadWritePaths=\nReadWritePaths=/srv/posd\nSupplementaryGroups=a")
    drop_in(units, "10.conf", "SupplementaryGroups=b")
    drop_in(units.parent / "etc", "10.conf", "SupplementaryGroups=c")
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
    (units.parent / "etc" / service.UNIT).symlink_to("/dev/null")
    assert service.read(file) is None, "the unit is masked"


def refused(setup: SetUp) -> list[Found]:
    found = [one for one in failures(setup.findings()) if one["refused"]]
    assert setup.check() == (2, [(str(setup.file), one["key"]) for one in found])
    return found


def test_files_that_the_unit_hides_from_posd_are_failures(setup: SetUp, units: Path) -> None:
    setup.config += 'headers = {X-Key = {credential = "key"}, X-Other = {credential = "other"}}\n'
    write(units, setup.file)
    drop_in(units, "a.conf", "PrivateTmp=yes\nReadWritePaths=\nProtectSystem=strict")
    found = refused(setup)
    meanings = {one["key"]: one for one in found}
    assert set(meanings) >= {"terminals[0].headers.X-Key", "database.path", "local_api.directory"}
    no_credential = meanings["terminals[0].headers.X-Key"]
    assert "passes no credential key" in no_credential["meaning"]
    assert "LoadCredential=key:/etc/posd/credentials/key" in no_credential["todo"]
    assert no_credential["commands"][0].endswith("systemctl edit posd")
    assert "ProtectSystem=strict" in meanings["database.path"]["meaning"]
    if str(setup.home).startswith("/tmp/"):
        assert "which posd's unit hides from posd" in meanings["terminals[0].ca_file"]["meaning"]


def test_a_socket_passed_by_systemd_must_be_the_configured_one(setup: SetUp, units: Path) -> None:
    write(units, setup.file)
    run = setup.home / "run"
    (units / service.SOCKET_UNIT).write_text("[Socket]\nListenStream=/run/posd/till.sock\n")
    (failed,) = refused(setup)
    assert (failed["check"], failed["subject"]) == ("access", "/run/posd/till.sock")
    assert f"ListenStream={run}/till.sock" in failed["todo"]
    (units / service.SOCKET_UNIT).write_text(f"[Socket]\nListenStream={run}/till.sock\n")
    assert failures(setup.findings()) == []


def test_a_missing_user_is_a_failure_and_a_directory_made_by_systemd_is_not(setup: SetUp, units: Path) -> None:
    write(units, setup.file, user="no-such-user")
    setup.tls.certificate.unlink()
    (units / service.TLS_UNIT).write_text("[Service]\n")
    (failed,) = refused(setup)
    assert (failed["check"], failed["subject"]) == ("access", "no-such-user")
    assert failed["commands"][0].endswith("systemd-sysusers")
