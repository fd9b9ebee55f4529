"""Certificates: acceptance and refusal by strict clients, the form of the files, and real handshakes."""

import contextlib
import hashlib
import ipaddress
import os
import shutil
import socket
import ssl
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from msgspec.structs import replace

from posd.base import files as base_files
from posd.tls import issue
from posd.tls.certificate import Subjects, called_as, local_addresses, missing_names
from posd.tls.files import SubjectError, TlsError, TlsFiles, describe, files_in, load_pair

NAMES = ["pos.shop.example", "localhost"]
ADDRESSES = ["127.0.0.1", "::1", "10.0.0.9"]
DAY = timedelta(days=1)
PEM_END = "-----END CERTIFICATE-----\n"


@pytest.fixture
def made(tmp_path: Path) -> TlsFiles:
    return issue.init(tmp_path / "tls", names=NAMES, addresses=ADDRESSES)


def strict(ca: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> None:
    """Connect over 127.0.0.1 to a server with the name `name`. Raise the client's error."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            # If the client refuses, the test checks the error of the client.
            with connection, contextlib.suppress(OSError):
                server.wrap_socket(connection, server_side=True).close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with (
                socket.create_connection(listener.getsockname(), timeout=30) as raw,
                client.wrap_socket(raw, server_hostname=name) as connection,
            ):
                assert (connection.selected_alpn_protocol(), connection.version()) == ("http/1.1", "TLSv1.3")
        finally:
            thread.join()


@pytest.mark.parametrize("name", [*NAMES, *ADDRESSES])
def test_a_strict_client_accepts_every_name_and_address(made: TlsFiles, name: str) -> None:
    shake_hands(load_pair(made.certificate, made.private_key, None).context, strict(made.ca_certificate), name)


@pytest.mark.parametrize("name", ["other.example", "127.0.0.2", "shop.example", "x.localhost"])
def test_a_certificate_with_another_name_is_refused(made: TlsFiles, name: str) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match=r"[Hh]ostname|IP address") as caught:
        shake_hands(load_pair(made.certificate, made.private_key, None).context, strict(made.ca_certificate), name)
    assert caught.value.verify_code in {62, 64}  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH


def test_a_certificate_of_another_ca_is_refused(made: TlsFiles, tmp_path: Path) -> None:
    other = issue.init(tmp_path / "other", names=NAMES, addresses=ADDRESSES)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(
            load_pair(made.certificate, made.private_key, None).context, strict(other.ca_certificate), "localhost"
        )


def test_the_certificates_have_the_expected_fields(made: TlsFiles) -> None:
    now = datetime.now(UTC)
    ca, server = describe(made.ca_certificate), describe(made.certificate)
    assert server.subject == "CN=pos.shop.example"
    assert server.names == tuple(NAMES)
    assert server.addresses == tuple(ADDRESSES)
    assert timedelta(hours=23) < now - server.not_before < timedelta(hours=25)
    assert server.not_after - server.not_before == timedelta(days=397)
    assert ca.not_after - ca.not_before == timedelta(days=730)
    der = ssl.PEM_cert_to_DER_cert(made.certificate.read_text().partition(PEM_END)[0] + PEM_END)
    assert server.fingerprint_sha256 == hashlib.sha256(der).hexdigest()
    constraints = load(made.ca_certificate).extensions.get_extension_for_class(x509.BasicConstraints)
    assert (constraints.critical, constraints.value.ca, constraints.value.path_length) == (True, True, 2)
    assert made.certificate.read_bytes().endswith(made.ca_certificate.read_bytes())


def load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_files_are_private_and_no_other_file_is_left(made: TlsFiles) -> None:
    directory = made.certificate.parent
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == {
        "ca.crt": 0o644,
        "ca.key": 0o600,
        "server.crt": 0o644,
        "server.key": 0o600,
        "given.json": 0o644,
        ".lock": 0o600,
    }
    assert made == files_in(directory)


def test_a_directory_that_was_open_to_others_is_closed(tmp_path: Path) -> None:
    directory = tmp_path / "tls"
    directory.mkdir(mode=0o755)
    issue.init(directory, names=NAMES, addresses=[])
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_the_ca_is_kept(made: TlsFiles) -> None:
    ca, key, server = (path.read_bytes() for path in (made.ca_certificate, made.ca_key, made.certificate))
    issue.init(made.ca_certificate.parent, names=["new.lan"], addresses=[])
    assert (made.ca_certificate.read_bytes(), made.ca_key.read_bytes()) == (ca, key)
    assert made.certificate.read_bytes() != server
    shake_hands(load_pair(made.certificate, made.private_key, None).context, strict(made.ca_certificate), "new.lan")


def test_overwrite_makes_a_ca_of_another_name(made: TlsFiles) -> None:
    before = describe(made.ca_certificate)
    issue.init(made.ca_certificate.parent, names=NAMES, addresses=[], overwrite=True)
    after = describe(made.ca_certificate)
    assert before.subject != after.subject
    assert before.fingerprint_sha256 != after.fingerprint_sha256
    shake_hands(load_pair(made.certificate, made.private_key, None).context, strict(made.ca_certificate), "localhost")


def test_a_server_certificate_ends_no_later_than_its_ca(made: TlsFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issue, "CA_LIFETIME", timedelta(days=100))
    issue.init(made.ca_certificate.parent, names=NAMES, addresses=[], overwrite=True)
    assert describe(made.certificate).not_after == describe(made.ca_certificate).not_after


@pytest.mark.parametrize(
    ("names", "addresses", "message"),
    [
        ([], [], "needs at least one name or address"),
        (["10.0.0.9"], [], "is an address, not a name"),
        (["two words"], [], "is not a host name"),
        (["-x"], [], "is not a host name"),
        (["*.example"], [], "is not a host name"),
        (["é.example"], [], "is not a host name"),
        (["x" * 64], [], "is not a host name"),
        ([], ["10.0.0.256"], "is not an IP address"),
        ([], ["pos"], "is not an IP address"),
    ],
)
def test_invalid_names_are_refused(tmp_path: Path, names: list[str], addresses: list[str], message: str) -> None:
    with pytest.raises(SubjectError, match=message):
        issue.init(tmp_path / "tls", names=names, addresses=addresses)
    assert not (tmp_path / "tls").exists()


def test_a_long_name_is_complete_in_the_subject_alternative_names(tmp_path: Path) -> None:
    name = f"{'a' * 60}.{'b' * 60}.example"
    made = issue.init(tmp_path / "tls", names=[name], addresses=[])
    assert describe(made.certificate).names == (name,)
    shake_hands(load_pair(made.certificate, made.private_key, None).context, strict(made.ca_certificate), name)


def lose(path: Path) -> None:
    path.unlink()


def garble(path: Path) -> None:
    path.write_text("nothing")


def swap(path: Path) -> None:
    issue.init(path.parent / "other", names=NAMES, addresses=[])
    shutil.copy(path.parent / "other" / path.name, path)


@pytest.mark.parametrize(
    ("file", "harm", "message"),
    [
        ("ca.crt", lose, "ca.crt: does not exist, but the other file of the pair does"),
        ("ca.key", lose, "ca.key: does not exist, but the other file of the pair does"),
        ("ca.crt", garble, "cannot be read"),
        ("ca.key", garble, "cannot be read"),
        ("ca.key", swap, "does not belong to"),
        ("ca.crt", swap, "does not belong to"),
    ],
)
def test_a_broken_ca_is_reported_and_nothing_is_changed(
    made: TlsFiles, file: str, harm: Callable[[Path], None], message: str
) -> None:
    harm(made.certificate.parent / file)
    before = made.certificate.read_bytes()
    with pytest.raises(TlsError, match=rf"(?s){message}.*--force"):
        issue.init(made.certificate.parent, names=NAMES, addresses=[])
    assert made.certificate.read_bytes() == before


def test_an_expired_ca_is_reported(made: TlsFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issue, "CA_LIFETIME", timedelta(hours=12))
    issue.init(made.certificate.parent, names=NAMES, addresses=[], overwrite=True)
    with pytest.raises(TlsError, match=r"has expired .* --force"):
        issue.init(made.certificate.parent, names=NAMES, addresses=[])


def test_a_directory_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TlsError, match=r"cannot read or write the certificates in .*file/tls: Not a directory"):
        issue.init(tmp_path / "file/tls", names=NAMES, addresses=[])


@pytest.mark.parametrize(
    ("file", "harm", "message"),
    [
        ("server.crt", lose, r"certificate .*server.crt: does not exist; .*posd tls init"),
        ("server.key", lose, r"private key .*server.key: does not exist; .*posd tls init"),
        ("server.crt", garble, "cannot be read as PEM"),
        ("server.key", garble, "cannot be read as PEM"),
        ("server.key", swap, r"server.key: does not belong to the certificate .*server.crt"),
    ],
)
def test_an_unusable_pair_is_refused(made: TlsFiles, file: str, harm: Callable[[Path], None], message: str) -> None:
    harm(made.certificate.parent / file)
    with pytest.raises(TlsError, match=message):
        load_pair(made.certificate, made.private_key, datetime.now(UTC))


def test_an_unreadable_key_is_refused(made: TlsFiles) -> None:
    made.private_key.unlink()
    made.private_key.mkdir()
    with pytest.raises(TlsError, match=r"server.key: cannot be read \(Is a directory\); make it readable"):
        load_pair(made.certificate, made.private_key, None)


def test_an_encrypted_key_is_refused_without_a_question(made: TlsFiles) -> None:
    key = load_pem_private_key(made.private_key.read_bytes(), password=None)
    made.private_key.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    )
    with pytest.raises(TlsError, match="is encrypted; store it without a passphrase"):
        load_pair(made.certificate, made.private_key, None)


@pytest.mark.parametrize(
    ("backdated", "lifetime", "message"),
    [
        (DAY, timedelta(hours=23), r"server.crt: has expired \(today is 20"),
        (-timedelta(hours=1), DAY, r"server.crt: is not valid yet \(today is 20.*clock"),
    ],
)
def test_a_certificate_outside_its_dates_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backdated: timedelta, lifetime: timedelta, message: str
) -> None:
    monkeypatch.setattr(issue, "BACKDATED", backdated)
    monkeypatch.setattr(issue, "SERVER_LIFETIME", lifetime)
    made = issue.init(tmp_path / "tls", names=NAMES, addresses=[])
    with pytest.raises(TlsError, match=message):
        load_pair(made.certificate, made.private_key, datetime.now(UTC))


def test_certificates_of_the_shops_own_pki_work(tmp_path: Path) -> None:
    """The pair uses RSA and a chain with an intermediate CA. Nothing depends on the form of posd's own certificates."""
    root = trustme.CA(key_type=trustme.KeyType.RSA)
    leaf = root.create_child_ca().issue_cert("pos.shop.example", key_type=trustme.KeyType.RSA)
    certificate, key = tmp_path / "shop.crt", tmp_path / "shop.key"
    for part in leaf.cert_chain_pems:
        part.write_to_path(certificate, append=True)
    leaf.private_key_pem.write_to_path(key)
    client = ssl.create_default_context(cadata=root.cert_pem.bytes().decode())
    client.set_alpn_protocols(["http/1.1"])
    shake_hands(load_pair(certificate, key, None).context, client, "pos.shop.example")


def test_a_ca_certificate_is_refused_as_server_certificate(made: TlsFiles) -> None:
    with pytest.raises(TlsError, match="would be refused by the terminals"):
        load_pair(made.ca_key, made.ca_key, None)


def test_an_unusual_pem_block_is_reported(made: TlsFiles) -> None:
    text = made.certificate.read_text().replace(" CERTIFICATE-----", " X509 CERTIFICATE-----")
    made.certificate.write_text(text)
    with pytest.raises(TlsError, match=r"server.crt: has no block BEGIN CERTIFICATE"):
        load_pair(made.certificate, made.private_key, None)


def test_old_tls_is_refused(made: TlsFiles) -> None:
    assert load_pair(made.certificate, made.private_key, None).context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_an_unreadable_certificate_is_reported_with_its_file(tmp_path: Path) -> None:
    with pytest.raises(TlsError, match=r"none.crt: does not exist"):
        describe(tmp_path / "none.crt")
    (tmp_path / "bad.crt").write_text("-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n")
    with pytest.raises(TlsError, match=r"bad.crt: is not a PEM certificate"):
        describe(tmp_path / "bad.crt")


def test_local_addresses_are_addresses_of_this_machine() -> None:
    found = local_addresses()
    assert "127.0.0.1" in found
    assert not any(ipaddress.ip_address(address).is_link_local for address in found)
    for address in found:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family) as probe:
            probe.bind((address, 0))  # only an address of this machine can be bound


