"""Request headers. The values of headers have several sources and are never shown."""

import json
from itertools import combinations
from pathlib import Path

import pytest

from posd.config import Config, ConfigError, parse
from posd.config.show import entries
from posd.config.values import MAX_HEADER_BYTES
from tests.rig.tables import every

SECRET = "hunter2-hunter2"


def read(headers: str, directory: Path, own: str = "{}") -> Config:
    text = f'[terminal_defaults]\nheaders = {headers}\n[[terminals]]\nserial = "A"\nheaders = {own}'
    return parse(text, file=directory / "config.toml")


def resolved(config: Config) -> dict[str, str]:
    return {name: header.resolve() for name, header in config.terminals[0].headers.items()}


def test_a_header_value_comes_from_the_configuration_or_a_file_or_a_credential(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("from file\n")
    (tmp_path / "credentials").mkdir()
    (tmp_path / "credentials/key").write_text("from credential\n")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "credentials"))
    config = read('{A = "plain", B = {file = "token"}, C = {credential = "key"}}', tmp_path)
    assert resolved(config) == {"A": "plain", "B": "from file", "C": "from credential"}


def test_the_file_of_a_header_value_is_read_only_when_used(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("old")
    config = read('{A = {file = "token"}}', tmp_path)
    (tmp_path / "token").write_text("new")
    assert resolved(config) == {"A": "new"}
    (tmp_path / "token").unlink()
    with pytest.raises(ConfigError, match=r"token: cannot be read \(No such file or directory\); make it readable"):
        resolved(config)


def test_a_terminals_header_replaces_a_header_of_the_same_name(tmp_path: Path) -> None:
    config = read('{X-Key = "all", X-Store = "14"}', tmp_path, own='{x-key = "mine", X-New = "1"}')
    assert resolved(config) == {"X-Store": "14", "x-key": "mine", "X-New": "1"}


ALL, LOCAL, CLOUD, OWN = "terminal_defaults", "profile", "profile.cloud", "the terminal"

#: Access mode -> sections with headers. A later section replaces an earlier section.
LAYERS = {"local": (ALL, LOCAL, OWN), "cloud": (ALL, CLOUD, OWN)}
NAMES = {ALL: "X-Key", LOCAL: "x-key", CLOUD: "X-KEY", OWN: "x-Key"}


@every("given", [names for size in range(5) for names in combinations(NAMES, size)], ids=",".join)
@every("mode", LAYERS)
def test_a_later_section_replaces_a_header_of_the_same_name(tmp_path: Path, mode: str, given: tuple[str, ...]) -> None:
    """For every set of sections with a header, the last section counts. Sections of the other access mode do not
    count.
    """

    def headers(section: str) -> str:
        own = f"Only-{section.replace('.', '-').replace(' ', '-')}"
        return f'headers = {{{NAMES[section]} = "{section}", {own} = "x"}}' if section in given else ""

    config = parse(
        f"""
        [webhooks]
        public_url = "https://pos.example"
        [terminal_defaults]
        {headers(ALL)}
        [profile]
        {headers(LOCAL)}
        [profile.cloud]
        {headers(CLOUD)}
        [[terminals]]
        serial = "A"
        access_mode = "{mode}"
        base_url = "https://10.0.0.9"
        {headers(OWN)}
        """,
        file=tmp_path / "config.toml",
    )
    layers = [section for section in LAYERS[mode] if section in given]
    found = resolved(config)
    assert {name: value for name, value in found.items() if name.lower() == "x-key"} == (
        {NAMES[layers[-1]]: layers[-1]} if layers else {}
    )
    assert len(found) == len(layers) + bool(layers)


def test_outside_the_service_a_missing_credential_is_reported_only_when_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    config = read('{A = {credential = "key"}}', tmp_path)
    with pytest.raises(ConfigError, match=r"LoadCredential=key:"):
        resolved(config)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    with pytest.raises(ConfigError, match="No such file"):
        read('{A = {credential = "key"}}', tmp_path)


@pytest.mark.parametrize("where", ["value", "file"])
def test_a_value_is_never_shown(tmp_path: Path, where: str) -> None:
    (tmp_path / "token").write_text(SECRET)
    config = read(f'{{A = "{SECRET}"}}' if where == "value" else '{A = {file = "token"}}', tmp_path)
    shown = repr(config) + str(config) + json.dumps([entry.value for entry in entries(config)])
    assert SECRET not in shown
    assert resolved(config) == {"A": SECRET}


@every(
    ("headers", "reason"),
    [
        ('{Host = "a"}', "Host is a header that posd sets itself"),
        ('{Accept-Encoding = "gzip"}', "Accept-Encoding is a header that posd sets itself"),
        ('{"a b" = "x"}', "is not a header name"),
        ('{A = "x", a = "y"}', "a is given twice"),
        (f'{{A = "{SECRET}\\r\\nX: y"}}', "not one line of visible ASCII"),
        ('{A = ""}', "not one line of visible ASCII"),
        ('{A = "é"}', "not one line of visible ASCII"),
        ("{A = 1}", "has no usable value"),
        ('{A = {file = ""}}', "has no usable value"),
        (f'{{A = {{value = "{SECRET}"}}}}', "has no usable value"),
        ('{A = {file = "a", credential = "b"}}', "has no usable value"),
        ('{A = {credential = "../x"}}', "names a credential that cannot exist"),
        ('{A = {file = "two-lines"}}', "is not one line"),
        ('{A = {file = "empty"}}', "is not one line"),
        ('{A = {file = "binary"}}', "is not one line"),
        ('{A = {file = "long"}}', "is longer than 8192 bytes"),
        ('"x"', "must be a table"),
    ],
)
def test_invalid_headers_are_refused(tmp_path: Path, headers: str, reason: str) -> None:
    (tmp_path / "two-lines").write_text(f"{SECRET}\n{SECRET}\n")
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "binary").write_bytes(b"\xff\x00")
    (tmp_path / "long").write_text("x" * (MAX_HEADER_BYTES + 1))
    with pytest.raises(ConfigError) as caught:
        read(headers, tmp_path)
    (problem,) = caught.value.problems
    assert reason in str(problem)
    assert SECRET not in str(problem)
