"""`posd doctor` on broken set-ups: the right line names what is wrong, and nothing else fails by it."""

import asyncio
import os
import pwd
import shutil
import socket
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from posd import tls
from posd.cli.doctor import context
from posd.tls import authority, issue
from tests.cli.doctor.healthy import SERIAL, SetUp, Terminal, failures, traces
from tests.support.daemon import Daemon
from tests.support.needs import needs
from tests.support.slow import named_quick

NOBODY = pwd.getpwnam("nobody")

Break = Callable[[SetUp, ExitStack, pytest.MonkeyPatch], Any]


@dataclass(frozen=True)
class Fault:
    """How something is broken, and check, subject and words of the one failure.

    `key` is the one of the configuration with which posd would not start, or cannot do what it says; else None.
    `cured`: the commands that are named mend it. `root`: it is broken by root, in a set-up of another user.
    """

    how: Break
    check: str
    subject: str
    words: str
    key: str | None
    cured: bool
    root: bool


BROKEN: dict[str, Fault] = {}


def broken(
    check: str, subject: str, words: str, key: str | None = None, *, cured: bool = False, root: bool = False
) -> Callable[[Break], Break]:
    """Add a set-up to the table; in `subject` {home}, {state} and {port} are those of the set-up."""

    def add(how: Break) -> Break:
        BROKEN[how.__name__] = Fault(how, check, subject, words, key, cured, root)
        return how

    return add


def again(setup: SetUp, stack: ExitStack, *, judged: bool = True) -> None:
    """Let the terminal listen with the certificate that it has now."""
    address = setup.terminal.base_url
    setup.change(address, stack.enter_context(Terminal(setup.terminal.directory, judged=judged).on()).base_url)


@broken("files", "{state}/callback.key", "others may read this secret (mode 0644)", cured=True)
def the_callback_key_is_open(setup: SetUp, *_: Any) -> None:
    setup.key.chmod(0o644)


@broken("files", "{state}/tls/server.key", "others may read this secret (mode 0640)", cured=True)
def the_private_key_is_open(setup: SetUp, *_: Any) -> None:
    setup.tls.private_key.chmod(0o640)


@broken("files", "{state}", "others may put files into the state directory (mode 0777)", cured=True)
def the_state_directory_is_open(setup: SetUp, *_: Any) -> None:
    setup.state.chmod(0o777)


@broken("access", "no-such-group", "the group of local_api.till_group does not exist", "local_api.till_group")
def a_group_is_missing(setup: SetUp, *_: Any) -> None:
    setup.change('till_group = ""', 'till_group = "no-such-group"')


