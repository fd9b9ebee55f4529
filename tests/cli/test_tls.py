"""`posd tls`: messages, files and exit codes. tests/e2e has the tests with a daemon."""

import asyncio
import socket
import stat
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import pytest_asyncio
import trustme

from posd.config import Pin, load
from posd.tls import issue
from posd.tls.certificate import local_addresses
from posd.tls.files import TlsFiles, describe, files_in, load_pair
from tests.rig.certificates import LATER, Leaf, Recorder, issued, public_key_sha256, recording, self_signed
from tests.rig.commands import Done, posd, posd_as_nobody, posd_on_terminal
from tests.rig.daemon import Daemon, running, toml
from tests.rig.needs import needs
from tests.rig.ports import reserve

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


@needs(root=True)
def test_a_user_without_access_to_the_state_directory_is_told_this() -> None:
    """Only posd's user may enter the directory. A user without sudo gets this error first."""
    commands = ("init", "status", "renew", "ca")
    with TemporaryDirectory(prefix="posd-") as directory:
        home, config = Path(directory), Path(directory) / "config.toml"
        home.chmod(0o755)
        config.write_text(toml(home, ""))
        issue.init(home / "state" / "tls", names=["localhost"], addresses=["127.0.0.1"])
        (home / "state").chmod(0o700)
        all_done = [posd_as_nobody(config, f"tls {command}") for command in commands]
    for command, done in zip(commands, all_done, strict=True):
        # The findings of posd doctor have their own texts.
        told = ("may not read", "the user of posd") if command == "status" else ("Permission denied", "of the daemon")
        done.ends(1, *told, lacks=["fault of posd"])


def test_status_of_good_files_has_no_findings(config: Path, made: TlsFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    info = describe(made.certificate)
    words = ("localhost", "127.0.0.1", "(395 days)", info.issuer, "the certificate names it")
    done = posd("tls", "status", config=config).ends(0, *words)
    shown = "".join(line.removeprefix("fingerprint: ") for line in done.lines if line.count(":") >= 15)
    assert shown.replace(":", "").lower() == info.fingerprint_sha256
    document = posd("tls", "status", "--json", config=config).document
    assert (document["ok"], document["own"], document["ca"]["days_left"]) == (True, True, 728)
    assert document["certificate"]["fingerprint_sha256"] == info.fingerprint_sha256
    monkeypatch.setattr(issue, "is_limited", lambda _: False)  # a CA without name constraints
    assert status(config)[1]["ca.crt"]["status"] == "warning"


@pytest.mark.parametrize(
    ("what", "lifetime", "level", "words", "command"),
    [
        ("server.crt", 21 * DAY, "warning", "ends in 19 days", "tls renew"),
        ("server.crt", DAY / 2, "failure", "expired on ", "tls renew"),
        ("ca.crt", 101 * DAY, "warning", "ends in 99 days", "tls renew --new-ca"),
        ("ca.crt", DAY / 2, "failure", "expired on ", "tls init --force"),
    ],
)
def test_status_reports_a_certificate_that_ends_soon(
    config: Path, monkeypatch: pytest.MonkeyPatch, what: str, lifetime: timedelta, level: str, words: str, command: str
) -> None:
    module, name = (issue, "SERVER_LIFETIME") if what == "server.crt" else (issue, "CA_LIFETIME")
    monkeypatch.setattr(module, name, lifetime)
    issue.init(config.parent / "state" / "tls", names=["localhost"], addresses=["127.0.0.1"])
    code, findings = status(config)
    assert (code, findings[what]["status"], words in findings[what]["meaning"]) == (1, level, True)
    assert findings[what]["commands"][0].endswith(command)
    assert ("ended on " in posd("tls", "status", config=config).stdout) == (words == "expired on ")


def test_the_shops_own_pair_is_shown_and_not_changed(config: Path) -> None:
    pair = issued(config.parent, trustme.CA(), "127.0.0.1")
    pair.private_key.chmod(0o640)  # modes for a group that manages keys
    named = f'[webhooks]\ncertificate = "{pair.certificate}"\nprivate_key = "{pair.private_key}"\n'
    config.write_text(config.read_text().replace("[webhooks]\n", named))
    before = pair.certificate.read_bytes()
    code, findings = status(config)
    assert (code, findings[pair.certificate.name]["status"], "ca.crt" in findings) == (1, "warning", False)
    todo = findings[pair.certificate.name]["todo"]
    assert "put a matching pair of the shop's PKI into" in todo
    assert "every terminal then has to trust posd's CA" in todo
    for line, code, words in (
        ("renew", 1, "cannot renew: the certificate is that of the shop's own PKI"),
        ("renew --if-needed", 0, ""),
        ("ca", 1, "has its own CA"),
        ("init --if-missing", 0, "names the certificate"),
        ("status", 1, f"{LATER.astimezone():%Y-%m-%d}"),
    ):
        done = posd("tls", *line.split(), config=config).ends(code, words)
        assert line != "ca" or done.stdout == ""
    assert not (config.parent / "state" / "tls").exists()
    assert pair.certificate.read_bytes() == before


def snapshot(made: TlsFiles) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in made.certificate.parent.iterdir()}


