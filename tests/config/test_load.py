"""Content of a valid configuration: values, defaults, inheritance, paths, sources."""

import subprocess
import sys
from pathlib import Path

import pytest

from posd.config import Config, load, parse
from posd.config.profile import EDITIONS
from posd.config.show import toml_lines


def read(text: str = "", directory: Path = Path("/etc/posd")) -> Config:
    return parse(text, file=directory / "config.toml")


def test_an_empty_file_is_a_configuration_without_terminals() -> None:
    config = read()
    assert config.terminals == ()
    assert config.profiles == EDITIONS
    assert set(config.sources.values()) == {"default"}
    assert config.merchant.timezone == "America/Guayaquil"
    assert config.local_api.till_socket == Path("/run/posd/till.sock")
    assert config.local_api.admin_socket == Path("/run/posd/admin.sock")
    assert (config.webhooks.listen.host, config.webhooks.listen.port, str(config.webhooks.listen)) == (
        "0.0.0.0",
        8443,
        "0.0.0.0:8443",
    )
    assert config.webhooks.certificate is None
    assert config.database.callback_key == Path("/var/lib/posd/callback.key")
    assert config.database.tls_directory == Path("/var/lib/posd/tls")
    assert config.database.lock == Path("/var/lib/posd/posd.db.lock")
    assert config.print_.poll_max_seconds == 30.0
    assert config.metrics.listen is None
    assert config.metrics.textfile is None


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").touch()
    file = tmp_path / "config.toml"
    file.write_text('[database]\npath = "state/posd.db"\n[terminal_defaults]\nca_file = "ca.pem"\n')
    config = load(file)
    assert config.file == file
    assert config.database.path == tmp_path / "state/posd.db"
    assert config.terminal_defaults.ca_file == tmp_path / "ca.pem"


def test_if_files_are_not_checked_no_file_that_the_configuration_names_is_opened() -> None:
    text = '[webhooks]\ncertificate = "none.crt"\nprivate_key = "none.key"\n[terminal_defaults]\n'
    text += 'headers = {A = {file = "none"}}'
    config = parse(text, file=Path("/etc/posd/config.toml"), check_files=False)
    assert config.webhooks.private_key == Path("/etc/posd/none.key")


def test_terminals_inherit_and_override() -> None:
    config = read(
        """
        [terminal_defaults]
        reply_timeout_seconds = 40
        [[terminals]]
        serial = "A"
        [[terminals]]
        serial = "B"
        scheme = "http"
        base_url = "http://10.0.0.9:6868/"
        reply_timeout_seconds = 5.5
        """
    )
    first, second = config.terminals
    assert (first.serial, first.scheme, first.reply_timeout_seconds, first.base_url) == ("A", "https", 40.0, "")
    assert (second.serial, second.scheme, second.reply_timeout_seconds) == ("B", "http", 5.5)
    assert second.base_url == "http://10.0.0.9:6868"
    assert second.connect_timeout_seconds == 3.0
    assert {key: config.sources[f"terminals[1].{key}"] for key in ("scheme", "connect_timeout_seconds")} == {
        "scheme": "file",
        "connect_timeout_seconds": "default",
    }
    assert config.sources["terminals[0].reply_timeout_seconds"] == "terminal_defaults"


def test_a_terminal_in_the_cloud_has_its_settings() -> None:
    config = read(
        """
        [webhooks]
        public_url = "https://pos.example/shop-14/"
        [[terminals]]
        serial = "A"
        [[terminals]]
        serial = "B"
        access_mode = "cloud"
        base_url = "https://service.example/"
        """
    )
    assert [terminal.access_mode for terminal in config.terminals] == ["local", "cloud"]
    assert config.terminals[1].base_url == "https://service.example"
    assert config.webhooks.public_url == "https://pos.example/shop-14"


def test_a_cloud_default_requires_nothing_of_a_local_terminal() -> None:
    text = '[terminal_defaults]\naccess_mode = "cloud"\n'
    assert read(text).terminals == ()
    config = read(text + '[[terminals]]\nserial = "A"\naccess_mode = "local"')
    assert (config.terminals[0].access_mode, config.terminals[0].base_url) == ("local", "")