@broken("certificate", "{state}/tls/server.crt", "the certificate expired on ", cured=True)
def the_certificate_has_expired(setup: SetUp, _: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(issue, "SERVER_LIFETIME", timedelta(hours=23))
        tls.init(setup.state / "tls", names=["localhost"], addresses=["127.0.0.1"])


@broken("certificate", "127.0.0.1", "the certificate does not name it: every callback is refused", cured=True)
def the_certificate_lacks_the_present_address(setup: SetUp, *_: Any) -> None:
    tls.init(setup.state / "tls", names=["localhost"], addresses=["10.9.9.9"])


@broken("certificate", "127.0.0.2", "the certificate does not name it: every callback is refused")
def the_certificate_lacks_the_address_that_is_listened_on(setup: SetUp, *_: Any) -> None:
    setup.change(f"127.0.0.1:{setup.port}", f"127.0.0.2:{setup.port}")


@broken(
    "certificate", "{state}/tls/server.key", "does not belong to the certificate", "webhooks.private_key", cured=True
)
def the_key_is_of_another_certificate(setup: SetUp, *_: Any) -> None:
    shutil.copy(setup.terminal.directory / "server.key", setup.tls.private_key)


@broken("certificate", "chain", "refuses the certificate: it is signed by another CA")
def the_certificate_is_of_another_ca(setup: SetUp, *_: Any) -> None:
    for name in ("server.crt", "server.key"):
        shutil.copy(setup.terminal.directory / name, setup.state / "tls" / name)


@broken("certificate", "{state}/tls/server.crt", "there is no certificate", "webhooks.certificate", cured=True)
def there_is_no_certificate(setup: SetUp, *_: Any) -> None:
    setup.tls.certificate.unlink()


@broken("certificate", "{state}/tls/ca.crt", "the CA that the terminals are to trust cannot be read", cured=True)
def the_ca_is_damaged(setup: SetUp, *_: Any) -> None:
    setup.tls.ca_certificate.write_text("nothing")


@broken(
    "configuration",
    "webhooks.public_url",
    "is missing: terminals[0] is called through the cloud",
    "webhooks.public_url",
)
def the_cloud_cannot_call_back(setup: SetUp, *_: Any) -> None:
    setup.config += 'access_mode = "cloud"\n'


@broken("port", "127.0.0.1:{port}", "the port is taken by ", "webhooks.listen")
def a_stranger_has_the_port(setup: SetUp, stack: ExitStack, *_: Any) -> None:
    stranger = stack.enter_context(socket.create_server(("127.0.0.1", setup.port)))
    assert stranger


@broken("port", "192.0.2.77:{port}", "posd cannot listen on it (Cannot assign requested address)", "webhooks.listen")
def the_listen_address_is_not_ours(setup: SetUp, *_: Any) -> None:
    setup.change(f"127.0.0.1:{setup.port}", f"192.0.2.77:{setup.port}")


@broken("database", "{state}/posd.db", "the database is damaged", "database.path")
def the_database_is_damaged(setup: SetUp, *_: Any) -> None:
    content = setup.database.read_bytes()
    setup.database.write_bytes(content[:4096] + b"\x5a" * 8192 + content[12288:])


@broken("database", "{state}/posd.db", "the database is damaged (file is not a database)", "database.path", cured=True)
def the_database_is_overwritten(setup: SetUp, *_: Any) -> None:
    setup.database.write_bytes(b"nothing" * 1000)


@broken("database", "{state}/posd.db", "the database is empty: it was damaged", "database.path", cured=True)
def the_database_is_empty(setup: SetUp, *_: Any) -> None:
    setup.database.write_bytes(b"")


@broken("database", "{state}/posd.db", "it was lost or moved", "database.path", cured=True)
def the_database_is_lost(setup: SetUp, *_: Any) -> None:
    setup.database.unlink()


@broken("database", "{state}/posd.db", "a newer posd has used it (schema 999;", "database.path")
def the_database_is_of_a_newer_posd(setup: SetUp, *_: Any) -> None:
    with closing(sqlite3.connect(setup.database)) as db:
        db.execute("PRAGMA user_version = 999")


@broken("terminal", SERIAL, "nothing listens there: the device is on")
def the_terminal_is_switched_off(setup: SetUp, stack: ExitStack, *_: Any) -> None:
    free = stack.enter_context(socket.socket())
    free.bind(("127.0.0.1", 0))  # bound and not listening: no other program gets it meanwhile
    setup.change(setup.terminal.base_url, f"https://127.0.0.1:{free.getsockname()[1]}")


@broken("terminal", SERIAL, "for which the CA in ")
def the_terminal_has_a_wrong_certificate(setup: SetUp, *_: Any) -> None:
    setup.change(f'ca_file = "{setup.terminal.ca}"', f'ca_file = "{setup.tls.ca_certificate}"')


@broken("terminal", SERIAL, f"the configuration expects {'ab' * 32}")
def the_terminal_has_a_wrong_fingerprint(setup: SetUp, *_: Any) -> None:
    setup.config += f'fingerprint_sha256 = "{"ab" * 32}"\n'


@broken("terminal", SERIAL, "the terminal's certificate is not for 127.0.0.1, it is for other.local")
def the_terminals_certificate_is_for_another(setup: SetUp, stack: ExitStack, *_: Any) -> None:
    tls.init(setup.terminal.directory, names=["other.local"], addresses=[])
    again(setup, stack)


@broken("terminal", SERIAL, "the terminal's certificate has expired on ")
def the_terminals_certificate_has_expired(setup: SetUp, stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issue, "SERVER_LIFETIME", timedelta(hours=23))
    tls.init(setup.terminal.directory, names=[], addresses=["127.0.0.1"])
    again(setup, stack, judged=False)


@broken("terminal", SERIAL, "it does not speak TLS as it should")
def the_terminal_speaks_without_tls(setup: SetUp, stack: ExitStack, *_: Any) -> None:
    plain = stack.enter_context(Terminal(setup.terminal.directory, secure=False).on())
    setup.change(setup.terminal.base_url, f"https://127.0.0.1:{plain.port}")


@broken("terminal", SERIAL, "no address is known: the configuration has none, and discovery is switched off")
def the_terminal_has_no_address(setup: SetUp, *_: Any) -> None:
    setup.change(setup.terminal.base_url, "")


@broken("clock", SERIAL, "its clock is ")
def the_clocks_are_minutes_apart(setup: SetUp, *_: Any) -> None:
    setup.terminal.ahead = timedelta(minutes=-7)


@broken("mdns", "192.0.2.77", "no interface of this machine has it")
def an_interface_of_mdns_has_no_address(setup: SetUp, *_: Any) -> None:
    setup.change("enabled = false", 'interfaces = ["192.0.2.77"]')


@broken("configuration", "discovery.interface", "is not a known key", "discovery.interface")
def a_key_is_not_known(setup: SetUp, *_: Any) -> None:
    setup.change("enabled = false", 'enabled = false\ninterface = "eth0"')


@broken("configuration", "terminals[0].ca_file", "cannot be read (No such file", "terminals[0].ca_file")
def a_file_that_is_named_is_missing(setup: SetUp, *_: Any) -> None:
    setup.change(str(setup.terminal.ca), str(setup.home / "none.crt"))


@broken("certificate", "{state}/tls/server.key", "cannot be read", "webhooks.private_key", cured=True)
def the_private_key_is_no_key(setup: SetUp, *_: Any) -> None:
    setup.tls.private_key.write_text("nothing")


@broken("certificate", "{state}/tls/server.key", "does not exist", "webhooks.private_key", cured=True)
def there_is_no_private_key(setup: SetUp, *_: Any) -> None:
    setup.tls.private_key.unlink()


def own_pair(setup: SetUp) -> tuple[Path, Path]:
    """Configure a pair of the shop's own PKI."""
    made = tls.init(setup.home / "own", names=["localhost"], addresses=["127.0.0.1"])
    setup.change("[database]", f'certificate = "{made.certificate}"\nprivate_key = "{made.private_key}"\n[database]')
    return made.certificate, made.private_key


@broken("certificate", "{home}/own/server.crt", "the certificate expired on ", "webhooks.certificate")
def the_shops_own_certificate_has_expired(setup: SetUp, _: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issue, "SERVER_LIFETIME", timedelta(hours=23))
    own_pair(setup)


@broken("certificate", "{home}/own/server.key", "is encrypted", "webhooks.private_key")
def the_private_key_has_a_passphrase(setup: SetUp, *_: Any) -> None:
    _, key = own_pair(setup)
    private, cipher = load_pem_private_key(key.read_bytes(), None), BestAvailableEncryption(b"a passphrase")
    key.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, cipher))