def test_renew_replaces_the_certificate_and_nothing_else(config: Path, made: TlsFiles) -> None:
    before, old = snapshot(made), describe(made.certificate)
    posd("tls", "renew", "--if-needed", config=config).ends(0, "Not needed")
    assert posd("tls", "renew", "--if-needed", "--json", config=config).document["renewed"] is False
    assert snapshot(made).items() >= before.items()
    posd("tls", "renew", config=config).ends(0, "key and CA are the same as before")
    after, new = snapshot(made), describe(made.certificate)
    assert {name for name in after if after[name] != before.get(name)} == {"server.crt"}
    assert new.fingerprint_sha256 != old.fingerprint_sha256
    assert set(old.names) <= set(new.names)
    assert set(new.addresses) == {*old.addresses, *local_addresses()}
    assert stat.S_IMODE(made.private_key.stat().st_mode) == 0o600
    load_pair(made.certificate, made.private_key, None)


def test_a_renewal_keeps_given_names_and_reads_the_machines_names_again(config: Path) -> None:
    made = files_in(config.parent / "state" / "tls")
    # The daemon replaces a certificate that lacks an address of this machine.
    for line in ("init --name pos.shop.example --address 10.9.9.9", "renew"):
        posd("tls", *line.split(), config=config).ends(0)
        assert describe(made.certificate).names[0] == "pos.shop.example"
        assert set(describe(made.certificate).addresses) == {"10.9.9.9", *local_addresses()}
    # A directory of an older version has no stored names. The renewal loses no name.
    issue.init(made.certificate.parent, names=["old.lan"], addresses=["10.8.8.8"])
    made.given.unlink()
    posd("tls", "renew", config=config).ends(0)
    old = describe(made.certificate)
    assert ("old.lan" in old.names, "10.8.8.8" in old.addresses) == (True, True)


def test_a_second_init_keeps_the_ca_and_the_option_force_replaces_it(config: Path, made: TlsFiles) -> None:
    before = made.ca_certificate.read_bytes()
    posd("tls", "init", config=config).ends(0)
    assert made.ca_certificate.read_bytes() == before
    posd("tls", "init", "--force", config=config).ends(0)
    assert made.ca_certificate.read_bytes() != before


def test_the_option_if_needed_of_renew_repairs_the_certificate(config: Path, made: TlsFiles) -> None:
    issue.init(made.certificate.parent, names=["localhost"], addresses=["10.9.9.9"])
    for harm in (lambda: None, made.certificate.unlink):
        harm()
        done = posd("tls", "renew", "--if-needed", "--json", config=config)
        assert (done.returncode, done.document["renewed"], len(done.document["reasons"])) == (0, True, 1)
        assert status(config)[0] == 0


def test_renew_names_what_is_missing_and_changes_nothing(config: Path, made: TlsFiles) -> None:
    for path, content, words in (
        (made.ca_certificate, None, "but the other file of the pair does"),
        (made.private_key, "x", "server.key: cannot be read as PEM"),
        (made.private_key, None, "server.key: does not exist; make a new pair with: posd tls init"),
    ):
        kept = path.read_bytes()
        path.unlink() if content is None else path.write_text(content)
        before = snapshot(made)
        done = posd("tls", "renew", config=config).ends(1, words)
        assert done.stdout == ""
        assert snapshot(made).items() >= before.items()
        path.write_bytes(kept)


