"""Changes of a configuration that apply at once, and changes that need a restart."""

from pathlib import Path

import pytest

from posd.config import Config, parse
from posd.config.schema import SECTIONS, keys
from posd.daemon.reload import TAKEN_UP, needs_restart, taken_up

TERMINAL = '[[terminals]]\nserial = "SN-1"\n'
#: Key that a reload applies -> another value.
OTHER = {
    "logging.level": '"debug"',
    "terminal_defaults.scheme": '"http"',
    "webhooks.advertise_host": '"posd.local"',
    "webhooks.public_url": '"https://posd.example"',
}


def read(text: str) -> Config:
    return parse(text, file=Path("/etc/posd/config.toml"), check_files=False)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("", TERMINAL, ("terminals added: SN-1",)),
        (TERMINAL, "", ("terminals removed: SN-1",)),
        (TERMINAL, TERMINAL, ()),
        (TERMINAL, TERMINAL + 'base_url = "https://127.0.0.1"\n', ("terminals changed: SN-1",)),
        (TERMINAL, TERMINAL.replace("1", "2"), ("terminals added: SN-2", "terminals removed: SN-1")),
        ("", '[profile.charge]\npath = "/x"\n', ("the profile",)),
    ],
)
def test_changes_of_terminals_and_the_profile_apply_at_once(before: str, after: str, words: tuple[str, ...]) -> None:
    assert taken_up(read(before), read(after)) == words
    assert needs_restart(read(before), read(after)) == ()


@pytest.mark.parametrize("key", OTHER)
def test_keys_that_a_reload_applies_are_reported(key: str) -> None:
    section, name = key.split(".")
    new = read(f"[{section}]\n{name} = {OTHER[key]}\n")
    assert taken_up(read(""), new) == (key,)
    assert needs_restart(read(""), new) == ()


def test_every_other_change_needs_a_restart() -> None:
    text = '[merchant]\nid = "M"\n[webhooks]\nlisten = "127.0.0.1:1"\n[print]\nstuck_seconds = 7\ntext_member = "t"\n'
    assert needs_restart(read(""), read(text)) == ("merchant.id", "webhooks.listen", "print.stuck_seconds")
    assert taken_up(read(""), read(text)) == ()


def test_every_named_key_exists() -> None:
    known = {f"{name}.{key}" for name, section in SECTIONS.items() for key in keys(section)} | set(SECTIONS)
    assert known >= TAKEN_UP