@broken("configuration", "webhooks.private_key", "cannot be read (No such file", "webhooks.private_key")
def the_shops_own_key_is_missing(setup: SetUp, *_: Any) -> None:
    _, key = own_pair(setup)
    key.unlink()


@broken("port", "127.0.0.1:{metrics}", "the port is taken by ", "metrics.listen")
def a_stranger_has_the_port_of_the_metrics(setup: SetUp, stack: ExitStack, *_: Any) -> None:
    stranger = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    setup.metrics = stranger.getsockname()[1]
    setup.config += f'[metrics]\nlisten = "127.0.0.1:{setup.metrics}"\n'


@broken("files", "{home}/metrics", "there is no such directory", "metrics.textfile", cured=True)
def the_metrics_cannot_be_written(setup: SetUp, *_: Any) -> None:
    setup.config += f'[metrics]\ntextfile = "{setup.home}/metrics/posd.prom"\n'


@broken("configuration", "terminals[0].ca_file", "holds no certificate that can be read", "terminals[0].ca_file")
def the_ca_of_the_terminal_is_no_certificate(setup: SetUp, *_: Any) -> None:
    setup.terminal.ca.write_text("nothing")


@broken("configuration", "terminals[0].headers.X-Key", "is not one line of visible ASCII", "terminals[0].headers.X-Key")
def a_header_has_two_lines(setup: SetUp, *_: Any) -> None:
    (setup.home / "key").write_text("one\ntwo\n")
    (setup.home / "key").chmod(0o600)
    setup.config += 'headers = {X-Key = {file = "key"}}\n'