def test_init_if_missing_creates_only_a_first_certificate(config: Path) -> None:
    """The unit runs this command before the daemon. Terminals that pin the old key would refuse a new key. systemd
    holds the till's socket while the service starts, so a call of this command to posd would never return.
    """
    made = files_in(config.parent / "state" / "tls")
    (config.parent / "run").mkdir()
    with socket.socket(socket.AF_UNIX) as held:
        held.bind(str(config.parent / "run" / "till.sock"))
        held.listen()
        held.setblocking(False)
        posd("tls", "init", "--if-missing", config=config).ends(0)
        with pytest.raises(BlockingIOError):  # no call arrived
            held.accept()
    before = snapshot(made)
    done = posd("tls", "init", "--if-missing", config=config)
    assert (done.returncode, done.stdout) == (0, f"Nothing is made: there is a certificate in {made.ca_key.parent}.\n")
    assert snapshot(made) == before


def test_the_ca_is_written_to_a_file_and_its_fingerprint_is_shown(config: Path, made: TlsFiles) -> None:
    done = posd("tls", "ca", config=config)
    assert (done.returncode, done.stdout, done.stderr) == (0, made.ca_certificate.read_text(), "")
    info = describe(made.ca_certificate)
    lines = posd("tls", "ca", "--fingerprint", config=config).stdout.split()
    assert [len(line) for line in lines] == [47, 47]
    assert "".join(lines).replace(":", "").lower() == info.fingerprint_sha256.lower()
    document = posd("tls", "ca", "--json", config=config).document
    assert (document["fingerprint_sha256"], document["pem"]) == (info.fingerprint_sha256, done.stdout)


def test_before_init_the_message_names_the_first_command(config: Path) -> None:
    for command in ("ca", "renew"):
        done = posd("tls", command, config=config).ends(1, "posd tls init")
        assert done.stdout == ""


@pytest_asyncio.fixture
async def daemon() -> AsyncIterator[Daemon]:
    with TemporaryDirectory(prefix="posd-") as directory:
        async with running(Path(directory), "") as daemon:
            yield daemon


async def run(daemon: Daemon, *arguments: str) -> Done:
    return await asyncio.to_thread(posd, *arguments, config=daemon.config_file)


@needs(root=True)
async def test_every_user_of_the_machine_may_print_the_ca(daemon: Daemon) -> None:
    (await run(daemon, "tls", "renew")).ends(0)  # the daemon has loaded the certificate and published the CA
    daemon.directory.chmod(0o755)
    (daemon.directory / "state").chmod(0o700)
    done = await asyncio.to_thread(posd_as_nobody, daemon.config_file, "tls ca")
    assert (done.returncode, done.stdout) == (0, daemon.ca.read_text()), done.stderr


async def test_status_checks_the_listener_and_renew_notifies_it(daemon: Daemon) -> None:
    document = (await run(daemon, "tls", "status", "--json")).document
    assert document["ok"], document["findings"]
    listener = f"127.0.0.1:{daemon.port}"
    (meaning,) = (one["meaning"] for one in document["findings"] if one["subject"] == listener)
    assert "posd answers with its certificate" in meaning

    # The daemon gets no notice of this renewal. The daemon loads the certificate at the next SIGHUP, or a little later
    # by itself.
    made = files_in(daemon.directory / "state" / "tls")
    done = await run(daemon, "tls", "renew", "--json")
    assert done.document["served"] is True
    await daemon.log_line("certificate.loaded", fingerprint_sha256=describe(made.certificate).fingerprint_sha256)


# Pins of terminals. The command pin trusts, sends and writes nothing. The command add writes the configuration.


SERIAL = "SN-0001"


