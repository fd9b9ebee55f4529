"""The two examples. config.example.toml has every key with its default. packaging/config.toml has the settings of a
shop.
"""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from posd.config import Config, load, parse
from posd.config.profile import ACCESS_MODES, EDITIONS
from posd.config.schema import PROFILE_KEYS, PROFILE_SECTIONS, SECTIONS, TerminalConfig, keys, row_keys

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "config.example.toml"
#: The file that the package installs on a machine.
OF_A_SHOP = ROOT / "packaging" / "config.toml"
#: Greatest number of settings in the installed file. A short file is quick to read.
MOST_SETTINGS = 10


def documented(file: Path = EXAMPLE) -> dict[str, Any]:
    """Read an example with the commented-out lines. These lines are settings of a shop, and keys whose default depends
    on another key.
    """
    return tomllib.loads(re.sub(r"(?m)^#(?=[a-z])", "", file.read_text()))


def defaults() -> Config:
    return parse('[[terminals]]\nserial = "SN-0001"', file=EXAMPLE)


def test_the_example_has_the_defaults_of_the_code() -> None:
    example, bare = load(EXAMPLE), defaults()
    for section in (*SECTIONS, "terminals", "profiles", "profile_headers"):
        name = "print_" if section == "print" else section
        assert getattr(example, name) == getattr(bare, name), section


def test_the_installed_file_is_valid_and_sets_nothing() -> None:
    """An installed setting would stay even if a later version has a better default."""
    assert not list(flat(tomllib.loads(OF_A_SHOP.read_text())))
    assert load(OF_A_SHOP).terminals == ()


def test_the_example_for_one_shop_is_short_and_valid() -> None:
    text = re.sub(r"(?m)^#(?=[a-z])", "", OF_A_SHOP.read_text())
    config = parse(text, file=OF_A_SHOP)
    shown = list(flat(documented(OF_A_SHOP)))
    assert 0 < len(shown) <= MOST_SETTINGS
    assert set(shown) <= set(every_key())
    assert {config.sources[key] for key in shown} == {"file"}


def every_key() -> Iterator[str]:
    for section, kind in SECTIONS.items():
        yield from (f"{section}.{name}" for name in keys(kind))
    own = keys(TerminalConfig).keys() - keys(SECTIONS["terminal_defaults"]).keys()
    yield from (f"terminals.{name}" for name in own)
    for access_mode in ACCESS_MODES:
        at = PROFILE_SECTIONS[access_mode]
        yield from (f"{at}.{name}" for name in PROFILE_KEYS)
        for operation in EDITIONS["classic"][access_mode]:
            yield from (f"{at}.{operation}.{name}" for name in row_keys(operation))


def flat(table: dict[str, Any], at: str = "") -> Iterator[str]:
    for name, value in table.items():
        if isinstance(value, dict) and name != "headers":
            yield from flat(value, f"{at}{name}.")
        else:
            yield f"{at}{name}"


def test_the_example_has_every_key_and_no_unknown_key() -> None:
    document = documented()
    (document["terminals"],) = document["terminals"]
    assert sorted(flat(document)) == sorted(every_key())


def test_only_starting_calls_have_the_key_abortable_and_only_search_has_pointer() -> None:
    starts = {"charge", "pre-auth", "capture", "re-auth", "post-tip", "void", "refund"}
    assert {name for name in EDITIONS["classic"]["local"] if "abortable" in row_keys(name)} == starts
    assert {name for name in EDITIONS["classic"]["local"] if "pointer" in row_keys(name)} == {"search"}


def test_the_example_marks_every_assumption() -> None:
    lines = EXAMPLE.read_text().splitlines()
    for access_mode in ACCESS_MODES:
        at = PROFILE_SECTIONS[access_mode]
        for operation, row in EDITIONS["classic"][access_mode].items():
            below = lines[lines.index(f"[{at}.{operation}]") + 1]
            assert below.startswith("# Assumption, ") == (not row.confirmed), operation


def test_every_key_has_a_comment() -> None:
    """Each key is below a comment, or below another key that shares the comment."""
    explained = False
    for line in EXAMPLE.read_text().partition("[profile.charge]")[0].splitlines():
        if " = " in line and not line.startswith("#"):
            assert explained, line
        explained = line.startswith("#") or (explained and " = " in line)
