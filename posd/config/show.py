"""Output of the present configuration as TOML or as plain values. Values of headers are never shown."""

import json
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from posd.config.profile import ACCESS_MODES, EDITION_NAMES, EDITIONS, AccessMode, Edition, OperationRow
from posd.config.schema import PROFILE_SECTIONS, SECTIONS, Config, Source, TerminalConfig, keys, row_keys
from posd.config.values import HeaderValue, ListenAddress, written_key


class ShownValue(msgspec.Struct, frozen=True):
    """One value in JSON's types. `section`: as in the file (`terminals[0]`). `file`: file that contains the value."""

    section: str
    name: str
    value: Any
    source: Source
    file: Path | None


class ProfileEntry(msgspec.Struct, frozen=True):
    """One row of the present terminal profile. `abortable`: None for an operation that has no aborts."""

    edition: Edition
    access_mode: AccessMode
    operation: str
    row: OperationRow
    replaced: bool

    @property
    def abortable(self) -> bool | None:
        """Whether the POS can abort the operation of this row."""
        return self.row.abortable if "abortable" in row_keys(self.operation) else None


def entries(config: Config) -> Iterator[ShownValue]:
    """Yield every value except the rows of the terminal profile, in the order of the file."""
    for section, kind in SECTIONS.items():
        yield from _entries(config, section, kind, config.section(section))
    for access_mode, section in PROFILE_SECTIONS.items():
        yield _entry(config, section, "headers", config.profile_headers[access_mode])
    for index, terminal in enumerate(config.terminals):
        yield from _entries(config, f"terminals[{index}]", TerminalConfig, terminal)


def profile_entries(config: Config) -> Iterator[ProfileEntry]:
    """Yield the present terminal profile for each used edition: first for the local network, then for the cloud."""
    used = {terminal.edition for terminal in config.terminals} or {config.terminal_defaults.edition}
    for edition in (name for name in EDITION_NAMES if name in used):
        for access_mode in ACCESS_MODES:
            defaults = EDITIONS[edition][access_mode]
            for operation, row in config.profiles[edition][access_mode].items():
                yield ProfileEntry(edition, access_mode, operation, row, replaced=row != defaults[operation])


def toml_lines(config: Config) -> Iterator[tuple[str, ShownValue | None]]:
    """Yield the configuration as TOML, line by line, each with its value (None for a line without a value)."""
    section = ""
    for entry in entries(config):
        if entry.section != section:
            if section:
                yield "", None
            section = entry.section
            yield "[[terminals]]" if section.startswith("terminals[") else f"[{section}]", None
        yield f"{entry.name} = {_toml(entry.value)}", entry


def _entries(config: Config, section: str, kind: type[Any], values: object) -> Iterator[ShownValue]:
    for name in keys(kind):
        yield _entry(config, section, name, getattr(values, name))


def _entry(config: Config, section: str, name: str, value: object) -> ShownValue:
    source = config.sources[f"{section}.{name}"]
    file = config.layers.origin(f"{section}.{name}")[0] if source == "file" else None
    return ShownValue(section, name, _plain(value), source, file)


def _plain(value: object) -> Any:
    match value:
        case None:
            return ""
        case Path() | ListenAddress() | Decimal():
            return str(value)
        case tuple():
            return list(value)
        case HeaderValue():
            return _header(value)
        case Mapping():
            return {name: _header(header) for name, header in value.items()}
        case float() if value.is_integer():
            return int(value)
        case _:
            return value


def _header(header: HeaderValue) -> Mapping[str, object]:
    if header.file is not None:
        return {"file": str(header.file)}
    return {"hidden": True} if header.credential is None else {"credential": header.credential}


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{written_key(name)} = {_toml(item)}' for name, item in value.items())}}}"
    # JSON's strings, numbers, booleans and lists are valid TOML.
    return json.dumps(value, ensure_ascii=False)