@dataclass
class Place:
    """A directory with a configuration, and a terminal with a certificate."""

    home: Path
    terminal: Recorder
    leaf: Leaf

    @property
    def config(self) -> Path:
        return self.home / "config.toml"

    @property
    def written(self) -> Path:
        """File of `terminals add`."""
        return self.home / "config.d" / f"terminal-{SERIAL}.toml"

    def configure(self, *lines: str) -> None:
        """Write the configuration, with these lines for the terminal."""
        self.config.write_text(toml(self.home, "\n".join([f'[[terminals]]\nserial = "{SERIAL}"', *lines])))

    async def pin(self, *arguments: str, socket: Path | None = None) -> Done:
        """Run the command without a person to ask."""
        return await asyncio.to_thread(posd, "terminals", "pin", SERIAL, *arguments, config=self.config, socket=socket)

    async def add(self, *arguments: str) -> Done:
        """Run `terminals add` without a person to ask."""
        at = ("--address", self.terminal.base_url, "--yes", "--pin")
        return await asyncio.to_thread(posd, "terminals", "add", SERIAL, *at, *arguments, config=self.config)

    async def on_terminal(self, command: str, types: str, *arguments: str) -> Done:
        """Run a command on a terminal with typed answers."""
        words = ("--config", str(self.config), "terminals", command, SERIAL, *arguments)
        socket = self.home / "run" / "till.sock"
        return await asyncio.to_thread(posd_on_terminal, *words, socket=socket, types=types, columns=160)

    def lines(self) -> list[str]:
        """Return the lines of the fingerprint on a screen."""
        pairs = [self.leaf.fingerprint[at : at + 2].upper() for at in range(0, 64, 2)]
        return [":".join(pairs[:16]), ":".join(pairs[16:])]


@asynccontextmanager
async def a_place() -> AsyncIterator[Place]:
    with TemporaryDirectory(prefix="posd-") as directory:
        home = Path(directory)
        leaf = self_signed(home, "terminal.example", "10.1.2.3")
        async with recording(leaf.context()) as terminal:
            yield Place(home, terminal, leaf)
            await terminal.quiet()
            assert b"".join(terminal.received) == b""  # the command makes a handshake and sends no request


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with a_place() as place:
        place.configure(f'base_url = "{place.terminal.base_url}"')
        yield place


async def test_a_person_compares_the_fingerprint_and_gets_the_configuration(place: Place) -> None:
    before = place.config.read_bytes()
    shown = (*place.lines(), place.terminal.base_url, "CN=terminal", "itself", "terminal.example, 10.1.2.3")
    told = f"Put this into {place.config}, in the terminal's section, then reload posd:"
    seen = (await place.on_terminal("pin", "y\n")).ends(0, *shown, told)
    (section,) = tomllib.loads(seen.screen[seen.screen.index("[[terminals]]") :])["terminals"]
    assert section["serial"] == SERIAL
    assert place.config.read_bytes() == before

    pin = f'fingerprint_sha256 = "{section["fingerprint_sha256"]}"'
    place.configure(f'base_url = "{place.terminal.base_url}"', pin)
    assert load(place.config).terminals[0].fingerprint_sha256 == place.leaf.fingerprint
    assert "pins this certificate already" in (await place.pin()).stdout


async def test_nothing_is_trusted_unless_a_person_says_yes(place: Place) -> None:
    """Without a person to ask the command only shows."""
    for types in ("n\n", "\n"):
        seen = await place.on_terminal("pin", types)
        seen.ends(1, "do not trust this certificate", lacks=["fingerprint_sha256 ="])
    (await place.pin()).ends(2, "give it: --fingerprint HEX", *place.lines(), lacks=["fingerprint_sha256 ="])


async def test_a_script_can_give_the_fingerprint(place: Place) -> None:
    right, wrong = place.leaf.fingerprint, "0" * 64
    for written in (right, right.upper(), f"{right[:32]} {right[32:]}"):
        (await place.pin("--fingerprint", written)).ends(0, f'fingerprint_sha256 = "{":".join(place.lines())}"')
    refused = await place.pin("--fingerprint", wrong)
    refused.ends(1, f"it has fingerprint {right}, not {wrong}", lacks=["fingerprint_sha256 ="])
    for given, matches in (((), None), (("--fingerprint", right), True), (("--fingerprint", wrong), False)):
        done = (await place.pin("--json", *given)).ends(matches is False)
        assert (done.document["matches"], done.document["toml"] is not None) == (matches, bool(matches))
        assert done.document["fingerprint_sha256"] == right


