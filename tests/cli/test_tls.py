"""`posd tls`: messages, files and exit codes. tests/e2e has the tests with a daemon."""

import asyncio
import socket
import stat
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import pytest_asyncio
import trustme

from posd.tls import authority, issue
from posd.tls.certificate import local_addresses
from posd.tls.files import TlsFiles, describe, files_in, load_pair
from tests.cli.processes import Done, posd, posd_as_nobody
from tests.support.certificates import LATER, issued
from tests.support.daemon import Daemon, running, toml
from tests.support.needs import needs

DAY = timedelta(days=1)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Return a configuration for 127.0.0.1, without certificates."""
    file = tmp_path / "config.toml"
    file.write_text(toml(tmp_path, ""))
    return file


@pytest.fixture
def made(config: Path) -> TlsFiles:
    return issue.init(config.parent / "state" / "tls", names=["localhost"], addresses=["127.0.0.1"])


def status(config: Path) -> tuple[int, dict[str, dict[str, Any]]]:
    """Return the exit code of `posd tls status`, and the findings by name of the file or address."""
    done = posd("tls", "status", "--json", config=config)
    return done.returncode, {Path(one["subject"]).name: one for one in done.document["findings"]}


def as_nobody(command: str, closed: str) -> Done:
    """Run `posd tls` as a user without access to a folder of the state."""
    with TemporaryDirectory(prefix="posd-") as directory:
        home = Path(directory)
        home.chmod(0o755)
        config = home / "config.toml"
        config.write_text(toml(home, ""))
        issue.init(home / "state" / "tls", names=["localhost"], addresses=["127.0.0.1"])
        (home / "state").chmod(0o755)
        (home / closed).chmod(0o700)
        (done,) = posd_as_nobody(config, f"tls {command}")
    return done


@pytest.mark.quick(1)
@needs(root=True)
@pytest.mark.parametrize("command", ["init", "status", "renew", "ca"])
def test_a_user_without_access_to_the_state_directory_is_told_so(command: str) -> None:
    """Only posd's user may enter the directory. A user without sudo gets this error first."""
    done = as_nobody(command, closed="state")
    # The findings of posd doctor have their own texts.
    told = ("may not read", "the user of posd") if command == "status" else ("Permission denied", "user of the daemon")
    said = done.stdout + done.stderr
    assert (done.returncode, [words for words in told if words not in said]) == (1, [])
    assert "fault of posd" not in said


def test_status_of_good_files_has_no_findings(config: Path, made: TlsFiles) -> None:
    done = posd("tls", "status", config=config)
    info = describe(made.certificate)
    assert (done.returncode, done.stderr) == (0, "")
    for text in ("localhost", "127.0.0.1", "(395 days)", info.issuer, "the certificate names it"):
        assert text in done.stdout
    shown = "".join(line.removeprefix("fingerprint: ") for line in done.lines if line.count(":") >= 15)
    assert shown.replace(":", "").lower() == info.fingerprint_sha256
    document = posd("tls", "status", "--json", config=config).document
    assert (document["ok"], document["own"]) == (True, True)
    assert document["certificate"]["fingerprint_sha256"] == info.fingerprint_sha256
    assert document["ca"]["days_left"] == 728


def another_address(made: TlsFiles) -> None:
    issue.init(made.certificate.parent, names=["localhost"], addresses=["10.9.9.9"])


def no_ca(made: TlsFiles) -> None:
    made.ca_certificate.unlink()


@pytest.mark.parametrize(
    ("server", "ca", "what", "level", "words", "command"),
    [
        (21 * DAY, authority.CA_LIFETIME, "server.crt", "warning", "ends in 19 days", "tls renew"),
        (DAY / 2, authority.CA_LIFETIME, "server.crt", "failure", "expired on ", "tls renew"),
        (issue.SERVER_LIFETIME, 101 * DAY, "ca.crt", "warning", "ends in 99 days", "tls renew --new-ca"),
        (issue.SERVER_LIFETIME, DAY / 2, "ca.crt", "failure", "expired on ", "tls init --force"),
    ],
)
def test_status_reports_a_certificate_that_ends_soon(
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    server: timedelta,
    ca: timedelta,
    what: str,
    level: str,
    words: str,
    command: str,
) -> None:
    monkeypatch.setattr(issue, "SERVER_LIFETIME", server)
    monkeypatch.setattr(authority, "CA_LIFETIME", ca)
    issue.init(config.parent / "state" / "tls", names=["localhost"], addresses=["127.0.0.1"])
    code, findings = status(config)
    assert (code, findings[what]["status"]) == (1, level)
    assert words in findings[what]["meaning"]
    assert findings[what]["commands"][0].endswith(command)


