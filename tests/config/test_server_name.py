"""`server_name`: the name in a terminal's certificate, refused if posd checks no name."""

from pathlib import Path

import pytest

from posd.config import Config, ConfigError, parse

PIN = "fingerprint_sha256 = '" + "0" * 64 + "'\n"


def read(defaults: str = "", *terminals: str) -> Config:
    sections = "".join(f"[[terminals]]\nserial = 'SN-{number}'\n{text}\n" for number, text in enumerate(terminals))
    return parse(f"[terminal_defaults]\n{defaults}\n{sections}", file=Path("/etc/posd/config.toml"))


def test_a_server_name_is_inherited_and_replaced() -> None:
    config = read("server_name = 'terminal.example'", "", "server_name = '10.1.2.3'", "server_name = ''")
    assert [item.server_name for item in config.terminals] == ["terminal.example", "10.1.2.3", ""]


@pytest.mark.parametrize("name", ["*.example", "https://a.example", "a.example:6869", "[::1]", "a b", "10.0.0.256"])
def test_an_invalid_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read("", f"server_name = '{name}'")
    (problem,) = caught.value.problems
    assert problem.key == "terminals[0].server_name"
    assert "neither a host name nor an IP address" in problem.reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (PIN, "fingerprint_sha256 trusts one certificate under any name"),
        ("base_url = 'http://10.0.0.7:6868'\n", "this terminal is called without TLS"),
        ("scheme = 'http'\n", "this terminal is called without TLS"),
    ],
    ids=["fingerprint", "base_url", "scheme"],
)
def test_a_server_name_is_refused_if_posd_checks_no_name(text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read("", f"server_name = 'a.example'\n{text}")
    (problem,) = caught.value.problems
    assert problem.key == "terminals[0].server_name"
    assert reason in problem.reason


def test_a_default_applies_only_to_terminals_that_use_it() -> None:
    read("server_name = 'a.example'")
    read("server_name = 'a.example'", PIN, "")
    with pytest.raises(ConfigError) as caught:
        read("server_name = 'a.example'", PIN, "scheme = 'http'\n")
    (problem,) = caught.value.problems
    assert (problem.key, "every terminal" in problem.reason) == ("terminal_defaults.server_name", True)