def posd(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    file = directory / "config.toml"
    file.write_text(f'[database]\npath = "{directory}/posd.db"\n')
    environment = {name: value for name, value in os.environ.items() if not name.startswith("POSD_")}
    command = [sys.executable, "-m", "posd", "--config", str(file), "tls", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)


@pytest.mark.slow
def test_the_command_makes_and_shows_certificates(tmp_path: Path) -> None:
    done = posd(tmp_path, "init")
    assert (done.returncode, done.stderr) == (0, "")
    made = files_in(tmp_path / "tls")
    info = describe(made.certificate)
    assert "localhost" in info.names
    assert info.addresses == tuple(local_addresses())
    assert f"Install {made.ca_certificate} on every terminal" in done.stdout
    assert f"until {info.not_after:%Y-%m-%d}" in done.stdout

    ca = made.ca_certificate.read_bytes()
    done = posd(tmp_path, "init", "--name", "a.local", "--name", "b.local", "--address", "10.0.0.9")
    assert done.returncode == 0
    assert "Nothing on the terminals" in done.stdout
    info = describe(made.certificate)
    assert {"a.local", "b.local", "localhost"} <= set(info.names)
    assert {"10.0.0.9", *local_addresses()} == set(info.addresses)
    assert made.ca_certificate.read_bytes() == ca


@pytest.mark.slow
def test_the_command_reports_faults(tmp_path: Path) -> None:
    done = posd(tmp_path, "init", "--address", "pos")
    assert (done.returncode, done.stdout) == (2, "")
    assert "posd: 'pos' is not an IP address" in done.stderr
    (tmp_path / "tls").mkdir()
    (tmp_path / "tls/ca.crt").touch()
    done = posd(tmp_path, "init")
    assert (done.returncode, done.stdout) == (1, "")
    assert "ca.key: does not exist" in done.stderr


def test_one_command_at_a_time_makes_certificates(made: TlsFiles) -> None:
    directory, before = made.certificate.parent, made.certificate.read_bytes()
    lock = base_files.lock(directory / ".lock")
    try:
        for make in (lambda: issue.renew(directory), lambda: issue.init(directory, names=NAMES, addresses=[])):
            with pytest.raises(TlsError, match="another command is making certificates"):
                make()
        assert made.certificate.read_bytes() == before
    finally:
        os.close(lock)


@pytest.mark.parametrize(
    ("listen", "advertised", "names", "addresses"),
    [
        ("127.0.0.1", "", [], ["127.0.0.1"]),
        ("0.0.0.0", "pos.example", ["pos.example"], []),
        ("0.0.0.0", "10.0.0.9", [], ["10.0.0.9"]),
        ("::1", "", [], ["::1"]),
    ],
)
def test_the_names_by_which_terminals_call_this_machine_are_found(
    listen: str, advertised: str, names: list[str], addresses: list[str]
) -> None:
    assert called_as(listen, advertised) == Subjects(tuple(names), tuple(addresses))


@pytest.mark.parametrize(("listen", "versions"), [("0.0.0.0", {4}), ("::", {4, 6})])
def test_a_listener_on_every_address_is_called_by_the_lan_addresses(listen: str, versions: set[int]) -> None:
    found = {ipaddress.ip_address(text) for text in called_as(listen, "").addresses}
    assert not any(address.is_loopback or address.is_link_local for address in found)
    assert {address.version for address in found} <= versions
    local = {ipaddress.ip_address(text) for text in local_addresses()}
    assert found == {address for address in local if not address.is_loopback and address.version in versions}


def test_missing_names_of_a_certificate_are_found(made: TlsFiles) -> None:
    info = load_pair(made.certificate, made.private_key, None).info
    assert info == describe(made.certificate)
    has = Subjects(("POS.shop.example", "localhost"), ("10.0.0.9", "0:0:0:0:0:0:0:1"))
    assert not missing_names(info, has)
    lacking = Subjects(("shop.example", "x.pos.shop.example"), ("10.0.0.8",))
    assert missing_names(info, lacking) == lacking
    wildcard = replace(info, names=("*.shop.example",))
    assert not missing_names(wildcard, Subjects(("till.shop.example",)))
    assert missing_names(wildcard, Subjects(("a.till.shop.example", "shop.example")))


def extension(ca: Path, kind: type[x509.ExtensionType]) -> x509.Extension[x509.ExtensionType]:
    return load(ca).extensions.get_extension_for_class(kind)


def test_a_ca_is_limited_to_private_networks_and_this_machine(made: TlsFiles) -> None:
    limits = extension(made.ca_certificate, x509.NameConstraints)
    assert limits.critical
    ca = load(made.ca_certificate)
    usable = Subjects(("till.lan", "localhost", "pos.local", NAMES[0]), ("192.168.1.2", "10.9.9.9", "fd00::7"))
    assert issue.permitted(ca, usable) == usable
    others = Subjects(("bank.example", "local.example", "notlan", "xlocal"), ("8.8.8.8", "2a00::1"))
    assert not issue.permitted(ca, others)
    assert extension(made.ca_certificate, x509.ExtendedKeyUsage).value == x509.ExtendedKeyUsage(
        [x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]
    )


def test_only_a_configured_name_outside_the_limits_of_the_ca_is_an_error(
    made: TlsFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SubjectError, match=r"cannot certify new\.example, 8\.8\.8\.8.*--force"):
        issue.init(made.ca_certificate.parent, names=["new.example"], addresses=["8.8.8.8"])
    monkeypatch.setattr(issue, "local_addresses", lambda: ["8.8.8.8", "10.1.1.1"])
    issue.renew(made.ca_certificate.parent)
    assert set(describe(made.certificate).addresses) == {*ADDRESSES, "10.1.1.1"}


@pytest.mark.parametrize(
    ("left", "following"), [(400, False), (200, True), (20, True)], ids=["new", "seven months before", "late"]
)
def test_a_new_ca_is_made_months_before_the_old_ca_ends(
    made: TlsFiles, monkeypatch: pytest.MonkeyPatch, left: int, following: bool
) -> None:
    directory, old = made.ca_certificate.parent, made.ca_certificate.read_bytes()
    end = describe(made.ca_certificate).not_after
    monkeypatch.setattr(issue, "now", lambda: end - timedelta(days=left))
    assert bool(issue.ca_reasons(made)) is following
    issue.renew(directory)
    assert made.next_ca_certificate.exists() is following
    issue.renew(directory)
    assert made.ca_certificate.read_bytes() == old


@pytest.mark.parametrize(("left", "follows"), [(40, False), (20, True), (-1, True)])
def test_at_the_end_of_the_old_ca_the_new_ca_signs(
    made: TlsFiles, monkeypatch: pytest.MonkeyPatch, left: int, follows: bool
) -> None:
    directory, end = made.ca_certificate.parent, describe(made.ca_certificate).not_after
    monkeypatch.setattr(issue, "now", lambda: end - timedelta(days=200))
    issue.renew(directory)
    new, key = made.next_ca_certificate.read_bytes(), made.next_ca_key.read_bytes()
    monkeypatch.setattr(issue, "now", lambda: end - timedelta(days=left))
    issue.renew(directory)
    assert (made.ca_certificate.read_bytes() == new, made.ca_key.read_bytes() == key) == (follows, follows)
    assert made.next_ca_key.exists() is not follows
    assert issue.issued_by(made.certificate, made.ca_certificate)


@pytest.mark.parametrize("lost", ["next_ca_key", "next_ca_certificate"])
def test_a_change_of_the_ca_is_finished_after_a_power_loss(made: TlsFiles, lost: str) -> None:
    directory = made.ca_certificate.parent
    issue.renew(directory, new_ca=True)
    if lost == "next_ca_key":  # the loss is at the end of the overlap
        made.next_ca_key.replace(made.ca_key)
    else:  # the loss is at the beginning of the overlap
        made.next_ca_certificate.unlink()
    issue.renew(directory)
    assert issue.issued_by(made.certificate, made.ca_certificate)
    assert not made.next_ca_key.exists()
    assert not made.next_ca_certificate.exists()


def test_the_key_of_the_ca_can_be_a_credential(made: TlsFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "credentials").mkdir()
    made.ca_key.rename(tmp_path / "credentials" / issue.CREDENTIAL)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "credentials"))
    issue.renew(made.ca_certificate.parent)
    assert issue.issued_by(made.certificate, made.ca_certificate)
