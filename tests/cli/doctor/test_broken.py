"""`posd doctor` on broken set-ups. One line of the output names the fault. No other line reports consequences of the
fault.
"""

import ast
import asyncio
import os
import pwd
import re
import shlex
import socket
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from datetime import datetime, timedelta
from pathlib import Path
from string import Formatter
from typing import Any, NamedTuple

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from posd.cli import doctor
from posd.cli.doctor import context
from posd.cli.doctor.context import DoctorContext, texts
from posd.config import parse as configuration
from posd.tls import authority, issue
from posd.tls import certificate as dates
from posd.tls.files import TlsError, files_in
from tests.cli.doctor.healthy import OF_THIS_MACHINE, SERIAL, SetUp, Terminal, failures, traces, warnings
from tests.cli.manual.parsing import parse
from tests.support.certificates import OLD_STYLE
from tests.support.daemon import Daemon
from tests.support.needs import needs
from tests.support.slow import named_quick

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
