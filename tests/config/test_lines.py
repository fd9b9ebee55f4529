"""The line that a configuration problem names."""

from pathlib import Path

import pytest

from posd.config import ConfigError, load
from posd.config.layers import MAX_LINES, line_of

TEXT = """\
# [local_api] language = "es"
[local_api]
language = "en"  # till_group =

[discovery]
serial_keys = [
  "serial",  # interfaces =
  "sn",
]
interfaces = []
[profile]
cloud.charge.path = "/x"
headers = {A = "1", "B c" = "2"}
text = '''
[logging]
level = "x"
'''
[[terminals]]
serial = "1"
[[terminals]]
headers = {X = {file = "a"}}
serial = "2"
[logging]
level = "info"
"""

LINES = {
    "local_api": 2,
    "local_api.language": 3,
    "local_api.till_group": 2,  # for a missing key, the line is the beginning of its section
    "discovery.serial_keys": 6,
    "discovery.serial_keys[1]": 6,
    "discovery.interfaces": 10,
    "profile.cloud.charge.path": 12,
    "profile.cloud.charge.method": 12,
    "profile.headers.A": 13,
    'profile.headers."B c"': 13,
    "terminals": 18,
    "terminals[0].serial": 19,
    "terminals[1]": 20,
    "terminals[1].headers.X.file": 21,
    "terminals[1].serial": 22,
    "terminals[2].serial": 18,
    "logging.level": 24,
    "webhooks.public_url": None,
    "": None,
}


@pytest.mark.parametrize("ends", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_a_key_is_found_on_its_line(ends: str) -> None:
    text = TEXT.replace("\n", ends)
    assert {key: line_of(text, key) for key in LINES} == LINES


def test_an_invalid_or_very_long_file_is_not_searched() -> None:
    assert line_of("[a\n", "a") is None
    assert line_of("[a]\n" + "\n" * MAX_LINES, "a") is None


def test_the_problem_of_an_invalid_file_has_the_line_from_the_parser(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[logging]\nlevel = yes\n")
    with pytest.raises(ConfigError, match=r"config\.toml:2: is not valid TOML: Invalid value") as caught:
        load(tmp_path / "config.toml")
    assert [problem.line for problem in caught.value.problems] == [2]
