"""What a changed configuration changes: what a running posd can take up, and what only a restart can."""

from dataclasses import fields
from typing import Final

from posd.config.schema import SECTIONS, Config

#: Keys that are taken up while posd runs, beside the terminals and the profile; of a section, where no key is named.
TAKEN_UP: Final = frozenset(
    {
        "logging",
        "terminal_defaults",
        "webhooks.advertise_host",
        "webhooks.public_url",
        "webhooks.certificate",
        "webhooks.private_key",
    }
)
#: Read by the commands alone.
OF_COMMANDS: Final = frozenset({"print.text_member"})


def needs_restart(running: Config, new: Config) -> tuple[str, ...]:
    """Name the keys whose new values only a restart takes up."""
    return tuple(key for key in _differing(running, new) if not _known({key, key.partition(".")[0]}))


def taken_up(before: Config, new: Config) -> tuple[str, ...]:
    """Say what changes at once, in words; nothing where nothing does."""
    old = {terminal.serial: terminal for terminal in before.terminals}
    now = {terminal.serial: terminal for terminal in new.terminals}
    lists = {
        "added": [serial for serial in now if serial not in old],
        "removed": [serial for serial in old if serial not in now],
        "changed": [serial for serial in now if serial in old and now[serial] != old[serial]],
    }
    words = [f"terminals {what}: {', '.join(serials)}" for what, serials in lists.items() if serials]
    if new.profile != before.profile:
        words.append("the profile")
    return (*words, *(key for key in _differing(before, new) if {key, key.partition(".")[0]} & TAKEN_UP))


def _differing(one: Config, other: Config) -> tuple[str, ...]:
    return tuple(
        f"{name}.{key.name}"
        for name, section in SECTIONS.items()
        for key in fields(section)
        if getattr(_section(one, name), key.name) != getattr(_section(other, name), key.name)
    )


def _section(config: Config, name: str) -> object:
    return getattr(config, "print_" if name == "print" else name)


def _known(names: set[str]) -> bool:
    return bool(names & (TAKEN_UP | OF_COMMANDS))