@pytest.mark.parametrize("written", ["AB" * 32, ":".join(["ab"] * 32), "", "Ab:" * 31 + "aB"])
def test_fingerprints_are_normalised(written: str) -> None:
    config = read(f'[[terminals]]\nserial = "A"\nfingerprint_sha256 = "{written}"')
    assert config.terminals[0].fingerprint_sha256 == ("ab" * 32 if written else "")


@pytest.mark.parametrize(
    ("listen", "host", "port"),
    [("127.0.0.1:0", "127.0.0.1", 0), ("[::]:8443", "::", 8443), ("[::1]:65535", "::1", 65535)],
)
def test_listen_addresses_are_read(listen: str, host: str, port: int) -> None:
    webhooks = read(f'[webhooks]\nlisten = "{listen}"').webhooks
    assert (webhooks.listen.host, webhooks.listen.port, str(webhooks.listen)) == (host, port, listen)


@pytest.mark.parametrize("host", ["pos.shop.example", "10.0.0.9", "fd00::9", "pos_1", "localhost"])
def test_valid_hosts_can_be_advertised(host: str) -> None:
    assert read(f'[webhooks]\nadvertise_host = "{host}"').webhooks.advertise_host == host


@pytest.mark.parametrize("url", ["https://10.0.0.9", "https://[fd00::9]:6869", "https://t.example:1/a/b"])
def test_valid_base_urls_are_accepted(url: str) -> None:
    assert read(f'[[terminals]]\nserial = "A"\nbase_url = "{url}"').terminals[0].base_url == url


def test_the_shown_configuration_can_be_loaded(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret")
    shown_once = read(
        """
        [database]
        path = "a/b.db"
        [terminal_defaults]
        headers = {X-File = {file = "secret"}, X-Credential = {credential = "key"}}
        [profile]
        headers = {X-Local = {file = "secret"}}
        [profile.cloud]
        headers = {"x!file" = {credential = "key"}}
        [[terminals]]
        serial = 'SN "7" \\ é'
        [[terminals]]
        serial = "B"
        base_url = "https://10.0.0.9:6869"
        connect_timeout_seconds = 2.5
        """.replace("é", "e"),
        tmp_path,
    )
    text = "\n".join(line for line, _ in toml_lines(shown_once))
    again = read(text, tmp_path)
    assert "s3cret" not in text
    assert again.terminals == shown_once.terminals
    assert again.profile_headers == shown_once.profile_headers
    assert "\n".join(line for line, _ in toml_lines(again)) == text


def test_a_refund_may_use_the_path_of_a_void() -> None:
    rows = read('[profile.refund]\npath = "/terminal/v1/async/void"').profiles["classic"]["local"]
    assert rows["refund"].path == rows["void"].path


def test_terminals_of_one_service_share_its_address() -> None:
    cloud = "".join(f'[[terminals]]\nserial = "{serial}"\nbase_url = "https://a.example"\n' for serial in "AB")
    text = f'[webhooks]\npublic_url = "https://b.example"\n[terminal_defaults]\naccess_mode = "cloud"\n{cloud}'
    assert len(read(text).terminals) == 2


@pytest.mark.parametrize(
    ("metrics", "webhooks"),
    [("127.0.0.1:8443", "10.0.0.9:8443"), ("[::1]:8443", "0.0.0.0:8443"), ("127.0.0.1:0", "127.0.0.1:0")],
)
def test_listeners_on_different_addresses_may_have_the_same_port(metrics: str, webhooks: str) -> None:
    read(f'[metrics]\nlisten = "{metrics}"\n[webhooks]\nlisten = "{webhooks}"')


def test_the_daemon_imports_few_modules_for_the_configuration() -> None:
    heavy = {"click", "rich", "cryptography", "hypercorn", "starlette", "zeroconf", "httpx2"}
    code = f"import sys, posd.config, posd.config.show, posd.tls; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
