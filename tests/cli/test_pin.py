"""`posd terminals pin` shows a fingerprint, asks a person, and prints the configuration. The command trusts, sends and
writes nothing.
"""

import asyncio
import json
import stat
import tomllib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from posd.config import Pin, load
from tests.cli.processes import Done, Seen, posd, posd_on_terminal
from tests.support.certificates import Leaf, Recorder, public_key_sha256, recording, self_signed
from tests.support.daemon import running, toml
from tests.support.ports import reserve
from tests.support.tables import every

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
    def socket(self) -> Path:
        return self.home / "run" / "till.sock"

    def configure(self, *lines: str) -> None:
        """Write the configuration, with these lines for the terminal."""
        self.config.write_text(toml(self.home, "\n".join([f'[[terminals]]\nserial = "{SERIAL}"', *lines])))

    async def pin(self, *arguments: str, socket: Path | None = None) -> Done:
        """Run the command without a person to ask."""
        return await asyncio.to_thread(posd, "terminals", "pin", SERIAL, *arguments, config=self.config, socket=socket)

    async def pin_on_terminal(self, types: str, *arguments: str, columns: int = 160) -> Seen:
        """Run the command on a terminal with typed answers."""
        command = ("--config", str(self.config), "terminals", "pin", SERIAL, *arguments)
        return await asyncio.to_thread(posd_on_terminal, *command, socket=self.socket, types=types, columns=columns)

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


async def test_a_person_compares_and_gets_the_configuration(place: Place) -> None:
    before = place.config.read_bytes()
    seen = await place.pin_on_terminal("y\n")
    assert seen.returncode == 0
    for text in (*place.lines(), place.terminal.base_url, "CN=terminal", "itself", "terminal.example, 10.1.2.3"):
        assert text in seen.screen
    assert f"Put this into {place.config}, in its section, then reload posd:" in seen.screen
    (section,) = tomllib.loads(seen.screen[seen.screen.index("[[terminals]]") :])["terminals"]
    assert section["serial"] == SERIAL
    assert place.config.read_bytes() == before

    place.configure(
        f'base_url = "{place.terminal.base_url}"', f'fingerprint_sha256 = "{section["fingerprint_sha256"]}"'
    )
    assert load(place.config).terminals[0].fingerprint_sha256 == place.leaf.fingerprint
    assert "pins this certificate already" in (await place.pin()).stdout


@pytest.mark.quick(1)
@pytest.mark.parametrize("answer", ["n\n", "\n"], ids=["no", "enter"])
async def test_nothing_is_trusted_unless_a_person_says_yes(place: Place, answer: str) -> None:
    seen = await place.pin_on_terminal(answer)
    assert seen.returncode == 1
    assert "do not trust this certificate" in seen.screen
    assert "fingerprint_sha256 =" not in seen.screen


async def test_without_a_person_to_ask_the_command_only_shows(place: Place) -> None:
    done = await place.pin()
    assert done.returncode == 2
    assert all(line in done.stdout for line in place.lines())
    assert "fingerprint_sha256 =" not in done.stdout
    assert "give it: --fingerprint HEX" in done.stderr


@every("written", [str, str.upper, lambda text: text[:32] + " " + text[32:]], ["hex", "upper", "two"])
async def test_a_script_can_give_the_fingerprint(place: Place, written: Callable[[str], str]) -> None:
    done = await place.pin("--fingerprint", written(place.leaf.fingerprint))
    assert (done.returncode, done.stderr) == (0, "")
    assert f'fingerprint_sha256 = "{":".join(place.lines())}"' in done.stdout


async def test_a_fingerprint_that_differs_from_the_given_fingerprint_is_refused(place: Place) -> None:
    done = await place.pin("--fingerprint", "0" * 64)
    assert done.returncode == 1
    assert f"it has fingerprint {place.leaf.fingerprint}, not {'0' * 64}" in done.stderr
    assert "fingerprint_sha256 =" not in done.stdout


@every(("given", "code", "matches"), [("", 0, None), ("right", 0, True), ("0" * 64, 1, False)])
async def test_json_has_the_fingerprints(place: Place, given: str, code: int, matches: bool | None) -> None:
    fingerprint = place.leaf.fingerprint if given == "right" else given
    done = await place.pin("--json", *(["--fingerprint", fingerprint] if fingerprint else []))
    assert (done.returncode, done.document["matches"], done.document["toml"] is not None) == (
        code,
        matches,
        bool(matches),
    )
    assert done.document["fingerprint_sha256"] == place.leaf.fingerprint


async def test_the_address_comes_from_the_daemon_or_from_a_person() -> None:
    async with a_place() as place:
        place.configure(f'base_url = "{place.terminal.base_url}"')
        section = place.config.read_text().partition("[[terminals]]")
        async with running(place.home, f"[[terminals]]{section[2]}") as daemon:
            place.configure()  # only the daemon has the terminal's address
            done = await place.pin("--fingerprint", place.leaf.fingerprint, socket=daemon.till_socket)
            assert (done.returncode, place.terminal.base_url in done.stdout) == (0, True)
        done = await place.pin("--fingerprint", place.leaf.fingerprint)
        assert done.returncode == 1
        assert "its address is not configured, and cannot reach posd" in done.stderr
        assert "--address" in done.stderr
        for address in (f"127.0.0.1:{place.terminal.port}", place.terminal.base_url):
            done = await place.pin("--fingerprint", place.leaf.fingerprint, "--address", address)
            assert (done.returncode, place.terminal.base_url in done.stdout) == (0, True)