def test_a_ca_without_name_constraints_is_reported(
    config: Path, made: TlsFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert status(config)[1]["ca.crt"]["status"] == "ok"
    monkeypatch.setattr(authority, "is_limited", lambda _: False)
    assert status(config)[1]["ca.crt"]["status"] == "warning"


def shops_own(config: Path) -> Path:
    """Configure a pair of the shop's own PKI. Return the certificate."""
    pair = issued(config.parent, trustme.CA(), "127.0.0.1")
    pair.private_key.chmod(0o640)  # modes for a group that manages keys
    named = f'[webhooks]\ncertificate = "{pair.certificate}"\nprivate_key = "{pair.private_key}"\n'
    config.write_text(config.read_text().replace("[webhooks]\n", named))
    return pair.certificate


def test_the_shops_own_pair_is_shown_and_not_changed(config: Path) -> None:
    certificate = shops_own(config)
    before = certificate.read_bytes()
    code, findings = status(config)
    assert (code, findings[certificate.name]["status"]) == (1, "warning")
    assert "put a matching pair into" in findings[certificate.name]["todo"]
    assert "ca.crt" not in findings
    done = posd("tls", "renew", config=config)
    assert (done.returncode, "cannot renew: the certificate is that of the shop's own PKI" in done.stderr) == (1, True)
    assert posd("tls", "renew", "--if-needed", config=config).returncode == 0
    done = posd("tls", "ca", config=config)
    assert (done.returncode, done.stdout) == (1, "")
    assert "has its own CA" in done.stderr
    done = posd("tls", "init", "--if-missing", config=config)
    assert (done.returncode, "names the certificate" in done.stdout) == (0, True)
    assert not (config.parent / "state" / "tls").exists()
    assert certificate.read_bytes() == before
    assert f"{LATER.astimezone():%Y-%m-%d}" in posd("tls", "status", config=config).stdout


def snapshot(made: TlsFiles) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in made.certificate.parent.iterdir()}


def test_renew_replaces_the_certificate_and_nothing_else(config: Path, made: TlsFiles) -> None:
    before, old = snapshot(made), describe(made.certificate)
    done = posd("tls", "renew", config=config)
    assert (done.returncode, done.stderr) == (0, "")
    assert "key and CA are the same as before" in done.stdout
    after, new = snapshot(made), describe(made.certificate)
    assert {name for name in after if after[name] != before.get(name)} == {"server.crt"}
    assert new.fingerprint_sha256 != old.fingerprint_sha256
    assert set(old.names) <= set(new.names)
    assert set(new.addresses) == {*old.addresses, *local_addresses()}
    assert stat.S_IMODE(made.private_key.stat().st_mode) == 0o600
    load_pair(made.certificate, made.private_key, None)


def test_names_given_at_init_stay_and_the_machines_names_at_init_do_not(config: Path) -> None:
    assert posd("tls", "init", "--name", "pos.shop.example", "--address", "10.9.9.9", config=config).returncode == 0
    made = files_in(config.parent / "state" / "tls")
    assert posd("tls", "renew", config=config).returncode == 0
    assert describe(made.certificate).names[0] == "pos.shop.example"
    assert set(describe(made.certificate).addresses) == {"10.9.9.9", *local_addresses()}
    # A directory of an older version has no stored names. The renewal loses no name.
    issue.init(made.certificate.parent, names=["old.lan"], addresses=["10.8.8.8"])
    made.given.unlink()
    assert posd("tls", "renew", config=config).returncode == 0
    assert "old.lan" in describe(made.certificate).names
    assert "10.8.8.8" in describe(made.certificate).addresses


def test_renew_if_needed_does_not_change_a_good_certificate(config: Path, made: TlsFiles) -> None:
    before = snapshot(made)
    done = posd("tls", "renew", "--if-needed", config=config)
    assert (done.returncode, "Not needed" in done.stdout) == (0, True)
    assert snapshot(made).items() >= before.items()
    assert posd("tls", "renew", "--if-needed", "--json", config=config).document["renewed"] is False


@pytest.mark.parametrize("harm", [another_address, lambda made: made.certificate.unlink()], ids=["address", "file"])
def test_renew_if_needed_repairs(config: Path, made: TlsFiles, harm: Callable[[TlsFiles], None]) -> None:
    harm(made)
    done = posd("tls", "renew", "--if-needed", "--json", config=config)
    document = done.document
    assert (done.returncode, document["renewed"], len(document["reasons"])) == (0, True, 1)
    assert status(config)[0] == 0


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (no_ca, "though its other half does"),
        (lambda made: made.private_key.unlink(), "server.key: does not exist; make a new pair with: posd tls init"),
        (lambda made: made.private_key.write_text("x"), "server.key: cannot be read as PEM"),
    ],
    ids=["CA", "no key", "bad key"],
)
def test_renew_names_what_is_missing(
    config: Path, made: TlsFiles, harm: Callable[[TlsFiles], None], words: str
) -> None:
    harm(made)
    before = snapshot(made)
    done = posd("tls", "renew", config=config)
    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr
    assert snapshot(made).items() >= before.items()


