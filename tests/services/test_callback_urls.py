"""Callback URLs: the chosen address, the valid keys, and the key file."""

import asyncio
import os
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from posd.base.ids import Channel
from posd.records.callback_urls import CREDENTIAL, CallbackUrls, KeyFileError, load_keys
from tests.core.scenarios import IDENTITY
from tests.rig.needs import needs_ipv6

NEW, OLD = b"n" * 32, b"o" * 32


async def token_of(urls: CallbackUrls) -> str:
    """Return the token in the callback URL."""
    url = await urls.url(Channel.TRANSACTION, IDENTITY, "https://127.0.0.1:1")
    return urlsplit(url).path.rsplit("/", 1)[1]


async def test_the_newest_key_makes_tokens_and_tokens_of_older_keys_stay_valid() -> None:
    before, after = CallbackUrls((OLD,), "", 1), CallbackUrls((NEW, OLD), "", 1)
    for token in (await token_of(before), await token_of(after)):
        assert after.authentic(Channel.TRANSACTION, IDENTITY, token)
    assert await token_of(after) == await token_of(CallbackUrls((NEW,), "", 1))
    assert not before.authentic(Channel.TRANSACTION, IDENTITY, await token_of(after))


@pytest.mark.parametrize(
    ("advertise_host", "netloc"),
    [("", "127.0.0.1:8443"), ("pos.shop.example", "pos.shop.example:8443"), ("2001:db8::1", "[2001:db8::1]:8443")],
)
async def test_the_callback_address_is_reachable_unless_one_is_configured(advertise_host: str, netloc: str) -> None:
    url = await CallbackUrls((NEW,), advertise_host, 8443).url(Channel.TRANSACTION, IDENTITY, "https://127.0.0.1:1")
    assert (urlsplit(url).scheme, urlsplit(url).netloc) == ("https", netloc)


@pytest.mark.parametrize(
    ("listen_host", "host"),
    [
        ("0.0.0.0", "127.0.0.1"),
        ("::", "127.0.0.1"),
        ("127.0.0.2", "127.0.0.2"),
        (
            "FD00::0:1",
            "fd00::1",
        ),  # the address has the system's notation, because posd compares it with the addresses of this machine
        ("fe80::1%eth0", "fe80::1"),
    ],
)
async def test_with_one_listen_address_the_terminal_gets_that_address(listen_host: str, host: str) -> None:
    urls = CallbackUrls((NEW,), "", 8443, listen_host=listen_host)
    url, host_in_it = await urls.url_and_host(Channel.TRANSACTION, IDENTITY, "https://127.0.0.1:1")
    written = f"[{host}]" if ":" in host else host
    assert (urlsplit(url).netloc, host_in_it) == (f"{written}:8443", host)


async def test_a_configured_address_is_not_watched() -> None:
    advertised = CallbackUrls((NEW,), "pos.shop.example", 8443, listen_host="127.0.0.2")
    url, host_in_it = await advertised.url_and_host(Channel.TRANSACTION, IDENTITY, "https://127.0.0.1:1")
    assert (urlsplit(url).netloc, host_in_it) == ("pos.shop.example:8443", None)
    public = CallbackUrls((NEW,), "", 8443, "https://pos.example/posd/")
    url, host_in_it = await public.url_and_host(Channel.TRANSACTION, IDENTITY, "https://service.example", "cloud")
    assert (url.startswith("https://pos.example/posd/webhooks/"), host_in_it) == (True, None)


def test_the_key_is_created_once_and_private_under_any_umask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "callback.key"
    synced: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(Path(f"/proc/self/fd/{descriptor}").readlink()))
    before = os.umask(0)
    try:
        made = load_keys(path, may_make=True)
    finally:
        os.umask(before)
    assert [item.parent for item in synced] == [tmp_path, tmp_path.parent], "the file is synced before its name"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [len(key) for key in made] == [32]
    assert load_keys(path, may_make=True) == made
    assert [item.name for item in tmp_path.iterdir()] == ["callback.key"]


def test_a_file_of_several_keys_has_the_newest_first(tmp_path: Path) -> None:
    (tmp_path / "callback.key").write_text(f"{NEW.hex()}\n{OLD.hex()}\n")
    assert load_keys(tmp_path / "callback.key", may_make=False) == (NEW, OLD)


@pytest.mark.parametrize("text", ["", "\n", "00", f"{'0' * 63}g\n", f"{'0' * 64}\nshort\n", "é"])
def test_an_invalid_key_file_is_reported_and_kept(tmp_path: Path, text: str) -> None:
    path = tmp_path / "callback.key"
    path.write_text(text)
    with pytest.raises(KeyFileError, match=r"callback\.key"):
        load_keys(path, may_make=True)
    assert path.read_text() == text


def test_a_credential_of_systemd_replaces_the_key_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "credentials").mkdir()
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "credentials"))
    mine = load_keys(tmp_path / "mine.key", may_make=True)
    (tmp_path / "credentials" / CREDENTIAL).write_text(OLD.hex())
    assert load_keys(tmp_path / "mine.key", may_make=True) == (OLD,)
    assert mine != (OLD,)


@pytest.mark.parametrize("address", ["127.0.0.1", pytest.param("[::1]", marks=needs_ipv6())])
async def test_only_a_host_name_needs_a_resolver(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    urls, asked = CallbackUrls((NEW,), "", 8443), []
    loop = asyncio.get_running_loop()
    resolve = loop.getaddrinfo

    async def noted(host: str, port: int, **options: int) -> object:
        asked.append(host)
        return await resolve(host, port, **options)

    monkeypatch.setattr(loop, "getaddrinfo", noted)
    for host in (address, "localhost"):
        _, host_in_it = await urls.url_and_host(Channel.TRANSACTION, IDENTITY, f"https://{host}:1")
        assert host_in_it in ("127.0.0.1", "::1")
    assert asked == ["localhost"]