async def test_without_a_certificate_to_show_the_command_fails(place: Place) -> None:
    done = await place.pin("--address", f"127.0.0.1:{reserve()}")
    assert (done.returncode, done.stdout) == (1, "")
    assert "cannot be reached (Connection refused)" in done.stderr
    place.configure('base_url = "http://127.0.0.1:1"')
    done = await place.pin()
    assert (done.returncode in (1, 2), done.stdout) == (True, "")
    assert "it is called without TLS" in done.stderr


# posd terminals add


@pytest.fixture
async def new() -> AsyncIterator[Place]:
    """Yield a place without the terminal in the configuration."""
    async with a_place() as place:
        place.config.write_text(toml(place.home, '[[terminals]]\nserial = "SN-0009"\n'))
        yield place


async def add(place: Place, *arguments: str) -> Done:
    at = ("--address", place.terminal.base_url)
    return await asyncio.to_thread(posd, "terminals", "add", SERIAL, *at, *arguments, config=place.config)


def written(place: Place) -> Path:
    return place.home / "config.d" / f"terminal-{SERIAL}.toml"


async def test_a_person_compares_and_the_terminal_is_configured(new: Place) -> None:
    command = ("--config", str(new.config), "terminals", "add", SERIAL, "--address", new.terminal.base_url)
    seen = await asyncio.to_thread(posd_on_terminal, *command, socket=new.socket, types="y\n", columns=160)
    assert seen.returncode == 0, seen.screen
    for text in (*new.lines(), new.terminal.base_url, f"Written: {written(new)}"):
        assert text in seen.screen
    (terminal,) = (item for item in load(new.config).terminals if item.serial == SERIAL)
    assert terminal.pin == Pin("public key", public_key_sha256(new.leaf.der))
    assert (terminal.base_url, stat.S_IMODE(written(new).stat().st_mode)) == (new.terminal.base_url, 0o644)


@pytest.mark.parametrize("types", ["n\n", "\n"], ids=["no", "enter"])
async def test_no_terminal_is_added_unless_a_person_says_yes(new: Place, types: str) -> None:
    command = ("--config", str(new.config), "terminals", "add", SERIAL, "--address", new.terminal.base_url)
    seen = await asyncio.to_thread(posd_on_terminal, *command, socket=new.socket, types=types)
    assert (seen.returncode, (new.home / "config.d").exists()) == (1, False)


@pytest.mark.parametrize("of", ["certificate", "public key"])
async def test_a_script_adds_a_terminal_with_a_given_pin(new: Place, of: str) -> None:
    pinned = new.leaf.fingerprint if of == "certificate" else public_key_sha256(new.leaf.der)
    done = await add(new, "--yes", "--pin", pinned.upper(), "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["file"] == str(written(new))
    assert document["public_key_sha256"] == public_key_sha256(new.leaf.der)
    again = await add(new, "--yes", "--pin", pinned)
    assert again.returncode == 0, "the command may replace a file that it has written"


async def test_no_terminal_is_added_by_a_wrong_pin(new: Place) -> None:
    done = await add(new, "--yes", "--pin", "0" * 64)
    assert (done.returncode, "another certificate" in done.stderr) == (1, True)
    assert not (new.home / "config.d").exists()


async def test_a_terminal_configured_elsewhere_is_not_changed(place: Place) -> None:
    before = place.config.read_bytes()
    done = await add(place, "--yes", "--pin", place.leaf.fingerprint)
    assert (done.returncode, place.config.read_bytes()) == (1, before)
    assert f"{place.config} already" in done.stderr


async def test_a_persons_text_in_the_file_of_a_terminal_is_kept(new: Place) -> None:
    assert (await add(new, "--yes", "--pin", new.leaf.fingerprint)).returncode == 0
    edited = f'{written(new).read_text()}amount_unit = "hundredths"\n'
    written(new).write_text(edited)
    done = await add(new, "--yes", "--pin", new.leaf.fingerprint)
    assert (done.returncode, written(new).read_text()) == (1, edited)


async def test_a_section_that_conflicts_with_the_configuration_is_not_written(new: Place) -> None:
    new.config.write_text(toml(new.home, '[terminal_defaults]\nserver_name = "terminal.example"\n'))
    done = await add(new, "--yes", "--pin", new.leaf.fingerprint)
    assert (done.returncode, written(new).exists()) == (2, False)
    assert "terminal_defaults.server_name" in done.stderr


async def test_a_running_posd_uses_the_new_terminal_at_once() -> None:
    async with a_place() as place, running(place.home, "") as daemon:
        done = await add(place, "--yes", "--pin", place.leaf.fingerprint, "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["in_use"] is True
        known = (await daemon.call("GET", f"/terminals/{SERIAL}")).json
        assert known["base_url"] == place.terminal.base_url