def test_init_if_missing_creates_only_the_first_certificate(config: Path) -> None:
    """The unit runs this command before the daemon. Terminals that pin the old key would refuse a new key."""
    made = files_in(config.parent / "state" / "tls")
    assert posd("tls", "init", "--if-missing", config=config).returncode == 0
    before = snapshot(made)
    done = posd("tls", "init", "--if-missing", config=config)
    assert (done.returncode, done.stdout) == (0, f"Nothing is made: there is a certificate in {made.ca_key.parent}.\n")
    assert snapshot(made) == before


def test_init_if_missing_does_not_call_the_daemon(config: Path, tmp_path: Path) -> None:
    """systemd holds the till's socket while the service starts, so a call would never return."""
    (tmp_path / "run").mkdir()
    with socket.socket(socket.AF_UNIX) as held:
        held.bind(str(tmp_path / "run" / "till.sock"))
        held.listen()
        held.setblocking(False)
        assert posd("tls", "init", "--if-missing", config=config).returncode == 0
        with pytest.raises(BlockingIOError):  # no call arrived
            held.accept()


def test_the_ca_is_written_to_a_file_and_its_fingerprint_is_shown(config: Path, made: TlsFiles) -> None:
    done = posd("tls", "ca", config=config)
    assert (done.returncode, done.stdout, done.stderr) == (0, made.ca_certificate.read_text(), "")
    info = describe(made.ca_certificate)
    lines = posd("tls", "ca", "--fingerprint", config=config).stdout.split()
    assert [len(line) for line in lines] == [47, 47]
    assert "".join(lines).replace(":", "").lower() == info.fingerprint_sha256.lower()
    document = posd("tls", "ca", "--json", config=config).document
    assert (document["fingerprint_sha256"], document["pem"]) == (info.fingerprint_sha256, done.stdout)


@pytest.mark.parametrize("command", ["ca", "renew"])
def test_before_init_the_first_command_is_named(config: Path, command: str) -> None:
    done = posd("tls", command, config=config)
    assert (done.returncode, done.stdout, "posd tls init" in done.stderr) == (1, "", True)


@pytest_asyncio.fixture
async def daemon() -> AsyncIterator[Daemon]:
    with TemporaryDirectory(prefix="posd-") as directory:
        async with running(Path(directory), "") as daemon:
            yield daemon


async def run(daemon: Daemon, *arguments: str) -> Done:
    return await asyncio.to_thread(posd, *arguments, config=daemon.config_file)


@needs(root=True)
async def test_every_user_of_the_machine_may_print_the_ca(daemon: Daemon) -> None:
    assert (
        await run(daemon, "tls", "renew")
    ).returncode == 0  # the daemon has loaded the certificate and published the CA
    daemon.directory.chmod(0o755)
    (daemon.directory / "state").chmod(0o700)
    (done,) = await asyncio.to_thread(posd_as_nobody, daemon.config_file, "tls ca")
    assert (done.returncode, done.stdout) == (0, daemon.ca.read_text()), done.stderr


async def test_the_listener_is_checked_and_notified(daemon: Daemon) -> None:
    document = (await run(daemon, "tls", "status", "--json")).document
    assert document["ok"], document["findings"]
    listener = f"127.0.0.1:{daemon.port}"
    assert (
        "posd answers with its certificate"
        in {one["subject"]: one["meaning"] for one in document["findings"]}[listener]
    )

    # The daemon gets no notice of this renewal. The daemon loads the certificate at the next SIGHUP, or a little later
    # by itself.
    made = files_in(daemon.directory / "state" / "tls")
    done = await run(daemon, "tls", "renew", "--json")
    assert done.document["served"] is True
    await daemon.log_line("certificate.loaded", fingerprint_sha256=describe(made.certificate).fingerprint_sha256)

    made.private_key.with_name("new").write_bytes(made.ca_key.read_bytes())
    made.private_key.with_name("new").replace(made.private_key)
    other = issue.init(daemon.directory / "other", names=["localhost"], addresses=["127.0.0.1"])
    other.certificate.replace(made.certificate)
    done = await run(daemon, "tls", "status", "--json")
    levels = {one["subject"]: one["status"] for one in done.document["findings"]}
    assert (done.returncode, levels[listener], levels[str(made.private_key)]) == (1, "warning", "failure")

    done = await run(daemon, "tls", "init")
    assert (done.returncode, "the running posd serves it already" in done.stdout) == (0, True)
    assert (await run(daemon, "tls", "status", "--json")).returncode == 0