async def test_the_address_comes_from_the_daemon_or_from_a_person() -> None:
    async with a_place() as place:
        place.configure(f'base_url = "{place.terminal.base_url}"')
        given = ("--fingerprint", place.leaf.fingerprint)
        section = place.config.read_text().partition("[[terminals]]")
        async with running(place.home, f"[[terminals]]{section[2]}") as daemon:
            place.configure()  # only the daemon has the terminal's address
            (await place.pin(*given, socket=daemon.till_socket)).ends(0, place.terminal.base_url)
        (await place.pin(*given)).ends(1, "--address", "its address is not configured, and cannot reach posd")
        for address in (f"127.0.0.1:{place.terminal.port}", place.terminal.base_url):
            (await place.pin(*given, "--address", address)).ends(0, place.terminal.base_url)


async def test_the_command_fails_if_it_gets_no_certificate_to_show(place: Place) -> None:
    done = await place.pin("--address", f"127.0.0.1:{reserve()}")
    assert done.ends(1, "cannot be reached (Connection refused)").stdout == ""
    place.configure('base_url = "http://127.0.0.1:1"')
    done = await place.pin()
    assert (done.returncode in (1, 2), done.stdout, "it is called without TLS" in done.stderr) == (True, "", True)


# posd terminals add


@pytest.fixture
async def new() -> AsyncIterator[Place]:
    """Yield a place without the terminal in the configuration."""
    async with a_place() as place:
        place.config.write_text(toml(place.home, '[[terminals]]\nserial = "SN-0009"\n'))
        yield place


async def test_a_person_compares_the_fingerprint_and_the_terminal_is_configured(new: Place) -> None:
    for types in ("n\n", "\n"):
        (await new.on_terminal("add", types, "--address", new.terminal.base_url)).ends(1)
        assert not new.written.parent.exists()
    seen = await new.on_terminal("add", "y\n", "--address", new.terminal.base_url)
    seen.ends(0, *new.lines(), new.terminal.base_url, f"Written: {new.written}")
    (terminal,) = (item for item in load(new.config).terminals if item.serial == SERIAL)
    assert terminal.pin == Pin("public key", public_key_sha256(new.leaf.der))
    assert (terminal.base_url, stat.S_IMODE(new.written.stat().st_mode)) == (new.terminal.base_url, 0o644)


async def test_a_script_adds_a_terminal_by_its_pin_but_keeps_an_edited_file(new: Place) -> None:
    (await new.add("0" * 64)).ends(1, "another certificate")
    assert not new.written.parent.exists()
    public_key = public_key_sha256(new.leaf.der)
    for pinned in (new.leaf.fingerprint, public_key):  # the command may replace a file that it has written
        done = (await new.add(pinned.upper(), "--json")).ends(0)
        assert (done.document["file"], done.document["public_key_sha256"]) == (str(new.written), public_key)
    edited = f'{new.written.read_text()}amount_unit = "hundredths"\n'
    new.written.write_text(edited)
    done = await new.add(new.leaf.fingerprint)
    assert (done.returncode, new.written.read_text()) == (1, edited)


async def test_a_terminal_configured_elsewhere_is_not_changed(place: Place) -> None:
    before = place.config.read_bytes()
    (await place.add(place.leaf.fingerprint)).ends(1, f"{place.config} already")
    assert place.config.read_bytes() == before


async def test_a_section_that_conflicts_with_the_configuration_is_not_written(new: Place) -> None:
    new.config.write_text(toml(new.home, '[terminal_defaults]\nserver_name = "terminal.example"\n'))
    (await new.add(new.leaf.fingerprint)).ends(2, "terminal_defaults.server_name")
    assert not new.written.exists()


async def test_a_running_posd_uses_the_new_terminal_at_once() -> None:
    async with a_place() as place, running(place.home, "") as daemon:
        assert (await place.add(place.leaf.fingerprint, "--json")).ends(0).document["in_use"]
        known = (await daemon.call("GET", f"/terminals/{SERIAL}")).json
        assert known["base_url"] == place.terminal.base_url