@broken("files", "{state}/callback.key", "the callback key is lost", "database.path", cured=True)
def the_callback_key_is_lost(setup: SetUp, *_: Any) -> None:
    setup.key.unlink()


@broken("files", "{state}/callback.key", "it is damaged", "database.path", cured=True)
def the_callback_key_is_damaged(setup: SetUp, *_: Any) -> None:
    setup.key.write_text("nothing\n")


@broken("files", "{home}/file/posd", "is no directory", "database.path")
def the_state_directory_cannot_be_made(setup: SetUp, *_: Any) -> None:
    (setup.home / "file").write_text("")
    own_pair(setup)
    setup.change(f'path = "{setup.database}"', f'path = "{setup.home}/file/posd/posd.db"')


@broken("access", "{home}/file/run", "is no directory", "local_api.directory", cured=True)
def the_directory_of_the_sockets_cannot_be_made(setup: SetUp, *_: Any) -> None:
    (setup.home / "file").write_text("")
    setup.change(f'directory = "{setup.home}/run"', f'directory = "{setup.home}/file/run"')


by_root = partial(broken, root=True)


def give_to_nobody(setup: SetUp) -> None:
    """Give the set-up to a user that is not root; doctor finds it by the owner of the state directory."""
    setup.file.touch(0o644)
    for path in (setup.home, *setup.home.rglob("*")):
        os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid)


def of_root(*paths: Path) -> None:
    for path in paths:
        os.chown(path, 0, 0)


@by_root("files", "{state}/tls/server.key", "may not use {state}/tls/server.key", "database.path", cured=True)
def posd_may_not_read_its_key(setup: SetUp, *_: Any) -> None:
    of_root(setup.tls.private_key)


@by_root("files", "{state}/callback.key", "may not use {state}/callback.key", "database.path", cured=True)
def posd_may_not_read_its_callback_key(setup: SetUp, *_: Any) -> None:
    of_root(setup.key)


@by_root("files", "{state}/posd.db", "may not use {state}/posd.db", "database.path", cured=True)
def posd_may_not_write_its_database(setup: SetUp, *_: Any) -> None:
    of_root(setup.database)


@by_root("files", "{state}", "posd cannot make its database there: {state} belongs to ", "database.path", cured=True)
def posd_may_not_write_its_directory(setup: SetUp, *_: Any) -> None:
    setup.state.chmod(0o500)


@by_root("files", "{state}/backups", "no backup can be written there: ", "database.path", cured=True)
def posd_may_not_write_backups(setup: SetUp, *_: Any) -> None:
    (setup.state / "backups").mkdir(mode=0o755)


@by_root("access", "{home}/run", "posd cannot make its sockets there: ", "local_api.directory", cured=True)
def posd_may_not_make_its_sockets(setup: SetUp, *_: Any) -> None:
    of_root(setup.home)


@by_root("configuration", "terminals[0].ca_file", "(Permission denied): ", "terminals[0].ca_file", cured=True)
def posd_may_not_read_the_ca_of_the_terminal(setup: SetUp, *_: Any) -> None:
    of_root(setup.terminal.ca)
    setup.terminal.ca.chmod(0o600)


@by_root("configuration", "terminals[0].ca_file", "may not pass through it", "terminals[0].ca_file")
def posd_may_not_reach_the_ca_of_the_terminal(setup: SetUp, *_: Any) -> None:
    of_root(setup.terminal.directory)


@by_root("configuration", "{home}/config.toml", "cannot be read (Permission denied)", "", cured=True)
def posd_may_not_read_its_configuration(setup: SetUp, *_: Any) -> None:
    of_root(setup.file)
    setup.file.chmod(0o600)


@by_root("access", "daemon", "is not in the group of local_api.till_group", "local_api.till_group")
def posd_is_not_in_the_group_of_the_tills(setup: SetUp, *_: Any) -> None:
    setup.change('till_group = ""', 'till_group = "daemon"')


QUICK = (
    "the_private_key_is_no_key",
    "a_stranger_has_the_port",
    "the_callback_key_is_lost",
    "posd_may_not_read_its_key",
)


