"""`posd doctor` on broken set-ups: the right line names what is wrong, and nothing else fails by it."""

import shutil
import socket
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing
from datetime import timedelta
from typing import Any

import pytest

from posd import tls
from posd.tls import issue
from tests.cli.doctor.healthy import SERIAL, SetUp, Terminal, failures

Break = Callable[[SetUp, ExitStack, pytest.MonkeyPatch], Any]
#: What is broken -> how, and then check, subject and words of the one failure.
BROKEN: dict[str, tuple[Break, str, str, str]] = {}


def broken(check: str, subject: str, words: str) -> Callable[[Break], Break]:
    """Add a set-up to the table; in `subject` {state} and {port} are those of the set-up."""

    def add(how: Break) -> Break:
        BROKEN[how.__name__] = (how, check, subject, words)
        return how

    return add


def again(setup: SetUp, stack: ExitStack, *, judged: bool = True) -> None:
    """Let the terminal listen with the certificate that it has now."""
    address = setup.terminal.base_url
    setup.change(address, stack.enter_context(Terminal(setup.terminal.directory, judged=judged).on()).base_url)


@broken("files", "{state}/callback.key", "others may read this secret (mode 0644)")
def the_callback_key_is_open(setup: SetUp, *_: Any) -> None:
    setup.key.chmod(0o644)


@broken("files", "{state}/tls/server.key", "others may read this secret (mode 0640)")
def the_private_key_is_open(setup: SetUp, *_: Any) -> None:
    setup.tls.private_key.chmod(0o640)


@broken("files", "{state}", "others may put files into the state directory (mode 0777)")
def the_state_directory_is_open(setup: SetUp, *_: Any) -> None:
    setup.state.chmod(0o777)


@broken("access", "no-such-group", "the group of local_api.till_group does not exist")
def a_group_is_missing(setup: SetUp, *_: Any) -> None:
    setup.change('till_group = ""', 'till_group = "no-such-group"')


@broken("certificate", "{state}/tls/server.crt", "the certificate expired on ")
def the_certificate_has_expired(setup: SetUp, _: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issue, "SERVER_LIFETIME", timedelta(hours=23))
    tls.init(setup.state / "tls", names=["localhost"], addresses=["127.0.0.1"])


@broken("certificate", "127.0.0.1", "the certificate does not name it: every callback is refused")
def the_certificate_lacks_the_present_address(setup: SetUp, *_: Any) -> None:
    tls.init(setup.state / "tls", names=["localhost"], addresses=["10.9.9.9"])


@broken("certificate", "127.0.0.2", "the certificate does not name it: every callback is refused")
def the_certificate_lacks_the_address_that_is_listened_on(setup: SetUp, *_: Any) -> None:
    setup.change(f"127.0.0.1:{setup.port}", f"127.0.0.2:{setup.port}")


@broken("certificate", "{state}/tls/server.key", "does not belong to the certificate")
def the_key_is_of_another_certificate(setup: SetUp, *_: Any) -> None:
    shutil.copy(setup.terminal.directory / "server.key", setup.tls.private_key)


@broken("certificate", "chain", "refuses the certificate: it is signed by a CA that is not trusted")
def the_certificate_is_of_another_ca(setup: SetUp, *_: Any) -> None:
    for name in ("server.crt", "server.key"):
        shutil.copy(setup.terminal.directory / name, setup.state / "tls" / name)


@broken("certificate", "{state}/tls/server.crt", "there is no certificate")
def there_is_no_certificate(setup: SetUp, *_: Any) -> None:
    setup.tls.certificate.unlink()


@broken("certificate", "{state}/tls/ca.crt", "the CA that the terminals are to trust cannot be read")
def the_ca_is_damaged(setup: SetUp, *_: Any) -> None:
    setup.tls.ca_certificate.write_text("nothing")


@broken("configuration", "webhooks.public_url", "is missing: terminals[0] is called through the cloud")
def the_cloud_cannot_call_back(setup: SetUp, *_: Any) -> None:
    setup.config += 'access_mode = "cloud"\n'


@broken("port", "127.0.0.1:{port}", "the port is taken by ")
def a_stranger_has_the_port(setup: SetUp, stack: ExitStack, *_: Any) -> None:
    stranger = stack.enter_context(socket.create_server(("127.0.0.1", setup.port)))
    assert stranger


@broken("port", "192.0.2.77:{port}", "posd cannot listen on it (Cannot assign requested address)")
def the_listen_address_is_not_ours(setup: SetUp, *_: Any) -> None:
    setup.change(f"127.0.0.1:{setup.port}", f"192.0.2.77:{setup.port}")


@broken("database", "{state}/posd.db", "the database is damaged")
def the_database_is_damaged(setup: SetUp, *_: Any) -> None:
    content = setup.database.read_bytes()
    setup.database.write_bytes(content[:4096] + b"\x5a" * 8192 + content[12288:])


@broken("database", "{state}/posd.db", "the database is damaged (file is not a database)")
def the_database_is_overwritten(setup: SetUp, *_: Any) -> None:
    setup.database.write_bytes(b"nothing" * 1000)


@broken("database", "{state}/posd.db", "the database is empty: it was damaged")
def the_database_is_empty(setup: SetUp, *_: Any) -> None:
    setup.database.write_bytes(b"")


@broken("database", "{state}/posd.db", "it was lost or moved")
def the_database_is_lost(setup: SetUp, *_: Any) -> None:
    setup.database.unlink()


@broken("database", "{state}/posd.db", "a newer posd has used it (schema 999;")
def the_database_is_of_a_newer_posd(setup: SetUp, *_: Any) -> None:
    with closing(sqlite3.connect(setup.database)) as db:
        db.execute("PRAGMA user_version = 999")


@broken("terminal", SERIAL, "a device is there, and nobody listens on this port")
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


@broken("terminal", SERIAL, "the terminal's certificate is not for 127.0.0.1, it is for other.example")
def the_terminals_certificate_is_for_another(setup: SetUp, stack: ExitStack, *_: Any) -> None:
    tls.init(setup.terminal.directory, names=["other.example"], addresses=[])
    again(setup, stack)


@broken("terminal", SERIAL, "the terminal's certificate has expired on ")
def the_terminals_certificate_has_expired(setup: SetUp, stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issue, "SERVER_LIFETIME", timedelta(hours=23))
    tls.init(setup.terminal.directory, names=[], addresses=["127.0.0.1"])
    again(setup, stack, judged=False)


@broken("terminal", SERIAL, "something answers there, but not over TLS")
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


@broken("configuration", "discovery.interface", "is not a known key")
def a_key_is_not_known(setup: SetUp, *_: Any) -> None:
    setup.change("enabled = false", 'enabled = false\ninterface = "eth0"')


@broken("configuration", "terminals[0].ca_file", "which cannot be read (No such file or directory)")
def a_file_that_is_named_is_missing(setup: SetUp, *_: Any) -> None:
    setup.change(str(setup.terminal.ca), str(setup.home / "none.crt"))


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", BROKEN)
def test_it_is_named_by_the_right_line_and_by_no_other(
    setup: SetUp, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    how, check, subject, words = BROKEN[name]
    with ExitStack() as stack:
        how(setup, stack, monkeypatch)
        found = setup.findings()
    (failed,) = failures(found)
    assert (failed["check"], failed["subject"]) == (check, subject.format(state=setup.state, port=setup.port))
    assert words in failed["meaning"]
    assert failed["todo"]