CASES = [
    pytest.param(name, marks=[*case.marks, *([needs(root=True)] if BROKEN[name].root else [])], id=name)
    for name, case in zip(BROKEN, named_quick(BROKEN, QUICK), strict=True)
]


@pytest.mark.parametrize("name", CASES)
def test_it_is_named_by_the_right_line_and_by_no_other(
    setup: SetUp, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`posd config check` names it too where posd would not start, and the commands that are named mend it."""
    fault = BROKEN[name]
    if fault.root:
        give_to_nobody(setup)
    with ExitStack() as stack:
        fault.how(setup, stack, monkeypatch)
        found = setup.findings()
        before = traces(setup.home)
        code, problems = setup.check()
        assert traces(setup.home) == before
        if fault.key not in (None, "metrics.textfile") and setup.state.stat().st_uid == os.geteuid():
            assert asyncio.run(Daemon(setup.home, setup.config).cannot_start())[0] in (1, 2), "posd itself says so too"
    (failed,) = failures(found)
    known = {"home": setup.home, "state": setup.state, "port": setup.port, "metrics": setup.metrics}
    assert (failed["check"], failed["subject"]) == (fault.check, fault.subject.format_map(known))
    assert fault.words.format_map(known) in failed["meaning"]
    assert failed["todo"]
    assert failed["commands"]
    assert (failed["key"] if failed["refused"] else None) == fault.key
    if fault.key is not None:
        assert (code, failed["file"]) == (2, str(setup.file))
        assert (failed["line"] is not None) == (fault.key != "")
        assert problems == [(str(setup.file), fault.key)]
    else:
        assert (code, problems) == (0, [])
    if fault.cured:
        setup.cure(failed["commands"])
        assert failures(setup.findings_as_written()) == []


def test_nothing_is_renewed_by_a_clock_that_is_not_believed(setup: SetUp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        context.DoctorContext, "health", lambda _shop, name: {"status": "degraded"} if name == "clock" else {}
    )
    tls.init(setup.state / "tls", names=["localhost"], addresses=["10.9.9.9"])
    (lacking,) = (one for one in failures(setup.findings()) if one["check"] == "certificate")
    assert lacking["commands"] == [f"posd --config {setup.file} clock"]
    assert lacking["todo"].startswith("see to the clock first")


def test_a_terminal_tells_the_time_where_the_clock_of_this_machine_is_not_believed(
    setup: SetUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {"status": "degraded", "detail": "the clock says 2025-12-03 06:55:30 UTC", "todo": "compare it"}
    monkeypatch.setattr(context.DoctorContext, "health", lambda _shop, name: said if name == "clock" else {})
    setup.terminal.ahead = timedelta(days=365)
    posd, terminal = (one for one in failures(setup.findings()) if one["check"] == "clock")
    assert " Dec 2025 " in posd["meaning"]
    assert "its clock is 365 days ahead of" in terminal["meaning"] or "364 days" in terminal["meaning"]
    assert f"; it has {(datetime.now().astimezone() + timedelta(days=365)):%d %b %Y}" in terminal["meaning"]
    assert terminal["commands"] == [f"posd --config {setup.file} clock"]


@pytest.mark.parametrize(("user", "behind", "root"), [(0, "", True), (0, "ana", False), (1000, "", False)])
def test_a_person_who_used_sudo_is_told_to_use_it_again(
    user: int, behind: str, root: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: user)
    monkeypatch.setenv("SUDO_USER", behind)
    assert context.by_root() is root


def test_a_ca_that_is_not_valid_yet_asks_for_the_clock_before_a_new_ca(
    setup: SetUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the clock of the machine is behind, a new CA would be carried to every terminal for nothing."""
    monkeypatch.setattr(authority, "BACKDATED", timedelta(days=-1))
    with suppress(tls.TlsError):  # it says itself that they are from the future
        tls.init(setup.state / "tls", names=["localhost"], addresses=["127.0.0.1"], overwrite=True)
    (ca,) = (one for one in failures(setup.findings()) if one["subject"] == str(setup.state / "tls" / "ca.crt"))
    assert ca["commands"] == ["timedatectl"]
    assert ca["todo"].startswith("is the clock of this machine right?")
